//! Metadata first: without it an open waits for reads one after the other. On ext2/3/4 its blocks are known
//! and read through the block device; elsewhere the paths are looked up, many at once.
//!
//! First comes only what no data can be asked for without ([`Turn::Metadata`]). What the start alone looks at
//! is read amid the data, in the order of need: of a tree of 50,000 files it takes half a second on a network
//! volume, and the program that will look at them comes first. Paths that it looks up are looked up beside
//! the data there ([`Turn::After`]).
//!
//! On one head each place is a jump, and directories lie in many. A replay opens files there by handle, for
//! which it needs their inodes and maps only; directories, and whatever else the start alone looks at, are
//! read in the data's sweep, as the head passes them.

use crate::deadlines::{Deadlines, First, NEVER};
use crate::parts::{AT_ONCE_US, part};
use crate::request::{Files, Ordered, RecordedMetadata, Turn, by_path, facts_of, level, plan_stage};
use headstart_model::machine::{Device, DeviceClass, FileFacts, Machine, PathKind};
use headstart_model::plan::{NO_FILE, Request, RequestKind};
use headstart_model::profile::{Entry, Need};
use headstart_model::sort::Sort;
use headstart_model::{FilePath, PageRange, PageSet, Profile};
use std::collections::{HashMap, HashSet};

/// Pages, and when the first of those who need them does.
type Needed = Vec<(PageRange, First)>;

/// Requests for metadata blocks. What data cannot be asked for without goes first, each device's in address
/// order.
pub(crate) fn requests(profile: &Profile, machine: &Machine, recorded: &[RecordedMetadata]) -> Vec<Ordered> {
    let page = u64::from(machine.page_size);
    let deadlines = Deadlines::new(profile);
    let data = data_files(profile, machine);
    let threshold = profile.policy.threshold();
    let is_read = |entry: &Entry| entry.all_ranges().any(|r| r.weight >= threshold);
    let read = Deadlines::of_those(profile, &is_read);
    // They are looked up before the data, too.
    let by_path = by_path(machine);
    let is_missing = |entry: &Entry| {
        by_path
            .get(&entry.path)
            .is_some_and(|f| f.found == PathKind::Missing)
    };
    let missing = Deadlines::of_those(profile, &is_missing);
    let is_walked = profile.key.user().is_some_and(|user| user != 0);
    let mut result = Vec::new();
    for (index, device) in machine
        .devices
        .iter()
        .enumerate()
        .filter(|(_, d)| d.metadata_by_block)
    {
        let one_head = device.cost.class == DeviceClass::Disk;
        let by_handle = by_handle(machine, index, &data);
        // Whether the replay waits for it: also for the directories on the way, where data is opened by path,
        // and where the replay checks whether the user whose start it is may go there.
        let goes_first = |facts: &FileFacts| match (by_handle, one_head) {
            (true, _) if is_walked => read.first(&facts.path).is_some(),
            (true, _) => data.contains(&facts.path),
            (false, true) => true,
            (false, false) if by_need(device) => false,
            (false, false) => read.first(&facts.path).or(missing.first(&facts.path)).is_some(),
        };
        // Ranges, never single pages: what was recorded may be large.
        let (mut first, mut rest) = (Needed::new(), Needed::new());
        for facts in machine.files.iter().filter(|f| f.device == Some(index as u32)) {
            let deadline = deadlines.first(&facts.path).unwrap_or_default();
            let needed = if goes_first(facts) { &mut first } else { &mut rest };
            for range in &facts.metadata {
                let pages = PageRange {
                    start: range.start / page,
                    end: (range.start + range.length).div_ceil(page),
                };
                needed.push((pages, deadline));
            }
        }
        first.retain(|(range, _)| is_sane(range, page));
        rest.retain(|(range, _)| is_sane(range, page));
        // Of what was read before it is not known who needed it, nor when: most of it is among the rest.
        let known: PageSet = first.iter().chain(&rest).map(|(range, _)| *range).collect();
        let recorded: PageSet = recorded
            .iter()
            .filter(|(mount, range)| *mount == device.mount_point && is_sane(range, page))
            .map(|(_, range)| *range)
            .collect();
        let unknown = recorded.difference(&known);
        let needed = if by_handle || by_need(device) {
            &mut rest
        } else {
            &mut first
        };
        needed.extend(unknown.ranges().iter().map(|range| (*range, First::default())));
        let holes = bridge_pages(device, page);
        let wanted: PageSet = first.iter().map(|(range, _)| *range).collect();
        let bridged = wanted.bridged(holes);
        for joined in joined(bridged.ranges(), &wanted, first) {
            result.push(ordered(&joined, Turn::Metadata, index, page));
        }
        let wanted: PageSet = rest.iter().map(|(range, _)| *range).collect();
        let wanted = wanted.difference(&bridged);
        let rest = if one_head {
            // Between these lies data of the same sweep: no hole is bridged, the head passes over it.
            joined(wanted.ranges(), &wanted, rest)
        } else {
            let parts = joined(&in_parts(&wanted, page), &wanted, rest);
            at_once(parts, holes, &bridged, device.cost.piece() / page)
        };
        for joined in rest {
            result.push(ordered(&joined, Turn::Sweep, index, page));
        }
    }
    result
}

