//! What the runs of an experiment say: a table for people, one JSON object for programs.

mod judge;
mod table;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use headstart_model::floor::Above;
use serde::Serialize;

pub use judge::{Judged, judge};
pub use table::table;

use crate::experiment::{Begun, Directory, Floors, Run, Told, floors, told};
use crate::setup::EARLIER;
use headstart_bench::statistics::{bootstrap, centre, deviation, mean, median, outliers, pick};

/// An experiment and what its runs say.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The experiment.
    pub experiment: Begun,
    /// One for each case.
    pub cases: Vec<CaseReport>,
    /// What a reader must know: missing runs, mixed binaries.
    pub notes: Vec<String>,
}

/// One case.
#[derive(Debug, Clone, Serialize)]
pub struct CaseReport {
    /// Name; empty when there is but one.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// The device's best time for what a start of the base setup reads, in seconds: the median.
    pub t_io_seconds: Option<f64>,
    /// The same if those blocks were laid out ideally.
    pub t_io_ideal_seconds: Option<f64>,
    /// The base's time over the warm setup's, of medians.
    pub cold_over_warm: Option<f64>,
    /// In the experiment's order.
    pub setups: Vec<Summary>,
    /// Every run, in order.
    #[serde(skip)]
    pub runs: Vec<Run>,
}

/// A value and its 95 % bootstrap interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Low and high; absent with a single round.
    pub interval: Option<[f64; 2]>,
}

impl Estimate {
    /// In another unit.
    pub fn times(self, factor: f64) -> Estimate {
        Estimate {
            value: self.value * factor,
            interval: self.interval.map(|ends| ends.map(|end| end * factor)),
        }
    }
}

/// A run that a reader must know of.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Noted {
    /// From 1.
    pub round: usize,
    /// Why it was aborted, or its time.
    pub what: String,
}

/// A mark over all rounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MarkSummary {
    /// Name.
    pub name: String,
    /// Runs that have it.
    pub n: usize,
    /// Mean seconds since the start of the run.
    pub mean: f64,
    /// Its standard deviation.
    pub sd: Option<f64>,
}

/// One setup over all rounds of a case. Times in seconds.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Setup name.
    pub setup: String,
    /// Runs that count.
    pub n: usize,
    /// Runs that failed or exceeded the limit; they are in no figure.
    pub aborted: Vec<Noted>,
    /// Runs far from the others; they are in every figure.
    pub outlying: Vec<Noted>,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub sd: Option<f64>,
    /// Least.
    pub min: f64,
    /// Median.
    pub median: f64,
    /// Most.
    pub max: f64,
    /// Median read requests.
    pub reads: f64,
    /// Median bytes read.
    pub bytes: f64,
    /// Bytes read beyond the base's, as a share of the base's; absent for the base, and where that reads
    /// nothing.
    pub more_read: Option<f64>,
    /// Median time in which the disk had a request outstanding.
    pub busy_seconds: f64,
    /// Median time in which some task waited for I/O.
    pub stalled_seconds: Option<f64>,
    /// Median read requests of the start alone, after any preparation.
    pub start_reads: f64,
    /// Median time of the preparation.
    pub prepare_seconds: f64,
    /// Rounds in which both this and the base setup count.
    pub pairs: usize,
    /// Time less the base's of the same round, in seconds.
    pub difference: Option<Estimate>,
    /// The same as a share of the base's time.
    pub relative: Option<Estimate>,
    /// The median of the same differences: what the start of a setup costs that differs from the base in some
    /// rounds only.
    pub median_difference: Option<Estimate>,
    /// The median of the time over the base's of the same round.
    pub median_ratio: Option<Estimate>,
    /// Time over that of the same setup with the earlier build, in the same round.
    pub over_earlier: Option<Estimate>,
    /// R = (base − this) / (base − warm), of medians.
    pub recovered: Option<Estimate>,
    /// L = this / max(warm, T_io), of medians.
    pub above_best: Option<Estimate>,
    /// The least time that any order of reads could give the start on this disk, as headstart reckons it.
    pub floor_seconds: Option<f64>,
    /// L* = this / the floor, of medians.
    pub above_floor: Option<Estimate>,
    /// Where the time of the last start with a replay went above the floor of that one.
    pub above: Option<Above>,
    /// Runs that count and were shorter than the floor: it is not one then.
    pub below_floor: usize,
    /// What the setup said of itself when it had learned, a line.
    pub told: Option<String>,
    /// In order of time.
    pub marks: Vec<MarkSummary>,
}

