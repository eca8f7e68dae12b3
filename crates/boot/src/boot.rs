//! What the process that serves a boot knows of it, from its first instant to its end.

use crate::barrier::Barrier;
use crate::cmdline::Wish;
use crate::config::Config;
use crate::last::Last;
use crate::memory::Need;
use crate::replays::Replays;
use crate::spent::Spent;
use headstart_model::Key;
use headstart_model::plan::PlanFile;
use headstart_session::Notes;
use headstart_store::{KeyDir, Store};
use headstart_system::launch::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

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
    pub last: Last,
    pub wish: Wish,
    /// Where nothing was found of earlier boots: what holds it may not be mounted yet.
    pub unknown_in: Option<StateId>,
    pub replays: Option<Replays>,
    /// A plan whose replay waits until the boot-failure guard can be taken.
    pub plan: Option<PlanFile>,
    pub need: Need,
    pub barrier: Barrier,
    /// When headstart began to be read and to do something, nanoseconds of CLOCK_MONOTONIC.
    pub own_begin_ns: u64,
    /// When nobody had to wait for anything but the replay any more, nanoseconds of CLOCK_MONOTONIC.
    pub free_ns: u64,
    /// What this process has taken of processors.
    pub spent: Spent,
    /// Whether it is to be recorded while the kernel maps nothing around a fault.
    pub exact_due: bool,
    /// Whether it was.
    pub exact: bool,
}

impl Boot<'_> {
    /// Nothing is read ahead, and why.
    pub fn not_replayed(&mut self, why: String) {
        self.plan = None;
        self.last.not_replayed = Some(why);
    }

    /// Waits for a while, a signal or a mount.
    pub fn pause(&self, most: Duration, for_mounts: bool) {
        let timeout = Timespec {
            tv_sec: most.as_secs() as i64,
            tv_nsec: most.subsec_nanos().into(),
        };
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let for_mounts = for_mounts || self.plan.is_some() || self.unknown_in.is_some();
        if for_mounts || self.replays.as_ref().is_some_and(|replays| !replays.are_over()) {
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

/// What the path of the state leads to: another one once something has been mounted there.
#[derive(PartialEq, Eq)]
pub struct StateId(Option<(u64, u64)>);

impl StateId {
    /// That of now.
    pub fn of(store: &Store) -> StateId {
        let facts = store
            .root()
            .ancestors()
            .find_map(|path| std::fs::metadata(path).ok());
        StateId(facts.map(|facts| (facts.dev(), facts.ino())))
    }
}
