//! The thread of a recording: it drains a back-end by timer and hands what it says to the builder.

use crate::error::RecordError;
use crate::kernel::backend::Backend;
use crate::kernel::clock::monotonic_ns;
use crate::kernel::tracefs::{Early, NoEarly};
use crate::kernel::{bpf, tracefs};
use crate::options::{BackendChoice, Options};
use crate::quiet::Shared;
use crate::trace::builder::{Builder, Ended};
use headstart_model::trace::{Backend as BackendName, EndReason, Evidence, Scope, Trace};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Instant;

/// The niceness of the thread: before all ordinary processes. It takes a hundredth of a processor.
const NICE: i32 = -10;

/// What the handle asks of the thread.
pub(crate) enum Command {
    /// To record a process and its descendants too.
    AddRoot(u32, Sender<Result<(), RecordError>>),
    /// To end.
    Finish(EndReason, Sender<Result<Trace, RecordError>>),
}

/// The back-end that `options` ask for, attached and running.
fn start(options: &Options) -> Result<Box<dyn Backend>, RecordError> {
    match options.backend {
        BackendChoice::Bpf => bpf::start(options),
        BackendChoice::Tracefs => tracefs::start(options),
        BackendChoice::Auto => bpf::start(options).or_else(|bpf| {
            tracefs::start(options).map_err(|tracefs| RecordError::NoBackend {
                bpf: Box::new(bpf),
                tracefs: Box::new(tracefs),
            })
        }),
    }
}

/// The thread's own.
pub(crate) struct Worker {
    backend: Box<dyn Backend>,
    builder: Builder,
    shared: Arc<Shared>,
    /// The trace instance that is still to be read, and whose doings in it do not count.
    early: Option<(String, Vec<u32>)>,
}

impl Worker {
    /// Attaches.
    pub(crate) fn new(options: Options, shared: Arc<Shared>) -> Result<Worker, RecordError> {
        let backend = start(&options)?;
        let began_ns = monotonic_ns();
        let mut builder = Builder::new(&options, backend.name(), backend.evidence(), began_ns)?;
        if options.activity && backend.no_activity().is_none() {
            builder.record_activity();
        }
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

    /// What records, what its page events mean, and why there is no activity.
    pub(crate) fn about(&self) -> (BackendName, Evidence, Option<String>) {
        let no_activity = self.backend.no_activity().map(String::from);
        (self.backend.name(), self.backend.evidence(), no_activity)
    }

    /// Takes over what a trace instance saw, as soon as it can be read.
    fn take_early(&mut self) {
        let Some((name, excluded)) = self.early.take() else {
            return;
        };
        match Early::take(&name, &excluded) {
            Ok(early) => {
                if let Some(at) = early.began_ns() {
                    self.builder.set_began(at);
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
    pub(crate) fn run(mut self, inbox: &Receiver<Command>) {
        let mut failed = None;
        let mut next = Instant::now() + self.backend.drain_every();
        // Events come as fast as everybody else runs: who drains them does not wait behind them. Without the
        // right to that the buffers are large enough on a machine that is not busy.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
        let mut cleaned = false;
        loop {
            match inbox.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Command::AddRoot(pid, reply)) => {
                    let result = self.backend.add_root(pid);
                    if let Ok(number) = result {
                        self.builder.add_root(number);
                    }
                    // Who asked waits for it, or is gone.
                    let _ = reply.send(result.map(|_| ()));
                }
                Ok(Command::Finish(reason, reply)) => {
                    // Detaching takes the kernel tens of milliseconds, for it waits for programs to leave:
                    // the trace does not wait for that.
                    let (trace, _detached_on_drop) = match failed {
                        Some(error) => (Err(error), None),
                        None => self.finish(reason),
                    };
                    let _ = reply.send(trace);
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {
                    // Now that nobody waits for the recording to begin.
                    if !std::mem::replace(&mut cleaned, true) {
                        tracefs::remove_stale();
                    }
                    if failed.is_none() {
                        failed = self.drain().err();
                    }
                    next = Instant::now() + self.backend.drain_every();
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
        let ended = |worker: &mut Worker| -> Result<Ended, RecordError> {
            worker.backend.stop()?;
            let at_ns = monotonic_ns();
            worker.drain()?;
            let missed = worker.backend.missed()?;
            Ok(Ended {
                at_ns,
                blocked_ns: worker.backend.blocked_ns()?,
                lost: missed.events,
                unseen_uses: missed.unseen_uses,
                dropped: missed.lookups,
                unseen: missed.activity,
            })
        };
        let trace = match ended(&mut self) {
            Ok(ended) => self.builder.finish(reason, ended),
            Err(error) => Err(error),
        };
        (trace, Some(self.backend))
    }
}