impl Report {
    /// Sums up what `directory` holds.
    pub fn read(directory: &Path) -> Result<Report> {
        let mut report = Report::new(Directory::begun(directory)?, Directory::runs(directory)?);
        report.hold_against(&floors(directory)?);
        report.add_told(&told(directory)?);
        Ok(report)
    }

    fn add_told(&mut self, told: &Told) {
        for case in &mut self.cases {
            for own in &mut case.setups {
                own.told = told
                    .get(&case.name)
                    .and_then(|setups| setups.get(&own.setup))
                    .cloned();
            }
        }
    }

    fn hold_against(&mut self, floors: &Floors) {
        for case in &mut self.cases {
            for own in &mut case.setups {
                let floor = floors.get(&case.name).and_then(|setups| setups.get(&own.setup));
                let Some(known) = floor.filter(|known| known.floor_seconds > 0.0) else {
                    continue;
                };
                let seconds = |setup: &str| -> Vec<f64> {
                    let runs = counted(setup, &case.runs);
                    runs.iter().map(|run| run.seconds).collect()
                };
                let times = seconds(&own.setup);
                // What a boot computes is not seen by one that waited: the least that one took which read
                // nothing is no less true.
                let warm = self.experiment.warm.as_deref().map(seconds).unwrap_or_default();
                let least_warm = warm.into_iter().reduce(f64::min).unwrap_or(0.0);
                let floor = known.floor_seconds.max(least_warm);
                own.floor_seconds = Some(floor);
                own.above = known.above;
                own.below_floor = times.iter().filter(|time| **time < known.floor_seconds).count();
                own.above_floor = (!times.is_empty()).then(|| Estimate {
                    value: median(&times) / floor,
                    interval: bootstrap(times.len(), |draw| median(&pick(&times, draw)) / floor),
                });
            }
        }
    }

    /// Sums up `runs`.
    pub fn new(experiment: Begun, runs: Vec<Run>) -> Report {
        let mut notes = Vec::new();
        if let Some(asked) = experiment.asked {
            notes.push(format!(
                "{} rounds, where the experiment asks for {asked}",
                experiment.rounds
            ));
        }
        let expected = experiment.cases.len() * experiment.setups.len() * experiment.rounds;
        if runs.len() < expected {
            notes.push(format!("{} of {expected} runs are made", runs.len()));
        }
        if let Some(other) = runs.iter().find(|r| r.programs != experiment.programs) {
            notes.push(format!(
                "runs of different binaries are mixed: {} and {}",
                other.programs, experiment.programs
            ));
        }
        let cases = experiment.cases.iter().map(|(name, title)| {
            let runs: Vec<Run> = runs.iter().filter(|r| r.case == *name).cloned().collect();
            CaseReport::new(&experiment, name, title, runs)
        });
        Report {
            cases: cases.collect(),
            experiment,
            notes,
        }
    }

    /// Writes `results.json` into `directory`.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let mut json = serde_json::to_string_pretty(self)?;
        json.push('\n');
        write(directory, "results.json", &json)
    }
}

fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    let path = directory.join(name);
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

impl CaseReport {
    fn new(experiment: &Begun, name: &str, title: &str, runs: Vec<Run>) -> CaseReport {
        let base = counted(&experiment.base, &runs);
        let middle = |times: Vec<f64>| Some(median(&times)).filter(|_| !times.is_empty());
        let t_io = middle(base.iter().map(|r| r.t_io_seconds).collect());
        let ideal: Option<Vec<f64>> = base.iter().map(|r| r.t_io_ideal_seconds).collect();
        let setups = experiment.setups.iter();
        let warm: Vec<f64> = experiment.warm.as_deref().map_or(Vec::new(), |warm| {
            counted(warm, &runs).iter().map(|r| r.seconds).collect()
        });
        let cold = middle(base.iter().map(|r| r.seconds).collect());
        CaseReport {
            name: name.to_owned(),
            title: title.to_owned(),
            t_io_seconds: t_io,
            t_io_ideal_seconds: ideal.and_then(middle),
            cold_over_warm: cold.zip(middle(warm)).map(|(cold, warm)| cold / warm),
            setups: setups
                .map(|(setup, _)| summary(experiment, setup, &runs, t_io))
                .collect(),
            runs,
        }
    }

