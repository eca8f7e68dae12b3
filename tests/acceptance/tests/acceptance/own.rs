//! What headstart itself has read before it asks for anything of a start, where its program and its state are
//! as cold as all else.

use anyhow::{Context, Result};
use headstart_acceptance::Case;
use headstart_acceptance::boots::{Boots, words};
use headstart_boot::init::OF_HEADSTART;
use headstart_lab::disk::Entry;
use headstart_lab::image::Fs;
use headstart_lab::machine::{Machine, Place};
use headstart_lab::model::Op;
use headstart_lab::paths;
use headstart_lab::registry::Registry;
use headstart_system::extents::extents;
use headstart_system::program::Program;
use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;

/// headstart-init may ask for so much more of headstart than a start needs, which depends on compiler and
/// processor.
const TOO_MUCH: u64 = 640 << 10;

/// A start needs no more of the program, bytes.
const MOST_NEEDED: u64 = 2 << 20;

/// More than that is read ahead before process 1 begins, bytes; without a replay less than 1 MiB is read.
const LEAST_OF_A_BOOT: u64 = 4 << 20;

/// Bytes of a block, for filefrag.
const BLOCK: u64 = 4096;

/// Where a file lies on the device, in bytes, by where it lies in the file.
struct FileExtents(Vec<(Range<u64>, u64)>);

impl FileExtents {
    fn read(path: &Path) -> Result<FileExtents> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let extents = extents(&file)?;
        let one = |extent: &headstart_model::machine::Extent| {
            (extent.physical..extent.physical + extent.length, extent.logical)
        };
        Ok(FileExtents(extents.iter().map(one).collect()))
    }

    /// The same of a file in an image, as `filefrag -e -b4096` prints it (filefrag(8)).
    fn parse(printed: &str) -> Result<FileExtents> {
        let mut extents = Vec::new();
        for line in printed.lines() {
            let numbers = line
                .split(|c: char| !c.is_ascii_digit())
                .filter(|word| !word.is_empty());
            let numbers: Vec<u64> = numbers.map_while(|word| word.parse().ok()).collect();
            if let (true, [_, logical, _, first, last, ..]) = (line.contains(".."), &*numbers) {
                extents.push((first * BLOCK..(last + 1) * BLOCK, logical * BLOCK));
            }
        }
        anyhow::ensure!(!extents.is_empty(), "no extents in {printed}");
        Ok(FileExtents(extents))
    }

    /// Whether a read has a byte of it.
    fn is_read(&self, entry: &Entry) -> bool {
        let end = entry.offset + entry.length;
        self.0
            .iter()
            .any(|(at, _)| entry.offset < at.end && end > at.start)
    }

    /// Whether a read has nothing of it but what is behind the byte `logical`.
    fn is_behind(&self, logical: u64, entry: &Entry) -> bool {
        let end = entry.offset + entry.length;
        let mut of_it = self
            .0
            .iter()
            .filter(|(at, _)| entry.offset < at.end && end > at.start);
        of_it.all(|(at, start)| start + entry.offset.max(at.start) - at.start >= logical)
    }

    /// Where in the file a read begins.
    fn place(&self, entry: &Entry) -> Option<u64> {
        let end = entry.offset + entry.length;
        let (at, start) = self
            .0
            .iter()
            .find(|(at, _)| entry.offset < at.end && end > at.start)?;
        Some(start + entry.offset.saturating_sub(at.start))
    }

    /// Where the byte `logical` of the file is on the device.
    fn byte(&self, logical: u64) -> Option<u64> {
        let (at, start) = self
            .0
            .iter()
            .find(|(at, start)| (*start..start + (at.end - at.start)).contains(&logical))?;
        Some(at.start + logical - start)
    }
}

