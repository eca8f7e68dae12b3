//! The boot-failure guard on a disk whose power is cut.
//!
//! Boots that come to their end or do not take it and arm it, one after the other, while somebody else keeps
//! the file system's journal busy. At a random moment the power of the lab's disk is cut: what the kernel had
//! in memory is lost, and of what the disk had not flushed some blocks are torn between sectors.

use crate::registry;
use anyhow::{Context, Result, ensure};
use headstart_bench::statistics::Random;
use headstart_lab::disk::{Attached, Cut, Options, Writes};
use headstart_lab::model::{Model, Op};
use headstart_lab::paths;
use headstart_model::Key;
use headstart_store::{Guard, KeyDir, Store};
use headstart_system::testing::{Mounted, run as run_command};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A file system that boots are kept on.
#[derive(Clone, Copy)]
struct FileSystem {
    kind: &'static str,
    /// Of mount(8).
    options: &'static str,
    /// Its size, about the least there is.
    mib: u64,
}

const EXT4: FileSystem = FileSystem {
    kind: "ext4",
    options: "data=ordered",
    mib: 64,
};
/// With the second, data goes through the journal, too, and O_DIRECT is none.
const FILE_SYSTEMS: [FileSystem; 3] = [
    EXT4,
    FileSystem {
        options: "data=journal",
        ..EXT4
    },
    FileSystem {
        kind: "xfs",
        options: "noatime",
        mib: 320,
    },
];

/// After so many failures in succession boots are given up.
const MOST_FAILED: u8 = 3;

/// The longest that boots go on before a cut, microseconds: some tens of them.
const LONGEST_US: usize = 40_000;

/// What a guard's file says: its first byte and all but the second, and the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Says {
    is_armed: bool,
    failed: u8,
}

/// What the guard says from one write to the next, `None` while there is none.
#[derive(Clone, Debug)]
struct Steps {
    /// The first is before any write; the last write may be under way.
    says: Vec<Option<Says>>,
    /// How many writes are done for sure.
    done: usize,
}

/// A file system on the lab's disk.
struct Machine {
    fs: FileSystem,
    disk: Attached,
    point: PathBuf,
    random: Random,
}

/// Cuts so often on each file system: the guard says after each what one of the writes said that were not
/// done for sure, or is torn and says that it is not armed; its count is none lower than what was done. The
/// next boot is served only where it is armed. Returns what came of it.
pub fn run(cuts: usize, seed: u64) -> Result<String> {
    let told: Vec<String> = FILE_SYSTEMS
        .iter()
        .map(|fs| on(*fs, cuts, seed).with_context(|| format!("on {}, {}", fs.kind, fs.options)))
        .collect::<Result<_>>()?;
    Ok(told.join("\n"))
}

fn on(fs: FileSystem, cuts: usize, seed: u64) -> Result<String> {
    let scratch = tempfile::tempdir_in(paths::base()?)?;
    let mut machine = Machine::new(fs, scratch.path(), seed)?;
    let (mut amid, mut armed, mut torn, mut steps) = (0, 0, 0, 0);
    for cut in 1..=cuts {
        let (at_cut, found) = machine.cut().with_context(|| format!("cut {cut}"))?;
        let possible = &at_cut.says[at_cut.done..];
        let is_torn = !possible.contains(&found);
        let is_not_armed = |found: &Says| {
            let counts = possible.iter().map(|says| says.map_or(0, |says| says.failed));
            !found.is_armed && counts.into_iter().any(|count| count == found.failed)
        };
        ensure!(
            !is_torn || found.as_ref().is_some_and(is_not_armed),
            "after cut {cut} it says {found:?}, and may say one of {possible:?}"
        );
        machine
            .next_boot(found)
            .with_context(|| format!("after cut {cut}"))?;
        steps += at_cut.done;
        amid += usize::from(possible.len() > 1);
        torn += usize::from(is_torn);
        armed += usize::from(found.is_some_and(|says| says.is_armed));
    }
    ensure!(
        amid > 0 && armed > 0 && armed < cuts,
        "the cuts came at any moment"
    );
    Ok(format!(
        "{}, {}: {cuts} cuts amid {steps} writes of the guard, {amid} within one: {armed} times armed then, {torn} times torn and not armed",
        fs.kind, fs.options
    ))
}

