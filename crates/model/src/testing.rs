//! Small nouns for the tests of all crates, of which a test changes what it is about. Behind the feature
//! `testing`.

use crate::activity::{BlockDevice, BlockRequest, BusySample, MemorySample, RequestKind, Slice, ThreadState};
use crate::format::FormatError;
use crate::machine::{Cost, Device, DeviceClass, FileFacts, Machine};
use crate::plan::{PlanDevice, PlanDraft, PlanFile, PlanFileEntry, Request};
use crate::profile::{Entry, Need, Policy, Version, WeightedRange};
use crate::trace::{
    Backend, End, EndReason, Evidence, File, FileState, Filesystem, Lookup, LookupKind, Lost, Meta, Process,
    Scope, Use, UseKind,
};
use crate::{Activity, FilePath, Key, Profile, ProfileSet, Trace};
use std::io::Write;

/// Whether the machine has what a test needs; `what` completes "this test needs".
///
/// # Panics
///
/// If it has not: a test does not pass undone. With `HEADSTART_TESTS_SKIP` in the environment the test is
/// left out instead, and standard error names it.
#[track_caller]
pub fn needs(what: &str, there: bool) -> bool {
    assert!(
        there || std::env::var_os("HEADSTART_TESTS_SKIP").is_some(),
        "this test needs {what}; HEADSTART_TESTS_SKIP=1 leaves out what cannot be tested here"
    );
    if !there {
        let test = std::thread::current();
        let line = format!("left out: {} needs {what}\n", test.name().unwrap_or("a test"));
        // Written, not printed: the harness hides what a test prints that passes.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    there
}

/// A disk with one head: 100 MB/s, 5 ms.
pub const DISK: Cost = Cost {
    class: DeviceClass::Disk,
    bandwidth: 100e6,
    latency: 5e-3,
    depth: 1,
};

/// A solid-state device: 1 GB/s, 100 us, 8 requests at once.
pub const FLASH: Cost = Cost {
    class: DeviceClass::Flash,
    bandwidth: 1e9,
    latency: 1e-4,
    depth: 8,
};

/// A volume behind a network: 125 MB/s, 1 ms, 16 requests at once.
pub const NETWORK: Cost = Cost {
    class: DeviceClass::Network,
    bandwidth: 125e6,
    latency: 1e-3,
    depth: 16,
};

/// The version that files have here: 1 MiB.
pub const VERSION: Version = Version {
    size: 1 << 20,
    mtime_ns: 5,
    generation: 1,
};

/// A key.
///
/// # Panics
/// If the text is none.
pub fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

/// Pages with a weight, needed at once in the first stage.
pub fn range(start: u64, pages: u32, weight: f32) -> WeightedRange {
    WeightedRange {
        start,
        pages,
        weight,
        first_use_ns: 0,
        stage: 0,
    }
}

/// A file that every start opens, of which it needs no page.
pub fn entry(path: &str) -> Entry {
    Entry {
        path: path.into(),
        overlay: None,
        need: Need::Open,
        weight: 1.0,
        first_use_ns: 0,
        stage: 0,
        version: Some(VERSION),
        ranges: Vec::new(),
        tail: None,
        touches: None,
    }
}

/// What the key `k` needs, learned from three runs, in pages of 4 KiB.
pub fn profile(entries: Vec<Entry>) -> Profile {
    Profile {
        runs: 3,
        mass: 2.0,
        entries,
        ..Profile::new(key("k"), 4096, Policy::Decay)
    }
}

/// A file of a plan, of [`VERSION`], on the first device.
pub fn planned(path: &str) -> PlanFileEntry {
    PlanFileEntry {
        path: path.into(),
        device: 0,
        inode: 12,
        generation: VERSION.generation,
        size: VERSION.size,
        mtime_ns: VERSION.mtime_ns,
    }
}

/// A plan for the key `k` on one device at `/`, in pages of 4 KiB; all requests fit the budget.
pub fn draft(cost: Cost, files: Vec<PlanFileEntry>, requests: Vec<Request>) -> PlanDraft {
    PlanDraft {
        budget: u64::MAX,
        cut: requests.len() as u32,
        devices: vec![PlanDevice::new("/".into(), cost)],
        files,
        requests,
        ..PlanDraft::new(key("k"), 4096)
    }
}

/// The file of a plan.
///
/// # Panics
/// If a reader would refuse it.
pub fn plan_file(draft: &PlanDraft) -> PlanFile {
    PlanFile::new(draft.to_bytes().expect("a plan"))
}

/// A whole trace of one process, with evidence of uses, on one file system at `/`, in pages of 4 KiB, in
/// which nothing happens for a second.
pub fn trace() -> Trace {
    Trace {
        meta: Meta {
            started_unix_ns: 1,
            kernel: "6.18".into(),
            page_size: 4096,
            backend: Backend::Bpf,
            evidence: Evidence::Uses,
            scope: Scope::Tree,
            command: vec!["true".into()],
            recorder: "0".into(),
            replayed: false,
        },
        end: End {
            reason: EndReason::Exit(0),
            elapsed_ns: 1_000_000_000,
            cpu_ns: None,
            events: 0,
            blocked_ns: None,
        },
        lost: Lost::default(),
        processes: vec![Process {
            pid: 7,
            parent: None,
            start_ns: 0,
            executable: "/bin/true".into(),
        }],
        filesystems: vec![Filesystem {
            major: 8,
            minor: 1,
            fstype: "ext4".into(),
            mount_point: "/".into(),
            local: true,
        }],
        files: Vec::new(),
        mappings: Vec::new(),
        uses: Vec::new(),
        windows: Vec::new(),
        lookups: Vec::new(),
        metadata: Vec::new(),
        marks: Vec::new(),
        activity: None,
        ahead: None,
    }
}

/// One row of each kind, of a disk of 1 GiB and the process of [`trace`].
pub fn activity() -> Activity {
    Activity {
        devices: vec![BlockDevice {
            major: 8,
            minor: 0,
            name: "sda".into(),
            sectors: 1 << 21,
        }],
        requests: vec![BlockRequest {
            issued_ns: 3_000_000,
            completed_ns: Some(8_000_000),
            device: 0,
            sector: 2048,
            sectors: 32,
            kind: RequestKind::Read,
            metadata: false,
            ahead: true,
            process: Some(0),
        }],
        slices: vec![
            slice(1, 3, ThreadState::Running),
            slice(3, 8, ThreadState::WaitingForDisk),
        ],
        processors: vec![BusySample {
            time_ns: 100_000_000,
            busy: 0.25,
        }],
        memory: vec![MemorySample {
            time_ns: 100_000_000,
            free: 1 << 30,
            page_cache: 1 << 29,
            dirty: 4096,
        }],
        lost: 0,
    }
}

/// What the first thread of the process of [`trace`] did between two milliseconds.
pub fn slice(from_ms: u64, to_ms: u64, state: ThreadState) -> Slice {
    Slice {
        from_ns: from_ms * 1_000_000,
        to_ns: to_ms * 1_000_000,
        process: 0,
        thread: 7,
        state,
    }
}

/// A file of a trace, of [`VERSION`], on its file system.
pub fn file(path: &str) -> File {
    File {
        filesystem: Some(0),
        path: path.into(),
        overlay: None,
        inode: 12,
        generation: VERSION.generation,
        size: VERSION.size,
        mtime_ns: VERSION.mtime_ns,
        mode: 0o100_644,
        state: FileState::Present,
    }
}

/// Pages of a file of a trace, read after so many milliseconds.
pub fn used(ms: u64, file: u32, start: u64, pages: u32) -> Use {
    Use {
        time_ns: ms * 1_000_000,
        process: 0,
        file,
        start,
        pages,
        kind: UseKind::Read,
    }
}

/// A path found by stat after so many milliseconds.
pub fn lookup(ms: u64, path: &str) -> Lookup {
    Lookup {
        time_ns: ms * 1_000_000,
        process: 0,
        path: FilePath::from(path),
        kind: LookupKind::Stat,
        found: true,
    }
}

/// What has a file format, written without the checks of its writer: as somebody would who wants to deceive a
/// reader.
pub trait Forged {
    /// The file. Section lengths keep their limits all the same.
    fn forged(&self) -> Result<Vec<u8>, FormatError>;
}

impl Forged for Trace {
    fn forged(&self) -> Result<Vec<u8>, FormatError> {
        self.written()
    }
}

impl Forged for Profile {
    fn forged(&self) -> Result<Vec<u8>, FormatError> {
        self.written()
    }
}

impl Forged for ProfileSet {
    fn forged(&self) -> Result<Vec<u8>, FormatError> {
        self.written()
    }
}

/// Profiles in one file, whether they may be together or not.
pub fn profile_set(profiles: Vec<Profile>) -> ProfileSet {
    ProfileSet::unchecked(profiles)
}

impl Forged for PlanDraft {
    fn forged(&self) -> Result<Vec<u8>, FormatError> {
        self.written()
    }
}

/// A machine with 1 GiB of memory and pages of 4 KiB, whose files are on one device.
pub fn machine(cost: Cost, fstype: &str, files: Vec<FileFacts>) -> Machine {
    Machine {
        page_size: 4096,
        memory_available: 1 << 30,
        devices: vec![Device {
            major: 8,
            minor: 1,
            node: "/dev/sda1".into(),
            mount_point: "/".into(),
            fstype: fstype.into(),
            uuid: [1; 16],
            cost,
            first_touch: None,
            request_limit: 128 << 10,
            sequential_cutoff: None,
            metadata_by_block: true,
            compression: None,
        }],
        files,
    }
}
