//! What the runs of an experiment say: one table for people, one JSON object for programs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{Experiment, Run, median_of};
use crate::stats::{bootstrap, median, pick};

/// An experiment and its runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// Workload name.
    pub workload: String,
    /// Hash of the recipe the image was made from.
    pub recipe: String,
    /// File system.
    pub fs: String,
    /// Disk model name.
    pub disk: String,
    /// Rounds asked for.
    pub rounds: usize,
    /// Kernel release.
    pub kernel: String,
    /// Processors.
    pub processors: usize,
    /// The device's best time for what a cold start reads, in seconds: the median over the cold runs.
    pub t_io_seconds: Option<f64>,
    /// One for each setup, in the order of the experiment.
    pub summary: Vec<Summary>,
    /// Every run, in order.
    pub runs: Vec<Run>,
}

/// One setup over all rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    /// Setup name.
    pub setup: String,
    /// Seconds: median, least, most.
    pub seconds: [f64; 3],
    /// Median read requests.
    pub reads: f64,
    /// Median bytes read.
    pub bytes: f64,
    /// Median seconds in which the disk had a request outstanding.
    pub busy_seconds: f64,
    /// Median read requests of the start alone, after any preparation.
    pub start_reads: f64,
    /// Median time of the preparation in seconds.
    pub prepare_seconds: f64,
    /// Median over rounds of time / cold time of the same round, with its 95 % interval.
    pub against_cold: Option<Estimate>,
    /// R = (cold − this) / (cold − warm), of medians.
    pub recovered: Option<Estimate>,
    /// L = this / max(warm, T_io), of medians.
    pub above_best: Option<f64>,
}

/// A value and its 95 % bootstrap interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// Low and high; absent with a single round.
    pub interval: Option<[f64; 2]>,
}

