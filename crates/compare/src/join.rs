//! Reads × owners × plan → totals.

use crate::comparison::{
    Block, Comparison, Count, DeviceTotal, FileTotal, Had, KindTotal, PartTotal, Split, Unexplained,
};
use crate::plan::{Planned, split};
use crate::uses::Uses;
use headstart_model::blocks::{BlockRead, Kind, Owned, Part, SECTOR};
use headstart_model::machine::ByteRange;
use headstart_model::plan::Plan;
use headstart_model::{FilePath, Trace, limits};
use std::collections::{BTreeMap, HashMap};

/// What is compared.
pub struct Input<'a> {
    /// The start.
    pub trace: &'a Trace,
    /// What devices read.
    pub reads: &'a [BlockRead],
    /// Events that are not among them because they were lost.
    pub lost: u64,
    /// The parts of devices that are looked at, and whose their bytes are.
    pub parts: &'a [Part],
    /// Its plan, if there is one.
    pub plan: Option<Plan<'a>>,
}

/// What nobody owns.
const NOBODY: &str = "no file and no metadata is there now: it is free, or was when it was looked for";
const NO_FILESYSTEM: &str = "no mounted file system is there";

/// The bytes of a part that were read, counted from where its file system begins.
pub fn wanted(input_reads: &[BlockRead], part: &Part) -> Vec<ByteRange> {
    let reads = input_reads.iter().filter(|read| is_of(read, part));
    reads.filter_map(|read| inside(read.range, part)).collect()
}

fn is_of(read: &BlockRead, part: &Part) -> bool {
    let device = (read.major, read.minor);
    device == (part.major, part.minor) || device == part.own
}

/// What of a range of the whole device is in a part.
fn inside(range: ByteRange, part: &Part) -> Option<ByteRange> {
    let end = range.start.saturating_add(range.length);
    let limit = part.range.start.saturating_add(part.range.length);
    let (first, last) = (range.start.max(part.range.start), end.min(limit));
    (first < last).then(|| ByteRange {
        start: first - part.range.start,
        length: last - first,
    })
}

/// The reads are of more pieces than are told apart.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the reads are of more than {most} pieces: compare a shorter time", most = limits::PIECES)]
pub struct TooMany;

/// Joins them.
pub fn compare(input: &Input<'_>) -> Result<Comparison, TooMany> {
    let mut join = Join::new(input);
    for read in input.reads {
        join.read(read);
        if join.is_full() {
            return Err(TooMany);
        }
    }
    Ok(join.finish())
}

struct Join<'a> {
    input: &'a Input<'a>,
    planned: Option<Planned>,
    uses: Uses<'a>,
    result: Comparison,
    kinds: BTreeMap<Kind, KindTotal>,
    files: HashMap<(usize, u32), usize>,
    by_path: HashMap<FilePath, usize>,
    devices: BTreeMap<(u32, u32), DeviceTotal>,
    unexplained: BTreeMap<&'a str, u64>,
}

