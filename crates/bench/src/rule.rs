//! How many rounds `headstart bench` makes, and what they show.
//!
//! A round is one cold start without headstart and one with it. If headstart made no difference, each order
//! of all their times would be as probable as any other, whatever their distribution. So the test is that of
//! Mann and Whitney (1947), exact, and the interval of the difference is the one that belongs to it (Hodges
//! and Lehmann 1963).

use serde::Serialize;

/// What the rounds show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// Cold starts with headstart take less.
    Faster,
    /// They take longer.
    Slower,
    /// No difference is seen.
    NoDifference,
}

/// By how much starts without headstart take longer than starts with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The estimate, seconds; below 0 where starts with headstart take longer.
    pub seconds: f64,
    /// The interval that holds the true difference in 95 of 100 cases at least, seconds.
    pub interval: [f64; 2],
    /// How probable times that differ so much are where there is no difference: two-sided.
    pub p: f64,
}

/// With fewer rounds there is no interval of 95 %: four and four times have 70 orders, the two outermost of
/// which make 2.9 %.
pub const LEAST_ROUNDS: usize = 4;

/// Rounds after which times that lie plainly apart are believed. Where a machine is by chance either fast or
/// slow, all five of one kind are fast and all of the other slow in one of 512 cases.
const PLAIN_ROUNDS: usize = 5;

/// Times lie plainly apart if the shortest of one kind is so many times the longest of the other…
const PLAINLY: f64 = 1.3;

/// … and so much longer, seconds.
const PLAINLY_SECONDS: f64 = 0.2;

/// A difference is believed that is by chance alone in so few cases. One looks at it after each of eight
/// rounds at most, and the times are much the same each time: in all that is about one of two thousand cases.
const SURE: f64 = 0.00016;

/// Rounds after which one looks whether the difference can be seen, or can be excluded.
const FIRST_LOOK: usize = 8;

/// The most rounds.
pub const MOST_ROUNDS: usize = 15;

/// Nobody notices a start that takes so much less or longer, seconds: half of the 0.1 s up to which people
/// take an answer for immediate (Miller 1968)…
const UNNOTICED_SECONDS: f64 = 0.05;

/// … nor one that does so by this share.
const UNNOTICED: f64 = 0.02;

/// The difference between these times, seconds; `None` with less than [`LEAST_ROUNDS`] of either.
pub fn difference(without: &[f64], with: &[f64]) -> Option<Difference> {
    if without.len() < LEAST_ROUNDS || with.len() < LEAST_ROUNDS {
        return None;
    }
    let pairs = without.iter();
    let mut gains: Vec<f64> = pairs
        .flat_map(|without| with.iter().map(move |with| without - with))
        .collect();
    gains.sort_by(f64::total_cmp);
    let orders = Orders::new(without.len(), with.len());
    // The largest number of gains that may be left out at each end.
    let outside = (0..gains.len() / 2)
        .take_while(|outside| 2.0 * orders.at_most(*outside) <= 0.05)
        .count()
        .saturating_sub(1);
    let positive = gains.iter().filter(|gain| **gain > 0.0).count();
    let negative = gains.iter().filter(|gain| **gain < 0.0).count();
    // Equal times count for no difference.
    let p = (2.0 * orders.at_most(gains.len() - positive.max(negative))).min(1.0);
    Some(Difference {
        seconds: crate::statistics::median(&gains),
        interval: [gains[outside], gains[gains.len() - 1 - outside]],
        p,
    })
}

/// What these times show; they need not be enough.
pub fn finding(without: &[f64], with: &[f64]) -> Finding {
    match difference(without, with) {
        Some(found) => shown(&found, without, with),
        None => Finding::NoDifference,
    }
}

fn shown(found: &Difference, without: &[f64], with: &[f64]) -> Finding {
    let is_sure = found.p <= SURE || are_plainly_apart(without, with);
    match is_sure && !is_unnoticed(found.seconds, without) {
        false => Finding::NoDifference,
        true if found.seconds > 0.0 => Finding::Faster,
        true => Finding::Slower,
    }
}

/// Whether more rounds would change nothing: a difference is seen, or one that anybody would notice is
/// excluded, or there were as many rounds as there may be.
pub fn is_enough(without: &[f64], with: &[f64]) -> bool {
    let rounds = without.len().min(with.len());
    if rounds >= MOST_ROUNDS || are_plainly_apart(without, with) {
        return true;
    }
    let looked = (rounds >= FIRST_LOOK)
        .then(|| difference(without, with))
        .flatten();
    looked.is_some_and(|found| {
        shown(&found, without, with) != Finding::NoDifference
            || found.interval.iter().all(|end| is_unnoticed(*end, without))
    })
}

