//! What each subcommand promises.

use crate::common::{Case, can_record};
use headstart_model::floor::Need;
use headstart_model::outcome::{Mode, Resident};
use headstart_model::{Key, Outcome, testing};
use headstart_store::{Bypass, Store};

#[test]
fn wrong_usage_is_2() {
    let case = Case::new();
    for words in [
        &[][..],
        &["no-such-command"],
        &["run"],
        &["run", "--"],
        &["run", "--name", "", "--", "echo", "started"],
        &["run", "--control-every", "x", "--", "true"],
        &["record", "--", "true"],
        &["record", "-o", "t", "--until", "soon", "--", "true"],
        &["record", "-o", "t", "--limit", "0", "--", "true"],
        &["learn", "t", "-o", "p", "--policy", "3/2"],
        &["plan", "p", "-o", "x", "--memory", "much"],
        &["plan", "p", "-o", "x", "--device", "tape"],
        &["diff", "one"],
        &["chart", "one", "two"],
        &["export", "t", "-o", "x"],
        &["export", "t", "-o", "x", "--to", "paper"],
        &["show"],
        &["forget"],
    ] {
        let ran = case.headstart(words);
        assert_eq!(ran.code(), 2, "{words:?}: {}{}", ran.out, ran.err);
        assert!(!ran.err.is_empty() && ran.out.is_empty(), "{words:?}");
    }
}

#[test]
fn help_and_version_are_0() {
    let case = Case::new();
    for words in [
        &["--help"][..],
        &["--version"],
        &["run", "--help"],
        &["help", "plan"],
    ] {
        let ran = case.headstart(words);
        assert_eq!(ran.code(), 0, "{words:?}");
        assert!(!ran.out.is_empty() && ran.err.is_empty(), "{words:?}");
    }
}

#[test]
fn what_is_not_known_is_said_with_the_way_out() {
    let case = Case::new();
    case.headstart(&["status", "nobody"])
        .refused(&["nobody", "headstart status"]);
    case.headstart(&["forget", "nobody"])
        .refused(&["nobody", "headstart status"]);
    case.headstart(&["replay", "nobody", "--wait"])
        .refused(&["nobody", "headstart status"]);
    case.headstart(&["explain", "/etc/passwd"])
        .refused(&["nothing is known", "headstart run"]);
    case.headstart(&["show", "missing"])
        .refused(&["missing", "no such file"]);
    assert_eq!(case.json(&["status", "--json"]), serde_json::json!([]));
    assert!(case.headstart(&["status"]).out.contains("Nothing is known yet"));
    assert!(!case.state().exists(), "asking leaves nothing");
}

#[test]
fn files_of_another_kind_are_named() {
    let case = Case::new();
    case.write("text", "some text");
    case.headstart(&["show", "text"])
        .refused(&["text", "no file of headstart's"]);
    case.headstart(&["learn", "text", "-o", "p"])
        .refused(&["text", "no headstart trace"]);
    case.headstart(&["plan", "text", "-o", "x"])
        .refused(&["text", "no headstart profile"]);
    case.headstart(&["show", "."]).refused(&["regular file"]);
    assert!(!case.path("p").exists() && !case.path("x").exists());
}

/// So many that they are nine tenths of what a start costs its disk: five looks that chance draws (`LEAST_LOOKS`) find none of them once in 100,000 starts.
/// With 24 it was once in twelve, and such a start is bypassed, rightly.
const SMALL_FILES: usize = 240;

/// Puts what the program reads out of memory.
fn make_cold(case: &Case) {
    let small = (0..SMALL_FILES).map(|number| format!("small-{number}"));
    for name in small.chain(["data".into()]) {
        case.evict(&name);
    }
}