impl<'a> Join<'a> {
    fn new(input: &'a Input<'a>) -> Join<'a> {
        let parts = input.parts.iter().map(|part| PartTotal {
            mount_point: part.mount_point.clone(),
            fstype: part.fstype.clone(),
            device: part.name.clone(),
            bytes: 0,
            explained: 0,
            unfinished: part.unfinished.clone(),
        });
        Join {
            input,
            planned: input.plan.as_ref().map(Planned::from_plan),
            uses: Uses::from_trace(input.trace),
            result: Comparison {
                key: input.plan.as_ref().map(|plan| plan.key().to_string()),
                read: Count::default(),
                explained: 0,
                explained_share: 1.0,
                had: input.plan.as_ref().map(|_| Split::default()),
                outside: Count::default(),
                elsewhere: Count::default(),
                lost: input.lost,
                kinds: Vec::new(),
                files: Vec::new(),
                parts: parts.collect(),
                devices: Vec::new(),
                unexplained: Vec::new(),
                blocks: Vec::new(),
            },
            kinds: BTreeMap::new(),
            files: HashMap::new(),
            by_path: HashMap::new(),
            devices: BTreeMap::new(),
            unexplained: BTreeMap::new(),
        }
    }

    fn read(&mut self, read: &BlockRead) {
        let Some(part) = self.input.parts.iter().find(|part| is_of(read, part)) else {
            self.result.elsewhere.add(read);
            return;
        };
        let end = i64::try_from(self.input.trace.end.elapsed_ns).unwrap_or(i64::MAX);
        if read.issued_ns.is_some_and(|at| at < 0 || at > end) {
            self.result.outside.add(read);
            return;
        }
        self.result.read.add(read);
        let device = (part.major, part.minor);
        let total = self.devices.entry(device).or_insert(DeviceTotal {
            major: device.0,
            minor: device.1,
            read: Count::default(),
            explained: 0,
        });
        total.read.add(read);
        let read = &BlockRead {
            major: device.0,
            minor: device.1,
            ..*read
        };
        let end = read.range.start.saturating_add(read.range.length);
        let mut at = read.range.start;
        // Beyond all addresses.
        if end - at < read.range.length {
            self.unknown(read, end, read.range.length - (end - at), NO_FILESYSTEM);
        }
        // Parts of one device do not overlap; what lies between them is nobody's.
        while at < end {
            let rest = ByteRange {
                start: at,
                length: end - at,
            };
            let of_device = |part: &&Part| (part.major, part.minor) == device;
            let next = self
                .input
                .parts
                .iter()
                .enumerate()
                .filter(|(_, part)| of_device(part))
                .filter_map(|(index, part)| Some((part.range.start.max(at), index, inside(rest, part)?)))
                .min_by_key(|(start, index, _)| (*start, *index));
            let Some((start, index, local)) = next else {
                self.unknown(read, at, end - at, NO_FILESYSTEM);
                break;
            };
            if at < start {
                self.unknown(read, at, start - at, NO_FILESYSTEM);
            }
            self.part(read, index, local);
            at = start + local.length;
        }
    }

    fn is_full(&self) -> bool {
        self.result.blocks.len() > limits::PIECES
    }

    /// The bytes of a read that are in a part.
    fn part(&mut self, read: &BlockRead, index: usize, range: ByteRange) {
        let part = &self.input.parts[index];
        self.result.parts[index].bytes += range.length;
        let end = range.start + range.length;
        let why = part.unfinished.as_deref().unwrap_or(NOBODY);
        let from = part
            .owned
            .partition_point(|owned| owned.range.start + owned.range.length <= range.start);
        let mut at = range.start;
        for owned in part.owned[from..]
            .iter()
            .take_while(|owned| owned.range.start < end)
        {
            if at < owned.range.start {
                self.unknown(read, part.range.start + at, owned.range.start - at, why);
            }
            let first = at.max(owned.range.start);
            let last = end.min(owned.range.start + owned.range.length);
            self.owned(read, index, owned, first, last);
            at = last;
            if self.is_full() {
                return;
            }
        }
        if at < end {
            self.unknown(read, part.range.start + at, end - at, why);
        }
    }

    /// Bytes of a part with one owner: `first` to `last` from where the file system begins.
    fn owned(&mut self, read: &BlockRead, index: usize, owned: &Owned, first: u64, last: u64) {
        let part = &self.input.parts[index];
        let file = owned.file.map(|file| self.file(index, file));
        let mut pieces = Vec::new();
        match (&self.planned, owned.kind, owned.file) {
            (None, ..) => pieces.push((first, last, None)),
            (Some(planned), Kind::Data, Some(file)) => {
                let to_file = |at: u64| owned.offset + (at - owned.range.start);
                let ranges = planned.data(part, &part.files[file as usize]);
                let (start, end) = (to_file(first), to_file(last));
                split(ranges, start, end, |from, to, has| {
                    let late = || self.is_late(read, part.files[file as usize].path.as_ref(), from, to);
                    pieces.push((
                        first + (from - start),
                        first + (to - start),
                        Some(when_had(has, late)),
                    ));
                });
            }
            (Some(planned), ..) if part.fstype.starts_with("ext") => {
                split(planned.metadata(part), first, last, |from, to, has| {
                    let late = || self.is_late(read, None, 0, 0);
                    pieces.push((from, to, Some(when_had(has, late))));
                });
            }
            (Some(planned), ..) => {
                let had = match planned.has_lookups(part) {
                    true => Had::ByLookup,
                    false => Had::Missing,
                };
                pieces.push((first, last, Some(had)));
            }
        }
        for (from, to, had) in pieces {
            let bytes = to - from;
            self.result.explained += bytes;
            self.result.parts[index].explained += bytes;
            if let Some(device) = self.devices.get_mut(&(part.major, part.minor)) {
                device.explained += bytes;
            }
            let kind = self.kinds.entry(owned.kind).or_insert(KindTotal {
                kind: owned.kind,
                bytes: 0,
                had: Split::default(),
            });
            kind.bytes += bytes;
            if let Some(had) = had {
                kind.had.add(had, bytes);
                self.result.had.get_or_insert_with(Split::default).add(had, bytes);
            }
            if let Some(total) = file.and_then(|file| self.result.files.get_mut(file)) {
                match owned.kind {
                    Kind::Data => total.data += bytes,
                    _ => total.metadata += bytes,
                }
                if let Some(had) = had {
                    total.had.add(had, bytes);
                }
            }
            self.result.blocks.push(Block {
                time_ns: read.issued_ns,
                major: read.major,
                minor: read.minor,
                sector: (part.range.start + from) / SECTOR,
                bytes,
                kind: Some(owned.kind),
                file,
                offset: (owned.kind == Kind::Data).then(|| owned.offset + (from - owned.range.start)),
                had,
            });
        }
    }

    /// Whether the start was first where a replay ran: it asked itself, or had used the bytes before the
    /// device had read them.
    fn is_late(&self, read: &BlockRead, path: Option<&FilePath>, from: u64, to: u64) -> bool {
        if !self.input.trace.meta.replayed {
            return false;
        }
        let used = path.and_then(|path| self.uses.first_use_ns(path, from, to - from));
        let arrived = read.completed_ns.or(read.issued_ns);
        let before = matches!((used, arrived), (Some(used), Some(at)) if i64::try_from(used).is_ok_and(|used| used < at));
        read.by_start == Some(true) || before
    }

    fn file(&mut self, part: usize, file: u32) -> usize {
        if let Some(index) = self.files.get(&(part, file)) {
            return *index;
        }
        let owner = &self.input.parts[part].files[file as usize];
        let next = self.result.files.len();
        // On btrfs a file may be known twice: by its path, and by its subvolume.
        let index = match &owner.path {
            Some(path) => *self.by_path.entry(path.clone()).or_insert(next),
            None => next,
        };
        if index == next {
            self.result.files.push(FileTotal {
                path: owner.path.clone(),
                inode: owner.inode,
                mount_point: self.input.parts[part].mount_point.clone(),
                data: 0,
                metadata: 0,
                had: Split::default(),
            });
        }
        self.files.insert((part, file), index);
        index
    }

    /// Bytes of the whole device of which no owner is known.
    fn unknown(&mut self, read: &BlockRead, start: u64, bytes: u64, why: &'a str) {
        *self.unexplained.entry(why).or_insert(0) += bytes;
        self.result.blocks.push(Block {
            time_ns: read.issued_ns,
            major: read.major,
            minor: read.minor,
            sector: start / SECTOR,
            bytes,
            kind: None,
            file: None,
            offset: None,
            had: None,
        });
    }

    fn finish(self) -> Comparison {
        let mut result = self.result;
        if result.read.bytes > 0 {
            result.explained_share = result.explained as f64 / result.read.bytes as f64;
        }
        result.kinds = self.kinds.into_values().collect();
        result.kinds.sort_by_key(|total| std::cmp::Reverse(total.bytes));
        result.devices = self.devices.into_values().collect();
        let unexplained = self.unexplained.into_iter();
        result.unexplained = unexplained
            .map(|(why, bytes)| Unexplained {
                why: why.to_string(),
                bytes,
            })
            .collect();
        result
            .unexplained
            .sort_by_key(|part| std::cmp::Reverse(part.bytes));
        // The files by size, and the blocks' indices with them.
        let mut order: Vec<usize> = (0..result.files.len()).collect();
        order.sort_by_key(|index| {
            let file = &result.files[*index];
            std::cmp::Reverse(file.data + file.metadata)
        });
        let mut places = vec![0; order.len()];
        for (place, index) in order.iter().enumerate() {
            places[*index] = place;
        }
        let mut files: Vec<Option<FileTotal>> = result.files.into_iter().map(Some).collect();
        result.files = order.iter().filter_map(|index| files[*index].take()).collect();
        for block in &mut result.blocks {
            block.file = block.file.map(|file| places[file]);
        }
        result
    }
}

fn when_had(has: bool, late: impl FnOnce() -> bool) -> Had {
    match has {
        false => Had::Missing,
        true if late() => Had::Late,
        true => Had::Found,
    }
}

#[cfg(test)]
#[path = "join_tests.rs"]
mod tests;
