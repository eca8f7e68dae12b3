//! The part the caller sees: it waits for the command and behaves as the command does.

use super::message::{Ended, Message, receive, send};
use super::{Job, Purpose, helper};
use crate::context::Written;
use anyhow::{Context, Result, bail};
use headstart_system::blocked::Children;
use headstart_system::launch::{
    Change, Held, Signals, background, change, end_like, send as signal, stop_like,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The longest a command is held: what a replay may ask for, and a recorder on a slow machine on top.
const HOLD_LIMIT: Duration = Duration::from_secs(12);

/// When headstart ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With the command; the helper goes on by itself.
    WithCommand,
    /// When the helper is done too.
    WhenDone,
}

/// Statuses of shells, env(1) and others for a command that is not there, or cannot be executed.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

/// Starts the command and ends this process as the command ends; what was done goes to `written`. Returns only if
/// nothing was started.
pub fn start(command: &[OsString], job: Job, ending: Ending, written: Option<Written>) -> Result<()> {
    let words: Vec<CString> = command
        .iter()
        .map(|word| CString::new(word.as_bytes()))
        .collect::<Result<_, _>>()
        .context("the command has a NUL character")?;
    let signals = Signals::take().context("cannot read signals")?;
    let log = match &job.purpose {
        // Without a log its lines are lost, and nothing else.
        Purpose::Loop { store, .. } => store.log().open().ok(),
        Purpose::Trace(_) => None,
    };
    let must = matches!(job.purpose, Purpose::Trace(_));
    let helper = background(log, |stream| helper::work(stream, job));
    let mut child = Held::fork(&words).context("cannot fork")?;
    let mut front = Front {
        signals,
        pid: child.pid(),
        helper: None,
        told: false,
        stopped: false,
        ended: None,
    };
    match helper {
        Ok(stream) => front.helper = Some(stream),
        Err(error) if must => {
            child.abandon();
            bail!("cannot start the recorder's process: {error}");
        }
        Err(error) => front.tell(&format!("neither replaying nor recording: cannot fork: {error}")),
    }
    front.say(&Message::Command(front.pid));
    match front.hold() {
        Ok(()) => child.release(),
        Err(why) if must => {
            child.abandon();
            bail!("{why}");
        }
        Err(why) => {
            front.tell(&why);
            child.release();
        }
    }
    let status = front.wait()?;
    let failure = child.failure();
    match &failure {
        Some(error) => {
            front.say(&Message::NotStarted);
            crate::complain(&format!("cannot run {:?}: {error}", command[0]));
        }
        None => {
            // The command is the only child that was waited for.
            let cpu_ns = Children::read().map_or(0, |all| all.cpu.as_nanos() as u64);
            front.say(&Message::Ended(Ended { status, cpu_ns }));
        }
    }
    if ending == Ending::WhenDone {
        front.wait_for_helper(written);
    }
    match failure.map(|error| error.kind()) {
        Some(io::ErrorKind::NotFound) => std::process::exit(NOT_FOUND),
        Some(_) => std::process::exit(NOT_EXECUTABLE),
        None => end_like(status),
    }
}

/// What the waiting process holds.
struct Front {
    signals: Signals,
    pid: u32,
    /// `None` once the helper is gone.
    helper: Option<UnixStream>,
    /// Whether a line was printed: there is one at most.
    told: bool,
    stopped: bool,
    /// The command's status, once it has ended: its number is free then.
    ended: Option<i32>,
}

impl Front {
    fn tell(&mut self, line: &str) {
        if !line.is_empty() && !std::mem::replace(&mut self.told, true) {
            crate::complain(line);
        }
    }

    fn say(&mut self, message: &Message) {
        let gone = |stream| send(stream, message).is_err();
        if self.helper.as_ref().is_some_and(gone) {
            self.helper = None;
        }
    }

