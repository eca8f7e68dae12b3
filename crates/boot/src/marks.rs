//! Marks that users set: `headstart mark NAME` appends a line, the boot's process reads them at its end. A
//! file, so that nobody has to listen, and a mark set before the process is ready is not lost.

use anyhow::{Context, Result, bail};
use headstart_system::process::ProcessStat;
use rustix::time::{ClockId, clock_gettime};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

const FILE: &str = "marks";
/// Enough for a name, and a line is written in one piece.
const MAX_NAME: usize = 64;
/// A file of so many bytes has more marks than a boot has stages.
const MOST: u64 = 64 << 10;
/// Nobody needs longer to read and execute headstart: a CD-ROM drive does so in ten seconds.
const LONGEST_TO_BEGIN_NS: u64 = 60_000_000_000;

/// Now, nanoseconds of CLOCK_MONOTONIC, the clock of the trace's events and of systemd's time stamps.
pub fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// What a clock says, nanoseconds.
pub fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// When this process began, before it executed headstart, nanoseconds of CLOCK_MONOTONIC, by the kernel's
/// ticks of 10 ms.
pub fn own_begin_ns() -> Option<u64> {
    let since_boot = headstart_system::process::ticks(ProcessStat::own()?.start_ticks);
    let began_ns = u64::try_from(since_boot.as_nanos()).ok()?;
    let age_ns = clock_ns(ClockId::Boottime).saturating_sub(began_ns);
    Some(monotonic_ns().saturating_sub(age_ns))
}

/// A time of CLOCK_MONOTONIC, nanoseconds, at which whoever started this process says to have begun; `None`
/// if that cannot be.
pub fn handed_over(said: &str, now_ns: u64) -> Option<u64> {
    let began_ns = said.parse().ok().filter(|began_ns| *began_ns > 0)?;
    let age_ns = now_ns.checked_sub(began_ns)?;
    (age_ns <= LONGEST_TO_BEGIN_NS).then_some(began_ns)
}

/// Notes that the stage `name` begins now.
pub fn add(run: &Path, name: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(good) {
        bail!("{name:?} is no name of a stage: use at most {MAX_NAME} letters, digits, -, _ and .");
    }
    let path = run.join(FILE);
    if std::fs::metadata(&path).is_ok_and(|facts| facts.len() >= MOST) {
        bail!("{} has {MOST} bytes of marks, and takes no more", path.display());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(run)
        .and_then(|()| {
            let mut options = OpenOptions::new();
            options.append(true).create(true).mode(0o600);
            options.open(&path)
        })
        .and_then(|mut file| file.write_all(format!("{} {name}\n", monotonic_ns()).as_bytes()))
        .with_context(|| format!("cannot note the mark in {}: run as root", path.display()))
}

/// The marks so far: when, and which stage. Lines that make no sense are left out.
pub fn read(run: &Path) -> Vec<(u64, String)> {
    let mut text = String::new();
    if let Ok(file) = File::open(run.join(FILE)) {
        // What cannot be read is no mark.
        let _ = file.take(MOST).read_to_string(&mut text);
    }
    text.lines()
        .filter_map(|line| {
            let (time, name) = line.split_once(' ')?;
            Some((time.parse().ok()?, name.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_began_lately() {
        let before = monotonic_ns();
        let began = own_begin_ns().unwrap();
        // The tests of a crate are one process, done within minutes.
        assert!(
            began < before && before - began < 3_600_000_000_000,
            "{began} {before}"
        );
    }

    #[test]
    fn what_is_handed_over_is_believed_only_if_it_can_be() {
        let now_ns = 100_000_000_000;
        assert_eq!(handed_over("99000000000", now_ns), Some(99_000_000_000));
        assert_eq!(handed_over("100000000000", now_ns), Some(now_ns));
        assert_eq!(handed_over("40000000000", now_ns), Some(40_000_000_000));
        for bad in [
            "",
            "0",
            "39999999999",
            "100000000001",
            "-1",
            "1e9",
            "9".repeat(30).as_str(),
        ] {
            assert_eq!(handed_over(bad, now_ns), None, "{bad:?}");
        }
        assert_eq!(handed_over("0", 1_000_000_000), None, "no clock");
    }

    #[test]
    fn marks_are_kept_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run");
        assert!(read(&run).is_empty());
        let before = monotonic_ns();
        add(&run, "office").unwrap();
        add(&run, "desktop.ready").unwrap();
        let marks = read(&run);
        assert_eq!(
            marks.iter().map(|m| m.1.as_str()).collect::<Vec<_>>(),
            ["office", "desktop.ready"]
        );
        assert!(before <= marks[0].0 && marks[0].0 <= marks[1].0 && marks[1].0 <= monotonic_ns());
        for bad in ["", "a b", "a\nb", &"x".repeat(MAX_NAME + 1)] {
            assert!(add(&run, bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn marks_without_end_are_refused_and_read_in_part() {
        let dir = tempfile::tempdir().unwrap();
        let line = "1 x\n";
        std::fs::write(dir.path().join(FILE), line.repeat(MOST as usize)).unwrap();
        let error = add(dir.path(), "one-more").unwrap_err().to_string();
        assert!(error.contains("takes no more"), "{error}");
        assert_eq!(read(dir.path()).len(), MOST as usize / line.len());
    }
}
