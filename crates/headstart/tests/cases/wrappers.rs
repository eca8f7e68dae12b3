//! What only starts another program has that program's key.

use crate::common::{Case, can_record, eventually, is_root, needs};
use headstart_system::testing::{Mounted, undisturbed};
use std::path::Path;

/// The keys that are known, which are programs.
fn keys(case: &Case) -> Vec<String> {
    let status = case.json(&["status", "--json"]);
    let keys = status.as_array().unwrap().iter();
    keys.map(|status| status["key"].as_str().unwrap().to_string())
        .collect()
}

fn real(path: &str) -> String {
    let path = std::fs::canonicalize(path).unwrap();
    path.to_str().unwrap().to_string()
}

/// Runs commands, and gives the keys that are known then.
fn after(commands: &[&[&str]]) -> Vec<String> {
    let case = Case::new();
    std::fs::write(case.path("lock"), "").unwrap();
    for command in commands {
        let mut words = vec!["run", "--wait", "--"];
        words.extend(*command);
        let ran = case.headstart(&words);
        assert_eq!(ran.code(), 0, "{command:?}: {}", ran.err);
    }
    keys(&case)
}

#[test]
fn wrappers_are_what_they_start() {
    if !can_record() {
        return;
    }
    let expected = vec![real("/bin/true")];
    for command in [
        &["flock", "lock", "true"][..],
        &["flock", "-nE", "9", "lock", "true"],
        &["prlimit", "--core=0", "--nofile=64:64", "true"],
        &["setarch", "-R", "true"],
        &["setarch", "linux64", "true"],
        &["taskset", "-c", "0", "true"],
        &["chrt", "-o", "0", "true"],
        &["nice", "-n", "1", "ionice", "-c3", "flock", "lock", "true"],
        &["choom", "-n", "1", "--", "true"],
    ] {
        assert_eq!(after(&[command]), expected, "{command:?}");
    }
}

#[test]
fn jobs_behind_one_lock_are_different_jobs() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    for (name, text) in [("one", "#!/bin/sh\nexit 0\n"), ("two", "#!/bin/sh\nexit 0\n")] {
        case.program(name, text);
        let ran = case.headstart(&["run", "--wait", "--", "flock", "-n", "l", &format!("./{name}")]);
        assert_eq!(ran.code(), 0, "{}", ran.err);
    }
    let learned = keys(&case);
    assert_eq!(learned.len(), 2, "{learned:?}");
    assert!(
        learned.iter().any(|key| key.ends_with("/one")) && learned.iter().any(|key| key.ends_with("/two"))
    );
}

#[test]
fn the_dynamic_linker_is_the_program_that_it_loads() {
    if !can_record() {
        return;
    }
    let loaders = [
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/ld-linux-aarch64.so.1",
        "/lib64/ld64.so.2",
    ];
    let loader = loaders.into_iter().find(|path| Path::new(path).exists());
    if !needs(
        "a dynamic linker of glibc where it is known to be",
        loader.is_some(),
    ) {
        return;
    }
    let loader = loader.unwrap();
    let expected = vec![real("/bin/true")];
    for command in [
        &[loader, "/bin/true"][..],
        &[
            loader,
            "--inhibit-cache",
            "--library-path",
            "/none",
            "--argv0",
            "x",
            "/bin/true",
        ],
    ] {
        // With a library path of its own it may find no library: then it fails, and has been started all the
        // same.
        let case = Case::new();
        let mut words = vec!["run", "--wait", "--"];
        words.extend(command);
        case.headstart(&words);
        assert_eq!(keys(&case), expected, "{command:?}");
    }
}

/// A wrapper that nobody knows: a program, or a script, that executes what it is given behind an option of
/// its own.
fn wrappers(case: &Case) -> Vec<String> {
    let script = case.program("wrap", "#!/bin/sh\nshift\nexec \"$@\"\n");
    // A copy of a wrapper under another name: setsid(1) executes it in its own place, or forks and waits.
    let program = case.path("unheard-of");
    std::fs::copy(std::fs::canonicalize("/usr/bin/setsid").unwrap(), &program).unwrap();
    [script, program]
        .map(|path| path.to_str().unwrap().to_string())
        .to_vec()
}

