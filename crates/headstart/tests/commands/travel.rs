//! Profiles that travel: what one machine has learned serves the first start on another, and no longer.

use crate::common::{Case, can_record, finish};
use crate::runs::program;
use headstart_model::profile::Entry;
use headstart_model::profile_set::of_size;
use headstart_model::{Profile, ProfileSet, limits, testing};
use serde_json::Value;
use std::path::Path;

/// The words of a command on another machine: with another state directory.
fn on_other<'a>(state: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    [&["--state", state], words].concat()
}

struct Machines {
    case: Case,
    program: String,
    other: String,
}

impl Machines {
    fn new() -> Machines {
        let case = Case::new();
        let program = program(&case);
        let other = case.path("other").to_str().unwrap().to_owned();
        Machines { case, program, other }
    }

    /// Starts the program on the other machine, with nothing of it in memory; a key's first cold starts are
    /// no controls.
    fn start(&self) {
        for entry in std::fs::read_dir(self.case.path("")).unwrap().flatten() {
            if entry.file_type().unwrap().is_file() {
                self.case.evict(entry.file_name().to_str().unwrap());
            }
        }
        let run = [
            "run",
            "--wait",
            "--control-every",
            "0",
            "--name",
            "k",
            "--",
            &self.program,
        ];
        let ran = self.case.headstart(&on_other(&self.other, &run));
        assert_eq!(
            (ran.code(), ran.out.as_str(), ran.err.as_str()),
            (0, "16384\n", "")
        );
    }

    fn on_other(&self, words: &[&str]) -> Value {
        self.case.json(&on_other(&self.other, words))
    }

