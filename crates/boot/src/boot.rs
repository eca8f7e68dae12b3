//! What the process that serves a boot knows of it, from its first instant to its end.

use crate::boot_report::BootReport;
use crate::cmdline::Wish;
use crate::memory::Need;
use crate::own_cpu_time::OwnCpuTime;
use crate::persistence::Persistence;
use crate::replays::Replays;
use crate::wait::how_long::Barrier;
use headstart_model::Key;
use headstart_start::config::Config;
use headstart_start::{Notes, Start};
use headstart_store::{Guard, KeyDir, Store, StoreError};
use headstart_system::launch::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::process::Signal;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// What changes all the time is not looked at more often.
const LEAST_PAUSE: Duration = Duration::from_millis(250);

/// A boot that is served.
pub struct Boot<'a> {
    pub store: &'a Store,
    pub kept: KeyDir,
    pub key: Key,
    pub origin: Instant,
    pub origin_unix_ns: u64,
    pub config: Config,
    pub signals: Signals,
    /// Its poll tells of mounts.
    pub mounts: File,
    pub notes: Notes,
    pub last: BootReport,
    pub wish: Wish,
    /// What the path of the state leads to: what holds it may not be mounted yet.
    pub state: StateId,
    /// How long what is kept there lasts.
    pub lasts: Persistence,
    /// Whether that was mounted since this began.
    pub was_mounted: bool,
    /// What was found of the boot-failure guard; `None` where it cannot be taken yet, on a root that is still
    /// read-only.
    pub guard: Option<Guard>,
    /// What came of arming it again; `None` as long as the boot has not come to its end.
    pub armed: Option<Result<(), StoreError>>,
    /// Its replay may wait until the boot-failure guard can be taken.
    pub start: Start<Replays>,
    pub need: Need,
    pub barrier: Barrier,
    /// When headstart began to be read and to do something, nanoseconds of CLOCK_MONOTONIC.
    pub own_begin_ns: u64,
    /// When nobody had to wait for anything but the replay any more, nanoseconds of CLOCK_MONOTONIC.
    pub free_ns: u64,
    /// What this process has taken of processors.
    pub spent: OwnCpuTime,
}

impl Boot<'_> {
    /// Nothing is read ahead, and why.
    pub fn not_replayed(&mut self, why: String) {
        self.start.decline();
        self.last.not_replayed = Some(why);
    }

    /// Whether nothing is done for this boot, because one failed for which something was done.
    pub fn is_left_alone(&self) -> bool {
        self.guard.is_some_and(|guard| guard != Guard::Taken)
    }

    /// Waits for a while, a signal or a mount.
    pub fn pause(&self, most: Duration, for_mounts: bool) {
        self.pause_or(most, for_mounts, None);
    }

    /// The same, or until another descriptor is readable; not at once, for it may be that all the time.
    pub fn pause_for(&self, most: Duration, other: Option<BorrowedFd<'_>>) {
        self.pause(LEAST_PAUSE, false);
        self.pause_or(most, false, other);
    }

    fn pause_or(&self, most: Duration, for_mounts: bool, other: Option<BorrowedFd<'_>>) {
        let timeout = Timespec {
            tv_sec: most.as_secs() as i64,
            tv_nsec: most.subsec_nanos().into(),
        };
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if let Some(other) = other {
            fds.push(PollFd::from_borrowed_fd(other, PollFlags::IN));
        }
        let for_mounts = for_mounts || self.guard.is_none() || self.start.replay().is_none();
        if for_mounts || self.start.replay().is_some_and(|replays| !replays.are_over()) {
            fds.push(PollFd::new(&self.mounts, PollFlags::PRI));
        }
        // Whatever it says, the caller looks for itself.
        let _ = poll(&mut fds, Some(&timeout));
    }

    /// Whether a signal asks this process to end.
    pub fn told_to_end(&mut self) -> bool {
        let mut told = false;
        while let Ok(Some(received)) = self.signals.next() {
            let ends = [Signal::TERM, Signal::INT, Signal::HUP];
            told |= ends.iter().any(|signal| signal.as_raw() == received.signal);
        }
        told
    }
}

/// The mount that the path of the state leads to: another one once something has been mounted there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StateId(Option<(u32, u32, u64)>);

impl StateId {
    /// Reads which mount the path of the state leads to now.
    pub fn read(store: &Store) -> StateId {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let facts = store
            .root()
            .ancestors()
            .find_map(|path| statx(CWD, path, AtFlags::empty(), wanted).ok());
        // Linux before 5.8 tells of no mount, and of the device as ever.
        StateId(facts.map(|facts| (facts.stx_dev_major, facts.stx_dev_minor, facts.stx_mnt_id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    #[test]
    fn the_state_is_elsewhere_once_something_is_mounted_there_and_not_when_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("var/lib/headstart"));
        let before = StateId::read(&store);
        std::fs::create_dir_all(store.root()).unwrap();
        assert!(StateId::read(&store) == before);
        let var = dir.path().join("var");
        mount("tmpfs", &var, "tmpfs", MountFlags::empty(), c"size=1m").unwrap();
        let mounted = StateId::read(&store);
        unmount(&var, UnmountFlags::DETACH).unwrap();
        assert!(mounted != before && StateId::read(&store) == before);
    }
}
