//! The guard: a process that does nothing but answer the kernel, which asks before a known program is executed.
//!
//! Whoever executes it waits meanwhile, so the guard asks the daemon, and goes by deadlines of its own: nobody waits longer than
//! [`LONGEST`], for a daemon that does not answer no longer than [`UNANSWERED`], and then no more. If the guard itself is
//! stopped, frozen or stuck, a timer in the kernel ends it within [`AT_ALL`] of anybody's waiting, and with it all waiting.

use super::word::{Word, hear, say};
use super::{Inode, inode_of, is_leased_by_nobody_else};
use crate::daemon::NICE;
use headstart_system::executions::{DeadMansSwitch, Execution, Executions};
use headstart_system::priority::set_nice;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A start is held so long at most.
const LONGEST: Duration = Duration::from_millis(1750);

/// The daemon has so long to say whether it is to be held.
const UNANSWERED: Duration = Duration::from_millis(500);

/// Nobody waits for longer, whatever happens to the guard.
const AT_ALL: Duration = Duration::from_secs(2);

/// The guard gives a sign of life so often, and is ended after so long without.
const SIGN: Duration = Duration::from_millis(500);
const SILENCE: Duration = Duration::from_millis(1500);

/// So many wait at a time; others go on at once.
const WAITING: usize = 8;

/// A file for which nothing is read ahead is not asked about for so long: storms of starts are the guard's alone.
const QUIET: Duration = Duration::from_millis(100);

/// So many files are left alone at a time.
const LEFT_ALONE: usize = 256;

/// One execution opens several files that may be asked about: a script, and what it is to be executed by. Who has waited for so long for one does not wait
/// for another, or both would be longer than [`AT_ALL`]. The next is opened so soon, if no disk holds that up.
const ONCE: Duration = AT_ALL.saturating_sub(LONGEST);
const NEXT: Duration = Duration::from_millis(100);

/// The switch is not left to end the guard sooner than this after it was to be set again.
const MARGIN: Duration = Duration::from_millis(100);

/// So many events are taken before it looks at the daemon, and gives a sign, again.
const AT_A_TIME: usize = 64;

struct Guard {
    daemon: UnixStream,
    executions: Executions,
    switch: DeadMansSwitch,
    waiting: Vec<Waiting>,
    /// Who has waited, and does not again.
    has_waited: Vec<HasWaited>,
    left_alone: HashMap<Inode, Instant>,
    last: u64,
    /// Whether anything is asked about.
    asks: bool,
    /// Whether the daemon has not answered, and nobody waits for it until it does.
    deaf: bool,
}

struct Waiting {
    id: u64,
    inode: Inode,
    execution: Execution,
    since: Instant,
    /// Whether the daemon has said that it is to wait.
    held: bool,
}

struct HasWaited {
    pid: u32,
    since: Instant,
    at: Instant,
}

impl HasWaited {
    /// Until when it may be about to open the next file, and would wait if the guard were stopped now.
    fn until(&self) -> Instant {
        (self.at + NEXT).min(self.since + AT_ALL - MARGIN)
    }
}

impl Waiting {
    fn until(&self) -> Instant {
        self.since + if self.held { LONGEST } else { UNANSWERED }
    }
}

/// Serves until the daemon is gone; gives the status to end with. Who waits has numbers behind `last`.
pub(super) fn serve(daemon: UnixStream, last: u64) -> i32 {
    // Where it is refused it answers no sooner than others run.
    let _ = set_nice(NICE);
    let made = Executions::new().and_then(|executions| Ok((executions, DeadMansSwitch::new()?)));
    let (executions, switch) = match made {
        Ok(made) => made,
        Err(error) => {
            refuse(&daemon, &error);
            return 1;
        }
    };
    let mut guard = Guard {
        daemon,
        executions,
        switch,
        waiting: Vec::new(),
        has_waited: Vec::new(),
        left_alone: HashMap::new(),
        last,
        asks: false,
        deaf: false,
    };
    // Whatever fails: its end lets everybody go.
    i32::from(guard.turns().is_err())
}

fn refuse(daemon: &UnixStream, error: &io::Error) {
    // Without an error of the system's it has met what it does not know, as an old kernel would.
    let errno = error
        .raw_os_error()
        .unwrap_or(rustix::io::Errno::NOSYS.raw_os_error());
    let _ = say(daemon, Word::Refused(errno), None);
}

