//! What forked processes that may never answer, and those that listen to them, have in common.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::Instant;

/// Has this process be killed when the one that forked it ends; false where it is not there any more.
pub fn dies_with(parent: u32) -> bool {
    let dies_with_it = set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    let is_there = getppid().is_some_and(|pid| pid.as_raw_nonzero().get() as u32 == parent);
    dies_with_it && is_there
}

/// All that is told until the stream's end, so many bytes at most. Fails with `TimedOut` where that has not
/// come by then, or there is more.
pub fn read_to_end(mut stream: &UnixStream, most: u64, until: Instant) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let mut buffer = [0; 16 << 10];
    while has_told(stream, until) {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(text),
            Ok(read) if (text.len() + read) as u64 <= most => text.extend_from_slice(&buffer[..read]),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Waits until nobody has the other end any more, or will neither read nor write there.
pub fn wait_for_hang_up(stream: &UnixStream) {
    // Told without being asked for (poll(2)).
    while poll(&mut [PollFd::new(stream, PollFlags::empty())], None) == Err(rustix::io::Errno::INTR) {}
}

/// Whether there is something to read from it, or its end, until then.
pub fn has_told(stream: &UnixStream, until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}
