//! What the acceptance tests share: a real program in an image, started cold on a private disk as often as a
//! test likes, with the built headstart beside it.
//!
//! The tests judge by counts (requests at the block device, pages, bytes), never by time.

pub mod boots;
pub mod guard_cuts;
pub mod hostile;
pub mod layout;

use anyhow::{Context, Result, bail};
use headstart_lab::image::{self, Fs, Recipe};
use headstart_lab::machine::{Chroot, Mounted, Stage};
use headstart_lab::model::Model;
use headstart_lab::paths;
use headstart_lab::registry::Registry;
use headstart_model::trace::UseKind;
use headstart_model::{Outcome, PageRange, PageSet, Profile, Trace};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A program in an image on a disk, and what headstart knows of it.
pub struct Case {
    /// The disk and its mounts.
    pub machine: Chroot,
    /// The name under which headstart knows the program.
    pub key: String,
    state: tempfile::TempDir,
}

impl Case {
    /// The program of a lab workload, in an image of a file system, on a disk without delays.
    pub fn new(workload: &str, fs: Fs) -> Result<Case> {
        Case::on("none", workload, fs)
    }

    /// The same on a disk that follows a model of the lab.
    pub fn on(disk: &str, workload: &str, fs: Fs) -> Result<Case> {
        headstart()?;
        let base = paths::base()?;
        let registry = registry(&base)?;
        let recipe = Recipe::load(workload)?;
        let image = image::build(&recipe, fs, &registry, &|step| eprintln!("{workload}: {step}"))?;
        let output = base.join("output.log");
        let model = Model::load(disk)?;
        let machine = Chroot::new(&recipe, &image, fs, &model, &base, &output, &registry)?;
        let state = tempfile::tempdir()?;
        Ok(Case {
            machine,
            key: workload.into(),
            state,
        })
    }

    /// Another state directory, empty: as if nothing had been learned.
    pub fn forget(&mut self) -> Result<()> {
        self.state = tempfile::tempdir()?;
        Ok(())
    }

    /// A headstart command line with this case's state.
    pub fn headstart(&self, words: &[&str]) -> Result<Vec<String>> {
        let mut line = vec![text(&headstart()?), "--state".into(), text(self.state.path())];
        line.extend(words.iter().map(|w| (*w).to_owned()));
        Ok(line)
    }

    /// `headstart run` of the program, which returns when all is learned.
    pub fn run_line(&self, options: &[&str]) -> Result<Vec<String>> {
        let mut words = vec!["run", "--wait", "--name", &self.key];
        words.extend(options);
        words.push("--");
        let mut line = self.headstart(&words)?;
        line.extend(self.machine.program());
        Ok(line)
    }

    /// The program under `headstart run` on a fresh cold mount.
    pub fn run_cold(&mut self, options: &[&str]) -> Result<Stage> {
        let line = self.run_line(options)?;
        let (stage, _mounted) = self.cold(&line)?;
        self.machine.check_product()?;
        Ok(stage)
    }

    /// A command on a fresh cold mount, which stays.
    pub fn cold(&mut self, line: &[String]) -> Result<(Stage, Mounted)> {
        let mounted = self.machine.fresh()?;
        let stage = self.machine.stage("start", line)?;
        Ok((stage, mounted))
    }

    /// Where headstart keeps what it knows of the program.
    pub fn key_dir(&self) -> Result<PathBuf> {
        let keys = self.state.path().join("keys");
        let mut entries = fs::read_dir(&keys).with_context(|| format!("reading {}", keys.display()))?;
        match (entries.next(), entries.next()) {
            (Some(one), None) => Ok(one?.path()),
            _ => bail!("{} should hold one key", keys.display()),
        }
    }

    /// The profile as stored.
    pub fn profile(&self) -> Result<Profile> {
        Ok(Profile::from_bytes(&fs::read(self.key_dir()?.join("profile"))?)?)
    }

    /// The outcome of the last start.
    pub fn last_outcome(&self) -> Result<Outcome> {
        Ok(Outcome::from_bytes(&fs::read(self.last("outcome")?)?)?)
    }

    /// The trace of the last start.
    pub fn last_trace(&self) -> Result<Trace> {
        Ok(Trace::from_bytes(&fs::read(self.last("trace")?)?)?)
    }

    fn last(&self, extension: &str) -> Result<PathBuf> {
        let is_one = |path: &PathBuf| path.extension() == Some(OsStr::new(extension));
        let dir = fs::read_dir(self.key_dir()?)?;
        let last = dir.filter_map(|e| Some(e.ok()?.path())).filter(is_one).max();
        last.with_context(|| format!("no {extension} was kept"))
    }
}

/// Whether all tests are run, however long they take (`make test-all`). What takes long does less otherwise,
/// and judges alike.
pub fn long() -> bool {
    std::env::var_os("HEADSTART_TESTS_LONG").is_some()
}

/// What a test process has in use on this machine; undone as each case ends, and by a signal.
pub fn registry(base: &Path) -> Result<Registry> {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    if let Some(registry) = REGISTRY.get() {
        return Ok(registry.clone());
    }
    let registry = Registry::open(base)?;
    registry.undo_on_signals()?;
    Ok(REGISTRY.get_or_init(|| registry).clone())
}

/// The headstart that `make build` made, or that of `$HEADSTART_BIN`.
pub fn headstart() -> Result<PathBuf> {
    let path = match std::env::var_os("HEADSTART_BIN") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join(format!(
            "../../target/{}-unknown-linux-gnu/release/headstart",
            std::env::consts::ARCH
        )),
    };
    fs::canonicalize(&path).with_context(|| format!("no headstart at {}: make build first", path.display()))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The pages that a plan of this profile would read, by path.
pub fn planned_pages(profile: &Profile) -> Vec<(String, PageSet)> {
    let threshold = profile.policy.threshold();
    let entries = profile.entries.iter().filter(|e| e.weight >= threshold);
    entries
        .map(|e| (e.path.to_string(), e.pages(threshold)))
        .filter(|(_, p)| !p.is_empty())
        .collect()
}

/// The pages that a trace says were used for certain: read, or touched by a fault. Of those mapped around a
/// fault nobody knows.
pub fn certain_pages(trace: &Trace) -> Vec<(String, PageSet)> {
    let mut ranges = vec![Vec::new(); trace.files.len()];
    for used in trace.all_uses() {
        if matches!(used.kind, UseKind::Read | UseKind::Fault) {
            ranges[used.file as usize].push(PageRange::new(used.start, u64::from(used.pages)));
        }
    }
    let paths = trace.files.iter().map(|file| file.path.to_string());
    paths
        .zip(ranges.into_iter().map(|r| r.into_iter().collect()))
        .collect()
}

/// The share of the pages of either set of files that both have.
pub fn in_common(a: &[(String, PageSet)], b: &[(String, PageSet)]) -> f64 {
    let sum_of = |all: &[(String, PageSet)]| all.iter().map(|(_, p)| p.pages()).sum::<u64>();
    let common = pages_in_both(a, b);
    common as f64 / (sum_of(a) + sum_of(b) - common).max(1) as f64
}

/// How many pages two sets of files share.
pub fn pages_in_both(a: &[(String, PageSet)], b: &[(String, PageSet)]) -> u64 {
    let other: std::collections::HashMap<&str, _> =
        b.iter().map(|(path, pages)| (path.as_str(), pages)).collect();
    a.iter()
        .filter_map(|(path, p)| Some(p.intersection(other.get(path.as_str())?).pages()))
        .sum()
}
