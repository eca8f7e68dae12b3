//! What the tests of the lab as a whole share.

use std::fs;
use std::path::Path;

/// Whether this is root, as loop devices and mounts need. Without it a test says so and passes, or fails if `HEADSTART_TESTS_ALL` is
/// set.
#[track_caller]
pub fn root() -> bool {
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
    let mut found: Vec<String> = mounts
        .lines()
        .filter(|line| line.contains(base))
        .map(str::to_owned)
        .collect();
    for device in fs::read_dir("/sys/block").unwrap() {
        let file = device.unwrap().path().join("loop/backing_file");
        let backing = fs::read_to_string(file).unwrap_or_default();
        found.extend(backing.contains(base).then_some(backing));
    }
    found
}
