//! What cannot be written where it was moved to is kept. Needs root and loop devices.

use crate::disk::{FORCE, PAGE, backwards, contents, machine, path};
use headstart_layout::{LayoutResult, State, apply, plan};
use headstart_model::Key;
use headstart_store::Store;
use headstart_system::residency::advise_dontneed;
use headstart_system::testing::{Mounted, Scratch, can_mount, run};
use rustix::fs::FallocateFlags;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::process::Command;

/// More than are moved before the first are compared.
const FILES: u64 = 280;
const IMAGE: u64 = 120 << 20;

/// An ext4 on a pool that has less room than it: what was never written cannot be written once the pool is
/// full.
struct Overcommitted {
    disk: Mounted,
    pool: Mounted,
    _scratch: Scratch,
}

impl Overcommitted {
    fn new() -> Overcommitted {
        let scratch = Scratch::new().unwrap();
        let pool = Mounted::new(
            &["-t", "tmpfs", "-o", "size=200M", "none"],
            &scratch.path().join("pool"),
        )
        .unwrap();
        let image = pool.path().join("image");
        File::create(&image).unwrap().set_len(IMAGE).unwrap();
        // One group of blocks and a small journal.
        run(Command::new("mkfs.ext4")
            .args([
                "-q",
                "-F",
                "-b",
                "4096",
                "-J",
                "size=4",
                "-E",
                "lazy_itable_init=1",
            ])
            .arg(&image))
        .unwrap();
        let options = ["-t", "ext4", "-o", "loop,noinit_itable", image.to_str().unwrap()];
        let disk = Mounted::new(&options, &scratch.path().join("mnt")).unwrap();
        Overcommitted {
            disk,
            pool,
            _scratch: scratch,
        }
    }

    /// Gives all of the file system its place in the pool.
    fn complete(&self) {
        rustix::fs::sync();
        rustix::fs::fallocate(self.image(), FallocateFlags::empty(), 0, IMAGE).unwrap();
    }

    /// Takes the place of these bytes away, and fills the pool to its last byte: where metadata cannot be
    /// written either, the journal ends and nothing can be kept.
    fn fill(&self, start: u64, length: u64) {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(self.image(), how, start, length).unwrap();
        let mut filler = File::create(self.pool.path().join("filler")).unwrap();
        while filler.write_all(&[7; PAGE as usize]).is_ok() {}
    }

    fn image(&self) -> File {
        File::options()
            .write(true)
            .open(self.pool.path().join("image"))
            .unwrap()
    }
}

#[test]
fn what_cannot_be_written_where_it_was_moved_to_is_kept() {
    if !can_mount() {
        return;
    }
    let disk = Overcommitted::new();
    let at = disk.disk.path();
    for number in 0..FILES {
        fs::write(path(at, number), contents(number, 25 * PAGE)).unwrap();
        fs::write(at.join(format!("gap{number}")), contents(number, 25 * PAGE)).unwrap();
    }
    fs::write(at.join("headstart-layout-rescue"), "of an earlier time").unwrap();
    disk.complete();
    let state = tempfile::tempdir_in("/var/tmp").unwrap();
    let store = Store::new(state.path());
    let key = store.key(&Key::new("test").unwrap());
    let profile = backwards(key.key(), at, FILES).unwrap();
    let machine = machine(&store, &profile);
    let orders = plan(&[profile], &machine);
    // Its room was written, and something takes that away from below while the first files are moved.
    let mut filled = false;
    let mut tell = |kept: &LayoutResult| {
        if kept.bytes > 0 && !filled {
            filled = true;
            assert_eq!(kept.pieces, 1, "{kept:?}");
            disk.fill(kept.to.unwrap() + kept.bytes, kept.planned_bytes - kept.bytes);
        }
    };
    let results = apply(orders, &machine, &[key], &store, FORCE, &mut tell).unwrap();
    assert_eq!(results[0].state, State::Failed, "{results:?}");
    let why = results[0].why.as_ref().unwrap();
    let name = "headstart-layout-rescue-2";
    assert!(why.contains(name), "{why}");
    let first = fs::read_to_string(at.join("headstart-layout-rescue")).unwrap();
    assert_eq!(first, "of an earlier time");
    let rescued = fs::read(at.join(name)).unwrap();
    let rescued: HashSet<&[u8]> = rescued.chunks(PAGE as usize).collect();
    let mut lost = 0;
    for number in 0..FILES {
        advise_dontneed(File::open(path(at, number)).unwrap(), 0, 0).unwrap();
        let bytes = fs::read(path(at, number)).unwrap();
        let expected = contents(number, 25 * PAGE);
        let pages = expected.chunks(PAGE as usize).zip(bytes.chunks(PAGE as usize));
        for (page, _) in pages.filter(|(page, found)| page != found) {
            assert!(rescued.contains(page), "a page of file {number}");
            lost += 1;
        }
    }
    assert!(lost > 0, "the device took all");
}
