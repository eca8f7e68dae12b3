//! What is done for a start, decided from what is known before anything is done for it. Pure.

use crate::warm_start::Warmth;
use headstart_learn::verdict::CONTROL_EVERY_IN_DOUBT;
use headstart_learn::verdict::controls::most_frequent;
use headstart_learn::verdict::start::is_updated;
use headstart_model::Outcome;
use headstart_model::outcome::Mode;
use headstart_store::{Bypass, Turns};

/// What is done for a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is recorded: there is no plan yet that reads anything.
    Record,
    /// Its plan is replayed, and it is recorded.
    Replay,
    /// It has a plan and is recorded without a replay, to compare with.
    Control,
    /// Nothing is done, and why.
    Bypass(String),
}

impl Decision {
    /// What headstart does for the start, as its outcome calls it.
    pub fn mode(&self) -> Mode {
        match self {
            Decision::Record => Mode::Record,
            Decision::Replay => Mode::Replay,
            Decision::Control => Mode::Control,
            Decision::Bypass(_) => Mode::Bypass,
        }
    }
}

/// What is known of a start before it.
#[derive(Clone, Debug)]
pub struct PriorState<'a> {
    /// Whether anything is done for starts of the key: a user may have said otherwise.
    pub enabled: bool,
    /// Why starts of the key are bypassed, where they are.
    pub bypass: Option<&'a Bypass>,
    /// The running kernel, as uname(2) calls its release.
    pub kernel: &'a str,
    /// This machine, as [`crate::bypass::machine`] names it.
    pub machine: &'a str,
    /// Where the key stands between control runs.
    pub turns: Turns,
    /// One start in so many is a control run, or re-evaluates a bypass; with 0 all are replayed.
    pub control_every: u32,
    /// Whether control runs stay as frequent whatever earlier starts have shown, but for doubt.
    pub fixed_rate: bool,
    /// Whether there is a plan that reads anything.
    pub has_plan: bool,
    /// What of the plan is in memory already; `None` where nobody looked.
    pub warmth: Option<Warmth>,
    /// A number by chance, all of whose bits are alike likely.
    pub draw: u64,
}

/// Decides about a start.
pub fn decide(known: &PriorState<'_>) -> Decision {
    let without_plan = || {
        if known.has_plan {
            Decision::Replay
        } else {
            Decision::Record
        }
    };
    let PriorState {
        control_every, draw, ..
    } = *known;
    if !known.enabled {
        return Decision::Bypass("it is disabled, until `headstart apps enable`".into());
    }
    let one_in = |every: u32, draw: u64| draw % u64::from(every.max(1)) == 0;
    // With another kernel than it was found on, or on another machine, a bypass says nothing.
    let holds = |bypass: &&Bypass| {
        control_every != 0 && bypass.kernel == known.kernel && bypass.machine == known.machine
    };
    if let Some(bypass) = known.bypass.filter(holds) {
        if !one_in(bypass.every, draw) {
            return Decision::Bypass(bypass.why.clone());
        }
        if !bypass.replay && known.has_plan {
            return Decision::Control;
        }
        return without_plan();
    }
    if !known.has_plan {
        return Decision::Record;
    }
    if known.warmth.is_some_and(|warmth| warmth.is_warm()) {
        // Its uses are recorded now and then: what a program reads changes while it is warm, too.
        return match (warm_every(known.turns, control_every), control_every) {
            (Some(every), 0) if one_in(every, draw >> 32) => Decision::Replay,
            (Some(every), 1..) if one_in(every, draw >> 32) => Decision::Control,
            _ => Decision::Bypass("what it reads is in memory".into()),
        };
    }
    let measured = known.turns.alternate > 0;
    match measured || control_every != 0 {
        true if is_control(known.turns, control_every, known.fixed_rate) => Decision::Control,
        _ => Decision::Replay,
    }
}

/// Starts whose plan is in memory, and which use much that is not planned, are recorded at least so seldom in
/// the end.
const UNPLANNED_EVERY: u32 = 64;

