//! Which first uses a replay had served: the review, use by use instead of in sums, for pictures.
//!
//! What counts is what [`crate::review`] counts, joined with what the trace says was read ahead: of the pages
//! of a use those that nobody had used before, each once. What was only mapped around a fault is left out: it
//! need not have been touched, and is much where all was in memory before, so that a start with a replay
//! would seem to use more than one without.

use crate::DEFAULT_EXCLUDE;
use crate::run::{has_pages, pages_of};
use headstart_model::outcome::ReplayReport;
use headstart_model::plan::{Plan, RequestKind};
use headstart_model::sort::Sort;
use headstart_model::trace::{Ahead, UseKind};
use headstart_model::{FilePath, GrowingSet, PageRange, Trace, limits};
use std::collections::HashMap;

/// Pages of one use that nobody had used before, by what a replay had done for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Used in time: asked for before.
    pub in_time: u64,
    /// Late: asked for afterwards.
    pub late: u64,
    /// Missed: not asked for by a replay that could have.
    pub missed: u64,
    /// Without a replay, or of a file that no plan may ask for; of traces that tell no uses, pages that
    /// entered the cache.
    pub not_prefetched: u64,
}

/// What had been done for each use, in the order of [`Trace::all_uses`].
pub fn served(trace: &Trace) -> Vec<Served> {
    let exclude = DEFAULT_EXCLUDE.map(FilePath::from);
    let page_size = u64::from(trace.meta.page_size);
    let asked = trace
        .ahead
        .as_ref()
        .map(|ahead| FirstRequests::from_trace(trace, ahead));
    let mut seen = vec![[GrowingSet::default(), GrowingSet::default()]; trace.files.len()];
    let learned: Vec<bool> = (trace.files.iter())
        .map(|file| has_pages(trace, file, &exclude))
        .collect();
    let one = |used: headstart_model::trace::Use| {
        let index = used.file as usize;
        let mut served = Served::default();
        let Some([found, not_found]) = seen.get_mut(index).filter(|_| used.kind != UseKind::Around) else {
            return served;
        };
        let pages = pages_of(&used, &trace.files[index], page_size);
        let mut left = vec![pages];
        if let (Some(asked), true) = (&asked, used.kind != UseKind::Add) {
            left.clear();
            let mut from = pages.start;
            for (part, issued_ns) in asked.requests_within(index, pages) {
                left.push(PageRange {
                    start: from,
                    end: part.start,
                });
                from = part.end;
                let fresh: u64 = found.insert(part).iter().map(PageRange::pages).sum();
                match issued_ns <= used.time_ns {
                    true => served.in_time += fresh,
                    false => served.late += fresh,
                }
            }
            left.push(PageRange {
                start: from,
                end: pages.end,
            });
        }
        let fresh = left.into_iter().flat_map(|range| not_found.insert(range));
        let fresh: u64 = fresh.map(|range| range.pages()).sum();
        match asked.is_some() && learned[index] && used.kind != UseKind::Add {
            true => served.missed += fresh,
            false => served.not_prefetched += fresh,
        }
        served
    };
    trace.all_uses().map(one).collect()
}

/// By file, ascending and disjoint: pages that were asked for, and when that was first.
struct FirstRequests(Vec<Vec<(PageRange, u64)>>);

impl FirstRequests {
    fn from_trace(trace: &Trace, ahead: &[Ahead]) -> FirstRequests {
        let mut order: Vec<&Ahead> = ahead.iter().collect();
        order.sort_small_by_key(|request| request.issued_ns);
        let mut seen = vec![GrowingSet::default(); trace.files.len()];
        let mut files = vec![Vec::new(); trace.files.len()];
        for request in order {
            let Some(seen) = seen.get_mut(request.file as usize) else {
                continue;
            };
            let fresh = seen.insert(PageRange::new(request.start, u64::from(request.pages)));
            files[request.file as usize].extend(fresh.into_iter().map(|range| (range, request.issued_ns)));
        }
        for file in &mut files {
            file.sort_small();
        }
        FirstRequests(files)
    }

    /// What was asked for of these pages.
    fn requests_within(&self, file: usize, pages: PageRange) -> impl Iterator<Item = (PageRange, u64)> + '_ {
        let ranges = &self.0[file];
        let first = ranges.partition_point(|(range, _)| range.end <= pages.start);
        let until = ranges[first..]
            .iter()
            .take_while(move |(range, _)| range.start < pages.end);
        until.map(move |(range, issued_ns)| {
            let part = PageRange {
                start: range.start.max(pages.start),
                end: range.end.min(pages.end),
            };
            (part, *issued_ns)
        })
    }
}

/// What a replay asked for of the files that the trace has, by the trace's time, which began `trace_began_ns`
/// after the replay's (negative if before). A file below an overlay is found by either name. `None` where it
/// is more than a trace may have: less would make pages look missed.
pub fn ahead(
    trace: &Trace,
    plan: &Plan<'_>,
    report: &ReplayReport,
    trace_began_ns: i64,
) -> Option<Vec<Ahead>> {
    let mut files: HashMap<&[u8], u32> = HashMap::new();
    for (index, file) in trace.files.iter().enumerate() {
        if let Some(overlay) = &file.overlay {
            files.entry(overlay.as_bytes()).or_insert(index as u32);
        }
    }
    // A path of its own comes before one through an overlay.
    for (index, file) in trace.files.iter().enumerate() {
        files.insert(file.path.as_bytes(), index as u32);
    }
    let requests: Vec<_> = plan.requests().collect();
    let since = |ns: u64| {
        let ns = i64::try_from(ns).unwrap_or(i64::MAX);
        ns.saturating_sub(trace_began_ns).max(0) as u64
    };
    let mut reads: Vec<Ahead> = (report.issued.iter())
        .filter_map(|issued| {
            let request = requests.get(issued.request as usize)?;
            if request.kind != RequestKind::Data {
                return None;
            }
            let file = *files.get(plan.path(request.file as usize)?)?;
            let issued_ns = since(issued.issued_ns);
            Some(Ahead {
                file,
                start: issued.pages.start,
                pages: u32::try_from(issued.pages.pages())
                    .ok()
                    .filter(|pages| *pages > 0)?,
                issued_ns,
                done_ns: since(issued.done_ns).max(issued_ns),
            })
        })
        .collect();
    reads.sort_small_by_key(|read| read.issued_ns);
    (reads.len() <= limits::AHEAD).then_some(reads)
}
