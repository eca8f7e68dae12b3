//! A request in the making, the files of a plan, and what is known of an entry.

use headstart_model::limits;
use headstart_model::machine::{FileFacts, Machine, PathKind};
use headstart_model::plan::{PlanFileEntry, Request, RequestKind};
use headstart_model::profile::{Entry, WeightedRange};
use headstart_model::{FilePath, PageRange};
use std::collections::HashMap;

/// The request that takes a later one along: when that is needed, and where it lies.
pub(crate) type Lead = (u32, u64);

/// A metadata page that the file system had to read in some earlier start: by mount point, because device
/// numbers change.
pub type RecordedMetadata = (FilePath, PageRange);

/// A request with what its order depends on.
pub(crate) struct Ordered {
    pub(crate) request: Request,
    /// Where it reads on the device, bytes; `None` if that is unknown.
    pub(crate) physical: Option<u64>,
    /// Number of directories above it: a path is looked up after them.
    pub(crate) level: usize,
    /// When it is issued.
    pub(crate) turn: Turn,
    /// The pass of its device that it is read in, where the sweep is done in several.
    pub(crate) pass: u16,
    /// Of data that is asked for together with what lies beside it: when the first of all is needed, and
    /// where it lies.
    pub(crate) lead: Option<Lead>,
    /// Whether it is only for starts whose arguments name its file.
    pub(crate) is_named: bool,
    /// The share of starts that need it, 0 to 1: the largest of what it reads.
    pub(crate) weight: f32,
}

impl Ordered {
    /// Takes so many bytes from the beginning of a request for data, as a request of its own; nothing where
    /// there are none to be taken. On a disk a library is one request: where memory has no room for all of
    /// it, it has for a part.
    pub(crate) fn beginning(&mut self, bytes: u64) -> Option<Ordered> {
        let whole = &mut self.request;
        if whole.kind != RequestKind::Data || bytes == 0 || bytes >= whole.length {
            return None;
        }
        let part = Request {
            length: bytes,
            bridged: whole.bridged.min(bytes),
            ..*whole
        };
        whole.offset += bytes;
        whole.length -= bytes;
        whole.bridged -= part.bridged;
        let physical = self.physical;
        self.physical = physical.map(|at| at + bytes);
        Some(Ordered {
            request: part,
            physical,
            ..*self
        })
    }
}

/// What is issued in which part of a replay, one part after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// Metadata without which no data can be asked for.
    Metadata,
    /// Look-ups that read what no metadata block answers.
    LookUps,
    /// Data, and the metadata that only the start needs.
    Sweep,
    /// Look-ups that no data waits for: on one head they find their metadata in memory by then, elsewhere
    /// they go on beside the data.
    After,
}

/// What the texts of a plan besides its files' paths may take at most: names of stages and mount points.
const OTHER_TEXT: usize = limits::STAGES * limits::STAGE_NAME + limits::DEVICES * limits::PATH;

/// The files of a plan, each once.
#[derive(Default)]
pub(crate) struct Files {
    pub(crate) entries: Vec<PlanFileEntry>,
    pub(crate) index: HashMap<FilePath, u32>,
    pub(crate) bytes: usize,
}

impl Files {
    /// The index of a file; `None` if a plan cannot take one more.
    pub(crate) fn index(&mut self, facts: &FileFacts, device: u32) -> Option<u32> {
        if let Some(index) = self.index.get(&facts.path) {
            return Some(*index);
        }
        let bytes = self.bytes + facts.path.as_bytes().len();
        let fits = self.entries.len() < limits::PLAN_FILES && bytes <= limits::TEXT - OTHER_TEXT;
        if !fits || (device as usize) >= limits::DEVICES {
            return None;
        }
        self.bytes = bytes;
        let index = self.entries.len() as u32;
        self.entries.push(PlanFileEntry {
            path: facts.path.clone(),
            device: device as u16,
            inode: facts.inode,
            generation: facts.generation,
            size: facts.size,
            mtime_ns: facts.mtime_ns,
        });
        self.index.insert(facts.path.clone(), index);
        Some(index)
    }
}

/// The facts of an entry: at its path, or through an overlay where the path leads nowhere.
pub(crate) fn facts_of<'a>(
    by_path: &HashMap<&FilePath, &'a FileFacts>,
    entry: &Entry,
) -> Option<&'a FileFacts> {
    let is_there = |f: &&&FileFacts| !matches!(f.found, PathKind::Missing | PathKind::NotLocal);
    let direct = by_path.get(&entry.path);
    let through = entry.overlay.as_ref().and_then(|o| by_path.get(o));
    direct
        .filter(is_there)
        .or(through.filter(is_there))
        .or(direct)
        .copied()
}

pub(crate) fn by_path(machine: &Machine) -> HashMap<&FilePath, &FileFacts> {
    machine.files.iter().map(|f| (&f.path, f)).collect()
}

pub(crate) fn level(path: &FilePath) -> usize {
    path.as_bytes().iter().filter(|b| **b == b'/').count()
}

/// The stage of a request, by that of the profile: the last a plan can have stands for those beyond it.
pub(crate) fn plan_stage(stage: u16) -> u8 {
    u8::try_from(stage).unwrap_or(u8::MAX)
}

pub(crate) fn deadline_us(first_use_ns: u64) -> u32 {
    u32::try_from(first_use_ns / 1000).unwrap_or(u32::MAX)
}

/// The ranges of an entry that a run of pages lies in, and the run as they count.
fn ranges_of(entry: &Entry, pages: PageRange, from_end: Option<u64>) -> (&[WeightedRange], PageRange) {
    match from_end {
        None => (&entry.ranges, pages),
        Some(end) => (
            entry.tail.as_ref().unwrap_or(&entry.ranges),
            headstart_model::profile::from_end(pages, end),
        ),
    }
}

/// The first use and the stage of a run of pages; of pages that are meant from the end, where the file has
/// `from_end` pages.
pub(crate) fn first_use(entry: &Entry, pages: PageRange, from_end: Option<u64>) -> (u64, u16) {
    let (ranges, pages) = ranges_of(entry, pages, from_end);
    let first = ranges.partition_point(|r| r.range().end <= pages.start);
    ranges[first..]
        .iter()
        .take_while(|r| r.start < pages.end)
        .map(|r| (r.first_use_ns, r.stage))
        .min()
        .unwrap_or((entry.first_use_ns, entry.stage))
}

/// The largest weight in a run of pages; of pages that are meant from the end as in [`first_use`].
pub(crate) fn weight(entry: &Entry, pages: PageRange, from_end: Option<u64>) -> f32 {
    let (ranges, pages) = ranges_of(entry, pages, from_end);
    let first = ranges.partition_point(|r| r.range().end <= pages.start);
    let within = ranges[first..].iter().take_while(|r| r.start < pages.end);
    within.map(|r| r.weight).reduce(f32::max).unwrap_or(entry.weight)
}

/// Bytes of a file that one request reads.
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Where it lies on the device, bytes.
    pub(crate) physical: Option<u64>,
    /// Of these, bytes of holes.
    pub(crate) bridged: u64,
}
