//! The recorder: a thread that drains a back-end by timer, and the handle to it.

use crate::backend::{self, Backend};
use crate::builder::Builder;
use crate::error::RecordError;
use crate::options::{Options, Until};
use crate::quiet::{Activity, QuietRule, Shared};
use crate::tracefs::{Early, NoEarly};
use headstart_model::trace::{Backend as BackendName, EndReason, Evidence, Scope, Trace};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the buffer is drained. The default buffer holds four times what a million events a second bring.
const DRAIN_EVERY: Duration = Duration::from_millis(100);

/// How often [`Recorder::run_until`] looks around. A pidfd wakes it at once; without one this is what a command's end
/// waits for it at most.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A recording that is attached and running.
///
/// Dropping it without [`finish`](Recorder::finish) detaches and forgets. What BPF attached goes with the process at the
/// latest; a trace instance would stay, so that it is gone is waited for.
pub struct Recorder {
    commands: Sender<Command>,
    shared: Arc<Shared>,
    started: Instant,
    until: Until,
    limit: Duration,
    backend: BackendName,
    evidence: Evidence,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if self.backend != BackendName::Tracefs {
            return;
        }
        // The thread ends when nobody can tell it anything any more.
        self.commands = mpsc::channel().0;
        if let Some(thread) = self.thread.take() {
            // What it panicked of it has said.
            let _ = thread.join();
        }
    }
}

/// What the handle tells the thread.
enum Command {
    AddRoot(u32, Sender<Result<(), RecordError>>),
    Mark(String, u64),
    Finish(EndReason, Sender<Result<Trace, RecordError>>),
}

impl Recorder {
    /// Attaches and begins to record. In scope tree nothing is recorded before a root is
    /// [added](Recorder::add_root).
    ///
    /// Errors name the capability or kernel feature that is missing.
    pub fn start(options: &Options) -> Result<Recorder, RecordError> {
        Recorder::start_with(options, true)
    }

    /// As [`start`](Recorder::start), but the BPF programs send every event, also those that tell nothing new: to
    /// measure how many can be sent. The trace is the same.
    #[doc(hidden)]
    pub fn start_unfiltered(options: &Options) -> Result<Recorder, RecordError> {
        Recorder::start_with(options, false)
    }

    fn start_with(options: &Options, filter: bool) -> Result<Recorder, RecordError> {
        let (commands, inbox) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let shared = Arc::new(Shared::default());
        let started = Instant::now();
        let thread = std::thread::Builder::new()
            .name("record".into())
            .spawn({
                let (options, shared) = (options.clone(), Arc::clone(&shared));
                move || match Worker::new(options, shared, filter) {
                    Ok(worker) => {
                        let about = (worker.backend.name(), worker.backend.evidence());
                        if ready.send(Ok(about)).is_ok() {
                            worker.run(&inbox);
                        }
                    }
                    Err(error) => {
                        // The receiver waits for exactly this message.
                        let _ = ready.send(Err(error));
                    }
                }
            })
            .map_err(|source| RecordError::io("start the recording thread", source))?;
        let (backend, evidence) = is_ready.recv().map_err(|_| RecordError::ThreadGone)??;
        Ok(Recorder {
            commands,
            shared,
            started,
            until: options.until,
            limit: options.limit,
            backend,
            evidence,
            thread: Some(thread),
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

    /// When the trace's time begins in scope system, nanoseconds of CLOCK_MONOTONIC.
    pub fn began_ns(&self) -> u64 {
        self.shared.began_ns()
    }

    /// What became of [`Options::early_instance`]: how many events it had, or why they are of no use; `None` if there was
    /// none.
    pub fn early(&self) -> Option<Result<u64, String>> {
        self.shared.early()
    }

    /// Records this process and its descendants from now on (scope tree; in scope system it does nothing). Call it
    /// while the process, a child of the caller, is stopped before its exec: what it did before is not recorded.
    pub fn add_root(&mut self, pid: u32) -> Result<(), RecordError> {
        let (reply, answer) = mpsc::channel();
        self.commands
            .send(Command::AddRoot(pid, reply))
            .map_err(|_| RecordError::ThreadGone)?;
        answer.recv().map_err(|_| RecordError::ThreadGone)?
    }

    /// Notes that a stage of the start begins now.
    pub fn mark(&mut self, stage: &str) -> Result<(), RecordError> {
        let command = Command::Mark(stage.to_owned(), monotonic_ns());
        self.commands.send(command).map_err(|_| RecordError::ThreadGone)
    }

    /// What happened lately; at most a drain interval (100 ms) old.
    pub fn activity(&self) -> Activity {
        self.shared.activity()
    }

    /// Waits until the start has ended by [`Options::until`] and says why: `exited` gives the command's status (as
    /// wait(2) has it) once it has ended, `interrupted` is set when the caller was told to stop. With the command's
    /// `pidfd` its end is noticed at once.
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
            if quiet.is_quiet(&self.activity(), Instant::now()) {
                return EndReason::Quiet;
            }
            pause(pidfd);
        }
    }

    /// Ends the recording, drains what is left and gives the trace. What BPF attached is detached in the background.
    pub fn finish(self, reason: EndReason) -> Result<Trace, RecordError> {
        let (reply, answer) = mpsc::channel();
        self.commands
            .send(Command::Finish(reason, reply))
            .map_err(|_| RecordError::ThreadGone)?;
        answer.recv().map_err(|_| RecordError::ThreadGone)?
    }
}

/// The draining thread's own.
struct Worker {
    backend: Box<dyn Backend>,
    builder: Builder,
    shared: Arc<Shared>,
    /// The trace instance that is still to be read, and whose doings in it do not count.
    early: Option<(String, Vec<u32>)>,
}

impl Worker {
    fn new(options: Options, shared: Arc<Shared>, filter: bool) -> Result<Worker, RecordError> {
        let backend = backend::start(&options, filter)?;
        let began_ns = monotonic_ns();
        let builder = Builder::new(&options, backend.name(), backend.evidence(), began_ns)?;
        shared.set_began(began_ns);
        let system = options.scope == Scope::System;
        let early = options.early_instance.filter(|_| system);
        let mut worker = Worker {
            backend,
            builder,
            early: early.map(|name| (name, options.exclude_pids.clone())),
            shared,
        };
        worker.shared.set_scope(options.scope, options.exclude_pids);
        worker.take_early();
        Ok(worker)
    }

