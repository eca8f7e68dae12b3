//! `headstart hydrate` on a volume that is filled as it is read.

use anyhow::{Context, Result, ensure};
use headstart_acceptance::{headstart, registry};
use headstart_lab::disk::{Attached, Entry, Options, Writes};
use headstart_lab::model::Model;
use headstart_lab::paths;
use headstart_model::range_list::RangeList;
use headstart_model::range_list::text::{Check, Span, Volume, crc32, uuid_of_volume};
use headstart_system::testing::{LoopFs, Spec};
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// What the model fetches at once.
const CHUNK: u64 = 512 << 10;

/// A volume of which nothing was fetched yet, and lists beside it.
struct Case {
    disk: Attached,
    scratch: tempfile::TempDir,
    list: RangeList,
}

impl Case {
    /// With so many ranges, each in a chunk of its own, from the last chunk to the first.
    fn new(ranges: u64) -> Result<Case> {
        let base = paths::base()?;
        let registry = registry(&base)?;
        let scratch = tempfile::tempdir_in(&base)?;
        let spec = Spec {
            size: 512 << 20,
            ..Spec::new("ext4")
        };
        let mut made = LoopFs::create(&spec, |_| Ok(()))?;
        made.unmount();
        let image = scratch.path().join("image");
        fs::copy(made.image(), &image)?;
        let bytes = File::open(&image)?;
        let mut begin = [0; 4096];
        bytes.read_exact_at(&mut begin, 0)?;
        let span = |chunk| Span {
            start: chunk * CHUNK + 8192,
            length: 12 << 10,
        };
        let check = |chunk| -> Result<Check> {
            let span = Span {
                length: 4096,
                ..span(chunk)
            };
            let mut bytes_there = [0; 4096];
            bytes.read_exact_at(&mut bytes_there, span.start)?;
            let crc = crc32(&bytes_there);
            Ok(Check { span, crc })
        };
        let list = RangeList {
            volume: Volume {
                uuid: uuid_of_volume(&begin).context("no UUID")?,
                size: spec.size,
                block: 4096,
            },
            checks: (ranges - 4..=ranges).rev().map(check).collect::<Result<_>>()?,
            ranges: (1..=ranges).rev().map(span).collect(),
        };
        let options = Options {
            model: Model::load("lazy")?,
            image,
            directory: scratch.path().join("disk"),
            writes: Writes::Forget,
        };
        fs::write(scratch.path().join("list"), list.to_string())?;
        let disk = Attached::new(&options, &registry)?;
        disk.take_log();
        Ok(Case { disk, scratch, list })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn start(&self, list: &str, words: &[&str]) -> Result<Child> {
        let mut command = Command::new(headstart()?);
        command
            .arg("hydrate")
            .arg(self.path(list))
            .arg(self.disk.device());
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command.spawn()?)
    }

    /// What it said, and what was read of the volume.
    fn hydrate(&self, list: &str, words: &[&str]) -> Result<(Output, Vec<Entry>)> {
        let output = self.start(list, words)?.wait_with_output()?;
        // What was on its way when it ended.
        std::thread::sleep(Duration::from_millis(200));
        Ok((output, self.disk.take_log()))
    }
}

#[test]
fn each_chunk_is_fetched_once_in_the_lists_order_and_many_at_once() -> Result<()> {
    let case = Case::new(200)?;
    let (output, log) = case.hydrate("list", &["--json"])?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    println!("{said}");
    assert_eq!(said["end"], "all");
    let waited = said["waited_for"].as_u64().context("a number")?;
    // The superblock's chunk, and those of the checks, are there when they are touched.
    assert!((190..=200).contains(&waited), "{waited}");
    // The superblock, five checks, the ranges.
    assert_eq!(log.len(), 1 + 5 + 200);
    let chunks: Vec<u64> = log.iter().skip(6).map(|entry| entry.offset / CHUNK).collect();
    assert_eq!(chunks.iter().collect::<HashSet<_>>().len(), 200);
    // Those that were asked for at the same time may have changed places.
    for (index, chunk) in chunks.iter().enumerate() {
        let place = 200 - *chunk as usize;
        assert!(place.abs_diff(index) <= 32, "{chunk} came as number {index}");
    }
    let depth = log.iter().map(|entry| entry.depth).max();
    assert!(depth.is_some_and(|depth| (20..=33).contains(&depth)), "{depth:?}");

    // Again: it is filled. Where this machine's processors are busy, reads of the model take as long as a
    // fetch does; then all are made, in little time.
    let (output, log) = case.hydrate("list", &["--json"])?;
    let again: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    println!("{again}");
    match again["waited_for"].as_u64().context("a number")? {
        0..4 => {
            assert_eq!(again["end"], "filled", "{again}");
            assert!(log.len() <= 6 + 32 + 8, "{}", log.len());
        }
        _ => {
            let seconds = |said: &serde_json::Value| said["seconds"].as_f64().context("seconds");
            assert!(seconds(&again)? < seconds(&said)? / 2.0, "{again}");
        }
    }
    Ok(())
}

#[test]
fn a_list_of_other_contents_costs_a_few_reads() -> Result<()> {
    let case = Case::new(200)?;
    let mut wrong = case.list.clone();
    wrong.checks.iter_mut().for_each(|check| check.crc ^= 1);
    fs::write(case.path("wrong"), wrong.to_string())?;
    let (output, log) = case.hydrate("wrong", &[])?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("are not those that") && said.lines().count() == 1,
        "{said}"
    );
    // As many as begin before the first comes back.
    assert!(log.len() <= 16, "{}", log.len());
    Ok(())
}

#[test]
fn a_signal_and_the_time_end_it_at_once() -> Result<()> {
    let case = Case::new(900)?;
    let begun = Instant::now();
    let (output, log) = case.hydrate("list", &["--seconds", "1"])?;
    let took = begun.elapsed();
    let said = String::from_utf8(output.stdout)?;
    assert!(
        output.status.success() && said.contains("the time was up"),
        "{said}"
    );
    // All would take three seconds.
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert!((100..600).contains(&log.len()), "{}", log.len());

    // Of this one nothing was fetched.
    let case = Case::new(900)?;
    let mut child = case.start("list", &[])?;
    std::thread::sleep(Duration::from_millis(500));
    ensure!(child.try_wait()?.is_none(), "it has ended already");
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::TERM)?;
    let begun = Instant::now();
    let status = child.wait()?;
    assert!(
        begun.elapsed() < Duration::from_millis(500),
        "{:?}",
        begun.elapsed()
    );
    assert!(!status.success());
    std::thread::sleep(Duration::from_millis(300));
    case.disk.take_log();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(case.disk.take_log().len(), 0, "its processes go on");
    Ok(())
}
