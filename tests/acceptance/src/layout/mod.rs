//! Images full of files that `headstart layout apply` moves, for proofs that it harms none of them.
//!
//! [`Image`] is one file system on a loop device: of a shape, a size, filled to some part, and with files of
//! which every SHA-256 is known. [`matrix`] moves them on all of these, [`files_in_use`] while others use
//! them, [`kills`] and [`cuts`] end it amid its work.

pub mod cuts;
mod files;
pub mod files_in_use;
pub mod kills;
pub mod matrix;
mod stress;
pub mod swaps;

use crate::headstart;
use anyhow::{Context, Result, bail, ensure};
pub use files::{Known, known, population};
use headstart_bench::statistics::Random;
use headstart_model::profile::{Entry, Policy};
use headstart_model::{Key, Profile};
use headstart_store::Store;
use headstart_system::testing::{self, LoopFs, Spec, run};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The name under which headstart knows the files.
pub const KEY: &str = "layout";
const PAGE: u64 = 4096;

/// What features a file system has.
#[derive(Debug)]
pub struct Shape {
    /// For the table.
    pub name: &'static str,
    mkfs: &'static [&'static str],
    /// What tune2fs(8) makes of it when half of the files are there.
    tuned: Option<&'static str>,
    /// Whether its files can be moved at all.
    pub movable: bool,
}

const fn shape(name: &'static str, mkfs: &'static [&'static str]) -> Shape {
    Shape {
        name,
        mkfs,
        tuned: None,
        movable: true,
    }
}

const EXT3: &str = "^extent,^64bit,^flex_bg,^metadata_csum,^huge_file,^dir_nlink,^extra_isize";

/// All shapes.
pub const SHAPES: [Shape; 10] = [
    shape("4 KiB", &["-b", "4096"]),
    shape("2 KiB", &["-b", "2048"]),
    shape("1 KiB", &["-b", "1024"]),
    shape("64bit, csum", &["-b", "4096", "-O", "64bit,metadata_csum"]),
    shape("no 64bit, csum", &["-b", "4096", "-O", "^64bit,^metadata_csum"]),
    shape("no flex_bg", &["-b", "4096", "-O", "^flex_bg"]),
    Shape {
        movable: false,
        ..shape("no journal", &["-b", "4096", "-O", "^has_journal"])
    },
    shape("inline data", &["-b", "4096", "-O", "inline_data"]),
    Shape {
        tuned: Some("extent"),
        ..shape("was an ext3", &["-b", "4096", "-O", EXT3])
    },
    Shape {
        movable: false,
        ..shape("ext3", &["-b", "4096", "-O", EXT3])
    },
];

/// How full the file systems are that are killed and cut upon, per cent: there is room for all that is to be
/// moved, and for some of it.
pub const FULL: [u64; 2] = [50, 90];

/// In which order files are used, by where they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// As they lie.
    Sequential,
    /// The last one first.
    Reversed,
    /// By chance.
    Random,
}

/// What a file system is like.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Bytes.
    pub size: u64,
    /// How much of it is in use, percent.
    pub full: u64,
    /// Its features.
    pub shape: &'static Shape,
    /// Of all that is drawn.
    pub seed: u64,
}

/// What one `layout apply` said.
#[derive(Clone, Debug)]
pub struct LayoutReport {
    /// `complete`, `declined`, …
    pub state: String,
    /// Why, if it says so.
    pub why: String,
    /// Files moved.
    pub files: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Jumps before and after.
    pub jumps: (u64, u64),
    /// Files left, by reason.
    pub left: BTreeMap<String, u64>,
}

/// One file system, mounted.
pub struct Image {
    /// It.
    pub fs: LoopFs,
    /// What is in each file that may be moved.
    pub files: Vec<Known>,
    /// For what is drawn next.
    pub random: Random,
    inodes: u64,
    free: u64,
    state: tempfile::TempDir,
}

impl Image {
    /// Makes and fills it.
    pub fn new(case: &Case) -> Result<Image> {
        headstart()?;
        let mut random = Random(case.seed);
        let spec = Spec {
            size: case.size,
            ..Spec::new("ext4").mkfs(case.shape.mkfs).mkfs(&["-m", "0"])
        };
        let population = population(case, &mut random);
        let half = population.len() / 2;
        let (first, second) = population.split_at(if case.shape.tuned.is_some() { half } else { 0 });
        let mut written = Ok(());
        let mut fs = LoopFs::create(&spec, |at| {
            written = files::write(at, first, case, &mut random);
            Ok(())
        })
        .context("making a file system")?;
        written?;
        if let Some(feature) = case.shape.tuned {
            fs.unmount();
            run(Command::new("tune2fs").args(["-O", feature]).arg(fs.image()))?;
            fs.remount_cold()?;
        }
        let at = fs.mount_point();
        files::write(&at, second, case, &mut random)?;
        files::fill(&at, case, &mut random)?;
        fs.remount_cold()?;
        let files = known(&fs.mount_point(), &population)?;
        let mut image = Image {
            fs,
            files,
            random,
            inodes: 0,
            free: 0,
            state: tempfile::tempdir_in("/var/tmp")?,
        };
        (image.free, image.inodes) = image.room()?;
        Ok(image)
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> PathBuf {
        self.fs.mount_point()
    }

    /// Where headstart keeps what it knows.
    pub fn state(&self) -> &Path {
        self.state.path()
    }

    /// Free bytes and inodes.
    fn room(&self) -> Result<(u64, u64)> {
        rustix::fs::sync();
        let facts = rustix::fs::statvfs(self.mount_point())?;
        Ok((facts.f_bfree * facts.f_frsize, facts.f_ffree))
    }

    /// Has headstart know that the files are used in this order.
    pub fn learn(&mut self, order: Use) -> Result<()> {
        let mut paths = self.paths();
        arrange(&mut paths, order, &mut self.random)?;
        learn(self.state(), &paths)
    }

    /// The files that may be moved.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.files
            .iter()
            .map(|file| self.mount_point().join(&file.name))
            .collect()
    }

