//! What fails of headstart fails beside the command, which runs as if headstart were not there.

use crate::common::{
    Case, GIVE_UP, Holding, can_record, eventually, for_anybody, is_root, process_state, run_words, signal,
    workers,
};
use headstart_system::testing::{Mounted, can_mount};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};

#[test]
fn a_start_whose_recorder_came_late_teaches_nothing() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let data = case.write("data", vec![7; 1 << 20]);
    let script = format!("cat {} >/dev/null", data.display());
    assert_eq!(case.run("k", &["sh", "-c", &script]).code(), 0);
    let status_of = |case: &Case| case.json(&["status", "k", "--json"]);
    let before = status_of(&case);
    let words = run_words(&[], "0", "k", &["sh", "-c", &script]);
    let mut holding = Holding::start(&case, &words);
    // It is released without the worker, twelve seconds later.
    assert_eq!(holding.headstart.wait().unwrap().into_raw(), 0);
    signal(holding.worker, 18);
    eventually("the worker ends", || {
        process_state(holding.worker).is_none_or(|state| state == 'Z')
    });
    let after = status_of(&case);
    assert_eq!(after["profile"], before["profile"], "the profile stays");
    assert_eq!(after["plan"]["data_bytes"], before["plan"]["data_bytes"]);
    let outcomes = after["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
    let why = outcomes[1]["not_learned"].as_str().unwrap();
    assert!(why.contains("released before its recorder was ready"), "{why}");
}

#[test]
fn a_start_whose_profile_cannot_be_kept_is_not_said_to_be_learned() {
    if !can_record() || !can_mount() {
        return;
    }
    let case = Case::new();
    let data = case.write("data", vec![7; 1 << 20]);
    let script = format!("cat {} >/dev/null", data.display());
    assert_eq!(case.run("k", &["sh", "-c", &script]).code(), 0);
    let is_profile = |path: &PathBuf| path.ends_with("profile");
    let profile = contents(&case.state()).into_keys().find(is_profile).unwrap();
    // What something is mounted on is not replaced.
    let mounted = Mounted::new(&["--bind", profile.to_str().unwrap()], &profile).unwrap();
    let ran = case.run("k", &["sh", "-c", &script]);
    assert!(ran.code() == 0 && ran.err.contains("cannot"), "{}", ran.err);
    drop(mounted);
    let status = case.json(&["status", "k", "--json"]);
    let outcomes = status["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 2, "{outcomes:?}");
    assert_eq!(outcomes[0]["not_learned"], serde_json::Value::Null);
    let why = outcomes[1]["not_learned"].as_str().unwrap();
    assert!(why.starts_with("what it teaches cannot be kept: "), "{why}");
}

#[test]
fn a_trace_whose_recorder_came_late_is_not_written() {
    let case = Case::new();
    let mut holding = Holding::start(
        &case,
        &["record", "-o", "t.trace", "--", "sh", "-c", "touch done"],
    );
    assert_eq!(holding.headstart.wait().unwrap().code(), Some(1));
    assert!(!case.path("t.trace").exists());
    assert!(
        !case.path("done").exists(),
        "record does not start what it cannot record"
    );
}

/// Every file below a directory, but for locks and logs.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(contents(&path));
        } else if !path.ends_with("lock") && !path.ends_with("log") && !is_said(&path) {
            files.insert(path.clone(), std::fs::read(path).unwrap());
        }
    }
    files
}

/// Whether a file only notes what was told.
fn is_said(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with("said-")
}

