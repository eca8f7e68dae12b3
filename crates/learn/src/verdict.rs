//! Whether reading ahead pays: starts with a replay against starts without, told by the outcomes kept.
//!
//! Like is compared with like: starts that ended as most did ([`start::comparable`]), and cold ones with cold
//! ones, by what was in memory before them. Warm starts are not compared at all. How sure a difference is,
//! [`evidence`] says, by a test that may be looked at after every start. Where all replays have become unlike
//! the earlier ones ([`change`]), starts from before that are not compared. [`controls`] says how many starts
//! go without a replay, and [`waits`] where no replay can gain.

pub mod change;
pub mod controls;
pub mod evidence;
pub mod start;
pub mod waits;

use evidence::{Claim, ENOUGH, Evidence};
use headstart_model::Outcome;
use headstart_model::outcome::Mode;
use serde::Serialize;
use start::{LeftOut, Start, WARM, comparable};

/// Starts with a replay against starts without.
#[derive(Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Starts with a replay.
    pub with: Group,
    /// Starts without: control runs, and for a verdict of "slower" also those from before the first replay.
    pub without: Group,
    /// Starts that are not compared.
    pub left_out: LeftOut,
    /// How much sooner a start with a replay ends than one without, nanoseconds.
    pub gain_ns: Option<i64>,
    /// The most probable that the difference is by chance alone, however often one looks; `None` while there
    /// is too little to compare, and where the first two replays were so much slower, or the first control
    /// run was, that nobody waits for more.
    pub p: Option<f64>,
    /// What follows.
    pub verdict: Verdict,
}

/// Times of some starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Group {
    /// How many.
    pub starts: usize,
    /// Their median, nanoseconds; where they began with more and with less in memory, the mean of the medians
    /// of each quarter, weighted alike in both groups.
    pub median_ns: Option<u64>,
}

/// Whether prefetching pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// There is too little to compare.
    TooFew,
    /// Starts with a replay are faster.
    Faster,
    /// They are slower.
    Slower,
    /// No difference was shown.
    NoDifference,
}

/// With fewer starts of either kind nothing can be shown: two among seven can come in 21 orders, so that any
/// order is due to chance in about one of twenty cases.
pub const ENOUGH_WITHOUT: usize = 2;
/// As [`ENOUGH_WITHOUT`].
pub const ENOUGH_WITH: usize = 5;

/// Replays that cost less than this are not given up: a plan that is made anew after each start makes as much
/// difference.
const CLEARLY: f64 = 1.02;

/// With so much evidence that replays are slower, more control runs are taken. Simulated from 0.5 to 2: with
/// less than 1 every new key begins in doubt; with more, harm is found later.
const DOUBT: f64 = 1.3;

/// In doubt, one start in so many is a control run. As many with a replay as without tell most; and where
/// replays seem to cost, a control run seems to cost nothing.
pub const CONTROL_EVERY_IN_DOUBT: u32 = 2;

/// With fewer replays of cold starts than [`ENOUGH_WITH`] two are enough for "slower", if each took so many
/// times as long as every start without one that began as cold: where cold starts are few, more would come in
/// months. A gain as large is believed after one control run. With 1.4 times, starts that vary by a fifth
/// would be called slower in one of thirty histories where nothing is.
const PLAINLY: f64 = 1.6;

/// And so much longer, nanoseconds: on a busy machine starts of some 10 ms vary by as much as they take.
const PLAINLY_NS: u64 = 100_000_000;

/// Whether a start took so much longer than another that no test is needed.
fn is_plainly_longer(took_ns: u64, other_ns: u64) -> bool {
    took_ns as f64 > PLAINLY * other_ns as f64 && took_ns.saturating_sub(other_ns) > PLAINLY_NS
}

/// A start without a replay that had so much more in memory is no reason to call one with a replay slow.
const WARMER: f64 = 0.05;

/// Of so many of the latest starts the times are told: five control runs at one in ten are among them. Of
/// more where control runs are so seldom that fewer than [`ENOUGH_WITHOUT`] are.
const LATEST: usize = 50;

/// The quarters of what may be in memory before a start that is not warm.
const QUARTERS: usize = 3;

/// Whether replays make the starts slower: the times with and without them, nanoseconds. Takes the outcomes
/// oldest first.
///
/// The starts from before the first replay count as well: more was done in them for the first time, which may
/// make them slower than control runs, never faster. Where cold starts had replays and none went without, the
/// answer is no: what is known of others says nothing about them.
pub fn slower(outcomes: &[Outcome]) -> Option<(u64, u64)> {
    History::of(outcomes).0.slower()
}