impl Machine {
    fn new(fs: FileSystem, scratch: &Path, seed: u64) -> Result<Machine> {
        let image = scratch.join("image");
        File::create(&image)?.set_len(fs.mib << 20)?;
        run_command(Command::new(format!("mkfs.{}", fs.kind)).arg("-q").arg(&image))?;
        let options = Options {
            model: Model::load("none")?,
            image,
            directory: scratch.join("disk"),
            writes: Writes::Delta(scratch.join("delta")),
        };
        Ok(Machine {
            fs,
            disk: Attached::new(&options, &registry(&paths::base()?)?)?,
            point: scratch.join("root"),
            random: Random(seed),
        })
    }

    fn mount(&self) -> Result<Mounted> {
        let node = self.disk.device().to_string_lossy().into_owned();
        let FileSystem { kind, options, .. } = self.fs;
        Ok(Mounted::new(&["-t", kind, "-o", options, &node], &self.point)?)
    }

    fn boots(&self) -> Result<(Store, KeyDir)> {
        let store = Store::new(self.point.join("state"));
        fs::create_dir_all(store.root())?;
        let kept = store.key(&Key::new("boot")?);
        Ok((store, kept))
    }

    /// Lets boots go on until the power is cut: what the guard may say then, and what it says.
    fn cut(&mut self) -> Result<(Steps, Option<Says>)> {
        let mounted = self.mount()?;
        let (_, kept) = self.boots()?;
        // A third of them begin as the first boots of a machine, or after those that were given up.
        let said = says(&kept)?;
        if self.random.below(3) == 0 || said.is_some_and(|says| says.failed >= MOST_FAILED) {
            kept.forget()?;
        }
        rustix::fs::sync();
        // What that wrote behind the file system's back lasts, too.
        File::open(self.disk.device())?.sync_all()?;
        let steps = Mutex::new(Steps {
            says: vec![says(&kept)?],
            done: 0,
        });
        let after = Duration::from_micros(self.random.below(LONGEST_US) as u64);
        let (mut of_boots, mut of_cut) = (Random(self.random.bits()), Random(self.random.bits()));
        let ends = AtomicBool::new(false);
        let device = self.disk.device();
        let at_cut = std::thread::scope(|scope| -> Result<Steps> {
            let neighbour = scope.spawn(|| beside(&self.point, &ends));
            let boots = scope.spawn(|| boot_after_boot(&kept, device, &mut of_boots, &steps, &ends));
            std::thread::sleep(after);
            // While this is held no other step begins, and what is under way goes on.
            let steps = locked(&steps);
            let cut = self.disk.cut_power(&mut of_cut, Cut::Sectors);
            ends.store(true, Ordering::Relaxed);
            let at_cut = steps.clone();
            drop(steps);
            for thread in [neighbour, boots] {
                thread
                    .join()
                    .map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            }
            cut?;
            Ok(at_cut)
        })?;
        // What the kernel writes now is forgotten.
        drop(mounted);
        self.disk.renew()?;
        // The journal is replayed.
        let mounted = self.mount()?;
        let found = says(&kept)?;
        drop(mounted);
        Ok((at_cut, found))
    }

    /// The boot after a cut, which comes to its end; what it leaves stays.
    fn next_boot(&self, found: Option<Says>) -> Result<()> {
        let mounted = self.mount()?;
        let (_, kept) = self.boots()?;
        let expected = match found {
            None => Guard::Taken,
            Some(says) if says.failed >= MOST_FAILED => Guard::GivenUp,
            Some(says) if says.is_armed => Guard::Taken,
            Some(_) => Guard::Failed,
        };
        let taken = kept.disarm(|| File::open(self.disk.device()).ok())?;
        ensure!(
            taken == Some(expected),
            "the next boot finds {taken:?}, not {expected:?}"
        );
        kept.lock()?.arm(taken == Some(Guard::Taken))?;
        drop(mounted);
        self.disk.commit()
    }
}

