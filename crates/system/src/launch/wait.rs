//! What becomes of a child, and making it one's own.

use super::signals;
use std::io;

/// What a child did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It ended, with this status as wait(2) gives it. It has been waited for: its number is free.
    Ended(i32),
    /// It stopped on this signal.
    Stopped(i32),
    /// It goes on.
    Continued,
}

/// What a child did that was not yet told; `None` if nothing. Does not wait.
pub fn change(pid: u32) -> io::Result<Option<Change>> {
    let mut status = 0;
    let options = libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED;
    // SAFETY: `status` lives through the call.
    match unsafe { libc::waitpid(pid as libc::pid_t, &mut status, options) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ if libc::WIFSTOPPED(status) => Ok(Some(Change::Stopped(libc::WSTOPSIG(status)))),
        _ if libc::WIFCONTINUED(status) => Ok(Some(Change::Continued)),
        _ => Ok(Some(Change::Ended(status))),
    }
}

/// Sends a signal to a child that was not yet waited for. One that is gone takes no notice.
pub fn send(pid: u32, signal: i32) {
    // SAFETY: kill takes any numbers; a child that was not waited for keeps its own.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// Stops this process as a child was stopped, until it is continued.
pub fn stop_like(signal: i32) {
    signals::take_oneself(signal);
}

/// Ends this process as a child ended: with its exit status, or by the signal that killed it.
pub fn end_like(status: i32) -> ! {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        // The child left the core, if one was wanted.
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: `none` lives through the call.
        unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
        signals::take_oneself(signal);
        // As the first process of a container one outlives signals.
        std::process::exit(128 + signal);
    }
    std::process::exit(libc::WEXITSTATUS(status))
}
