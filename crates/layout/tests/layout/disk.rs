//! A file system with files that lie strewn, and what a start needs of them.
#![allow(dead_code)] // each test uses what it needs

use headstart_layout::{Bounds, LayoutResult, apply, plan, status};
use headstart_model::machine::{DeviceClass, Machine};
use headstart_model::{Key, Profile};
use headstart_start::machine::{Costs, Measure, snapshot};
use headstart_store::{KeyDir, Store};
pub use headstart_system::testing::numbered::{backwards, contents, path};
use headstart_system::testing::{LoopFs, Spec};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub const FILES: u64 = 60;
pub const PAGE: u64 = 4096;
/// How far the files lie apart is the file system's choice, so the gain is small here or there; what is worth
/// it is tested with the order itself.
pub const FORCE: Bounds = Bounds {
    force: true,
    rate: None,
    at_shutdown: false,
    until: None,
};

pub fn size(number: u64) -> u64 {
    match number % 4 {
        0 => 1,
        // Those below 64 KiB are put together by the file system itself.
        1 => 20 * PAGE + 700,
        2 => 100_000 + number * 37,
        _ => 300_000,
    }
}

/// Files with room between them.
pub fn scatter(at: &Path, numbers: &[u64], gap: u64) -> std::io::Result<()> {
    for &number in numbers {
        let file = File::create(path(at, number))?;
        let room = File::create(at.join(format!("gap{number}")))?;
        // Allocated at once, in this order. Without extents there is no such call, and nothing is moved
        // there.
        for (file, bytes) in [(&file, size(number)), (&room, gap)] {
            match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) | Err(Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        file.write_all_at(&contents(number, size(number)), 0)?;
    }
    rustix::fs::sync();
    for number in numbers {
        fs::remove_file(at.join(format!("gap{number}")))?;
    }
    Ok(())
}

/// This machine as a plan for the profile needs it, with a disk for the loop device.
pub fn machine(store: &Store, profile: &Profile) -> Machine {
    let costs = Costs {
        store,
        class: Some(DeviceClass::Disk),
        measure: Measure::Nothing,
    };
    snapshot(profile, &costs, &mut |line| panic!("{line}")).unwrap()
}

pub struct Disk {
    pub fs: LoopFs,
    pub state: tempfile::TempDir,
}

impl Disk {
    pub fn new(mkfs: &[&str], size: u64) -> Disk {
        let spec = Spec {
            size,
            ..Spec::new("ext4").mkfs(mkfs)
        };
        Disk {
            fs: LoopFs::create(&spec, |at| {
                scatter(at, &(0..FILES).collect::<Vec<_>>(), size / 100)
            })
            .unwrap(),
            state: tempfile::tempdir_in("/var/tmp").unwrap(),
        }
    }

    pub fn mount_point(&self) -> PathBuf {
        self.fs.mount_point()
    }

    pub fn store(&self) -> Store {
        Store::new(self.state.path())
    }

    pub fn key(&self) -> KeyDir {
        self.store().key(&Key::new("test").unwrap())
    }

    /// What a start that reads all from the last to the first learned.
    pub fn profile(&self) -> Profile {
        backwards(self.key().key(), &self.mount_point(), FILES).unwrap()
    }

    pub fn machine(&self, profile: &Profile) -> Machine {
        machine(&self.store(), profile)
    }

    pub fn apply(&self, bounds: Bounds) -> LayoutResult {
        self.apply_for(self.profile(), bounds)
    }

    pub fn apply_for(&self, profile: Profile, bounds: Bounds) -> LayoutResult {
        let machine = self.machine(&profile);
        self.apply_on(&machine, profile, bounds)
    }

    pub fn apply_on(&self, machine: &Machine, profile: Profile, bounds: Bounds) -> LayoutResult {
        let results = apply(
            plan(&[profile], machine),
            machine,
            &[self.key()],
            &self.store(),
            bounds,
            &mut |_| {},
        )
        .unwrap();
        assert_eq!(status(&self.store()).unwrap()[..1], results);
        let [kept] = <[LayoutResult; 1]>::try_from(results).unwrap();
        kept
    }

    /// Where the first byte of each file lies, in the order of their use.
    pub fn places(&self) -> Vec<u64> {
        let place = |number| {
            let file = File::open(path(&self.mount_point(), number)).unwrap();
            headstart_system::extents::extents(&file).unwrap()[0].physical
        };
        (0..FILES).rev().map(place).collect()
    }

    /// Bytes that others than root may still take, and bytes of all of it.
    pub fn free(&self) -> (u64, u64) {
        let facts = rustix::fs::statvfs(self.mount_point()).unwrap();
        (facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize)
    }

    /// A file that takes so many of them.
    pub fn fill(&self, bytes: u64) -> File {
        let filler = File::create(self.mount_point().join("filler")).unwrap();
        rustix::fs::fallocate(&filler, FallocateFlags::empty(), 0, bytes).unwrap();
        filler
    }

    /// Every byte is what it was, read from the device, and the file system is clean.
    pub fn check(&mut self) {
        self.fs.remount_cold().unwrap();
        for number in 0..FILES {
            let bytes = fs::read(path(&self.mount_point(), number)).unwrap();
            assert!(bytes == contents(number, size(number)), "file {number}");
        }
        self.fs.check().unwrap();
    }
}

pub fn is_ascending(places: &[u64]) -> bool {
    places.windows(2).all(|two| two[0] < two[1])
}