#[test]
fn what_a_newer_headstart_has_kept_is_left_as_it_is() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let data = case.write("data", vec![7; 1 << 20]);
    let script = format!("cat {} >/dev/null; echo done", data.display());
    assert_eq!(case.run("k", &["sh", "-c", &script]).code(), 0);
    let keys = std::fs::read_dir(case.state().join("keys")).unwrap();
    let key = keys.flatten().next().unwrap().path();
    for file in ["profile", "plan"] {
        let (path, written) = (key.join(file), std::fs::read(key.join(file)).unwrap());
        let mut newer = written.clone();
        // The major version, see headstart-format(5).
        newer[8] += 1;
        std::fs::write(&path, newer).unwrap();
        let before = contents(&case.state());
        let ran = case.run("k", &["sh", "-c", &script]);
        assert_eq!((ran.code(), ran.out.as_str()), (0, "done\n"));
        assert!(ran.err.contains("use a newer headstart"), "{}", ran.err);
        assert_eq!(case.headstart(&["status"]).code(), 0);
        let after = contents(&case.state());
        let changed: Vec<_> = before
            .iter()
            .filter(|(path, it)| after.get(*path) != Some(it))
            .collect();
        assert!(
            changed.is_empty() && before.len() == after.len(),
            "{changed:?} {after:?}"
        );
        std::fs::write(&path, written).unwrap();
    }
    // By the headstart that has written it, it is used and learned on.
    assert_eq!(case.run("k", &["sh", "-c", &script]).code(), 0);
    assert_eq!(case.json(&["status", "k", "--json"])["profile"]["runs"], 2);
}

#[test]
fn headstarts_own_complaint_never_kills_the_command() {
    if !is_root() {
        return;
    }
    let case = Case::new();
    for_anybody(&case);
    // Nobody reads what headstart has to say: unprivileged, it has to say that it cannot record, and in the
    // one place, where a program has the name of the state directory, that it can keep nothing.
    for home in [".", "home"] {
        let ran = case.script(&format!(
            "unset HEADSTART_STATE; export XDG_STATE_HOME=$PWD/{home}; rm -f done; \
             bash -c \"{GIVE_UP} ./headstart run -- sh -c 'sleep 0.5; touch done' 2> >(true)\""
        ));
        assert_eq!(ran.raw, 0, "{home}: {}", ran.err);
        assert!(case.path("done").exists(), "{home}: the command came to its end");
    }
}

#[test]
fn a_full_terminal_log_never_kills_the_command() {
    if !is_root() {
        return;
    }
    let case = Case::new();
    for_anybody(&case);
    // The file that standard error goes to may not grow.
    for home in [".", "home"] {
        let ran = case.script(&format!(
            "unset HEADSTART_STATE; export XDG_STATE_HOME=$PWD/{home}; \
             (ulimit -f 0; exec {GIVE_UP} ./headstart run -- sh -c 'sleep 0.2; echo done' 2>err); echo $?"
        ));
        assert_eq!(ran.out, "done\n0\n", "{home}: {}", ran.err);
    }
}

#[test]
fn a_log_that_cannot_be_written_harms_nobody() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    std::fs::create_dir(case.state()).unwrap();
    std::os::unix::fs::symlink("/dev/full", case.state().join("log")).unwrap();
    // Killed by a signal, it teaches nothing, and the log is to say so.
    let ran = case.run("k", &["sh", "-c", "kill -9 $$"]);
    assert_eq!(ran.raw & 0x7f, 9, "{}", ran.err);
    assert_eq!(case.run("k", &["true"]).code(), 0);
    let known = case.json(&["status", "k", "--json"]);
    assert_eq!(known["outcomes"].as_array().unwrap().len(), 2, "{known}");
    assert_eq!(known["profile"]["runs"], 1);
}

#[test]
fn run_runs_the_command_whatever_headstart_lacks() {
    if !is_root() {
        return;
    }
    let case = Case::new();
    for_anybody(&case);
    for (what, before) in [
        ("descriptors", "ulimit -n 4;"),
        ("processes", "ulimit -u 1;"),
        ("a working directory", "mkdir gone; cd gone; rmdir ../gone;"),
        ("memory", "ulimit -v 60000;"),
        ("a state directory", "export HEADSTART_STATE=relative; cd /proc;"),
        ("a home", "unset HOME XDG_STATE_HOME;"),
    ] {
        let here = case.path("headstart");
        let ran = case.script(&format!(
            "unset HEADSTART_STATE; export XDG_STATE_HOME=$PWD; exec {GIVE_UP} \
             /bin/bash -c '{before} exec {} run -- /bin/sh -c \"echo out; exit 6\"'",
            here.display()
        ));
        assert_eq!(
            (ran.code(), ran.out.as_str()),
            (6, "out\n"),
            "without {what}: {}",
            ran.err
        );
        let said = ran
            .err
            .lines()
            .filter(|line| line.starts_with("headstart: "))
            .count();
        assert!(said <= 1, "without {what}: {}", ran.err);
    }
}