impl Results {
    /// Sums up the runs.
    pub fn new(experiment: &Experiment, runs: Vec<Run>) -> Results {
        let names: Vec<String> = experiment.setups.iter().map(|s| s.name.clone()).collect();
        let t_io = names
            .iter()
            .any(|n| n == "none")
            .then(|| median_of(&runs, "none", |r| r.t_io_seconds));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Results {
            workload: experiment.recipe.name.clone(),
            recipe: experiment.recipe.hash(),
            fs: experiment.fs.to_string(),
            disk: experiment.model.name.clone(),
            rounds: experiment.rounds,
            kernel: kernel.trim().to_owned(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            t_io_seconds: t_io,
            summary: names.iter().map(|name| summary(name, &runs, t_io)).collect(),
            runs,
        }
    }

    /// Writes `results.json`.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }
}

/// Times of one setup by round.
fn times(runs: &[Run], setup: &str) -> Vec<f64> {
    let mut own: Vec<&Run> = runs.iter().filter(|r| r.setup == setup).collect();
    own.sort_by_key(|r| r.round);
    own.iter().map(|r| r.seconds).collect()
}

fn summary(setup: &str, runs: &[Run], t_io: Option<f64>) -> Summary {
    let (own, cold, warm) = (times(runs, setup), times(runs, "none"), times(runs, "warm"));
    let paired = own.len() == cold.len() && !own.is_empty();
    let against_cold = (setup != "none" && paired).then(|| {
        let ratios: Vec<f64> = own.iter().zip(&cold).map(|(o, c)| o / c).collect();
        let interval = bootstrap(ratios.len(), |draw| median(&pick(&ratios, draw)));
        Estimate {
            value: median(&ratios),
            interval,
        }
    });
    let other = setup != "none" && setup != "warm";
    let recovered = (other && paired && warm.len() == own.len()).then(|| {
        let share = |own: &[f64], cold: &[f64], warm: &[f64]| {
            let cold = median(cold);
            (cold - median(own)) / (cold - median(warm))
        };
        let interval = bootstrap(own.len(), |d| {
            share(&pick(&own, d), &pick(&cold, d), &pick(&warm, d))
        });
        Estimate {
            value: share(&own, &cold, &warm),
            interval,
        }
    });
    let above_best = match (t_io, warm.is_empty()) {
        (Some(t_io), false) => Some(median(&own) / median(&warm).max(t_io)),
        _ => None,
    };
    let start = |run: &Run| run.stages.last().map_or(0.0, |s| s.reads as f64);
    let prepare = |run: &Run| {
        run.stages
            .split_last()
            .map_or(0.0, |(_, p)| p.iter().map(|s| s.seconds).sum())
    };
    let low = own.iter().copied().fold(f64::INFINITY, f64::min);
    let high = own.iter().copied().fold(0.0, f64::max);
    Summary {
        setup: setup.to_owned(),
        seconds: [median(&own), low, high],
        reads: median_of(runs, setup, |r| r.reads as f64),
        bytes: median_of(runs, setup, |r| r.bytes as f64),
        busy_seconds: median_of(runs, setup, |r| r.stages.iter().map(|s| s.busy_seconds).sum()),
        start_reads: median_of(runs, setup, start),
        prepare_seconds: median_of(runs, setup, prepare),
        against_cold,
        recovered,
        above_best,
    }
}

/// The results as a table.
pub fn table(results: &Results) -> String {
    let Results {
        workload,
        fs,
        disk,
        rounds,
        t_io_seconds,
        ..
    } = results;
    let t_io = t_io_seconds.map(|t| format!("; the disk's best for the cold start's blocks: {t:.3} s"));
    let mut text = format!(
        "{workload} on {fs}, disk {disk}, {rounds} rounds{}\n\n",
        t_io.unwrap_or_default()
    );
    text += &format!(
        "{:<14} {:>9} {:>8} {:>8} {:>7} {:>7} {:>9}  {:<22} {:<22} {:>5}\n",
        "setup", "median s", "min", "max", "reads", "MiB", "disk busy", "of cold (95 %)", "R (95 %)", "L"
    );
    for s in &results.summary {
        let [middle, low, high] = s.seconds;
        let shares = [s.against_cold, s.recovered].map(|e| e.map_or(String::new(), percent));
        text += &format!(
            "{:<14} {middle:>9.3} {low:>8.3} {high:>8.3} {:>7.0} {:>7.1} {:>9.2}  {:<22} {:<22} {:>5}\n",
            s.setup,
            s.reads,
            s.bytes / f64::from(1 << 20),
            s.busy_seconds,
            shares[0],
            shares[1],
            s.above_best.map_or(String::new(), |l| format!("{l:.2}")),
        );
    }
    for s in results.summary.iter().filter(|s| s.prepare_seconds > 0.0) {
        let (own, reads) = (s.seconds[0] - s.prepare_seconds, s.start_reads);
        text += &format!(
            "{}: {:.3} s before the start, {own:.3} s for the start, which had {reads:.0} reads left\n",
            s.setup, s.prepare_seconds
        );
    }
    text
}

fn percent(estimate: Estimate) -> String {
    let value = estimate.value * 100.0;
    match estimate.interval {
        Some([low, high]) => format!("{value:.1} % ({:.1}–{:.1})", low * 100.0, high * 100.0),
        None => format!("{value:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs() -> Vec<Run> {
        let mut runs = Vec::new();
        for round in 0..5 {
            for (setup, seconds, reads) in [("none", 2.0, 1000), ("tool", 0.6, 1100), ("warm", 0.5, 0)] {
                let seconds = seconds * (1.0 + 0.01 * round as f64);
                let stage = Stage {
                    name: "start".into(),
                    seconds,
                    reads,
                    bytes: reads * 4096,
                    busy_seconds: 0.0,
                    stalled_seconds: None,
                };
                runs.push(Run {
                    round,
                    setup: setup.into(),
                    seconds,
                    reads,
                    bytes: reads * 4096,
                    stages: vec![stage],
                    t_io_seconds: 0.4,
                });
            }
        }
        runs
    }

    use crate::machine::Stage;

    #[test]
    fn recovered_share_and_distance_from_the_best() {
        let s = summary("tool", &runs(), Some(0.4));
        let r = s.recovered.unwrap();
        assert!((r.value - 1.4 / 1.5).abs() < 1e-9);
        let [low, high] = r.interval.unwrap();
        assert!(low <= r.value && r.value <= high);
        assert!(
            (s.above_best.unwrap() - 1.2).abs() < 1e-9,
            "warm is above T_io here"
        );
        let slow_disk = summary("tool", &runs(), Some(0.612));
        assert!(
            (slow_disk.above_best.unwrap() - 1.0).abs() < 1e-9,
            "here T_io is above warm"
        );
        assert!((s.against_cold.unwrap().value - 0.3).abs() < 1e-9);
    }

    #[test]
    fn cold_and_warm_have_no_share_of_their_own() {
        assert!(summary("none", &runs(), None).against_cold.is_none());
        assert!(summary("warm", &runs(), None).recovered.is_none());
    }

    #[test]
    fn without_a_cold_setup_nothing_is_compared() {
        let only: Vec<Run> = runs().into_iter().filter(|r| r.setup == "tool").collect();
        let s = summary("tool", &only, None);
        assert!(s.against_cold.is_none() && s.recovered.is_none() && s.above_best.is_none());
    }
}