/// Whether more rounds might show a difference: no interval of one that people notice holds 0, and yet it is
/// not sure enough.
pub fn is_unsettled(without: &[f64], with: &[f64]) -> bool {
    let Some(found) = difference(without, with) else {
        return true;
    };
    let holds_none = found.interval[0] > 0.0 || found.interval[1] < 0.0;
    holds_none
        && !is_unnoticed(found.seconds, without)
        && shown(&found, without, with) == Finding::NoDifference
}

/// Whether nobody would notice that starts which take so long without headstart take so much less with it.
fn is_unnoticed(seconds: f64, without: &[f64]) -> bool {
    seconds.abs() < UNNOTICED_SECONDS.max(UNNOTICED * crate::statistics::median(without))
}

fn are_plainly_apart(without: &[f64], with: &[f64]) -> bool {
    let least = |times: &[f64]| times.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    let is_longer = |longer: &[f64], shorter: &[f64]| {
        let (longer, shorter) = (least(longer), most(shorter));
        longer > PLAINLY * shorter && longer - shorter > PLAINLY_SECONDS
    };
    without.len().min(with.len()) >= PLAIN_ROUNDS && (is_longer(without, with) || is_longer(with, without))
}

/// All orders of two kinds of times, by how many of the pairs of one of each are in the less frequent order.
struct Orders {
    /// How many orders have so many such pairs.
    with_pairs: Vec<f64>,
    all: f64,
}

impl Orders {
    /// Of so many times of either kind. By Mann and Whitney's recurrence: the longest time is of the one kind
    /// or of the other.
    fn new(a: usize, b: usize) -> Orders {
        let pairs = a * b;
        // `counts[j][u]`: of i times of the one kind and j of the other.
        let mut counts = vec![vec![0.0; pairs + 1]; b + 1];
        counts.iter_mut().for_each(|counts| counts[0] = 1.0);
        for _ in 1..=a {
            for j in 1..=b {
                let (before, from) = counts.split_at_mut(j);
                let below = &before[j - 1];
                let own = &mut from[0];
                for u in (0..=pairs).rev() {
                    // The longest is of the first kind: it is behind j of the other.
                    own[u] = if u >= j { own[u - j] } else { 0.0 };
                }
                for u in 0..=pairs {
                    own[u] += below[u];
                }
            }
        }
        let with_pairs = counts.pop().unwrap_or_default();
        let all = with_pairs.iter().sum();
        Orders { with_pairs, all }
    }

