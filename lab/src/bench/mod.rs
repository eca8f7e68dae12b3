//! An experiment: one workload on one disk, several setups in interleaved rounds, every run on a cold machine.

mod report;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

pub use report::{Results, Summary, table};

use crate::disk::Entry;
use crate::image::{Fs, Recipe};
use crate::machine::{self, Kind, Machine, Place, Spec, Stage};
use crate::model::{Extent, Model, Op, merge, t_io};
use crate::registry::Registry;
use crate::setup::Setup;
use crate::{paths, stats};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The program and its image.
    pub recipe: Recipe,
    /// The file system the image is packed in.
    pub fs: Fs,
    /// The disk.
    pub model: Model,
    /// In table order.
    pub setups: Vec<Setup>,
    /// Rounds; each has every setup once.
    pub rounds: usize,
    /// Results go here: `results.json`, `output.log`, the first cold run's requests.
    pub out: PathBuf,
    /// The headstart binary.
    pub headstart: PathBuf,
}

/// One run of one setup.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// From 0.
    pub round: usize,
    /// Setup name.
    pub setup: String,
    /// Sums over the stages.
    pub seconds: f64,
    /// Sum over the stages.
    pub reads: u64,
    /// Sum over the stages.
    pub bytes: u64,
    /// The stages.
    pub stages: Vec<Stage>,
    /// The device's best time for what this run read, in seconds.
    pub t_io_seconds: f64,
}

impl Experiment {
    /// Builds the image if need be, lets each setup learn, measures, and writes the results.
    pub fn run(&self, registry: &Registry) -> Result<Results> {
        if self.setups.iter().any(Setup::needs_headstart) && !self.headstart.is_file() {
            bail!(
                "no headstart at {}: build it (cargo build --release -p headstart) or name it with --headstart",
                self.headstart.display()
            );
        }
        let base = paths::base()?;
        fs::create_dir_all(&self.out).with_context(|| format!("creating {}", self.out.display()))?;
        let learning: usize = self.setups.iter().map(|s| s.record.len()).sum();
        let bar = progress(learning + self.rounds * self.setups.len());
        bar.set_message("image");
        let spec = Spec {
            kind: Kind::Chroot,
            recipe: self.recipe.clone(),
            fs: self.fs,
            model: self.model.clone(),
            memory_mb: None,
            limit: machine::LIMIT,
            base: base.clone(),
            output: self.out.join("output.log"),
        };
        for setup in &self.setups {
            machine::check(&spec, setup)?;
        }
        let mut machine = machine::open(&spec, registry, &|step| bar.set_message(step.to_owned()))?;
        for setup in &self.setups {
            let state = self.state(&base, setup);
            if state.exists() && setup.state_of.is_none() {
                fs::remove_dir_all(&state).with_context(|| format!("removing {}", state.display()))?;
            }
            fs::create_dir_all(&state).with_context(|| format!("creating {}", state.display()))?;
        }
        for setup in &self.setups {
            for command in setup.record.commands() {
                bar.set_message(format!("{}: learning", setup.name));
                let learned = machine
                    .record(setup, &self.place(&base, setup), command)
                    .with_context(|| format!("setup {}", setup.name))?;
                let seconds: f64 = learned.stages.iter().map(|s| s.seconds).sum();
                step(&bar, &format!("{} learning {seconds:.3} s", setup.name));
            }
        }
        let mut runs = Vec::new();
        for round in 0..self.rounds {
            // Each setup comes at each place of a round equally often.
            for place in 0..self.setups.len() {
                let setup = &self.setups[(round + place) % self.setups.len()];
                bar.set_message(format!("round {} of {}: {}", round + 1, self.rounds, setup.name));
                let run = self
                    .measure(machine.as_mut(), &base, setup, round)
                    .with_context(|| format!("round {}, setup {}", round + 1, setup.name))?;
                step(
                    &bar,
                    &format!(
                        "round {} {}: {:.3} s, {} reads",
                        round + 1,
                        setup.name,
                        run.seconds,
                        run.reads
                    ),
                );
                runs.push(run);
            }
        }
        bar.finish_and_clear();
        let results = Results::new(self, runs);
        results.write(&self.out.join("results.json"))?;
        Ok(results)
    }

    fn state(&self, base: &Path, setup: &Setup) -> PathBuf {
        let name = setup.state_of.as_ref().unwrap_or(&setup.name);
        base.join("state").join(name)
    }

    fn place(&self, base: &Path, setup: &Setup) -> Place {
        Place {
            state: self.state(base, setup),
            headstart: self.headstart.clone(),
            workload: self.recipe.name.clone(),
        }
    }

    fn measure(&self, machine: &mut dyn Machine, base: &Path, setup: &Setup, round: usize) -> Result<Run> {
        let measured = machine.run(setup, &self.place(base, setup))?;
        let (stages, log) = (measured.stages, measured.requests);
        if round == 0 {
            write_log(&self.out.join(format!("requests-{}.csv", setup.name)), &log)?;
        }
        Ok(Run {
            round,
            setup: setup.name.clone(),
            seconds: stages.iter().map(|s| s.seconds).sum(),
            reads: stages.iter().map(|s| s.reads).sum(),
            bytes: stages.iter().map(|s| s.bytes).sum(),
            stages,
            t_io_seconds: t_io(&extents(&log), &self.model, machine.size()).as_secs_f64(),
        })
    }
}

/// What a log read, in address order.
fn extents(log: &[Entry]) -> Vec<Extent> {
    let reads = log.iter().filter(|entry| entry.op == Op::Read);
    merge(
        &reads
            .map(|e| Extent {
                offset: e.offset,
                length: e.length,
            })
            .collect::<Vec<_>>(),
        0,
    )
}

fn write_log(path: &Path, log: &[Entry]) -> Result<()> {
    let mut text = format!("{}\n", Entry::CSV_HEADER);
    for entry in log {
        text.push_str(&entry.csv());
        text.push('\n');
    }
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn progress(steps: usize) -> ProgressBar {
    let bar = ProgressBar::new(steps as u64);
    // The template is a constant; the default style is as good when it is refused.
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} [{elapsed} of {duration}] {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(250));
    bar
}

/// One step done; where no bar can be drawn, a line.
fn step(bar: &ProgressBar, line: &str) {
    bar.inc(1);
    if bar.is_hidden() {
        eprintln!("{line}");
    }
}

/// The median over the runs of one setup.
fn median_of(runs: &[Run], setup: &str, value: impl Fn(&Run) -> f64) -> f64 {
    stats::median(
        &runs
            .iter()
            .filter(|r| r.setup == setup)
            .map(value)
            .collect::<Vec<_>>(),
    )
}
