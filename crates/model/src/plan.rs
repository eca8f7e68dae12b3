//! Where a key's needs are on this machine, now: requests in the order they are issued.
//!
//! A plan exists in two forms. [`PlanDraft`] owns its parts and is what `plan` makes. [`PlanFile`] holds the
//! bytes of a file and gives [`Plan`], which reads the records in place: a replay begins without decoding
//! anything.

use crate::machine::{Compression, Cost, DeviceClass, FirstTouch};
use crate::{FilePath, Key};
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A plan in the making.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanDraft {
    /// Whose start it serves.
    pub key: Key,
    /// Bytes of a page.
    pub page_size: u32,
    /// When it was made, nanoseconds since 1970.
    pub created_unix_ns: u64,
    /// Memory the replay may fill, bytes.
    pub budget: u64,
    /// Requests before this index fit the budget; those from it on are listed and not issued.
    pub cut: u32,
    /// Names of the stages, in order.
    pub stages: Vec<String>,
    /// Devices that requests refer to by index.
    pub devices: Vec<PlanDevice>,
    /// Files that requests refer to by index. What no request refers to is only asked for: whether the kernel
    /// remembers such paths tells whether metadata that is read by block is in memory.
    pub files: Vec<PlanFileEntry>,
    /// Requests in issue order.
    pub requests: Vec<Request>,
    /// What is fetched of lazily filled volumes before it is asked for, by device, each device at most once.
    pub fills: Vec<Fill>,
    /// Indices of the requests that are only for starts whose arguments name their files, ascending.
    pub named: Vec<u32>,
}

impl PlanDraft {
    /// One that asks for nothing yet.
    pub fn new(key: Key, page_size: u32) -> PlanDraft {
        PlanDraft {
            key,
            page_size,
            created_unix_ns: 0,
            budget: 0,
            cut: 0,
            stages: vec!["start".into()],
            devices: Vec::new(),
            files: Vec::new(),
            requests: Vec::new(),
            fills: Vec::new(),
            named: Vec::new(),
        }
    }
}

/// What is fetched of a lazily filled volume before it is asked for: one read through the block device for
/// each granule.
#[derive(Clone, Debug, PartialEq)]
pub struct Fill {
    /// Index of the device.
    pub device: u16,
    /// What a granule is, and what it costs.
    pub first_touch: FirstTouch,
    /// The granules, in the order of the requests that need them first.
    pub touches: Vec<Touch>,
}

/// A granule of a lazily filled volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Its first byte on the device.
    pub offset: u64,
    /// Index of the first request that needs it: none from there on is asked for before this granule is
    /// there.
    pub request: u32,
}

/// A device of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanDevice {
    /// Where its file system is mounted: the device itself is found from this path.
    pub mount_point: FilePath,
    /// The file system's UUID: metadata requests are issued only if it is still this one. Zeros where
    /// unknown.
    pub uuid: [u8; 16],
    /// What its reads cost.
    pub cost: Cost,
    /// The largest read one prefetch call serves, bytes.
    pub request_limit: u32,
    /// How many of this device's requests, in issue order, the start is held for: on one head, reads of the
    /// start amid the replay's cost more than waiting. 0 lets it go at once.
    pub hold: u32,
    /// How its files are compressed: no block is asked for in parts.
    pub compression: Option<Compression>,
}

impl PlanDevice {
    /// One of which no more is known, which holds nobody.
    pub fn new(mount_point: FilePath, cost: Cost) -> PlanDevice {
        PlanDevice {
            mount_point,
            uuid: [0; 16],
            cost,
            request_limit: 128 << 10,
            hold: 0,
            compression: None,
        }
    }
}

/// A file of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanFileEntry {
    /// Absolute path.
    pub path: FilePath,
    /// Index of its device.
    pub device: u16,
    /// Inode number.
    pub inode: u64,
    /// Inode generation, 0 where unknown.
    pub generation: u32,
    /// Size, bytes.
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What.
    pub kind: RequestKind,
    /// Index of the stage.
    pub stage: u8,
    /// Index of the device.
    pub device: u16,
    /// Index of the file; [`NO_FILE`] for metadata.
    pub file: u32,
    /// First byte, of the file or, for metadata, of the device.
    pub offset: u64,
    /// Bytes to read; 0 for requests that read none.
    pub length: u64,
    /// Of these, bytes nobody asked for, read because that is cheaper than to jump over them.
    pub bridged: u64,
    /// When the start needs it, microseconds since the start began.
    pub deadline_us: u32,
    /// Of data: whether the bytes are meant from the file's end. `offset` is where they are in a file of the
    /// planned size; they move by as many pages as the file has grown or shrunk since.
    pub from_end: bool,
    /// Of data: whether it lies right behind what the request for data before it reads on the same device.
    /// Both are asked for at once, for then they are one request to the device.
    pub follows: bool,
}

