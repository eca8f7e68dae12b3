//! Private, cold, loop-mounted file systems and plans for what is on them.
#![allow(dead_code)]

use headstart_model::machine::{Cost, DeviceClass};
use headstart_model::plan::{NO_FILE, PlanDevice, PlanDraft, PlanFile, PlanFileEntry, Request, RequestKind};
use headstart_model::{FilePath, Key};
use headstart_replay::{Options, Replay};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

pub const PAGE: u64 = 4096;

fn sh(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    text
}

/// A file system in an image of its own; unmounted and detached when dropped.
pub struct Mounted {
    directory: tempfile::TempDir,
    device: Option<String>,
    mounted: bool,
}

impl Mounted {
    /// Makes a file system of `mebibytes`, fills it, and mounts it cold.
    pub fn new(mkfs: &[&str], mebibytes: u64, fill: impl FnOnce(&Path)) -> Mounted {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let image = std::fs::File::create(directory.path().join("image")).unwrap();
        image.set_len(mebibytes << 20).unwrap();
        std::fs::create_dir(directory.path().join("mnt")).unwrap();
        let mut this = Mounted {
            directory,
            device: None,
            mounted: false,
        };
        let image = this.directory.path().join("image");
        sh(mkfs[0], &[&mkfs[1..], &[image.to_str().unwrap()]].concat());
        this.attach();
        fill(&this.root());
        this.detach();
        this.attach();
        this
    }

    pub fn ext4(mebibytes: u64, fill: impl FnOnce(&Path)) -> Mounted {
        Mounted::ext4_blocks("4096", mebibytes, fill)
    }

    /// An ext4 with blocks of that many bytes.
    pub fn ext4_blocks(block: &str, mebibytes: u64, fill: impl FnOnce(&Path)) -> Mounted {
        // Nothing is initialised later, in the background.
        let lazy = "lazy_itable_init=0,lazy_journal_init=0";
        Mounted::new(
            &["mkfs.ext4", "-q", "-F", "-b", block, "-E", lazy],
            mebibytes,
            fill,
        )
    }

    pub fn root(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    pub fn node(&self) -> &str {
        self.device.as_deref().unwrap()
    }

    fn attach(&mut self) {
        let image = self.directory.path().join("image");
        let device = sh("losetup", &["--find", "--show", image.to_str().unwrap()]);
        self.device = Some(device.clone());
        let name = device.trim_start_matches("/dev/");
        std::fs::write(format!("/sys/block/{name}/queue/max_sectors_kb"), "128").unwrap();
        std::fs::write(format!("/sys/block/{name}/queue/read_ahead_kb"), "128").unwrap();
        sh(
            "mount",
            &["-o", "noatime", &device, self.root().to_str().unwrap()],
        );
        self.mounted = true;
    }

    fn detach(&mut self) {
        if std::mem::take(&mut self.mounted) {
            sh("umount", &[self.root().to_str().unwrap()]);
        }
        if let Some(device) = self.device.take() {
            sh("losetup", &["--detach", &device]);
        }
    }

    /// Forgets everything that was cached.
    pub fn cool(&mut self) {
        self.detach();
        self.attach();
    }

    /// Reads that the device completed since it was attached.
    pub fn reads(&self) -> u64 {
        let stat = format!("/sys/block/{}/stat", self.node().trim_start_matches("/dev/"));
        let text = std::fs::read_to_string(stat).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    }

    pub fn uuid(&self) -> [u8; 16] {
        let text = sh("blkid", &["-p", "-s", "UUID", "-o", "value", self.node()]).replace('-', "");
        let mut uuid = [0; 16];
        for (n, byte) in uuid.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * n..2 * n + 2], 16).unwrap();
        }
        uuid
    }

    pub fn planned(&self, class: DeviceClass, depth: u32) -> PlanDevice {
        PlanDevice {
            mount_point: self.root().as_path().into(),
            uuid: self.uuid(),
            cost: Cost {
                class,
                bandwidth: 1e9,
                latency: 1e-4,
                depth,
            },
            request_limit: 128 << 10,
            hold: false,
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg(self.root()).status();
        }
        if let Some(device) = &self.device {
            let _ = Command::new("losetup").args(["--detach", device]).status();
        }
    }
}

/// A plan for files of one or more devices.
pub fn draft(devices: Vec<PlanDevice>) -> PlanDraft {
    PlanDraft {
        key: Key::new("test").unwrap(),
        page_size: PAGE as u32,
        created_unix_ns: 0,
        budget: 1 << 30,
        cut: 0,
        stages: vec!["start".into()],
        devices,
        files: Vec::new(),
        requests: Vec::new(),
    }
}

/// What the plan says of a file that is there.
pub fn entry(path: &Path) -> PlanFileEntry {
    let found = std::fs::symlink_metadata(path).unwrap();
    PlanFileEntry {
        path: path.into(),
        device: 0,
        inode: found.ino(),
        generation: 0,
        size: found.len(),
        mtime_ns: found.mtime() * 1_000_000_000 + found.mtime_nsec(),
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
        kind,
        stage: 0,
        device: 0,
        file,
        offset,
        length,
        bridged: 0,
        deadline_us: 0,
    });
    draft.cut = draft.requests.len() as u32;
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
    Replay::start(PlanFile(draft.to_bytes().unwrap()), options()).unwrap()
}

/// Resident pages of a file, as ranges (start, end).
pub fn resident(path: &Path) -> Vec<(u64, u64)> {
    let file = std::fs::File::open(path).unwrap();
    let length = file.metadata().unwrap().len();
    let ranges = headstart_system::residency::resident(&file, 0, length).unwrap();
    ranges.into_iter().map(|r| (r.start, r.end)).collect()
}