    /// The summary of one setup.
    pub fn setup(&self, name: &str) -> Option<&Summary> {
        self.setups.iter().find(|s| s.setup == name)
    }

    /// The share of the gain of the setup `of` over `base` that `setup` does not reach.
    fn gain_lost(&self, setup: &str, base: &str, of: &str) -> Option<Estimate> {
        let others = [base, of].map(|name| counted(name, &self.runs));
        let reached = recovered(&together(&counted(setup, &self.runs), &others))?;
        Some(Estimate {
            value: 1.0 - reached.value,
            interval: reached.interval.map(|[low, high]| [1.0 - high, 1.0 - low]),
        })
    }
}

/// The runs of `setup` that count, by round.
fn counted<'a>(setup: &str, runs: &'a [Run]) -> Vec<&'a Run> {
    let counts = |r: &&Run| r.setup == setup && r.aborted.is_none();
    let mut own: Vec<&Run> = runs.iter().filter(counts).collect();
    own.sort_by_key(|r| r.round);
    own
}

fn summary(experiment: &Begun, setup: &str, runs: &[Run], t_io: Option<f64>) -> Summary {
    let own = counted(setup, runs);
    let times: Vec<f64> = own.iter().map(|r| r.seconds).collect();
    let (base, warm) = (Some(experiment.base.as_str()), experiment.warm.as_deref());
    let together = |names: &[Option<&str>]| -> Option<Vec<Vec<f64>>> {
        let others = names.iter().map(|n| n.map(|n| counted(n, runs)));
        let rows = together(&own, &others.collect::<Option<Vec<_>>>()?);
        Some(rows).filter(|rows| !rows.is_empty())
    };
    let is_base = Some(setup) == base;
    let pairs = if is_base { None } else { together(&[base]) };
    let paired = |value, statistic| pairs.as_ref().map(|rows| estimate(rows, value, statistic));
    let less: fn(&[f64]) -> f64 = |row| row[0] - row[1];
    let twin = format!("{setup}{EARLIER}");
    let earlier = together(&[Some(&twin)]);
    let triples = match is_base || warm == Some(setup) {
        true => None,
        false => together(&[base, warm]),
    };
    let warm_times: Vec<f64> = warm.map_or(Vec::new(), |w| {
        counted(w, runs).iter().map(|r| r.seconds).collect()
    });
    let best = t_io.filter(|_| !warm_times.is_empty() && !own.is_empty());
    let above_best = best.map(|t_io| {
        let rows = together(&[warm]).unwrap_or_default();
        let over = |draw: &[usize]| middle(&rows, draw, 0) / middle(&rows, draw, 1).max(t_io);
        Estimate {
            value: median(&times) / median(&warm_times).max(t_io),
            interval: bootstrap(rows.len(), over),
        }
    });
    let median_of = |value: &dyn Fn(&Run) -> f64| median(&own.iter().map(|r| value(r)).collect::<Vec<_>>());
    let stalled: Option<Vec<f64>> = own.iter().map(|r| r.stalled_seconds).collect();
    let prepare = |run: &Run| -> f64 {
        run.stages
            .iter()
            .filter(|s| s.name == "prepare")
            .map(|s| s.seconds)
            .sum()
    };
    Summary {
        setup: setup.to_owned(),
        n: own.len(),
        aborted: aborted(setup, runs),
        outlying: outliers(&times)
            .into_iter()
            .map(|i| Noted {
                round: own[i].round + 1,
                what: format!("{:.3} s", times[i]),
            })
            .collect(),
        mean: mean(&times),
        sd: deviation(&times),
        min: times.iter().copied().fold(f64::NAN, f64::min),
        median: median(&times),
        max: times.iter().copied().fold(f64::NAN, f64::max),
        reads: median_of(&|r| r.reads as f64),
        bytes: median_of(&|r| r.bytes as f64),
        more_read: base
            .map(|base| counted(base, runs))
            .filter(|base| !is_base && !base.is_empty())
            .map(|base| median(&base.iter().map(|r| r.bytes as f64).collect::<Vec<_>>()))
            .filter(|bytes| *bytes > 0.0 && !own.is_empty())
            .map(|bytes| median_of(&|r| r.bytes as f64) / bytes - 1.0),
        busy_seconds: median_of(&|r| r.busy_seconds),
        stalled_seconds: stalled.filter(|s| !s.is_empty()).map(|s| median(&s)),
        start_reads: median_of(&|r| r.stages.last().map_or(0.0, |s| s.reads as f64)),
        prepare_seconds: median_of(&prepare),
        pairs: pairs.as_ref().map_or(0, Vec::len),
        difference: paired(less, centre),
        relative: paired(|row| row[0] / row[1] - 1.0, centre),
        median_difference: paired(less, median),
        median_ratio: paired(|row| row[0] / row[1], median),
        over_earlier: earlier.map(|rows| estimate(&rows, |row| row[0] / row[1], centre)),
        recovered: triples.and_then(|rows| recovered(&rows)),
        above_best,
        floor_seconds: None,
        above_floor: None,
        above: None,
        below_floor: 0,
        told: None,
        marks: marks(&own),
    }
}