/// Whether starts with a replay look slower, though it is not shown yet: more control runs are to tell. Takes
/// the outcomes oldest first.
pub fn in_doubt(outcomes: &[Outcome]) -> bool {
    History::of(outcomes).0.in_doubt()
}

/// The starts that can be compared and are like the present ones. Takes the outcomes oldest first.
pub fn present(outcomes: &[Outcome]) -> (Vec<Start>, LeftOut) {
    let (history, left_out) = History::of(outcomes);
    (history.starts, left_out)
}

/// What the replays of cold starts have saved in all, nanoseconds; below 0 where they lost. Wherever a saving
/// is told it is this one: `None` as long as no difference is shown ([`Comparison::is_shown`]). Takes the
/// outcomes oldest first.
pub fn saved_ns(outcomes: &[Outcome], comparison: &Comparison) -> Option<i64> {
    let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
    let without = signed(comparison.without.median_ns.filter(|_| comparison.is_shown())?);
    let replayed = present(outcomes).0.into_iter().filter(Start::replayed);
    let saved = replayed.map(|start| without.saturating_sub(signed(start.elapsed_ns)));
    Some(saved.fold(0, i64::saturating_add))
}

impl Comparison {
    /// Whether replays make a difference that is shown. Until then nothing is called saved or lost.
    pub fn is_shown(&self) -> bool {
        matches!(self.verdict, Verdict::Faster | Verdict::Slower)
    }
}

/// Compares the starts. Takes the outcomes oldest first.
pub fn compare(outcomes: &[Outcome]) -> Comparison {
    let (history, left_out) = History::of(outcomes);
    Comparison {
        left_out,
        ..history.compare()
    }
}

/// The starts of a key that can be compared, added one after the other, and what they have shown so far.
#[derive(Clone, Debug)]
pub struct History {
    /// Those since the latest change.
    starts: Vec<Start>,
    slower: Evidence,
    faster: Evidence,
    /// How many there were before that.
    before_change: usize,
}

impl Default for History {
    fn default() -> History {
        History {
            starts: Vec::new(),
            slower: Evidence::new(Claim::Slower),
            faster: Evidence::new(Claim::Faster),
            before_change: 0,
        }
    }
}

impl History {
    /// The history of a key, of its outcomes, oldest first, and what of them is not in it.
    pub fn of(outcomes: &[Outcome]) -> (History, LeftOut) {
        let (starts, mut left_out) = comparable(outcomes);
        let mut history = History::default();
        starts.into_iter().for_each(|start| history.add(start));
        left_out.before_change = history.before_change;
        (history, left_out)
    }

    /// The next start; a warm one changes nothing.
    pub fn add(&mut self, start: Start) {
        if start.resident >= WARM {
            return;
        }
        self.bet(start);
        if change::is_shown(&self.starts) {
            *self = History {
                before_change: self.before_change + self.starts.len(),
                ..History::default()
            };
        }
    }

    fn bet(&mut self, start: Start) {
        self.starts.push(start);
        self.slower.add(start);
        // A first start may be slow for reasons of its own, and no replay is better for that.
        if start.mode != Mode::Record {
            self.faster.add(start);
        }
    }

    /// As [`slower`].
    pub fn slower(&self) -> Option<(u64, u64)> {
        let is_shown = self.slower.times() >= ENOUGH || self.slower_twice();
        let times = is_shown.then(|| times(&self.starts))??;
        let (with, without) = times;
        (with as f64 > CLEARLY * without as f64).then_some(times)
    }

    /// Whether there are few replays, two at least, and all of them took clearly longer than all starts
    /// without one.
    fn slower_twice(&self) -> bool {
        let (with, without): (Vec<&Start>, Vec<&Start>) =
            self.starts.iter().partition(|start| start.replayed());
        let is_slower = |start: &&Start| {
            let as_cold = |other: &&&Start| other.resident <= start.resident + WARMER;
            let slowest = without.iter().filter(as_cold).map(|other| other.elapsed_ns).max();
            slowest.is_some_and(|slowest| is_plainly_longer(start.elapsed_ns, slowest))
        };
        (2..ENOUGH_WITH).contains(&with.len()) && with.iter().all(is_slower)
    }

    /// Whether there is so much evidence, or more, that replays are faster, and they are.
    fn is_faster(&self, enough: f64) -> bool {
        let is_shown = self.faster.times() >= enough || self.plainly_faster();
        is_shown && times(&self.later()).is_some_and(|(with, without)| with < without)
    }

