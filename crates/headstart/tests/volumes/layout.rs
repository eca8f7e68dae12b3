//! `headstart layout`, killed at any moment and asked what it did. Needs root and loop devices.

use headstart_model::Key;
use headstart_store::Store;
use headstart_system::testing::numbered::{backwards, contents, path};
use headstart_system::testing::{LoopFs, Process, Spec, can_mount};
use rustix::process::{Pid, Signal};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const FILES: u64 = 40;
const BYTES: u64 = 200_000;

struct Disk {
    fs: LoopFs,
    state: tempfile::TempDir,
}

impl Disk {
    /// Files that a start reads from the last to the first.
    fn new() -> Disk {
        let fill = |at: &Path| {
            (0..FILES).try_for_each(|number| fs::write(path(at, number), contents(number, BYTES)))
        };
        let spec = Spec {
            size: 128 << 20,
            ..Spec::new("ext4")
        };
        let disk = Disk {
            fs: LoopFs::create(&spec, fill).unwrap(),
            state: tempfile::tempdir_in("/var/tmp").unwrap(),
        };
        let (store, key) = (Store::new(disk.state.path()), Key::new("test").unwrap());
        let profile = backwards(&key, &disk.fs.mount_point(), FILES).unwrap();
        store.make().unwrap();
        store.key(&key).lock().unwrap().save_profile(&profile).unwrap();
        disk
    }

    fn layout(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headstart"));
        command
            .arg("--state")
            .arg(self.state.path())
            .arg("layout")
            .args(words);
        command
    }

    fn run(&self, words: &[&str]) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = self.layout(words).output().unwrap();
        assert!(
            status.success(),
            "{words:?}: {}",
            String::from_utf8_lossy(&stderr)
        );
        String::from_utf8(stdout).unwrap()
    }

    fn free(&self) -> u64 {
        rustix::fs::sync();
        rustix::fs::statvfs(self.fs.mount_point()).unwrap().f_bfree
    }

    fn check(&mut self) {
        self.fs.remount_cold().unwrap();
        for number in 0..FILES {
            let bytes = fs::read(path(&self.fs.mount_point(), number)).unwrap();
            assert!(bytes == contents(number, BYTES), "file {number}");
        }
        self.fs.check().unwrap();
    }
}

#[test]
fn killed_at_any_moment_it_leaves_every_file_whole_and_no_room_taken() {
    if !can_mount() {
        return;
    }
    let kills = if std::env::var_os("HEADSTART_TESTS_LONG").is_some() {
        300
    } else {
        10
    };
    let mut disk = Disk::new();
    let free = disk.free();
    let (mut interrupted, mut moment_us) = (0, 7u64);
    for kill in 0..kills {
        let mut child = disk
            .layout(&["apply", "--force"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // From the beginning of a program to some time after the end of all moves.
        moment_us = moment_us
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros((moment_us >> 33) % 400_000));
        child.kill().unwrap();
        child.wait().unwrap();
        interrupted += u64::from(disk.run(&["status"]).contains("interrupted; every file is whole"));
        if kill % 5 == 4 {
            disk.check();
        }
    }
    disk.check();
    assert_eq!(disk.free(), free, "what was taken is free again");
    eprintln!("{interrupted} of {kills} kills met a move");
    // A move that nobody interrupts comes to its end.
    let text = disk.run(&["apply", "--force"]);
    assert!(text.contains(": complete"), "{text}");
    disk.check();
}

#[test]
fn one_that_is_stopped_fails_and_the_next_goes_on() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new();
    let mut apply = disk.layout(&["apply", "--force", "--rate", "1M"]);
    let child = apply
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !disk.run(&["status"]).contains(": files are being moved") {
        assert!(begun.elapsed() < Duration::from_secs(30), "nothing is moved");
        std::thread::sleep(Duration::from_millis(20));
    }
    rustix::process::kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let (text, error) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(text.contains(": stopped when asked to"), "{text}{error}");
    assert!(
        output.status.code() == Some(1) && error.contains("run it again to go on"),
        "{output:?}"
    );
    assert!(disk.run(&["apply", "--force"]).contains(": complete"));
}

