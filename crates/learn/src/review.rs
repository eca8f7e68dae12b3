//! What a replay was worth: joins what was issued with what the start used and when.
//!
//! A use is a page read, touched or mapped; of what learning learns around a touched page the rest counts as
//! not used. Only of files that are learned can a page be missed: else a plan would be blamed for what it
//! could never ask for. Each request is judged by itself, by the pages that were in memory before it: of two
//! requests for a page, the second finds it there because of the first.

use crate::DEFAULT_EXCLUDE;
use crate::run::{has_pages, pages_of};
use headstart_model::outcome::{Mode, Outcome, Precision, ReplayReport, StageOutcome};
use headstart_model::plan::{Plan, RequestKind};
use headstart_model::sort::Sort;
use headstart_model::trace::{EndReason, UseKind};
use headstart_model::{FilePath, GrowingSet, Key, PageRange, PageSet, Profile, Trace};
use std::collections::HashMap;

/// What is reviewed.
pub struct Reviewed<'a> {
    /// Whose start.
    pub key: Key,
    /// What headstart did.
    pub mode: Mode,
    /// The trace of the start.
    pub trace: &'a Trace,
    /// The plan and what its replay did; `None` without a replay.
    pub replay: Option<(&'a Plan<'a>, &'a ReplayReport)>,
    /// The profile that the plan was made from: tells wanted pages from bridged holes.
    pub profile: Option<&'a Profile>,
    /// When the trace's time began, by the replay's clock, nanoseconds: negative if the trace began first.
    pub trace_began_ns: i64,
    /// Why the trace taught nothing, if so.
    pub not_learned: Option<String>,
}

/// A request for pages of a file, as it was issued.
struct IssuedRequest {
    pages: PageRange,
    /// Index of the stage.
    stage: usize,
    issued_ns: u64,
    /// Whether it was meant from the end of the file.
    from_end: bool,
    /// Those of its pages that were in memory before.
    resident: PageSet,
}

/// A file's pages in one run: what was asked for and what was used.
#[derive(Default)]
struct FileJoin {
    asked: Vec<IssuedRequest>,
    /// Each used page once, ascending, with the time of its first use by the replay's clock.
    first_uses: Vec<(PageRange, u64)>,
    used: GrowingSet,
    /// Of the used, those that were surely touched or read.
    touched: GrowingSet,
    /// Of the used, those that a plan should have asked for.
    learned: GrowingSet,
}

/// What the replay did for the start.
pub fn review(reviewed: &Reviewed<'_>) -> Outcome {
    let trace = reviewed.trace;
    let mut outcome = Outcome {
        started_unix_ns: trace.meta.started_unix_ns,
        elapsed_ns: trace.end.elapsed_ns,
        status: match trace.end.reason {
            EndReason::Exit(status) => Some(status),
            _ => None,
        },
        blocked_ns: trace.end.blocked_ns,
        not_learned: reviewed.not_learned.clone(),
        used: Some(crate::used(trace)),
        ..Outcome::new(reviewed.key.clone(), reviewed.mode)
    };
    let Some((plan, report)) = &reviewed.replay else {
        return outcome;
    };
    outcome.replayed(report);
    outcome.stages = plan
        .stages()
        .map(|stage| StageOutcome {
            stage,
            ..StageOutcome::default()
        })
        .collect();
    let mut files = HashMap::new();
    issued(plan, report, &mut outcome.stages, &mut files);
    used(trace, reviewed.trace_began_ns, &mut files);
    let precision = count(&files, &wanted(reviewed.profile), &mut outcome.stages);
    outcome.precision = Some(precision);
    outcome
}

/// Counts what was asked for.
fn issued(
    plan: &Plan<'_>,
    report: &ReplayReport,
    stages: &mut [StageOutcome],
    files: &mut HashMap<FilePath, FileJoin>,
) {
    let requests: Vec<_> = plan.requests().collect();
    let page_size = u64::from(plan.page_size());
    for issued in &report.issued {
        let Some(request) = requests.get(issued.request as usize) else {
            continue;
        };
        let index = usize::from(request.stage);
        let Some(stage) = stages.get_mut(index) else {
            continue;
        };
        let range = PageRange {
            start: request.offset / page_size,
            end: (request.offset + request.length).div_ceil(page_size),
        };
        match request.kind {
            RequestKind::Metadata => {
                stage.metadata_requests += 1;
                stage.metadata_pages += range.pages();
            }
            RequestKind::Stat | RequestKind::List => stage.opens += 1,
            RequestKind::Data => {
                let Some(path) = plan.path(request.file as usize) else {
                    continue;
                };
                let resident = issued.resident.iter().copied().collect();
                let asked = issued.pages;
                stage.data_requests += 1;
                stage.issued_pages += asked.pages();
                stage.resident_pages += clipped(&resident, asked).pages();
                stage.arrived_pages += issued.arrived_pages;
                files
                    .entry(FilePath::from(path))
                    .or_default()
                    .asked
                    .push(IssuedRequest {
                        pages: asked,
                        stage: index,
                        issued_ns: issued.issued_ns,
                        from_end: request.from_end,
                        resident,
                    });
            }
        }
    }
}