/// Whether a device may have such pages: a trace may be of another machine, with smaller pages than this
/// one's.
fn is_sane(range: &PageRange, page: u64) -> bool {
    let end = range.end.checked_mul(page);
    range.start < range.end && end.is_some_and(|end| end <= i64::MAX as u64)
}

fn ordered(joined: &Joined, turn: Turn, device: usize, page: u64) -> Ordered {
    let (deadline_us, stage) = joined.first;
    Ordered {
        request: Request {
            kind: RequestKind::Metadata,
            stage: if turn == Turn::Sweep { stage } else { 0 },
            device: device as u16,
            file: NO_FILE,
            offset: joined.range.start * page,
            length: joined.range.pages() * page,
            bridged: (joined.range.pages() - joined.asked) * page,
            deadline_us,
            from_end: false,
            follows: false,
        },
        physical: Some(joined.range.start * page),
        level: 0,
        turn,
        pass: 0,
        lead: None,
        is_named: false,
        weight: 1.0,
    }
}

/// The ranges in parts that are small enough to have needs of their own, in order.
fn in_parts(pages: &PageSet, page: u64) -> Vec<PageRange> {
    let step = part(pages.pages() * page).div_ceil(page.max(1));
    let mut parts = Vec::new();
    for range in pages.ranges() {
        let mut start = range.start;
        while start < range.end {
            let end = ((start / step + 1) * step).min(range.end);
            parts.push(PageRange { start, end });
            start = end;
        }
    }
    parts
}

/// Joins what is needed at once and lies one behind the other, to `most` pages: over holes of at most `holes`
/// pages that nobody else reads.
fn at_once(parts: Vec<Joined>, holes: u64, others: &PageSet, most: u64) -> Vec<Joined> {
    let mut result: Vec<Joined> = Vec::with_capacity(parts.len());
    for next in parts {
        let joins = |last: &&mut Joined| {
            let near = last.first.1 == next.first.1 && last.first.0.abs_diff(next.first.0) <= AT_ONCE_US;
            let hole = next.range.start - last.range.end;
            // Whatever others read behind the last begins before the next does.
            let behind = others.ranges().partition_point(|r| r.end <= last.range.end);
            let free = others
                .ranges()
                .get(behind)
                .is_none_or(|r| r.start >= next.range.start);
            near && hole <= holes && free && next.range.end - last.range.start <= most
        };
        match result.last_mut().filter(joins) {
            Some(last) => {
                last.range.end = next.range.end;
                last.asked += next.asked;
                last.first = last.first.min(next.first);
            }
            None => result.push(next),
        }
    }
    result
}

/// Pages that become a request.
struct Joined {
    range: PageRange,
    /// How many of them are wanted.
    asked: u64,
    /// When the first of them is needed.
    first: First,
}