    /// How probable so many pairs or fewer are.
    fn at_most(&self, pairs: usize) -> f64 {
        self.with_pairs.iter().take(pairs + 1).sum::<f64>() / self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Random;
    use crate::statistics::tests::normal;

    #[test]
    fn orders_are_those_of_mann_and_whitneys_table() {
        // Their table I: for 3 and 3 times the probabilities of U ≤ 0, 1, 2, 3, 4.
        let three = Orders::new(3, 3);
        for (pairs, expected) in [(0, 0.05), (1, 0.1), (2, 0.2), (3, 0.35), (4, 0.5)] {
            assert!((three.at_most(pairs) - expected).abs() < 1e-9, "{pairs}");
        }
        let (four, seven) = (Orders::new(4, 4), Orders::new(7, 7));
        assert!((four.at_most(0) - 1.0 / 70.0).abs() < 1e-9);
        assert!((seven.at_most(0) - 1.0 / 3432.0).abs() < 1e-9);
        assert!((Orders::new(5, 4).at_most(20) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_difference_has_the_interval_of_its_orders() {
        // For 5 and 5 times two of the 25 gains are outside at each end: 2 P(U ≤ 2) = 0.0317.
        let (without, with) = ([10.0, 11.0, 12.0, 13.0, 14.0], [1.0, 2.0, 3.0, 4.0, 5.0]);
        let found = difference(&without, &with).unwrap();
        assert_eq!(found.seconds, 9.0);
        assert_eq!(found.interval, [6.0, 12.0]);
        assert!((found.p - 2.0 / 252.0).abs() < 1e-9);
        assert_eq!(difference(&without[..3], &with), None);
    }

    #[test]
    fn large_differences_end_it_early_and_equal_times_exclude_one() {
        let cold = [8.9, 9.4, 8.7, 8.8, 9.0];
        let with = [4.6, 4.7, 4.5, 4.8, 4.6];
        assert!(!is_enough(&cold[..4], &with[..4]));
        assert!(is_enough(&cold, &with));
        assert_eq!(finding(&cold, &with), Finding::Faster);
        assert_eq!(finding(&with, &cold), Finding::Slower);
        assert!(!is_unsettled(&cold, &with));
        let slower: Vec<f64> = cold.iter().map(|seconds| seconds - 0.9).collect();
        assert!(is_unsettled(&cold, &slower));
        let same = [1.0, 1.01, 0.99, 1.0, 1.02, 1.0, 1.01, 1.0];
        assert!(is_enough(&same, &same));
        assert_eq!(finding(&same, &same), Finding::NoDifference);
    }

    #[test]
    fn what_nobody_would_notice_is_no_difference() {
        let cold: Vec<f64> = (0..10).map(|i| 1.0 + f64::from(i) * 1e-4).collect();
        let with: Vec<f64> = cold.iter().map(|seconds| seconds + 0.03).collect();
        assert!(difference(&cold, &with).unwrap().p < SURE);
        assert_eq!(finding(&cold, &with), Finding::NoDifference);
    }

    type Noise<'a> = &'a dyn Fn(&mut Random) -> f64;

    /// One experiment by the rule: what it found, and in how many rounds.
    fn experiment(random: &mut Random, gain: f64, noise: Noise<'_>) -> (Finding, usize) {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        while !is_enough(&without, &with) {
            without.push(3.0 * noise(random));
            with.push(3.0 * (1.0 - gain) * noise(random));
        }
        (finding(&without, &with), without.len())
    }

    /// Of 4,000 experiments how many find a difference, and in how many rounds on average.
    fn experiments(gain: f64, noise: Noise<'_>) -> (usize, f64) {
        let mut random = Random(20_261_129);
        let found: Vec<(Finding, usize)> = (0..4000).map(|_| experiment(&mut random, gain, noise)).collect();
        let shown = found
            .iter()
            .filter(|(finding, _)| *finding != Finding::NoDifference);
        let rounds: usize = found.iter().map(|(_, rounds)| rounds).sum();
        (shown.count(), rounds as f64 / found.len() as f64)
    }

    #[test]
    fn where_there_is_no_difference_hardly_ever_one_is_seen() {
        let narrow = |random: &mut Random| 1.0 + 0.03 * normal(random);
        let wide = |random: &mut Random| (0.2 * normal(random)).exp();
        let disturbed = |random: &mut Random| {
            let times = if random.below(10) == 0 { 3.0 } else { 1.0 };
            times * (1.0 + 0.05 * normal(random))
        };
        let fast_or_slow = |random: &mut Random| {
            let times = if random.below(2) == 0 { 2.0 } else { 1.0 };
            times * (1.0 + 0.05 * normal(random))
        };
        let noises: [(&str, Noise<'_>, usize); 4] = [
            ("narrow", &narrow, 4),
            ("wide", &wide, 10),
            ("disturbed", &disturbed, 10),
            // One in 512 cases, and what the test lets pass.
            ("fast or slow", &fast_or_slow, 24),
        ];
        for (name, noise, most) in noises {
            let (shown, rounds) = experiments(0.0, noise);
            println!("{name}: {shown} of 4000, {rounds:.1} rounds");
            assert!(shown <= most, "{name}: {shown} of 4000");
        }
    }

    #[test]
    fn a_difference_that_people_notice_is_found() {
        let narrow = |random: &mut Random| 1.0 + 0.03 * normal(random);
        let wide = |random: &mut Random| (0.2 * normal(random)).exp();
        for (name, gain, noise, least, most_rounds) in [
            ("half, narrow", 0.5, &narrow as Noise<'_>, 4000, 5.5),
            ("half, wide", 0.5, &wide, 3990, 8.0),
            ("a tenth, narrow", 0.1, &narrow, 3990, 9.0),
            ("a harm of a tenth, narrow", -0.1, &narrow, 3990, 9.0),
        ] {
            let (shown, rounds) = experiments(gain, noise);
            println!("{name}: {shown} of 4000, {rounds:.1} rounds");
            assert!(
                shown >= least && rounds <= most_rounds,
                "{name}: {shown}, {rounds}"
            );
        }
    }
}