fn program(case: &Case) -> String {
    case.write("data", vec![b'x'; 64 * 4096]);
    for number in 0..SMALL_FILES {
        case.write(&format!("small-{number}"), vec![b'x'; 4096]);
    }
    let script = "#!/bin/sh\ncat small-* >/dev/null\ndd if=data bs=4096 skip=8 count=4 2>/dev/null | wc -c\ntest ! -e not-there\n";
    let path = case.program("program", script);
    path.to_str().unwrap().to_string()
}

#[test]
fn the_pipeline_step_by_step() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let program = program(&case);
    let recorded = case.headstart(&["record", "-o", "t.trace", "--", &program]);
    assert_eq!(
        (recorded.code(), recorded.out.as_str(), recorded.err.as_str()),
        (0, "16384\n", "")
    );
    let trace = case.json(&["show", "--json", "t.trace"]);
    assert_eq!(trace["meta"]["command"][0], *program);
    let data = case.path("data").canonicalize().unwrap();
    let file = trace["files"]
        .as_array()
        .unwrap()
        .iter()
        .position(|f| f["path"] == data.to_str().unwrap());
    let file = file.expect("the file that was read is in the trace");
    let uses = trace["uses"].as_array().unwrap();
    let pages: Vec<u64> = uses
        .iter()
        .filter(|u| u["file"] == file)
        .flat_map(|u| (0..u["pages"].as_u64().unwrap()).map(|i| u["start"].as_u64().unwrap() + i))
        .collect();
    assert!((8..12).all(|page| pages.contains(&page)), "{pages:?}");

    let learned = case.json(&["learn", "t.trace", "t.trace", "-o", "p.profile", "--json"]);
    assert_eq!(learned["runs"], 2);
    // What the kernel makes of a script: its interpreter's command.
    let real = |path: &str| {
        std::path::Path::new(path)
            .canonicalize()
            .unwrap()
            .display()
            .to_string()
    };
    assert_eq!(learned["key"], format!("{} {}", real("/bin/sh"), real(&program)));
    let profile = case.json(&["show", "p.profile", "--json"]);
    assert_eq!(profile["key"], learned["key"]);
    // On a file system in memory there is nothing to plan, and nothing else is wrong.
    let planned = case.json(&["plan", "p.profile", "-o", "x.plan", "--device", "flash", "--json"]);
    assert_eq!(planned["key"], learned["key"]);
    let plan = case.json(&["show", "x.plan", "--json", "--pages"]);
    assert_eq!(
        plan["requests"].as_array().unwrap().len() as u64,
        planned["requests"].as_u64().unwrap()
    );
    let replayed = case.json(&["replay", "x.plan", "--wait", "--json"]);
    assert_eq!(replayed["key"], learned["key"]);
    assert!(replayed["data_requests"].as_u64().unwrap() + replayed["opens"].as_u64().unwrap() > 0);
    assert_eq!(
        case.headstart(&["replay", "x.plan"]).out,
        "",
        "in the background it says nothing"
    );

    for file in ["t.trace", "p.profile", "x.plan"] {
        let shown = case.headstart(&["show", file, "--pages"]);
        assert_eq!(shown.code(), 0, "{}", shown.err);
        assert!(shown.out.contains(&program), "{file}: {}", shown.out);
        let same = case.json(&["diff", file, file, "--json"]);
        assert_eq!(same["common_share"], 1.0);
        assert_eq!(same["files"], serde_json::json!([]));
    }
    case.headstart(&["diff", "t.trace", "x.plan"])
        .refused(&["trace", "plan"]);
    case.headstart(&["replay", "p.profile"])
        .refused(&["p.profile", "no plan"]);
}

