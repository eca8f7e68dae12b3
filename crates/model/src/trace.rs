//! One start, as it happened.

pub use crate::uses::{Use, UseKind, WindowUse};
use crate::{Activity, FilePath, PageRange, PageSet, limits};
use serde::{Deserialize, Serialize};

/// One start, as it happened: who ran, which pages of which files they used first and when, which paths they
/// looked up, and which metadata blocks the file system had to read. Never file contents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// How, where and of what the trace was taken.
    pub meta: Meta,
    /// How the recording ended.
    pub end: End,
    /// What the recorder knows it did not see.
    pub lost: Lost,
    /// The processes seen; others refer to them by index.
    pub processes: Vec<Process>,
    /// The mounted file systems that the files are on; files refer to them by index.
    pub filesystems: Vec<Filesystem>,
    /// The files used; uses refer to them by index.
    pub files: Vec<File>,
    /// Where files were mapped and touched, ordered by file and page; may be of processes with different
    /// ones.
    pub mappings: Vec<Mapping>,
    /// First uses of page ranges, ordered by time; without those of [`Trace::windows`]. See
    /// [`Trace::all_uses`].
    pub uses: Vec<Use>,
    /// Of files that were used in too many places for [`Trace::uses`] the earlier first uses, ordered by
    /// time. Empty for nearly all starts.
    pub windows: Vec<WindowUse>,
    /// Paths looked up, ordered by time; each (path, kind, found) once.
    pub lookups: Vec<Lookup>,
    /// Metadata blocks that had to be read, ordered by time.
    pub metadata: Vec<MetadataMiss>,
    /// Stage marks, ordered by time.
    pub marks: Vec<Mark>,
    /// What processors, block devices and memory did; `None` unless that was recorded on request.
    pub activity: Option<Activity>,
    /// What a replay read ahead of the files used, ordered by [`Ahead::issued_ns`]; `None` where none ran, or
    /// nobody joined it with the trace.
    pub ahead: Option<Vec<Ahead>>,
}

/// How, where and of what a trace was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Wall clock at the start, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// The kernel's release, as `uname -r` has it.
    pub kernel: String,
    /// Bytes of a page.
    pub page_size: u32,
    /// What recorded.
    pub backend: Backend,
    /// What the page events mean.
    pub evidence: Evidence,
    /// Whose uses were recorded.
    pub scope: Scope,
    /// The command, with its arguments; empty for a boot.
    pub command: Vec<String>,
    /// Version of the recorder.
    pub recorder: String,
    /// Whether a replay ran beside the start.
    pub replayed: bool,
}

/// What recorded a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backend {
    /// BPF programs.
    Bpf,
    /// A tracefs instance.
    Tracefs,
}

/// What the page events of a trace mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Evidence {
    /// Pages asked for, from the kernel's own use events (6.12 and later).
    Uses,
    /// Pages asked for, from functions traced by fentry (5.10 to 6.11).
    Fentry,
    /// Pages that entered the cache, the kernel's readahead included: over-states use, and blind to resident
    /// pages.
    Adds,
}

/// Whose uses a trace holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// The command and its descendants.
    Tree,
    /// Everything but headstart itself.
    System,
}

/// How a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Why it ended.
    pub reason: EndReason,
    /// From the start to the end of the recording.
    pub elapsed_ns: u64,
    /// CPU time that its processes used until then; `None` where that is not known.
    pub cpu_ns: Option<u64>,
    /// Events that the recorder received from the kernel.
    pub events: u64,
    /// Time that its threads, added up, waited for block devices until then; `None` where that is not known.
    pub blocked_ns: Option<u64>,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndReason {
    /// The command ended, with this status as wait(2) gives it.
    Exit(i32),
    /// No new page and little CPU for a while.
    Quiet,
    /// The time limit was reached.
    Limit,
    /// The recorder was told to stop before the start had ended.
    Interrupted,
}

/// What the recorder knows it did not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Events dropped because a buffer was full, or because the trace had no room for what was used.
    pub events: u64,
    /// Files whose path could not be found while they existed.
    pub paths: u64,
    /// Look-ups and metadata misses left out because there were too many, what users other than root used
    /// beyond their share of a recording of everybody, and uses that were not seen, of fifty less than one.
    /// What a start needs is whole without them, or nearly.
    pub dropped: u64,
    /// Whether the recording began when the start had begun already.
    pub late: bool,
}

