//! The directory of an experiment: what was begun (`experiment.json`), and one line for every finished run
//! (`runs.jsonl`).
//!
//! A line is written whole and synced before the next run begins; a last line that a kill cut short is taken
//! away again. So a resumed experiment has lost at most the run in flight.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Experiment, Goal};
use crate::host::Host;
use crate::machine::{Mark, Stage};
use crate::setup::Cache;

/// One run of one setup, finished or aborted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// Case name.
    pub case: String,
    /// From 0.
    pub round: usize,
    /// Setup name.
    pub setup: String,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// The measured time: to the experiment's mark, or the sum over the stages. 0 when aborted.
    pub seconds: f64,
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Seconds in which the device had a request outstanding.
    pub busy_seconds: f64,
    /// Seconds in which some task waited for I/O; absent where the machine cannot tell.
    pub stalled_seconds: Option<f64>,
    /// The device's best time for what this run read, as it is laid out, in seconds.
    pub t_io_seconds: f64,
    /// The same if it were laid out ideally; absent in runs of earlier labs.
    #[serde(default)]
    pub t_io_ideal_seconds: Option<f64>,
    /// Parts of the run.
    pub stages: Vec<Stage>,
    /// Moments the machine reported.
    pub marks: Vec<Mark>,
    /// Why the run does not count, when it failed or exceeded the limit.
    pub aborted: Option<String>,
    /// The programs it was made with: see [`Begun::programs`].
    pub programs: String,
}

/// What an experiment is, as its report needs it, and what tells it from another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Begun {
    /// Version of this format.
    pub format: u32,
    /// Name.
    pub name: String,
    /// The question.
    pub question: String,
    /// In table order: name and description.
    pub setups: Vec<(String, String)>,
    /// In order: name and title.
    pub cases: Vec<(String, String)>,
    /// Memory of the cases whose file says it, by name, MiB.
    #[serde(default)]
    pub memory_mb: BTreeMap<String, u64>,
    /// The setup the others are compared with.
    pub base: String,
    /// The setup that starts with everything in memory, which R and L need.
    pub warm: Option<String>,
    /// Rounds that count.
    pub rounds: usize,
    /// Rounds that the experiment's file asks for, where they are others (`run --rounds`).
    #[serde(default)]
    pub asked: Option<usize>,
    /// The mark at which the measured time begins.
    #[serde(default)]
    pub from: Option<String>,
    /// What the figures are held against.
    #[serde(default)]
    pub goals: Vec<Goal>,
    /// The host; absent in directories of earlier labs.
    #[serde(default)]
    pub host: Option<Host>,
    /// Kernel release of the host.
    pub kernel: String,
    /// Processors of the host.
    pub processors: usize,
    /// Hash of all the experiment's files, images' recipes, models and setups among them.
    pub experiment: String,
    /// Hash of headstart's and the lab's binary, and of the profiles that setups import.
    pub programs: String,
}

/// The format written now.
const FORMAT: u32 = 1;

fn short(digest: impl AsRef<[u8]>) -> String {
    digest
        .as_ref()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The experiment with the rounds that its file asks for.
fn as_asked(experiment: &Experiment) -> Experiment {
    Experiment {
        rounds: experiment.asked.unwrap_or(experiment.rounds),
        asked: None,
        ..experiment.clone()
    }
}

impl Begun {
    /// Describes `experiment`, run with the given files (builds of headstart where a setup needs them,
    /// profiles) and this program.
    pub fn new(experiment: &Experiment, files: &[impl AsRef<Path>]) -> Result<Begun> {
        let mut programs = Sha256::new();
        let files = files.iter().map(AsRef::as_ref);
        for path in files.chain([Path::new("/proc/self/exe")]) {
            programs.update(fs::read(path).with_context(|| format!("reading {}", path.display()))?);
        }
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Begun {
            format: FORMAT,
            name: experiment.name.clone(),
            question: experiment.question.clone(),
            setups: experiment
                .setups
                .iter()
                .map(|s| (s.name.clone(), s.description.clone()))
                .collect(),
            cases: experiment
                .cases
                .iter()
                .map(|c| (c.name.clone(), c.title()))
                .collect(),
            memory_mb: experiment
                .cases
                .iter()
                .filter_map(|c| Some((c.name.clone(), c.memory_mb?)))
                .collect(),
            base: experiment.base.clone(),
            warm: experiment
                .setups
                .iter()
                .find(|s| s.cache == Cache::Warm)
                .map(|s| s.name.clone()),
            rounds: experiment.rounds,
            asked: experiment.asked,
            from: experiment.from.clone(),
            goals: experiment.goals.clone(),
            host: Some(Host::read()),
            kernel: kernel.trim().to_owned(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            // Everything loaded, by value: where the files lie makes no difference, nor how many of its
            // rounds are made now.
            experiment: short(Sha256::digest(format!("{:?}", as_asked(experiment)))),
            programs: short(programs.finalize()),
        })
    }
}

/// An open directory.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    log: File,
}

