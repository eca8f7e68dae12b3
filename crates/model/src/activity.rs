//! What processors, block devices and memory did during a start: what a chart draws beside the uses.

use serde::{Deserialize, Serialize};

/// What processors, block devices and memory did during a start; recorded on request (`record --chart`).
///
/// All times are nanoseconds since the trace began, as those of [`crate::trace::Use`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// The block devices; requests refer to them by index.
    pub devices: Vec<BlockDevice>,
    /// What the block devices were asked, by anybody, ordered by [`BlockRequest::issued_ns`].
    pub requests: Vec<BlockRequest>,
    /// What threads did, ordered by [`Slice::from_ns`]. A moment that no slice of a thread covers is not
    /// known: it was spent asleep or in slices that were too short to be told.
    pub slices: Vec<Slice>,
    /// How busy the processors were, ordered by time.
    pub processors: Vec<BusySample>,
    /// What memory held, ordered by time.
    pub memory: Vec<MemorySample>,
    /// Events dropped, because the recorder could not keep up or the trace had no room. If there are any, the
    /// picture has holes.
    pub lost: u64,
}

/// A block device: a whole one, not a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// Its major number.
    pub major: u32,
    /// Its minor number.
    pub minor: u32,
    /// The kernel's name, such as `sda`; `major:minor` if it had gone when it was looked for.
    pub name: String,
    /// Its size in sectors of 512 bytes; 0 if it is not known.
    pub sectors: u64,
}

/// One request to a block device, as the driver got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRequest {
    /// When it was given to the driver.
    pub issued_ns: u64,
    /// When the device had answered; `None` if that was not seen.
    pub completed_ns: Option<u64>,
    /// Index into [`Activity::devices`].
    pub device: u32,
    /// First sector of 512 bytes, counted on the whole device.
    pub sector: u64,
    /// How many sectors of 512 bytes; 0 for a flush.
    pub sectors: u32,
    /// What was asked.
    pub kind: RequestKind,
    /// Whether the file system called it metadata (`REQ_META`).
    pub metadata: bool,
    /// Whether it is readahead (`REQ_RAHEAD`).
    pub ahead: bool,
    /// The process on whose behalf the request was given to the driver, an index into
    /// [`crate::Trace::processes`], if that was known. A request that waited in a scheduler may be given by
    /// another.
    pub process: Option<u32>,
}

/// What a block device is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RequestKind {
    /// To read.
    Read,
    /// To write.
    Write,
    /// To forget.
    Discard,
    /// To write its cache back.
    Flush,
    /// Something else.
    Other,
}

/// What a thread did for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// When it began.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// Index into [`crate::Trace::processes`].
    pub process: u32,
    /// Id of the thread, in the pid namespace of [`crate::trace::Process::pid`].
    pub thread: u32,
    /// What it did.
    pub state: ThreadState,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ThreadState {
    /// It has a processor.
    Running,
    /// It waits for a block device (the kernel's `in_iowait`).
    WaitingForDisk,
    /// It waits for something else.
    Sleeping,
}

/// How busy the processors were.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BusySample {
    /// When it was taken.
    pub time_ns: u64,
    /// Share of the time of all processors that was used since the sample before: 0 to 1.
    pub busy: f32,
}

/// What memory held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySample {
    /// When it was taken.
    pub time_ns: u64,
    /// Bytes that nobody uses.
    pub free: u64,
    /// Bytes of the page cache.
    pub page_cache: u64,
    /// Bytes that are to be written back.
    pub dirty: u64,
}