fn locked(steps: &Mutex<Steps>) -> std::sync::MutexGuard<'_, Steps> {
    steps.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the guard's file says; `None` where there is none.
fn says(kept: &KeyDir) -> Result<Option<Says>> {
    let block = match fs::read(kept.guard_path().context("a path")?) {
        Ok(block) => block,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    ensure!(block.len() == 4096, "a guard of {} bytes", block.len());
    let failed = block[1].wrapping_sub(b'a');
    let is_armed = block
        .iter()
        .enumerate()
        .all(|(at, byte)| at == 1 || *byte == b'1');
    ensure!(
        kept.is_armed() == (is_armed && failed < MOST_FAILED),
        "a guard is read as it is written"
    );
    Ok(Some(Says { is_armed, failed }))
}

/// Boots, one after the other; one in five fails. Each step is told before it begins and when it is done.
fn boot_after_boot(
    kept: &KeyDir,
    device: &Path,
    random: &mut Random,
    steps: &Mutex<Steps>,
    ends: &AtomicBool,
) -> Result<()> {
    let now = || locked(steps).says.last().copied().flatten();
    let begins = |next| locked(steps).says.push(Some(next));
    let is_done = || {
        let mut steps = locked(steps);
        steps.done = steps.says.len() - 1;
    };
    while !ends.load(Ordering::Relaxed) {
        let failed = now().map_or(0, |says| says.failed);
        let expected = match now() {
            _ if failed >= MOST_FAILED => return Ok(()),
            Some(says) if !says.is_armed => Guard::Failed,
            _ => Guard::Taken,
        };
        if expected == Guard::Taken {
            begins(Says {
                is_armed: false,
                failed,
            });
        }
        let found = kept.disarm(|| File::open(device).ok())?;
        is_done();
        ensure!(
            found == Some(expected),
            "a boot finds {found:?}, not {expected:?}"
        );
        if random.below(5) == 0 {
            continue;
        }
        let had_taken = expected == Guard::Taken;
        begins(Says {
            is_armed: true,
            failed: if had_taken { 0 } else { failed + 1 },
        });
        kept.lock()?.arm(had_taken)?;
        is_done();
    }
    Ok(())
}

/// Somebody else's changes: the journal always has a transaction, and commits one now and then.
fn beside(point: &Path, ends: &AtomicBool) -> Result<()> {
    let file = File::create(point.join("other"))?;
    for turn in 0u32.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        file.set_permissions(Permissions::from_mode(0o600 | turn & 0o77))?;
        if turn % 16 == 0 {
            file.sync_all()?;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// What the disk is asked for while an armed guard is taken amid a transaction of somebody else's, with and
/// without its device: how often it is to write and to flush.
pub fn requests() -> Result<[(usize, usize); 2]> {
    let scratch = tempfile::tempdir_in(paths::base()?)?;
    let mut machine = Machine::new(EXT4, scratch.path(), 1)?;
    let first = machine.mount()?;
    let (_, kept) = machine.boots()?;
    kept.lock()?.arm(true)?;
    drop(first);
    machine.disk.commit()?;
    let mut asked = [(0, 0); 2];
    for (with_device, asked) in [true, false].into_iter().zip(&mut asked) {
        // Its inode is not in memory then.
        machine.disk.renew()?;
        let mounted = machine.mount()?;
        rustix::fs::sync();
        fs::write(machine.point.join("other"), "begins a transaction")?;
        ensure!(kept.is_armed());
        machine.disk.take_log();
        let device = || File::open(machine.disk.device()).ok().filter(|_| with_device);
        let begun = Instant::now();
        ensure!(kept.disarm(device)? == Some(Guard::Taken));
        // The kernel commits by itself after 5 s.
        ensure!(
            begun.elapsed() < Duration::from_secs(4),
            "the machine is too busy to count"
        );
        let log = machine.disk.take_log();
        let count = |op| log.iter().filter(|entry| entry.op == op).count();
        *asked = (count(Op::Write), count(Op::Flush));
        drop(mounted);
    }
    Ok(asked)
}
