//! The handle to a recording, which a [thread](crate::one_shot::worker) of its own makes.

use crate::error::RecordError;
use crate::kernel::clock::thread_cpu_ns;
use crate::one_shot::worker::{Command, Worker};
use crate::options::{Options, Until};
use crate::quiet::{Progress, QuietRule, Shared};
use headstart_model::trace::{Backend as BackendName, EndReason, Evidence, Trace};
use headstart_system::thread::{self, StartedThread};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// How often [`Recorder::run_until`] looks around. A pidfd wakes it at once; without one this is what a
/// command's end waits for it at most.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Attaching takes some hundred milliseconds, on an emulated processor seconds.
const ATTACHES_WITHIN: Duration = Duration::from_secs(120);
/// The largest trace is made within this time, also on a slow processor at idle priority.
const FINISHES_WITHIN: Duration = Duration::from_secs(600);
/// Instances of a trace are removed within this time.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// A recording that is attached and running.
///
/// Dropping it without [`finish`](Recorder::finish) detaches and forgets. What BPF attached goes with the
/// process at the latest; a trace instance would stay, so that it is gone is waited for.
pub struct Recorder {
    commands: Sender<Command>,
    shared: Arc<Shared>,
    started: Instant,
    until: Until,
    limit: Duration,
    backend: BackendName,
    evidence: Evidence,
    no_activity: Option<String>,
    attach_cpu_ns: u64,
    thread: StartedThread,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.backend != BackendName::Tracefs {
            return;
        }
        // The thread ends when nobody can tell it anything any more.
        self.commands = mpsc::channel().0;
        self.thread.wait(ENDS_WITHIN);
    }
}

impl Recorder {
    /// Attaches and begins to record. In scope tree nothing is recorded before a root is
    /// [added](Recorder::add_root).
    ///
    /// Errors name the capability or kernel feature that is missing.
    pub fn start(options: &Options) -> Result<Recorder, RecordError> {
        let (commands, inbox) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let started = Instant::now();
        let record = {
            let (options, shared) = (options.clone(), Arc::clone(&shared));
            move || match Worker::new(options, shared) {
                Ok(worker) => {
                    if ready.send(Ok((worker.about(), thread_cpu_ns()))).is_ok() {
                        worker.run(&inbox);
                    }
                }
                Err(error) => {
                    // The receiver waits for exactly this message.
                    let _ = ready.send(Err(error));
                }
            }
        };
        let thread = thread::spawn("record", Box::new(record))
            .map_err(|source| RecordError::io("start the recording thread", source))?;
        let ((backend, evidence, no_activity), attach_cpu_ns) = heard(&thread, &is_ready, ATTACHES_WITHIN)??;
        Ok(Recorder {
            commands,
            shared,
            started,
            until: options.until,
            limit: options.limit,
            backend,
            evidence,
            no_activity,
            attach_cpu_ns,
            thread,
        })
    }

    /// What records.
    pub fn backend(&self) -> BackendName {
        self.backend
    }

    /// What the page events mean.
    pub fn evidence(&self) -> Evidence {
        self.evidence
    }

    /// Why the trace will not have the [activity](Options::activity) that was asked for; `None` if it will,
    /// or was not asked for.
    pub fn no_activity(&self) -> Option<&str> {
        self.no_activity.as_deref()
    }

    /// The processors' time that attaching took, nanoseconds. It is that of the recording's own thread:
    /// whoever [started](Recorder::start) it only waited.
    pub fn attach_cpu_ns(&self) -> u64 {
        self.attach_cpu_ns
    }

    /// When the trace's time begins in scope system, nanoseconds of CLOCK_MONOTONIC.
    pub fn began_ns(&self) -> u64 {
        self.shared.began_ns()
    }

    /// What became of [`Options::early_instance`]: how many events it had, or why they are of no use; `None`
    /// if there was none.
    pub fn early(&self) -> Option<Result<u64, String>> {
        self.shared.early()
    }

    /// Records this process and its descendants from now on (scope tree; in scope system it does nothing).
    /// Call it while the process is stopped before its exec: what it did before is not recorded, nor do
    /// children count that it has already. `pid` is its number in the caller's pid namespace.
    ///
    /// Fails if there is no such process.
    pub fn add_root(&mut self, pid: u32) -> Result<(), RecordError> {
        let (reply, answer) = mpsc::channel();
        self.commands
            .send(Command::AddRoot(pid, reply))
            .map_err(|_| RecordError::unanswered(true))?;
        heard(&self.thread, &answer, ATTACHES_WITHIN)?
    }

    /// What happened lately; at most a drain interval (100 ms at most) old.
    pub fn progress(&self) -> Progress {
        self.shared.progress()
    }

    /// Waits until the start has ended by [`Options::until`] and says why: `exited` gives the command's
    /// status (as wait(2) has it) once it has ended, `interrupted` is set when the caller was told to stop.
    /// With the command's `pidfd` its end is noticed at once.
    pub fn run_until(
        &self,
        interrupted: &AtomicBool,
        pidfd: Option<BorrowedFd<'_>>,
        mut exited: impl FnMut() -> Option<i32>,
    ) -> EndReason {
        let mut quiet = QuietRule::new(match self.until {
            Until::Quiet { seconds } => Some(Duration::from_secs(seconds)),
            Until::Exit | Until::Seconds(_) => None,
        });
        let limit = match self.until {
            Until::Seconds(seconds) => Duration::from_secs(seconds).min(self.limit),
            Until::Exit | Until::Quiet { .. } => self.limit,
        };
        loop {
            if let Some(status) = exited() {
                return EndReason::Exit(status);
            }
            if interrupted.load(Ordering::Relaxed) {
                return EndReason::Interrupted;
            }
            if self.started.elapsed() >= limit {
                return EndReason::Limit;
            }
            if quiet.is_quiet(&self.progress(), Instant::now(), || self.shared.waits()) {
                return EndReason::Quiet;
            }
            pause(pidfd);
        }
    }

    /// Ends the recording, drains what is left and gives the trace. What BPF attached is detached in the
    /// background.
    pub fn finish(self, reason: EndReason) -> Result<Trace, RecordError> {
        let (reply, answer) = mpsc::channel();
        self.commands
            .send(Command::Finish(reason, reply))
            .map_err(|_| RecordError::unanswered(true))?;
        heard(&self.thread, &answer, FINISHES_WITHIN)?
    }
}

/// What the thread answers, unless it has ended or takes too long.
fn heard<T>(thread: &StartedThread, answer: &Receiver<T>, limit: Duration) -> Result<T, RecordError> {
    let heard = thread.answer(answer, limit);
    heard.ok_or_else(|| RecordError::unanswered(thread.is_finished()))
}

/// Waits for [`LOOK_EVERY`], a signal, or the end of the process behind `pidfd`.
fn pause(pidfd: Option<BorrowedFd<'_>>) {
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: LOOK_EVERY.subsec_nanos().into(),
    };
    match &pidfd {
        // Whatever poll says, the caller looks for itself.
        Some(fd) => drop(poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout))),
        None => std::thread::sleep(LOOK_EVERY),
    }
}