#[test]
fn a_wrapper_that_nobody_knows_is_recognised_by_what_it_did() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    case.write("big", vec![7; 8 << 20]);
    case.write("small", "x\n");
    for wrapper in wrappers(&case) {
        let run = |file: &str| {
            let words = ["run", "--wait", "--", &wrapper, "--wait", "cat", file];
            let ran = case.headstart(&words);
            assert_eq!(ran.code(), 0, "{}", ran.err);
        };
        for _ in 0..3 {
            case.evict("big");
            run("big");
        }
        case.evict("big");
        run("small");
        let big = std::fs::File::open(case.path("big")).unwrap();
        assert_eq!(
            headstart_system::residency::resident_pages(&big, 0, 8 << 20).unwrap(),
            0
        );
        let learned: Vec<String> = keys(&case)
            .into_iter()
            .filter(|key| key.contains(&wrapper))
            .collect();
        let learned_times = |file: &str| {
            learned
                .iter()
                .filter(|key| key.ends_with(&format!(" --wait cat {file}")))
                .count()
        };
        assert_eq!(
            (learned_times("big"), learned_times("small")),
            (1, 1),
            "{learned:?}"
        );
        // Of the wrapper itself nothing is replayed.
        let statuses = case.json(&["status", "--json"]);
        let own = statuses.as_array().unwrap().iter();
        let mut own = own.filter(|status| status["key"].as_str().unwrap().ends_with(&wrapper));
        assert!(own.all(|status| status["plan"].is_null()), "{statuses}");
    }
}

#[test]
fn what_only_calls_helpers_is_no_wrapper() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    case.program("tool", "#!/bin/sh\n/bin/true\ncat \"$1\"\nexec /bin/true\n");
    case.write("data", "x\n");
    for _ in 0..2 {
        let ran = case.headstart(&["run", "--wait", "--", "./tool", "data"]);
        assert_eq!(ran.code(), 0, "{}", ran.err);
    }
    let learned = keys(&case);
    assert!(learned.len() == 1 && learned[0].ends_with("/tool"), "{learned:?}");
}

