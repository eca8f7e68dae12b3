//! Two experiments side by side: whether the second is faster or slower, setup by setup.

use std::fmt::Write;

use serde::Serialize;

use super::{Estimate, Report, counted};
use crate::stats::{bootstrap_two, median, pick, shift};

/// One setup of one case in both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Case name.
    pub case: String,
    /// Setup name.
    pub setup: String,
    /// Runs that count in the first and in the second.
    pub n: [usize; 2],
    /// Medians, in seconds.
    pub medians: [f64; 2],
    /// How much longer the second takes, as a share of the first's median.
    pub relative: Estimate,
    /// `faster`, `slower`, or `no difference seen`.
    pub verdict: &'static str,
}

/// Compares what both have. Runs of two experiments share no rounds, so they are resampled apart; what
/// changed on the machine between the two is in the difference.
pub fn compare(first: &Report, second: &Report) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for case in &first.cases {
        let Some(other) = second.cases.iter().find(|c| c.name == case.name) else {
            continue;
        };
        for s in &case.setups {
            let times = |report: &Report, runs| -> Vec<f64> {
                counted(&report.experiment, &s.setup, runs)
                    .iter()
                    .map(|r| r.seconds)
                    .collect()
            };
            let (a, b) = (times(first, &case.runs), times(second, &other.runs));
            if a.is_empty() || b.is_empty() {
                continue;
            }
            let share = |a: &[f64], b: &[f64]| shift(a, b) / median(a);
            let relative = Estimate {
                value: share(&a, &b),
                interval: bootstrap_two(a.len(), b.len(), |one, two| share(&pick(&a, one), &pick(&b, two))),
            };
            comparisons.push(Comparison {
                case: case.name.clone(),
                setup: s.setup.clone(),
                n: [a.len(), b.len()],
                medians: [median(&a), median(&b)],
                relative,
                verdict: verdict(&relative),
            });
        }
    }
    comparisons
}

fn verdict(relative: &Estimate) -> &'static str {
    match relative.interval {
        Some([_, high]) if high < 0.0 => "faster",
        Some([low, _]) if low > 0.0 => "slower",
        _ => "no difference seen",
    }
}

/// The comparison as text.
pub fn compared(comparisons: &[Comparison]) -> String {
    let mut text = format!(
        "{:<24} {:<16} {:>9} {:>10} {:>10}  {:<28} {}\n",
        "case", "setup", "n", "first s", "second s", "second less first (95 %)", "second is"
    );
    for c in comparisons {
        let n = format!("{}, {}", c.n[0], c.n[1]);
        let share = super::table::estimate(c.relative, 100.0, 1, " %");
        let _ = writeln!(
            text,
            "{:<24} {:<16} {n:>9} {:>10.3} {:>10.3}  {share:<28} {}",
            c.case, c.setup, c.medians[0], c.medians[1], c.verdict
        );
    }
    text
}
