//! Setups: what is done around a start. Hooks (install, record, prepare, start) as data, so that any tool can
//! be one: the built-in ones are files too, under `lab/setups/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::built_in::{built_in, text};

/// How a tool is put to work: a TOML file. Commands are lists of words; `{program}` as a word of its own
/// stands for the program's own command line, and within words `{workload}`, `{state}` (a directory kept
/// between runs, outside the image), `{mount}` or `{root}` (the image), `{files}` (the setup's own files),
/// `{headstart}` (the binary), `{disk}` (the disk as `headstart floor --disk` takes it) and `{profile}` (the
/// setup's file of profiles, if it has one) are filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Name in tables; the file's stem when not given.
    #[serde(default)]
    pub name: String,
    /// One line for people.
    #[serde(default)]
    pub description: String,
    /// Programs the host must have, checked before anything runs.
    #[serde(default)]
    pub requires: Vec<String>,
    /// On the host, once, with the setup's own image mounted read-write at `{root}`.
    #[serde(default)]
    pub install: Vec<Vec<String>>,
    /// The disk has no delays for `install` and `learn`: for what works through a whole disk, and measures
    /// nothing.
    #[serde(default)]
    pub install_at_once: bool,
    /// What the tool learns from before the first round, each from cold: a number of starts, or commands in
    /// place of the start.
    #[serde(default)]
    pub record: Record,
    /// On the host, once, after what was recorded, with the setup's own image mounted read-write at `{root}`.
    #[serde(default)]
    pub learn: Vec<Vec<String>>,
    /// On the host before each start, on its fresh cold mount; timed and counted with the start. Not for
    /// machines that boot.
    #[serde(default)]
    pub prepare: Vec<Vec<String>>,
    /// A service that runs beside each start, and beside those that are learned from: begun before it,
    /// untimed, until it says that it is ready (sd_notify(3)), and ended after it. Not for virtual machines.
    #[serde(default)]
    pub beside: Vec<String>,
    /// What the line of sd_notify(3) begins with by which it says so.
    #[serde(default = "ready")]
    pub ready: String,
    /// On the host, untimed, after each start that is learned from, while `beside` runs: ends when that has
    /// learned.
    #[serde(default)]
    pub learned: Vec<Vec<String>>,
    /// The start. Machines that boot have no other than the boot itself.
    #[serde(default = "program")]
    pub start: Vec<String>,
    /// On the host, after the last round, with the setup's own image mounted at `{root}`: what prints the
    /// floor of the starts that were learned from, then those of warm starts if it can, as
    /// `headstart floor --json` does.
    #[serde(default)]
    pub floor: Vec<String>,
    /// On the host, untimed, when all is learned and before the first round, with the setup's own image
    /// mounted at `{root}`: what it prints is kept with the results as one line, such as whether starts are
    /// bypassed.
    #[serde(default)]
    pub tell: Vec<String>,
    /// What is in memory when the start begins.
    #[serde(default)]
    pub cache: Cache,
    /// What a measured start writes to the image stays for the next one, as on a real machine.
    #[serde(default)]
    pub keep: bool,
    /// Words added to the kernel command line of a virtual machine, or to process 1's of a container.
    #[serde(default)]
    pub kernel: Vec<String>,
    /// How a virtual machine's disk is attached, and so what it is called there.
    #[serde(default)]
    pub bus: Bus,
    /// What stands for a container's initramfs. A start that is learned from has none.
    #[serde(default)]
    pub initramfs: Option<Initramfs>,
    /// What a container starts as process 1, in place of the service manager that it finds.
    #[serde(default)]
    pub init: Option<String>,
    /// A file of profiles (headstart-profiles(5)) that is imported: a path from the experiment's directory.
    #[serde(default)]
    pub profile: Option<PathBuf>,
    /// Scripts and other files the commands need, by name: they lie in `{files}` when a command runs. The
    /// path of a hook of the package ([`HOOKS`]) stands for its text.
    #[serde(default)]
    pub file: BTreeMap<String, String>,
    /// Whatever the file does not say is as in this other setup. Absent once loaded.
    #[serde(default, skip_serializing)]
    pub like: Option<String>,
    /// Where the experiment has a setup of this name before this one: install and record nothing that it has,
    /// but begin with a copy of what it has learned, for a setup that differs in nothing but how many starts
    /// it learns from.
    #[serde(default)]
    pub goes_on_from: Option<String>,
    /// An earlier build gets no twin of it (`--earlier`), for it cannot do all that its commands ask for.
    #[serde(default)]
    pub this_build_only: bool,
    /// Which build of headstart its commands call. Set by `--earlier`, not by files.
    #[serde(default, skip_deserializing)]
    pub build: Build,
    /// Share the state directory (and what was recorded) of the setup of this name, which must come before
    /// this one.
    #[serde(default)]
    pub state_of: Option<String>,
}

