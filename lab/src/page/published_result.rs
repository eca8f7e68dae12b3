//! What is kept of an experiment: one small TOML file, from which the pages of figures are made. The runs
//! themselves stay where they were made.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::experiment::Figure;
use crate::host::Host;
use crate::report::{Estimate, Judged, Report, Summary, judge};
use crate::setup::EARLIER;

/// The format written now.
const FORMAT: u32 = 1;

/// An experiment's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedResult {
    /// Version of this format.
    pub format: u32,
    /// The experiment's name, which is the file's, too.
    pub experiment: String,
    /// What the runs are to answer.
    pub question: String,
    /// The commit of the build that was measured.
    pub commit: String,
    /// The commit of the build it was compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<String>,
    /// Day of the last run, UTC.
    pub date: String,
    /// Rounds that count.
    pub rounds: usize,
    /// The setup the others are compared with.
    pub base: String,
    /// The setup that starts with everything in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<String>,
    /// What a reader must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The machine.
    pub host: Host,
    /// In the experiment's order.
    pub case: Vec<KeptCase>,
}

/// One case. Figures that no page prints are ignored: the report of the runs has them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptCase {
    /// Name; empty when there is but one.
    pub name: String,
    /// Name with machine, file system and disk.
    pub title: String,
    /// In the experiment's order.
    pub setup: Vec<KeptSetup>,
    /// Figures beside their goals.
    #[serde(default)]
    pub goal: Vec<KeptGoal>,
}

/// One setup over the rounds that count. Lists are a value and, where there is one, both ends of its 95 %
/// interval. Figures that no page prints are ignored, as for a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptSetup {
    /// Name.
    pub setup: String,
    /// Runs.
    pub n: usize,
    /// Runs that failed and are in no figure.
    pub aborted: usize,
    /// Least time.
    pub min_s: f64,
    /// Median time.
    pub median_s: f64,
    /// Most time.
    pub max_s: f64,
    /// Median read requests.
    pub reads: f64,
    /// Median MiB read.
    pub mib: f64,
    /// Median of the time less the base's of the same round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub median_less_base_s: Vec<f64>,
    /// Median of the time over the base's of the same round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub median_ratio: Vec<f64>,
    /// Time over that of the earlier build in the same round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub over_earlier: Vec<f64>,
    /// R = (base − this) / (base − warm).
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "R")]
    pub recovered: Vec<f64>,
    /// L = this / max(warm, T_io).
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "L")]
    pub above_best: Vec<f64>,
    /// The least time that any order of reads could give the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_s: Option<f64>,
    /// L* = this / the floor.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "L*")]
    pub above_floor: Vec<f64>,
    /// Where the time of its last start with a replay went above the floor of that one: own time, order,
    /// over-read, reads left, computing that waited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub above_s: Vec<f64>,
    /// Runs that count and were shorter than the floor.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub below_floor: usize,
    /// Bytes read beyond the base's, as a share of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_read: Option<f64>,
    /// What the setup said of itself when it had learned, a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told: Option<String>,
}

/// A figure beside its goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptGoal {
    /// Setup name.
    pub setup: String,
    /// Which figure.
    pub figure: Figure,
    /// The setup whose gain is the measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The largest value that meets the goal.
    pub at_most: f64,
    /// The figure and its interval; empty where there is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub value: Vec<f64>,
    /// Whether it is met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
}

impl PublishedResult {
    /// Of `report`, measured with the build of `commit` and, beside it, of `earlier`.
    pub fn new(report: &Report, commit: &str, earlier: Option<&str>) -> PublishedResult {
        let e = &report.experiment;
        let runs = report.cases.iter().flat_map(|case| &case.runs);
        let last = runs.map(|run| run.began).max().unwrap_or(0);
        let cases = report.cases.iter().map(|case| KeptCase {
            name: case.name.clone(),
            title: case.title.clone(),
            setup: case.setups.iter().filter(|s| s.n > 0).map(setup).collect(),
            goal: judge(e, case).iter().map(goal).collect(),
        });
        PublishedResult {
            format: FORMAT,
            experiment: e.name.clone(),
            question: e.question.trim().to_owned(),
            commit: commit.to_owned(),
            earlier: earlier.map(str::to_owned),
            date: date(last),
            rounds: e.rounds,
            base: e.base.clone(),
            warm: e.warm.clone(),
            notes: report.notes.clone(),
            host: e.host.clone().unwrap_or_default(),
            case: cases.collect(),
        }
    }