/// A process seen during the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its id (thread group) in the recorder's pid namespace.
    pub pid: u32,
    /// Index of its parent, if that was seen.
    pub parent: Option<u32>,
    /// When it was first seen.
    pub start_ns: u64,
    /// The executable of its last exec, or its parent's.
    pub executable: FilePath,
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystem {
    /// Major number of the super block's device.
    pub major: u32,
    /// Minor number of the super block's device.
    pub minor: u32,
    /// Type, such as `ext4`.
    pub fstype: String,
    /// Where it is mounted, as the recorder sees it.
    pub mount_point: FilePath,
    /// Whether headstart may learn from it: false for memory, network and pseudo file systems.
    pub local: bool,
}

/// Types of file systems that are written once, as on live media: files get their places when an image is
/// made.
pub const WRITTEN_ONCE: [&str; 4] = ["squashfs", "erofs", "iso9660", "udf"];

/// A file of which pages were used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Index into [`Trace::filesystems`]; `None` if its file system was mounted nowhere the recorder saw.
    pub filesystem: Option<u32>,
    /// Absolute path of the file's real location (below an overlay: in its layer, unless the recorder does
    /// not see that); relative to the file system's root where `filesystem` is `None`.
    pub path: FilePath,
    /// The path through an overlay, where there is one.
    pub overlay: Option<FilePath>,
    /// Inode number.
    pub inode: u64,
    /// Inode generation.
    pub generation: u32,
    /// Size when first seen, bytes.
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// What became of it.
    pub state: FileState,
}

/// What became of a file by the end of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileState {
    /// The path leads to the same inode, or did so when its file system was unmounted.
    Present,
    /// No path leads to it any more, or it never had one.
    Deleted,
    /// Its path now leads to another inode.
    Replaced,
    /// Its file system is not visible to the recorder, or not asked.
    Unreachable,
    /// It is there, and was not before the recording: what was read of it was written then, and read from no
    /// device.
    Made,
}

/// A part of a file that was mapped in one piece, of which a touch was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Index into [`Trace::files`].
    pub file: u32,
    /// Its pages; may reach beyond the end of the file.
    pub pages: PageRange,
}

/// A path somebody looked up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// When.
    pub time_ns: u64,
    /// Index into [`Trace::processes`].
    pub process: u32,
    /// Absolute path, as the process named it (symbolic links not followed), seen from the recorder's root.
    pub path: FilePath,
    /// What it was looked up for.
    pub kind: LookupKind,
    /// Whether it was there.
    pub found: bool,
}

/// What a path was looked up for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LookupKind {
    /// open, execve.
    Open,
    /// stat, access, and other calls that need no more than the name or the inode.
    Stat,
    /// readlink; also lstat, where a symbolic link is found. It is not followed.
    Link,
    /// Directory entries were read.
    List,
}

/// A metadata block that the file system had to read through the block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataMiss {
    /// When.
    pub time_ns: u64,
    /// Major number of the block device.
    pub major: u32,
    /// Minor number of the block device.
    pub minor: u32,
    /// First page of the block device's page cache.
    pub start: u64,
    /// Number of pages.
    pub pages: u32,
}

/// Pages of a file that a replay asked for in one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ahead {
    /// Index into [`Trace::files`].
    pub file: u32,
    /// First page.
    pub start: u64,
    /// Number of pages, at least 1.
    pub pages: u32,
    /// When it was issued; 0 also if that was before the trace began.
    pub issued_ns: u64,
    /// When its pages had arrived, not before it was issued.
    pub done_ns: u64,
}

/// Stages of a boot that more than one place knows.
pub mod stage {
    /// Whoever waited at the barrier was released. No stage of a plan: times of a boot count from here.
    pub const RELEASED: &str = "released";
    /// All that systemd was to start has been started.
    pub const UP: &str = "up";
    /// A user's session has begun.
    pub const SESSION: &str = "session";
}

/// A stage mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// When.
    pub time_ns: u64,
    /// The stage that begins here.
    pub stage: String,
}

impl Trace {
    /// The pages used of each file, in the order of [`Trace::files`].
    pub fn used_pages(&self) -> Vec<PageSet> {
        let mut sets: Vec<Vec<PageRange>> = vec![Vec::new(); self.files.len()];
        for used in self.told_uses(true) {
            if let Some(set) = sets.get_mut(used.file as usize) {
                set.push(PageRange::new(used.start, u64::from(used.pages)));
            }
        }
        sets.into_iter().map(PageSet::from_iter).collect()
    }

