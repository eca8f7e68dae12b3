//! An experiment as a TOML file. Everything it names is loaded and checked at once; an error names the file,
//! the line and the key.

use std::fmt::Display;
use std::num::NonZeroU8;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use serde::Deserialize;
use toml::Spanned;

use super::{Case, Experiment, Figure, Goal};
use crate::image::{Fs, Recipe};
use crate::kind::Kind;
use crate::model::Model;
use crate::setup::{Cache, Setup};

/// No start ends by a server that is slower.
const LONGEST_ANSWER_MS: f64 = 1000.0;

/// The file's own form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    question: String,
    machine: Option<Kind>,
    workload: Option<Spanned<String>>,
    disk: Option<Spanned<String>>,
    fs: Option<Fs>,
    memory_mb: Option<u64>,
    processors: Option<NonZeroU8>,
    answer_ms: Option<Spanned<f64>>,
    setups: Spanned<Vec<Spanned<Named>>>,
    base: Option<Spanned<String>>,
    rounds: Spanned<usize>,
    #[serde(default = "first_seed")]
    seed: u64,
    #[serde(default = "five_minutes")]
    limit_seconds: Spanned<u64>,
    from: Option<String>,
    #[serde(default)]
    case: Vec<Spanned<CaseFile>>,
    #[serde(default)]
    goal: Vec<Spanned<Goal>>,
}

/// A setup as an experiment has it.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "the name of a setup, or a table that says what one is like and what differs"
)]
enum Named {
    /// A built-in's, or a path.
    Name(String),
    /// The setup itself.
    Table(toml::Table),
}

/// What a case says of its own; the rest is the experiment's.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    name: String,
    machine: Option<Kind>,
    workload: Option<Spanned<String>>,
    disk: Option<Spanned<String>>,
    fs: Option<Fs>,
    memory_mb: Option<u64>,
    processors: Option<NonZeroU8>,
    answer_ms: Option<Spanned<f64>>,
    cache: Option<Cache>,
    beside: Option<Spanned<String>>,
}

fn first_seed() -> u64 {
    1
}

fn five_minutes() -> Spanned<u64> {
    Spanned::new(0..0, 300)
}

/// Loads what `name` stands for beside the file that names it: a path ending in `.toml` counts from there,
/// another is a built-in's.
fn beside(file: &Path, name: &str) -> String {
    if !name.ends_with(".toml") {
        return name.to_owned();
    }
    let directory = file.parent().map_or_else(PathBuf::new, Path::to_owned);
    directory.join(name).to_string_lossy().into_owned()
}

/// Reads an experiment.
pub fn load(path: &Path) -> Result<Experiment> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading the experiment {}", path.display()))?;
    parse(&text, path)
}

/// Reads an experiment from `text`, which came from `path`.
fn parse(text: &str, path: &Path) -> Result<Experiment> {
    let file: File = toml::from_str(text).with_context(|| format!("the experiment {}", path.display()))?;
    let source = Source { text, path };
    let setups = source.setups(&file)?;
    let names: Vec<&str> = setups.iter().map(|s| s.name.as_str()).collect();
    let base = source.base(&file, &names)?;
    source.check_rounds(&file)?;
    let cases = source.cases(&file)?;
    source.check_goals(&file, &names, &cases)?;
    Ok(Experiment {
        name: path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        question: file.question,
        base,
        rounds: *file.rounds.get_ref(),
        asked: None,
        seed: file.seed,
        limit: Duration::from_secs(*file.limit_seconds.get_ref()),
        from: file.from,
        goals: file.goal.into_iter().map(Spanned::into_inner).collect(),
        setups,
        cases,
    })
}

/// Where an experiment comes from, to say in errors what is wrong where.
struct Source<'a> {
    text: &'a str,
    path: &'a Path,
}

