//! How a thread begins, and how its end or its answer is waited for: never for good. A filter of system calls
//! may end a thread alone (`SECCOMP_RET_KILL_THREAD`): it drops nothing then, tells nobody, and keeps what it
//! has locked.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Stack of a thread whose calls are few, bytes.
const SMALL_STACK: usize = 128 << 10;
/// A thread that has not come to its work by now was ended on the way.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);
/// How often is looked whether a thread that is waited for is still there.
const LOOK: Duration = Duration::from_millis(50);

/// A thread that was begun.
#[derive(Debug)]
pub struct StartedThread {
    handle: JoinHandle<()>,
    /// Its number; 0 until it has come to its work.
    number: Arc<AtomicI32>,
    since: Instant,
}

/// Begins a thread of this name. What begins one is made anew by the compiler for each closure, several KiB
/// each; for a box it is there once.
pub fn spawn(name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<StartedThread> {
    spawn_with(Builder::new().name(name.into()), work)
}

/// The same with a small stack.
pub fn spawn_small(name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<StartedThread> {
    spawn_with(Builder::new().name(name.into()).stack_size(SMALL_STACK), work)
}

fn spawn_with(builder: Builder, work: Box<dyn FnOnce() + Send>) -> io::Result<StartedThread> {
    let number = Arc::new(AtomicI32::new(0));
    let own = Arc::clone(&number);
    let handle = builder.spawn(move || {
        own.store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        drop(own);
        work();
    })?;
    Ok(StartedThread {
        handle,
        number,
        since: Instant::now(),
    })
}

impl StartedThread {
    /// Whether it has ended, also if it was ended amid its work.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished() || self.is_gone()
    }

    /// Whether the kernel has no such thread any more.
    fn is_gone(&self) -> bool {
        let number = self.number.load(Ordering::Relaxed);
        if number == 0 {
            return self.since.elapsed() > BEGINS_WITHIN;
        }
        // SAFETY: numbers; the signal 0 is sent to nobody.
        let asked = unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), number, 0) };
        asked != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
    }

    /// What the thread sends; `None` if it has ended without, or does not in this time.
    pub fn answer<T>(&self, from: &Receiver<T>, limit: Duration) -> Option<T> {
        let until = Instant::now() + limit;
        loop {
            // Looked at before: what it has sent until its end is there then.
            let is_gone = self.is_gone();
            let left = until.saturating_duration_since(Instant::now());
            match from.recv_timeout(left.min(LOOK)) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Timeout) if !is_gone && !left.is_zero() => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits for its end, so long at most; whether it has come.
    pub fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut pause = Duration::from_micros(100);
        while !self.is_finished() {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(LOOK);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const LONG: Duration = Duration::from_secs(60);

    /// Ends the calling thread alone, as a filter does: nothing of it is dropped.
    fn end_alone() {
        // SAFETY: ends this thread, whose stack nothing else uses.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }

    #[test]
    fn a_thread_that_was_ended_alone_is_not_waited_for() {
        let (told, answer) = channel::<u8>();
        let begun = spawn(
            "x",
            Box::new(move || {
                end_alone();
                let _ = told.send(7);
            }),
        );
        let (begun, since) = (begun.unwrap(), Instant::now());
        assert_eq!(begun.answer(&answer, 10 * LONG), None);
        assert!(begun.wait(10 * LONG) && begun.is_finished());
        assert!(since.elapsed() < LONG);
    }

    #[test]
    fn what_a_thread_has_sent_before_its_end_is_there() {
        for _ in 0..100 {
            let (told, answer) = channel();
            let begun = spawn_small(
                "x",
                Box::new(move || {
                    let _ = told.send(7);
                    end_alone();
                }),
            );
            assert_eq!(begun.unwrap().answer(&answer, LONG), Some(7));
        }
    }

    #[test]
    fn one_that_goes_on_is_waited_for_so_long() {
        let (go, told) = channel::<()>();
        let (_silent, answer) = channel::<u8>();
        let begun = spawn(
            "x",
            Box::new(move || {
                let _ = told.recv();
            }),
        )
        .unwrap();
        assert_eq!(begun.answer(&answer, Duration::from_millis(1)), None);
        assert!(!begun.wait(Duration::from_millis(1)) && !begun.is_finished());
        drop(go);
        assert!(begun.wait(LONG));
    }
}
