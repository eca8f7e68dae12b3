//! Whether reading ahead pays: starts with a replay against starts without, told by the outcomes kept.

use headstart_model::Outcome;
use headstart_model::outcome::Mode;
use serde::Serialize;
use std::collections::HashMap;

/// Starts with a replay against starts without.
#[derive(Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Starts with a replay.
    pub with: Group,
    /// Control runs.
    pub without: Group,
    /// How much sooner the median start with a replay had ended than the median control run, nanoseconds.
    pub gain_ns: Option<i64>,
    /// The probability of a difference so large by chance alone (Mann-Whitney, two-sided).
    pub p: Option<f64>,
    /// What follows.
    pub verdict: Verdict,
}

/// Times of some starts.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Group {
    /// How many.
    pub starts: usize,
    /// Their median, nanoseconds.
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

/// Fewer starts of either kind prove nothing: with three of each, chance alone orders them fully in one of ten cases.
pub const ENOUGH_WITHOUT: usize = 3;
/// As [`ENOUGH_WITHOUT`].
pub const ENOUGH_WITH: usize = 5;

/// The usual bound: chance alone shows such a difference in one of twenty comparisons.
const SIGNIFICANT: f64 = 0.05;

/// Until there is enough for a verdict, the last so many starts with a replay have all to be slower than the last so many
/// without, by this share: with three and two, chance alone orders them so in one of ten cases.
const FEW_WITH: usize = 3;
const FEW_WITHOUT: usize = 2;
const CLEARLY: f64 = 1.02;

/// Whether replays make the starts slower: the median times with and without them, nanoseconds. Takes the outcomes
/// oldest first. While there are few, those from before the first replay count as well: nothing was in memory then, which
/// may make them slower than control runs, never faster.
pub fn slower(outcomes: &[Outcome]) -> Option<(u64, u64)> {
    let known = compare(outcomes);
    match known.verdict {
        Verdict::Slower => known.with.median_ns.zip(known.without.median_ns),
        Verdict::TooFew => slower_so_far(outcomes),
        Verdict::Faster | Verdict::NoDifference => None,
    }
}

fn slower_so_far(outcomes: &[Outcome]) -> Option<(u64, u64)> {
    let usual = usual_ending(outcomes.iter());
    let last = |replay: bool, most: usize| -> Vec<u64> {
        let counts = |o: &&Outcome| {
            (o.mode == Mode::Replay) == replay && Some(o.status) == usual && o.not_learned.is_none()
        };
        let times = outcomes.iter().rev().filter(counts).map(|o| o.elapsed_ns);
        times.take(most).collect()
    };
    let (with, without) = (last(true, FEW_WITH), last(false, FEW_WITHOUT));
    let enough = with.len() == FEW_WITH && without.len() == FEW_WITHOUT;
    let (fastest, slowest) = (*with.iter().min()?, *without.iter().max()?);
    let clearly = fastest as f64 > slowest as f64 * CLEARLY;
    (enough && clearly).then(|| median(&with).zip(median(&without)))?
}

/// The status that most starts ended with: one that failed early says nothing about speed.
fn usual_ending<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Option<Option<i32>> {
    let mut endings: HashMap<Option<i32>, usize> = HashMap::new();
    for outcome in outcomes {
        *endings.entry(outcome.status).or_default() += 1;
    }
    let most = endings
        .into_iter()
        .max_by_key(|(status, n)| (*n, *status == Some(0)));
    most.map(|(status, _)| status)
}

