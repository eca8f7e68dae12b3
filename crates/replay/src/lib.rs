//! A plan becomes a warm page cache.
//!
//! [`Replay::start`] returns at once; the work is done by threads of its own. Devices are served in parallel,
//! each in passes: the metadata of its file system, read through the block device; look-ups, and where that
//! metadata was not to be had the opening of files (`ahead`, `ring`); then file data. Beside these, what they
//! will need of a volume that is filled as it is read is fetched (`lazily_filled`). Metadata and data keep
//! the plan's order. A bounded number of requests is in flight (`queue`), so that what the started program
//! itself misses never queues behind thousands of prefetches. The `governor` watches memory and stops the
//! replay when it harms more than it helps; `evicted` samples whether what was read stays there, and `others`
//! whether somebody else waits for a device.
//!
//! Remote file systems are read by processes of their own, which may wait there for ever (`apart`).
//!
//! A plan is untrusted input: files are opened only as [`headstart_system::open`] allows, block devices only
//! if they carry the mounted file system the plan names, and whatever does not fit is skipped and counted.

mod ahead;
mod apart;
mod device;
mod evicted;
mod file;
mod forked;
mod forker;
mod governor;
mod lazily_filled;
mod options;
mod others;
mod pace;
mod queue;
mod report;
mod request;
mod ring;
mod run;
mod sample;
mod shared;
mod threads;
mod work;
mod worker;

pub use forker::Forker;
pub use options::{Devices, Fork, Forks, Options, Taken};
pub use sample::{Costs, Remote, Resident, Sample, sample, sample_with_remote};

use headstart_model::format::FormatError;
use headstart_model::outcome::ReplayReport;
use headstart_model::plan::PlanFile;
use headstart_model::sort::Sort;
use headstart_system::thread::{self, StartedThread};
use shared::Shared;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

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
    plan: Arc<PlanFile>,
    shared: Arc<Shared>,
    barrier_limit: Duration,
    finish_limit: Duration,
    /// Whether the caller has other starts to serve than this one.
    has_others: bool,
    /// The only device that it reads, by its number in the plan.
    only: Option<u16>,
    report: Receiver<ReplayReport>,
    thread: StartedThread,
    life: Life,
}

/// Whether a replay has threads still, also one that was left behind ([`Replay::finish`]).
#[derive(Clone, Debug)]
pub struct Life(Weak<()>);

