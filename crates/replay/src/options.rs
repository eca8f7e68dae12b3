//! How to replay.

use headstart_model::plan::PlanFile;
use headstart_model::room;
use std::fmt::Debug;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How to replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// The start's first instant: times in the report count from it.
    pub origin: Instant,
    /// Requests in flight per device, instead of what the plan says of it.
    pub depth: Option<u32>,
    /// Whether the start is under way, and waits at no barrier: on one head more is asked for at once then.
    pub beside: bool,
    /// Memory that is left to others, bytes: with less available the replay reads metadata only, with less
    /// than half of it nothing.
    pub stop_below: u64,
    /// The share of the rest that it may fill, 0 to 1.
    pub share: f64,
    /// What replays of this process that have not ended have filled: together they keep to one room.
    pub taken: Arc<Taken>,
    /// Whether a device is asked for less at once where others wait for it. At a boot nobody is another.
    pub gives_way: bool,
    /// The process that the start begins with, where this process is in another control group: no more is
    /// read than that process's groups leave it.
    pub starter: Option<u32>,
    /// The replay stops when some task waits for memory this share of the time, percent.
    pub stop_pressure: f64,
    /// Whether the replay stops as soon as the kernel looks for pages to free: at boot nobody else has filled
    /// memory, so it would begin to push out what it has just read.
    pub stop_at_reclaim: bool,
    /// The longest [`crate::Replay::wait_released`] waits.
    pub barrier_limit: Duration,
    /// [`crate::Replay::finish`] waits no longer than this, and at most twice this, for reads of which none
    /// ends.
    pub finish_limit: Duration,
    /// The user whose start it is: no file is read that this user may not read. `None` where all may be, as
    /// at boot.
    pub reader: Option<u32>,
    /// Whether paths may be looked up, and neighbours asked for, through io_uring, where the kernel has it
    /// and it helps. What becomes of them is the same.
    pub io_uring: bool,
    /// Of which devices of the plan this process reads.
    pub devices: Devices,
    /// Who forks the processes that read remote file systems.
    pub forks: Forks,
}

/// What replays that have not ended have filled, bytes.
#[derive(Debug, Default)]
pub struct Taken(AtomicU64);

impl Taken {
    /// Takes so many bytes, if all that is taken is then `most` at most.
    pub(crate) fn take(&self, bytes: u64, most: u64) -> bool {
        let take = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= most);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
    }

    /// Gives them back.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Who forks the processes that read remote file systems.
#[derive(Clone, Debug)]
pub enum Forks {
    /// Nobody: what is planned of them counts as not local.
    Nobody,
    /// [`crate::Replay::start`]. The caller has one thread, and no other children that end by themselves.
    Caller,
    /// A process that does only this, for callers of several threads ([`crate::Forker`]).
    By(Arc<dyn Fork>),
}

/// The way to a process that forks for others.
pub trait Fork: Debug + Send + Sync {
    /// Has a process forked that reads what a plan asks for on one device ([`Devices::Only`]), which is
    /// mounted there: the stream by which it tells what it did, and by whose end it is told to stop. Waits
    /// for nobody.
    fn fork(&self, plan: &PlanFile, mount_point: &str, options: &Options) -> io::Result<UnixStream>;
}

/// Of which devices of a plan a process reads, by their numbers there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// Of all but those.
    AllBut(Vec<u16>),
    /// Of this one.
    Only(u16),
}

impl Devices {
    /// Whether this is one of them.
    pub fn has(&self, device: u16) -> bool {
        match self {
            Devices::AllBut(others) => !others.contains(&device),
            Devices::Only(one) => *one == device,
        }
    }
}

impl Options {
    /// Below this pressure a machine works normally; systemd-oomd acts at 60 % over 30 s, far too late for a
    /// helper.
    pub const STOP_PRESSURE: f64 = 20.0;
    /// A disk reads 1 GB in this time. The barrier is released then; what it reads by itself costs jumps.
    pub const BARRIER_LIMIT: Duration = Duration::from_secs(10);
    /// Linux gives a disk's command up after 30 s (`timeout` of a SCSI device), and tries again: what has not
    /// read anything for so long waits for a server or a device that may never answer.
    pub const FINISH_LIMIT: Duration = Duration::from_secs(30);

    /// The defaults, for a start that began at `origin`.
    pub fn new(origin: Instant) -> Options {
        Options {
            origin,
            depth: None,
            beside: false,
            stop_below: room::RESERVE,
            share: room::SHARE,
            taken: Arc::default(),
            gives_way: true,
            starter: None,
            stop_pressure: Options::STOP_PRESSURE,
            stop_at_reclaim: false,
            barrier_limit: Options::BARRIER_LIMIT,
            finish_limit: Options::FINISH_LIMIT,
            reader: None,
            io_uring: true,
            devices: Devices::AllBut(Vec::new()),
            forks: Forks::Nobody,
        }
    }
}
