//! Makes the runs of an experiment that are not made yet.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::order::Step;
use super::part::{Part, read_by};
use super::progress::{Progress, one_line};
use super::{Begun, Case, Directory, Experiment, Options, Run, check, floor, schedule, told};
use crate::disk::Entry;
use crate::machine::{self, Machine, Measured, Place};
use crate::model::{cost, ideal, t_io};
use crate::pageout;
use crate::registry::Registry;
use crate::setup::{Build, Cache, Setup};
use crate::tools;

/// A setup that fails so often in a row is broken, not unlucky.
const PATIENCE: usize = 3;

/// How far a setup has got, kept beside its state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Learned {
    installed: bool,
    starts: usize,
    learned: bool,
}

/// Checks, then makes every run that `options.out` does not hold yet.
pub fn run(experiment: &Experiment, options: &Options, registry: &Registry) -> Result<()> {
    let out = std::path::absolute(&options.out)?;
    check(experiment, options)?;
    let needs = experiment.setups.iter().any(Setup::needs_headstart);
    let builds = [
        Some(&options.headstart).filter(|_| needs),
        options.earlier.as_ref(),
    ];
    let profiles = experiment.setups.iter().map(|setup| setup.profile.as_ref());
    let made_of: Vec<_> = builds.into_iter().chain(profiles).flatten().collect();
    let begun = Begun::new(experiment, &made_of)?;
    if options.again {
        forget(&out)?;
    }
    let (mut directory, runs) = Directory::open(&out, &begun, options.mixed)?;
    let steps = schedule(
        experiment.cases.len(),
        experiment.rounds,
        experiment.setups.len(),
        experiment.seed,
    );
    let made = |step: &Step| {
        let (case, setup) = (
            &experiment.cases[step.case].name,
            &experiment.setups[step.setup].name,
        );
        runs.iter()
            .any(|r| r.round == step.round && r.case == *case && r.setup == *setup)
    };
    let todo: Vec<Step> = steps.iter().copied().filter(|step| !made(step)).collect();
    let progress = Progress::new(steps.len(), steps.len() - todo.len());
    if todo.len() < steps.len() {
        progress.line(&format!(
            "{}: {} runs are there, {} to go",
            out.display(),
            steps.len() - todo.len(),
            todo.len()
        ));
    }
    let mut session = Session {
        experiment,
        out,
        headstart: options.headstart.clone(),
        earlier: options.earlier.clone(),
        programs: begun.programs,
        failed: vec![0; experiment.setups.len()],
        progress,
    };
    for (number, case) in experiment.cases.iter().enumerate() {
        let own: Vec<Step> = todo.iter().copied().filter(|step| step.case == number).collect();
        if !own.is_empty() {
            session.case(case, &own, &mut directory, registry)?;
        }
    }
    session.progress.finish();
    Ok(())
}