#[test]
fn what_a_chart_needs_is_recorded_on_request_and_exported() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let program = program(&case);
    let record = |words: &[&str]| {
        let ran = case.headstart(&[&["record"], words, &["--", &program]].concat());
        assert_eq!(ran.code(), 0, "{}", ran.err);
        ran.err
    };
    assert_eq!(record(&["-o", "plain"]), "");
    assert_eq!(record(&["-o", "chart", "--chart"]), "");
    assert_eq!(
        case.json(&["show", "--json", "plain"])["activity"],
        serde_json::Value::Null
    );
    let trace = case.json(&["show", "--json", "chart"]);
    assert_eq!(trace["activity"]["lost"], 0);
    assert!(!trace["activity"]["slices"].as_array().unwrap().is_empty());
    // Where it cannot be recorded one line says so, and the recording is as any other.
    let said = record(&["-o", "without", "--chart", "--backend", "tracefs"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("tracefs"), "{said}");
    assert_eq!(
        case.json(&["show", "--json", "without"])["activity"],
        serde_json::Value::Null
    );

    for form in ["csv", "perfetto", "folded"] {
        let made = case.headstart(&["export", "chart", "--to", form, "-o", form]);
        assert_eq!((made.code(), &*made.out, &*made.err), (0, "", ""), "{form}");
    }
    let table = std::fs::read_to_string(case.path("csv")).unwrap();
    let data = case.path("data").canonicalize().unwrap();
    let read = format!(",{},", data.display());
    assert!(
        table
            .lines()
            .any(|line| line.contains(",use,read,") && line.contains(&read))
    );
    assert!(std::fs::metadata(case.path("perfetto")).unwrap().len() > 1000);
    // A table needs no waits, stacks do.
    assert_eq!(
        case.headstart(&["export", "plain", "--to", "csv", "-o", "csv"])
            .code(),
        0
    );
    let stacks = case.headstart(&["export", "plain", "--to", "folded", "-o", "none"]);
    stacks.refused(&["plain", "record --chart"]);
    assert!(!case.path("none").exists());
}

#[test]
fn the_second_start_is_replayed_and_the_last_of_n_is_a_control_run() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let program = program(&case);
    let warm = || {
        let ran = case.headstart(&[
            "run",
            "--wait",
            "--control-every",
            "3",
            "--name",
            "k",
            "--",
            &program,
        ]);
        assert_eq!(
            (ran.code(), ran.out.as_str(), ran.err.as_str()),
            (0, "16384\n", "")
        );
    };
    let start = || {
        make_cold(&case);
        warm();
    };
    (0..5).for_each(|_| start());
    let status = case.json(&["status", "k", "--json"]);
    let modes: Vec<&str> = status["outcomes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| o["mode"].as_str().unwrap())
        .collect();
    assert_eq!(
        modes,
        ["record", "replay", "replay", "control", "replay"],
        "{status}"
    );
    assert_eq!(status["profile"]["runs"], 5);
    assert_eq!(status["comparison"]["without"]["starts"], 1, "the control start");
    assert_eq!(status["comparison"]["verdict"], "too-few");
    let text = case.headstart(&["status", "k"]).out;
    assert!(
        text.contains("not enough cold starts without a replay yet: 1 of 2"),
        "{text}"
    );
    // The last replay is that of the fifth start; what it needed had to be read, and took at least some time.
    let floor = &status["floor"];
    assert!(floor["floor"]["floor_ns"].as_u64() > Some(0), "{status}");
    assert_eq!(floor["took_ns"], status["outcomes"][4]["elapsed_ns"]);
    assert_eq!(floor["started_unix_ns"], status["outcomes"][4]["started_unix_ns"]);
    assert!(text.lines().any(|line| line.starts_with("floor ")), "{text}");
    assert!(case.headstart(&["status"]).out.contains('k'));
    let outcome = std::fs::read_dir(case.state().join("keys"))
        .unwrap()
        .flat_map(|dir| std::fs::read_dir(dir.unwrap().path()).unwrap())
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|e| e == "outcome"))
        .unwrap();
    assert_eq!(case.headstart(&["show", outcome.to_str().unwrap()]).code(), 0);

    let explained = case.json(&["explain", "data", "--name", "k", "--json"]);
    assert_eq!(explained[0]["runs"], 5);
    assert!(
        explained[0]["entry"]["ranges"]
            .as_array()
            .is_some_and(|r| !r.is_empty()),
        "{explained}"
    );
    let unused = case.json(&["explain", "/no/such/file", "--json"]);
    assert_eq!(unused[0]["prefetched"], false);
    assert!(
        unused[0]["because"]
            .as_str()
            .unwrap()
            .contains("none of the 5 runs"),
        "{unused}"
    );

    // A warm start is recorded one time in three, by chance.
    let status = (0..50).find_map(|_| {
        warm();
        let status = case.json(&["status", "k", "--json"]);
        (status["outcomes"].as_array().unwrap().len() > 5).then_some(status)
    });
    let status = status.expect("a warm start that is recorded");
    assert_eq!(
        status["comparison"]["without"]["starts"], 1,
        "only cold starts are compared: {status}"
    );

    assert_eq!(case.headstart(&["replay", "k", "--wait"]).code(), 0);
    let forgotten = case.json(&["forget", "k", "--json"]);
    assert_eq!(forgotten["forgotten"], "k");
    case.headstart(&["forget", "k"]).refused(&["k"]);
    start();
    assert_eq!(case.json(&["status", "k", "--json"])["profile"]["runs"], 1);
}

