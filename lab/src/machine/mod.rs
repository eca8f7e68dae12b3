//! Machines: what starts on a modelled disk. One file for each kind; the runner (`experiment`) drives them
//! all by [`Machine`].
//!
//! A machine is made for one case of an experiment and used for all its setups, one after another. What a
//! setup keeps between runs (its state directory, and on machines that boot from their own disk the blocks it
//! changed there) lies in its [`Place`], which outlives the process: an interrupted experiment goes on with
//! what was learned.

mod boot;
mod chart;
mod chroot;
mod command;
mod console;
mod container;
mod initramfs;
mod qmp;
mod remote;
mod running;
mod service;
mod vm;

use std::collections::BTreeMap;
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub use boot::Booting;
pub use chart::ChartArgs;
pub use chroot::{Chroot, LIMIT, Mounted};
pub use command::BootArgs;

use crate::disk::Entry;
use crate::image::{Fs, Recipe};
use crate::kind::Kind;
use crate::model::Model;
use crate::registry::Registry;
use crate::setup::{Names, Setup};

/// Everything a machine is made of.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Which machine.
    pub kind: Kind,
    /// What is on its disk, and what is started.
    pub recipe: Recipe,
    /// The file system of its root.
    pub fs: Fs,
    /// The disk's timing.
    pub model: Model,
    /// Memory of a virtual machine; its own default when absent.
    pub memory_mb: Option<u64>,
    /// Emulated processors of a virtual machine; two when absent.
    pub processors: Option<NonZeroU8>,
    /// How long the server needs for an answer from which the root comes, where it comes from one.
    pub answer: Option<Duration>,
    /// A run that takes longer is ended and counts as aborted.
    pub limit: Duration,
    /// The lab's own directory (`paths::base`): mounts and scratch files.
    pub base: PathBuf,
    /// What programs and consoles print is appended here.
    pub output: PathBuf,
}

/// Where one setup of one case keeps what it has learned.
#[derive(Debug, Clone)]
pub struct Place {
    /// `{state}`: kept between runs, outside the image. A machine with a disk of its own puts the setup's
    /// changed blocks here.
    pub state: PathBuf,
    /// `{headstart}`: the binary.
    pub headstart: PathBuf,
    /// `{workload}`: name of the image.
    pub workload: String,
    /// `{disk}`: the disk as `headstart floor --disk` takes it.
    pub disk: String,
    /// Whether the disk has no delays for what is installed.
    pub at_once: bool,
    /// `{profile}`: the file of profiles of a setup that has one.
    pub profile: Option<PathBuf>,
}

impl Place {
    /// The file of the image's blocks that this setup changed (`disk::Writes::Delta`).
    pub fn delta(&self) -> PathBuf {
        self.beside("delta")
    }

    /// A file beside the state directory.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.state.file_name().unwrap_or_default().to_owned();
        name.push(".");
        name.push(suffix);
        self.state.with_file_name(name)
    }

    /// `{files}`: the setup's own files.
    pub fn files(&self) -> PathBuf {
        self.beside("files")
    }

    /// The placeholders of this place; `root` is where the image is mounted now, `program` the program's own
    /// command line.
    pub fn names(&self, root: &Path, program: Vec<String>) -> Names {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let values = [
            ("workload", self.workload.clone()),
            ("state", text(&self.state)),
            ("mount", text(root)),
            ("root", text(root)),
            ("files", text(&self.files())),
            ("headstart", text(&self.headstart)),
            ("disk", self.disk.clone()),
        ];
        let mut values = BTreeMap::from(values);
        values.extend(self.profile.as_deref().map(|profile| ("profile", text(profile))));
        Names { values, program }
    }
}

/// One timed part of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stage {
    /// `prepare`, `start`, `boot`.
    pub name: String,
    /// Wall clock, in seconds, from before the fork to after the exit, or from power-on to the last mark.
    pub seconds: f64,
    /// Read requests at the block device, or requests that a server answered.
    pub reads: u64,
    /// Bytes read from the block device, or from a server.
    pub bytes: u64,
    /// Seconds in which the device had a request outstanding.
    pub busy_seconds: f64,
    /// Seconds in which any task of the machine was held up by I/O (`some` of `/proc/pressure/io`); absent
    /// without PSI.
    pub stalled_seconds: Option<f64>,
}

/// A moment a machine reports by itself, such as `multi-user` or `desktop`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Name.
    pub name: String,
    /// Seconds since the start of the run.
    pub seconds: f64,
}

/// What one start gave.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// In order; their seconds add up to the run's.
    pub stages: Vec<Stage>,
    /// In order of time.
    pub marks: Vec<Mark>,
    /// What the disk was asked meanwhile, in order.
    pub requests: Vec<Entry>,
}

/// A machine on a modelled disk.
///
/// Every start is cold for certain (a fresh attach and mount, or a fresh virtual machine), apart from a setup
/// with `warm`. A start that fails or exceeds the limit is an error; the machine must be usable again
/// afterwards, for the runner goes on with the next run.
pub trait Machine {
    /// Bytes of the disk.
    fn size(&self) -> u64;

    /// Runs `commands` (templates) on the host with the setup's own image mounted read-write at `{root}`.
    /// What they write is in every later start of this place, and in no other's.
    fn install(&mut self, place: &Place, commands: &[Vec<String>]) -> Result<()>;

    /// One start to learn from, by `command` (a template), or as the setup starts when there is none. What it
    /// writes is kept.
    fn record(&mut self, setup: &Setup, place: &Place, command: Option<&[String]>) -> Result<Measured>;

    /// One measured start. What it writes to the image is kept if `setup.keep`, else forgotten; `{state}` is
    /// always kept.
    fn run(&mut self, setup: &Setup, place: &Place) -> Result<Measured>;

    /// Runs commands as [`Machine::install`] does, and forgets what they write there: the disk stays as the
    /// last start left it. Returns what they print.
    fn inspect(&mut self, place: &Place, commands: &[Vec<String>]) -> Result<String>;
}

/// Fails, before anything is built or run, if this kind of machine cannot be had here or cannot do what the
/// setup asks.
pub fn check(spec: &Spec, setup: &Setup) -> Result<()> {
    match spec.kind {
        Kind::Chroot => Chroot::check(spec, setup),
        Kind::Container | Kind::Vm => Booting::check(spec, setup),
    }
}

/// Builds the image if the cache has none and makes the machine; `say` is told what is being done.
pub fn open(spec: &Spec, registry: &Registry, say: &dyn Fn(&str)) -> Result<Box<dyn Machine>> {
    match spec.kind {
        Kind::Chroot => Ok(Box::new(Chroot::open(spec, registry, say)?)),
        Kind::Container | Kind::Vm => Ok(Box::new(Booting::open(spec, registry, say)?)),
    }
}
