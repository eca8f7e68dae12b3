//! The end of a start has a deadline: what looks at files by their names may meet a server that never answers
//! (a dead FUSE or network mount), and nobody waits for this process who would notice. And a worker has a
//! last limit in the kernel, which needs none of its threads: a filter of system calls may end each of them
//! alone.

use crate::notes::log;
use headstart_system::executions::DeadMansSwitch;
use headstart_system::own_program::{Role, role};
use headstart_system::thread;
use std::cell::Cell;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Learning from a boot of a desktop takes some seconds on a slow processor and at idle priority; ten minutes
/// are a hang.
pub const FINISH: Duration = Duration::from_secs(600);

/// So long a worker may do nothing: its end is what takes longest. Where its calls may be forbidden it is
/// none that takes long.
const LAST: Duration = Duration::from_secs(660);
const LAST_CAREFUL: Duration = Duration::from_secs(60);
/// So often it says that it does something.
const SAYS_EVERY: Duration = Duration::from_secs(1);

/// Ends a process that does nothing any more, whatever its threads wait for.
pub struct LastLimit {
    switch: Option<DeadMansSwitch>,
    limit: Duration,
    said: Cell<Instant>,
}

impl LastLimit {
    /// From now on. Where the kernel has no timer for it there is none, and that is noted; but by a scout,
    /// whose standard error is the command's.
    pub fn arm() -> LastLimit {
        let switch = DeadMansSwitch::or_alarm();
        if let (Err(error), true) = (&switch, role() != Role::Scout) {
            log(&format!("this process has no last limit: {error}"));
        }
        let last = LastLimit {
            switch: switch.ok(),
            limit: match role() {
                Role::Ordinary => LAST,
                Role::Careful | Role::Scout => LAST_CAREFUL,
            },
            said: Cell::new(Instant::now()),
        };
        last.set();
        last
    }

    fn set(&self) {
        if let Some(switch) = &self.switch {
            // A timer that is there can be set.
            let _ = switch.set(Some(self.limit));
        }
    }

    /// The process gets on. Whether that was noted: now and then.
    pub fn renew(&self) -> bool {
        let is_due = self.said.get().elapsed() >= SAYS_EVERY;
        if is_due {
            self.said.set(Instant::now());
            self.set();
        }
        is_due
    }
}

/// Ends this process when the deadline has passed, unless it is dropped before.
pub struct Deadline {
    _alive: Option<Sender<()>>,
}

impl Deadline {
    /// Starts the deadline now. If no thread can be started there is none, and a note says so.
    pub fn arm(limit: Duration) -> Deadline {
        Deadline::begin_with(limit, || {
            log(
                "the end of a start is not over after ten minutes, most likely for a file system that does not answer: given up",
            );
            std::process::exit(1)
        })
    }

    fn begin_with(limit: Duration, passed: impl FnOnce() + Send + 'static) -> Deadline {
        let (alive, ended) = channel::<()>();
        let wait = move || {
            if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                passed();
            }
        };
        let started = thread::spawn("deadline", Box::new(wait));
        if let Err(error) = &started {
            log(&format!("the end of this start has no deadline: {error}"));
        }
        Deadline {
            _alive: started.is_ok().then_some(alive),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn an_end_that_hangs_is_given_up_and_one_that_is_over_is_not() {
        let (tell, told) = mpsc::channel();
        let hanging = Deadline::begin_with(Duration::from_millis(1), move || tell.send(()).unwrap());
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(()));
        drop(hanging);
        let (tell, told) = mpsc::channel();
        drop(Deadline::begin_with(Duration::from_secs(3600), move || {
            tell.send(()).unwrap()
        }));
        // The thread ends, and with it what it would tell by, without a word.
        assert_eq!(
            told.recv_timeout(Duration::from_secs(60)),
            Err(RecvTimeoutError::Disconnected)
        );
    }
}