#[test]
fn where_replays_are_slower_starts_are_bypassed_but_for_one_in_so_many() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let program = program(&case);
    let start = |every: &str| {
        make_cold(&case);
        let words = [
            "run",
            "--wait",
            "--json=done",
            "--name",
            "k",
            "--control-every",
            every,
            "--",
        ];
        let ran = case.headstart(&[&words[..], &[&program]].concat());
        assert_eq!((ran.code(), ran.err.as_str()), (0, ""), "only the log says so");
        let done = std::fs::read(case.path("done")).unwrap();
        serde_json::from_slice::<serde_json::Value>(&done).unwrap()
    };
    start("10");
    let store = Store::new(case.state());
    let kept = store.key(&Key::new("k").unwrap());
    let lock = kept.lock().unwrap();
    let before = [(Mode::Replay, 100_000_000_000), (Mode::Control, 1_000_000)];
    let before = before.iter().flat_map(|one| [*one; 5]).zip(1..);
    for ((mode, elapsed_ns), started_unix_ns) in before {
        lock.add_outcome(&Outcome {
            started_unix_ns,
            elapsed_ns,
            status: Some(0),
            // Only cold starts are compared.
            resident_before: Some(Resident {
                sampled_pages: 100,
                resident_pages: 0,
            }),
            ..Outcome::new(kept.key().clone(), mode)
        })
        .unwrap();
    }
    drop(lock);
    // The first start finds out, for all that follow.
    let very_seldom = u32::MAX.to_string();
    assert_eq!(start(&very_seldom)["mode"], "replay");
    let kept_outcomes = || kept.outcomes(|line| panic!("{line}")).len();
    let before = kept_outcomes();
    let all_before = files_below(&case.state());
    let bypassed = start(&very_seldom);
    assert_eq!(
        (bypassed["mode"].as_str(), bypassed["status"].as_i64()),
        (Some("bypass"), Some(0))
    );
    let why = bypassed["not_learned"].as_str().unwrap();
    assert!(
        why.starts_with("bypassed: with reading ahead it takes 100 s"),
        "{why}"
    );
    assert_eq!(kept_outcomes(), before, "nothing is recorded");
    assert_eq!(files_below(&case.state()), all_before, "nothing is written");
    let text = case.headstart(&["status", "k"]).out;
    assert!(text.contains("with reading ahead it takes 100 s"), "{text}");
    // The start that re-evaluates has a replay, for only that can tell.
    let bypass = kept.bypass().unwrap();
    kept.lock()
        .unwrap()
        .save_bypass(Some(&Bypass { every: 1, ..bypass }))
        .unwrap();
    assert_eq!(start(&very_seldom)["mode"], "replay");
    assert_eq!(
        start("0")["mode"],
        "replay",
        "who asks for all to be read ahead gets that"
    );
    assert_eq!(kept.bypass(), None);
}

