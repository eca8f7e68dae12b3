//! What `run` does from start to start: it records, reads ahead, compares, bypasses.

use crate::common::{Case, can_record, run_words};
use headstart_model::outcome::{Mode, Resident};
use headstart_model::{Key, Outcome};
use headstart_store::{Bypass, Change, Store};

/// So many that they are nine tenths of what a start costs its disk: five looks that chance draws
/// (`LEAST_LOOKS`) find none of them once in 100,000 starts. With 24 it was once in twelve, and such a start
/// is bypassed, rightly.
const SMALL_FILES: usize = 240;

/// Puts what the program reads out of memory.
fn make_cold(case: &Case) {
    let small = (0..SMALL_FILES).map(|number| format!("small-{number}"));
    for name in small.chain(["data".into()]) {
        case.evict(&name);
    }
}

pub fn program(case: &Case) -> String {
    case.write("data", vec![b'x'; 64 * 4096]);
    for number in 0..SMALL_FILES {
        case.write(&format!("small-{number}"), vec![b'x'; 4096]);
    }
    let script = "#!/bin/sh\ncat small-* >/dev/null\ndd if=data bs=4096 skip=8 count=4 2>/dev/null | wc -c\ntest ! -e not-there\n";
    let path = case.program("program", script);
    path.to_str().unwrap().to_string()
}

#[test]
fn the_second_start_is_replayed_and_the_last_of_n_is_a_control_run() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let (program, seen) = (program(&case), case.path("seen"));
    // The first start is slow for a reason of its own: if a replay took longer, controls would come sooner.
    let seen = seen.display();
    let script = format!("test -e {seen} || {{ : >{seen}; sleep 0.3; }}; exec {program}");
    let warm = || {
        let ran = case.headstart(&run_words(&["--wait"], "3", "k", &["sh", "-c", &script]));
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
    // One that soon ends is recorded one time in ten from then on.
    assert_eq!(status["profile"]["runs"], 3);
    assert_eq!(status["comparison"]["without"]["starts"], 1, "the control start");
    assert_eq!(status["comparison"]["verdict"], "too-few");
    let text = case.headstart(&["status", "k"]).out;
    assert!(
        text.contains("not enough cold starts without a replay yet: 1 of 2"),
        "{text}"
    );
    // The last recorded replay is that of the third start; what it needed had to be read, and took some time.
    let floor = &status["floor"];
    assert!(floor["floor"]["floor_ns"].as_u64() > Some(0), "{status}");
    assert_eq!(floor["took_ns"], status["outcomes"][2]["elapsed_ns"]);
    assert_eq!(floor["started_unix_ns"], status["outcomes"][2]["started_unix_ns"]);
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
    assert_eq!(explained[0]["runs"], 3);
    assert!(
        explained[0]["entry"]["ranges"]
            .as_array()
            .is_some_and(|r| !r.is_empty()),
        "{explained}"
    );
    let unused = case.json_and_status(&["explain", "/no/such/file", "--json"], 1);
    assert_eq!(unused[0]["prefetched"], false);
    assert!(
        unused[0]["because"]
            .as_str()
            .unwrap()
            .contains("none of the 3 runs"),
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
        .change(&Change {
            bypass: Some(Some(&Bypass { every: 1, ..bypass })),
            ..Change::default()
        })
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
fn a_warm_start_is_bypassed_and_the_next_cold_one_is_replayed() {
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
