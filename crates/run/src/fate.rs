//! What the worker knows of the command: told by the supervisor, on a thread that waits for it.

use crate::message::{Ended, Message, receive, send};
use headstart_system::thread::{self, StartedThread};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What became of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs, or waits at the barrier.
    Running,
    /// It ended, at this time.
    Ended(Ended, Instant),
    /// It could not be started.
    NotStarted,
    /// The supervisor was killed; the command may go on.
    Unknown,
}

/// The command's fate, as it is told.
pub struct Watch {
    fate: Mutex<Fate>,
    changed: Condvar,
    /// Whether nobody will tell any more.
    pub lost: AtomicBool,
    /// Whether the command was released before the worker was ready.
    ahead: AtomicBool,
    /// The thread that is told.
    listens: OnceLock<StartedThread>,
}

impl Watch {
    /// Begins to listen. At the command's end what was read ahead for it is let go of first: who waited for
    /// the command may unmount what it has used.
    pub fn start(stream: UnixStream, let_go: impl FnOnce() + Send + 'static) -> Arc<Watch> {
        let watch = Arc::new(Watch {
            fate: Mutex::new(Fate::Running),
            changed: Condvar::new(),
            lost: AtomicBool::new(false),
            ahead: AtomicBool::new(false),
            listens: OnceLock::new(),
        });
        let theirs = Arc::clone(&watch);
        let listen = move || {
            let fate = loop {
                match receive(&stream) {
                    Ok(Message::Ended(ended)) => break Fate::Ended(ended, Instant::now()),
                    Ok(Message::NotStarted) => break Fate::NotStarted,
                    Ok(Message::Ahead) => theirs.ahead.store(true, Ordering::Relaxed),
                    Ok(_) => {}
                    Err(_) => break Fate::Unknown,
                }
            };
            theirs.set(fate);
            if matches!(fate, Fate::Ended(..)) {
                let_go();
                // Who does not wait for that has not asked.
                let _ = send(&stream, Message::LetGo);
            }
        };
        match thread::spawn("listen", Box::new(listen)) {
            Ok(begun) => drop(watch.listens.set(begun)),
            Err(_) => watch.set(Fate::Unknown),
        }
        watch
    }

    fn set(&self, fate: Fate) {
        *self.fate.lock().unwrap_or_else(PoisonError::into_inner) = fate;
        self.lost.store(fate == Fate::Unknown, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// What became of it so far.
    pub fn fate(&self) -> Fate {
        *self.fate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the command went on before the worker was ready: its first uses were not seen. Certain once
    /// its fate is: the supervisor says this first.
    pub fn went_ahead(&self) -> bool {
        self.ahead.load(Ordering::Relaxed)
    }

    /// Waits until it no longer runs, so long at most.
    pub fn wait(&self, limit: Duration) -> Fate {
        self.check();
        let fate = self.fate.lock().unwrap_or_else(PoisonError::into_inner);
        let running = |fate: &mut Fate| *fate == Fate::Running;
        let waited = self.changed.wait_timeout_while(fate, limit, running);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sets the fate to unknown if the listening thread has ended without one.
    pub fn check(&self) {
        // Before the fate: what the thread has noted until its end is there then.
        let is_over = self.listens.get().is_some_and(StartedThread::is_finished);
        if is_over && self.fate() == Fate::Running {
            self.set(Fate::Unknown);
        }
    }
}
