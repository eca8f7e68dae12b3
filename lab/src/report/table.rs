//! The report as text.

use std::fmt::Write;

use super::{CaseReport, Estimate, Report, Summary, judge};
use crate::experiment::{Begun, one_line};

/// The whole report.
pub fn table(report: &Report) -> String {
    let e = &report.experiment;
    let mut text = format!("{}: {}\n", e.name, e.question.trim());
    let since = |mark| format!(", measured from the mark {mark:?}");
    let part = e.from.as_ref().map_or(String::new(), since);
    let _ = writeln!(
        text,
        "{} rounds, shuffled{part}; Linux {}, {} processors",
        e.rounds, e.kernel, e.processors
    );
    for note in &report.notes {
        let _ = writeln!(text, "Note: {note}");
    }
    for case in &report.cases {
        let _ = write!(text, "\n{}", self::case(case, e));
    }
    text
}

fn case(case: &CaseReport, experiment: &Begun) -> String {
    let base = experiment.base.as_str();
    let ideal = case
        .t_io_ideal_seconds
        .map_or(String::new(), |t| format!(", laid out ideally {t:.3} s"));
    let best = case.t_io_seconds.map_or(String::new(), |t| {
        format!("; T_io of {base}'s blocks {t:.3} s{ideal}")
    });
    let ratio = case
        .cold_over_warm
        .map_or(String::new(), |ratio| format!("; {base} over warm {ratio:.1}"));
    let mut text = format!("{}{best}{ratio}\n\n", case.title);
    let width = case
        .setups
        .iter()
        .map(|s| s.setup.chars().count())
        .max()
        .unwrap_or(0)
        .max(5);
    let against = format!("less {base}, s (95 %)");
    let _ = writeln!(
        text,
        "{:<width$} {:>3} {:>8} {:>6} {:>8} {:>8} {:>8} {:>7} {:>7} {:>7} {:>7}  {against:<26} {:>8}  {:<18} {:>5} {:>5}",
        "setup",
        "n",
        "mean s",
        "sd",
        "min",
        "median",
        "max",
        "reads",
        "MiB",
        "busy s",
        "blocked",
        "of it",
        "R (95 %)",
        "L",
        "L*"
    );
    for s in &case.setups {
        if s.n == 0 {
            let _ = writeln!(text, "{:<width$} {:>3}", s.setup, 0);
            continue;
        }
        let of_it = s
            .relative
            .map_or(String::new(), |r| format!("{:+.1} %", r.value * 100.0));
        let line = format!(
            "{:<width$} {:>3} {:>8.3} {:>6} {:>8.3} {:>8.3} {:>8.3} {:>7.0} {:>7.1} {:>7.2} {:>7}  {:<26} {of_it:>8}  {:<18} {:>5} {:>5}",
            s.setup,
            s.n,
            s.mean,
            s.sd.map_or("–".into(), |sd| format!("{sd:.3}")),
            s.min,
            s.median,
            s.max,
            s.reads,
            s.bytes / f64::from(1 << 20),
            s.busy_seconds,
            s.stalled_seconds.map_or("–".into(), |t| format!("{t:.2}")),
            s.difference.map_or(String::new(), |d| estimate(d, 1.0, 3, "")),
            s.recovered.map_or(String::new(), |r| estimate(r, 100.0, 0, " %")),
            s.above_best.map_or(String::new(), |l| format!("{:.2}", l.value)),
            s.above_floor.map_or(String::new(), |l| format!("{:.2}", l.value)),
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    for s in &case.setups {
        text += &remarks(s, case.setup(base));
    }
    for goal in judge(experiment, case) {
        let _ = writeln!(text, "goal: {}", goal.shown());
    }
    text
}

fn remarks(s: &Summary, base: Option<&Summary>) -> String {
    let mut text = String::new();
    // Where neither reads anything, what a tool takes is small, and not alike in all rounds: the medians of
    // the pairs tell it.
    let base = base.filter(|base| base.reads == 0.0 && s.reads == 0.0);
    if let (Some(base), Some(extra), Some(ratio)) = (base, s.median_difference, s.median_ratio) {
        let (extra, ratio) = (estimate(extra, 1000.0, 2, " ms"), estimate(ratio, 1.0, 3, ""));
        let _ = writeln!(
            text,
            "{}: {extra} more than {}, ratio {ratio}: medians of {} pairs",
            s.setup, base.setup, s.pairs
        );
    }
    if let Some(over) = s.over_earlier {
        let over = estimate(over, 1.0, 3, "");
        let _ = writeln!(text, "{}: time over the earlier build: {over}", s.setup);
    }
    if let Some(above) = s.above {
        let parts = above
            .parts()
            .map(|(name, ns)| format!("{name} {:.3}", ns as f64 / 1e9));
        let _ = writeln!(
            text,
            "{}: its last start with a replay took {:.3} s; above its floor, s: {}",
            s.setup,
            above.took_ns as f64 / 1e9,
            parts.join(", ")
        );
    }
    if s.below_floor > 0 {
        let _ = writeln!(
            text,
            "{}: {} of {} runs were shorter than the floor, {:.3} s: it is not one",
            s.setup,
            s.below_floor,
            s.n,
            s.floor_seconds.unwrap_or(0.0)
        );
    }
    if s.prepare_seconds > 0.0 {
        let own = s.median - s.prepare_seconds;
        let _ = writeln!(
            text,
            "{}: {:.3} s before the start, {own:.3} s for the start, which had {:.0} reads left",
            s.setup, s.prepare_seconds, s.start_reads
        );
    }
    if !s.marks.is_empty() {
        let marks = s.marks.iter().map(|m| {
            let sd = m.sd.map_or(String::new(), |sd| format!(" ± {sd:.2}"));
            let only = if m.n < s.n {
                format!(" ({} of {})", m.n, s.n)
            } else {
                String::new()
            };
            format!("{} {:.2}{sd}{only}", m.name, m.mean)
        });
        let _ = writeln!(
            text,
            "{}: marks, s: {}",
            s.setup,
            marks.collect::<Vec<_>>().join(", ")
        );
    }
    for run in &s.aborted {
        let _ = writeln!(
            text,
            "{}: round {} aborted, in no figure: {}",
            s.setup,
            run.round,
            one_line(&run.what)
        );
    }
    if !s.outlying.is_empty() {
        let runs = s
            .outlying
            .iter()
            .map(|run| format!("round {} ({})", run.round, run.what));
        let _ = writeln!(
            text,
            "{}: outlying, in every figure: {}",
            s.setup,
            runs.collect::<Vec<_>>().join(", ")
        );
    }
    text
}

/// `-1.23 (-1.30…-1.10)`, in the unit wanted.
fn estimate(e: Estimate, factor: f64, digits: usize, unit: &str) -> String {
    let value = e.value * factor;
    match e.interval {
        Some([low, high]) => format!(
            "{value:.digits$}{unit} ({:.digits$}…{:.digits$})",
            low * factor,
            high * factor
        ),
        None => format!("{value:.digits$}{unit}"),
    }
}
