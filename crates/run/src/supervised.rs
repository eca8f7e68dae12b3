//! The process that the caller sees, while the command runs: it passes signals on, stops and ends as the
//! command does, and hears of the worker.

use crate::document::Written;
use crate::message::{Ended, Message, receive, send};
use crate::{complain_once, namespace, worker};
use anyhow::{Context, Result};
use headstart_start::deadline::FINISH;
use headstart_start::notes::complain;
use headstart_store::Store;
use headstart_system::blocked::children_cpu;
use headstart_system::launch::{Change, Signals, change, reap_others, send as signal, stop_like};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest a command waits at the barrier: what a replay may ask for, and a recorder on a slow machine on
/// top.
pub(crate) const BARRIER_LIMIT: Duration = Duration::from_secs(12);

/// When headstart ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the command; the worker goes on by itself. As the first process of a container headstart waits
    /// all the same, for the worker would be ended with it.
    WithCommand,
    /// When the worker is done too.
    WhenDone,
}

/// What is told of a worker that was killed before the command began, and of one that does not answer.
pub(crate) const GONE: &str = "the worker process ended early: the command starts without";
pub(crate) const LATE: &str = "the recorder is not ready in time: the command starts without";

/// Whether the other side of a stream is gone.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// What the waiting process holds.
pub(crate) struct Supervisor<'a> {
    /// Where to remember what was told.
    store: &'a dyn Fn() -> Option<Store>,
    /// Whether all is told, and not only what is new.
    always: bool,
    signals: Signals,
    pid: u32,
    /// `None` where there is none, and once it is gone.
    worker: Option<UnixStream>,
    /// Whether a line was printed: there is one at most.
    told: bool,
    /// Whether the worker could not do what it was for.
    failed: bool,
    stopped: bool,
    /// Whether a signal that stops was passed on, and none since that continues.
    passed_stop: bool,
    /// The command's status, once it has ended: its number is free then.
    ended: Option<i32>,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(
        signals: Signals,
        pid: u32,
        worker: Option<UnixStream>,
        store: &'a dyn Fn() -> Option<Store>,
    ) -> Supervisor<'a> {
        Supervisor {
            store,
            always: false,
            signals,
            pid,
            worker,
            told: false,
            failed: false,
            stopped: false,
            passed_stop: false,
            ended: None,
        }
    }

    /// Tells all that is said, and not only what is new.
    pub(crate) fn tells_all(&mut self) {
        self.always = true;
    }

    /// Hears and tells a worker from now on.
    pub(crate) fn has_worker(&mut self, stream: UnixStream) {
        self.worker = Some(stream);
    }

    /// The command's number.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the worker could not do what it was for.
    pub(crate) fn failed(&self) -> bool {
        self.failed
    }

    /// Tells what the worker says, which has looked whether it is news.
    fn repeat(&mut self, line: &str) {
        if !line.is_empty() && !std::mem::replace(&mut self.told, true) {
            complain(line);
        }
    }

    /// Prints a line of this process's own, unless it was printed before.
    pub(crate) fn complain_once(&mut self, line: &str) {
        if self.always {
            self.repeat(line);
        } else if !std::mem::replace(&mut self.told, true) {
            complain_once::complain_once(self.store, line);
        }
    }

    /// A worker that is done or gone does not listen: what it said before, or that it said nothing, is read
    /// later.
    pub(crate) fn say(&mut self, message: Message) {
        let sent = self
            .worker
            .as_ref()
            .map_or(Ok(()), |stream| send(stream, message));
        // Of a worker that is gone whoever waits for it hears. Another error is a filter's, and nothing is to
        // be had of a worker that cannot be told anything.
        if sent.is_err_and(|error| !is_gone(&error)) {
            self.worker = None;
            self.failed = true;
        }
    }

    /// Notes that the worker has ended before it was done.
    fn worker_is_gone(&mut self) {
        self.worker = None;
        self.failed = true;
        self.complain_once("the worker process ended early: nothing was learned");
    }

    /// Waits until something can be read from the signals or the worker; whether it is the worker.
    fn wait_readable(&self, worker: bool, limit: Option<Duration>) -> Result<bool> {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if let (true, Some(stream)) = (worker, &self.worker) {
            fds.push(PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN));
        }
        let timeout = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => Ok(fds.get(1).is_some_and(|fd| !fd.revents().is_empty())),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error).context("cannot wait for signals"),
        }
    }

    /// Waits until the worker says that the command may go on, or nobody has to wait because it was ended
    /// while it waited; why it will not be helped otherwise.
    pub(crate) fn barrier(&mut self) -> Result<(), String> {
        let mut until = Instant::now() + BARRIER_LIMIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LATE.into());
            }
            if self.worker.is_none() {
                return Ok(());
            }
            let worker = self
                .wait_readable(true, Some(left))
                .map_err(|error| format!("{error:#}"))?;
            self.pass_signals();
            let before = Instant::now();
            self.follow().map_err(|error| format!("{error:#}"))?;
            if self.ended.is_some() {
                return Ok(());
            }
            // This process was stopped with it: nobody waited.
            until += before.elapsed();
            let Some(stream) = self.worker.as_ref().filter(|_| worker) else {
                continue;
            };
            match receive(stream) {
                Ok(Message::Ready(line)) => {
                    self.repeat(&line);
                    return Ok(());
                }
                Ok(Message::Refused(why)) => return Err(why),
                Ok(_) => {}
                Err(_) => {
                    self.worker = None;
                    self.failed = true;
                    return Err(GONE.into());
                }
            }
        }
    }

    /// Does as the command did since it was last asked: stops with it, or notes its end.
    fn follow(&mut self) -> Result<()> {
        if namespace::is_first() {
            reap_others(self.pid);
        }
        while self.ended.is_none() {
            match change(self.pid).context("cannot wait for the command")? {
                Some(Change::Ended(status)) => self.ended = Some(status),
                Some(Change::Stopped(signal)) => {
                    self.stopped = true;
                    stop_like(signal, self.pid);
                }
                Some(Change::Continued) => self.stopped = false,
                None => break,
            }
        }
        Ok(())
    }

    /// Waits until the command has ended, and gives its status.
    pub(crate) fn wait(&mut self) -> Result<i32> {
        loop {
            self.follow()?;
            if let Some(status) = self.ended {
                return Ok(status);
            }
            self.wait_readable(false, None)?;
            self.pass_signals();
        }
    }

    /// Passes on what was sent to headstart alone.
    fn pass_signals(&mut self) {
        while let Ok(Some(received)) = self.signals.next() {
            let sent = received.signal;
            match sent {
                number::SIGCHLD => {}
                // What this process did itself, such as a write to a pipe that nobody reads, or beyond the
                // largest file.
                _ if received.by_self => {}
                // Of a terminal, which sent it to the command as well; but that it is gone, to who leads the
                // session alone. An alarm is this process's only: it was set before headstart took the place
                // of what it was set for.
                number::SIGHUP if received.by_kernel && leads_session() => {
                    signal(self.pid, sent);
                    if self.stopped {
                        signal(self.pid, number::SIGCONT);
                    }
                }
                _ if received.by_kernel && sent != number::SIGALRM => {}
                // The shell continues all of a job; who was continued already must not be told twice.
                number::SIGCONT if !self.stopped && !self.passed_stop => {}
                _ => signal(self.pid, sent),
            }
            if sent == number::SIGCONT {
                (self.stopped, self.passed_stop) = (false, false);
            }
            // One that was sent to all of a job may arrive from here when the command was continued already.
            self.passed_stop |= [number::SIGTSTP, number::SIGTTIN, number::SIGTTOU].contains(&sent);
        }
    }

    /// Tells the worker that the command has ended, or that it never began, and waits until it is let go.
    pub(crate) fn say_how_it_ended(&mut self, status: i32, has_begun: bool, ending: Ending) {
        if !has_begun {
            return self.say(Message::NotStarted);
        }
        // The command is the only child that was waited for.
        let cpu_ns = children_cpu().as_nanos() as u64;
        self.say(Message::Ended(Ended { status, cpu_ns }));
        if ending == Ending::WithCommand {
            self.wait_until_let_go();
        }
    }

    /// Waits until the worker has closed what it has read ahead, for some milliseconds: who waited for the
    /// command may unmount what it has used. Signals do to this process what they do to any.
    fn wait_until_let_go(&mut self) {
        let until = Instant::now() + worker::LETS_GO_WITHIN;
        while let Some(stream) = &self.worker {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            };
            let told = poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&left));
            match told {
                Ok(1..) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Ok(0) | Err(_) => return,
            }
            match receive(stream) {
                Ok(Message::LetGo) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }

    /// Waits until the worker is done, and writes what it says was done. Signals do to this process what they
    /// do to any: nothing is left to pass them to. The worker finishes by itself if one ends the wait.
    pub(crate) fn wait_for_worker(&mut self, mut written: Option<Written>) {
        // What came before the command's end was for the command.
        while let Ok(Some(_)) = self.signals.next() {}
        self.signals.give_back();
        // Its own deadline comes before.
        let until = Instant::now() + FINISH + FINISH / 10;
        while let Some(stream) = &self.worker {
            let left = until.saturating_duration_since(Instant::now());
            let _ = stream.set_read_timeout(Some(left.max(Duration::from_millis(1))));
            match receive(stream) {
                Ok(Message::Document(text)) => {
                    if let Some(Err(error)) = written.take().map(|written| written.write(&text)) {
                        self.complain_once(&format!("{error:#}"));
                    }
                }
                Ok(Message::Done(line)) => {
                    self.repeat(&line);
                    return;
                }
                Ok(Message::Failed(line)) => {
                    self.failed = true;
                    self.repeat(&line);
                    return;
                }
                Ok(_) => {}
                Err(_) => self.worker_is_gone(),
            }
        }
    }
}

/// Whether this process leads its session, as one that a terminal was made for.
fn leads_session() -> bool {
    rustix::process::getsid(None).is_ok_and(|session| session == rustix::process::getpid())
}

/// The numbers of the signals that are treated otherwise than others.
mod number {
    pub const SIGALRM: i32 = rustix::process::Signal::ALARM.as_raw();
    pub const SIGCHLD: i32 = rustix::process::Signal::CHILD.as_raw();
    pub const SIGHUP: i32 = rustix::process::Signal::HUP.as_raw();
    pub const SIGCONT: i32 = rustix::process::Signal::CONT.as_raw();
    pub const SIGTSTP: i32 = rustix::process::Signal::TSTP.as_raw();
    pub const SIGTTIN: i32 = rustix::process::Signal::TTIN.as_raw();
    pub const SIGTTOU: i32 = rustix::process::Signal::TTOU.as_raw();
}
