//! What `headstart run` itself costs where it is not in memory. Needs root, for a loop device.

use crate::common::{Case, binary};
use headstart_system::program::Program;
use headstart_system::residency;
use headstart_system::testing::{LoopFs, Spec, can_mount, undisturbed};
use std::fs::File;
use std::process::Command;

#[test]
fn of_a_cold_headstart_what_a_start_needs_is_read_in_one_go() {
    undisturbed(|| {
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
        let program = disk.mount_point().join("headstart");
        let end = Program::parse(&std::fs::read(&program).unwrap())
            .unwrap()
            .data_end;
        disk.remount_cold().unwrap();
        let size = program.metadata().unwrap().len();
        let resident = |from: u64, to: u64| {
            residency::resident_pages(File::open(&program).unwrap(), from, to - from).unwrap()
        };
        let run = |words: &[&str]| {
            let mut command = Command::new(&program);
            command.args(words).env("HEADSTART_STATE", case.state());
            assert!(command.output().unwrap().status.success(), "{words:?}");
        };
        let page = rustix::param::page_size() as u64;
        let (all, needed) = (size.div_ceil(page), end.div_ceil(page));
        assert!(needed < all - all / 4, "{needed} of {all} pages are needed");
        // What nobody waits for comes as it is used.
        run(&["mark", "--help"]);
        let asked = resident(0, size);
        assert!(asked < all, "{asked} of {all} pages");
        disk.remount_cold().unwrap();
        run(&["run", "--wait", "--name", "k", "--", "true"]);
        // But for what the kernel takes from memory of its own accord meanwhile.
        let asked = resident(0, end);
        assert!(asked >= needed - needed / 20, "{asked} of {needed} pages");
        // Of the rest what learning uses.
        let (asked, rest) = (resident(needed * page, size), all - needed);
        assert!(asked < rest, "{asked} of {rest} pages");
    });
}