#[test]
fn it_says_what_it_would_do_and_what_it_did() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new();
    assert_eq!(disk.run(&["status"]), "no file was ever moved\n");
    let shown = disk.run(&["show"]);
    let names: Vec<&str> = shown
        .lines()
        .filter_map(|line| line.split_once("/mnt/"))
        .map(|it| it.1)
        .collect();
    assert_eq!((names.len(), names[0], names[39]), (40, "039", "000"), "{shown}");
    // A loop device has no head, and as much as the few requests cost is nothing.
    let planned = disk.run(&["plan", "test"]);
    assert!(planned.contains("nothing is moved: it "), "{planned}");
    assert!(disk.run(&["apply"]).contains("nothing was moved"));
    let json: serde_json::Value = serde_json::from_str(&disk.run(&["apply", "--force", "--json"])).unwrap();
    assert_eq!(json[0]["state"], "complete", "{json}");
    assert_eq!(json[0]["files"], FILES);
    assert_eq!(json[0]["keys"][0], "test");
    assert!(json[0]["after"]["jumps"].as_u64() <= json[0]["before"]["jumps"].as_u64());
    let again: serde_json::Value = serde_json::from_str(&disk.run(&["status", "--json"])).unwrap();
    assert_eq!(again, json);
    let unknown = disk.layout(&["plan", "nobody"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("\"nobody\" is not known"));
}

#[test]
fn a_program_that_runs_as_headstart_itself_is_moved_at_the_shutdown() {
    if !can_mount() || !crate::common::can_record() {
        return;
    }
    let mut disk = Disk::new();
    let at = disk.fs.mount_point();
    let program = at.join("headstart");
    let stripped = Command::new("strip")
        .arg("-o")
        .arg(&program)
        .arg(env!("CARGO_BIN_EXE_headstart"))
        .status();
    assert!(stripped.unwrap().success());
    let mover = crate::common::binary().with_file_name("headstart-layout");
    std::fs::copy(mover, at.join("headstart-layout")).unwrap();
    rustix::fs::sync();
    let mut record = Command::new(&program);
    record
        .arg("record")
        .arg("-o")
        .arg(disk.state.path().join("trace"));
    let runs = Process(record.args(["--", "sleep", "100"]).spawn().unwrap());
    let run = |words: &[&str]| {
        let mut command = Command::new(&program);
        command
            .arg("--state")
            .arg(disk.state.path())
            .args(["layout", "apply", "--json"]);
        let ran = command.args(words).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
        (json, String::from_utf8(ran.stderr).unwrap())
    };
    let place = || headstart_system::extents::extents(File::open(&program).unwrap()).unwrap()[0].physical;
    let waiting = disk.state.path().join("layout.waiting");
    let before = place();
    let (json, told) = run(&["--force"]);
    assert_eq!(json[0]["files"], FILES, "{json} {told}");
    let why = "programs that run: moved at the next shutdown";
    assert_eq!(json[0]["left"][why], 1, "{json}");
    assert_eq!(place(), before, "it is where it was");
    assert!(waiting.exists());
    drop(runs);
    let (_, told) = run(&["--at-shutdown"]);
    assert!(told.contains("the machine is not shutting down"), "{told}");
    let (json, told) = run(&["--at-shutdown", "--force"]);
    assert_eq!(json[0]["files"], 1, "{json} {told}");
    assert_eq!(json[0]["left"], serde_json::json!({}), "{json}");
    assert_ne!(place(), before);
    assert!(!waiting.exists());
    let (_, told) = run(&["--at-shutdown", "--force"]);
    assert!(told.contains("no program waits to be moved"), "{told}");
    disk.check();
}
