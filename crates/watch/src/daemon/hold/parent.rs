//! What begins the guard, and begins it anew when it was killed: by its own switch, because it waited for a file that somebody has leased, or by anybody who may.

use super::guard;
use super::word::{Word, say};
use headstart_system::launch::in_child;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// It is begun anew so often at most, and after this time: each time somebody may have waited for two seconds.
const AGAIN: u64 = 8;
const PAUSE: Duration = Duration::from_secs(10);

/// Serves until the daemon is gone, or nobody is held any more; gives the status to end with.
pub(super) fn serve(daemon: UnixStream) -> i32 {
    for turn in 0..=AGAIN {
        let Ok(guard) = daemon.try_clone() else { return 1 };
        match in_child(|| guard::serve(guard, turn << 32)) {
            Ok(None) => {}
            Ok(Some(status)) => return status,
            Err(_) => return 1,
        }
        if turn == AGAIN || has_ended_within(&daemon, PAUSE) || say(&daemon, Word::Anew, None).is_err() {
            return 1;
        }
    }
    1
}

/// Whether the daemon ends within this time.
fn has_ended_within(daemon: &UnixStream, time: Duration) -> bool {
    let mut end = [PollFd::from_borrowed_fd(daemon.as_fd(), PollFlags::empty())];
    let time = Timespec::try_from(time).unwrap_or_default();
    // Nothing but its end is waited for: what it says meanwhile is for the next guard.
    poll(&mut end, Some(&time)) != Ok(0)
}