    /// One `headstart layout apply`.
    pub fn apply(&self) -> Result<LayoutReport> {
        apply(self.state())
    }

    /// Everything is as it was but for where it lies: the file system is clean, every SHA-256 the same when
    /// read from the device, no file or inode more than before, and no knob changed.
    pub fn check(&mut self) -> Result<()> {
        self.fs.check().context("e2fsck -fn")?;
        for file in &self.files {
            file.check(&self.mount_point())?;
        }
        let (free, inodes) = self.room()?;
        ensure!(
            inodes == self.inodes,
            "{inodes} free inodes, and before {}",
            self.inodes
        );
        // The blocks of extent trees come and go.
        let moved = free.abs_diff(self.free);
        ensure!(
            moved <= PAGE * self.files.len() as u64,
            "{free} bytes are free, and before {}",
            self.free
        );
        Ok(())
    }
}

/// Where each file begins on the device, bytes; those without data nowhere.
pub fn places(paths: &[PathBuf]) -> Result<BTreeMap<PathBuf, Option<u64>>> {
    let place = |path: &PathBuf| {
        let extents = headstart_system::extents::extents(&File::open(path)?)?;
        Ok((path.clone(), extents.first().map(|extent| extent.physical)))
    };
    paths.iter().map(place).collect()
}

/// Brings paths into the order of their use; those without data come first.
pub fn arrange(paths: &mut [PathBuf], order: Use, random: &mut Random) -> Result<()> {
    let places = places(paths)?;
    paths.sort_by_key(|path| places[path]);
    match order {
        Use::Sequential => {}
        Use::Reversed => paths.reverse(),
        Use::Random => {
            for last in (1..paths.len()).rev() {
                paths.swap(last, random.below(last + 1));
            }
        }
    }
    Ok(())
}

/// Writes a profile that needs all of these files, in this order; those that are gone meanwhile are left out.
pub fn learn(state: &Path, paths: &[PathBuf]) -> Result<()> {
    let whole = |(number, path): (u64, &PathBuf)| testing::whole(path, number).ok();
    let mut entries: Vec<Entry> = (0..).zip(paths).filter_map(whole).collect();
    entries.retain(|entry| entry.ranges.iter().all(|range| range.pages > 0));
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let key = Key::new(KEY)?;
    let profile = Profile {
        entries,
        ..Profile::new(key.clone(), PAGE as u32, Policy::Decay)
    };
    let store = Store::new(state);
    store.make()?;
    store.key(&key).lock()?.save_profile(&profile)?;
    Ok(())
}

/// Starts `headstart layout apply`, whether or not it is worth it.
pub fn start(state: &Path) -> Result<Child> {
    Command::new(headstart()?)
        .arg("--state")
        .arg(state)
        .args(["layout", "apply", "--force", "--json", KEY])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting headstart")
}

/// `headstart layout apply` to its end.
pub fn apply(state: &Path) -> Result<LayoutReport> {
    let output = start(state)?.wait_with_output()?;
    ensure!(
        output.status.success(),
        "layout apply: {}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout)
    );
    said(&output.stdout)
}

/// What `headstart layout status` tells, which must work at any time.
pub fn status(state: &Path) -> Result<Option<LayoutReport>> {
    let output = Command::new(headstart()?)
        .arg("--state")
        .arg(state)
        .args(["layout", "status", "--json"])
        .stdin(Stdio::null())
        .output()?;
    ensure!(
        output.status.success(),
        "layout status: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    match document.as_array().is_some_and(|results| results.is_empty()) {
        true => Ok(None),
        false => said(&output.stdout).map(Some),
    }
}

fn said(json: &[u8]) -> Result<LayoutReport> {
    let document: serde_json::Value = serde_json::from_slice(json).context("what layout apply prints")?;
    let [one] = document.as_array().context("a list of file systems")?.as_slice() else {
        bail!("one file system, not {document}");
    };
    let number = |value: &serde_json::Value| value.as_u64().context("a number");
    let mut left = BTreeMap::new();
    for (why, count) in one["left"].as_object().context("what is left")? {
        left.insert(why.clone(), number(count)?);
    }
    Ok(LayoutReport {
        state: one["state"].as_str().context("a state")?.into(),
        why: one["why"].as_str().unwrap_or_default().into(),
        files: number(&one["files"])?,
        bytes: number(&one["bytes"])?,
        jumps: (number(&one["before"]["jumps"])?, number(&one["after"]["jumps"])?),
        left,
    })
}

/// What can be set of a mounted ext4, and how it is set.
pub fn knobs(node: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let name = node.file_name().context("a device")?;
    let mut knobs = BTreeMap::new();
    for entry in fs::read_dir(Path::new("/sys/fs/ext4").join(name))? {
        let path = entry?.path();
        let is_knob = fs::metadata(&path).is_ok_and(|facts| facts.is_file() && facts.mode() & 0o200 != 0);
        // Tells of the last trim (fitrim(8)), by which a thin volume gets room back that was taken and not
        // used: nobody's setting.
        if path.ends_with("last_trim_minblks") {
            continue;
        }
        // What can only be written is a trigger.
        if let Some(value) = is_knob.then(|| fs::read_to_string(&path).ok()).flatten() {
            knobs.insert(path, value);
        }
    }
    ensure!(knobs.len() > 5, "only {} knobs in sysfs", knobs.len());
    Ok(knobs)
}
