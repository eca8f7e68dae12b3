//! A test that may be looked at after every start.
//!
//! It is a bet, after Shafer and Vovk: whoever says that replays make starts slower bets on each start,
//! before it is known, where its time will rank among the times of the starts before it. If replays make no
//! difference, each of the `n` places among `n - 1` earlier starts is as probable as any other, whatever the
//! distribution of the times and whatever happened before; the bet is fair, and a stake of 1 becomes 25 with
//! a probability of at most one in 25, however often one looks (Ville's inequality). If replays are slower it
//! grows until it gets there.
//!
//! - A start with a replay is bet to come behind those without, a start without one before those with. Only
//!   that order counts: what is paid depends on how many of the *other* kind took less.
//! - Starts are ranked among such as began with about as much in memory ([`ALIKE`]), and only the latest
//!   ([`WINDOW`]): a machine that slows down over months makes no difference between neighbours.
//! - The more one-sided the earlier starts are, the more the rarer kind tells: a bet is the larger the more
//!   starts of the other kind there are to compare with. That is what a likelihood ratio for a small shift
//!   would stake.
//! - Two bettors share the stake ([`STAKES`]): a careful one, who finds small differences, and a bold one,
//!   who finds large ones early.
//!
//! Two things are outside of the theorem and paid for by a higher bar than 20, [`ENOUGH`]: a bettor never
//! loses all ([`LEAST`]), or a hundred starts that were faster would hide that they have become slower; and
//! ranks within a window are not quite independent.
//! `cargo run -p headstart-learn --release --example error_rates` shows what comes of it.

use super::start::Start;
use headstart_model::sort::Sort;

/// A bet that has grown to this is believed. A fair one does so once in 25 cases at most; 20 would be one in
/// 20, the bound on false verdicts, without room for what is outside of the theorem.
pub const ENOUGH: f64 = 25.0;

/// How far the shares in memory of two starts may differ for them to be compared. A cold start may take four
/// times as long as a warm one: a twentieth then makes 4 % of its time, which is as much as equal starts
/// differ by.
const ALIKE: f64 = 0.05;

/// Among how many earlier starts one is ranked: three control runs at one in ten are among them. With more
/// the machine may have changed meanwhile.
const WINDOW: usize = 30;

/// What the bettors stake, in units of the standard deviation by which they expect starts to differ: 0.8 is 5
/// % where equal starts differ by 6 %; 5 is 20 % where they differ by 4. Simulated among eight pairs: with 3
/// for the bold one a harm of 20 % is found two starts later, with 8 lasting drifts look like harm.
const STAKES: [f64; 2] = [0.8, 5.0];

/// No bettor falls below this, as a logarithm: with 1 in 55 left, some forty starts that have become slower
/// are enough, whatever was before.
const LEAST: f64 = -4.0;

/// No bettor grows beyond this, as a logarithm, 90 times the stake: what is believed is given up after a few
/// starts that speak against it.
const MOST: f64 = 4.5;

/// What is bet on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Starts with a replay take longer than those without.
    Slower,
    /// They take less.
    Faster,
}

/// What has become of the stake of those who claim something.
#[derive(Clone, Debug)]
pub struct Evidence {
    claim: Claim,
    /// What each bettor has, as a logarithm.
    has: [f64; STAKES.len()],
    /// The starts so far, oldest first.
    before: Vec<Start>,
}

impl Evidence {
    /// Before the first start: the stake is 1.
    pub fn new(claim: Claim) -> Evidence {
        Evidence {
            claim,
            has: [0.0; STAKES.len()],
            before: Vec::new(),
        }
    }

    /// What a stake of 1 has become. The claim is wrong by chance alone in at most one of so many cases.
    pub fn times(&self) -> f64 {
        self.has.iter().map(|has| has.exp()).sum::<f64>() / self.has.len() as f64
    }

    /// The next start.
    pub fn add(&mut self, start: Start) {
        let alike = |other: &&Start| (other.resident - start.resident).abs() <= ALIKE;
        let mut among: Vec<(u64, bool)> = self
            .before
            .iter()
            .rev()
            .filter(alike)
            .take(WINDOW)
            .map(|other| (other.elapsed_ns, other.replayed() != start.replayed()))
            .collect();
        self.before.push(start);
        let others = among.iter().filter(|(_, other)| *other).count();
        if others == 0 {
            return;
        }
        among.sort_small();
        // Among those that took as long every place is as good.
        let less = among.iter().filter(|(ns, _)| *ns < start.elapsed_ns).count();
        let not_more = among.iter().filter(|(ns, _)| *ns <= start.elapsed_ns).count();
        let own = less..=not_more;
        let share = others as f64 / among.len() as f64;
        let later_pays = (self.claim == Claim::Slower) == start.replayed();
        let sign = if later_pays { 1.0 } else { -1.0 };
        // A uniform variable from -1 to 1 has a variance of a third.
        let rank = |faster: f64| sign * 3f64.sqrt() * (2.0 * faster / others as f64 - 1.0);
        for (stake, has) in STAKES.iter().zip(&mut self.has) {
            let pays = |faster: f64| (stake * share * rank(faster)).exp();
            // The mean over all places is what the bet costs.
            let (mut passed, mut pay, mut costs, mut won) = (0.0, pays(0.0), 0.0, 0.0);
            for place in 0..=among.len() {
                costs += pay;
                if own.contains(&place) {
                    won += pay;
                }
                if among.get(place).is_some_and(|(_, other)| *other) {
                    passed += 1.0;
                    pay = pays(passed);
                }
            }
            let won = won / (not_more - less + 1) as f64;
            let costs = costs / (among.len() + 1) as f64;
            *has = (*has + (won / costs).ln()).clamp(LEAST, MOST);
        }
    }
}
