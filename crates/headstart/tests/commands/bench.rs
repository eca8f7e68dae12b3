//! `headstart bench` on a file system of its own.

use crate::common::{Case, can_record, eventually};
use headstart_system::testing::{LoopFs, Spec, can_mount};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Bytes of the file that the command reads.
const SIZE: u64 = 8 << 20;

/// An ext4 with a file to read, or nothing where none can be mounted, or nobody can record.
fn disk() -> Option<LoopFs> {
    if !can_mount() || !can_record() {
        return None;
    }
    let fill = |root: &Path| std::fs::write(root.join("data"), vec![7; SIZE as usize]);
    Some(LoopFs::create(&Spec::new("ext4"), fill).unwrap())
}

/// Bytes that were read from the device of the file system so far.
fn bytes_read(fs: &LoopFs) -> u64 {
    let name = fs.node().file_name().unwrap().to_owned();
    let stat = std::fs::read_to_string(Path::new("/sys/block").join(name).join("stat")).unwrap();
    stat.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap() * 512
}

/// The state directories of this benchmark that are there.
fn scratches(process: u32) -> Vec<PathBuf> {
    let begins = format!("headstart-bench-{process}-");
    let entries = std::fs::read_dir("/var/tmp").unwrap().flatten();
    let is_one = |path: &PathBuf| {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        name.starts_with(&begins)
    };
    entries.map(|entry| entry.path()).filter(is_one).collect()
}

fn times(document: &Value, kind: &str) -> usize {
    document[kind].as_array().unwrap().len()
}

#[test]
fn cold_starts_read_from_the_device_and_warm_ones_do_not() {
    let Some(fs) = disk() else { return };
    let case = Case::new();
    let data = fs.mount_point().join("data");
    let log = case.path("log");
    // Each start notes what the device had read before it.
    let device = fs.node().file_name().unwrap().to_string_lossy().into_owned();
    let script = format!(
        "awk '{{print $3}}' /sys/block/{device}/stat >>{0}; cat {1} >/dev/null; awk '{{print $3}}' /sys/block/{device}/stat >>{0}",
        log.display(),
        data.display()
    );
    let page = case.path("page.html");
    let words = [
        "bench",
        "--yes",
        "--json",
        "--rounds",
        "4",
        "--html",
        page.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        &script,
    ];
    let document = case.json(&words);
    for kind in ["cold", "with_headstart", "warm"] {
        assert_eq!(times(&document, kind), 4, "{document}");
    }
    assert_eq!(document["end"], "exit");
    assert!(document["saved"]["interval"].is_array() && document["floor"]["bytes"].as_u64() >= Some(SIZE));
    assert_eq!(document["kept"], Value::Null);
    let noted: Vec<u64> = std::fs::read_to_string(&log)
        .unwrap()
        .lines()
        .map(|sectors| sectors.parse::<u64>().unwrap() * 512)
        .collect();
    // Two starts taught; then cold, warm, with, and with, warm, cold in turns.
    let read: Vec<u64> = noted.chunks(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(read.len(), 2 + 4 * 3);
    let rounds: Vec<&[u64]> = read[2..].chunks(3).collect();
    for (round, read) in rounds.iter().enumerate() {
        let cold = if round % 2 == 0 { read[0] } else { read[2] };
        assert!(cold >= SIZE, "a cold start read {cold} of {SIZE} bytes: {read:?}");
        // When a file was read last is noted in its inode, whose block may have been dropped with the
        // metadata.
        assert!(read[1] < SIZE / 16, "a warm start: {read:?}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<circle").count(), 12);
}

#[test]
fn what_was_learned_is_kept_only_if_somebody_asks_and_nothing_else_is_left() {
    let Some(fs) = disk() else { return };
    let case = Case::new();
    let data = fs.mount_point().join("data");
    let before = bytes_read(&fs);
    let words = |more: &[&'static str]| {
        let mut words = vec!["bench", "--yes", "--rounds", "4"];
        words.extend(more);
        words.extend(["--", "cat"]);
        let mut words: Vec<String> = words.into_iter().map(String::from).collect();
        words.push(data.display().to_string());
        words
    };
    let bench = |more: &[&'static str]| {
        let words = words(more);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = case.headstart(&words);
        assert_eq!(ran.code(), 0, "{}", ran.err);
        ran.out
    };
    let said = bench(&[]);
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    assert!(said.contains("Nothing that was learned is kept."), "{said}");
    assert!(
        bytes_read(&fs) - before >= 8 * SIZE,
        "four starts of either kind were cold"
    );
    assert!(!case.state().join("keys").exists());
    let said = bench(&["--keep"]);
    assert!(said.contains("What was learned is kept"), "{said}");
    let known = case.json(&["status", "--json"]);
    // Later ones of so short a start are not recorded, as they are not without bench.
    assert_eq!(known[0]["profile"]["runs"], 3, "{known}");
    let ran = case.headstart(&[
        "bench",
        "--yes",
        "--rounds",
        "4",
        known[0]["key"].as_str().unwrap(),
    ]);
    assert_eq!(ran.code(), 0, "{}", ran.err);
}

#[test]
fn a_program_that_stays_is_asked_to_close_when_it_is_quiet() {
    let Some(fs) = disk() else { return };
    let case = Case::new();
    let data = fs.mount_point().join("data");
    let closed = case.path("closed");
    let script = format!(
        "trap 'echo closed >>{}; exit 0' TERM; cat {} >/dev/null; while :; do sleep 1000 & wait $!; done",
        closed.display(),
        data.display()
    );
    let document = case.json(&[
        "bench", "--yes", "--json", "--rounds", "4", "--", "sh", "-c", &script,
    ]);
    assert_eq!(document["end"], "quiet");
    let closed = std::fs::read_to_string(closed).unwrap();
    assert_eq!(closed.lines().count(), 2 + 4 * 3);
    let cold = document["cold"].as_array().unwrap();
    assert!(
        cold.iter().all(|seconds| seconds.as_f64().unwrap() < 20.0),
        "{document}"
    );
    assert!(case.processes().is_empty(), "nobody is left");
}

/// What hardly reads anything is in memory as soon as another program has been started: headstart does
/// nothing for it, and keeps nothing of it.
#[test]
fn a_command_that_gains_nothing_ends_as_no_difference() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let mut command = case.command(&["bench", "--yes", "--json", "--rounds", "4", "--", "sleep", "0.2"]);
    let ran = command.env_remove("HEADSTART_EVEN_WARM").output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let document: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(document["finding"], "no-difference", "{document}");
    assert!(document["bypassed"].as_u64() <= Some(4), "{document}");
    assert_eq!(times(&document, "with_headstart"), 4);
}