/// Removes what an earlier experiment left at `out`, and nothing else.
fn forget(out: &Path) -> Result<()> {
    let own = [
        "runs.jsonl",
        "experiment.json",
        "output.log",
        "state",
        "requests",
        floor::FILE,
        told::FILE,
    ];
    for name in own {
        let path = out.join(name);
        let result = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        match result {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).with_context(|| format!("removing {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

struct Session<'a> {
    experiment: &'a Experiment,
    out: PathBuf,
    headstart: PathBuf,
    earlier: Option<PathBuf>,
    programs: String,
    /// Aborted runs in a row, by setup.
    failed: Vec<usize>,
    progress: Progress,
}

impl Session<'_> {
    /// All missing runs of one case.
    fn case(
        &mut self,
        case: &Case,
        todo: &[Step],
        directory: &mut Directory,
        registry: &Registry,
    ) -> Result<()> {
        let spec = self.experiment.spec(case, &self.out)?;
        self.progress.line(&case.title());
        let mut machine = machine::open(&spec, registry, &|step| self.progress.doing(step))?;
        for setup in &self.experiment.setups {
            self.learn(machine.as_mut(), case, &case.setup(setup))
                .with_context(|| format!("setup {}: learning", setup.name))?;
            if !setup.tell.is_empty() {
                let names = [case.name.as_str(), setup.name.as_str()];
                told::ask(
                    machine.as_mut(),
                    &self.place(case, setup),
                    &setup.tell,
                    &self.out,
                    names,
                )
                .with_context(|| format!("setup {}: what it tells", setup.name))?;
            }
        }
        self.runs(machine.as_mut(), case, todo, directory)?;
        for setup in self
            .experiment
            .setups
            .iter()
            .filter(|setup| !setup.floor.is_empty())
        {
            self.progress.doing(&format!("{}: its floor", setup.name));
            let place = self.place(case, setup);
            let names = [case.name.as_str(), setup.name.as_str()];
            // An earlier build may know of no floor.
            if let Err(error) = floor::ask(
                machine.as_mut(),
                &place,
                &setup.floor,
                &self.out,
                names,
                &case.model,
            ) {
                let why = one_line(&format!("{error:#}"));
                self.progress.line(&format!("{}: no floor: {why}", setup.name));
            }
        }
        Ok(())
    }

    /// The missing runs, one after another.
    fn runs(
        &mut self,
        machine: &mut dyn Machine,
        case: &Case,
        todo: &[Step],
        directory: &mut Directory,
    ) -> Result<()> {
        for step in todo {
            let setup = &case.setup(&self.experiment.setups[step.setup]);
            self.progress.doing(&format!(
                "round {} of {}: {}",
                step.round + 1,
                self.experiment.rounds,
                setup.name
            ));
            // What is kept from the run before is to be there still.
            if setup.cache != Cache::Kept {
                wait_for_pageout();
            }
            let began = SystemTime::now();
            let result = machine.run(setup, &self.place(case, setup));
            let run = self.finished(case, *step, began, result, machine.size())?;
            directory.add(&run)?;
            let said = match &run.aborted {
                None => format!(
                    "{:.3} s, {} reads, {:.1} MiB",
                    run.seconds,
                    run.reads,
                    run.bytes as f64 / f64::from(1 << 20)
                ),
                Some(why) => format!("aborted: {}", one_line(why)),
            };
            self.progress
                .run(&format!("round {} {}: {said}", step.round + 1, setup.name));
            let failed = &mut self.failed[step.setup];
            *failed = if run.aborted.is_some() { *failed + 1 } else { 0 };
            if *failed >= PATIENCE {
                bail!(
                    "setup {} failed {PATIENCE} times in a row; the last: {}",
                    setup.name,
                    run.aborted.unwrap_or_default()
                );
            }
        }
        Ok(())
    }

    fn finished(
        &self,
        case: &Case,
        step: Step,
        began: SystemTime,
        result: Result<Measured>,
        size: u64,
    ) -> Result<Run> {
        let setup = &self.experiment.setups[step.setup];
        let mut aborted = None;
        let measured = result.unwrap_or_else(|error| {
            aborted = Some(format!("{error:#}"));
            Measured::default()
        });
        let Measured {
            stages,
            marks,
            requests,
        } = measured;
        let mut part = Part::whole(&stages, &requests);
        if aborted.is_none() {
            let from = self.experiment.from.as_deref();
            match from.map(|from| Part::since(from, &marks, &requests)).transpose() {
                Ok(since) => part = since.unwrap_or(part),
                Err(error) => aborted = Some(error.to_string()),
            }
        }
        if step.round == 0 {
            let directory = self.out.join("requests").join(case.directory());
            fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
            write_log(&directory.join(format!("{}.csv", setup.name)), &requests)?;
        }
        let needed = read_by(&part.requests);
        let stalled: Option<f64> = stages.iter().map(|s| s.stalled_seconds).sum();
        Ok(Run {
            case: case.name.clone(),
            round: step.round,
            setup: setup.name.clone(),
            began: began.duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()),
            seconds: if aborted.is_some() { 0.0 } else { part.seconds },
            reads: part.reads,
            bytes: part.bytes,
            busy_seconds: part.busy_seconds,
            stalled_seconds: stalled.filter(|_| !stages.is_empty()),
            t_io_seconds: t_io(&needed, &case.model, size).as_secs_f64(),
            t_io_ideal_seconds: Some(t_io(&ideal(&needed), &case.model, size).as_secs_f64()),
            stages,
            marks,
            aborted,
            programs: self.programs.clone(),
        })
    }

    fn place(&self, case: &Case, setup: &Setup) -> Place {
        let name = setup.state_of.as_ref().unwrap_or(&setup.name);
        Place {
            state: self.out.join("state").join(case.directory()).join(name),
            headstart: match (setup.build, &self.earlier) {
                (Build::Earlier, Some(earlier)) => earlier.clone(),
                _ => self.headstart.clone(),
            },
            workload: case.recipe.name.clone(),
            disk: cost(&case.model),
            at_once: setup.install_at_once,
            // Commands run in other directories.
            profile: (setup.profile.as_ref())
                .map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone())),
        }
    }

    /// Installs and records what is not yet.
    fn learn(&self, machine: &mut dyn Machine, case: &Case, setup: &Setup) -> Result<()> {
        if setup.state_of.is_some() {
            return Ok(());
        }
        let place = self.place(case, setup);
        fs::create_dir_all(&place.state).with_context(|| format!("creating {}", place.state.display()))?;
        let file = place.beside("json");
        setup.write_files(&place.files())?;
        let mut learned = read(&file)?;
        let other = setup.goes_on_from.as_ref();
        let other = self.experiment.setups.iter().find(|s| Some(&s.name) == other);
        if let (false, Some(other)) = (learned.installed, other) {
            learned = take_over(&self.place(case, other), &place)?;
            write(&file, &learned)?;
        }
        if !learned.installed {
            if !setup.install.is_empty() {
                self.progress.doing(&format!("{}: installing", setup.name));
                machine.install(&place, &setup.install)?;
            }
            learned.installed = true;
            write(&file, &learned)?;
        }
        for command in setup.record.commands().into_iter().skip(learned.starts) {
            self.progress.doing(&format!("{}: learning", setup.name));
            wait_for_pageout();
            let measured = machine.record(setup, &place, command)?;
            learned.starts += 1;
            write(&file, &learned)?;
            let seconds: f64 = measured.stages.iter().map(|s| s.seconds).sum();
            self.progress.line(&format!(
                "{} learned from start {} in {seconds:.3} s",
                setup.name, learned.starts
            ));
        }
        if !learned.learned && !setup.learn.is_empty() {
            machine.install(&place, &setup.learn)?;
            learned.learned = true;
            write(&file, &learned)?;
        }
        Ok(())
    }
}

