//! What becomes of a child, and making it one's own.

use super::signals;
use rustix::event::{Timespec, poll};
use rustix::process::{Pid, WaitOptions, waitpid};
use std::io;
use std::time::{Duration, Instant};

/// Who is killed is gone within this time, unless the kernel does not let go of it.
const DIES_WITHIN: Duration = Duration::from_secs(2);

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
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    let changed = waitpid(Pid::from_raw(pid as i32), options)?;
    Ok(changed.map(|(_, status)| match status.stopping_signal() {
        Some(signal) => Change::Stopped(signal),
        None if status.continued() => Change::Continued,
        None => Change::Ended(status.as_raw()),
    }))
}

/// Waits for all children that have ended but one, as the first process of a container has to: those of
/// processes that are gone are its own.
pub fn reap_others(but: u32) {
    loop {
        // SAFETY: a structure of numbers, which the call fills; a number of 0 says that no child has ended.
        let ended = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            match libc::waitid(
                libc::P_ALL,
                0,
                &mut info,
                libc::WEXITED | libc::WNOHANG | libc::WNOWAIT,
            ) {
                0 => info.si_pid(),
                _ => 0,
            }
        };
        let other = Pid::from_raw(ended).filter(|pid| pid.as_raw_pid() as u32 != but);
        if other.is_none_or(|pid| waitpid(Some(pid), WaitOptions::NOHANG).is_err()) {
            return;
        }
    }
}

/// Has this process leave no core, however it ends.
pub fn forget_core() {
    crate::limits::without_core();
    // SAFETY: numbers. Where cores are piped to a program the limit does not count.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
}

/// Waits until a child has ended, so long at most, and kills it then: its status as wait(2) gives it, `None`
/// if nobody is told.
pub fn wait_for(pid: u32, limit: Duration) -> Option<i32> {
    let until = Instant::now() + limit;
    let mut is_killed = false;
    let mut pause = Duration::from_micros(200);
    loop {
        match waitpid(Pid::from_raw(pid as i32), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => return Some(status.as_raw()),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
        let over = Instant::now().saturating_duration_since(until);
        if over > DIES_WITHIN {
            return None;
        }
        if !over.is_zero() && !std::mem::replace(&mut is_killed, true) {
            send(pid, libc::SIGKILL);
        }
        // What this process may call is what was tried before (decision 21): poll is, nanosleep is not.
        let time = Timespec::try_from(pause).unwrap_or_default();
        let _ = poll(&mut [], Some(&time));
        pause = (2 * pause).min(Duration::from_millis(10));
    }
}

/// Sends a signal to a child that was not yet waited for. One that is gone takes no notice.
pub fn send(pid: u32, signal: i32) {
    // SAFETY: kill takes any numbers; a child that was not waited for keeps its own.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// Stops this process as the child `pid` was stopped, until it is continued; unless the child goes on
/// already, or has ended: whoever continued it has continued this process, too, and will not do so again.
pub fn stop_like(signal: i32, pid: u32) {
    signals::stop_oneself(signal, || has_moved_on(pid));
}

/// Whether a child that was stopped goes on, or has ended. What is told of it stays to be told.
fn has_moved_on(pid: u32) -> bool {
    // SAFETY: a structure of numbers, which the call fills; a number of 0 says that there is nothing to tell.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let what = libc::WCONTINUED | libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_PID, pid, &mut info, what) == 0 && info.si_pid() != 0
    }
}

/// Ends this process as a child ended: with its exit status, or by the signal that killed it.
pub fn end_like(status: i32) -> ! {
    if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        // The child left the core, if one was wanted.
        forget_core();
        signals::take_oneself(signal);
        // As the first process of a container one outlives signals.
        std::process::exit(128 + signal);
    }
    std::process::exit(libc::WEXITSTATUS(status))
}
