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
mod tests {
    use super::*;

    const GOOD: &str = "question = 'is it faster?'\nmachine = 'chroot'\nworkload = 'git'\ndisk = 'flash4ms'\nsetups = ['none', 'headstart']\nrounds = 3\n";

    fn wrong(text: &str) -> String {
        format!("{:#}", parse(text, Path::new("x/e.toml")).unwrap_err())
    }

    #[test]
    fn a_short_file_is_enough() {
        let e = parse(GOOD, Path::new("x/e.toml")).unwrap();
        assert_eq!(
            (e.name.as_str(), e.base.as_str(), e.rounds, e.cases.len()),
            ("e", "none", 3, 1)
        );
        assert_eq!(e.cases[0].title(), "git on chroot, ext4, disk flash4ms");
    }

    #[test]
    fn a_case_has_a_server_that_needs_its_time() {
        let with = |ms: &str| format!("{GOOD}[[case]]\nname = 'a'\n[[case]]\nname = 'b'\nanswer_ms = {ms}\n");
        let cases = parse(&with("0.5"), Path::new("e.toml")).unwrap().cases;
        assert_eq!(
            [cases[0].answer, cases[1].answer],
            [None, Some(Duration::from_micros(500))]
        );
        assert!(
            cases[1].title().ends_with(", 0.5 ms an answer"),
            "{}",
            cases[1].title()
        );
        for ms in ["0.0", "-1.0", "1000.5", "nan"] {
            let error = wrong(&with(ms));
            assert!(error.contains("line 11: answer_ms: "), "{error}");
        }
    }

    #[test]
    fn rounds_can_be_cut() {
        let e = parse(GOOD, Path::new("e.toml")).unwrap().with_rounds(2).unwrap();
        assert_eq!((e.rounds, e.asked), (2, Some(3)));
        let e = e.with_rounds(3).unwrap();
        assert_eq!((e.rounds, e.asked), (3, None));
        assert!(e.with_rounds(0).unwrap_err().to_string().contains("--rounds 0"));
    }

    #[test]
    fn cases_take_what_they_do_not_say_from_the_experiment() {
        let text =
            format!("{GOOD}[[case]]\nname = 'a'\n[[case]]\nname = 'b'\ndisk = 'disk2007'\nfs = 'xfs'\n");
        let cases = parse(&text, Path::new("e.toml")).unwrap().cases;
        assert_eq!(
            [cases[0].model.name.as_str(), cases[1].model.name.as_str()],
            ["flash4ms", "disk2007"]
        );
        assert_eq!(cases[1].fs, Fs::Xfs);
    }

    #[test]
    fn a_setup_goes_on_from_one_that_stands_before_it() {
        let goes_on = |setups: &str| {
            let text = GOOD.replace("'none', 'headstart'", setups);
            let setups = parse(&text, Path::new("e.toml")).unwrap().setups;
            setups.into_iter().map(|s| s.goes_on_from).collect::<Vec<_>>()
        };
        let named = |name: &str| Some(name.to_owned());
        let setups = "'boot-none', 'boot-headstart-init', 'boot-layout'";
        assert_eq!(goes_on(setups), [None, None, named("headstart-init")]);
        assert_eq!(goes_on("'boot-layout', 'boot-headstart-init'"), [None, None]);
    }

    #[test]
    fn a_setup_may_stand_in_the_experiment_with_its_profile() {
        let with = |table: &str| GOOD.replace("'headstart'", table);
        let table = "'own-third', {like = 'imported', name = 'votes', profile = '../votes.profiles'}";
        let e = parse(&with(table), Path::new("x/e.toml")).unwrap();
        assert_eq!(e.setups[2].name, "votes");
        assert_eq!(
            e.setups[2].profile.as_deref(),
            Some(Path::new("x/../votes.profiles"))
        );
        let goal = |of: &str| format!("{}[[goal]]\nsetup = 'votes'\n{of}at_most = 0.1\n", with(table));
        let e = parse(
            &goal("figure = 'gain-lost'\nof = 'own-third'\n"),
            Path::new("x/e.toml"),
        )
        .unwrap();
        assert_eq!(e.goals[0].of.as_deref(), Some("own-third"));
        for of in [
            "figure = 'gain-lost'\n",
            "figure = 'gain-lost'\nof = 'mine'\n",
            "figure = 'L'\nof = 'none'\n",
        ] {
            let error = wrong(&goal(of));
            assert!(error.contains("line 7: goal.of: gain-lost"), "{error}");
        }
        assert!(wrong(&with("{like = 'imported'}")).contains("line 5: setups: the setup : name"));
        assert!(wrong(&with("7")).contains("the name of a setup, or a table"));
    }