#[test]
fn audit_11_a_warm_start_is_bypassed_and_the_next_cold_one_is_replayed() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let program = program(&case);
    let very_seldom = u32::MAX.to_string();
    let start = || {
        let words = [
            "run",
            "--wait",
            "--json=done",
            "--control-every",
            &very_seldom,
            "--name",
            "k",
            "--",
        ];
        let ran = case.headstart(&[&words[..], &[&program]].concat());
        assert_eq!(
            (ran.code(), ran.out.as_str(), ran.err.as_str()),
            (0, "16384\n", "")
        );
        serde_json::from_slice::<serde_json::Value>(&std::fs::read(case.path("done")).unwrap()).unwrap()
    };
    make_cold(&case);
    assert_eq!(start()["mode"], "record");
    let all_before = files_below(&case.state());
    for _ in 0..12 {
        let done = start();
        assert_eq!(
            done["not_learned"], "bypassed: what it reads is in memory",
            "{done}"
        );
    }
    assert_eq!(
        files_below(&case.state()),
        all_before,
        "nothing is written for a warm start"
    );
    make_cold(&case);
    let done = start();
    assert_eq!(done["mode"], "replay", "{done}");
    let before = &done["resident_before"];
    assert!(
        before["sampled_pages"].as_u64() > before["resident_pages"].as_u64(),
        "{done}"
    );
    assert_eq!(done["not_learned"], serde_json::Value::Null);
}

#[test]
fn a_start_that_teaches_nothing_leaves_the_profile() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let program = program(&case);
    case.run("k", &[&program]);
    let before = case.json(&["status", "k", "--json"]);
    let killed = case.run("k", &["sh", "-c", "cat /etc/passwd > /dev/null; kill -9 $$"]);
    assert_eq!(killed.raw & 0x7f, 9);
    let after = case.json(&["status", "k", "--json"]);
    assert_eq!(before["profile"], after["profile"]);
    let why = after["outcomes"][1]["not_learned"].as_str().unwrap();
    assert!(why.contains("signal 9"), "{why}");
}

#[test]
fn a_start_of_files_that_are_gone_has_no_floor() {
    let case = Case::new();
    let mut trace = testing::trace();
    trace.files = vec![testing::file("/no such directory/program")];
    trace.uses = vec![testing::used(1, 0, 0, 4)];
    case.write("t.trace", trace.to_bytes().unwrap());
    case.headstart(&["floor", "t.trace"])
        .refused(&["none of the files that it read is there now"]);
}

#[test]
fn a_floor_tells_what_is_used_when_if_it_is_asked() {
    let case = Case::new();
    let data = case.write("data", vec![1; 4 * 4096]);
    std::fs::File::open(&data).unwrap().sync_all().unwrap();
    let mut trace = testing::trace();
    trace.files = vec![testing::file(data.to_str().unwrap())];
    trace.uses = vec![testing::used(1, 0, 2, 1), testing::used(9, 0, 0, 2)];
    case.write("t.trace", trace.to_bytes().unwrap());
    let told = case.json(&["floor", "t.trace", "--json", "--needs"]);
    let needs: Vec<Need> = serde_json::from_value(told["needs"].clone()).unwrap();
    assert!(needs.is_sorted_by_key(|need| need.time_ns), "{told}");
    // Times count from the first use; directories and inodes are needed before.
    let of_data: Vec<u64> = needs
        .iter()
        .filter(|need| need.time_ns == 8_000_000)
        .map(|need| need.end - need.start)
        .collect();
    assert_eq!(of_data, [2 * 4096], "{told}");
    let all: u64 = needs.iter().map(|need| need.end - need.start).sum();
    assert!(all >= told["floor"]["bytes"].as_u64().unwrap(), "{told}");
    let devices = told["devices"].as_array().unwrap().len();
    assert!(
        needs.iter().all(|need| (need.device as usize) < devices),
        "{told}"
    );
    assert!(case.json(&["floor", "t.trace", "--json"]).get("needs").is_none());
    assert_eq!(case.headstart(&["floor", "t.trace", "--needs"]).code(), 2);
}

