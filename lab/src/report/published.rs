//! Ours beside figures that others published (`lab/seeds.toml`): the same question, other machines; what can be compared is the gain.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{Report, Summary};

/// Published figures.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Where they come from.
    pub source: String,
    /// All of them.
    pub figure: Vec<Figure>,
}

/// One published figure, in seconds.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Group, such as `boot`.
    pub table: String,
    /// Test in it.
    pub test: String,
    /// What was measured, such as `office`.
    pub case: String,
    /// With which tool.
    pub setup: String,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub sd: Option<f64>,
    /// Runs.
    pub runs: Option<u32>,
    /// Mean time the processor waited for the disk, in ticks of 1/100 s.
    pub io_ticks: Option<f64>,
}

impl Figures {
    /// Reads a file of figures.
    pub fn load(path: &Path) -> Result<Figures> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }

    fn find(&self, table: &str, test: &str, case: &str, setup: &str) -> Option<&Figure> {
        let same = |f: &&Figure| f.table == table && f.test == test && f.case == case && f.setup == setup;
        self.figure.iter().find(same)
    }
}

/// What is ours of a figure.
struct Ours {
    mean: f64,
    sd: Option<f64>,
    stalled: Option<f64>,
    busy: Option<f64>,
}

impl Ours {
    fn new(own: &Summary, between: Option<&[String; 2]>) -> Ours {
        let Some(marks) = between else {
            return Ours {
                mean: own.mean,
                sd: own.sd,
                stalled: own.stalled_seconds,
                busy: Some(own.busy_seconds),
            };
        };
        let at = |name: &String| {
            let mark = own.marks.iter().find(|m| m.name == *name);
            mark.map_or(f64::NAN, |m| m.mean)
        };
        Ours {
            mean: at(&marks[1]) - at(&marks[0]),
            sd: None,
            stalled: None,
            busy: None,
        }
    }
}

/// The gain over a base time: 0.1 for a tenth less.
fn gain(base: f64, this: f64) -> f64 {
    1.0 - this / base
}

/// Ours beside theirs, as text, with the ratio of the gains. A figure that the file lacks is an error.
pub fn against(report: &Report, figures: &Figures) -> Result<String> {
    let mut text = format!("Published: {}\n\n", figures.source);
    let _ = writeln!(
        text,
        "{:<16} {:<40} {:>8} {:>5} {:>7} {:>7}   {:<24} {:>8} {:>5} {:>7} {:>7} {:>7} {:>6}",
        "published",
        "case, setup",
        "mean s",
        "sd",
        "blocked",
        "gain",
        "ours",
        "mean s",
        "sd",
        "blocked",
        "busy",
        "gain",
        "ratio"
    );
    let sd = |sd: Option<f64>| sd.map_or("–".into(), |sd| format!("{sd:.2}"));
    for p in &report.experiment.published {
        for (our_case, case) in &p.case {
            for (our_setup, setup) in &p.setup {
                let lookup = |setup: &str| {
                    figures.find(&p.table, &p.test, case, setup).with_context(|| {
                        format!(
                            "no figure for table {:?}, test {:?}, case {case:?}, setup {setup:?}",
                            p.table, p.test
                        )
                    })
                };
                let theirs = lookup(setup)?;
                let their_base = lookup(p.setup.get(&p.base).context("the base has no published setup")?)?;
                let is_base = *our_setup == p.base;
                let their_gain = gain(their_base.mean, theirs.mean);
                let case_report = report.cases.iter().find(|c| c.name == *our_case);
                let of = |name: &str| {
                    let own = case_report.and_then(|c| c.setup(name)).filter(|s| s.n > 0)?;
                    Some(Ours::new(own, p.between.as_ref())).filter(|own| own.mean.is_finite())
                };
                let shown = |gain: f64| {
                    if is_base {
                        String::new()
                    } else {
                        format!("{:.1} %", gain * 100.0)
                    }
                };
                let [mean, own_sd, stalled, busy, own_gain, ratio] = match (of(our_setup), of(&p.base)) {
                    (Some(own), Some(base)) => {
                        let own_gain = gain(base.mean, own.mean);
                        // A ratio to a gain that was none says nothing.
                        let ratio = match is_base || their_gain <= 0.0 {
                            true => String::new(),
                            false => format!("{:.1}", own_gain / their_gain),
                        };
                        [
                            format!("{:.2}", own.mean),
                            sd(own.sd),
                            sd(own.stalled),
                            sd(own.busy),
                            shown(own_gain),
                            ratio,
                        ]
                    }
                    _ => ["not run", "", "", "", "", ""].map(str::to_owned),
                };
                let blocked = sd(theirs.io_ticks.map(|ticks| ticks / 100.0));
                let _ = writeln!(
                    text,
                    "{:<16} {:<40} {:>8.2} {:>5} {blocked:>7} {:>7}   {:<24} {mean:>8} {own_sd:>5} {stalled:>7} {busy:>7} {own_gain:>7} {ratio:>6}",
                    format!("{} {}", p.table, p.test),
                    format!("{case}, {setup}"),
                    theirs.mean,
                    sd(theirs.sd),
                    shown(their_gain),
                    if our_case.is_empty() {
                        our_setup.clone()
                    } else {
                        format!("{our_case}, {our_setup}")
                    },
                );
            }
        }
    }
    Ok(text)
}