/// Compares the starts that ended as most did.
pub fn compare(outcomes: &[Outcome]) -> Comparison {
    let usual = usual_ending(outcomes.iter().filter(|o| o.mode != Mode::Record));
    let times = |mode: Mode| -> Vec<u64> {
        let of_mode = |o: &&Outcome| o.mode == mode && Some(o.status) == usual;
        outcomes.iter().filter(of_mode).map(|o| o.elapsed_ns).collect()
    };
    let (with, without) = (times(Mode::Replay), times(Mode::Control));
    let group = |times: &[u64]| Group {
        starts: times.len(),
        median_ns: median(times),
    };
    let gain_ns = median(&without)
        .zip(median(&with))
        .map(|(without, with)| i64::try_from(i128::from(without) - i128::from(with)).unwrap_or(i64::MAX));
    let enough = with.len() >= ENOUGH_WITH && without.len() >= ENOUGH_WITHOUT;
    let p = enough.then(|| mann_whitney(&with, &without));
    let verdict = match (p, gain_ns) {
        (Some(p), Some(gain)) if p < SIGNIFICANT && gain > 0 => Verdict::Faster,
        (Some(p), Some(gain)) if p < SIGNIFICANT && gain < 0 => Verdict::Slower,
        (Some(_), _) => Verdict::NoDifference,
        (None, _) => Verdict::TooFew,
    };
    Comparison {
        with: group(&with),
        without: group(&without),
        gain_ns,
        p,
        verdict,
    }
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

/// The two-sided probability of the rank-sum statistic, by the normal approximation with corrections for ties and
/// continuity (Mann and Whitney 1947).
fn mann_whitney(a: &[u64], b: &[u64]) -> f64 {
    let (n, m) = (a.len() as f64, b.len() as f64);
    let mut all: Vec<(u64, bool)> = a
        .iter()
        .map(|t| (*t, true))
        .chain(b.iter().map(|t| (*t, false)))
        .collect();
    all.sort_unstable();
    let (mut rank_sum, mut ties) = (0.0, 0.0);
    let mut first = 0;
    for group in all.chunk_by(|x, y| x.0 == y.0) {
        let size = group.len() as f64;
        let middle = first as f64 + (size + 1.0) / 2.0;
        rank_sum += middle * group.iter().filter(|(_, of_a)| *of_a).count() as f64;
        ties += size.powi(3) - size;
        first += group.len();
    }
    let total = n + m;
    let u = rank_sum - n * (n + 1.0) / 2.0;
    let variance = n * m / 12.0 * ((total + 1.0) - ties / (total * (total - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let z = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    2.0 * upper_tail(z)
}

/// The probability that a standard normal value exceeds `z >= 0` (Abramowitz and Stegun 26.2.17, error below 1e-7).
fn upper_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let series = t
        * (0.319_381_530
            + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * series
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::Key;

    fn outcomes(mode: Mode, times: &[u64], status: i32) -> Vec<Outcome> {
        let outcome = |ms: &u64| Outcome {
            elapsed_ns: ms * 1_000_000,
            status: Some(status),
            ..Outcome::new(Key::new("k").unwrap(), mode)
        };
        times.iter().map(outcome).collect()
    }

    fn compared(with: &[u64], without: &[u64]) -> Comparison {
        compare(
            &[
                outcomes(Mode::Replay, with, 0),
                outcomes(Mode::Control, without, 0),
            ]
            .concat(),
        )
    }

    #[test]
    fn few_control_runs_prove_nothing() {
        let it = compared(&[1; 20], &[1000, 1000]);
        assert_eq!(it.verdict, Verdict::TooFew);
        assert_eq!(compared(&[1], &[9; 3]).verdict, Verdict::TooFew);
        assert_eq!(compare(&[]).verdict, Verdict::TooFew);
    }

    #[test]
    fn a_clear_difference_is_told_and_chance_is_not() {
        let fast = compared(&[100, 110, 105, 99, 101, 108, 102], &[1000, 1010, 990]);
        assert_eq!(fast.verdict, Verdict::Faster);
        assert_eq!(fast.gain_ns, Some(898_000_000));
        let slow = compared(&[1000, 1100, 1050, 990, 1010, 1080, 1020], &[100, 101, 99]);
        assert_eq!(slow.verdict, Verdict::Slower);
        let same = compared(&[100, 120, 90, 110, 105, 95], &[104, 101, 99, 112]);
        assert_eq!(same.verdict, Verdict::NoDifference);
        assert_eq!(compared(&[5; 9], &[5; 9]).verdict, Verdict::NoDifference);
    }

    #[test]
    fn what_is_slower_is_found_with_few_starts_and_with_many() {
        let times = |with: &[u64], record: &[u64], control: &[u64]| {
            slower(
                &[
                    outcomes(Mode::Record, record, 0),
                    outcomes(Mode::Replay, with, 0),
                    outcomes(Mode::Control, control, 0),
                ]
                .concat(),
            )
        };
        let ms = |with: u64, without: u64| Some((with * 1_000_000, without * 1_000_000));
        // An SD card, from the first unit on.
        assert_eq!(times(&[2230, 2190, 2260], &[1970, 1980], &[]), ms(2230, 1975));
        assert_eq!(
            times(&[2230, 2190], &[1970, 1980], &[]),
            None,
            "two prove nothing"
        );
        assert_eq!(times(&[2230, 2190, 2260], &[1970], &[]), None, "nor does one");
        assert_eq!(
            times(&[2230, 1960, 2260], &[1970, 1980], &[]),
            None,
            "they overlap"
        );
        assert_eq!(
            times(&[1000, 1001, 1002], &[995, 990], &[]),
            None,
            "hardly slower"
        );
        assert_eq!(times(&[500, 510, 505], &[1970, 1980], &[]), None, "faster");
        let mut many = outcomes(Mode::Replay, &[1000, 1100, 1050, 990, 1010], 0);
        many.extend(outcomes(Mode::Control, &[100, 101, 99], 0));
        assert_eq!(slower(&many), ms(1010, 100));
        many.extend(outcomes(Mode::Replay, &[10; 20], 0));
        assert_eq!(slower(&many), None, "it pays again");
        assert_eq!(slower(&[]), None);
    }

    #[test]
    fn starts_that_failed_do_not_count() {
        let mut all = outcomes(Mode::Replay, &[100; 6], 0);
        all.extend(outcomes(Mode::Control, &[100; 4], 0));
        all.extend(outcomes(Mode::Control, &[1; 3], 9));
        assert_eq!(
            compare(&all).without,
            Group {
                starts: 4,
                median_ns: Some(100_000_000)
            }
        );
    }

    #[test]
    fn the_tail_agrees_with_tables() {
        assert!((upper_tail(1.96) - 0.024_998).abs() < 1e-5);
        assert!((upper_tail(0.0) - 0.5).abs() < 1e-6);
    }
}
