//! What a filter of system calls refuses is not said to be missing in the kernel.

use crate::common::{Case, can_record, finish, is_root};
use crate::hardened::refusing;
use serde_json::Value;
use std::process::{Command, Stdio};

/// What doctor reports where these calls are refused with an error, in a container of podman's without
/// tracefs.
fn report(error: i32, calls: &[i64]) -> Value {
    let case = Case::new();
    let calls: Vec<String> = calls.iter().map(i64::to_string).collect();
    let mut doctor = Command::new("unshare");
    let hidden = "for at in /sys/kernel/tracing /sys/kernel/debug; do [ ! -d $at ] || mount -t tmpfs tmpfs $at; done; exec \"$@\"";
    doctor
        .args(["--mount", "sh", "-c", hidden, "sh", "/usr/bin/python3", "-c"])
        .args([&refusing(error), &calls.join(",")])
        .arg(crate::common::binary())
        .args(["doctor", "--json"])
        .env("HEADSTART_STATE", case.state())
        .env("container", "podman")
        .stdin(Stdio::null());
    let ran = finish(doctor, b"");
    assert_eq!(ran.code(), 0, "{}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

/// A check: whether it is there, and what is said.
fn check<'a>(report: &'a Value, list: &str, name: &str) -> (bool, &'a str) {
    let mut checks = report[list].as_array().unwrap().iter();
    let check = checks.find(|check| check["name"] == name).unwrap();
    (
        check["present"].as_bool().unwrap(),
        check["note"].as_str().unwrap(),
    )
}

/// Of no call.
const NO_CALL: i64 = 100_000;

/// cachestat(2), 6.5.
const CACHESTAT: i64 = 451;

#[test]
fn what_a_filter_refuses_is_said_of_the_filter() {
    if !is_root() || !can_record() {
        return;
    }
    let plain = report(libc::EPERM, &[NO_CALL]);
    let (has_cachestat, _) = check(&plain, "replaying", "cachestat");
    assert!(check(&plain, "recording", "BPF permitted").0, "{plain}");
    let calls = [libc::SYS_bpf, libc::SYS_fsopen, CACHESTAT];
    for error in [libc::EPERM, libc::ENOSYS] {
        let report = report(error, &calls);
        let (permitted, why) = check(&report, "recording", "BPF permitted");
        let filter = "a filter of system calls (seccomp) refuses ";
        assert!(!permitted && why.starts_with(&format!("{filter}bpf(2)")), "{why}");
        let (_, ring) = check(&report, "recording", "BPF ring buffer");
        assert_eq!(ring, "not known: BPF is not permitted");
        let (tracefs, why) = check(&report, "recording", "tracefs");
        assert!(!tracefs && why.contains("mount tracefs"), "{why}");
        let because = report["because"].as_str().unwrap();
        assert!(because.starts_with(filter), "{because}");
        let line = report["container_line"].as_str().unwrap();
        assert!(line.ends_with(" --security-opt seccomp=unconfined"), "{line}");
        let (there, why) = check(&report, "replaying", "cachestat");
        assert!(!there, "{why}");
        // A kernel that lacks it is told by its release.
        if has_cachestat || error == libc::EPERM {
            assert!(why.starts_with(filter), "{why}");
        }
    }
}