/// What becomes of each of the ranges (ascending). Every `wanted` page lies in one of them.
fn joined(ranges: &[PageRange], wanted: &PageSet, mut needed: Needed) -> Vec<Joined> {
    needed.sort_small();
    let mut result: Vec<Joined> = ranges
        .iter()
        .map(|range| Joined {
            range: *range,
            asked: 0,
            first: NEVER,
        })
        .collect();
    let mut at = 0;
    for wanted in wanted.ranges() {
        while result.get(at).is_some_and(|part| part.range.end <= wanted.start) {
            at += 1;
        }
        let within = result.get_mut(at..).into_iter().flatten();
        for part in within.take_while(|part| part.range.start < wanted.end) {
            part.asked += wanted.end.min(part.range.end) - wanted.start.max(part.range.start);
        }
    }
    for (range, deadline) in needed {
        // What is needed may reach over several of the ranges, where others of its pages are read before.
        let from = result.partition_point(|part| part.range.end <= range.start);
        for part in result[from..]
            .iter_mut()
            .take_while(|part| part.range.start < range.end)
        {
            part.first = part.first.min(deadline);
        }
    }
    result
}

/// Whether all metadata comes amid the data, in the order of need. On a volume that is filled as it is read
/// it lies in half of the granules, and a start that waits until all of those are fetched has nothing to
/// compute with meanwhile. Requests wait there until what they and all before them need is fetched, so files
/// are not opened before their metadata is there.
fn by_need(device: &Device) -> bool {
    device.metadata_by_block && device.cost.class != DeviceClass::Disk && device.first_touch.is_some()
}

/// Whether the files of a device are opened by handle: on one head, where metadata is read by block. An
/// overlay's files have other numbers than those below it; there paths are needed, and with them directories
/// first. And where blocks are smaller than pages, the page of a directory reaches over the data beside it:
/// amid the data each would be a jump back.
fn by_handle(machine: &Machine, device: usize, data: &HashSet<&FilePath>) -> bool {
    let page = u64::from(machine.page_size);
    let one_head = |d: &Device| d.metadata_by_block && d.cost.class == DeviceClass::Disk;
    let of_device = |f: &&FileFacts| f.device == Some(device as u32);
    let by_path_only = |f: &FileFacts| f.metadata.is_empty() && data.contains(&f.path);
    let in_part = |f: &FileFacts| {
        f.metadata
            .iter()
            .any(|r| r.start % page != 0 || r.length % page != 0)
    };
    let mut files = machine.files.iter().filter(of_device);
    machine.devices.get(device).is_some_and(one_head) && !files.any(|f| by_path_only(f) || in_part(f))
}

/// The files of which data is read.
fn data_files<'a>(profile: &Profile, machine: &'a Machine) -> HashSet<&'a FilePath> {
    let threshold = profile.policy.threshold();
    let by_path = by_path(machine);
    let mut data = HashSet::new();
    for entry in profile.entries.iter().filter(|e| e.weight >= threshold) {
        if entry.ranges.iter().any(|r| r.weight >= threshold) {
            data.extend(
                facts_of(&by_path, entry)
                    .filter(|f| f.found == PathKind::File)
                    .map(|f| &f.path),
            );
        }
    }
    data
}

pub(crate) fn bridge_pages(device: &Device, page: u64) -> u64 {
    device.bridge() / page
}

