//! Private, cold, loop-mounted file systems and plans for what is on them.
#![allow(dead_code)]

use headstart_model::machine::{Cost, DeviceClass};
use headstart_model::plan::{NO_FILE, PlanDevice, PlanDraft, PlanFile, PlanFileEntry, Request, RequestKind};
use headstart_model::{FilePath, Key};
use headstart_replay::{Options, Replay};
use headstart_system::snapshot::device_at;
use headstart_system::testing::{LoopFs, Spec};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub const PAGE: u64 = 4096;

/// A private file system whose device serves at most 128 KiB from one prefetch call.
pub struct Mounted(LoopFs);

impl Mounted {
    /// Makes a file system of `mebibytes`, fills it, and mounts it cold.
    pub fn new(spec: Spec, mebibytes: u64, fill: impl FnOnce(&Path)) -> Mounted {
        let spec = Spec {
            size: mebibytes << 20,
            options: "noatime".into(),
            ..spec
        };
        let fill = |root: &Path| {
            fill(root);
            Ok(())
        };
        let mounted = Mounted(LoopFs::create(&spec, fill).unwrap());
        mounted.limit();
        mounted
    }

    pub fn ext4(mebibytes: u64, fill: impl FnOnce(&Path)) -> Mounted {
        Mounted::ext4_blocks("4096", mebibytes, fill)
    }

    /// An ext4 with blocks of that many bytes.
    pub fn ext4_blocks(block: &str, mebibytes: u64, fill: impl FnOnce(&Path)) -> Mounted {
        Mounted::new(Spec::new("ext4").mkfs(&["-b", block]), mebibytes, fill)
    }

    /// The larger of `read_ahead_kb`, which is 128, and `max_sectors_kb` is what one call serves.
    fn limit(&self) {
        let name = self.0.node().file_name().unwrap().to_owned();
        let queue = Path::new("/sys/block").join(name).join("queue");
        std::fs::write(queue.join("max_sectors_kb"), "128").unwrap();
        std::fs::write(queue.join("read_ahead_kb"), "128").unwrap();
    }

    pub fn root(&self) -> PathBuf {
        self.0.mount_point()
    }

    /// A directory beside the mount point, removed with it.
    pub fn beside(&self) -> &Path {
        self.0.beside()
    }

    pub fn node(&self) -> PathBuf {
        self.0.node()
    }

    /// What its device reads.
    pub fn image(&self) -> std::path::PathBuf {
        self.0.image()
    }

    /// Forgets everything that was cached.
    pub fn cool(&mut self) {
        self.0.remount_cold().unwrap();
        self.limit();
    }

    /// Reads that the device completed since it was attached.
    pub fn reads(&self) -> u64 {
        self.0.reads().requests
    }

    /// Bytes that its device read since it was attached.
    pub fn read_bytes(&self) -> u64 {
        self.0.reads().bytes
    }

    pub fn uuid(&self) -> [u8; 16] {
        let point = FilePath::from(self.root().as_path());
        device_at(&point, &Default::default()).unwrap().unwrap().uuid
    }

    pub fn planned(&self, class: DeviceClass, depth: u32) -> PlanDevice {
        let cost = Cost {
            class,
            bandwidth: 1e9,
            latency: 1e-4,
            depth,
        };
        PlanDevice {
            uuid: self.uuid(),
            ..PlanDevice::new(self.root().as_path().into(), cost)
        }
    }
}

/// A plan for files of one or more devices.
pub fn draft(devices: Vec<PlanDevice>) -> PlanDraft {
    PlanDraft {
        budget: 1 << 30,
        devices,
        ..PlanDraft::new(Key::new("test").unwrap(), PAGE as u32)
    }
}

/// What the plan says of a file that is there.
pub fn entry(path: &Path) -> PlanFileEntry {
    let facts = std::fs::symlink_metadata(path).unwrap();
    PlanFileEntry {
        path: path.into(),
        device: 0,
        inode: facts.ino(),
        generation: 0,
        size: facts.len(),
        mtime_ns: facts.mtime() * 1_000_000_000 + facts.mtime_nsec(),
    }
}

/// What the plan says of a path about which nothing is known.
pub fn unknown(path: &str) -> PlanFileEntry {
    PlanFileEntry {
        path: FilePath::from(path),
        device: 0,
        inode: 1,
        generation: 0,
        size: 1 << 20,
        mtime_ns: 0,
    }
}

pub fn add(draft: &mut PlanDraft, kind: RequestKind, file: PlanFileEntry, offset: u64, length: u64) {
    draft.files.push(file);
    let file = draft.files.len() as u32 - 1;
    push(draft, kind, file, offset, length);
}

pub fn add_metadata(draft: &mut PlanDraft, offset: u64, length: u64) {
    push(draft, RequestKind::Metadata, NO_FILE, offset, length);
}

fn push(draft: &mut PlanDraft, kind: RequestKind, file: u32, offset: u64, length: u64) {
    draft.requests.push(Request {
        offset,
        ..Request::new(kind, file, length)
    });
    draft.cut = draft.requests.len() as u32;
}

/// Holds the start for all requests that a device has by now.
pub fn hold(draft: &mut PlanDraft, device: u16) {
    let own = draft.requests.iter().filter(|r| r.device == device).count();
    draft.devices[usize::from(device)].hold = own as u32;
}

/// Options under which other work on the machine does not stop the replay.
pub fn options() -> Options {
    Options {
        stop_below: 0,
        stop_pressure: 1e9,
        ..Options::new(Instant::now())
    }
}

pub fn start(draft: &PlanDraft) -> Replay {
    start_with(draft, true)
}

/// [`start`], with io_uring or without.
pub fn start_with(draft: &PlanDraft, io_uring: bool) -> Replay {
    let options = Options {
        io_uring,
        ..options()
    };
    Replay::start(PlanFile::new(draft.to_bytes().unwrap()), options).unwrap()
}

/// A device's depth, and whether io_uring is allowed: looked up by threads because they suffice, by a ring,
/// and by threads because a ring is not to be had.
pub const WAYS: [(u32, bool); 3] = [(8, true), (100, true), (100, false)];

/// Resident pages of a file, as ranges (start, end).
pub fn resident(path: &Path) -> Vec<(u64, u64)> {
    headstart_system::testing::resident(path).unwrap()
}

pub fn file(root: &Path, name: &str, pages: u64) {
    std::fs::write(root.join(name), vec![7u8; (pages * PAGE) as usize]).unwrap();
}

/// Metadata of the file in memory, nothing of its data.
pub fn entries(root: &Path, names: &[&str]) -> Vec<headstart_model::plan::PlanFileEntry> {
    names.iter().map(|name| entry(&root.join(name))).collect()
}
