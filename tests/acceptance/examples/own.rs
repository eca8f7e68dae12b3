//! What headstart reads of its own, and when, where its program and its state are as cold as the start that
//! it knows (decision 18).
//!
//! `cargo run --release -p headstart-acceptance --example own -- [WORKLOAD [DISK]]`
//! `cargo run --release -p headstart-acceptance --example own -- boot [DISK]`: of a container's boot by
//! `headstart-init`
//!
//! The start has been learned from twice. A line for each read of a file of headstart's, or of what a bare
//! start does not read (`?`, such as the directories on the way). Until 200 ms after the first one of
//! headstart's for all reads, which tells when the replay begins, and for writes and flushes: a boot's guard.

use anyhow::{Context, Result};
use headstart_acceptance::Case;
use headstart_acceptance::boots::Boots;
use headstart_lab::disk::Entry;
use headstart_lab::image::Fs;
use headstart_lab::machine::{Machine, Place};
use headstart_lab::model::Op;
use headstart_lab::paths;
use headstart_lab::registry::Registry;
use headstart_system::extents::extents;
use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// So long after the first read of headstart's all reads are told, nanoseconds.
const BEGINNING: u64 = 200_000_000;

/// What is learned of a start is kept this long after it.
const LEARNED: Duration = Duration::from_secs(3);

/// A file or directory of headstart's, and where its pieces lie on the device, bytes; each with where it
/// begins in the file.
type Own = (String, Vec<(Range<u64>, u64)>);

/// Where in a file a read begins that has a byte of this piece.
fn place_in(entry: &Entry, (range, logical): &(Range<u64>, u64)) -> Option<u64> {
    is_of(range, entry).then(|| logical + entry.offset.saturating_sub(range.start))
}

fn is_of(range: &Range<u64>, entry: &Entry) -> bool {
    entry.offset < range.end && entry.offset + entry.length > range.start
}

/// Adds what is at a path, and below it.
fn add(path: &Path, name: &str, own_files: &mut Vec<Own>) -> Result<()> {
    let extents = extents(&File::open(path)?).unwrap_or_default();
    let lies = extents
        .iter()
        .map(|extent| (extent.physical..extent.physical + extent.length, extent.logical));
    own_files.push((name.into(), lies.collect()));
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            let path = entry?.path();
            let below = path.file_name().context("a name")?.to_string_lossy();
            add(&path, &format!("{name}/{below}"), own_files)?;
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let workload = arguments.next().unwrap_or_else(|| "python".into());
    let disk = arguments.next().unwrap_or_else(|| "disk7200".into());
    let measures = workload != "lies";
    let _alone = measures.then(paths::lock).transpose()?;
    match workload.as_str() {
        "boot" => boot(&disk),
        // By itself, where the image is mounted.
        "lies" => lies(Path::new(&disk)),
        _ => program(workload, &disk),
    }
}

/// Files of headstart's in an image.
const OWN: [&str; 3] = [
    "usr/sbin/headstart-init",
    "usr/bin/headstart",
    "var/lib/headstart",
];

/// A line for each piece of what is headstart's in the root mounted there: where it begins and ends on the
/// device, where it begins in the file, and its name.
fn lies(root: &Path) -> Result<()> {
    let mut own = Vec::new();
    for name in OWN {
        add(&root.join(name), name, &mut own)?;
    }
    for (name, ranges) in own {
        for (range, logical) in ranges {
            println!("{} {} {logical} {name}", range.start, range.end);
        }
    }
    Ok(())
}

fn boot(disk: &str) -> Result<()> {
    let registry = Registry::open(&paths::base()?)?;
    // It learns on a disk without delays.
    let mut boots = Boots::new("container", "none", &registry)?;
    let bare = boots.machine.run(&boots.setup, &boots.place)?;
    boots.setup.init = Some("/usr/sbin/headstart-init".into());
    for _ in 0..2 {
        boots.boot()?;
    }
    boots.unconfigure()?;
    boots.change_disk(disk, &registry)?;
    let this = std::env::current_exe()?.to_string_lossy().into_owned();
    let command = [&this, "lies", "{root}"].map(str::to_owned).to_vec();
    let mut own: Vec<Own> = Vec::new();
    for line in boots.machine.inspect(&boots.place, &[command])?.lines() {
        let mut words = line.splitn(4, ' ');
        let (start, end, logical) = (words.next(), words.next(), words.next());
        let number = |word: Option<&str>| -> Result<u64> { Ok(word.context("a number")?.parse()?) };
        let lies = (number(start)?..number(end)?, number(logical)?);
        own.push((words.next().context("a name")?.into(), vec![lies]));
    }
    let measured = boots.machine.run(&boots.setup, &boots.place)?;
    let seconds = measured.marks.last().context("a last mark")?.seconds;
    println!("headstart-init on {disk}: {seconds:.3} s");
    print_reads(&measured.requests, &needed(&bare.requests), &own)?;
    boots.boot()?;
    let first = boots
        .state()?
        .outcome
        .and_then(|outcome| outcome.first_request_ns);
    let first = first.context("the boot had no replay")?;
    println!(
        "the next boot's first request: {:.1} ms after its first instant",
        first as f64 / 1e6
    );
    Ok(())
}

