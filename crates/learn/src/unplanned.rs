//! What a start used and no plan asks for: where that is much, it says little that the plan is in memory.

use crate::DEFAULT_EXCLUDE;
use crate::run::{is_excluded, pages_of, seen_at};
use headstart_model::plan::{Plan, RequestKind};
use headstart_model::trace::{File, FileState, UseKind};
use headstart_model::{FilePath, GrowingSet, PageRange, PageSet, Trace};
use std::collections::HashMap;

/// A start that has used more than this part of its bytes beside its plan is not told by it.
const MUCH: f64 = 0.1;
/// Less than this, bytes, is not worth a recording.
const LITTLE: u64 = 256 << 10;

/// Whether the start has used much of devices that the plan made after it does not ask for: files that are
/// not learned, because they were not found again or their name is not known.
pub fn much_is_unplanned(trace: &Trace, plan: Option<&Plan<'_>>) -> bool {
    let (used, unplanned) = bytes(trace, plan);
    unplanned > LITTLE && unplanned as f64 > MUCH * used as f64
}

/// Bytes that the start used of devices of this machine, and those of them that no request is for.
fn bytes(trace: &Trace, plan: Option<&Plan<'_>>) -> (u64, u64) {
    let page_size = u64::from(trace.meta.page_size);
    let planned = planned(plan);
    let exclude = DEFAULT_EXCLUDE.map(FilePath::from);
    let asked = |file: &File| {
        let mut paths = [Some(&file.path), file.overlay.as_ref()].into_iter().flatten();
        paths.find_map(|path| planned.get(path.as_bytes()))
    };
    let mut files: HashMap<u32, GrowingSet> = HashMap::new();
    for used in trace.all_uses() {
        let Some(file) = trace.files.get(used.file as usize) else {
            continue;
        };
        // What was mapped around a fault need not have been touched, and what entered memory not have been
        // used. Of some pages that were mapped one was touched: the plan may ask for that alone.
        let is_sure = match used.kind {
            UseKind::Read | UseKind::Fault => true,
            UseKind::Map => asked(file).is_none(),
            UseKind::Add | UseKind::Around => false,
        };
        if is_sure && is_read_from_a_device(trace, file, &exclude) {
            files
                .entry(used.file)
                .or_default()
                .insert(pages_of(&used, file, page_size));
        }
    }
    let nothing = PageSet::new();
    let (mut used, mut unplanned) = (0, 0);
    for (index, pages) in &files {
        let asked = trace.files.get(*index as usize).and_then(asked);
        let pages = pages.pages();
        used += pages.pages() * page_size;
        unplanned += pages.difference(asked.unwrap_or(&nothing)).pages() * page_size;
    }
    // Of what has no name not even the uses are kept: each is as large as another.
    let each = used / (files.len() as u64).max(1);
    let unnamed = trace.lost.paths.saturating_mul(each.max(page_size));
    (used.saturating_add(unnamed), unplanned.saturating_add(unnamed))
}

/// What a plan asks for, whether its budget allows it or not, by path.
fn planned<'a>(plan: Option<&Plan<'a>>) -> HashMap<&'a [u8], PageSet> {
    let Some(plan) = plan else { return HashMap::new() };
    let page = u64::from(plan.page_size()).max(1);
    let mut ranges: HashMap<&[u8], Vec<PageRange>> = HashMap::new();
    for request in plan
        .requests()
        .filter(|request| request.kind == RequestKind::Data)
    {
        let Some(path) = plan.path(request.file as usize) else {
            continue;
        };
        ranges.entry(path).or_default().push(PageRange {
            start: request.offset / page,
            end: request.offset.saturating_add(request.length).div_ceil(page),
        });
    }
    let set = |(path, ranges): (_, Vec<PageRange>)| (path, ranges.into_iter().collect());
    ranges.into_iter().map(set).collect()
}

/// Whether what is used of a file has to come from a device of this machine: not of a file system in memory
/// or of a server, and not what the start itself has written. Of a file system that the recorder does not see
/// it is not known, and so it may.
fn is_read_from_a_device(trace: &Trace, file: &File, exclude: &[FilePath]) -> bool {
    let local = match file.filesystem {
        Some(index) => trace
            .filesystems
            .get(index as usize)
            .is_some_and(|filesystem| filesystem.local),
        None => true,
    };
    let regular = file.mode & 0o170000 == 0o100000;
    let began_ns = i64::try_from(trace.meta.started_unix_ns).unwrap_or(i64::MAX);
    let own = match file.state {
        FileState::Made => true,
        FileState::Deleted => file.mtime_ns >= began_ns,
        FileState::Present | FileState::Replaced | FileState::Unreachable => false,
    };
    local && regular && !own && !is_excluded(seen_at(file), exclude)
}

#[cfg(test)]
mod tests;
