//! Experiments: a question, and the runs that answer it. A TOML file says which setups start on which machine
//! and disk, how often and in which order; [`run`] makes the runs, one line each in `runs.jsonl`, and can be
//! interrupted at any moment.

mod bench;
mod check;
mod file;
mod floor;
mod goal;
mod options;
mod order;
mod part;
mod progress;
mod record;
mod run;
mod told;

use std::collections::BTreeSet;
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};

pub use bench::{demo, side_by_side};
pub use check::check;
pub use file::load;
pub use floor::{Floors, KnownFloor, floors};
pub use goal::{Figure, Goal};
pub use options::Options;
pub use order::schedule;
pub use progress::one_line;
pub use record::{Begun, Directory, Run};
pub use run::run;
pub use told::{Told, told};

use crate::image::{Fs, Recipe};
use crate::kind::Kind;
use crate::machine::Spec;
use crate::model::Model;
use crate::paths;
use crate::setup::{Cache, EARLIER, Setup};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// Name in tables.
    pub name: String,
    /// What the runs are to answer.
    pub question: String,
    /// In table order.
    pub setups: Vec<Setup>,
    /// The setup the others are compared with.
    pub base: String,
    /// Rounds that count; each has every setup once.
    pub rounds: usize,
    /// Rounds that its file asks for, where fewer or more are made.
    pub asked: Option<usize>,
    /// Seed of the order inside rounds.
    pub seed: u64,
    /// A run that takes longer is ended and counts as aborted.
    pub limit: Duration,
    /// The mark at which the measured time begins; the begin of the start when absent.
    pub from: Option<String>,
    /// One after another.
    pub cases: Vec<Case>,
    /// What its figures are held against.
    pub goals: Vec<Goal>,
}

/// One machine with its workload: a table of its own in the report.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name; empty when an experiment has but one.
    pub name: String,
    /// Which machine.
    pub machine: Kind,
    /// What is on its disk.
    pub recipe: Recipe,
    /// Its root file system.
    pub fs: Fs,
    /// Its disk's timing.
    pub model: Model,
    /// Memory of a virtual machine.
    pub memory_mb: Option<u64>,
    /// Emulated processors of a virtual machine.
    pub processors: Option<NonZeroU8>,
    /// How long the server needs for an answer from which the root comes, where it comes from one.
    pub answer: Option<Duration>,
    /// What is in memory when a start begins, for setups that do not say otherwise.
    pub cache: Option<Cache>,
    /// What runs beside each start: the `beside` of this setup.
    pub beside: Option<Setup>,
}

impl Case {
    /// The name for people.
    pub fn title(&self) -> String {
        let memory = self.memory_mb.map_or(String::new(), |m| format!(", {m} MB"));
        let processors = match self.processors.map(NonZeroU8::get) {
            None => String::new(),
            Some(1) => ", one processor".to_owned(),
            Some(count) => format!(", {count} processors"),
        };
        let answer = self.answer.map_or(String::new(), |answer| {
            format!(", {} ms an answer", answer.as_secs_f64() * 1e3)
        });
        let beside = self
            .beside
            .as_ref()
            .map_or(String::new(), |setup| format!(", beside {}", setup.name));
        let what = format!(
            "{} on {}, {}, disk {}{memory}{processors}{answer}{beside}",
            self.recipe.name,
            self.machine.name(),
            self.fs,
            self.model.name
        );
        match self.name.as_str() {
            "" => what,
            name => format!("{name}: {what}"),
        }
    }

    /// `setup` as it is in this case.
    pub fn setup(&self, setup: &Setup) -> Setup {
        let own = self.cache.filter(|_| setup.cache == Cache::Cold);
        let mut setup = Setup {
            cache: own.unwrap_or(setup.cache),
            ..setup.clone()
        };
        if let Some(other) = &self.beside {
            setup.beside.clone_from(&other.beside);
            setup.ready.clone_from(&other.ready);
            setup.file.extend(other.file.clone());
        }
        setup
    }

    /// The name of its directory.
    pub fn directory(&self) -> PathBuf {
        let plain = |c: char| {
            if c.is_ascii_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '_'
            }
        };
        match self.name.as_str() {
            "" => PathBuf::from("case"),
            // Never `.` or `..`.
            name if name.starts_with('.') => {
                PathBuf::from(format!("_{}", name.chars().map(plain).collect::<String>()))
            }
            name => PathBuf::from(name.chars().map(plain).collect::<String>()),
        }
    }
}

impl Experiment {
    /// The same experiment with so many rounds that count: for a first look, or for more certainty.
    pub fn with_rounds(mut self, rounds: usize) -> Result<Experiment> {
        ensure!(rounds > 0, "--rounds 0: at least 1");
        let asked = self.asked.unwrap_or(self.rounds);
        (self.rounds, self.asked) = (rounds, Some(asked).filter(|asked| *asked != rounds));
        Ok(self)
    }

    /// The same experiment with an earlier build of headstart beside this one, in every round: each setup
    /// that calls headstart gets a twin that calls the earlier build and learns by itself, unless it is for
    /// this build only.
    pub fn with_earlier_build(mut self) -> Result<Experiment> {
        let twinned: Vec<String> = self
            .setups
            .iter()
            .filter(|s| s.needs_headstart() && !s.this_build_only)
            .map(|s| s.name.clone())
            .collect();
        ensure!(!twinned.is_empty(), "--earlier: no setup here calls headstart");
        let twin = |setup: &Setup| {
            let mut twin = setup.with_earlier_build();
            for other in [&mut twin.state_of, &mut twin.goes_on_from].into_iter().flatten() {
                if twinned.contains(other) {
                    *other += EARLIER;
                }
            }
            twin
        };
        let with_twins = self.setups.iter().flat_map(|setup| {
            let twin = twinned.contains(&setup.name).then(|| twin(setup));
            std::iter::once(setup.clone()).chain(twin)
        });
        self.setups = with_twins.collect();
        let names: BTreeSet<&str> = self.setups.iter().map(|s| s.name.as_str()).collect();
        ensure!(
            names.len() == self.setups.len(),
            "--earlier: a setup's name ends in {EARLIER} already"
        );
        Ok(self)
    }

    /// The machine of `case`; what it prints goes into `out`.
    fn spec(&self, case: &Case, out: &Path) -> Result<Spec> {
        Ok(Spec {
            kind: case.machine,
            recipe: case.recipe.clone(),
            fs: case.fs,
            model: case.model.clone(),
            memory_mb: case.memory_mb,
            processors: case.processors,
            answer: case.answer,
            limit: self.limit,
            base: paths::base()?,
            output: out.join("output.log"),
        })
    }
}
