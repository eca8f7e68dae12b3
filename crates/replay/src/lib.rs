//! A plan becomes a warm page cache.
//!
//! [`Replay::start`] returns at once; the work is done by threads of its own. Devices are served in parallel, each in
//! passes: the metadata of its file system, read through the block device; look-ups, and where that metadata was not
//! to be had the opening of files (`ahead`, `ring`); then file data. Metadata and data keep the plan's order. A bounded
//! number of requests is in flight (`lane`), so that what the started program itself misses never queues behind
//! thousands of prefetches. The `governor` watches memory and stops the replay when it harms more than it helps.
//!
//! A plan is untrusted input: files are opened only as [`headstart_system::open`] allows, block devices only if they
//! carry the mounted file system the plan names, and whatever does not fit is skipped and counted.

mod ahead;
mod device;
mod file;
mod governor;
mod item;
mod lane;
mod report;
mod ring;
mod run;
mod sample;

pub use sample::{Resident, sample};

use governor::Governor;
use headstart_model::format::FormatError;
use headstart_model::outcome::ReplayReport;
use headstart_model::plan::PlanFile;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How to replay.
#[derive(Clone, Debug)]
pub struct Options {
    /// The start's first instant: times in the report count from it.
    pub origin: Instant,
    /// Requests in flight per device, instead of what the plan says of it.
    pub depth: Option<u32>,
    /// The replay stops when less memory than this is available, bytes.
    pub stop_below: u64,
    /// The replay stops when some task waits for memory this share of the time, percent.
    pub stop_pressure: f64,
    /// Whether the replay stops as soon as the kernel looks for pages to free: at boot nobody else has filled memory, so
    /// it would begin to push out what it has just read.
    pub stop_at_reclaim: bool,
    /// The longest [`Replay::wait_held`] waits.
    pub hold_limit: Duration,
    /// [`Replay::finish`] waits no longer than this, and at most twice this, for reads of which none ends.
    pub finish_limit: Duration,
    /// Whether paths may be looked up through io_uring, where the kernel has it and it helps. What becomes of them is
    /// the same.
    pub io_uring: bool,
}

impl Options {
    /// Memory that is left to others, bytes: what a small program needs to start at all.
    pub const STOP_BELOW: u64 = 64 << 20;
    /// Below this pressure a machine works normally; systemd-oomd acts at 60 % over 30 s, far too late for a helper.
    pub const STOP_PRESSURE: f64 = 20.0;
    /// A disk reads 1 GB in this time. A start that needs more is let go; what it reads by itself costs jumps.
    pub const HOLD_LIMIT: Duration = Duration::from_secs(10);
    /// Linux gives a disk's command up after 30 s (`timeout` of a SCSI device), and tries again: what has not read
    /// anything for so long waits for a server or a device that may never answer.
    pub const FINISH_LIMIT: Duration = Duration::from_secs(30);

    /// The defaults, for a start that began at `origin`.
    pub fn new(origin: Instant) -> Options {
        Options {
            origin,
            depth: None,
            stop_below: Options::STOP_BELOW,
            stop_pressure: Options::STOP_PRESSURE,
            stop_at_reclaim: false,
            hold_limit: Options::HOLD_LIMIT,
            finish_limit: Options::FINISH_LIMIT,
            io_uring: true,
        }
    }
}

/// Why a plan is not replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The plan is damaged or of another version.
    #[error(transparent)]
    Plan(#[from] FormatError),
    /// Its page numbers mean other bytes here.
    #[error(
        "the plan counts in pages of {plan} bytes, this machine has pages of {machine}: make it again here"
    )]
    PageSize {
        /// Page size of the plan.
        plan: u32,
        /// Page size of this machine.
        machine: u32,
    },
    /// No thread could be made.
    #[error("cannot start a thread for the replay: {0}")]
    Thread(std::io::Error),
}

/// A replay that is running, or has ended and waits to be asked what it did.
pub struct Replay {
    shared: Arc<Shared>,
    hold_limit: Duration,
    finish_limit: Duration,
    report: Receiver<ReplayReport>,
    thread: JoinHandle<()>,
}

/// What the threads of a replay share with its owner.
pub(crate) struct Shared {
    pub governor: Governor,
    /// Devices that still hold the start.
    held: Mutex<usize>,
    released: Condvar,
    /// Parts of requests that are over.
    over: AtomicU64,
    /// The requests, once they are shared out.
    works: OnceLock<Vec<run::Work>>,
}