    /// Takes over what a trace instance saw, as soon as it can be read.
    fn take_early(&mut self) {
        let Some((name, excluded)) = self.early.take() else {
            return;
        };
        match Early::take(&name, &excluded) {
            Ok(early) => {
                if let Some(at) = early.began_ns() {
                    self.builder.began(at);
                    self.shared.set_began(self.shared.began_ns().min(at));
                }
                let builder = &mut self.builder;
                let events = early.drain(&mut |event| builder.push(event));
                self.shared.set_early(Ok(events as u64));
            }
            Err(NoEarly::None) => {}
            Err(NoEarly::NotYet) => self.early = Some((name, excluded)),
            Err(NoEarly::Useless(why)) => self.shared.set_early(Err(why)),
        }
    }

    /// Until the handle says finish, or is dropped.
    fn run(mut self, inbox: &Receiver<Command>) {
        let mut failed = None;
        let mut next = Instant::now() + DRAIN_EVERY;
        loop {
            match inbox.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Command::AddRoot(pid, reply)) => {
                    let result = self.backend.add_root(pid);
                    if result.is_ok() {
                        self.builder.add_root(pid);
                    }
                    // Who asked waits for it, or is gone.
                    let _ = reply.send(result);
                }
                Ok(Command::Mark(stage, time_ns)) => self.builder.mark(stage, time_ns),
                Ok(Command::Finish(reason, reply)) => {
                    // Detaching takes the kernel tens of milliseconds, for it waits for programs to leave: the trace
                    // does not wait for that.
                    let (trace, _detached_on_drop) = match failed {
                        Some(error) => (Err(error), None),
                        None => self.finish(reason),
                    };
                    let _ = reply.send(trace);
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {
                    next = Instant::now() + DRAIN_EVERY;
                    if failed.is_none() {
                        failed = self.drain().err();
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn drain(&mut self) -> Result<(), RecordError> {
        self.builder.refresh();
        self.take_early();
        let builder = &mut self.builder;
        self.backend.drain(&mut |event| builder.push(event))?;
        self.shared.update(self.builder.pages(), self.builder.living());
        Ok(())
    }

    /// The trace, and the back-end, which sees nothing more but is still attached.
    fn finish(mut self, reason: EndReason) -> (Result<Trace, RecordError>, Option<Box<dyn Backend>>) {
        let ended = |worker: &mut Worker| {
            worker.backend.stop()?;
            let ended_ns = monotonic_ns();
            worker.drain()?;
            Ok((ended_ns, worker.backend.blocked_ns()?, worker.backend.lost()?))
        };
        let trace = match ended(&mut self) {
            Ok((ended_ns, blocked_ns, lost)) => self.builder.finish(reason, ended_ns, blocked_ns, lost),
            Err(error) => Err(error),
        };
        (trace, Some(self.backend))
    }
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

/// Now, in nanoseconds of CLOCK_MONOTONIC, the clock of all events.
pub(crate) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