impl Request {
    /// The first so many bytes of a file, or none, at the beginning of the first stage, from the first
    /// device.
    pub fn new(kind: RequestKind, file: u32, length: u64) -> Request {
        Request {
            kind,
            stage: 0,
            device: 0,
            file,
            offset: 0,
            length,
            bridged: 0,
            deadline_us: 0,
            from_end: false,
            follows: false,
        }
    }
}

/// The most stages of a plan, for a request names its stage by a byte: of a profile with more, the last of
/// these stands for the rest.
pub const MAX_STAGES: usize = crate::limits::STAGES;

/// The file index of requests that are not about a file.
pub const NO_FILE: u32 = u32::MAX;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestKind {
    /// Read a range of the block device: the file system finds its metadata there.
    Metadata,
    /// Look the path up, whether it exists or not.
    Stat,
    /// Look the path up and read the directory's entries.
    List,
    /// Read a range of the file.
    Data,
}

impl RequestKind {
    /// All kinds, by their number in a file.
    pub const ALL: [RequestKind; 4] = [
        RequestKind::Metadata,
        RequestKind::Stat,
        RequestKind::List,
        RequestKind::Data,
    ];
}

/// The fixed part of a plan, as in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct HeadRecord {
    pub created_unix_ns: U64,
    pub budget: U64,
    pub page_size: U32,
    pub cut: U32,
}

/// A run of bytes of the text section.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct TextRecord {
    pub offset: U32,
    pub length: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct DeviceRecord {
    pub mount_point: TextRecord,
    pub uuid: [u8; 16],
    /// Bytes a second.
    pub bandwidth: U64,
    pub latency_ns: U64,
    pub depth: U32,
    pub request_limit: U32,
    pub hold: U32,
    pub class: u8,
    /// The power of two of [`Compression::block`]; 0 where files are not compressed by blocks.
    pub block_log: u8,
    /// [`Compression::rate`].
    pub rate: U16,
}