impl Shared {
    fn new(options: &Options, held: usize) -> Shared {
        Shared {
            governor: Governor::new(options),
            held: Mutex::new(held),
            released: Condvar::new(),
            over: AtomicU64::new(0),
            works: OnceLock::new(),
        }
    }

    #[cfg(test)]
    fn holding(&self) -> usize {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Devices hold the start no more.
    pub fn release(&self, devices: usize) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        *held = held.saturating_sub(devices);
        self.released.notify_all();
    }
}

impl Replay {
    /// Checks the plan and starts to replay it on threads of its own.
    pub fn start(plan: PlanFile, options: Options) -> Result<Replay, ReplayError> {
        let checked = plan.plan()?;
        let machine = rustix::param::page_size() as u32;
        if checked.page_size() != machine {
            return Err(ReplayError::PageSize {
                plan: checked.page_size(),
                machine,
            });
        }
        // A device whose requests are all beyond the budget holds nobody.
        let mut holds: Vec<bool> = (0..checked.device_count())
            .map(|index| checked.device(index).is_some_and(|d| d.hold > 0))
            .collect();
        let mut held = 0;
        for request in checked.requests().take(checked.cut()) {
            held += usize::from(std::mem::take(&mut holds[usize::from(request.device)]));
        }
        let shared = Arc::new(Shared::new(&options, held));
        let (hold_limit, finish_limit) = (options.hold_limit, options.finish_limit);
        let theirs = Arc::clone(&shared);
        let (told, report) = channel();
        let thread = std::thread::Builder::new()
            .name("headstart".into())
            .spawn(move || {
                // Nobody may be there any more: the owner has given it up.
                let _ = told.send(run::run(&plan, &options, &theirs));
            })
            .map_err(ReplayError::Thread)?;
        Ok(Replay {
            shared,
            hold_limit,
            finish_limit,
            report,
            thread,
        })
    }

    /// Waits until the requests that the start is held for (`PlanDevice::hold`) are done, have failed or were stopped,
    /// or [`Options::hold_limit`] has passed.
    pub fn wait_held(&self) {
        let held = self.shared.held.lock().unwrap_or_else(PoisonError::into_inner);
        // A poisoned lock or the limit: either way the start goes on.
        let _ = self
            .shared
            .released
            .wait_timeout_while(held, self.hold_limit, |held| *held > 0);
    }

    /// Whether a start that was held for this replay ([`Replay::wait_held`]) would be held still.
    pub fn holds(&self) -> bool {
        let held = self.shared.held.lock().unwrap_or_else(PoisonError::into_inner);
        *held > 0 && !self.thread.is_finished()
    }

    /// How many parts of requests are over: a number that grows as long as the replay gets on.
    pub fn over(&self) -> u64 {
        self.shared.over.load(Ordering::Relaxed)
    }

    /// Ends the replay: requests not yet issued are not issued any more.
    pub fn stop(&self) {
        self.shared.governor.stop("it was asked to stop");
    }

    /// Whether it has ended, so that [`Replay::finish`] will not wait.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end and tells what it did.
    ///
    /// A read that never ends (a device that hangs, a program that is asked for its permission and does not answer) is
    /// not waited for: once nothing has ended for [`Options::finish_limit`] the replay is left behind with its threads,
    /// which issue nothing any more, and the report says so in `stopped`. Of what was not confirmed it claims nothing.
    pub fn finish(self) -> ReplayReport {
        let mut over = self.over();
        loop {
            match self.report.recv_timeout(self.finish_limit) {
                Ok(report) => return report,
                Err(RecvTimeoutError::Disconnected) => {
                    return ReplayReport {
                        stopped: Some("it failed by a mistake of its own".into()),
                        ..ReplayReport::default()
                    };
                }
                Err(RecvTimeoutError::Timeout) => {
                    let before = std::mem::replace(&mut over, self.over());
                    if over == before {
                        return self.leave_behind();
                    }
                }
            }
        }
    }

    fn leave_behind(self) -> ReplayReport {
        let why = format!(
            "reads did not end within {} s and were left behind",
            self.finish_limit.as_secs_f32()
        );
        self.shared.governor.stop(why.as_str());
        ReplayReport {
            stopped: Some(why),
            ..run::so_far(&self.shared)
        }
    }
}
