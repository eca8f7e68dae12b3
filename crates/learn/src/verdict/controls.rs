//! How many starts there are for one control run, and what control runs cost.
//!
//! A control run takes as long as a start without headstart. Where replays gain it costs what one of them
//! saves, so one in `n` starts costs 1 in `n - 1` of what is saved, whatever the gain. The rate is as
//! configured until a gain is likely; then a control run has little left to tell, and one is due in
//! [`SELDOM`] times as many starts. What replays tell by themselves ([`super::change`]) is asked at each
//! start.

use super::start::Start;
use super::{Comparison, History, median};
use headstart_model::outcome::Mode;
use headstart_model::{Key, Outcome};
use serde::Serialize;

/// Once a gain is likely, one start in so many times as many as configured is a control run: with 10, one in
/// 80 to 95, which costs 1.1 to 1.3 % of what is saved. Among the 200 outcomes kept there are two then, as
/// many as show a gain. Simulated from 6 to 10.
const SELDOM: u32 = 8;

/// So much evidence of a gain is enough for that: a fifth of what the verdict takes, for a control run that
/// was not made costs no more than some starts until doubt or the next one.
const LIKELY: f64 = 5.0;

/// After an update this part of them, in quarters: the program may read other files than those that were
/// compared. More would cost what the rule saves, for some programs are updated each week.
const UPDATED: u32 = 3;

/// Programs that are started together are not to be control runs together: the first comes up to this part
/// of the rate earlier, in tenths.
const EARLIER: u32 = 4;

/// And once they are seldom, up to this part of the rate later, in tenths.
const LATER: u32 = 2;

/// What control runs have cost, as far as starts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Control runs that are compared.
    pub controls: usize,
    /// How much longer they took, together, than the median of replays that began as cold, nanoseconds; below
    /// 0 where replays are slower.
    pub cost_ns: i64,
    /// That as a share of what replays have saved; `None` where they have saved nothing.
    pub share_of_saved: Option<f64>,
}

impl History {
    /// One start in so many is a control run, of a key that is configured to have one in `first`; never more
    /// often, but for the first of all, which comes earlier by the key's `phase`. In doubt
    /// ([`History::in_doubt`]) there are more.
    pub fn control_every(&self, first: u32, phase: u32) -> u32 {
        if first < 2 {
            return first;
        }
        let Some(last) = self.starts.iter().rposition(|start| start.mode == Mode::Control) else {
            return first_every(first, phase);
        };
        if self.slower().is_some() || !self.is_faster(LIKELY) {
            return first;
        }
        let seldom = first.saturating_mul(SELDOM);
        let since = self.starts.get(last..).unwrap_or_default();
        match since.iter().any(|start| start.updated) {
            true => seldom / 4 * UPDATED,
            false => seldom.saturating_add(spread(seldom, LATER, phase)),
        }
    }

    /// The replays since a change of all of them, if there was one.
    pub fn replays_since_change(&self) -> Option<u32> {
        let replays = self.starts.iter().filter(|start| start.replayed()).count();
        (self.before_change > 0).then(|| u32::try_from(replays).unwrap_or(u32::MAX))
    }
}

/// Where a key stands between control runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// One cold start in so many is a control run; 0 before the first start.
    pub every: u32,
    /// Replays since the last control run.
    pub replays_since_control: u32,
}

impl Rate {
    /// What follows from the history after a start, which was a control run or not, and is counted already.
    /// Between two control runs the rate only rises: that something has changed is not forgotten before one
    /// was made. Where all replays have changed, all programs may have: those from before are not counted, so
    /// that the phases of the keys count again.
    pub fn after(self, history: &History, was_control: bool, first: u32, phase: u32) -> Rate {
        let now = history.control_every(first, phase);
        let since_change = history.replays_since_change().unwrap_or(u32::MAX);
        Rate {
            every: match was_control || self.every == 0 {
                true => now,
                false => self.every.min(now),
            },
            replays_since_control: self.replays_since_control.min(since_change),
        }
    }

    /// What follows if the kernel, a device or what it costs is another: one control run soon, of each
    /// program in its phase.
    pub fn machine_changed(self, first: u32, phase: u32) -> Rate {
        Rate {
            every: self.every.min(first_every(first, phase)),
            replays_since_control: 0,
        }
    }
}

/// The first of all control runs is one of so many starts.
fn first_every(first: u32, phase: u32) -> u32 {
    first - spread(first, EARLIER, phase)
}

/// No control run is due sooner after another, but in doubt.
pub fn most_frequent(first: u32) -> u32 {
    first_every(first, range(first, EARLIER) - 1)
}

/// A number below so many tenths of `of`, by the phase.
fn spread(of: u32, tenths: u32, phase: u32) -> u32 {
    phase % range(of, tenths)
}

fn range(of: u32, tenths: u32) -> u32 {
    (of / 10).saturating_mul(tenths).max(1)
}

/// The phase of a key: any number, always the same for the same key.
pub fn phase(key: &Key) -> u32 {
    hash(key.as_str().as_bytes())
}

/// Fowler, Noll and Vo's FNV-1a, without the low bits, which differ least.
pub fn hash(bytes: &[u8]) -> u32 {
    let add = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, add) >> 8
}

/// What control runs have cost: `None` before a difference is shown. Takes the outcomes oldest first.
pub fn cost(outcomes: &[Outcome], comparison: &Comparison) -> Option<Cost> {
    let saved_ns = super::saved_ns(outcomes, comparison)?;
    let starts = super::present(outcomes).0;
    let quarter = |start: &Start| (start.resident * 4.0) as usize;
    let costs: Vec<i64> = starts
        .iter()
        .filter(|start| start.mode == Mode::Control)
        .filter_map(|control| {
            let alike = |start: &&Start| start.replayed() && quarter(start) == quarter(control);
            let replays: Vec<u64> = starts
                .iter()
                .filter(alike)
                .map(|start| start.elapsed_ns)
                .collect();
            let cost = i128::from(control.elapsed_ns) - i128::from(median(&replays)?);
            i64::try_from(cost).ok()
        })
        .collect();
    let cost_ns = costs.iter().copied().fold(0, i64::saturating_add);
    Some(Cost {
        controls: costs.len(),
        cost_ns,
        share_of_saved: (saved_ns > 0).then(|| cost_ns as f64 / saved_ns as f64),
    })
}
