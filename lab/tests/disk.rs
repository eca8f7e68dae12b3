//! The disk as a whole, on this machine's kernel: needs root, FUSE and loop devices. Without root the tests say so
//! and pass, or fail if `HEADSTART_TESTS_ALL` is set.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use headstart_lab::disk::{Attached, Options, Writes};
use headstart_lab::model::{Model, Op};
use headstart_lab::registry::Registry;

const MIB: u64 = 1 << 20;

#[track_caller]
fn root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        assert!(
            std::env::var_os("HEADSTART_TESTS_ALL").is_none(),
            "HEADSTART_TESTS_ALL is set, and this test lacks root"
        );
        eprintln!("skipped: needs root");
    }
    root
}

/// A scratch directory on a real file system (a tmpfs cannot hold what direct I/O needs on older kernels).
fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("headstart-lab-test-")
        .tempdir_in("/var/tmp")
        .unwrap()
}

fn image(directory: &Path) -> (PathBuf, Vec<u8>) {
    let bytes: Vec<u8> = (0..16 * MIB / 8)
        .flat_map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    let path = directory.join("image");
    fs::write(&path, &bytes).unwrap();
    (path, bytes)
}

fn mounted(path: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .contains(&format!(" {} ", path.display()))
}

#[test]
fn flash4ms_delays_reads_and_keeps_the_bytes() {
    if !root() {
        return;
    }
    let scratch = scratch();
    let (image, bytes) = image(scratch.path());
    let registry = Registry::open(scratch.path()).unwrap();
    let directory = scratch.path().join("fuse");
    let model = Model::load("flash4ms").unwrap();
    let options = Options {
        model,
        image: image.clone(),
        directory: directory.clone(),
        writes: Writes::Forget,
    };
    let mut disk = Attached::new(&options, &registry).unwrap();
    let queue = |file: &str| {
        let name = disk.device().file_name().unwrap().to_str().unwrap();
        fs::read_to_string(format!("/sys/block/{name}/queue/{file}"))
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!(
        (queue("read_ahead_kb"), queue("rotational")),
        ("128".into(), "0".into())
    );

    // Ten places far apart, one after the other: each waits for the device.
    disk.renew().unwrap();
    let device = File::open(disk.device()).unwrap();
    let mut block = [0; 4096];
    let begin = Instant::now();
    for place in 0..10 {
        device
            .read_exact_at(&mut block, (place * 3 % 10) * MIB + 64 * 1024)
            .unwrap();
    }
    let took = begin.elapsed();
    // Each answer leaves early for its way back, by 0.2 ms at most. Above: loose, other programs run here too.
    assert!(
        took > Duration::from_millis(38) && took < Duration::from_secs(2),
        "{took:?}"
    );
    let reads = disk.counters().unwrap().reads;
    assert!(reads >= 10, "{reads}");
    let log = disk.take_log();
    assert!(
        log.iter()
            .filter(|e| e.op == Op::Read && e.service == 4_008_192)
            .count()
            >= 10,
        "{log:?}"
    );
    drop(device);

    // Writes are seen, and forgotten by the next fresh attach.
    let writer = File::options().write(true).open(disk.device()).unwrap();
    writer.write_all_at(&[0xee; 8192], MIB).unwrap();
    writer.sync_all().unwrap();
    drop(writer);
    disk.renew().unwrap();
    assert!(
        fs::read(disk.device()).unwrap() == bytes,
        "the device holds other bytes than the image"
    );
    assert!(fs::read(&image).unwrap() == bytes, "the image was changed");

    let device = disk.device().to_owned();
    drop(disk);
    let name = device.file_name().unwrap().to_str().unwrap();
    let backing = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).unwrap_or_default();
    assert!(
        !backing.starts_with(directory.to_str().unwrap()),
        "still attached: {backing}"
    );
    assert!(!mounted(&directory));
}

#[test]
fn clean_removes_what_a_killed_server_left() {
    if !root() {
        return;
    }
    let scratch = scratch();
    let (image, _) = image(scratch.path());
    let mount = scratch.path().join("fuse");
    let lab = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_headstart-lab"));
        command.env("HEADSTART_LAB_DIR", scratch.path());
        command
    };
    let mut server = lab()
        .args(["disk", "serve", "--model", "none", "--image"])
        .arg(&image)
        .arg("--mount")
        .arg(&mount)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line.trim(), mount.join("disk").to_str().unwrap());
    let busy = lab().arg("clean").output().unwrap();
    assert!(
        String::from_utf8_lossy(&busy.stdout).contains("still running"),
        "a running lab is left alone"
    );
    assert!(mounted(&mount));
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(mounted(&mount), "a kill leaves the mount");
    let cleaned = lab().arg("clean").output().unwrap();
    assert!(cleaned.status.success(), "{cleaned:?}");
    assert!(!mounted(&mount));
    let again = lab().arg("clean").output().unwrap();
    assert!(String::from_utf8_lossy(&again.stdout).contains("nothing to clean"));
}

#[test]
fn a_signal_takes_everything_along() {
    if !root() {
        return;
    }
    let scratch = scratch();
    let (image, _) = image(scratch.path());
    let mount = scratch.path().join("fuse");
    let mut server = Command::new(env!("CARGO_BIN_EXE_headstart-lab"))
        .env("HEADSTART_LAB_DIR", scratch.path())
        .args(["disk", "serve", "--model", "none", "--image"])
        .arg(&image)
        .arg("--mount")
        .arg(&mount)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(130));
    assert!(!mounted(&mount));
}

/// What a killed run wrote is gone, what was kept before it is there, and the image is as it was.
#[test]
fn a_delta_survives_kill_and_keeps_no_half_run() {
    if !root() {
        return;
    }
    let scratch = scratch();
    let (image, bytes) = image(scratch.path());
    let mount = scratch.path().join("fuse");
    let serve = || {
        let mut server = Command::new(env!("CARGO_BIN_EXE_headstart-lab"))
            .env("HEADSTART_LAB_DIR", scratch.path())
            .args(["disk", "serve", "--model", "none", "--image"])
            .arg(&image)
            .arg("--mount")
            .arg(&mount)
            .arg("--delta")
            .arg(scratch.path().join("delta"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let disk = File::options().read(true).write(true).open(line.trim()).unwrap();
        (server, disk)
    };
    let read = |disk: &File, at: u64| {
        let mut block = [0; 4096];
        disk.read_exact_at(&mut block, at).unwrap();
        block
    };

    // A run that ends well keeps what it wrote.
    let (mut server, disk) = serve();
    disk.write_all_at(&[1; 4096], MIB).unwrap();
    drop(disk);
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(130));

    // One that is killed keeps nothing of it.
    let (mut server, disk) = serve();
    assert_eq!(read(&disk, MIB), [1; 4096]);
    disk.write_all_at(&[2; 4096], MIB).unwrap();
    disk.write_all_at(&[2; 4096], 5 * MIB).unwrap();
    assert_eq!(read(&disk, MIB), [2; 4096]);
    server.kill().unwrap();
    server.wait().unwrap();
    drop(disk);
    let clean = Command::new(env!("CARGO_BIN_EXE_headstart-lab"))
        .env("HEADSTART_LAB_DIR", scratch.path())
        .arg("clean")
        .status()
        .unwrap();
    assert!(clean.success());
    let (mut server, disk) = serve();
    assert_eq!(read(&disk, MIB), [1; 4096]);
    assert_eq!(read(&disk, 5 * MIB)[..], bytes[5 * MIB as usize..][..4096]);
    drop(disk);
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    server.wait().unwrap();
    assert!(fs::read(&image).unwrap() == bytes, "the image was changed");
}
