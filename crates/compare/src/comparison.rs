//! What a comparison tells: the document of `headstart compare --json`.

use headstart_model::FilePath;
use headstart_model::blocks::{BlockRead, Kind};
use serde::Serialize;

/// What devices read, whose it is, and whether the plan had it. Bytes throughout; what a device read twice
/// counts twice.
#[derive(Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Whose plan it was compared with; null if there is none.
    pub key: Option<String>,
    /// All reads of the devices that file systems of the trace are on, during the start.
    pub read: Count,
    /// Of these, the bytes of which the owner is known.
    pub explained: u64,
    /// Their share, 0 to 1; 1 if nothing was read.
    pub explained_share: f64,
    /// Whether the plan had them; null without a plan.
    pub had: Option<Split>,
    /// Reads of these devices before or after the start, which are not counted above.
    pub outside: Count,
    /// Reads of other devices, which are not counted above.
    pub elsewhere: Count,
    /// Events lost: if there are any, not all reads are here.
    pub lost: u64,
    /// By kind, what was read most first.
    pub kinds: Vec<KindTotal>,
    /// By file, what was read most first.
    pub files: Vec<FileTotal>,
    /// By file system.
    pub parts: Vec<PartTotal>,
    /// By whole device.
    pub devices: Vec<DeviceTotal>,
    /// Why bytes are not explained, the most first.
    pub unexplained: Vec<Unexplained>,
    /// Every piece of every read, in the order of the reads.
    pub blocks: Vec<Block>,
}

/// How much was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Count {
    pub(crate) fn add(&mut self, read: &BlockRead) {
        self.requests += 1;
        self.bytes += read.range.length;
    }
}

/// Whether a plan had what was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Had {
    /// It has it, and a replay read it before the start asked, or would have.
    Found,
    /// It has it, but the start was first.
    Late,
    /// It does not have it.
    Missing,
    /// Metadata that a plan does not name block by block, of a file system that the plan looks paths up on.
    ByLookup,
}

/// Bytes by whether a plan had them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Split {
    /// See [`Had::Found`].
    pub found: u64,
    /// See [`Had::Late`].
    pub late: u64,
    /// See [`Had::Missing`].
    pub missing: u64,
    /// See [`Had::ByLookup`].
    pub by_lookup: u64,
}

impl Split {
    pub(crate) fn add(&mut self, had: Had, bytes: u64) {
        *match had {
            Had::Found => &mut self.found,
            Had::Late => &mut self.late,
            Had::Missing => &mut self.missing,
            Had::ByLookup => &mut self.by_lookup,
        } += bytes;
    }
}

/// What was read of a kind.
#[derive(Debug, PartialEq, Serialize)]
pub struct KindTotal {
    /// The kind.
    pub kind: Kind,
    /// Bytes.
    pub bytes: u64,
    /// Whether the plan had them.
    #[serde(flatten)]
    pub had: Split,
}

/// What was read for a file.
#[derive(Debug, PartialEq, Serialize)]
pub struct FileTotal {
    /// Its path; null if it was not found.
    pub path: Option<FilePath>,
    /// Inode number.
    pub inode: u64,
    /// Where its file system is mounted.
    pub mount_point: FilePath,
    /// Bytes of data.
    pub data: u64,
    /// Bytes of metadata that is its own.
    pub metadata: u64,
    /// Whether the plan had them.
    #[serde(flatten)]
    pub had: Split,
}

/// What was read of a file system.
#[derive(Debug, PartialEq, Serialize)]
pub struct PartTotal {
    /// Where it is mounted.
    pub mount_point: FilePath,
    /// Its type.
    pub fstype: String,
    /// The kernel's name of its device.
    pub device: String,
    /// Bytes read.
    pub bytes: u64,
    /// Of these, explained.
    pub explained: u64,
    /// Why not everything was looked at; null if everything was.
    pub unfinished: Option<String>,
}

/// What was read of a whole device.
#[derive(Debug, PartialEq, Serialize)]
pub struct DeviceTotal {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Reads.
    #[serde(flatten)]
    pub read: Count,
    /// Bytes explained.
    pub explained: u64,
}

/// Why bytes are not explained.
#[derive(Debug, PartialEq, Serialize)]
pub struct Unexplained {
    /// Why.
    pub why: String,
    /// Bytes.
    pub bytes: u64,
}

/// A piece of a read that is one's and nobody else's.
#[derive(Debug, PartialEq, Serialize)]
pub struct Block {
    /// When it was given to the driver, nanoseconds since the start; null if that is not known.
    pub time_ns: Option<i64>,
    /// Major number of the whole device.
    pub major: u32,
    /// Minor number of the whole device.
    pub minor: u32,
    /// First sector of 512 bytes, of the whole device.
    pub sector: u64,
    /// Bytes.
    pub bytes: u64,
    /// What it is used for; null if that is not known.
    pub kind: Option<Kind>,
    /// Index into [`Comparison::files`]; null if it is no file's alone.
    pub file: Option<usize>,
    /// For data, the offset in the file.
    pub offset: Option<u64>,
    /// Whether the plan had it; null without a plan, or if it is not known what it is.
    pub had: Option<Had>,
}