impl Directory {
    /// Begins `begun` at `path`, or goes on with it; returns the runs already made. A directory begun by
    /// something else is refused unless `mixed`.
    pub fn open(path: &Path, begun: &Begun, mixed: bool) -> Result<(Directory, Vec<Run>)> {
        fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))?;
        let file = path.join("experiment.json");
        let mut begun = begun.clone();
        if file.exists() {
            let old = Directory::begun(path)?;
            let differs = [
                (
                    "another experiment (its file, or an image, model or setup it names, has changed)",
                    old.experiment != begun.experiment,
                ),
                (
                    "another binary of headstart or the lab, or other profiles",
                    old.programs != begun.programs,
                ),
            ];
            if let Some((what, _)) = differs.iter().find(|(_, differs)| *differs && !mixed) {
                bail!(
                    "{} was begun with {what}: name another directory with --out, begin anew with --again, or go on all the same with --mixed",
                    path.display()
                );
            }
            // What was made is not forgotten because fewer rounds are asked for now.
            if old.rounds > begun.rounds {
                (begun.rounds, begun.asked) = (old.rounds, old.asked);
            }
        }
        let mut text = serde_json::to_vec_pretty(&begun)?;
        text.push(b'\n');
        let temporary = file.with_extension("tmp");
        fs::write(&temporary, text)
            .and_then(|()| fs::rename(&temporary, &file))
            .with_context(|| format!("writing {}", file.display()))?;
        let runs = Directory::runs(path)?;
        let log = path.join("runs.jsonl");
        let open = File::options().create(true).read(true).append(true).open(&log);
        let open = open.with_context(|| format!("opening {}", log.display()))?;
        let whole = whole_lines(&fs::read(&log).with_context(|| format!("reading {}", log.display()))?);
        open.set_len(whole as u64)
            .with_context(|| format!("cutting {}", log.display()))?;
        Ok((
            Directory {
                path: path.to_owned(),
                log: open,
            },
            runs,
        ))
    }

    /// What was begun at `path`.
    pub fn begun(path: &Path) -> Result<Begun> {
        let file = path.join("experiment.json");
        let text = match fs::read(&file) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                bail!(
                    "{} holds no experiment: headstart-lab run FILE --out {0} begins one",
                    path.display()
                )
            }
            other => other.with_context(|| format!("reading {}", file.display()))?,
        };
        let begun: Begun = serde_json::from_slice(&text).with_context(|| file.display().to_string())?;
        if begun.format != FORMAT {
            bail!(
                "{}: format {}, this program knows {FORMAT}",
                file.display(),
                begun.format
            );
        }
        Ok(begun)
    }

    /// The runs made at `path`; a last line cut short is none.
    pub fn runs(path: &Path) -> Result<Vec<Run>> {
        let file = path.join("runs.jsonl");
        let text = match fs::read(&file) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.with_context(|| format!("reading {}", file.display()))?,
        };
        let whole = &text[..whole_lines(&text)];
        let lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines
            .enumerate()
            .map(|(number, line)| {
                serde_json::from_slice(line)
                    .with_context(|| format!("{}, line {}", file.display(), number + 1))
            })
            .collect()
    }

    /// Adds a finished run.
    pub fn add(&mut self, run: &Run) -> Result<()> {
        let mut line = serde_json::to_vec(run)?;
        line.push(b'\n');
        let written = self.log.write_all(&line).and_then(|()| self.log.sync_data());
        written.with_context(|| format!("writing {}", self.path.join("runs.jsonl").display()))
    }
}

/// Bytes up to and with the last line end.
fn whole_lines(text: &[u8]) -> usize {
    text.iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |last| last + 1)
}