    /// Reads what was kept as `name` in `directory`.
    pub fn load(directory: &Path, name: &str) -> Result<PublishedResult> {
        let path = directory.join(format!("{name}.toml"));
        let text = fs::read_to_string(&path).with_context(|| {
            format!(
                "reading {}: `headstart-lab keep DIR` puts it there after the experiment {name} has run",
                path.display()
            )
        })?;
        let kept: PublishedResult = toml::from_str(&text).with_context(|| path.display().to_string())?;
        ensure!(
            kept.format == FORMAT,
            "{}: format {}, this program knows {FORMAT}",
            path.display(),
            kept.format
        );
        Ok(kept)
    }

    /// The same without the setups of the earlier build: what `headstart-lab demo` prints where there is
    /// none.
    pub fn without_earlier(mut self) -> PublishedResult {
        for case in &mut self.case {
            case.setup.retain(|s| !s.setup.ends_with(EARLIER));
        }
        self
    }

    /// Writes it into `directory`, under the experiment's name; returns the file.
    pub fn write(&self, directory: &Path) -> Result<PathBuf> {
        if self.case.iter().all(|case| case.setup.is_empty()) {
            bail!("experiment {}: no run counts, nothing is kept", self.experiment);
        }
        fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
        let path = directory.join(format!("{}.toml", self.experiment));
        fs::write(&path, toml::to_string(self)?).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

impl KeptCase {
    /// The setup called `name`.
    pub fn setup(&self, name: &str) -> Option<&KeptSetup> {
        self.setup.iter().find(|s| s.setup == name)
    }

    /// What a table calls it.
    pub fn shown(&self) -> &str {
        match self.name.as_str() {
            "" => &self.title,
            name => name,
        }
    }
}

impl KeptGoal {
    /// Missed, not merely unmeasured.
    pub fn missed(&self) -> bool {
        self.met == Some(false)
    }
}

fn setup(s: &Summary) -> KeptSetup {
    KeptSetup {
        setup: s.setup.clone(),
        n: s.n,
        aborted: s.aborted.len(),
        min_s: round(s.min),
        median_s: round(s.median),
        max_s: round(s.max),
        reads: s.reads,
        mib: round(s.bytes / f64::from(1 << 20)),
        median_less_base_s: list(s.median_difference),
        median_ratio: list(s.median_ratio),
        over_earlier: list(s.over_earlier),
        recovered: list(s.recovered),
        above_best: list(s.above_best),
        floor_s: s.floor_seconds.map(round),
        above_floor: list(s.above_floor),
        above_s: s.above.map_or(Vec::new(), |above| {
            above
                .parts()
                .iter()
                .map(|(_, ns)| round(*ns as f64 / 1e9))
                .collect()
        }),
        below_floor: s.below_floor,
        more_read: s.more_read.map(round),
        told: s.told.clone(),
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn goal(judged: &Judged) -> KeptGoal {
    KeptGoal {
        setup: judged.setup.clone(),
        figure: judged.figure,
        of: judged.of.clone(),
        at_most: judged.at_most,
        value: list(judged.value),
        met: judged.met(),
    }
}

fn list(estimate: Option<Estimate>) -> Vec<f64> {
    let Some(estimate) = estimate else {
        return Vec::new();
    };
    let ends = estimate.interval.into_iter().flatten();
    std::iter::once(estimate.value).chain(ends).map(round).collect()
}

/// To 10 µs, or as fine a share: the digits behind are noise, and would change with every run of the same.
fn round(value: f64) -> f64 {
    (value * 1e5).round() / 1e5
}

/// The day of `seconds` since 1970, UTC: days to civil date by eras of 400 years that begin on 1 March.
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let of_month = day - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    format!("{}-{month:02}-{of_month:02}", era * 400 + year + later)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, day) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_795_392_000, "2026-11-23"),
        ] {
            assert_eq!(date(seconds), day);
        }
    }
}
