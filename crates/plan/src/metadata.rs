//! Metadata first: without it an open waits for reads one after the other. On ext2/3/4 its blocks are known and read
//! through the block device; elsewhere the paths are looked up, many at once.

use crate::{Files, Ordered, RecordedMetadata, by_path, deadline_us, facts_of, level, plan_stage};
use headstart_model::machine::{Device, Found, Machine};
use headstart_model::plan::{NO_FILE, Request, RequestKind};
use headstart_model::profile::Need;
use headstart_model::{FilePath, PageRange, PageSet, Profile};
use std::collections::HashMap;

/// Requests for metadata blocks, each device's in address order.
pub(crate) fn requests(profile: &Profile, machine: &Machine, recorded: &[RecordedMetadata]) -> Vec<Ordered> {
    let page = u64::from(machine.page_size);
    let deadlines = deadlines(profile);
    let mut result = Vec::new();
    for (index, device) in machine
        .devices
        .iter()
        .enumerate()
        .filter(|(_, d)| d.metadata_by_block)
    {
        // Ranges, never single pages: what was recorded may be large.
        let mut needed: Vec<(PageRange, u32)> = Vec::new();
        for facts in machine.files.iter().filter(|f| f.device == Some(index as u32)) {
            let deadline = deadlines.get(&facts.path).copied().unwrap_or(0);
            for range in &facts.metadata {
                let pages = PageRange {
                    start: range.start / page,
                    end: (range.start + range.length).div_ceil(page),
                };
                needed.push((pages, deadline));
            }
        }
        for (_, range) in recorded.iter().filter(|(mount, _)| *mount == device.mount_point) {
            needed.push((*range, 0));
        }
        // A trace may be of another machine, with smaller pages than this one's.
        let addressable = |r: &PageRange| r.end.checked_mul(page).is_some_and(|end| end <= i64::MAX as u64);
        needed.retain(|(range, _)| range.start < range.end && addressable(range));
        needed.sort_unstable();
        let pages: PageSet = needed.iter().map(|(range, _)| *range).collect();
        // Every range needed lies in one of the requests, and so does every range of their union.
        let (mut needed, mut wanted) = (needed.iter().peekable(), pages.ranges().iter().peekable());
        for range in pages.bridged(bridge_pages(device, page)).ranges() {
            let inside = std::iter::from_fn(|| wanted.next_if(|r| r.start < range.end));
            let asked: u64 = inside.map(PageRange::pages).sum();
            // Pages many files share are needed with the first of them.
            let first = std::iter::from_fn(|| needed.next_if(|(r, _)| r.start < range.end)).map(|n| n.1);
            result.push(Ordered {
                request: Request {
                    kind: RequestKind::Metadata,
                    stage: 0,
                    device: index as u16,
                    file: NO_FILE,
                    offset: range.start * page,
                    length: range.pages() * page,
                    bridged: (range.pages() - asked) * page,
                    deadline_us: first.min().unwrap_or(0),
                },
                physical: Some(range.start * page),
                level: 0,
                pass: 0,
            });
        }
    }
    result
}

pub(crate) fn bridge_pages(device: &Device, page: u64) -> u64 {
    device.cost.bridge() / page
}

/// The first need of every path and of every directory above it.
fn deadlines(profile: &Profile) -> HashMap<FilePath, u32> {
    let mut deadlines: HashMap<FilePath, u32> = HashMap::new();
    for entry in &profile.entries {
        let deadline = deadline_us(entry.first_use_ns);
        for path in [Some(&entry.path), entry.overlay.as_ref()].into_iter().flatten() {
            let mut at = Some(path.clone());
            while let Some(path) = at {
                at = path.parent();
                let known = deadlines.entry(path).or_insert(u32::MAX);
                *known = (*known).min(deadline);
            }
        }
    }
    deadlines
}

/// Look-ups of what no metadata block answers: everything but data files where metadata is not read by block, and
/// missing names everywhere (which block of a large directory would hold a name that is not there, the file system
/// knows best).
pub(crate) fn lookups(profile: &Profile, machine: &Machine, files: &mut Files) -> Vec<Ordered> {
    let threshold = profile.policy.threshold();
    let deadlines = deadlines(profile);
    let by_path = by_path(machine);
    let mut needs: HashMap<&FilePath, (Need, u8, bool)> = HashMap::new();
    for entry in profile.entries.iter().filter(|e| e.weight >= threshold) {
        if let Some(facts) = facts_of(&by_path, entry) {
            let data = facts.found == Found::File && entry.ranges.iter().any(|r| r.weight >= threshold);
            needs.insert(&facts.path, (entry.need, plan_stage(entry.stage), data));
        }
    }
    let mut result = Vec::new();
    for facts in &machine.files {
        let (need, stage, data) = needs.get(&facts.path).copied().unwrap_or((Need::Stat, 0, false));
        let device = facts.device.or_else(|| device_of_missing(machine, &facts.path));
        let Some((index, device)) = device.and_then(|d| Some((d, machine.devices.get(d as usize)?))) else {
            continue;
        };
        let ask = match facts.found {
            Found::Missing => true,
            Found::Directory | Found::Symlink => !device.metadata_by_block,
            // A data file is opened anyway.
            Found::File => !device.metadata_by_block && !data,
            Found::Special | Found::NotLocal => false,
        };
        if !ask {
            continue;
        }
        let list = facts.found == Found::Directory && need == Need::List;
        result.push(Ordered {
            request: Request {
                kind: if list {
                    RequestKind::List
                } else {
                    RequestKind::Stat
                },
                stage,
                device: index as u16,
                file: files.index(facts, index),
                offset: 0,
                length: 0,
                bridged: 0,
                deadline_us: deadlines.get(&facts.path).copied().unwrap_or(0),
            },
            physical: None,
            level: level(&facts.path),
            pass: 0,
        });
    }
    result
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
