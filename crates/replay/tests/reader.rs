//! What is read for a user: nothing that lies where the user may not go, and nothing on the way there. A
//! program of its own, one test after the other: mounts of other tests make looks into what is in memory
//! fail, and a process that one starts holds for a moment what another is about to unmount. Needs root.

#![allow(clippy::unwrap_used)] // Tests fail by panicking, in their helpers too.

#[path = "replay/common.rs"]
mod common;

use common::*;
use headstart_model::machine::DeviceClass;
use headstart_model::outcome::ReplayReport;
use headstart_model::plan::{PlanDraft, PlanFile, RequestKind::*};
use headstart_replay::{Options, Replay};
use headstart_system::mounts::MountTable;
use headstart_system::open::{Skip, find_cached};
use headstart_system::testing::{can_mount, let_all_into, undisturbed};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;

/// A user whom nothing belongs to.
const NOBODY: u32 = 65534;

const FILES: usize = 200;

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn replay(draft: &PlanDraft, io_uring: bool, reader: Option<u32>) -> ReplayReport {
    let options = Options {
        io_uring,
        reader,
        ..options()
    };
    let plan = PlanFile::new(draft.to_bytes().unwrap());
    Replay::start(plan, options).unwrap().finish()
}

static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn names_below_a_directory_that_is_closed_to_the_user_are_not_looked_up() {
    if !can_mount() {
        return;
    }
    let _alone = ALONE.lock();
    let mut disk = Mounted::ext4(64, |root| {
        for directory in ["closed", "open"] {
            let inside = root.join(directory).join("below");
            std::fs::create_dir_all(&inside).unwrap();
            for n in 0..FILES {
                std::fs::write(inside.join(n.to_string()), "x").unwrap();
            }
        }
        allow(&root.join("closed"), 0o700);
    });
    let_all_into(&disk.root());
    let names = |directory: &str| -> Vec<_> {
        let inside = disk.root().join(directory).join("below");
        (0..FILES).map(|n| inside.join(n.to_string())).collect()
    };
    let (closed, open) = (names("closed"), names("open"));
    for (depth, io_uring) in WAYS {
        for reader in [Some(NOBODY), None] {
            let mut plan = draft(vec![disk.planned(DeviceClass::Flash, depth)]);
            for path in open.iter().chain(&closed) {
                add(&mut plan, Stat, entry(path), 0, 0);
            }
            disk.cool();
            let_all_into(&disk.root());
            let report = replay(&plan, io_uring, reader);
            let mounts = MountTable::read().unwrap();
            let known = |paths: &[std::path::PathBuf]| {
                let is_known = |path: &&std::path::PathBuf| match find_cached(&mounts, path) {
                    Ok(_) => true,
                    Err(Skip::Cold) => false,
                    Err(other) => panic!("{}: {other}", path.display()),
                };
                paths.iter().filter(is_known).count()
            };
            assert_eq!(known(&open), FILES, "{depth} {io_uring} {:?}", report.skipped);
            let expected = if reader.is_some() { 0 } else { FILES };
            assert_eq!(
                known(&closed),
                expected,
                "{depth} {io_uring} {reader:?} {report:?}"
            );
        }
    }
}

#[test]
fn a_closed_directory_in_memory_closes_what_is_mounted_below_it() {
    undisturbed(|| {
        if !can_mount() {
            return;
        }
        let _alone = ALONE.lock();
        let mut disk = Mounted::ext4(64, |root| file(root, "file", 4));
        let_all_into(disk.beside());
        let memory = disk.beside().join("memory");
        std::fs::create_dir(&memory).unwrap();
        mount(
            "tmpfs",
            &memory,
            "tmpfs",
            MountFlags::empty(),
            c"size=1m,mode=755",
        )
        .unwrap();
        let directory = memory.join("directory");
        let stick = directory.join("stick");
        std::fs::create_dir_all(&stick).unwrap();
        let read = |disk: &mut Mounted, mode| {
            disk.cool();
            mount_bind(disk.root(), &stick).unwrap();
            allow(&directory, mode);
            let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 8)]);
            add(&mut plan, Data, entry(&stick.join("file")), 0, 4 * PAGE);
            let report = replay(&plan, true, Some(NOBODY));
            let read = resident(&stick.join("file"));
            unmount(&stick, UnmountFlags::empty()).unwrap();
            (read, report.skipped.total())
        };
        let closed = read(&mut disk, 0o700);
        let open = read(&mut disk, 0o755);
        unmount(&memory, UnmountFlags::empty()).unwrap();
        assert_eq!(closed, (vec![], 1));
        assert_eq!(open, (vec![(0, 4)], 0));
    });
}