impl DeviceRecord {
    pub(crate) fn compression(&self) -> Option<Compression> {
        let block = 1u64.checked_shl(self.block_log.into())?;
        let rate = self.rate.get();
        Some(Compression {
            rate,
            ..Compression::of_blocks(block)?
        })
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FileRecord {
    pub path: TextRecord,
    pub inode: U64,
    pub size: U64,
    pub mtime_ns: I64,
    pub generation: U32,
    pub device: U16,
    pub zero: U16,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RequestRecord {
    pub kind: u8,
    pub stage: u8,
    pub device: U16,
    pub file: U32,
    pub offset: U64,
    pub length: U64,
    pub bridged: U64,
    pub deadline_us: U32,
    /// [`FROM_END`] and [`FOLLOWS`].
    pub marks: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FillRecord {
    pub device: U16,
    pub zero: U16,
    pub depth: U32,
    pub granule: U64,
    pub latency_ns: U64,
    /// How many of the touches are this device's: those behind the touches of the records before.
    pub touches: U64,
}

impl FillRecord {
    pub(crate) fn first_touch(&self) -> FirstTouch {
        FirstTouch {
            granule: self.granule.get(),
            latency: self.latency_ns.get() as f64 / 1e9,
            depth: self.depth.get(),
        }
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct TouchRecord {
    pub offset: U64,
    pub request: U32,
    pub zero: U32,
}

/// The bit of [`Request::from_end`] in a file.
pub(crate) const FROM_END: u32 = 1;
/// The bit of [`Request::follows`].
pub(crate) const FOLLOWS: u32 = 2;

/// The numbers of device classes in a file.
pub(crate) const CLASSES: [DeviceClass; 3] = [DeviceClass::Disk, DeviceClass::Flash, DeviceClass::Network];

/// The bytes of a plan file.
#[derive(Debug)]
pub struct PlanFile {
    pub(crate) bytes: Vec<u8>,
    /// Whether they have been found to be those of a plan: they do not change.
    pub(crate) checked: AtomicBool,
}

impl PlanDraft {
    /// The plan as it is kept.
    pub fn to_file(&self) -> Result<PlanFile, crate::format::FormatError> {
        self.to_bytes().map(PlanFile::new)
    }
}

impl PlanFile {
    /// Of these bytes, whatever they are.
    pub fn new(bytes: Vec<u8>) -> PlanFile {
        PlanFile {
            bytes,
            checked: AtomicBool::new(false),
        }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Clone for PlanFile {
    fn clone(&self) -> PlanFile {
        PlanFile {
            bytes: self.bytes.clone(),
            checked: AtomicBool::new(self.checked.load(Ordering::Relaxed)),
        }
    }
}

/// A plan read in place; every index and offset has been checked.
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    pub(crate) key: &'a str,
    pub(crate) head: &'a HeadRecord,
    pub(crate) stages: &'a [TextRecord],
    pub(crate) devices: &'a [DeviceRecord],
    pub(crate) files: &'a [FileRecord],
    pub(crate) requests: &'a [RequestRecord],
    pub(crate) fills: &'a [FillRecord],
    pub(crate) touches: &'a [TouchRecord],
    pub(crate) named: &'a [U32],
    pub(crate) text: &'a [u8],
}

impl<'a> Plan<'a> {
    fn text(&self, at: TextRecord) -> &'a [u8] {
        let start = at.offset.get() as usize;
        self.text
            .get(start..start.saturating_add(at.length.get() as usize))
            .unwrap_or_default()
    }

    /// Whose start it serves.
    pub fn key(&self) -> &'a str {
        self.key
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> u32 {
        self.head.page_size.get()
    }

    /// When it was made, nanoseconds since 1970.
    pub fn created_unix_ns(&self) -> u64 {
        self.head.created_unix_ns.get()
    }

    /// Memory the replay may fill, bytes.
    pub fn budget(&self) -> u64 {
        self.head.budget.get()
    }

    /// Requests before this index fit the budget.
    pub fn cut(&self) -> usize {
        self.head.cut.get() as usize
    }

    /// Names of the stages.
    pub fn stages(&self) -> impl ExactSizeIterator<Item = String> + 'a {
        let plan = *self;
        plan.stages
            .iter()
            .map(move |s| String::from_utf8_lossy(plan.text(*s)).into_owned())
    }

    /// Number of devices.
    pub fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// A device.
    pub fn device(&self, index: usize) -> Option<PlanDevice> {
        let record = self.devices.get(index)?;
        Some(PlanDevice {
            mount_point: FilePath::from(self.text(record.mount_point)),
            uuid: record.uuid,
            cost: Cost {
                class: *CLASSES.get(usize::from(record.class))?,
                bandwidth: record.bandwidth.get() as f64,
                latency: record.latency_ns.get() as f64 / 1e9,
                depth: record.depth.get(),
            },
            request_limit: record.request_limit.get(),
            hold: record.hold.get(),
            compression: record.compression(),
        })
    }

    /// Number of files.
    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// The path of a file, in place.
    pub fn path(&self, file: usize) -> Option<&'a [u8]> {
        Some(self.text(self.files.get(file)?.path))
    }

    /// A file.
    pub fn file(&self, index: usize) -> Option<PlanFileEntry> {
        let record = self.files.get(index)?;
        Some(PlanFileEntry {
            path: FilePath::from(self.text(record.path)),
            device: record.device.get(),
            inode: record.inode.get(),
            generation: record.generation.get(),
            size: record.size.get(),
            mtime_ns: record.mtime_ns.get(),
        })
    }

    /// Number of requests.
    pub fn request_count(&self) -> usize {
        self.requests.len()
    }

    /// The requests in issue order, those beyond the budget last.
    pub fn requests(&self) -> impl ExactSizeIterator<Item = Request> + Clone + 'a {
        self.requests.iter().map(|record| Request {
            kind: RequestKind::ALL[usize::from(record.kind) % RequestKind::ALL.len()],
            stage: record.stage,
            device: record.device.get(),
            file: record.file.get(),
            offset: record.offset.get(),
            length: record.length.get(),
            bridged: record.bridged.get(),
            deadline_us: record.deadline_us.get(),
            from_end: record.marks.get() & FROM_END != 0,
            follows: record.marks.get() & FOLLOWS != 0,
        })
    }

    /// What is fetched of lazily filled volumes.
    pub fn fills(&self) -> impl ExactSizeIterator<Item = Fill> + 'a {
        let mut left = self.touches;
        self.fills.iter().map(move |record| {
            let count = usize::try_from(record.touches.get()).unwrap_or(usize::MAX);
            let (own, others) = left.split_at(count.min(left.len()));
            left = others;
            Fill {
                device: record.device.get(),
                first_touch: record.first_touch(),
                touches: own
                    .iter()
                    .map(|touch| Touch {
                        offset: touch.offset.get(),
                        request: touch.request.get(),
                    })
                    .collect(),
            }
        })
    }

    /// The plan with parts of its own.
    pub fn to_draft(&self) -> Result<PlanDraft, crate::key::KeyError> {
        Ok(PlanDraft {
            key: Key::new(self.key)?,
            page_size: self.page_size(),
            created_unix_ns: self.created_unix_ns(),
            budget: self.budget(),
            cut: self.head.cut.get(),
            stages: self.stages().collect(),
            devices: (0..self.device_count()).filter_map(|i| self.device(i)).collect(),
            files: (0..self.file_count()).filter_map(|i| self.file(i)).collect(),
            requests: self.requests().collect(),
            fills: self.fills().collect(),
            named: self.named.iter().map(|index| index.get()).collect(),
        })
    }
}
