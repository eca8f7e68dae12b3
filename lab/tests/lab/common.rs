//! What the tests of the lab as a whole share.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A scratch directory on a real file system (a tmpfs cannot hold what direct I/O needs on older kernels).
pub fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("headstart-lab-test-")
        .tempdir_in("/var/tmp")
        .unwrap()
}

/// Mounts and loop devices that name `base`.
pub fn attached(base: &Path) -> Vec<String> {
    let base = base.to_str().unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut mounts_left: Vec<String> = mounts
        .lines()
        .filter(|line| line.contains(base))
        .map(str::to_owned)
        .collect();
    for device in fs::read_dir("/sys/block").unwrap() {
        let file = device.unwrap().path().join("loop/backing_file");
        let backing = fs::read_to_string(file).unwrap_or_default();
        mounts_left.extend(backing.contains(base).then_some(backing));
    }
    mounts_left
}

/// Kills a lab and cleans up after it by `lab`. Killed while it waits for its own server, it can be reaped
/// only after the cleaning, which must see that it is dead.
pub fn kill_and_clean(mut running: Child, lab: impl Fn() -> Command) {
    running.kill().unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let cleaned = lab().arg("clean").output().unwrap();
        assert!(cleaned.status.success(), "{cleaned:?}");
        if !String::from_utf8_lossy(&cleaned.stdout).contains("still running") {
            break;
        }
        assert!(Instant::now() < patience, "killed, and {cleaned:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    running.wait().unwrap();
}