/// Waits for the moment from which on nothing is paged out for a while, unless nobody will believe a time: as
/// in tests, which say so by this variable.
fn wait_for_pageout() {
    if std::env::var_os("HEADSTART_LAB_UNTIMED").is_none() {
        pageout::wait();
    }
}

/// Gives `place` a copy of what `other` has learned.
fn take_over(other: &Place, place: &Place) -> Result<Learned> {
    for (from, to) in [(&other.state, &place.state), (&other.delta(), &place.delta())] {
        if from.exists() {
            tools::run("cp", [Path::new("-aT"), from, to])?;
        }
    }
    read(&other.beside("json"))
}

fn read(file: &Path) -> Result<Learned> {
    match fs::read(file) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| file.display().to_string()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Learned::default()),
        Err(e) => Err(e).with_context(|| format!("reading {}", file.display())),
    }
}

fn write(file: &Path, learned: &Learned) -> Result<()> {
    let temporary = file.with_extension("tmp");
    fs::write(&temporary, serde_json::to_vec(learned)?)
        .and_then(|()| fs::rename(&temporary, file))
        .with_context(|| format!("writing {}", file.display()))
}

fn write_log(path: &Path, log: &[Entry]) -> Result<()> {
    let mut text = format!("{}\n", Entry::CSV_HEADER);
    for entry in log {
        text.push_str(&entry.csv());
        text.push('\n');
    }
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_setup_has_learned_is_copied() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| Place {
            state: directory.path().join(name),
            headstart: PathBuf::new(),
            workload: String::new(),
            disk: String::new(),
            at_once: false,
            profile: None,
        };
        let (other, own) = (place("one"), place("three"));
        fs::create_dir_all(&other.state).unwrap();
        fs::create_dir_all(&own.state).unwrap();
        fs::write(other.state.join("profile"), "p").unwrap();
        fs::write(other.delta(), "blocks").unwrap();
        let learned = Learned {
            installed: true,
            starts: 1,
            ..Learned::default()
        };
        write(&other.beside("json"), &learned).unwrap();
        assert_eq!(take_over(&other, &own).unwrap(), learned);
        assert_eq!(fs::read_to_string(own.state.join("profile")).unwrap(), "p");
        assert_eq!(fs::read_to_string(own.delta()).unwrap(), "blocks");
    }
}