    /// Waits until something can be read from the signals or the helper; whether it is the helper.
    fn look(&self, helper: bool, limit: Option<Duration>) -> Result<bool> {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if let (true, Some(stream)) = (helper, &self.helper) {
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

    /// Waits until the helper says that the command may go on, or nobody has to wait because it was ended while it was
    /// held; why it will not be helped otherwise.
    fn hold(&mut self) -> Result<(), String> {
        let mut until = Instant::now() + HOLD_LIMIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("the recorder is not ready in time: the command starts without".into());
            }
            if self.helper.is_none() {
                return Ok(());
            }
            let helper = self
                .look(true, Some(left))
                .map_err(|error| format!("{error:#}"))?;
            self.pass_signals();
            let before = Instant::now();
            self.follow().map_err(|error| format!("{error:#}"))?;
            if self.ended.is_some() {
                return Ok(());
            }
            // This process was stopped with it: nobody waited.
            until += before.elapsed();
            let Some(stream) = self.helper.as_ref().filter(|_| helper) else {
                continue;
            };
            match receive(stream) {
                Ok(Message::Ready(line)) => {
                    self.tell(&line);
                    return Ok(());
                }
                Ok(Message::Refused(why)) => return Err(why),
                Ok(_) => {}
                Err(_) => {
                    self.helper = None;
                    return Err("the helper process ended early: the command starts without".into());
                }
            }
        }
    }

    /// Does as the command did since it was last asked: stops with it, or notes its end.
    fn follow(&mut self) -> Result<()> {
        while self.ended.is_none() {
            match change(self.pid).context("cannot wait for the command")? {
                Some(Change::Ended(status)) => self.ended = Some(status),
                Some(Change::Stopped(signal)) => {
                    self.stopped = true;
                    stop_like(signal);
                }
                Some(Change::Continued) => self.stopped = false,
                None => break,
            }
        }
        Ok(())
    }

    /// Waits until the command has ended, and gives its status.
    fn wait(&mut self) -> Result<i32> {
        loop {
            self.follow()?;
            if let Some(status) = self.ended {
                return Ok(status);
            }
            self.look(false, None)?;
            self.pass_signals();
        }
    }

    /// Passes on what was sent to headstart alone.
    fn pass_signals(&mut self) {
        while let Ok(Some(received)) = self.signals.next() {
            let sent = received.signal;
            match sent {
                number::SIGCHLD => {}
                // Of a terminal, which sent it to the command as well. An alarm is this process's only: it was set
                // before headstart took the place of what it was set for.
                _ if received.by_kernel && sent != number::SIGALRM => {}
                // The shell continues all of a job; who was continued already must not be told twice.
                number::SIGCONT if !self.stopped => {}
                _ => signal(self.pid, sent),
            }
            if sent == number::SIGCONT {
                self.stopped = false;
            }
        }
    }

    /// Waits until the helper is done, and writes what it says was done. Signals do to this process what they do to any:
    /// nothing is left to pass them to. The helper finishes by itself if one ends the wait.
    fn wait_for_helper(&mut self, mut written: Option<Written>) {
        // What came before the command's end was for the command.
        while let Ok(Some(_)) = self.signals.next() {}
        self.signals.give_back();
        while let Some(stream) = &self.helper {
            match receive(stream) {
                Ok(Message::Document(text)) => {
                    if let Some(Err(error)) = written.take().map(|written| written.write(&text)) {
                        self.tell(&format!("{error:#}"));
                    }
                }
                Ok(Message::Done(line)) => {
                    self.tell(&line);
                    return;
                }
                Ok(_) => {}
                Err(_) => {
                    self.helper = None;
                    self.tell("the helper process ended early: nothing was learned");
                }
            }
        }
    }
}

/// The numbers of the signals that are treated otherwise than others.
mod number {
    pub const SIGALRM: i32 = rustix::process::Signal::ALARM.as_raw();
    pub const SIGCHLD: i32 = rustix::process::Signal::CHILD.as_raw();
    pub const SIGCONT: i32 = rustix::process::Signal::CONT.as_raw();
}