#[test]
fn who_ends_it_finds_nothing_left() {
    let Some(fs) = disk() else { return };
    let case = Case::new();
    let started = case.path("started");
    let script = format!(
        "echo >{}; cat {} >/dev/null; sleep 1000",
        started.display(),
        fs.mount_point().join("data").display()
    );
    let mut command = case.command(&["bench", "--yes", "--", "sh", "-c", &script]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the command is started", || started.exists());
    assert_eq!(scratches(child.id()).len(), 1);
    // `env` has become headstart.
    headstart_system::launch::send(child.id(), 2);
    let status = child.wait().unwrap();
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(2),
        "{status}"
    );
    assert!(scratches(child.id()).is_empty());
    eventually("the command is gone", || case.processes().is_empty());
}

#[test]
fn it_refuses_what_it_may_not_or_cannot_measure() {
    let case = Case::new();
    let ran = case.headstart(&["bench", "--", "true"]);
    assert_eq!(ran.code(), 1);
    assert!(
        ran.err.contains("--yes") && ran.err.contains("47 times"),
        "{}",
        ran.err
    );
    let ran = case.headstart(&["bench"]);
    assert_eq!(ran.code(), 2);
    let ran = case.headstart(&["bench", "--yes", "--rounds", "3", "--", "true"]);
    assert_eq!(ran.code(), 2, "no interval is told of three rounds");
    let ran = case.headstart(&["bench", "--yes", "nothing-of-this-name"]);
    assert_eq!(ran.code(), 1);
    if !can_record() {
        return;
    }
    let ran = case.headstart(&[
        "bench",
        "--yes",
        "--",
        "sh",
        "-c",
        "echo no such luck >&2; exit 3",
    ]);
    assert_eq!(ran.code(), 1);
    assert!(
        ran.err.contains("exit status: 3") && ran.err.contains("no such luck"),
        "{}",
        ran.err
    );
    let ran = case.headstart(&["bench", "--yes", "--", "/nothing/here"]);
    assert_eq!(ran.code(), 1);
    assert!(ran.err.contains("/nothing/here"), "{}", ran.err);
}
