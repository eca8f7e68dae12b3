//! Whether an experiment can be made here: tools, memory, disk space, placeholders. Asked of everything
//! before anything runs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{Case, Experiment, Options};
use crate::kind::Kind;
use crate::machine::{self, Place};
use crate::setup::Setup;
use crate::{image, paths, tools};

/// Space an image may need while it is built: packages, root directory and image.
const BUILD_BYTES: u64 = 5 << 30;
/// Space for results and what setups keep.
const RESULT_BYTES: u64 = 512 << 20;
/// Memory for the lab and the programs beside it.
const OWN_BYTES: u64 = 512 << 20;
/// An image that is not built yet: as large as a desktop's.
const UNKNOWN_IMAGE_BYTES: u64 = 4 << 30;

/// Fails with what is missing and how to get it.
pub fn check(experiment: &Experiment, options: &Options) -> Result<()> {
    let (out, headstart) = (options.out.as_path(), options.headstart.as_path());
    tools::require_root()?;
    if let Some(earlier) = options.earlier.as_ref().filter(|path| !path.is_file()) {
        bail!("--earlier {}: there is no such file", earlier.display());
    }
    let beside = experiment.cases.iter().flat_map(|case| &case.beside);
    for setup in experiment.setups.iter().chain(beside) {
        let own = || format!("setup {}", setup.name);
        if setup.needs_headstart() && !headstart.is_file() {
            bail!(
                "{}: no headstart at {}: build it (make build) or name it with --headstart",
                own(),
                headstart.display()
            );
        }
        if let Some(profile) = setup.profile.as_ref().filter(|path| !path.is_file()) {
            bail!(
                "{}: there is no file of profiles {}: fleet/bench/eleventh.py makes those of our experiments",
                own(),
                profile.display()
            );
        }
        for command in setup.commands() {
            check_command(command, setup.profile.clone()).with_context(own)?;
        }
        let requires: Vec<&str> = setup.requires.iter().map(String::as_str).collect();
        tools::require(&requires).with_context(own)?;
    }
    for case in &experiment.cases {
        check_mark(experiment, case).with_context(|| case.title())?;
        check_installed(experiment, case).with_context(|| case.title())?;
        let spec = experiment.spec(case, out)?;
        for setup in &experiment.setups {
            if case.beside.is_some() && !setup.beside.is_empty() {
                bail!(
                    "{}: setup {} has something of its own run beside a start",
                    case.title(),
                    setup.name
                );
            }
            machine::check(&spec, &case.setup(setup)).with_context(|| case.title())?;
        }
        check_memory(case).with_context(|| case.title())?;
    }
    let built = experiment
        .cases
        .iter()
        .all(|c| matches!(image::cached(&c.recipe, c.fs), Ok(Some(_))));
    if !built {
        space(
            &paths::cache()?,
            BUILD_BYTES,
            "images are built there; HEADSTART_LAB_CACHE names another place",
        )?;
    }
    space(
        out,
        RESULT_BYTES,
        "results and what setups learn go there; --out names another place",
    )
}

/// The mark that the measured time begins with can come.
fn check_mark(experiment: &Experiment, case: &Case) -> Result<()> {
    let signs = case.recipe.boot.iter().flat_map(|boot| &boot.marks);
    let mut known: Vec<&str> = signs.map(|sign| sign.mark.as_str()).collect();
    known.extend(case.machine.marks());
    if let Some(mark) = experiment.from.as_deref().filter(|mark| !known.contains(mark)) {
        let there = match known.join(", ") {
            none if none.is_empty() => "it has none".to_owned(),
            some => format!("there are {some}"),
        };
        bail!("from = {mark:?} is no mark of this machine: {there}");
    }
    Ok(())
}

/// Nothing is to be installed where nothing can be.
fn check_installed(experiment: &Experiment, case: &Case) -> Result<()> {
    if case.machine != Kind::Chroot || !case.fs.is_read_only() {
        return Ok(());
    }
    let installs = |setup: &&Setup| !(setup.install.is_empty() && setup.learn.is_empty());
    match experiment.setups.iter().find(installs) {
        None => Ok(()),
        Some(setup) => bail!(
            "setup {}: nothing can be installed into {}: it cannot be written",
            setup.name,
            case.fs
        ),
    }
}

