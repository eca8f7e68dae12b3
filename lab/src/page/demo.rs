//! What `headstart-lab demo` prints, for somebody who has never seen the lab, and the picture of it.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::kept::{Kept, KeptSetup};
use crate::setup::EARLIER;

/// Five columns: what was in memory or at work, the median time, the least and the most, what was read, what of the cold time is saved.
pub fn short(kept: &Kept) -> Result<String> {
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
pub fn picture(kept: &Kept) -> Result<String> {
    // The longest bar, in pixels; and from one bar to the next.
    const LONGEST: f64 = 400.0;
    const STEP: usize = 36;
    let case = kept.case.first().context("the demo has no case")?;
    let longest = case
        .setup
        .iter()
        .map(|s| s.median_s)
        .fold(f64::MIN_POSITIVE, f64::max);
    let height = 30 + STEP * case.setup.len();
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, s) in case.setup.iter().enumerate() {
        let (y, width) = (18 + STEP * number, (LONGEST * s.median_s / longest).round());
        let colour = if s.setup == "headstart" {
            "#1a73e8"
        } else {
            "#9aa0a6"
        };
        let _ = writeln!(
            text,
            "<text x=\"150\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"160\" y=\"{y}\" width=\"{width}\" height=\"24\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{}\">{:.2} s</text>",
            y + 17,
            name(kept, s),
            168.0 + width,
            y + 17,
            s.median_s
        );
    }
    text += "</svg>\n";
    Ok(text)
}

/// The picture's words, for whoever does not see it.
pub fn words(kept: &Kept) -> Result<String> {
    let case = kept.case.first().context("the demo has no case")?;
    let times = case
        .setup
        .iter()
        .map(|s| format!("{} {:.2} s", name(kept, s), s.median_s));
    Ok(times.collect::<Vec<_>>().join(", "))
}

/// What a stranger calls a setup.
fn name(kept: &Kept, s: &KeptSetup) -> String {
    match s.setup.strip_suffix(EARLIER) {
        Some(setup) => format!("{setup}, earlier build"),
        None if s.setup == kept.base => "cold".to_owned(),
        None => s.setup.clone(),
    }
}
