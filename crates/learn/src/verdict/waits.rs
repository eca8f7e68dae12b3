//! Where no replay can gain: starts without one hardly wait for devices.
//!
//! A replay saves waiting and nothing else. How long threads waited, added up, is more than the start did; so
//! where even that is little, the gain is less, however much the times of starts vary.

use super::Verdict;
use super::compare;
use super::start::{usual_ending, whole};
use headstart_model::Outcome;
use headstart_model::outcome::Mode;

/// How much of what is waited for a replay can be trusted to save: what starts together computes while others
/// wait, and the kernel reads ahead by itself.
pub const SAVED: f64 = 0.5;

/// The least of a start that must be saved: less is what starts differ by anyway.
pub const LEAST_SAVED: f64 = 0.05;

/// Two of two starts: one may have been lucky.
const STARTS: usize = 2;

/// A start with so little in memory waits for all that it can wait for.
const COLD: f64 = 0.25;

/// How long a start without a replay waited for devices, its threads added up, and how long it took,
/// nanoseconds, where the last two of them, of which one was surely cold, waited too little for a replay to
/// gain, and no gain is shown. Takes the outcomes oldest first.
pub fn too_little(outcomes: &[Outcome]) -> Option<(u64, u64)> {
    let usual = usual_ending(outcomes.iter().filter(|outcome| whole(outcome)));
    let alone = outcomes.iter().rev().filter(|outcome| {
        matches!(outcome.mode, Mode::Record | Mode::Control)
            && whole(outcome)
            && Some(outcome.status) == usual
            && !outcome.unrecorded
    });
    // Whether a first start was cold nobody knows.
    let share = |outcome: &Outcome| outcome.resident_before.and_then(|before| before.share());
    let is_cold =
        |outcome: &Outcome| share(outcome).map_or(outcome.mode == Mode::Record, |share| share < COLD);
    let latest: Vec<&Outcome> = alone.filter(|outcome| is_cold(outcome)).take(STARTS).collect();
    let waits = |outcome: &&Outcome| {
        let waited = outcome.blocked_ns.map(|waited| SAVED * waited as f64);
        waited.is_some_and(|saved| saved < LEAST_SAVED * outcome.elapsed_ns as f64)
    };
    let surely = latest.iter().find(|outcome| outcome.mode == Mode::Control)?;
    let is_little = latest.len() == STARTS && latest.iter().all(waits);
    let gains = compare(outcomes).verdict == Verdict::Faster;
    (is_little && !gains).then_some((surely.blocked_ns?, surely.elapsed_ns))
}