/// A command that begins before a container's root is mounted, as one of an initramfs does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Initramfs {
    /// The command, on the host: what it reads itself is in memory, as an initramfs is. The root's device
    /// becomes its last word.
    pub run: Vec<String>,
    /// How long it has until the root is mounted. The mount, and what is read before process 1 is executed,
    /// come to that, as in an initramfs.
    pub milliseconds: u64,
    /// Whether it is ended when process 1 is executed.
    #[serde(default)]
    pub stops: bool,
    /// Whether it has to fail before the boot is over. One that does not fail as said, or fails all the same,
    /// makes the run an aborted one.
    #[serde(default)]
    pub fails: bool,
}

/// Builds of headstart that can be measured in the same rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Build {
    /// The one that the experiment is about (`--headstart`).
    #[default]
    This,
    /// One to compare it with (`--earlier`).
    Earlier,
}

/// How a virtual machine's disk is attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bus {
    /// As `/dev/sda`.
    #[default]
    Scsi,
    /// As `/dev/nvme0n1`.
    Nvme,
}

/// What the names of setups that use the earlier build end in.
pub const EARLIER: &str = "-earlier";

/// What a setup learns from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a number of starts, or a list of commands, each a list of words"
)]
pub enum Record {
    /// So many starts, as the setup starts.
    Starts(usize),
    /// These commands, each in place of a start.
    Commands(Vec<Vec<String>>),
}

impl Default for Record {
    fn default() -> Record {
        Record::Starts(0)
    }
}

impl Record {
    /// Starts to learn from.
    pub fn len(&self) -> usize {
        match self {
            Record::Starts(count) => *count,
            Record::Commands(commands) => commands.len(),
        }
    }

    /// Nothing to learn.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The commands to run; `None` stands for the setup's own start.
    pub fn commands(&self) -> Vec<Option<&[String]>> {
        match self {
            Record::Starts(count) => vec![None; *count],
            Record::Commands(commands) => commands.iter().map(|c| Some(c.as_slice())).collect(),
        }
    }
}

/// What is in memory when a start begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cache {
    /// Nothing: a fresh attach and mount, or a fresh virtual machine.
    #[default]
    Cold,
    /// What every machine that runs has in memory, what loads programs and the C library: the image's
    /// `/bin/true` has run. Not for machines that boot.
    Running,
    /// All: the start was rehearsed.
    Warm,
    /// All, for the mount of the run before is still there: so runs of several setups follow one another
    /// within seconds. Only the first start on a mount is rehearsed. Not for machines that boot.
    Kept,
    /// What `echo 3 >/proc/sys/vm/drop_caches` cannot drop: the start was rehearsed, and then the caches of
    /// the whole machine were dropped.
    DropAll,
}

fn program() -> Vec<String> {
    vec!["{program}".to_owned()]
}

fn ready() -> String {
    "READY=1".to_owned()
}

/// The setups that ship with the lab, by name.
pub const BUILT_IN: &[(&str, &str)] = built_in!(
    "setups",
    [
        "none",
        "warm",
        "headstart",
        "layout",
        "daemon",
        "daemon-person",
        "person",
        "recorded",
        "daemon-recorded",
        "daemon-no-pagein",
        "before",
        "replay-first",
        "list",
        "vmtouch",
        "copied",
        "unpacked",
        "touched",
        "e4defrag",
        "no-pagein",
        "headstart-own",
        "boot-none",
        "boot-bare",
        "boot-list",
        "boot-headstart",
        "boot-headstart-init",
        "boot-hydrate",
        "boot-hydrate-golden",
        "boot-hydrate-wrong",
        "boot-hydrate-vm",
        "boot-hydrate-vm-golden",
        "boot-hydrate-vm-wrong",
        "boot-headstart-generator",
        "boot-headstart-unit",
        "boot-layout",
        "boot-e4defrag",
        "boot-headstart-20",
        "again",
        "plain",
        "slower",
        "writer",
        "reader",
        "reader-own",
        "headstart-reader-own",
        "hog",
        "headstart-hog",
        "daemon-memory-64",
        "daemon-memory-16",
        "memory-64",
        "memory-16",
        "wrong-usr",
        "wrong-usr-later",
        "wrong-machine",
        "wrong-machine-later",
        "wrong-year",
        "wrong-year-later",
        "wrong-empty",
        "wrong-empty-later",
        "changed",
        "headstart-changed",
        "headstart-12",
        "daemon-12",
        "boot-headstart-12",
        "imported",
        "own-third",
        "boot-imported",
    ]
);

/// Hooks that the package installs and `headstart boot enable` does not, by their paths in this project.
macro_rules! hooks {
    ($($path:literal),*) => {
        [$(($path, include_str!(concat!("../../", $path)))),*]
    };
}
const HOOKS: [(&str, &str); 2] = hooks!(
    "packaging/initramfs-tools/hooks/headstart",
    "packaging/initramfs-tools/scripts/local-premount/headstart"
);