impl Guard {
    fn turns(&mut self) -> io::Result<()> {
        loop {
            let wait = self.sign(Instant::now())?;
            let wait = wait.and_then(|wait: Duration| Timespec::try_from(wait).ok());
            let mut fds = [
                PollFd::from_borrowed_fd(self.daemon.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.executions.as_fd(), PollFlags::IN),
            ];
            match poll(&mut fds, wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            loop {
                match hear(&self.daemon) {
                    Ok(Some((word, file))) => self.obey(word, file.as_ref().map(AsFd::as_fd)),
                    Ok(None) => break,
                    // The daemon has ended.
                    Err(_) => return Ok(()),
                }
            }
            self.see()?;
            self.let_go_who_is_due(Instant::now());
        }
    }

    /// Sets the switch; gives how soon to do so again.
    fn sign(&self, now: Instant) -> io::Result<Option<Duration>> {
        if !self.asks && self.waiting.is_empty() {
            self.switch.set(None)?;
            return Ok(None);
        }
        let goes_on = || self.has_waited.iter().filter(|it| now < it.until());
        let next = self.waiting.iter().map(Waiting::until);
        let next = next.chain(goes_on().map(HasWaited::until)).min();
        let first = self.waiting.iter().map(|waiting| waiting.since);
        let first = first.chain(goes_on().map(|it| it.since)).min();
        let at_all = first.map_or(SILENCE, |since| (since + AT_ALL).saturating_duration_since(now));
        self.switch.set(Some(at_all.min(SILENCE)))?;
        Ok(Some(next.map_or(SIGN, |next| {
            next.saturating_duration_since(now).min(SIGN)
        })))
    }

    fn obey(&mut self, word: Word, file: Option<rustix::fd::BorrowedFd<'_>>) {
        self.deaf = false;
        match word {
            Word::AskAbout => {
                let Some(file) = file else { return };
                match self.executions.ask_about(file) {
                    Ok(()) => self.asks = true,
                    Err(error) => refuse(&self.daemon, &error),
                }
            }
            Word::AskNoMore => {
                // One that the kernel does not ask about, as it has been deleted, is what it is to be.
                let _ = file.map(|file| self.executions.ask_no_more(file));
            }
            Word::Hold(id) => {
                if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.id == id) {
                    waiting.held = true;
                }
            }
            Word::LetGo(id) => self.let_go(|waiting| waiting.id == id),
            Word::Leave(id) => {
                if let Some(waiting) = self.waiting.iter().find(|waiting| waiting.id == id) {
                    let now = Instant::now();
                    if self.left_alone.len() >= LEFT_ALONE {
                        self.left_alone.retain(|_, until| *until > now);
                    }
                    if self.left_alone.len() < LEFT_ALONE {
                        self.left_alone.insert(waiting.inode, now + QUIET);
                    }
                }
                self.let_go(|waiting| waiting.id == id);
            }
            // Nothing that a daemon says.
            Word::Asked { .. } | Word::Refused(_) | Word::Anew => {}
        }
    }

    fn see(&mut self) -> io::Result<()> {
        for _ in 0..AT_A_TIME {
            let Some(execution) = self.executions.next()? else {
                break;
            };
            if let Err(execution) = self.ask(execution) {
                self.executions.allow(execution);
            }
        }
        Ok(())
    }

    /// Asks the daemon; gives back what need not wait.
    fn ask(&mut self, execution: Execution) -> Result<(), Execution> {
        let now = Instant::now();
        let is_known = |it: &HasWaited| it.pid == execution.pid && now < it.at + AT_ALL;
        if self.deaf
            || execution.pid == 0
            || self.waiting.len() >= WAITING
            || self.has_waited.iter().any(is_known)
        {
            return Err(execution);
        }
        let inode = match execution.stat() {
            // Its owner may have changed, and a user's may be leased.
            Ok(stat) if is_leased_by_nobody_else(&stat) => inode_of(&stat),
            _ => return Err(execution),
        };
        if self.left_alone.get(&inode).is_some_and(|until| *until > now) {
            return Err(execution);
        }
        self.last += 1;
        let asked = Word::Asked {
            id: self.last,
            pid: execution.pid,
            inode,
        };
        if say(&self.daemon, asked, None).is_err() {
            return Err(execution);
        }
        self.waiting.push(Waiting {
            id: self.last,
            inode,
            execution,
            since: now,
            held: false,
        });
        Ok(())
    }

    fn let_go_who_is_due(&mut self, now: Instant) {
        let is_due = |waiting: &Waiting| waiting.until() <= now;
        self.deaf |= self
            .waiting
            .iter()
            .any(|waiting| is_due(waiting) && !waiting.held);
        self.let_go(is_due);
    }

    fn let_go(&mut self, whom: impl Fn(&Waiting) -> bool) {
        let mut at = 0;
        while let Some(waiting) = self.waiting.get(at) {
            if whom(waiting) {
                let waiting = self.waiting.swap_remove(at);
                let at = Instant::now();
                if at.saturating_duration_since(waiting.since) >= ONCE {
                    self.has_waited.retain(|it| at < it.at + AT_ALL);
                    self.has_waited.push(HasWaited {
                        pid: waiting.execution.pid,
                        since: waiting.since,
                        at,
                    });
                }
                self.executions.allow(waiting.execution);
            } else {
                at += 1;
            }
        }
    }
}