    #[test]
    fn an_earlier_build_gets_a_twin_of_each_setup_that_calls_headstart_and_is_not_for_this_one_only() {
        let text = GOOD.replace(
            "'none', 'headstart'",
            "'none', 'headstart', 'replay-first', 'layout', 'warm'",
        );
        let e = parse(&text, Path::new("e.toml"))
            .unwrap()
            .with_earlier_build()
            .unwrap();
        let setups: Vec<(&str, Option<&str>)> = e
            .setups
            .iter()
            .map(|s| {
                (
                    s.name.as_str(),
                    s.state_of.as_deref().or(s.goes_on_from.as_deref()),
                )
            })
            .collect();
        let expected = [
            ("none", None),
            ("headstart", None),
            ("headstart-earlier", None),
            ("replay-first", Some("headstart")),
            ("replay-first-earlier", Some("headstart-earlier")),
            ("layout", Some("headstart")),
            ("warm", None),
        ];
        assert_eq!(setups, expected);
        let again = e.with_earlier_build().unwrap_err().to_string();
        assert!(again.contains("-earlier already"), "{again}");
        let text = GOOD.replace("'none', 'headstart'", "'none', 'warm'");
        let error = parse(&text, Path::new("e.toml")).unwrap().with_earlier_build();
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("no setup here calls headstart")
        );
    }

    #[test]
    fn a_case_has_what_a_setup_runs_beside_starts() {
        let with = |name: &str| format!("{GOOD}\n[[case]]\nname = 'a'\nbeside = '{name}'\n");
        let e = parse(&with("writer"), Path::new("e.toml")).unwrap();
        let (case, setup) = (&e.cases[0], &e.setups[0]);
        let beside = case.setup(setup);
        assert!(setup.beside.is_empty() && !beside.beside.is_empty());
        assert!(beside.file.contains_key("writer") && beside.name == setup.name);
        assert!(case.title().ends_with(", beside writer"), "{}", case.title());
        let none = wrong(&with("none"));
        assert!(none.contains("case.beside: that setup has nothing"), "{none}");
    }

    #[test]
    fn errors_name_file_line_and_key() {
        for (from, to, line, said) in [
            ("'flash4ms'", "'floppy'", 4, "disk: no disk"),
            ("'git'", "'doom'", 3, "workload: no workload"),
            ("'headstart'", "'hedstart'", 5, "setups: no setup"),
            ("'headstart'", "'none'", 5, "twice"),
            ("'headstart'", "'tools/x.toml'", 5, "x/tools/x.toml"),
            ("rounds = 3", "rounds = 0", 6, "rounds"),
            (
                "rounds = 3",
                "rounds = 3\nbase = 'cold'",
                7,
                "base: \"cold\" is none of the setups none, headstart",
            ),
            (
                "rounds = 3",
                "rounds = 3\n[[goal]]\nsetup = 'warm'\nfigure = 'L'\nat_most = 1.1",
                7,
                "goal.setup: \"warm\" is none of the setups none, headstart",
            ),
        ] {
            let error = wrong(&GOOD.replace(from, to));
            assert!(
                error.contains(&format!("x/e.toml, line {line}: ")) && error.contains(said),
                "{error}"
            );
        }
        for (from, to, line, said) in [
            ("rounds = 3", "round = 3", 6, "unknown field `round`"),
            ("'chroot'", "'chrot'", 2, "chroot"),
            ("rounds = 3", "rounds = 'three'", 6, "invalid type"),
            ("disk = 'flash4ms'", "disk = ", 4, ""),
        ] {
            let error = wrong(&GOOD.replace(from, to));
            assert!(
                error.contains(&format!("line {line}")) && error.contains("x/e.toml") && error.contains(said),
                "{error}"
            );
        }
        assert!(wrong(&GOOD.replace("machine = 'chroot'\n", "")).contains("machine: missing"));
    }
}
