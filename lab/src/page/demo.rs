//! What `headstart-lab demo` prints, for somebody who has never seen the lab, and the picture of it.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::bars::{Row, svg};
use super::published_result::{KeptSetup, PublishedResult};
use crate::setup::EARLIER;

/// Five columns: what was in memory or at work, the median time, the least and the most, what was read, what
/// of the cold time is saved.
pub fn short(kept: &PublishedResult) -> Result<String> {
    let case = kept.case.first().context("the demo has no case")?;
    let cold = case
        .setup(&kept.base)
        .context("the demo has no cold start that counts")?;
    let mut text = format!("{}\n\n", kept.question);
    let names: Vec<String> = case.setup.iter().map(|s| name(kept, s)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "{:<width$}  {:>8}  {:>12}  {:>8}  {:>5}",
        "", "median s", "least–most s", "read MiB", "saved"
    );
    for (s, name) in case.setup.iter().zip(names) {
        let range = format!("{:.2}–{:.2}", s.min_s, s.max_s);
        let saved = match s.setup == cold.setup {
            true => String::new(),
            false => format!("{:.0} %", (1.0 - s.median_s / cold.median_s) * 100.0),
        };
        let line = format!(
            "{name:<width$}  {:>8.2}  {range:>12}  {:>8.0}  {saved:>5}",
            s.median_s, s.mib
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    Ok(text)
}

/// The same as bars (SVG).
pub fn picture(kept: &PublishedResult) -> Result<String> {
    let case = kept.case.first().context("the demo has no case")?;
    let row = |(number, s)| Row {
        name: name(kept, s),
        bars: vec![(number, s)],
    };
    let rows: Vec<Row<'_>> = case.setup.iter().enumerate().map(row).collect();
    let what = kept.question.lines().next().unwrap_or_default();
    let title = format!("{what} Seconds; medians of {} starts.", kept.rounds);
    Ok(svg(&title, &[], &rows))
}

/// The picture's words, for whoever does not see it.
pub fn words(kept: &PublishedResult) -> Result<String> {
    let case = kept.case.first().context("the demo has no case")?;
    let times = case
        .setup
        .iter()
        .map(|s| format!("{} {:.2} s", name(kept, s), s.median_s));
    Ok(times.collect::<Vec<_>>().join(", "))
}

/// What a stranger calls a setup.
fn name(kept: &PublishedResult, s: &KeptSetup) -> String {
    match s.setup.strip_suffix(EARLIER) {
        Some(setup) => format!("{setup}, earlier build"),
        None if s.setup == kept.base => "cold".to_owned(),
        None => s.setup.clone(),
    }
}
