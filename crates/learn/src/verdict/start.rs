//! What of a start counts in a comparison: which starts are alike enough to be compared at all.

use headstart_model::Outcome;
use headstart_model::outcome::{Mode, StageOutcome};
use std::collections::HashMap;

/// The key of boots, which begin with nothing in memory.
const BOOT: &str = "boot";

/// With this share in memory a start is warm and not compared. A replay hardly reads anything for it then,
/// and what little it makes of a difference would be held against cold starts, for which it reads everything.
pub const WARM: f64 = 0.75;

/// A start without a replay that waited for disks for this share of its time was cold. A warm LibreOffice
/// start waits for 1 % of its time, a cold one from a disk for 80; what lies between is not guessed at.
const BLOCKED_WHEN_COLD: f64 = 0.25;

/// A start that can be compared with others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// When it began, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// What headstart did.
    pub mode: Mode,
    /// The share in memory of what it was expected to need, before it began; below [`WARM`].
    pub resident: f64,
    /// How long it took, nanoseconds.
    pub elapsed_ns: u64,
    /// Whether its replay found other files at the paths of its plan, as after an update.
    pub updated: bool,
}

impl Start {
    /// Whether it had a replay.
    pub fn replayed(&self) -> bool {
        self.mode == Mode::Replay
    }
}

/// With more than this part of its requests left out because other files, or none, are at their paths, a
/// start is not as it was learned.
const UPDATED: f64 = 0.01;

/// Whether a replay that issued `requests` found other files, or none, at the paths of its plan.
pub fn is_updated(outcome: &Outcome, requests: u64) -> bool {
    let others = outcome.skipped.changed + outcome.skipped.missing;
    others as f64 > UPDATED * (requests as f64 + others as f64)
}

/// Starts that are not compared, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LeftOut {
    /// Nearly all was in memory before.
    pub warm: usize,
    /// Nobody knows what was in memory before.
    pub unknown: usize,
    /// They were to be read ahead for and were not, or nothing was done for them: no replay was decided
    /// against, and devices were busy with others'.
    pub declined: usize,
    /// They did not end as most did, or taught nothing: they were cut short, or something unusual happened.
    pub unusual: usize,
    /// They were recorded, which takes time, and there is a control run that was not, with which those that
    /// were not are compared.
    pub recorded: usize,
    /// They are from before a change, or those that showed it ([`super::change`]).
    pub before_change: usize,
}

/// The share of what a start was expected to need that was in memory before it; `None` where nothing tells.
///
/// Where no sample was taken, a replay has seen what its requests found in memory, and the time that a start
/// without one was blocked tells whether it was cold.
pub fn resident(outcome: &Outcome) -> Option<f64> {
    if let Some(share) = outcome.resident_before.and_then(|before| before.share()) {
        return Some(share);
    }
    if outcome.key.as_str() == BOOT {
        return Some(0.0);
    }
    match outcome.mode {
        Mode::Replay => {
            let sum = |pages: fn(&StageOutcome) -> u64| -> f64 {
                outcome.stages.iter().map(|stage| pages(stage) as f64).sum()
            };
            let (issued, resident) = (sum(|stage| stage.issued_pages), sum(|stage| stage.resident_pages));
            (issued > 0.0).then(|| (resident / issued).min(1.0))
        }
        Mode::Record | Mode::Control | Mode::Bypass | Mode::Declined => {
            let blocked = outcome.blocked_ns? as f64;
            (blocked >= BLOCKED_WHEN_COLD * outcome.elapsed_ns as f64).then_some(0.0)
        }
    }
}

/// Whether a start came to its end and taught what such a one teaches.
pub(super) fn whole(outcome: &Outcome) -> bool {
    (outcome.not_learned.is_none() || outcome.unrecorded) && outcome.elapsed_ns > 0
}

/// The starts that can be compared, in the order given.
///
/// A recorded start takes longer for that: by 110 ms where it reads 2,000 small files in 160 ms. Starts of
/// which most are not recorded are compared by those, as soon as there are some without a replay.
pub fn comparable(outcomes: &[Outcome]) -> (Vec<Start>, LeftOut) {
    let mut left_out = LeftOut::default();
    let usual = usual_ending(outcomes.iter().filter(|outcome| whole(outcome)));
    let of_use = |outcome: &Outcome| whole(outcome) && Some(outcome.status) == usual;
    let spares_recording = (outcomes.iter())
        .any(|outcome| outcome.mode == Mode::Control && outcome.unrecorded && of_use(outcome));
    let mut starts = Vec::new();
    for outcome in outcomes {
        if matches!(outcome.mode, Mode::Bypass | Mode::Declined) {
            left_out.declined += 1;
            continue;
        }
        if !of_use(outcome) {
            left_out.unusual += 1;
            continue;
        }
        // What a first start is compared by allows for more.
        if spares_recording && !outcome.unrecorded && outcome.mode != Mode::Record {
            left_out.recorded += 1;
            continue;
        }
        match resident(outcome) {
            None => left_out.unknown += 1,
            Some(share) if share >= WARM => left_out.warm += 1,
            Some(resident) => starts.push(Start {
                started_unix_ns: outcome.started_unix_ns,
                mode: outcome.mode,
                resident,
                elapsed_ns: outcome.elapsed_ns,
                updated: outcome.mode == Mode::Replay && is_updated(outcome, issued(outcome)),
            }),
        }
    }
    (starts, left_out)
}

/// The requests that a reviewed replay issued.
fn issued(outcome: &Outcome) -> u64 {
    let of_stage = |stage: &StageOutcome| stage.metadata_requests + stage.opens + stage.data_requests;
    outcome.stages.iter().map(of_stage).sum()
}

/// The status that most starts ended with: one that failed early says nothing about speed.
pub(super) fn usual_ending<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Option<Option<i32>> {
    let mut endings: HashMap<Option<i32>, usize> = HashMap::new();
    for outcome in outcomes {
        *endings.entry(outcome.status).or_default() += 1;
    }
    let most = endings
        .into_iter()
        .max_by_key(|(status, n)| (*n, *status == Some(0), *status));
    most.map(|(status, _)| status)
}
