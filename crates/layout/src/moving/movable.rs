//! A file whose data can be moved.

use super::donor::Donor;
use super::mover::reopen;
use super::volume::{RUNS, Volume, may_be_executed, runs};
use headstart_model::machine::Extent;
use headstart_system::executions::Executions;
use headstart_system::extents::Mapper;
use headstart_system::files::Stat;
use headstart_system::mounts::MountTable;
use headstart_system::open::{self, Expect};
use headstart_system::residency;
use headstart_system::sys;
use rustix::fs::OFlags;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The kernel's tick lasts no longer.
const TICK: Duration = Duration::from_millis(10);
/// Nobody who executes a file waits longer for a move that does not end, as on a file system that is frozen.
const MOST_WAIT: Duration = Duration::from_secs(5);
/// Nor longer than this where the process that moves is stopped or frozen: it is ended.
const MOST_STOPPED: Duration = Duration::from_secs(10);

/// When a file or its facts were changed last. Whatever changes them from now on gives it another time: these
/// are as fine as the kernel's tick, so if that was just now the next one is waited for.
fn changed(pin: &OwnedFd) -> Result<(i64, i64), String> {
    let facts = rustix::fs::fstat(pin).map_err(|error| error.to_string())?;
    let changed = (facts.st_ctime, facts.st_ctime_nsec as i64);
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let since = |(seconds, nanoseconds): (i64, i64)| {
        Duration::from_secs(seconds.unsigned_abs()) + Duration::from_nanos(nanoseconds.unsigned_abs())
    };
    if since((now.tv_sec, now.tv_nsec)).abs_diff(since(changed)) < 2 * TICK {
        std::thread::sleep(2 * TICK);
    }
    Ok(changed)
}

/// A file whose data can be moved.
pub struct Movable {
    /// It cannot be read or written by this one. It is open for writing while a move lasts, and no longer:
    /// nobody can execute it then.
    pin: OwnedFd,
    /// Whether it may be executed: who does waits then, see [`Movable::unexecuted`].
    executed: bool,
    /// Its facts when it was opened.
    pub stat: Stat,
    /// When it or its facts were changed last before that, seconds and nanoseconds. Its owner can set its
    /// other times, and not this one.
    changed: (i64, i64),
}

impl Movable {
    /// Opens one, if it still is what is expected; `Err` says why it stays where it is.
    pub fn open(
        volume: &Volume,
        mounts: &MountTable,
        path: &Path,
        expect: &Expect,
    ) -> Result<Movable, String> {
        let (pin, stat) = open::pin(mounts, path).map_err(|skip| skip.to_string())?;
        // Checks what is there and that it is what is expected, on the descriptor that is opened for writing
        // below.
        open::open_pinned(pin.as_fd(), stat, expect).map_err(|skip| skip.to_string())?;
        let changed = changed(&pin)?;
        let executed = may_be_executed(path, stat.mode);
        let why = reopen(pin.as_fd(), OFlags::RDONLY).and_then(|reading| {
            Ok(match volume.why_immovable(path, &reading)? {
                None if executed && runs(&reading)? => Some(RUNS),
                why => why,
            })
        });
        match why.map_err(|error| error.to_string())? {
            Some(why) => Err(why.to_owned()),
            None => Ok(Movable {
                pin,
                executed,
                stat,
                changed,
            }),
        }
    }

    /// The file, to be read.
    pub fn file(&self) -> io::Result<File> {
        reopen(self.pin.as_fd(), OFlags::RDONLY)
    }

    /// Where its written data lies.
    pub fn extents(&self) -> io::Result<Vec<Extent>> {
        Mapper::new().extents(self.file()?.as_fd())
    }

    /// Has what was written to it on the device, so that pages which programs have mapped are protected from
    /// writes again: the next write changes its time. Nothing is done for a file that nobody has written of
    /// late.
    pub fn write_back(&self) -> io::Result<()> {
        let file = self.file()?;
        let counts = residency::cachestat(&file, 0, 0);
        let is_clean = counts.is_ok_and(|counts| counts.dirty == 0 && counts.writeback == 0);
        if is_clean { Ok(()) } else { file.sync_data() }
    }

    /// Whether its data and size are what they were when it was opened.
    pub fn is_unchanged(&self) -> io::Result<bool> {
        let now = headstart_system::files::stat(&self.pin)?;
        let facts = rustix::fs::fstat(&self.pin)?;
        let same = (now.size, now.mtime_ns) == (self.stat.size, self.stat.mtime_ns);
        Ok(same && (facts.st_ctime, facts.st_ctime_nsec as i64) == self.changed)
    }

    /// Moves the data at `[start, start + length)`, which lies in one extent, to the donor's
    /// `[to, to + length)`, which does too; all are multiples of the page size, but that the last page of a
    /// file may end with its last block. One extent a call: then what a move did before it failed is told by
    /// the file's extents. Who executes the file waits for its end.
    pub fn move_to(
        &self,
        volume: &Volume,
        donor: &Donor,
        start: u64,
        to: u64,
        length: u64,
    ) -> io::Result<()> {
        let donor = donor.file();
        let act = || {
            let file = volume.mover.open(volume.root(), self.pin.as_fd())?;
            volume.mover.move_extent(&file, start, donor, to, length)
        };
        if self.executed {
            self.unexecuted(volume, act)
        } else {
            act()
        }
    }

    /// While a file is open for writing, the kernel refuses to execute it (ETXTBSY). So who executes one
    /// meanwhile waits until `act` is over. Where that sleeps for long in the kernel, as on a file system
    /// that is frozen, another thread lets them go on.
    fn unexecuted(&self, volume: &Volume, act: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let reading = self.file()?;
        let switch = volume.switch.as_ref();
        let switch = switch.ok_or_else(|| io::Error::other("it may be executed, and there is no timer"))?;
        let executions = Executions::new()?;
        switch.set(Some(MOST_STOPPED))?;
        let is_over = &AtomicBool::new(false);
        let moved = std::thread::scope(|scope| {
            executions.ask_about(reading.as_fd())?;
            let until = Instant::now() + MOST_WAIT;
            let other = std::thread::Builder::new().spawn_scoped(scope, move || {
                let left = || until.saturating_duration_since(Instant::now());
                while !is_over.load(Ordering::Relaxed) && !left().is_zero() {
                    std::thread::park_timeout(left());
                }
                // With it goes whoever waits; and a process for which nobody waits need not be ended.
                drop(executions);
                let _ = switch.set(None);
            })?;
            // Who was asked about before that has it open, and is not disturbed.
            let moved = match sys::is_open_elsewhere(reading.as_fd())? {
                true => Err(io::Error::other(RUNS)),
                false => act(),
            };
            is_over.store(true, Ordering::Relaxed);
            other.thread().unpark();
            moved
        });
        switch.set(None)?;
        moved
    }
}