    /// Whether a control run and the first start, or two control runs, took plainly longer than nine in ten
    /// of the replays that began as cold or colder, of which there are enough. For itself a first start may
    /// be slow.
    fn plainly_faster(&self) -> bool {
        let (with, without): (Vec<&Start>, Vec<&Start>) =
            self.starts.iter().partition(|start| start.replayed());
        let is_longer = |start: &&Start| {
            let as_cold = |other: &&&Start| other.resident <= start.resident + WARMER;
            let mut replays: Vec<u64> = with
                .iter()
                .filter(as_cold)
                .map(|other| other.elapsed_ns)
                .collect();
            replays.sort_unstable();
            let long = replays.get(replays.len() * 9 / 10);
            replays.len() >= ENOUGH_WITH
                && long.is_some_and(|long| is_plainly_longer(start.elapsed_ns, *long))
        };
        let has_control = without.iter().any(|start| start.mode == Mode::Control);
        has_control && without.len() >= ENOUGH_WITHOUT && without.iter().all(is_longer)
    }

    /// All but first starts.
    fn later(&self) -> Vec<Start> {
        let later = self.starts.iter().filter(|start| start.mode != Mode::Record);
        later.copied().collect()
    }

    /// As [`in_doubt`].
    pub fn in_doubt(&self) -> bool {
        self.slower.times() >= DOUBT
    }

    /// As [`compare`].
    pub fn compare(&self) -> Comparison {
        let (slower, later) = (self.slower(), self.later());
        let (starts, times) = match slower {
            Some(times) => (&self.starts, Some(times)),
            None => (&later, times(&later)),
        };
        let with = starts.iter().filter(|start| start.replayed()).count();
        let without = starts.len() - with;
        let gain_ns = times
            .map(|(with, without)| i64::try_from(i128::from(without) - i128::from(with)).unwrap_or(i64::MAX));
        let (worse, better) = (self.slower.times(), self.faster.times());
        let (verdict, shown) = if slower.is_some() {
            (Verdict::Slower, worse)
        } else if self.is_faster(ENOUGH) {
            (Verdict::Faster, better)
        } else if with < ENOUGH_WITH || without < ENOUGH_WITHOUT {
            (Verdict::TooFew, 0.0)
        } else {
            (Verdict::NoDifference, worse.max(better))
        };
        let group = |starts, median_ns| Group { starts, median_ns };
        Comparison {
            with: group(with, times.map(|(with, _)| with)),
            without: group(without, times.map(|(_, without)| without)),
            left_out: LeftOut::default(),
            gain_ns,
            p: match verdict {
                Verdict::TooFew => None,
                Verdict::Slower | Verdict::Faster if shown < ENOUGH => None,
                _ => Some((1.0 / shown).min(1.0)),
            },
            verdict,
        }
    }
}

/// How long the latest starts took with a replay and without, nanoseconds: the medians of those that began
/// with about as much in memory, weighted by how many starts did. `None` where there is nothing to compare,
/// or where cold starts have not been compared though they had replays.
fn times(starts: &[Start]) -> Option<(u64, u64)> {
    let mut without = starts
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, start)| !start.replayed());
    let enough = without.nth(ENOUGH_WITHOUT - 1).map_or(0, |(index, _)| index);
    let latest = starts
        .get(starts.len().saturating_sub(LATEST).min(enough)..)
        .unwrap_or_default();
    let (mut with_sum, mut without_sum, mut weights) = (0.0, 0.0, 0.0);
    for quarter in 0..QUARTERS {
        let of_kind = |replayed: bool| -> Vec<u64> {
            let counts =
                |start: &&Start| (start.resident * 4.0) as usize == quarter && start.replayed() == replayed;
            latest
                .iter()
                .filter(counts)
                .map(|start| start.elapsed_ns)
                .collect()
        };
        let (with, without) = (of_kind(true), of_kind(false));
        if let (Some(a), Some(b)) = (median(&with), median(&without)) {
            let weight = (with.len() + without.len()) as f64;
            with_sum += weight * a as f64;
            without_sum += weight * b as f64;
            weights += weight;
        } else if quarter == 0 && !with.is_empty() {
            return None;
        }
    }
    let mean = |sum: f64| (sum / weights).round() as u64;
    (weights > 0.0).then(|| (mean(with_sum), mean(without_sum)))
}

fn median(times: &[u64]) -> Option<u64> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(sorted[middle - 1].midpoint(sorted[middle])),
    }
}

#[cfg(test)]
mod rate_tests;
#[cfg(test)]
mod tests;
