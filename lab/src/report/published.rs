//! Ours beside figures that others published (`lab/seeds.toml`): the same question, other machines; what can
//! be compared is the gain.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{Report, Summary};
use crate::experiment::Published;

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

/// A figure of theirs and of ours.
struct Pair<'a> {
    published: &'a Published,
    /// Case and setup.
    our_names: [&'a str; 2],
    their_names: [&'a str; 2],
    is_base: bool,
    theirs: &'a Figure,
    their_gain: f64,
    ours: Option<Ours>,
    /// None where our base was not run.
    our_gain: Option<f64>,
}

/// Ours beside theirs, as text, with the ratio of the gains; cases and setups in the experiment's order. A
/// figure that the file lacks is an error.
pub fn against(report: &Report, figures: &Figures) -> Result<String> {
    let head = [
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
        "ratio",
    ];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(pairs(report, figures)?.iter().map(row));
    let mut text = format!("Published: {}\n\n", figures.source);
    text += &columns(&rows, &[0, 1, 6]);
    Ok(text)
}

/// Every figure that an experiment repeats.
fn pairs<'a>(report: &'a Report, figures: &'a Figures) -> Result<Vec<Pair<'a>>> {
    let mut pairs = Vec::new();
    for published in &report.experiment.published {
        for (our_case, _) in &report.experiment.cases {
            for (our_setup, _) in &report.experiment.setups {
                let (case, setup) = (published.case.get(our_case), published.setup.get(our_setup));
                if let (Some(case), Some(setup)) = (case, setup) {
                    pairs.push(pair(
                        report,
                        figures,
                        published,
                        [our_case, our_setup],
                        [case, setup],
                    )?);
                }
            }
        }
    }
    Ok(pairs)
}

/// One figure of theirs and ours.
fn pair<'a>(
    report: &Report,
    figures: &'a Figures,
    published: &'a Published,
    [our_case, our_setup]: [&'a str; 2],
    [case, setup]: [&'a str; 2],
) -> Result<Pair<'a>> {
    let Published { table, test, .. } = published;
    let lookup = |setup: &str| {
        let missing =
            || format!("no figure for table {table:?}, test {test:?}, case {case:?}, setup {setup:?}");
        figures.find(table, test, case, setup).with_context(missing)
    };
    let base = published.setup.get(&published.base);
    let (theirs, their_base) = (
        lookup(setup)?,
        lookup(base.context("the base has no published setup")?)?,
    );
    let case_report = report.cases.iter().find(|c| c.name == *our_case);
    let own = |name: &str| {
        let own = case_report.and_then(|c| c.setup(name)).filter(|s| s.n > 0)?;
        Some(Ours::new(own, published.between.as_ref())).filter(|own| own.mean.is_finite())
    };
    let (ours, our_base) = (own(our_setup), own(&published.base));
    Ok(Pair {
        published,
        our_names: [our_case, our_setup],
        their_names: [case, setup],
        is_base: our_setup == published.base,
        theirs,
        their_gain: gain(their_base.mean, theirs.mean),
        our_gain: (ours.as_ref().zip(our_base)).map(|(own, base)| gain(base.mean, own.mean)),
        ours,
    })
}

/// Those of a case and a setup that say something.
fn names(names: [&str; 2]) -> String {
    let said: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    said.join(", ")
}

/// One line of the table.
fn row(pair: &Pair<'_>) -> [String; 13] {
    let shown = |gain: f64| Some(format!("{:.1} %", gain * 100.0)).filter(|_| !pair.is_base);
    let two = |value: Option<f64>| value.map_or("–".into(), |value| format!("{value:.2}"));
    let [mean, sd, stalled, busy, own_gain, ratio] = match &pair.ours {
        Some(own) => {
            // A ratio to a gain that was none says nothing.
            let ratio = pair.our_gain.filter(|_| !pair.is_base && pair.their_gain > 0.0);
            [
                two(Some(own.mean)),
                two(own.sd),
                two(own.stalled),
                two(own.busy),
                pair.our_gain.and_then(shown).unwrap_or_default(),
                ratio.map_or(String::new(), |gain| format!("{:.1}", gain / pair.their_gain)),
            ]
        }
        None => ["not run", "", "", "", "", ""].map(str::to_owned),
    };
    [
        format!("{} {}", pair.published.table, pair.published.test),
        names(pair.their_names),
        format!("{:.2}", pair.theirs.mean),
        two(pair.theirs.sd),
        two(pair.theirs.io_ticks.map(|ticks| ticks / 100.0)),
        shown(pair.their_gain).unwrap_or_default(),
        names(pair.our_names),
        mean,
        sd,
        stalled,
        busy,
        own_gain,
        ratio,
    ]
}

/// Rows as columns as wide as they need be: those in `words` to the left, numbers to the right.
fn columns<const N: usize>(rows: &[[String; N]], words: &[usize]) -> String {
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, width))| {
                if words.contains(&column) {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
        let line = cells.collect::<Vec<_>>().join("  ");
        text += line.trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::load;

    #[test]
    fn what_our_experiments_compare_with_was_published() {
        let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
        let figures = Figures::load(&lab.join("seeds.toml")).unwrap();
        let mut compared = 0;
        for entry in std::fs::read_dir(lab.join("experiments")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let experiment = load(&path).unwrap();
            for Published {
                table,
                test,
                case,
                setup,
                base,
                ..
            } in &experiment.published
            {
                assert!(
                    setup.contains_key(base),
                    "{}: {table} {test}: {base}",
                    path.display()
                );
                for (case, setup) in case
                    .values()
                    .flat_map(|case| setup.values().map(move |setup| (case, setup)))
                {
                    let figure = figures.find(table, test, case, setup);
                    assert!(
                        figure.is_some(),
                        "{}: {table} {test}, {case}, {setup}",
                        path.display()
                    );
                    compared += 1;
                }
            }
        }
        assert!(compared > 20, "{compared}");
    }
}
