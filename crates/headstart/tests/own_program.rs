//! What `headstart run` itself costs where it is not in memory. Needs root, for a loop device.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Case, binary};
use headstart_system::residency;
use headstart_system::testing::{LoopFs, Spec, can_mount};
use std::fs::File;
use std::process::Command;

#[test]
fn a_cold_headstart_is_read_in_one_go() {
    if !can_mount() {
        return;
    }
    // Without what no installed one has: it would be most of the file.
    let fill = |root: &std::path::Path| {
        let stripped = Command::new("strip")
            .arg("-o")
            .arg(root.join("headstart"))
            .arg(binary())
            .status()?;
        assert!(stripped.success());
        Ok(())
    };
    let spec = Spec {
        size: 256 << 20,
        ..Spec::new("ext4")
    };
    let mut disk = LoopFs::create(&spec, fill).unwrap();
    let case = Case::new();
    disk.remount_cold().unwrap();
    let program = disk.mount_point().join("headstart");
    let size = program.metadata().unwrap().len();
    let of = || residency::resident_pages(File::open(&program).unwrap(), 0, size).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).env("HEADSTART_STATE", case.state());
        assert!(command.output().unwrap().status.success(), "{words:?}");
    };
    let all = size.div_ceil(rustix::param::page_size() as u64);
    // What nobody waits for comes as it is needed.
    run(&["status"]);
    let asked = of();
    assert!(asked < all, "{asked} of {all} pages");
    disk.remount_cold().unwrap();
    run(&["run", "--wait", "--name", "k", "--", "true"]);
    // But for what the kernel takes from memory of its own accord meanwhile.
    let asked = of();
    assert!(asked >= all - all / 20, "{asked} of {all} pages");
}