/// What reads of a start without headstart ask for.
fn needed(log: &[Entry]) -> Vec<Range<u64>> {
    log.iter()
        .filter(|entry| entry.op == Op::Read)
        .map(|entry| entry.offset..entry.offset + entry.length)
        .collect()
}

fn program(workload: String, disk: &str) -> Result<()> {
    let mut case = Case::on(disk, &workload, Fs::Ext4)?;
    let root = case.machine.root();
    let (program, state) = (root.join("usr/bin/headstart"), root.join("var/lib/headstart"));
    let headstart = headstart_acceptance::headstart()?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let line = |wait: Option<&str>| -> Vec<String> {
        let mut words = vec![text(&program), "--state".into(), text(&state), "run".into()];
        words.extend(wait.map(str::to_owned));
        words.extend(["--control-every", "0", "--name", "k", "--"].map(str::to_owned));
        words.extend(case.machine.program());
        words
    };
    let (learns, starts, bare) = (line(Some("--wait")), line(None), case.machine.program());
    let directory = tempfile::tempdir()?;
    let place = Place {
        state: directory.path().join("own"),
        headstart: headstart.clone(),
        workload,
        disk: String::new(),
        at_once: false,
        profile: None,
    };
    let copy = ["install", "-D", "-m", "755", &text(&headstart), &text(&program)].map(str::to_owned);
    for command in [copy.to_vec(), learns.clone(), learns] {
        Machine::install(&mut case.machine, &place, &[command])?;
    }
    let mounted = case.machine.fresh()?;
    case.machine.take_log();
    println!("bare: {:.3} s", case.machine.stage("bare", &bare)?.seconds);
    let needed = needed(&case.machine.take_log());
    let mut own = Vec::new();
    add(&program, "program", &mut own)?;
    add(&state, "state", &mut own)?;
    drop(mounted);
    let mounted = case.machine.fresh()?;
    case.machine.take_log();
    println!(
        "headstart: {:.3} s",
        case.machine.stage("start", &starts)?.seconds
    );
    std::thread::sleep(LEARNED);
    let log = case.machine.take_log();
    drop(mounted);
    print_reads(&log, &needed, &own)
}

/// The reads of a log, but for those of what a bare start needs, too, once it has begun.
fn print_reads(log: &[Entry], needed: &[Range<u64>], own: &[Own]) -> Result<()> {
    let is_own = |entry: &&Entry| {
        let mut pieces = own.iter().flat_map(|(_, lies)| lies);
        pieces.any(|(range, _)| is_of(range, entry))
    };
    let begun = log
        .iter()
        .find(is_own)
        .context("nothing of headstart's was read")?
        .at;
    for entry in log {
        let is_beginning = entry.at.saturating_sub(begun) <= BEGINNING;
        if entry.op != Op::Read && !is_beginning {
            continue;
        }
        let place = |(name, lies): &Own| {
            let at = lies.iter().find_map(|piece| place_in(entry, piece))?;
            Some(format!("{name}, from {at}"))
        };
        let whose = own.iter().rev().find_map(place);
        let is_needed = needed.iter().any(|range| is_of(range, entry));
        if whose.is_none() && is_needed && !is_beginning {
            continue;
        }
        let otherwise = match entry.op {
            Op::Write => "written",
            Op::Flush => "flush",
            Op::Read if is_needed => "the start's",
            Op::Read => "?",
        };
        println!(
            "{:8.1} ms, for {:5.1} ms, {:3} in flight, {:7} bytes: {}{}",
            (entry.at as f64 - begun as f64) / 1e6,
            entry.service as f64 / 1e6,
            entry.depth,
            entry.length,
            whose.as_deref().unwrap_or(otherwise),
            if entry.op == Op::Write && whose.is_some() {
                ", written"
            } else {
                ""
            },
        );
    }
    Ok(())
}
