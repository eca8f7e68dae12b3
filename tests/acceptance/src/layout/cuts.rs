//! `layout apply` on a disk whose power is cut.
//!
//! The disk is the lab's: it has a write cache, of which each block that was not flushed is lost with even
//! odds. What the kernel still had in memory is lost, too: the file system is taken apart, and mounted anew
//! from what the disk had at the cut.

use super::{Case, FULL, Image, Known, SHAPES, Use, arrange, knobs, learn, start, status};
use crate::registry;
use anyhow::{Context, Result, ensure};
use headstart_bench::statistics::Random;
use headstart_lab::disk::{Attached, Cut, Options, Writes};
use headstart_lab::model::Model;
use headstart_lab::paths;
use headstart_system::testing::{Mounted, run as run_command};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// In the order of the cuts; with the second, data is not written before what names it.
const OPTIONS: [&str; 2] = ["data=ordered", "data=writeback"];

/// A file system on the lab's disk; headstart keeps what it knows there as well.
struct Machine {
    disk: Attached,
    files: Vec<Known>,
    point: PathBuf,
    random: Random,
    nameless: u64,
}

/// Cuts it so often, on file systems of each [`FULL`] in turn. After each the journal is replayed, and then
/// the file system is clean, every file what it was, and no inode has no name. Returns what came of it.
pub fn run(cuts: usize, seed: u64) -> Result<String> {
    let on_full = |full: u64| on(full, cuts.div_ceil(FULL.len()), seed);
    let runs: Vec<(usize, String)> = FULL.into_iter().map(on_full).collect::<Result<_>>()?;
    let amid: Vec<usize> = runs.iter().map(|(amid, _)| *amid).collect();
    // A few may by chance all come before or after the work.
    let missed = if cuts < 20 {
        amid == [0; FULL.len()]
    } else {
        amid.contains(&0)
    };
    ensure!(!missed, "no cut came while files were moved: {amid:?}");
    let told: Vec<String> = runs.into_iter().map(|(_, told)| told).collect();
    Ok(told.join("\n"))
}

/// How many of them came amid the work, and what came of all.
fn on(full: u64, cuts: usize, seed: u64) -> Result<(usize, String)> {
    let case = Case {
        size: 512 << 20,
        full,
        shape: &SHAPES[0],
        seed,
    };
    let mut image = Image::new(&case)?;
    image.fs.unmount();
    let base = paths::base()?;
    let registry = registry(&base)?;
    let scratch = tempfile::tempdir_in(&base)?;
    let options = Options {
        model: Model::load("none")?,
        image: image.fs.image(),
        directory: scratch.path().join("disk"),
        writes: Writes::Delta(scratch.path().join("delta")),
    };
    let mut machine = Machine {
        disk: Attached::new(&options, &registry)?,
        files: image.files.clone(),
        point: scratch.path().join("root"),
        random: Random(seed),
        nameless: 0,
    };
    let whole = machine.first()?;
    let (mut amid, mut begun, mut lost, mut unflushed) = (0, 0, 0, 0);
    for cut in 1..=cuts {
        let after = whole.mul_f64(machine.random.below(1100) as f64 / 1000.0);
        let (blocks, of) = machine
            .cut(after, OPTIONS[cut % OPTIONS.len()])
            .with_context(|| format!("cut {cut}"))?;
        (lost, unflushed) = (lost + blocks, unflushed + of);
        let state = machine
            .check()
            .with_context(|| format!("after cut {cut}, at {after:?}"))?;
        amid += usize::from(state == "interrupted");
        begun += usize::from(state == "underway");
    }
    ensure!(begun == 0, "nothing is under way after a cut");
    let told = format!(
        "{full} % full: {cuts} cuts of what takes {whole:?}: {amid} told as interrupted; {lost} of {unflushed} unflushed blocks lost; clean after the journal's replay each time, {} files as \
         they were, no donor left, no changed knob",
        machine.files.len()
    );
    Ok((amid, told))
}

impl Machine {
    fn state(&self) -> PathBuf {
        self.point.join("state")
    }

    fn mount(&mut self, options: &str) -> Result<Mounted> {
        let node = self.disk.device().to_string_lossy().into_owned();
        Ok(Mounted::new(&["-t", "ext4", "-o", options, &node], &self.point)?)
    }

    fn learn(&mut self) -> Result<()> {
        let mut paths: Vec<PathBuf> = self
            .files
            .iter()
            .map(|file| self.point.join(&file.name))
            .collect();
        arrange(&mut paths, Use::Random, &mut self.random)?;
        learn(&self.state(), &paths)
    }

    /// A whole one, and how long it takes.
    fn first(&mut self) -> Result<Duration> {
        let mounted = self.mount(OPTIONS[0])?;
        self.learn()?;
        let begun = Instant::now();
        let said = super::apply(&self.state())?;
        let whole = begun.elapsed();
        ensure!(said.state == "complete", "one that nobody cut: {said:?}");
        self.nameless = nameless(&self.point)?;
        drop(mounted);
        self.disk.commit()?;
        Ok(whole)
    }

    /// Cuts the power so long after it began.
    fn cut(&mut self, after: Duration, options: &str) -> Result<(usize, usize)> {
        self.disk.renew()?;
        let mounted = self.mount(options)?;
        self.learn()?;
        // What was learned is there for sure.
        rustix::fs::sync();
        let mut child = start(&self.state())?;
        std::thread::sleep(after.max(Duration::from_millis(1)));
        let lost = self.disk.cut_power(&mut self.random, Cut::Blocks)?;
        child.kill()?;
        child.wait()?;
        // What the kernel writes now is forgotten.
        drop(mounted);
        self.disk.renew()?;
        Ok(lost)
    }

    /// What there is when the machine is on again, kept for the next cut; what `layout status` tells.
    fn check(&mut self) -> Result<String> {
        // The journal is replayed, and the nameless files of a dead process go.
        drop(self.mount(OPTIONS[0])?);
        run_command(Command::new("e2fsck").arg("-fn").arg(self.disk.device())).context("e2fsck -fn")?;
        let mounted = self.mount(OPTIONS[0])?;
        for file in &self.files {
            file.check(&self.point)?;
        }
        ensure!(
            nameless(&self.point)? == self.nameless,
            "an inode has no name: a donor is left"
        );
        let knobs = knobs(self.disk.device())?;
        let goal = knobs
            .iter()
            .find(|(path, _)| path.ends_with("inode_goal"))
            .context("inode_goal")?;
        ensure!(goal.1.trim() == "0", "inode_goal is {}", goal.1);
        let state = status(&self.state())?.map_or("none".into(), |said| said.state);
        drop(mounted);
        self.disk.commit()?;
        Ok(state)
    }
}

/// Inodes in use that no name leads to; an ext4 has some of its own.
fn nameless(at: &Path) -> Result<u64> {
    fn names(at: &Path) -> Result<u64> {
        let mut count = 0;
        for entry in fs::read_dir(at)? {
            let path = entry?.path();
            count += 1;
            if fs::symlink_metadata(&path)?.is_dir() {
                count += names(&path)?;
            }
        }
        Ok(count)
    }
    let facts = rustix::fs::statvfs(at)?;
    Ok(facts.f_files - facts.f_ffree - names(at)?)
}
