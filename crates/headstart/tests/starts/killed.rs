//! kill -9 of headstart, of its worker or of both, at any moment of `run`: the command's work is unharmed,
//! and what is kept is the old or the new, never half of it.

use crate::common::{Case, can_record, eventually, run_words, signal, start, workers};
use std::time::{Duration, Instant};

/// Rounds; `HEADSTART_KILL_ROUNDS` asks for more.
fn rounds() -> u64 {
    std::env::var("HEADSTART_KILL_ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(48)
}

#[test]
fn whoever_is_killed_whenever_the_command_and_the_profile_are_whole() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    case.write("data", vec![b'x'; 1 << 20]);
    case.write(
        "work",
        "echo started > $1.started; sleep 0.02; cat data > $1.copy; echo done > $1.done",
    );
    let run = |name: &str| case.command(&run_words(&[], "0", "k", &["sh", "work", name]));
    assert_eq!(case.run("k", &["sh", "work", "first"]).code(), 0);
    let mut runs = 1;
    let mut not_started = 0;
    let mut chance = 12345u64;
    for round in 0..rounds() {
        chance = chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let wait = Duration::from_micros((chance >> 33) % 180_000);
        let name = format!("round-{round}");
        let begun = Instant::now();
        let (mut child, _lines) = start(run(&name));
        std::thread::sleep(wait.saturating_sub(begun.elapsed()));
        let front = (round % 3 != 1).then(|| child.id());
        let worker = if round % 3 == 0 {
            Vec::new()
        } else {
            workers(child.id())
        };
        for pid in front.into_iter().chain(worker) {
            // One that ended meanwhile, and is waited for below, takes no notice.
            if std::path::Path::new(&format!("/proc/{pid}")).exists() {
                signal(pid, 9);
            }
        }
        child.wait().unwrap();
        std::thread::sleep(Duration::from_millis(30));
        if case.path(&format!("{name}.started")).exists() {
            eventually("the command does its work", || {
                case.path(&format!("{name}.done")).exists()
            });
            let copied = std::fs::metadata(case.path(&format!("{name}.copy")))
                .unwrap()
                .len();
            assert_eq!(copied, 1 << 20);
        } else {
            assert!(front.is_some(), "a killed worker kept the command from starting");
            not_started += 1;
        }
        let status = case.headstart(&["status", "k", "--json"]);
        assert_eq!(
            (status.code(), status.err.as_str()),
            (0, ""),
            "after round {round}"
        );
        let status: serde_json::Value = serde_json::from_str(&status.out).unwrap();
        let now = status["profile"]["runs"].as_u64().unwrap();
        assert!(
            now == runs || now > runs && now <= runs + round + 1,
            "{runs} runs, then {now}"
        );
        runs = now;
    }
    assert!(
        not_started < rounds() / 2,
        "{not_started} of {} were killed too early to tell anything",
        rounds()
    );
    let last = case.run("k", &["sh", "work", "last"]);
    assert_eq!((last.code(), last.err.as_str()), (0, ""));
    // How many of those that were killed had learned before depends on the machine's speed; this one was not
    // killed.
    let learned = case.json(&["status", "k", "--json"])["profile"]["runs"].as_u64();
    assert!(learned > Some(runs), "{learned:?} after {runs}");
    let left = || -> Vec<String> {
        std::fs::read_dir(case.state().join("keys"))
            .unwrap()
            .flat_map(|dir| std::fs::read_dir(dir.unwrap().path()).unwrap())
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with(".tmp") || name.ends_with(".damaged"))
            .collect()
    };
    // A worker of an earlier round may still be writing.
    eventually("nothing half-written is left", || left().is_empty());
}