#[test]
fn few_reads_that_wait_for_one_another_come_before_the_first_request() -> Result<()> {
    let disk = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../lab/experiments/disks/60ms.toml"
    );
    let mut case = Case::on(disk, "true", Fs::Ext4)?;
    let root = case.machine.root();
    let (program, state) = (root.join("usr/bin/headstart"), root.join("var/lib/headstart"));
    let headstart = headstart_acceptance::headstart()?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut run = [
        "--state",
        &text(&state),
        "run",
        "--wait",
        "--control-every",
        "0",
        "--name",
        "k",
        "--",
    ]
    .map(str::to_owned)
    .to_vec();
    run.insert(0, text(&program));
    run.extend(case.machine.program());
    let directory = tempfile::tempdir()?;
    let place = Place {
        state: directory.path().join("own"),
        headstart: headstart.clone(),
        workload: "true".into(),
        disk: String::new(),
        at_once: false,
        profile: None,
    };
    let copy = ["install", "-D", "-m", "755", &text(&headstart), &text(&program)].map(str::to_owned);
    Machine::install(&mut case.machine, &place, &[copy.to_vec(), run.clone()])?;

    let mounted = case.machine.fresh()?;
    let start = fs::read_dir(state.join("starts"))?
        .next()
        .context("no start was kept")??
        .path();
    let (own, needed) = (FileExtents::read(&program)?, FileExtents::read(&start)?);
    let laid = Program::parse(&fs::read(&program)?).context("headstart is no program")?;
    let end = laid.data_end;
    let by_init = OF_HEADSTART as u64;
    assert!(
        (end..end + TOO_MUCH).contains(&by_init),
        "a start needs {end} bytes of headstart, headstart-init asks for {by_init}"
    );
    let entry = own
        .byte(laid.first_instruction)
        .context("the program is not there")?;
    let size = fs::metadata(&program)?.len();
    let library = fs::canonicalize(root.join("usr/lib/x86_64-linux-gnu/libc.so.6"))?;
    let library = FileExtents::read(&library)?;
    drop(mounted);

    let _mounted = case.machine.fresh()?;
    case.machine.take_log();
    case.machine.stage("start", &run)?;
    let log = case.machine.take_log();
    let reads: Vec<&Entry> = log.iter().filter(|entry| entry.op == Op::Read).collect();
    let first = reads
        .iter()
        .position(|read| read.offset <= entry && entry < read.offset + read.length)
        .context("the program was not cold")?;
    // Its header, its first instruction and what the kernel clears of it lie together (`first.ld`).
    let begins = reads.iter().take(first + 1).filter(|read| own.is_read(read));
    assert_eq!(
        begins.count(),
        1,
        "reads of the program until its first instruction"
    );
    let asked = reads
        .iter()
        .position(|read| library.is_read(read))
        .context("nothing was read ahead")?;
    let before = reads
        .get(first + 1..asked)
        .context("a library was read before the program")?;
    for read in before.iter().filter(|read| read.depth == 1) {
        let whose = match (own.is_read(read), needed.is_read(read)) {
            (true, _) => "headstart",
            (_, true) => "what it needs first",
            _ => "directories and inodes",
        };
        println!("{whose}: {} bytes at {}", read.length, read.offset);
    }
    assert!(
        before.iter().any(|read| own.is_read(read)),
        "the program was not asked for"
    );
    // What it needs lies together, and the rest has not come, but for what another compiler than that of
    // `order.ld` may have made apart.
    assert!(
        end < MOST_NEEDED && end < size,
        "{end} bytes of {size} are what a start needs"
    );
    let of_rest = before
        .iter()
        .filter(|read| own.is_read(read) && own.is_behind(end, read));
    let of_rest: Vec<_> = of_rest.map(|read| (own.place(read), read.length)).collect();
    assert!(of_rest.len() <= 3, "read of what is no start's: {of_rest:?}");
    // What nothing else is in flight with: the program's first, what comes with the rest of it, and the file
    // of what is needed first, where it was ten with the directories on the way to that; and the replay's own
    // first, of metadata, one to three. They were 45 once (decision 18).
    let waits = before.iter().filter(|read| read.depth == 1);
    assert!(waits.clone().count() <= 6, "{waits:?}");
    // The directories come with the program.
    let on_the_way = waits.take_while(|read| !needed.is_read(read));
    let alone: Vec<_> = on_the_way.filter(|read| !own.is_read(read)).collect();
    assert!(alone.is_empty(), "nothing else was on its way: {alone:?}");
    Ok(())
}

#[test]
fn process_1_waits_for_no_more_of_headstart_than_headstart_init_has_asked_for() -> Result<()> {
    let registry = Registry::open(&paths::base()?)?;
    let mut boots = Boots::new("container", "none", &registry)?;
    boots.setup.init = Some("/usr/sbin/headstart-init".into());
    for _ in 0..3 {
        boots.boot()?;
    }
    boots.unconfigure()?;
    let print = words(&[
        "filefrag",
        "-e",
        &format!("-b{BLOCK}"),
        "{root}/usr/bin/headstart",
    ]);
    let own = FileExtents::parse(&boots.machine.inspect(&boots.place, &[print])?)?;
    let booted = boots.machine.run(&boots.setup, &boots.place)?;
    let systemd = booted.marks.iter().find(|mark| mark.name == "systemd");
    let begins = systemd.context("process 1 became no systemd")?.seconds;
    let is_before = |entry: &&Entry| entry.op == Op::Read && (entry.at as f64) < begins * 1e9;
    let before = booted.requests.iter().filter(is_before);
    let (reads, ahead): (Vec<&Entry>, Vec<&Entry>) = before.partition(|read| own.is_read(read));
    let ahead: u64 = ahead.iter().map(|read| read.length).sum();
    assert!(ahead > LEAST_OF_A_BOOT, "{ahead} bytes of a boot were read ahead");
    let asked: u64 = reads.iter().map(|read| read.length).sum();
    let by_init = OF_HEADSTART as u64;
    assert!(
        asked >= by_init,
        "{asked} bytes of headstart were read, {by_init} are asked for"
    );
    let others = reads.iter().filter(|read| own.is_behind(by_init, read));
    let others: Vec<_> = others.map(|read| (own.place(read), read.length)).collect();
    assert!(
        others.is_empty(),
        "other pages that were read, by place and length: {others:?}"
    );
    Ok(())
}
