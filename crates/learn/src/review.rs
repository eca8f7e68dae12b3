//! What a replay was worth: joins what was issued with what the start used and when.

use headstart_model::outcome::{Mode, Outcome, ReplayReport, Skipped, StageOutcome};
use headstart_model::plan::{Plan, RequestKind};
use headstart_model::trace::{EndReason, UseKind};
use headstart_model::{FilePath, Key, PageRange, PageSet, Profile, Trace};
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
    /// Time the command's processes waited for block devices.
    pub blocked_ns: Option<u64>,
    /// Why the trace taught nothing, if so.
    pub not_learned: Option<String>,
}

/// A file's pages in one run: what was asked for and what was used.
#[derive(Default)]
struct FileJoin {
    /// Asked for: the pages, the stage, and when.
    issued: Vec<(PageRange, usize, u64)>,
    asked: PageSet,
}

/// What the replay did for the start.
pub fn review(reviewed: &Reviewed<'_>) -> Outcome {
    let trace = reviewed.trace;
    let mut outcome = Outcome {
        key: reviewed.key.clone(),
        started_unix_ns: trace.meta.started_unix_ns,
        mode: reviewed.mode,
        elapsed_ns: trace.end.elapsed_ns,
        status: match trace.end.reason {
            EndReason::Exit(status) => Some(status),
            _ => None,
        },
        blocked_ns: reviewed.blocked_ns,
        replay_ns: 0,
        stages: Vec::new(),
        skipped: Skipped::default(),
        memory_available: 0,
        memory_pressure: None,
        not_learned: reviewed.not_learned.clone(),
    };
    let mut files: HashMap<FilePath, FileJoin> = HashMap::new();
    if let Some((plan, report)) = &reviewed.replay {
        outcome.replay_ns = report.replay_ns;
        outcome.skipped = report.skipped;
        outcome.memory_available = report.memory_available;
        outcome.memory_pressure = report.memory_pressure;
        outcome.stages = plan
            .stages()
            .map(|stage| StageOutcome {
                stage,
                ..StageOutcome::default()
            })
            .collect();
        issued(plan, report, &mut outcome.stages, &mut files);
    }
    used(reviewed, &mut outcome.stages, &files);
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
                let join = files.entry(FilePath::from(path)).or_default();
                let resident: PageSet = issued.resident.iter().copied().collect();
                let only: PageSet = [range].into_iter().collect();
                stage.data_requests += 1;
                stage.issued_pages += range.pages();
                stage.resident_pages += only.intersection(&resident).pages();
                stage.arrived_pages += issued.arrived_pages;
                join.issued.push((range, index, issued.issued_ns));
                join.asked.insert(range);
                // What was there before cannot have been wasted by this replay; taken off again in `used`.
                stage.wasted_pages += only.difference(&resident).pages();
            }
        }
    }
}

/// Counts what of it was used, in time or late, and what was missed.
fn used(reviewed: &Reviewed<'_>, stages: &mut [StageOutcome], files: &HashMap<FilePath, FileJoin>) {
    let Some((_, report)) = &reviewed.replay else {
        return;
    };
    let trace = reviewed.trace;
    let mut by_path: HashMap<&FilePath, Vec<(PageRange, u64)>> = HashMap::new();
    for used in trace.uses.iter().filter(|u| u.kind != UseKind::Add) {
        let file = &trace.files[used.file as usize];
        let time = (used.time_ns as i64)
            .saturating_add(reviewed.trace_began_ns)
            .max(0) as u64;
        let path = if files.contains_key(&file.path) {
            &file.path
        } else {
            file.overlay.as_ref().unwrap_or(&file.path)
        };
        by_path
            .entry(path)
            .or_default()
            .push((PageRange::new(used.start, u64::from(used.pages)), time));
    }
    let resident = resident_by_path(reviewed, report);
    let nothing = PageSet::new();
    for (path, uses) in &by_path {
        let Some(join) = files.get(path) else {
            let missed: PageSet = uses.iter().map(|(r, _)| *r).collect();
            if let Some(first) = stages.first_mut() {
                first.missed_pages += missed.pages();
            }
            continue;
        };
        let mut counted = PageSet::new();
        let before = resident.get(*path).unwrap_or(&nothing);
        for (range, time) in uses {
            for fresh in counted.insert(*range) {
                let fresh: PageSet = [fresh].into_iter().collect();
                let missed = fresh.difference(&join.asked).pages();
                if let Some(first) = stages.first_mut() {
                    first.missed_pages += missed;
                }
                for (asked, stage, issued) in &join.issued {
                    let asked: PageSet = [*asked].into_iter().collect();
                    let hit = fresh.intersection(&asked);
                    let stage = &mut stages[*stage];
                    if issued <= time {
                        stage.used_pages += hit.pages()
                    } else {
                        stage.late_pages += hit.pages()
                    }
                    stage.wasted_pages -= hit.difference(before).pages().min(stage.wasted_pages);
                }
            }
        }
    }
    bridged(reviewed, stages, files, &by_path, &resident);
}

/// Pages that were resident before their request, by path.
fn resident_by_path(reviewed: &Reviewed<'_>, report: &ReplayReport) -> HashMap<FilePath, PageSet> {
    let mut resident: HashMap<FilePath, PageSet> = HashMap::new();
    let Some((plan, _)) = &reviewed.replay else {
        return resident;
    };
    let requests: Vec<_> = plan.requests().collect();
    for issued in &report.issued {
        let Some(request) = requests.get(issued.request as usize) else {
            continue;
        };
        if let (RequestKind::Data, Some(path)) = (request.kind, plan.path(request.file as usize)) {
            let set = resident.entry(FilePath::from(path)).or_default();
            for range in &issued.resident {
                set.insert(*range);
            }
        }
    }
    resident
}

/// Holes bridged on purpose are counted apart from waste: what a request covers beyond the profile's pages.
fn bridged(
    reviewed: &Reviewed<'_>,
    stages: &mut [StageOutcome],
    files: &HashMap<FilePath, FileJoin>,
    by_path: &HashMap<&FilePath, Vec<(PageRange, u64)>>,
    resident: &HashMap<FilePath, PageSet>,
) {
    let Some(profile) = reviewed.profile else { return };
    let threshold = profile.policy.threshold();
    let wanted: HashMap<&FilePath, PageSet> = profile
        .entries
        .iter()
        .flat_map(|e| {
            [Some(&e.path), e.overlay.as_ref()]
                .into_iter()
                .flatten()
                .map(move |p| (p, e.pages(threshold)))
        })
        .collect();
    let nothing = PageSet::new();
    for (path, join) in files {
        let wanted = wanted.get(path).unwrap_or(&nothing);
        let used: PageSet = by_path.get(path).into_iter().flatten().map(|(r, _)| *r).collect();
        let before = resident.get(path).unwrap_or(&nothing);
        for (range, stage, _) in &join.issued {
            let holes = [*range].into_iter().collect::<PageSet>().difference(wanted);
            let stage = &mut stages[*stage];
            stage.bridged_pages += holes.pages();
            let unused = holes.difference(&used).difference(before).pages();
            stage.wasted_pages -= unused.min(stage.wasted_pages);
        }
    }
}
