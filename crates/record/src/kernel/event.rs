//! What back-ends report: the common language between them and the [builder](crate::trace::builder).
//!
//! Times are nanoseconds of CLOCK_MONOTONIC. Process ids are thread group ids in the pid namespace that the
//! recorder's /proc shows.

use headstart_model::PageRange;
use headstart_model::activity::{RequestKind, ThreadState};
use headstart_model::trace::{LookupKind, UseKind};

/// A device number as the super block has it (`s_dev`), which is what /proc/self/mountinfo shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Dev {
    pub major: u32,
    pub minor: u32,
}

impl Dev {
    /// From the kernel's own encoding: 12 bits of major number above 20 bits of minor number.
    pub(crate) fn from_kernel(dev: u32) -> Dev {
        Dev {
            major: dev >> 20,
            minor: dev & 0xf_ffff,
        }
    }
}

/// Where something is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Location {
    /// Absolute path from the root of the file system, whatever part of it is mounted.
    Within(Vec<u8>),
    /// Absolute path as the recorder sees it.
    Absolute(Vec<u8>),
    /// Could not be found.
    Unknown,
}

/// Where something is, and on which file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub dev: Dev,
    pub location: Location,
    /// The mount it was reached through, as mountinfo numbers it, where that is known.
    pub mount: Option<u32>,
}

/// One thing a back-end saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    File(FileSeen),
    Use(UseSeen),
    Fork(Fork),
    Exec(Exec),
    Exit { time_ns: u64, pid: u32 },
    Lookup(LookupSeen),
    Metadata(MetadataSeen),
    Ran(RanSeen),
    Request(RequestSeen),
}

/// A file at first sight. It comes before the first event that has its `id`; a file may be seen anew under
/// another id (its inode was evicted meanwhile), never another file under the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileSeen {
    /// The back-end's name for it.
    pub id: u64,
    pub place: Place,
    pub inode: u64,
    pub generation: u32,
    pub size: u64,
    /// Who used it first, as of a [use](UseSeen::user).
    pub user: u8,
    /// Whether it has several names and the back-end does not know by which it is used.
    pub by_some_name: bool,
    pub mtime_ns: i64,
    pub mode: u32,
}

/// Pages `start..=last` of a file were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UseSeen {
    pub time_ns: u64,
    pub pid: u32,
    pub file: u64,
    pub start: u64,
    pub last: u64,
    /// Size of the file at that moment, bytes: pages beyond its end are no use.
    pub size: u64,
    /// Whose process it was where everybody is recorded: 0 for root, and where that is not known; else one of
    /// 255 groups of users.
    pub user: u8,
    pub kind: UseKind,
    /// Of pages mapped around a fault, the one the fault was for, where that is known.
    pub touched: Option<u64>,
    /// Of a page touched, the part of the file that was mapped there in one piece, where that is known.
    pub mapped: Option<PageRange>,
}

/// A process began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fork {
    pub time_ns: u64,
    pub parent: u32,
    pub pid: u32,
}

/// A process runs another executable from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exec {
    pub time_ns: u64,
    pub pid: u32,
    /// The executable.
    pub executable: Place,
}

/// A process looked a path up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LookupSeen {
    pub time_ns: u64,
    pub pid: u32,
    /// As the process named it; empty if `base` alone is meant.
    pub path: Vec<u8>,
    /// What a relative `path` is relative to.
    pub base: Option<Place>,
    /// The root of the process, where that is not the recorder's.
    pub root: Option<Place>,
    pub kind: LookupKind,
    pub found: bool,
    /// Whose process it was; 0 where that is not known.
    pub uid: u32,
}

/// Pages of a block device entered the cache: metadata that had to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetadataSeen {
    pub time_ns: u64,
    pub dev: Dev,
    pub start: u64,
    pub pages: u32,
}

/// A thread ran, then waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RanSeen {
    /// When the wait ended.
    pub time_ns: u64,
    /// Its process.
    pub pid: u32,
    /// Its own number in the same pid namespace.
    pub thread: u32,
    /// When it began to run.
    pub from_ns: u64,
    /// When it began to wait.
    pub until_ns: u64,
    /// What it did then; `None` if that was not known, or if it waited for a processor.
    pub then: Option<ThreadState>,
}

/// A request to a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestSeen {
    pub issued_ns: u64,
    /// When it was answered, if it was.
    pub completed_ns: Option<u64>,
    pub dev: Dev,
    pub sector: u64,
    pub sectors: u32,
    pub kind: RequestKind,
    pub metadata: bool,
    pub ahead: bool,
    /// The recorded process that asked, where that is known.
    pub pid: Option<u32>,
}
