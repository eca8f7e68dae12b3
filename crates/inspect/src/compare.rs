//! What devices read during a start, whose it is, and whether the plan had it: where that comes from, joined.

use crate::owners::{Named, Place, find, places};
use anyhow::{Context, Result, bail};
use headstart_compare::blktrace::{Reader, Start};
use headstart_compare::{Comparison, Input, compare, of_activity, wanted};
use headstart_model::blocks::{BlockRead, Part};
use headstart_model::machine::ByteRange;
use headstart_model::plan::PlanFile;
use headstart_model::trace::{FileState, Trace};
use headstart_model::{FilePath, Key, human};
use headstart_record::BlockReads;
use headstart_start::keys;
use headstart_start::progress::Progress;
use headstart_store::Store;
use headstart_system::mounts::MountTable;
use rustix::fs::OFlags;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, stderr};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often the kernel's events are taken.
const DRAIN_EVERY: Duration = Duration::from_millis(50);

/// Where it comes from what devices read.
pub enum Source<'a> {
    /// The trace itself, if it was recorded so.
    Trace,
    /// Files of blktrace of the same start.
    Blktrace(&'a [PathBuf]),
    /// The kernel's events from now until the command has ended, or without one until somebody interrupts.
    Live(&'a [OsString]),
}

/// Joins what devices read with whose it is and with a plan. Owners are looked for until `limit` has passed.
pub fn reads(
    trace: &Trace,
    source: &Source<'_>,
    plan: Option<&PlanFile>,
    limit: Duration,
) -> Result<Comparison> {
    let progress = Progress::begin();
    let (reads, lost) = match source {
        Source::Trace => of_activity(trace).context(
            "the trace does not tell what devices read: record it with `record --chart`, or give --blktrace or --live",
        )?,
        Source::Blktrace(files) => (of_blktrace(trace, files, &progress)?, 0),
        Source::Live(command) => live(command, &progress)?,
    };
    let deadline = Instant::now() + limit;
    let mounts = MountTable::read().context("cannot read the mount table")?;
    let parts: Vec<Part> = of_trace(trace, &mounts)
        .into_iter()
        .map(|place| {
            let bytes = wanted(&reads, &place.part);
            let named = named(trace, &mounts, &place);
            match bytes.is_empty() {
                true => place.part,
                false => search(&mounts, place, &bytes, &named, deadline, &progress),
            }
        })
        .collect();
    if parts.is_empty() {
        bail!(
            "no file system of the trace is mounted from a block device now: mount what it was recorded on"
        );
    }
    progress.tell("joining reads, their owners and the plan");
    let plan = plan.map(|file| file.plan()).transpose().context("the plan")?;
    Ok(compare(&Input {
        trace,
        reads: &reads,
        lost,
        parts: &parts,
        plan,
    })?)
}

/// Looks for owners, and tells how far it is.
fn search(
    mounts: &MountTable,
    place: Place,
    bytes: &[ByteRange],
    named: &Named,
    deadline: Instant,
    progress: &Progress,
) -> Part {
    let point = place.part.mount_point.to_string();
    let tell = |left: u64| progress.tell(&format!("{} of {point} without an owner yet", human::bytes(left)));
    find(mounts, place, bytes, named, deadline, &tell)
}

/// The plan of the start that a trace is of; `None` if there is none. What is damaged goes to `tell`.
pub fn plan_of_trace(store: &Store, trace: &Trace, mut tell: impl FnMut(String)) -> Option<PlanFile> {
    let words: Vec<OsString> = trace.meta.command.iter().map(OsString::from).collect();
    let key = match words.is_empty() {
        true => Key::new("boot").ok(),
        false => keys::of_command(&words).ok(),
    };
    store.key(&key?).plan().or_tell(&mut tell)
}

/// All places of the whole devices that file systems of the trace are on.
fn of_trace(trace: &Trace, mounts: &MountTable) -> Vec<Place> {
    let all = places(mounts);
    let mut points: HashSet<&FilePath> = HashSet::new();
    for filesystem in trace.filesystems.iter().filter(|it| it.local) {
        // Where it is mounted several times, the place is known by another.
        let now = mounts.lookup(filesystem.mount_point.as_bytes());
        let now =
            now.filter(|now| now.mount_point == filesystem.mount_point && now.fstype == filesystem.fstype);
        let place = now.and_then(|mount| mounts.by_device(mount.major, mount.minor));
        points.extend(now.map(|mount| &mount.mount_point));
        points.extend(place.map(|mount| &mount.mount_point));
    }
    let devices: HashSet<(u32, u32)> = all
        .iter()
        .filter(|place| points.contains(&place.part.mount_point))
        .map(|place| (place.part.major, place.part.minor))
        .collect();
    all.into_iter()
        .filter(|place| devices.contains(&(place.part.major, place.part.minor)))
        .collect()
}

/// The files of a trace that are on a place.
fn named(trace: &Trace, mounts: &MountTable, place: &Place) -> Named {
    let device = |path: &FilePath| {
        mounts
            .lookup(path.as_bytes())
            .map(|mount| (mount.major, mount.minor))
    };
    let here = device(&place.part.mount_point);
    let files = trace.files.iter().filter(|file| file.state == FileState::Present);
    files
        .filter(|file| here.is_some() && device(&file.path) == here)
        .map(|file| (file.inode, file.path.clone()))
        .collect()
}

fn of_blktrace(trace: &Trace, files: &[PathBuf], progress: &Progress) -> Result<Vec<BlockRead>> {
    let mut reader = Reader::default();
    for path in files {
        let name = path.display().to_string();
        progress.tell(&format!("reading {name}"));
        // Of a pipe that nobody writes to one would wait for ever.
        let mut options = File::options();
        options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
        let file = options.open(path).with_context(|| name.clone())?;
        if !file.metadata().with_context(|| name.clone())?.is_file() {
            bail!("{name} is no regular file: give those that blktrace wrote");
        }
        reader.file(&name, BufReader::new(file))?;
    }
    let processes = trace.processes.iter().map(|process| process.pid).collect();
    let found = reader.finish(&Start {
        started_unix_ns: trace.meta.started_unix_ns,
        processes: &processes,
    });
    Ok(found.reads)
}

/// Runs a command beside the kernel's events. Its standard output goes where errors go: the other is the report's.
fn live(command: &[OsString], progress: &Progress) -> Result<(Vec<BlockRead>, u64)> {
    let stopped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stopped);
    // What ends the command by the terminal must not end the report.
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .context("cannot wait for an interrupt")?;
    let mut events = BlockReads::start()?;
    let mut child = match command.split_first() {
        None => None,
        Some((program, arguments)) => {
            let output = stderr().as_fd().try_clone_to_owned().context("standard error")?;
            let started = Command::new(program)
                .args(arguments)
                .stdout(Stdio::from(output))
                .spawn();
            Some(started.with_context(|| format!("cannot start {}", program.to_string_lossy()))?)
        }
    };
    let begun = Instant::now();
    loop {
        events.drain()?;
        let ended = match &mut child {
            None => {
                // A command writes there itself.
                progress.tell(&format!(
                    "counting what devices read for {} s, until an interrupt (Ctrl-C)",
                    begun.elapsed().as_secs()
                ));
                stopped.load(Ordering::Relaxed)
            }
            Some(child) => child.try_wait()?.is_some(),
        };
        if ended {
            return Ok(events.finish()?);
        }
        std::thread::sleep(DRAIN_EVERY);
    }
}