    /// First uses of page ranges, of each file in order of time.
    ///
    /// Those of [`Trace::windows`] are exact up to [`limits::RUNS`] runs. Beyond that each window is one use,
    /// from its first used page to the last: whoever joins uses needs memory for each.
    // Boxed, for many go through it: each would have a copy of the code.
    pub fn all_uses(&self) -> Box<dyn Iterator<Item = Use> + '_> {
        let runs: usize = self.windows.iter().map(WindowUse::runs).sum();
        self.told_uses(runs <= limits::RUNS)
    }

    fn told_uses(&self, exact: bool) -> Box<dyn Iterator<Item = Use> + '_> {
        let rows = self.windows.iter();
        let rows = rows.map(move |row| if exact { *row } else { row.spanned() });
        Box::new(rows.flat_map(WindowUse::uses).chain(self.uses.iter().copied()))
    }

    /// How many rows say what pages were used.
    pub fn use_rows(&self) -> usize {
        self.uses.len() + self.windows.len()
    }

    /// How many entries it keeps: uses, look-ups and metadata misses.
    pub fn kept(&self) -> usize {
        self.use_rows() + self.lookups.len() + self.metadata.len()
    }

    /// When the start began to run: at its first use or look-up, for it may have waited at a barrier before.
    /// In a boot some processes run meanwhile, so there it is no sooner than the release.
    pub fn began_ns(&self) -> u64 {
        let uses = self.uses.iter().map(|used| used.time_ns);
        let uses = uses.chain(self.windows.iter().map(|row| row.time_ns));
        let lookups = self.lookups.iter().map(|lookup| lookup.time_ns);
        let first_ns = uses.chain(lookups).min().unwrap_or(0);
        first_ns.max(self.mark_ns(stage::RELEASED).unwrap_or(0))
    }

    /// When this stage began.
    fn mark_ns(&self, stage: &str) -> Option<u64> {
        Some(self.marks.iter().find(|mark| mark.stage == stage)?.time_ns)
    }

    /// When the start was over: what a recording waited for quiet is no part of it.
    pub fn over_ns(&self) -> u64 {
        let last_use = self.uses.last().map_or(0, |used| used.time_ns);
        let last_use = self
            .windows
            .last()
            .map_or(last_use, |row| row.time_ns.max(last_use));
        let last_lookup = self.lookups.last().map_or(0, |lookup| lookup.time_ns);
        match self.end.reason {
            EndReason::Exit(_) | EndReason::Interrupted => self.end.elapsed_ns,
            EndReason::Quiet | EndReason::Limit => last_use.max(last_lookup),
        }
    }

    /// When the boot was up, and a session had begun where the trace has one, in the trace's time. A boot is
    /// recorded until it is quiet, some seconds longer. `None` for programs, and where no stage says it.
    pub fn up_ns(&self) -> Option<u64> {
        let up_ns = self
            .mark_ns(stage::UP)
            .filter(|_| self.meta.scope == Scope::System)?;
        let session_ns = self.mark_ns(stage::SESSION).unwrap_or(0);
        Some(up_ns.max(session_ns).min(self.end.elapsed_ns))
    }

    /// Leaves out what was used and looked up from this time on, nanoseconds from the start of the recording.
    pub fn cut_at(&mut self, time_ns: u64) {
        // All are in order of time.
        let uses = self.uses.partition_point(|one| one.time_ns < time_ns);
        let windows = self.windows.partition_point(|one| one.time_ns < time_ns);
        let lookups = self.lookups.partition_point(|one| one.time_ns < time_ns);
        self.uses.truncate(uses);
        self.windows.truncate(windows);
        self.lookups.truncate(lookups);
    }

    /// How much of [`ROWS`](crate::limits::ROWS) it takes without its activity: twice its processes, files,
    /// uses, look-ups and metadata misses.
    pub fn rows(&self) -> usize {
        2 * (self.processes.len() + self.files.len() + self.kept())
    }

    /// Why nothing may be learned from this trace, or `None` for a whole one.
    pub fn unfit(&self) -> Option<String> {
        if self.lost.events > 0 {
            return Some(format!(
                "{} events were lost: the recorder could not keep up, or a trace takes no more",
                self.lost.events
            ));
        }
        if self.lost.late {
            return Some("the recording began when the start had begun already".into());
        }
        match self.end.reason {
            EndReason::Interrupted => Some("the recording was stopped before the start had ended".into()),
            _ => None,
        }
    }
}
