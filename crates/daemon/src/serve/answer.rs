//! The thread that answers: what is done for each start that BPF tells of, as it begins.

use super::Options;
use super::finish::{Ended, Finisher};
use super::judge::{Active, IGNORED, Judge, WARM, WARM_BY_KERNEL};
use super::known_programs::{MOST as KNOWN, MOST_OF_A_USER as KNOWN_OF_A_USER};
use super::logins::is_session;
use super::process::tree_of;
use super::shares::Shares;
use super::state::{State, Task};
use super::users::reader_of;
use anyhow::Result;
use headstart_model::outcome::Mode;
use headstart_model::trace::EndReason;
use headstart_model::users::is_ordinary;
use headstart_record::{Executable, Recorded, Standing, Watch};
use headstart_replay::Sample;
use headstart_start::Arguments;
use headstart_start::keys::StartKey;
use headstart_start::notes::log;
use headstart_system::process::ProcessStat;
use rustix::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Why some starts in containers are ignored; printed once.
const FOREIGN: &str = "a program was started in another mount namespace (a container, a sandbox), by no start that \
    is recorded: it is ignored, for a container is served when it is started; see servers.md of the guide";

/// What is known of the machine's programs, and what is done for those that start.
pub(super) struct Answering {
    watch: Watch,
    judge: Judge,
    finisher: Finisher,
    /// Executables that the kernel knows for those of known programs.
    known: Shares<Executable>,
    /// Whether [`FOREIGN`] was said.
    has_told: bool,
}

impl Answering {
    pub(super) fn new(watch: Watch, options: Options, state: Arc<State>, finisher: Finisher) -> Answering {
        Answering {
            watch,
            finisher,
            known: Shares::new(KNOWN, KNOWN_OF_A_USER),
            has_told: false,
            judge: Judge::new(options, state),
        }
    }

    /// The kernel is told of this executable: others of the same user, or of whoever has the most, give way
    /// to it where there are many.
    fn knows(&mut self, file: Executable, user: Option<u32>) {
        for gone in self.known.add(file, user) {
            if let Err(error) = self.watch.forget(gone) {
                log(&error.to_string());
            }
        }
    }

    /// Begins or ends an operation.
    fn do_as_asked(&mut self, asked: Task) -> Result<()> {
        let (operation, key, uid, pid, began) = match asked {
            Task::Begin {
                operation,
                key,
                uid,
                pid,
                began,
            } => (operation, key, uid, pid, began),
            Task::End(operation) => {
                let is_it = |(_, active): &(&u32, &Active)| active.operation == Some(operation);
                let number = self.judge.active.iter().find(is_it).map(|(number, _)| *number);
                let recorded = number.map(|number| self.watch.end(number, EndReason::Exit(0)));
                if let Some(recorded) = recorded.transpose()?.flatten() {
                    self.finish(recorded);
                }
                return Ok(());
            }
        };
        // The number may be another's by now.
        let lives = ProcessStat::for_process(pid).is_some_and(|stat| stat.start_ticks == began);
        let decided = lives.then(|| {
            self.judge
                .decide(key, (uid, pid), &Arguments::default(), Instant::now())
        });
        let Some(mut active) = decided.and_then(Result::ok) else {
            self.judge.state.operation_is_over(operation);
            return Ok(());
        };
        active.operation = Some(operation);
        let replayed = active.start.replay().is_some();
        let processes = tree_of(pid, uid);
        match self.watch.start_recording(&processes, active.command(), replayed) {
            Ok(Some(number)) => drop(self.judge.active.insert(number, active)),
            result => {
                self.judge.state.operation_is_over(operation);
                result?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, recorded: Recorded) {
        let Some(mut active) = self.judge.active.remove(&recorded.number) else {
            return;
        };
        match active.operation {
            Some(operation) => self.judge.state.operation_is_over(operation),
            // A user's manager is begun when there is none: another login is none.
            None if is_session(&active.key) => {}
            None => self.judge.running.add(&active.key, &recorded.living),
        }
        let exact = active.exact.take().is_some_and(|exact| {
            self.judge.exact.charge(Instant::now(), recorded.took);
            exact.end()
        });
        let waited = Duration::from_nanos(recorded.blocked_ns);
        // Whatever has a plan has been worth it.
        if active.start.mode() == Mode::Record && waited < self.judge.least_wait {
            self.judge.ignore(active.program, IGNORED);
            return;
        }
        if reader_of(&active.key, active.uid).is_none() && is_ordinary(recorded.user) {
            // A login, or a service that runs as a person: what the system's starts have read is read ahead
            // without asking who may read it.
            self.judge.ignore(active.program, IGNORED);
            return;
        }
        if let Some(file) = active.program.and_then(|program| program.executable()) {
            self.knows(file, Some(active.uid).filter(|uid| *uid != 0));
        }
        let known = active.program.map(|program| (program, Standing::Known));
        self.judge.standings.extend(known);
        let status = match recorded.reason {
            EndReason::Exit(status) => Some(status),
            _ => None,
        };
        self.finisher.finish(Ended {
            exact,
            whose: StartKey {
                key: active.key,
                rest: active.rest,
            },
            arguments: active.arguments,
            uid: active.uid,
            program: active.program,
            start: active.start,
            origin_unix_ns: active.origin_unix_ns,
            ended: status.map(|status| (Some(status), recorded.took)),
            recorded,
        });
    }

    /// Becomes readable, edge by edge, when a start has begun.
    pub(super) fn wait_on(&self) -> BorrowedFd<'_> {
        self.watch.wait_on()
    }

    /// How soon there is something to do even if no start begins.
    pub(super) fn wait_at_most(&self) -> Option<Duration> {
        self.watch.wait_at_most()
    }

    /// Answers what has begun, and has finished what has ended.
    pub(super) fn work(&mut self) -> Result<()> {
        let judge = &mut self.judge;
        let ended = self.watch.drain(&mut |start| judge.answer(start))?;
        for recorded in ended {
            self.finish(recorded);
        }
        // What could not be recorded, for want of memory or descriptors, is over.
        let watch = &self.watch;
        self.judge.active.retain(|number, _| watch.is_recorded(*number));
        for (program, Sample { files, names, .. }) in std::mem::take(&mut self.judge.warm) {
            let kept = self
                .watch
                .leave_while_in_memory(program, WARM_BY_KERNEL, &files, &names);
            if let Err(error) = &kept {
                log(&error.to_string());
            }
            if !kept.unwrap_or(false) {
                self.judge.ignore(Some(program), WARM);
            }
        }
        for (program, how_long) in self.judge.state.to_ignore() {
            self.judge.ignore(Some(program), how_long);
        }
        for (program, standing) in std::mem::take(&mut self.judge.standings) {
            if let Err(error) = self.watch.set_standing(program, standing) {
                log(&error.to_string());
            }
        }
        for (file, role) in self.judge.state.to_know() {
            if let Err(error) = self.watch.know(file, role) {
                log(&error.to_string());
            }
            // Whose these are their list has seen to.
            self.knows(file, None);
        }
        for asked in self.judge.state.take_tasks() {
            if let Err(error) = self.do_as_asked(asked) {
                log(&error.to_string());
            }
        }
        let counts = self.watch.counts();
        if counts.foreign > 0 && !self.has_told {
            self.has_told = true;
            log(FOREIGN);
        }
        self.judge.state.set_counts(counts);
        Ok(())
    }

    /// Nothing is recorded any more, nor finished but what is being finished.
    pub(super) fn end(self) {
        let state = self.judge.end();
        drop(self.watch);
        self.finisher.end();
        log(&state.counts().to_string());
    }
}