/// Look-ups of what no metadata block answers: everything but data files where metadata is not read by block,
/// and missing names everywhere (which block of a large directory would hold a name that is not there, the
/// file system knows best).
pub(crate) fn lookups(profile: &Profile, machine: &Machine, files: &mut Files) -> Vec<Ordered> {
    let threshold = profile.policy.threshold();
    let deadlines = Deadlines::new(profile);
    let by_path = by_path(machine);
    let mut needs: HashMap<&FilePath, (Need, u8, bool)> = HashMap::new();
    for entry in profile.entries.iter().filter(|e| e.weight >= threshold) {
        if let Some(facts) = facts_of(&by_path, entry) {
            let data = facts.found == PathKind::File && entry.ranges.iter().any(|r| r.weight >= threshold);
            needs.insert(&facts.path, (entry.need, plan_stage(entry.stage), data));
        }
    }
    let data = data_files(profile, machine);
    let swept: Vec<bool> = (0..machine.devices.len())
        .map(|index| by_handle(machine, index, &data))
        .collect();
    let is_read = |entry: &Entry| entry.all_ranges().any(|r| r.weight >= threshold);
    let read = Deadlines::of_those(profile, &is_read);
    let lists = |facts: &FileFacts| {
        let need = needs.get(&facts.path).map(|(need, ..)| *need);
        facts.found == PathKind::Directory && need == Some(Need::List)
    };
    // Behind the data, or beside it, comes what the data does not wait for.
    let waits = |facts: &FileFacts, index: u32, device: &Device| match device.cost.class {
        // All in one pass; what directories list is not kept.
        _ if device.compression.is_some() => !lists(facts),
        DeviceClass::Disk => !swept.get(index as usize).is_some_and(|swept| *swept),
        _ if by_need(device) => false,
        _ => device.metadata_by_block || read.first(&facts.path).is_some(),
    };
    let mut result = Vec::new();
    for facts in &machine.files {
        let (_, stage, data) = needs.get(&facts.path).copied().unwrap_or((Need::Stat, 0, false));
        let device = facts.device.or_else(|| device_of_missing(machine, &facts.path));
        let Some((index, device)) = device.and_then(|d| Some((d, machine.devices.get(d as usize)?))) else {
            continue;
        };
        let ask = match facts.found {
            PathKind::Missing => true,
            PathKind::Directory | PathKind::Symlink => !device.metadata_by_block,
            // A data file is opened anyway. Where few blocks of metadata are kept, that would read them once
            // more, in the order of the data.
            PathKind::File => !device.metadata_by_block && (!data || device.compression.is_some()),
            PathKind::Special | PathKind::NotLocal => false,
        };
        if !ask {
            continue;
        }
        let Some(file) = files.index(facts, index) else {
            continue;
        };
        result.push(Ordered {
            request: Request {
                kind: if lists(facts) {
                    RequestKind::List
                } else {
                    RequestKind::Stat
                },
                stage,
                device: index as u16,
                file,
                offset: 0,
                length: 0,
                bridged: 0,
                deadline_us: deadlines.get(&facts.path),
                from_end: false,
                follows: false,
            },
            physical: None,
            level: level(&facts.path),
            turn: if waits(facts, index, device) {
                Turn::LookUps
            } else {
                Turn::After
            },
            pass: 0,
            lead: None,
            is_named: false,
            weight: 1.0,
        });
    }
    result
}

/// So many paths of a device at most are kept in a plan to be asked for only.
const ASKED: usize = 64;

/// Of paths that no request names, because their metadata is read by block, some of each device, evenly
/// spread: whether the kernel remembers them tells whether a start is warm. Paths that only some starts name
/// tell nothing of the others.
pub(crate) fn ask_for_some(profile: &Profile, machine: &Machine, files: &mut Files) {
    let of_some = profile
        .entries
        .iter()
        .filter(|entry| profile.is_only_named(entry));
    let of_some: HashSet<&FilePath> = of_some.map(|entry| &entry.path).collect();
    for index in 0..machine.devices.len() as u32 {
        let is_one = |facts: &&FileFacts| {
            let is_read = facts.device == Some(index) && !facts.metadata.is_empty();
            is_read && !files.index.contains_key(&facts.path) && !of_some.contains(&facts.path)
        };
        let paths: Vec<&FileFacts> = machine.files.iter().filter(is_one).collect();
        let step = paths.len().div_ceil(ASKED).max(1);
        for facts in paths.into_iter().step_by(step) {
            files.index(facts, index);
        }
    }
}

/// The device that would hold a missing path: that of the longest mount point above it.
fn device_of_missing(machine: &Machine, path: &FilePath) -> Option<u32> {
    let above = |mount: &FilePath| {
        let mount = mount.as_bytes();
        mount == b"/"
            || path
                .as_bytes()
                .strip_prefix(mount)
                .is_some_and(|rest| rest.first().is_none_or(|b| *b == b'/'))
    };
    machine
        .devices
        .iter()
        .enumerate()
        .filter(|(_, d)| above(&d.mount_point))
        .max_by_key(|(_, d)| d.mount_point.as_bytes().len())
        .map(|(i, _)| i as u32)
}

#[cfg(test)]
mod tests;