impl Life {
    /// It has.
    pub fn is_running(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Ends a replay from another thread than its owner's.
#[derive(Clone)]
pub struct Stop(Arc<Shared>);

impl Stop {
    /// Ends it.
    pub fn stop_requests(&self) {
        self.0.stop();
    }

    /// Ends it, and waits until it has closed all files, `limit` at most: a read that a thread waits for
    /// comes to its end first. Who has not closed them by then on a remote file system is ended.
    pub fn and_wait(&self, limit: Duration) {
        let until = Instant::now() + limit;
        self.stop_requests();
        self.0.wait_closed(limit);
        self.0.apart.iter().for_each(|apart| apart.wait_or_end(until));
    }
}

impl Replay {
    /// Checks the plan and starts to replay it on threads of its own.
    pub fn start(plan: impl Into<Arc<PlanFile>>, mut options: Options) -> Result<Replay, ReplayError> {
        let plan = plan.into();
        let checked = plan.plan()?;
        let machine = rustix::param::page_size() as u32;
        if checked.page_size() != machine {
            return Err(ReplayError::PageSize {
                plan: checked.page_size(),
                machine,
            });
        }
        let has_others = matches!(options.forks, Forks::By(_));
        let apart = apart::fork(&plan, &mut options);
        // A device whose requests are all beyond the budget has no barrier.
        let mut waits: Vec<bool> = (0..checked.device_count())
            .map(|index| checked.device(index).is_some_and(|d| d.hold > 0))
            .enumerate()
            .map(|(index, waits)| waits && options.devices.has(index as u16))
            .collect();
        let mut barriers = 0;
        for request in checked.requests().take(checked.cut()) {
            barriers += usize::from(std::mem::take(&mut waits[usize::from(request.device)]));
        }
        let shared = Arc::new(Shared::new(&options, barriers, apart));
        file::make_room(checked.file_count());
        let only = match options.devices {
            Devices::Only(device) => Some(device),
            Devices::AllBut(_) => None,
        };
        let (barrier_limit, finish_limit) = (options.barrier_limit, options.finish_limit);
        let (theirs, followed) = (Arc::clone(&shared), Arc::clone(&plan));
        let (told, report) = channel();
        let lives = Arc::new(());
        let life = Life(Arc::downgrade(&lives));
        let replay = move || {
            let report = run::run(&followed, &options, &theirs);
            theirs.close();
            // Nobody may be there any more: the owner has given it up.
            let _ = told.send(report);
            drop((followed, options, theirs, told, lives));
            threads::end_before_others();
        };
        let thread = thread::spawn("headstart", Box::new(replay)).map_err(ReplayError::Thread)?;
        Ok(Replay {
            plan,
            shared,
            barrier_limit,
            finish_limit,
            has_others,
            only,
            report,
            thread,
            life,
        })
    }

    /// The plan that it follows.
    pub fn plan(&self) -> &Arc<PlanFile> {
        &self.plan
    }

    /// Whether it has threads: to be asked also when somebody else has finished it.
    pub fn life(&self) -> Life {
        self.life.clone()
    }

    /// What ends it from another thread.
    pub fn stopper(&self) -> Stop {
        Stop(Arc::clone(&self.shared))
    }

    /// Waits until the requests before the barrier (`PlanDevice::hold`) are done, have failed or were
    /// stopped, or [`Options::barrier_limit`] has passed.
    pub fn wait_released(&self) {
        self.shared.wait(self.barrier_limit);
    }

    /// Whether the barrier still stands: a start that waits for this replay ([`Replay::wait_released`]) would
    /// wait on.
    pub fn barrier_up(&self) -> bool {
        self.shared.standing() > 0 && !self.thread.is_finished()
    }

    /// When the barrier was released; `None` while it stands, and where there was none.
    pub fn released_at(&self) -> Option<Instant> {
        self.shared.released_at()
    }

    /// How many parts of requests are over: a number that grows as long as the replay gets on.
    pub fn requests_over(&self) -> u64 {
        self.shared.over.load(Ordering::Relaxed)
    }

    /// How many of them could be read: a number that grows as long as the device gives something.
    pub fn arrived(&self) -> u64 {
        self.shared.arrived.load(Ordering::Relaxed)
    }

    /// Ends the replay: requests not yet issued are not issued any more.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Whether it has ended, so that [`Replay::finish`] will not wait.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end and tells what it did.
    ///
    /// A read that never ends (a device that hangs, a program that is asked for its permission and does not
    /// answer) is not waited for: once nothing has ended for [`Options::finish_limit`] the replay is left
    /// behind with its threads, which issue nothing any more, and the report says so in `stopped`. Of what
    /// was not confirmed it claims nothing.
    ///
    /// The processes that read remote file systems are given as long as that again, or a second if the replay
    /// was stopped, or if another process forked them, whose caller has others to serve. Then they are told
    /// to stop, and have a second more. Those that have not answered by then are ended, and the report names
    /// their mounts.
    pub fn finish(self) -> ReplayReport {
        let shared = Arc::clone(&self.shared);
        let (patience, has_others) = (self.finish_limit, self.has_others);
        let mut report = self.finish_here();
        // The start goes on when all is read, and has come to its end now.
        report.memory_needed = report.memory_needed.max(shared.governor.memory_needed());
        if shared.apart.is_empty() {
            return report;
        }
        let patience = match shared.governor.was_asked() || has_others {
            true => apart::ENDS_WITHIN,
            false => patience,
        };
        let until = Instant::now() + patience;
        shared.apart.iter().for_each(|apart| apart.wait_or_stop(until));
        let until = until.max(Instant::now() + apart::ENDS_WITHIN);
        shared
            .apart
            .iter()
            .for_each(|apart| report.add(apart.finish(until)));
        report
            .issued
            .sort_small_by_key(|one| (one.issued_ns, one.request));
        report
    }

    fn finish_here(self) -> ReplayReport {
        let mut over = self.requests_over();
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
                    let before = std::mem::replace(&mut over, self.requests_over());
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
        let plan = self.plan.plan().ok();
        let device = plan
            .zip(self.only)
            .and_then(|(plan, only)| plan.device(only.into()));
        ReplayReport {
            stopped: Some(why),
            // Nobody else has kept it waiting.
            unanswered: device
                .into_iter()
                .map(|device| device.mount_point.to_string())
                .collect(),
            ..run::report_so_far(&self.shared)
        }
    }
}