#[test]
fn the_beginning_of_a_start_is_learned_where_nothing_is_known() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let ended_by = |key: &str, signal: i32| {
        let command = format!("cat /etc/passwd > /dev/null; kill -{signal} $$");
        let ended = case.run(key, &["sh", "-c", &command]);
        assert_eq!(ended.raw & 0x7f, signal);
        case.json(&["status", key, "--json"])
    };
    for signal in [1, 2, 15] {
        let key = format!("asked-{signal}");
        let first = ended_by(&key, signal);
        assert_eq!(first["outcomes"][0]["not_learned"], serde_json::Value::Null);
        let second = ended_by(&key, signal);
        assert_eq!(first["profile"], second["profile"]);
        let why = second["outcomes"][1]["not_learned"].as_str().unwrap();
        assert!(why.contains(&format!("signal {signal} ")), "{why}");
    }
    let failed = ended_by("failed", 9);
    assert_eq!(failed["profile"], serde_json::Value::Null);
}

#[test]
fn damaged_state_is_told_and_started_anew() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let program = program(&case);
    case.run("k", &[&program]);
    let dir = std::fs::read_dir(case.state().join("keys"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    for file in ["plan", "profile"] {
        let mut bytes = std::fs::read(dir.join(file)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        std::fs::write(dir.join(file), bytes).unwrap();
    }
    let ran = case.run("k", &[&program]);
    assert_eq!((ran.code(), ran.out.as_str()), (0, "16384\n"));
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(
        ran.err.contains("damaged") && ran.err.contains("moved to"),
        "{}",
        ran.err
    );
    let status = case.json(&["status", "k", "--json"]);
    assert_eq!(status["profile"]["runs"], 1);
    let quiet = case.run("k", &[&program]);
    assert_eq!(quiet.err, "");
}

#[test]
fn doctor_says_what_there_is() {
    let case = Case::new();
    let report = case.json(&["doctor", "--json"]);
    for field in [
        "kernel",
        "because",
        "capabilities",
        "recording",
        "replaying",
        "devices",
        "missing_capabilities",
    ] {
        assert!(!report[field].is_null(), "{field}: {report}");
    }
    let text = case.headstart(&["doctor"]).out;
    for words in ["CAP_BPF", "BPF", "io_uring", "tracefs", "Devices"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn what_packages_install_is_made() {
    let case = Case::new();
    // Examples are built with the tests, beside their directory.
    let test = std::env::current_exe().unwrap();
    let example = test.parent().unwrap().parent().unwrap().join("examples/generate");
    let made = std::process::Command::new(&example)
        .arg(case.path("made"))
        .status();
    assert!(made.unwrap().success(), "{}", example.display());
    for file in [
        "man/headstart.1",
        "man/headstart-run.1",
        "man/headstart-doctor.1",
        "completions/headstart.bash",
        "completions/_headstart",
        "completions/headstart.fish",
        "systemd/headstart-boot.service",
        "systemd/headstart-barrier.service",
    ] {
        assert!(
            std::fs::metadata(case.path("made").join(file)).is_ok_and(|m| m.len() > 200),
            "{file}"
        );
    }
    let page = std::fs::read_to_string(case.path("made/man/headstart-run.1")).unwrap();
    assert!(page.contains("control") && page.contains("127"), "{page}");
}

/// Every file below a directory, and its contents.
fn files_below(directory: &std::path::Path) -> std::collections::BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut files = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => drop(files.insert(path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    files
}
