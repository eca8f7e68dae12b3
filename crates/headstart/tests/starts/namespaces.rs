//! headstart in containers: namespaces of every kind, one in another, and less than root has outside.

use crate::common::{Case, Ran, binary, can_record, finish, is_root, run_words};
use std::process::Command;

/// What makes a container: as a shell's, systemd-nspawn's, one in another, and without a /proc of its own.
const CONTAINERS: &[&str] = &[
    "unshare --pid --fork --mount-proc",
    "unshare --pid --fork --mount --uts --ipc --net --cgroup --mount-proc",
    "unshare --pid --fork --mount-proc unshare --pid --fork --mount-proc",
    "unshare --pid --fork",
];

/// Runs headstart in a container, which `words` make.
fn contained(case: &Case, words: &str, headstart: &[&str]) -> Ran {
    let mut words_left = words.split(' ');
    let mut command = Command::new(words_left.next().unwrap());
    command
        .args(words_left)
        .arg(binary())
        .args(headstart)
        .current_dir(case.path(""))
        .env("HEADSTART_STATE", case.state())
        .env("HEADSTART_EVEN_WARM", "1");
    finish(command, b"")
}

/// The only profile that there is.
fn profile(case: &Case) -> String {
    let mut keys = std::fs::read_dir(case.state().join("keys")).unwrap();
    let profile = keys.next().unwrap().unwrap().path().join("profile");
    case.json(&["show", "--json", profile.to_str().unwrap()])
        .to_string()
}

#[test]
fn run_learns_what_a_command_in_a_container_uses() {
    if !is_root() || !can_record() {
        return;
    }
    for words in CONTAINERS {
        let case = Case::new();
        case.write("data", vec![1; 3 * 4096]);
        let ran = contained(
            &case,
            words,
            &["run", "--wait", "--name", "it", "--", "cat", "data"],
        );
        assert_eq!((ran.code(), ran.err.as_str()), (0, ""), "{words}");
        let profile = profile(&case);
        assert!(profile.contains("/data"), "{words}: {profile}");
    }
}

#[test]
fn the_first_process_of_a_container_waits_until_it_has_learned() {
    if !is_root() || !can_record() {
        return;
    }
    let case = Case::new();
    let words = "unshare --pid --fork --mount-proc";
    let ran = contained(&case, words, &["run", "--name", "it", "--", "sh", "-c", "exit 3"]);
    assert_eq!((ran.code(), ran.err.as_str()), (3, ""));
    profile(&case);
}

#[test]
fn where_a_fork_would_begin_a_namespace_the_command_runs_alone() {
    if !is_root() {
        return;
    }
    let case = Case::new();
    let ran = contained(
        &case,
        "unshare --pid",
        &["run", "--name", "it", "--", "echo", "done"],
    );
    assert_eq!((ran.code(), ran.out.as_str()), (0, "done\n"));
    assert!(ran.err.contains("unshare --pid --fork"), "{}", ran.err);
    let ran = contained(
        &case,
        "unshare --pid",
        &["record", "-o", "t.trace", "--", "echo", "done"],
    );
    ran.refused(&["unshare --pid --fork"]);
    assert_eq!(ran.out, "");
}

#[test]
fn a_container_that_may_not_record_runs_the_command_and_says_why() {
    if !is_root() || !can_record() {
        return;
    }
    for (words, why) in [
        // podman's, which drops what it takes to see other processes.
        (
            "unshare --pid --fork --mount-proc setpriv --bounding-set -sys_admin,-bpf,-perfmon",
            "CAP_BPF",
        ),
        // podman's where nobody is root.
        (
            "unshare --user --map-root-user --pid --fork --mount-proc",
            "user namespace",
        ),
    ] {
        let case = Case::new();
        let ran = contained(
            &case,
            words,
            &[
                "run",
                "--wait",
                "--name",
                "it",
                "--",
                "sh",
                "-c",
                "echo done; exit 3",
            ],
        );
        assert_eq!(
            (ran.code(), ran.out.as_str()),
            (3, "done\n"),
            "{words}: {}",
            ran.err
        );
        assert_eq!(ran.err.lines().count(), 1, "{words}: {}", ran.err);
        assert!(
            ran.err.contains("not recording") && ran.err.contains(why),
            "{words}: {}",
            ran.err
        );
    }
}

#[test]
fn in_a_user_namespace_doctor_says_that_the_container_needs_root_and_none() {
    if !is_root() {
        return;
    }
    let case = Case::new();
    for (words, users) in [
        (
            "env container=systemd-nspawn unshare --user --map-root-user",
            true,
        ),
        (
            "env container=systemd-nspawn setpriv --bounding-set -sys_admin,-bpf,-perfmon",
            false,
        ),
    ] {
        let said = contained(&case, words, &["doctor"]);
        assert_eq!(said.code(), 0, "{}", said.err);
        let words: Vec<&str> = said.out.split_whitespace().collect();
        let text = words.join(" ");
        assert!(
            text.contains("to record here systemd-nspawn --capability=CAP_BPF"),
            "{text}"
        );
        assert_eq!(text.contains("--private-users=no …, by root"), users, "{text}");
    }
}

#[test]
fn as_the_first_process_headstart_waits_for_all_that_are_left_to_it() {
    if !is_root() || !can_record() {
        return;
    }
    let case = Case::new();
    let script = "( ( sleep 0.2 & ) & ); sleep 1; cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '; true";
    let words = run_words(&[], "0", "k", &["sh", "-c", script]);
    let ran = contained(&case, "unshare --pid --fork --mount-proc", &words);
    assert_eq!((ran.code(), ran.out.as_str()), (0, "0\n"), "{}", ran.err);
}