impl Setup {
    /// A built-in setup by name, or the TOML file at a path ending in `.toml`.
    pub fn load(name: &str) -> Result<Setup> {
        let text = text("setup", BUILT_IN, name)?;
        let parsed = || format!("the setup {name}");
        // An error in what a file says names its line.
        toml::from_str::<Setup>(&text).with_context(parsed)?;
        Setup::of_table(toml::from_str(&text).with_context(parsed)?, name)
    }

    /// The setup that a table describes: a file's, or one in an experiment. Errors call it `name`; where the
    /// table does not name it, its name is what is left of that without directory and ending.
    pub fn of_table(own: toml::Table, name: &str) -> Result<Setup> {
        let parsed = || format!("the setup {name}");
        let mut setup: Setup = own.clone().try_into().with_context(parsed)?;
        if let Some(like) = setup.like.take() {
            let other = text("setup", BUILT_IN, &like).with_context(|| format!("the setup {name}: like"))?;
            let mut merged: toml::Table =
                toml::from_str(&other).with_context(|| format!("the setup {like}"))?;
            if merged.contains_key("like") {
                bail!("the setup {name}: like names {like:?}, which is like another itself: name that");
            }
            merged.extend(own);
            merged.remove("like");
            setup = merged.try_into().with_context(parsed)?;
        }
        for text in setup.file.values_mut() {
            if let Some((_, hook)) = HOOKS.iter().find(|(path, _)| path == text) {
                *text = (*hook).to_owned();
            }
        }
        if setup.name.is_empty() {
            let stem = Path::new(name).file_stem().unwrap_or_default();
            setup.name = stem.to_string_lossy().into_owned();
        }
        if let Some(file) = setup
            .file
            .keys()
            .find(|name| name.is_empty() || name.contains('/'))
        {
            bail!("the setup {name}: file {file:?} must be a plain name");
        }
        if setup.name.is_empty() || setup.name.starts_with('.') || setup.name.contains('/') {
            // It is the name of a directory, too.
            bail!(
                "the setup {name}: name {:?} must not be empty, begin with a dot or hold a slash",
                setup.name
            );
        }
        if setup.start.is_empty() {
            bail!("the setup {name}: start is empty; leave it out for the program itself");
        }
        if setup.state_of.is_some()
            && !(setup.install.is_empty() && setup.record.is_empty() && setup.learn.is_empty())
        {
            bail!("the setup {name}: with state_of it has no install, record or learn of its own");
        }
        Ok(setup)
    }

    /// All commands of all hooks.
    pub fn commands(&self) -> impl Iterator<Item = &Vec<String>> {
        let recorded = match &self.record {
            Record::Starts(_) => &[][..],
            Record::Commands(commands) => commands,
        };
        let hooks = self
            .install
            .iter()
            .chain(recorded)
            .chain(&self.learn)
            .chain(&self.prepare)
            .chain(&self.learned);
        let beside = Some(&self.beside).filter(|beside| !beside.is_empty());
        let asked = [&self.floor, &self.tell]
            .into_iter()
            .filter(|asked| !asked.is_empty());
        let initramfs = self.initramfs.iter().map(|model| &model.run);
        hooks
            .chain([&self.start])
            .chain(asked)
            .chain(beside)
            .chain(initramfs)
    }

    /// Writes its own files into `directory`.
    pub fn write_files(&self, directory: &Path) -> Result<()> {
        for (name, content) in &self.file {
            let path = directory.join(name);
            std::fs::create_dir_all(directory)
                .and_then(|()| std::fs::write(&path, content))
                .with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(())
    }

    /// The same setup with the earlier build, under a name of its own.
    pub fn with_earlier_build(&self) -> Setup {
        Setup {
            name: format!("{}{EARLIER}", self.name),
            description: format!("{}; by the earlier build", self.description),
            build: Build::Earlier,
            ..self.clone()
        }
    }

    /// Whether any hook calls headstart.
    pub fn needs_headstart(&self) -> bool {
        self.commands().flatten().any(|word| word.contains("{headstart}"))
    }
}

/// What the placeholders stand for.
#[derive(Debug, Clone)]
pub struct Names {
    /// Placeholder (without braces) and value.
    pub values: BTreeMap<&'static str, String>,
    /// The program's own command line.
    pub program: Vec<String>,
}

impl Names {
    /// Fills a command in; an unknown placeholder is an error.
    pub fn fill(&self, template: &[String]) -> Result<Vec<String>> {
        let mut words = Vec::with_capacity(template.len() + self.program.len());
        for word in template {
            if word == "{program}" {
                words.extend(self.program.iter().cloned());
                continue;
            }
            let mut filled = word.clone();
            for (name, value) in &self.values {
                filled = filled.replace(&format!("{{{name}}}"), value);
            }
            if let Some((_, rest)) = filled.split_once('{').filter(|(_, rest)| rest.contains('}')) {
                let known: Vec<&str> = self.values.keys().copied().collect();
                let name = rest.split('}').next().unwrap_or_default();
                bail!(
                    "{word:?}: no placeholder {{{name}}}; there are program, {}",
                    known.join(", ")
                );
            }
            words.push(filled);
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests;