/// binfmt_misc is the machine's: what a test registers there is removed, also when it fails.
struct Registered(&'static str);

impl Drop for Registered {
    fn drop(&mut self) {
        let _ = std::fs::write(format!("/proc/sys/fs/binfmt_misc/{}", self.0), "-1");
    }
}

#[test]
fn a_file_of_a_registered_format_is_its_interpreter_with_that_file() {
    if !is_root() || !can_record() {
        return;
    }
    let place = Path::new("/proc/sys/fs/binfmt_misc");
    let _mounted = (!place.join("register").exists())
        .then(|| Mounted::new(&["-t", "binfmt_misc", "binfmt_misc"], place));
    if !needs("binfmt_misc", place.join("register").exists()) {
        return;
    }
    let case = Case::new();
    // Whatever it is given, as an emulator is.
    let emulator = case.path("emulator");
    std::fs::copy(std::fs::canonicalize("/bin/cat").unwrap(), &emulator).unwrap();
    let _registered = Registered("headstart-test");
    std::fs::write(
        place.join("register"),
        format!(":headstart-test:E::hstest::{}:", emulator.display()),
    )
    .unwrap();
    let foreign = case.program("tool.hstest", "no program of this machine\n");
    for command in [&["./tool.hstest"][..], &["./emulator", "tool.hstest"]] {
        let mut words = vec!["run", "--wait", "--"];
        words.extend(command);
        let ran = case.headstart(&words);
        assert_eq!(
            (ran.code(), &*ran.out),
            (0, "no program of this machine\n"),
            "{}",
            ran.err
        );
    }
    let real = |path: &Path| path.canonicalize().unwrap().display().to_string();
    assert_eq!(keys(&case), [format!("{} {}", real(&emulator), real(&foreign))]);
}

/// Bytes of a file that are in memory; all of them also where a page in 64 is not: a machine may take some
/// back at any time (DAMON).
fn in_memory(case: &Case, name: &str) -> u64 {
    let file = std::fs::File::open(case.path(name)).unwrap();
    let length = file.metadata().unwrap().len();
    let resident = headstart_system::residency::resident_pages(&file, 0, length).unwrap()
        * rustix::param::page_size() as u64;
    match resident >= length - length / 64 {
        true => length,
        false => resident,
    }
}

const BIG: u64 = 8 << 20;

/// Bytes of `big` that are in memory after three starts that name it and one, with it out of memory, that may
/// not. Whether it is read ahead is told by the plan that the start followed, and so by what is read of a
/// file that this one does not open.
fn after_three(case: &Case, teaches: &[&str], start: &[&str]) -> u64 {
    let run = |command: &[&str]| {
        let mut words = vec!["run", "--wait", "--control-every", "0", "--"];
        words.extend(command);
        let ran = case.headstart(&words);
        assert_eq!(ran.code(), 0, "{command:?}: {}", ran.err);
    };
    for _ in 0..3 {
        case.evict("big");
        run(teaches);
    }
    case.evict("big");
    run(start);
    in_memory(case, "big")
}

fn with_files() -> Case {
    let case = Case::new();
    std::fs::create_dir(case.path("d")).unwrap();
    case.write("big", vec![7; BIG as usize]);
    std::fs::hard_link(case.path("big"), case.path("d/in")).unwrap();
    std::fs::create_dir(case.path("e")).unwrap();
    case.write("e/small", "x\n");
    case.write("small", "x\n");
    case
}

#[test]
fn what_the_arguments_of_other_starts_named_is_not_read() {
    if !can_record() {
        return;
    }
    for (teaches, start) in [
        (
            &["flock", "l", "cat", "big"][..],
            &["flock", "l", "cat", "small"][..],
        ),
        (&["cat", "big"], &["cat", "small"]),
        (&["cat", "./e/../big"], &["cat", "e/small"]),
        (
            &["dd", "if=big", "of=/dev/null", "bs=64k"],
            &["dd", "if=small", "of=/dev/null"],
        ),
        (
            &["grep", "--file=small", "big"],
            &["grep", "--file=small", "small"],
        ),
        (&["tar", "cf", "/dev/zero", "d"], &["tar", "cf", "/dev/zero", "e"]),
        (&["sort", "-o", "out", "big"], &["sort", "-o", "out", "small"]),
    ] {
        undisturbed(|| {
            let case = with_files();
            // Twice as many pages as one that is named has not: no grep that finds nothing is a failure.
            case.write("big", "x\n".repeat(BIG as usize / 2));
            std::fs::remove_file(case.path("d/in")).unwrap();
            std::fs::hard_link(case.path("big"), case.path("d/in")).unwrap();
            assert_eq!(
                after_three(&case, teaches, start),
                0,
                "{teaches:?}, then {start:?}"
            );
        });
    }
}

/// A start that names a file, and where there is `skip` does not read it: that it is in memory then is the
/// plan's doing. It ends when there is `end`, for a replay ends with its start.
const NAMES: &str =
    "#!/bin/sh\n[ -e skip ] || exec cat \"$1\" >/dev/null\nuntil [ -e end ]; do sleep 0.01; done\n";

/// Bytes of `big` that a start reads ahead which opens no file: it lasts until they are there, where they are
/// to be.
fn read_ahead(case: &Case, tool: &[&str], expected: u64) -> u64 {
    case.write("skip", "");
    case.evict("big");
    let mut words = vec!["run", "--wait", "--control-every", "0", "--"];
    words.extend(tool);
    let mut start = case.command(&words).spawn().unwrap();
    if expected > 0 {
        eventually("the file is read ahead", || {
            in_memory(case, "big") == expected || start.try_wait().unwrap().is_some()
        });
    }
    case.write("end", "");
    assert!(start.wait().unwrap().success());
    in_memory(case, "big")
}

#[test]
fn what_a_start_names_is_read_for_it_however_it_is_named() {
    if !can_record() {
        return;
    }
    for (name, expected) in [
        ("big", BIG),
        ("./e/../big", BIG),
        ("link", BIG),
        ("there/../big", BIG),
        ("--in=big", BIG),
        (".", BIG),
        ("small", 0),
        ("e", 0),
    ] {
        undisturbed(|| {
            let case = with_files();
            std::fs::remove_file(case.path("d/in")).unwrap();
            std::os::unix::fs::symlink("big", case.path("link")).unwrap();
            std::os::unix::fs::symlink("e", case.path("there")).unwrap();
            case.program("tool", NAMES);
            let run = |name: &str| {
                case.evict("big");
                let ran = case.headstart(&["run", "--wait", "--control-every", "0", "--", "./tool", name]);
                assert_eq!(ran.code(), 0, "{}", ran.err);
            };
            (0..3).for_each(|_| run("big"));
            assert_eq!(read_ahead(&case, &["./tool", name], expected), expected, "{name}");
        });
    }
}

#[test]
fn what_most_starts_use_is_read_for_all_though_some_name_it() {
    if !can_record() {
        return;
    }
    undisturbed(|| {
        let case = with_files();
        // It reads its list whatever it is given, as a program does its configuration.
        case.program("tool", NAMES.replace("\"$1\"", "big"));
        let run = |name: &str| {
            case.evict("big");
            let ran = case.headstart(&["run", "--wait", "--control-every", "0", "--", "./tool", name]);
            assert_eq!(ran.code(), 0, "{}", ran.err);
        };
        ["big", "small", "big", "e"].into_iter().for_each(run);
        assert_eq!(read_ahead(&case, &["./tool", "small"], BIG), BIG);
    });
}