/// Joins what the start used to the files asked for: by path, or by the path through an overlay where it was
/// that.
fn used(trace: &Trace, trace_began_ns: i64, files: &mut HashMap<FilePath, FileJoin>) {
    let exclude = DEFAULT_EXCLUDE.map(FilePath::from);
    let page_size = u64::from(trace.meta.page_size);
    let rows: Vec<(&FilePath, bool)> = trace
        .files
        .iter()
        .map(|file| {
            let overlay = file.overlay.as_ref().filter(|o| files.contains_key(*o));
            let path = match overlay {
                Some(overlay) if !files.contains_key(&file.path) => overlay,
                _ => &file.path,
            };
            (path, has_pages(trace, file, &exclude))
        })
        .collect();
    for used in trace.all_uses().filter(|u| u.kind != UseKind::Add) {
        let (path, learned) = rows[used.file as usize];
        let pages = pages_of(&used, &trace.files[used.file as usize], page_size);
        let time_ns = i64::try_from(used.time_ns).unwrap_or(i64::MAX);
        let time_ns = time_ns.saturating_add(trace_began_ns).max(0) as u64;
        let join = match files.get_mut(path) {
            Some(join) => join,
            None => files.entry(path.clone()).or_default(),
        };
        let fresh = join.used.insert(pages);
        join.first_uses.extend(fresh.into_iter().map(|r| (r, time_ns)));
        if matches!(used.kind, UseKind::Read | UseKind::Fault) {
            join.touched.insert(pages);
        }
        // What was mapped around a fault need not have been touched: nobody missed it.
        if learned && used.kind != UseKind::Around {
            join.learned.insert(pages);
        }
    }
    for join in files.values_mut() {
        join.first_uses.sort_small();
    }
}

/// The pages that the profile's plans ask for, by path; what a request covers beyond them is a hole bridged
/// on purpose. `None` without a profile: then no page is known to be a hole.
fn wanted(profile: Option<&Profile>) -> Option<HashMap<&FilePath, PageSet>> {
    let profile = profile?;
    let threshold = profile.policy.threshold();
    let mut wanted = HashMap::new();
    for entry in &profile.entries {
        for path in [Some(&entry.path), entry.overlay.as_ref()].into_iter().flatten() {
            wanted.insert(path, entry.pages(threshold));
        }
    }
    Some(wanted)
}

/// Counts what became of each request's pages, and what no request asked for. Returns how sure that is.
fn count(
    files: &HashMap<FilePath, FileJoin>,
    wanted: &Option<HashMap<&FilePath, PageSet>>,
    stages: &mut [StageOutcome],
) -> Precision {
    let nothing = PageSet::new();
    let mut precision = Precision::default();
    for (path, join) in files {
        let asked_for: PageSet = join.asked.iter().map(|a| a.pages).collect();
        if let Some(first) = stages.first_mut() {
            first.missed_pages += join.learned.pages().difference(&asked_for).pages();
        }
        let wanted = wanted.as_ref().map(|w| w.get(path).unwrap_or(&nothing));
        let used = join.used.pages();
        let touched = join.touched.pages();
        let around = used.difference(&touched).intersection(&asked_for);
        precision.uncertain_pages += match wanted {
            Some(wanted) => around.intersection(wanted).pages(),
            None => around.pages(),
        };
        let could_ask = asked_for.union(&join.learned.pages());
        precision.needed_pages += touched.intersection(&could_ask).pages();
        for asked in &join.asked {
            let stage = &mut stages[asked.stage];
            for (pages, time_ns) in overlapping(&join.first_uses, asked.pages) {
                if asked.issued_ns <= time_ns {
                    stage.used_pages += pages.pages();
                } else {
                    stage.late_pages += pages.pages();
                }
            }
            let pages: PageSet = [asked.pages].into_iter().collect();
            let holes = match wanted {
                Some(wanted) if !asked.from_end => pages.difference(&clipped(wanted, asked.pages)),
                // Of the few pages at the end none is taken for a hole.
                _ => PageSet::new(),
            };
            stage.bridged_pages += holes.pages();
            let unused = pages.difference(&clipped(&used, asked.pages));
            stage.wasted_pages += unused.difference(&holes).difference(&asked.resident).pages();
        }
    }
    precision
}

/// The parts of ascending, disjoint ranges that lie in `within`.
fn overlapping(
    ranges: &[(PageRange, u64)],
    within: PageRange,
) -> impl Iterator<Item = (PageRange, u64)> + '_ {
    let first = ranges.partition_point(|(r, _)| r.end <= within.start);
    ranges[first..]
        .iter()
        .take_while(move |(r, _)| r.start < within.end)
        .map(move |(r, time_ns)| {
            let part = PageRange {
                start: r.start.max(within.start),
                end: r.end.min(within.end),
            };
            (part, *time_ns)
        })
}

/// The pages of the set that lie in `within`, found without walking the set.
fn clipped(set: &PageSet, within: PageRange) -> PageSet {
    let ranges = set.ranges();
    let first = ranges.partition_point(|r| r.end <= within.start);
    ranges[first..]
        .iter()
        .take_while(|r| r.start < within.end)
        .map(|r| PageRange {
            start: r.start.max(within.start),
            end: r.end.min(within.end),
        })
        .collect()
}

#[cfg(test)]
mod tests;