/// A row for each run of `own`: its time, and those of `others` in its round; none where one of them has no
/// run in it.
fn together(own: &[&Run], others: &[Vec<&Run>]) -> Vec<Vec<f64>> {
    let row = |run: &&Run| -> Option<Vec<f64>> {
        let seconds_of_round =
            |others: &Vec<&Run>| others.iter().find(|r| r.round == run.round).map(|r| r.seconds);
        std::iter::once(Some(run.seconds))
            .chain(others.iter().map(seconds_of_round))
            .collect()
    };
    own.iter().filter_map(row).collect()
}

/// A statistic of the values of the rows.
fn estimate(rows: &[Vec<f64>], value: fn(&[f64]) -> f64, statistic: fn(&[f64]) -> f64) -> Estimate {
    let values: Vec<f64> = rows.iter().map(|row| value(row)).collect();
    Estimate {
        value: statistic(&values),
        interval: bootstrap(values.len(), |draw| statistic(&pick(&values, draw))),
    }
}

/// The median of a column of the rows that were drawn.
fn middle(rows: &[Vec<f64>], draw: &[usize], column: usize) -> f64 {
    median(&draw.iter().map(|row| rows[*row][column]).collect::<Vec<_>>())
}

/// R of rows that hold this setup's time, the base's and the warm one's (or of the setup whose gain is the
/// measure); `None` where the base is not slower than warm: there is nothing to recover.
fn recovered(rows: &[Vec<f64>]) -> Option<Estimate> {
    if rows.is_empty() {
        return None;
    }
    let rounds: Vec<usize> = (0..rows.len()).collect();
    let share = |draw: &[usize]| {
        let [own, base, warm] = [0, 1, 2].map(|column| middle(rows, draw, column));
        (base - own) / (base - warm)
    };
    (middle(rows, &rounds, 1) > middle(rows, &rounds, 2)).then(|| Estimate {
        value: share(&rounds),
        interval: bootstrap(rows.len(), share),
    })
}

fn aborted(setup: &str, runs: &[Run]) -> Vec<Noted> {
    let own = runs.iter().filter(|r| r.setup == setup);
    own.filter_map(|r| {
        Some(Noted {
            round: r.round + 1,
            what: r.aborted.clone()?,
        })
    })
    .collect()
}

fn marks(runs: &[&Run]) -> Vec<MarkSummary> {
    let mut names: Vec<&str> = Vec::new();
    for mark in runs.iter().flat_map(|r| &r.marks) {
        if !names.contains(&mark.name.as_str()) {
            names.push(&mark.name);
        }
    }
    let mut marks: Vec<MarkSummary> = names
        .into_iter()
        .map(|name| {
            let mark_seconds = |r: &&Run| r.marks.iter().find(|m| m.name == name).map(|m| m.seconds);
            let times: Vec<f64> = runs.iter().filter_map(mark_seconds).collect();
            MarkSummary {
                name: name.to_owned(),
                n: times.len(),
                mean: mean(&times),
                sd: deviation(&times),
            }
        })
        .collect();
    marks.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    marks
}
