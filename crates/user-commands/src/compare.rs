//! What devices read during a start, whose it is, and whether the plan had it: where that comes from, joined.

use crate::owners::{Named, Place, find, places};
use anyhow::{Context, Result, bail};
use headstart_compare::{Comparison, Input, MediumReads, Orders, compare, of_activity, wanted};
use headstart_model::blocks::{BlockRead, Part};
use headstart_model::machine::ByteRange;
use headstart_model::plan::PlanFile;
use headstart_model::trace::{FileState, Trace};
use headstart_model::{FilePath, Key, human};
use headstart_start::keys;
use headstart_start::progress::Progress;
use headstart_store::Store;
use headstart_system::mounts::MountTable;
use std::collections::HashSet;
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// Joins what devices read with whose it is and with a plan. Owners are looked for until `limit` has passed.
pub fn reads(trace: &Trace, plan: Option<&PlanFile>, limit: Duration) -> Result<Comparison> {
    let progress = Progress::for_terminal();
    let (reads, lost) = reads_of(trace)?;
    let deadline = Instant::now() + limit;
    let mounts = MountTable::read().context("cannot read the mount table")?;
    let parts: Vec<Part> = places_of_trace(trace, &mounts)
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
    progress.show("joining reads, their owners and the plan");
    let plan = plan.map(|file| file.plan()).transpose().context("the plan")?;
    Ok(compare(&Input {
        trace,
        reads: &reads,
        lost,
        parts: &parts,
        plan,
    })?)
}

/// The reads that a trace recorded, and how many events were lost.
fn reads_of(trace: &Trace) -> Result<(Vec<BlockRead>, u64)> {
    of_activity(trace)
        .context("the trace does not tell what devices read: record it with `headstart record --chart`")
}

/// What a medium read in two starts, with its files in one order and in another.
pub fn orders(before: &Trace, after: &Trace) -> Result<Orders> {
    let reads = |trace, which: &str| -> Result<MediumReads> {
        let (reads, _) =
            reads_of(trace).with_context(|| format!("the trace {which} the files were ordered"))?;
        Ok(MediumReads::of(&reads, &trace.filesystems))
    };
    Ok(Orders {
        before: reads(before, "before")?,
        after: reads(after, "after")?,
    })
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
    let tell = |left: u64| progress.show(&format!("{} of {point} without an owner yet", human::bytes(left)));
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
fn places_of_trace(trace: &Trace, mounts: &MountTable) -> Vec<Place> {
    let places = places(mounts);
    let mut points: HashSet<&FilePath> = HashSet::new();
    for filesystem in trace.filesystems.iter().filter(|filesystem| filesystem.local) {
        // Where it is mounted several times, the place is known by another.
        let now = mounts.lookup(filesystem.mount_point.as_bytes());
        let now =
            now.filter(|now| now.mount_point == filesystem.mount_point && now.fstype == filesystem.fstype);
        let place = now.and_then(|mount| mounts.by_device(mount.major, mount.minor));
        points.extend(now.map(|mount| &mount.mount_point));
        points.extend(place.map(|mount| &mount.mount_point));
    }
    let devices: HashSet<(u32, u32)> = places
        .iter()
        .filter(|place| points.contains(&place.part.mount_point))
        .map(|place| (place.part.major, place.part.minor))
        .collect();
    places
        .into_iter()
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