    fn modes(&self) -> Vec<String> {
        let status = self.on_other(&["status", "k", "--json"]);
        let outcomes = status["outcomes"].as_array().unwrap().iter();
        outcomes
            .map(|it| it["mode"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Whether something of the file is read ahead for the next start there.
    fn is_prefetched(&self, file: &str) -> bool {
        let path = self.case.path(file);
        let words = ["explain", path.to_str().unwrap(), "--name", "k", "--json"];
        // The status says whether the path is known at all.
        let ran = self.case.headstart(&on_other(&self.other, &words));
        let all: Value = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.err));
        all.as_array().unwrap().iter().any(|it| it["prefetched"] == true)
    }
}

#[test]
fn the_first_start_on_another_machine_is_read_ahead_and_its_own_starts_replace_what_was_imported() {
    if !can_record() {
        return;
    }
    let machines = Machines::new();
    machines.case.run("k", &[&machines.program]);
    let export = [
        "profile",
        "export",
        "k",
        "--with-homes",
        "-o",
        "k.profiles",
        "--json",
    ];
    let exported = machines.case.json(&export);
    assert_eq!(exported["keys"], serde_json::json!(["k"]), "{exported}");
    let shown = machines.case.headstart(&["show", "k.profiles"]);
    assert!(shown.out.contains("profiles of 1 keys"), "{}", shown.out);

    let imported = machines.on_other(&["profile", "import", "k.profiles", "--json"]);
    assert_eq!(imported["imported"][0]["key"], "k", "{imported}");
    let status = machines.on_other(&["status", "k", "--json"]);
    assert_eq!(status["imported"]["is_used"], true, "{status}");
    assert!(status["plan"].is_object() && status["outcomes"] == serde_json::json!([]));
    let listed = machines.case.headstart(&on_other(&machines.other, &["status"]));
    assert!(listed.out.contains("imported, "), "{}", listed.out);
    assert!(machines.is_prefetched("data") && machines.is_prefetched("small-7"));
    let explained = machines
        .case
        .headstart(&on_other(&machines.other, &["explain", "data"]));
    assert!(explained.out.contains("imported from"), "{}", explained.out);

    machines.start();
    assert_eq!(machines.modes(), ["replay"]);
    let status = machines.on_other(&["status", "k", "--json"]);
    let outcome = &status["outcomes"][0];
    assert_eq!(outcome["not_learned"], Value::Null, "{outcome}");
    let used = |name: &str| outcome["stages"][0][name].as_u64().unwrap();
    assert!(used("used_pages") > 200 && used("wasted_pages") < 50, "{outcome}");
    assert_eq!(status["imported"]["is_used"], false, "its own start has taught");
    assert_eq!(status["profile"]["runs"], 1);
    machines.start();
    assert_eq!(machines.modes(), ["replay", "replay"]);

    machines.on_other(&["forget", "k", "--json"]);
    let gone = machines
        .case
        .headstart(&on_other(&machines.other, &["status", "k"]));
    gone.refused(&["not known"]);
}

/// A file of one profile, whose start reads all of these files.
fn made(case: &Case, name: &str, paths: &[&str]) {
    let page_size = rustix::param::page_size() as u32;
    let entry = |path: &&str| {
        let size = std::fs::metadata(path).map_or(1 << 30, |facts| facts.len());
        Entry {
            version: Some(of_size(size)),
            ranges: vec![testing::range(
                0,
                (size.clamp(1, 1 << 30) as u32).div_ceil(page_size),
                1.0,
            )],
            ..testing::entry(path)
        }
    };
    let mut entries: Vec<Entry> = paths.iter().map(entry).collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let mut set = ProfileSet::default();
    set.add(Profile {
        key: testing::key("k"),
        page_size,
        ..testing::profile(entries)
    })
    .unwrap();
    case.write(name, set.to_bytes().unwrap());
}

#[test]
fn what_a_wrong_profile_has_read_is_not_read_again() {
    if !can_record() {
        return;
    }
    let machines = Machines::new();
    let wrong = machines.case.write("wrong", vec![b'x'; 1 << 20]);
    made(&machines.case, "wrong.profiles", &[wrong.to_str().unwrap()]);
    machines.on_other(&["profile", "import", "wrong.profiles", "--json"]);
    assert!(machines.is_prefetched("wrong"));
    machines.start();
    assert_eq!(machines.modes(), ["replay"]);
    assert!(!machines.is_prefetched("wrong") && machines.is_prefetched("data"));
}

#[test]
fn only_files_that_a_plan_may_read_are_planned() {
    let case = Case::new();
    let here = case.write("data", vec![b'x'; 1 << 16]);
    std::os::unix::fs::symlink("loop", case.path("loop")).unwrap();
    std::os::unix::fs::symlink(&here, case.path("link")).unwrap();
    std::fs::create_dir(case.path("directory")).unwrap();
    let path = |name: &str| case.path(name).to_str().unwrap().to_owned();
    let fifo = std::process::Command::new("mkfifo")
        .arg(case.path("fifo"))
        .status();
    assert!(fifo.unwrap().success());
    let all = [
        "data",
        "loop",
        "loop/data",
        "link",
        "directory",
        "fifo",
        "not-there",
    ]
    .map(path);
    let mut paths: Vec<&str> = all.iter().map(String::as_str).collect();
    paths.extend(["/dev/zero", "/proc/kcore", "/sys/kernel/notes"]);
    made(&case, "k.profiles", &paths);
    let imported = case.json(&["profile", "import", "k.profiles", "--json"]);
    assert_eq!(imported["imported"][0]["data_bytes"], 1 << 16, "{imported}");
}

/// Seconds of processor time that a stranger's file may take to be imported, by a build without optimisation
/// on a busy machine; bytes of memory beyond those of a small file, so that all is less than 64 MiB. What
/// reading the file alone may take the tests of the model say.
const MOST_SECONDS: f64 = 20.0;
const MOST_MEMORY: u64 = 52 << 20;

/// Imports a file and says how many seconds of processor time that took, and how many bytes of memory at
/// most.
fn imported_by(case: &Case, name: &str) -> (f64, u64) {
    let mut command = std::process::Command::new("python3");
    let script = "import resource, subprocess, sys\n\
                  status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode\n\
                  used = resource.getrusage(resource.RUSAGE_CHILDREN)\n\
                  print(status, used.ru_utime + used.ru_stime, used.ru_maxrss)";
    command.args(["-c", script]).arg(crate::common::binary());
    command
        .args(["profile", "import", name])
        .current_dir(case.path(""));
    command.env("HEADSTART_STATE", case.state());
    let ran = finish(command, b"");
    let words: Vec<&str> = ran.out.split_whitespace().collect();
    let [status, seconds, kilobytes] = words[..] else {
        panic!("{}{}", ran.out, ran.err)
    };
    assert_eq!(status, "0", "{}", ran.err);
    (seconds.parse().unwrap(), kilobytes.parse::<u64>().unwrap() << 10)
}

#[test]
fn a_strangers_largest_file_takes_little() {
    let case = Case::new();
    let page_size = rustix::param::page_size() as u32;
    let one = |index: usize, length: usize| {
        let path = format!("{}{index:0length$}", case.path("").display());
        Entry {
            version: Some(of_size(1 << 40)),
            ranges: vec![testing::range(0, 1, 1.0), testing::range(7, 1 << 20, 1.0)],
            ..testing::entry(&path)
        }
    };
    let of = |key: String, entries: Vec<Entry>| Profile {
        key: testing::key(&key),
        page_size,
        ..testing::profile(entries)
    };
    let keys = |count: usize, entries: usize| {
        let of_key = |key: usize| {
            let from = key * entries;
            of(
                format!("{key:03}"),
                (from..from + entries).map(|index| one(index, 60)).collect(),
            )
        };
        testing::profile_set((0..count).map(of_key).collect())
    };
    case.write("small", keys(1, 1).to_bytes().unwrap());
    let (_, small) = imported_by(&case, "small");
    let many = limits::SET_ENTRIES;
    let sets = [
        ("one", keys(1, many)),
        ("each", keys(limits::PROFILES, many / limits::PROFILES)),
    ];
    for (name, set) in sets {
        case.write(name, set.to_bytes().unwrap());
        let (seconds, bytes) = imported_by(&case, name);
        assert!(seconds <= MOST_SECONDS, "{name} took {seconds} s");
        assert!(
            bytes - small <= MOST_MEMORY,
            "{name} took {bytes} bytes, a small one {small}"
        );
    }
}

#[test]
fn damaged_profiles_are_refused_whole() {
    let case = Case::new();
    let here = case.write("data", vec![b'x'; 1 << 16]);
    made(&case, "k.profiles", &[here.to_str().unwrap()]);
    let sound = std::fs::read(case.path("k.profiles")).unwrap();
    case.write("cut.profiles", &sound[..sound.len() - 9]);
    let mut changed = sound.clone();
    *changed.last_mut().unwrap() ^= 1;
    let at = changed.len() / 2;
    changed[at] ^= 0x40;
    case.write("changed.profiles", &changed);
    case.write("none.profiles", b"profiles");
    case.write(
        "plan.profiles",
        testing::draft(testing::FLASH, vec![], vec![]).to_bytes().unwrap(),
    );
    std::fs::File::create(case.path("large.profiles"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    for (name, words) in [
        ("cut.profiles", &["damaged", "length"][..]),
        ("changed.profiles", &["damaged"]),
        ("none.profiles", &["no headstart file of profiles"]),
        ("plan.profiles", &["that of a plan"]),
        ("large.profiles", &["at most"]),
        ("not-there", &["no such file"]),
        ("/dev/zero", &["no regular file"]),
    ] {
        // A sound file before it does not help.
        for files in [&[name][..], &["k.profiles", name]] {
            let ran = case.headstart(&[&["profile", "import"], files].concat());
            ran.refused(words);
            assert!(!Path::new(&case.state()).join("imported").exists(), "{files:?}");
        }
    }
    case.headstart(&["profile", "import"]);
    let usage = case.headstart(&["profile", "import"]);
    assert_eq!(usage.code(), 2, "{}", usage.err);
}

#[test]
fn what_is_not_known_cannot_be_exported() {
    let case = Case::new();
    let none = case.headstart(&["profile", "export", "k", "-o", "k.profiles"]);
    none.refused(&["\"k\" is not known"]);
    let none = case.headstart(&["profile", "export", "--all", "-o", "k.profiles"]);
    none.refused(&["nothing to export", "nothing is known yet"]);
    assert!(!case.path("k.profiles").exists());
    let here = case.write("data", vec![b'x'; 1 << 16]);
    made(&case, "k.profiles", &[here.to_str().unwrap()]);
    case.json(&["profile", "import", "k.profiles", "--json"]);
    let of_others = case.headstart(&["profile", "export", "k", "-o", "again.profiles"]);
    of_others.refused(&["nothing was learned of it here"]);
}

#[test]
fn an_ordinary_user_imports_for_that_user() {
    if !testing::needs("root", crate::common::is_root()) {
        return;
    }
    let case = Case::new();
    crate::common::for_anybody(&case);
    let here = case.write("data", vec![b'x'; 1 << 16]);
    made(&case, "k.profiles", &[here.to_str().unwrap()]);
    let mut command = std::process::Command::new("sh");
    let script = format!(
        "chmod 644 data k.profiles; {} ./headstart --state mine profile import k.profiles",
        crate::common::GIVE_UP
    );
    command.args(["-c", &script]).current_dir(case.path(""));
    let ran = finish(command, b"");
    assert_eq!(ran.code(), 0, "{}", ran.err);
    assert!(ran.out.contains("its first start is read ahead"), "{}", ran.out);
}