#[test]
fn record_says_when_its_worker_died_and_does_not_succeed() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let words = ["record", "-o", "t.trace", "--", "sh", "-c", "echo $$; read line"];
    let mut command = case.command(&words);
    command
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let (mut child, mut lines) = crate::common::start(command);
    lines.next().unwrap().unwrap();
    for worker in workers(child.id()) {
        signal(worker, 9);
    }
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.starts_with("headstart: ") && err.contains("worker"), "{err}");
    assert!(!case.path("t.trace").exists());
}

#[test]
fn a_state_directory_of_somebody_else_is_not_trusted_from_the_environment() {
    if !is_root() {
        return;
    }
    let case = Case::new();
    let theirs = case.path("theirs");
    std::fs::create_dir(&theirs).unwrap();
    rustix::fs::chown(&theirs, Some(rustix::fs::Uid::from_raw(65534)), None).unwrap();
    let script = |words: &str| format!("export HEADSTART_STATE={}; $H {words}", theirs.display());
    case.script(&script("status"))
        .refused(&["HEADSTART_STATE", "65534", "--state"]);
    let ran = case.script(&script("run -- sh -c 'echo out; exit 6'"));
    assert_eq!(
        (ran.code(), ran.out.as_str()),
        (6, "out\n"),
        "the command runs all the same"
    );
    assert!(ran.err.contains("HEADSTART_STATE"), "{}", ran.err);
    assert_eq!(
        std::fs::read_dir(&theirs).unwrap().count(),
        0,
        "nothing is written there"
    );
    // What a link of theirs leads to, and what they could make first.
    let (own, link, shared) = (case.path("own"), theirs.join("link"), case.path("shared"));
    std::fs::create_dir(&own).unwrap();
    std::os::unix::fs::symlink(&own, &link).unwrap();
    std::fs::create_dir(&shared).unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o1777)).unwrap();
    let status = |path: &std::path::Path| {
        case.script(&format!("export HEADSTART_STATE={}; $H status", path.display()))
    };
    status(&shared.join("not-yet")).refused(&["HEADSTART_STATE", "any user may write", "--state"]);
    assert_eq!(status(&own.join("not-yet")).code(), 0);
    std::fs::create_dir(shared.join("there")).unwrap();
    assert_eq!(status(&shared.join("there")).code(), 0, "it is root's");
    // By the link it is the directory itself, whatever the link becomes.
    let ran = case.script(&format!(
        "export HEADSTART_STATE={0}; $H run --wait -- sh -c 'ln -sfn {1} {0}'",
        link.display(),
        theirs.display()
    ));
    assert_eq!(ran.code(), 0, "{}", ran.err);
    assert!(own.join("keys").exists() && !theirs.join("keys").exists());
    std::fs::remove_file(&link).unwrap();
    // Whoever names it has looked at it.
    let named = case.script(&format!(
        "unset HEADSTART_STATE; $H --state {} status",
        theirs.display()
    ));
    assert_eq!(named.code(), 0, "{}", named.err);
}

#[test]
fn a_state_directory_that_cannot_be_used_is_told_of_in_one_line() {
    let case = Case::new();
    std::fs::write(case.path("file"), "").unwrap();
    for state in ["/proc/headstart", "/dev/null", "file"] {
        for wait in ["", "--wait "] {
            let ran = case.script(&format!(
                "$H --state {state} run {wait}-- sh -c 'echo out; exit 6'"
            ));
            assert_eq!((ran.code(), ran.out.as_str()), (6, "out\n"), "{state}");
            assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
            assert!(
                ran.err.starts_with("headstart: nothing is learned: cannot "),
                "{}",
                ran.err
            );
        }
    }
}