/// One warm start in how many is recorded; `None`: none. Where the last ones used much that is not planned,
/// the next is, until the plan asks for it; of what no plan will ever ask for each is worth half as much.
fn warm_every(turns: Turns, control_every: u32) -> Option<u32> {
    let usual = Some(control_every).filter(|every| *every > 0);
    let Some(times) = u32::from(turns.unplanned).checked_sub(1) else {
        return usual;
    };
    let every = 1u32.checked_shl(times).unwrap_or(u32::MAX);
    Some(every.min(usual.unwrap_or(UNPLANNED_EVERY)))
}

/// Whether it is the next cold start's turn to be a control run. There is one in `every` at first, and unless
/// that is `fixed` as many as earlier starts have shown to be enough; in doubt there are more.
fn is_control(turns: Turns, every: u32, fixed: bool) -> bool {
    let every = match (turns.in_doubt, turns.control_every) {
        _ if turns.alternate > 0 => 2,
        (true, _) => every.min(CONTROL_EVERY_IN_DOUBT),
        (false, 0) => every,
        (false, _) if fixed => every,
        // It may have been found where somebody had asked for more.
        (false, found) => found.max(most_frequent(every)),
    };
    turns.replays_since_control.saturating_add(1) >= every
}

/// The part of a start that recording it may take, over all starts.
const MOST_OF_START: f64 = 0.01;

/// However much it takes, one known start in so many is recorded: what starts need changes.
const MOST_SELDOM: u32 = 10;

/// One known start in how many is recorded, that recording takes no more than [`MOST_OF_START`] of all:
/// `recording_ns` are what it took of one that took `of_ns` in all, `None` where that is unknown.
pub fn record_every(recording_ns: u64, of_ns: Option<u64>) -> u32 {
    let may_take_ns = MOST_OF_START * of_ns.map_or(f64::INFINITY, |ns| ns as f64);
    ((recording_ns as f64 / may_take_ns).ceil() as u32).clamp(1, MOST_SELDOM)
}

/// Whether a start for which this was decided is recorded; `is_warm`: all that it reads is in memory.
///
/// Of control runs every other one is: recorded it tells how long the start waits for devices, unrecorded how
/// long it takes.
pub fn is_recorded(known: &PriorState<'_>, decision: &Decision, is_warm: bool) -> bool {
    let turns = known.turns;
    // What re-evaluates a bypass, is seldom, or is measured by somebody tells all it can.
    let tells_all = known.bypass.is_some() || is_warm || turns.alternate > 0 || turns.exact_due;
    tells_all
        || match decision {
            Decision::Replay => turns.record_in == 0,
            Decision::Control => turns.record_in == 0 || turns.control_is_recorded,
            Decision::Record | Decision::Bypass(_) => true,
        }
}

/// Until so many starts are known, each is recorded.
const KNOWN: u32 = 3;

/// How many starts with a replay go unrecorded after this one, which issued `requests`, where one in `every`
/// is recorded; `runs` are known. After an unrecorded one that was not seen to end the next is recorded.
pub fn next_record_in(before: Turns, outcome: &Outcome, requests: usize, runs: u32, every: u32) -> u8 {
    let has_changed = is_updated(outcome, requests as u64);
    match (outcome.unrecorded, &outcome.not_learned) {
        (true, _) if outcome.elapsed_ns == 0 => 0,
        (true, _) if outcome.mode == Mode::Control => before.record_in,
        _ if !matches!(outcome.mode, Mode::Replay | Mode::Control) || has_changed => 0,
        (true, _) => before.record_in.saturating_sub(1),
        (false, Some(_)) => 0,
        (false, None) if runs < KNOWN => 0,
        (false, None) => u8::try_from(every.saturating_sub(1)).unwrap_or(u8::MAX),
    }
}

/// Where the key stands after a start of this mode.
pub fn next_turns(turns: Turns, mode: Mode) -> Turns {
    let turns = match mode {
        Mode::Control | Mode::Replay => Turns {
            alternate: turns.alternate.saturating_sub(1),
            ..turns
        },
        Mode::Record | Mode::Bypass | Mode::Declined => turns,
    };
    match mode {
        // Neither a replay nor to compare with: it is the next one's turn.
        Mode::Record | Mode::Bypass | Mode::Declined => turns,
        Mode::Control => Turns {
            replays_since_control: 0,
            ..turns
        },
        Mode::Replay => Turns {
            replays_since_control: turns.replays_since_control.saturating_add(1),
            ..turns
        },
    }
}

#[cfg(test)]
mod tests;