impl Source<'_> {
    /// Where something stands, and what it is called there.
    fn place(&self, span: Range<usize>, key: &str) -> String {
        let before = &self.text[..span.start.min(self.text.len())];
        let line = before.matches('\n').count() + 1;
        format!("{}, line {line}: {key}", self.path.display())
    }

    fn refuse(&self, span: Range<usize>, key: &str, why: impl Display) -> Error {
        anyhow!("{}: {why}", self.place(span, key))
    }

    fn setups(&self, file: &File) -> Result<Vec<Setup>> {
        let mut setups: Vec<Setup> = Vec::new();
        for name in file.setups.get_ref() {
            let setup = match name.get_ref() {
                Named::Name(name) => Setup::load(&beside(self.path, name)),
                Named::Table(table) => {
                    let own = table.get("name").and_then(toml::Value::as_str);
                    Setup::of_table(table.clone(), own.unwrap_or_default())
                }
            };
            let mut setup = setup.with_context(|| self.place(name.span(), "setups"))?;
            let directory = self.path.parent().unwrap_or(Path::new(""));
            setup.profile = setup.profile.map(|profile| directory.join(profile));
            let is_before = |other: &str| setups.iter().any(|s| s.name == other);
            if is_before(&setup.name) {
                let why = format!("{:?} stands there twice", setup.name);
                return Err(self.refuse(name.span(), "setups", why));
            }
            if let Some(other) = setup.state_of.as_ref().filter(|other| !is_before(other)) {
                let why = format!(
                    "{:?} has state_of {other:?}, which must come before it",
                    setup.name
                );
                return Err(self.refuse(name.span(), "setups", why));
            }
            // Of setups that come later nothing is learned yet.
            setup.goes_on_from = setup.goes_on_from.filter(|other| is_before(other));
            setups.push(setup);
        }
        Ok(setups)
    }

    /// The name of the setup that the others are compared with.
    fn base(&self, file: &File, names: &[&str]) -> Result<String> {
        let Some(first) = names.first() else {
            return Err(self.refuse(file.setups.span(), "setups", "there is none"));
        };
        match &file.base {
            None => Ok((*first).to_owned()),
            Some(base) if names.contains(&base.get_ref().as_str()) => Ok(base.get_ref().clone()),
            Some(base) => {
                let why = format!("{:?} is none of the setups {}", base.get_ref(), names.join(", "));
                Err(self.refuse(base.span(), "base", why))
            }
        }
    }

    fn check_rounds(&self, file: &File) -> Result<()> {
        if *file.rounds.get_ref() == 0 {
            return Err(self.refuse(file.rounds.span(), "rounds", "0; at least 1"));
        }
        if *file.limit_seconds.get_ref() == 0 {
            return Err(self.refuse(file.limit_seconds.span(), "limit_seconds", "0; at least 1"));
        }
        Ok(())
    }

    /// The cases; where the file has none, one without a name that is as the experiment says.
    fn cases(&self, file: &File) -> Result<Vec<Case>> {
        if file.case.is_empty() {
            return Ok(vec![self.case(file, &CaseFile::default(), 0..0)?]);
        }
        let mut cases: Vec<Case> = Vec::new();
        for given in &file.case {
            let case = self.case(file, given.get_ref(), given.span())?;
            if case.name.is_empty() || cases.iter().any(|c| c.directory() == case.directory()) {
                let why = format!("{:?} is empty or another's", case.name);
                return Err(self.refuse(given.span(), "case.name", why));
            }
            cases.push(case);
        }
        Ok(cases)
    }

    /// The case that stands at `span`.
    fn case(&self, file: &File, case: &CaseFile, span: Range<usize>) -> Result<Case> {
        let missing = |key: &str| {
            let why = "missing: give it for all, or in this case";
            self.refuse(span.clone(), key, why)
        };
        let workload = case.workload.as_ref().or(file.workload.as_ref());
        let workload = workload.ok_or_else(|| missing("workload"))?;
        let disk = case.disk.as_ref().or(file.disk.as_ref());
        let disk = disk.ok_or_else(|| missing("disk"))?;
        Ok(Case {
            name: case.name.clone(),
            machine: case.machine.or(file.machine).ok_or_else(|| missing("machine"))?,
            recipe: Recipe::load(&beside(self.path, workload.get_ref()))
                .with_context(|| self.place(workload.span(), "workload"))?,
            fs: case.fs.or(file.fs).unwrap_or(Fs::Ext4),
            model: Model::load(&beside(self.path, disk.get_ref()))
                .with_context(|| self.place(disk.span(), "disk"))?,
            memory_mb: case.memory_mb.or(file.memory_mb),
            processors: case.processors.or(file.processors),
            answer: self.answer(case.answer_ms.as_ref().or(file.answer_ms.as_ref()))?,
            cache: case.cache,
            beside: (case.beside.as_ref())
                .map(|name| self.service(name))
                .transpose()?,
        })
    }

    /// How long a server needs for an answer.
    fn answer(&self, given: Option<&Spanned<f64>>) -> Result<Option<Duration>> {
        let Some(given) = given else { return Ok(None) };
        match *given.get_ref() {
            ms if ms > 0.0 && ms <= LONGEST_ANSWER_MS => Ok(Some(Duration::from_secs_f64(ms / 1e3))),
            ms => {
                let why = format!("{ms}; more than 0, and at most {LONGEST_ANSWER_MS}");
                Err(self.refuse(given.span(), "answer_ms", why))
            }
        }
    }

    /// The setup of this name, of which a case takes what runs beside each start.
    fn service(&self, name: &Spanned<String>) -> Result<Setup> {
        let setup = Setup::load(&beside(self.path, name.get_ref()))
            .with_context(|| self.place(name.span(), "case.beside"))?;
        match setup.beside.is_empty() {
            true => Err(self.refuse(
                name.span(),
                "case.beside",
                "that setup has nothing run beside a start",
            )),
            false => Ok(setup),
        }
    }

    fn check_goals(&self, file: &File, names: &[&str], cases: &[Case]) -> Result<()> {
        for goal in &file.goal {
            let (g, span) = (goal.get_ref(), goal.span());
            if !names.contains(&g.setup.as_str()) {
                let why = format!("{:?} is none of the setups {}", g.setup, names.join(", "));
                return Err(self.refuse(span, "goal.setup", why));
            }
            match &g.of {
                Some(of) if g.figure == Figure::GainLost && names.contains(&of.as_str()) => {}
                None if g.figure != Figure::GainLost => {}
                _ => {
                    let why = format!(
                        "gain-lost, and no other figure, is one of the setups {}",
                        names.join(", ")
                    );
                    return Err(self.refuse(span, "goal.of", why));
                }
            }
            if let Some(case) = g.case.as_ref().filter(|name| !has(cases, name)) {
                return Err(self.refuse(span, "goal.case", format!("no case {case:?} here")));
            }
        }
        Ok(())
    }
}

fn has(cases: &[Case], name: &str) -> bool {
    cases.iter().any(|case| case.name == name)
}

#[cfg(test)]
mod tests;