/// A command's placeholders are known, and a program of the host's is installed.
fn check_command(command: &[String], profile: Option<PathBuf>) -> Result<()> {
    let place = Place {
        state: "/state".into(),
        headstart: "/headstart".into(),
        workload: "workload".into(),
        disk: "disk".into(),
        at_once: false,
        profile,
    };
    place
        .names(Path::new("/root"), vec!["program".into()])
        .fill(command)?;
    match command.first().map(String::as_str) {
        None => bail!("an empty command"),
        Some(word) if word.contains('{') || word.contains('/') => Ok(()),
        Some(word) => tools::require(&[word]),
    }
}

/// The image stays in memory, so that the model's are the only delays.
fn check_memory(case: &Case) -> Result<()> {
    let image = match image::cached(&case.recipe, case.fs)? {
        Some(path) => fs::metadata(&path).map_or(UNKNOWN_IMAGE_BYTES, |m| m.len()),
        None => UNKNOWN_IMAGE_BYTES,
    };
    let needed = image + case.memory_mb.unwrap_or(0) * (1 << 20) + OWN_BYTES;
    let text = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib = line
        .and_then(|l| l.split_whitespace().next())
        .and_then(|n| n.parse::<u64>().ok());
    let available = kib.context("/proc/meminfo says nothing of MemAvailable")? * 1024;
    if available < needed {
        bail!(
            "{} MB of memory are available, {} MB are needed: the image ({} MB) is kept in memory, the machine has {} MB of its own, the lab {} MB",
            available >> 20,
            needed >> 20,
            image >> 20,
            case.memory_mb.unwrap_or(0),
            OWN_BYTES >> 20
        );
    }
    Ok(())
}

/// Fails unless the file system of `path`, or of what will be its parent, has `bytes` free.
fn space(path: &Path, bytes: u64, why: &str) -> Result<()> {
    let mut at = std::path::absolute(path)?;
    while !at.exists() && at.pop() {}
    let fs = rustix::fs::statvfs(&at).with_context(|| format!("asking for the space at {}", at.display()))?;
    let free = fs.f_bavail * fs.f_frsize;
    if free < bytes {
        bail!(
            "{} has {} MB free, {} MB are needed: {why}",
            at.display(),
            free >> 20,
            bytes >> 20
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn commands_are_checked_before_they_run() {
        check_command(&words("sh -c {program}"), None).unwrap();
        check_command(&words("{headstart} boot enable --root {root}"), None).unwrap();
        check_command(&words("cp {profile} {state}"), Some("x".into())).unwrap();
        let said = |line: &str| check_command(&words(line), None).unwrap_err().to_string();
        assert!(said("sh {rot}/x").contains("{rot}"));
        assert!(said("cp {profile} x").contains("no placeholder {profile}"));
        assert!(said("no-such-tool x").contains("no-such-tool is not installed"));
        assert!(said("").contains("empty"));
    }

    #[test]
    fn too_little_memory_is_said_before_anything_runs() {
        let case = |memory_mb| Case {
            name: String::new(),
            machine: Kind::Vm,
            recipe: image::Recipe::load("debian13").unwrap(),
            fs: image::Fs::Ext4,
            model: crate::model::Model::load("none").unwrap(),
            memory_mb: Some(memory_mb),
            processors: None,
            answer: None,
            cache: None,
            beside: None,
        };
        let said = check_memory(&case(1 << 30)).unwrap_err().to_string();
        assert!(
            said.contains("the machine has 1073741824 MB of its own"),
            "{said}"
        );
    }

    #[test]
    fn too_little_space_is_said_with_the_place() {
        space(Path::new("/tmp/not/there/yet"), 1, "x").unwrap();
        let said = space(Path::new("/proc"), 1 << 60, "they go there")
            .unwrap_err()
            .to_string();
        assert!(
            said.contains("/proc has 0 MB free") && said.contains("they go there"),
            "{said}"
        );
    }
}
