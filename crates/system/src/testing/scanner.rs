//! An on-access scanner: whoever opens a file waits until it was looked at.

use crate::fanotify::Group;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a scanner looks whether it is to end.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// A scanner of all files of a mount; gone when dropped.
#[derive(Debug)]
pub struct Scanner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    scans: AtomicU64,
    ends: AtomicBool,
}

impl Scanner {
    /// Has each open of a file of the mount at this path wait for `takes`.
    pub fn new(mount: &Path, takes: Duration) -> io::Result<Scanner> {
        let group = Group::new(libc::FAN_CLASS_CONTENT | libc::FAN_UNLIMITED_QUEUE)?;
        let how = libc::FAN_MARK_ADD | libc::FAN_MARK_MOUNT;
        let root = File::open(mount)?;
        group.mark(how, libc::FAN_OPEN_PERM, Some(root.as_fd()))?;
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || scan(&group, takes, &of_thread));
        Ok(Scanner {
            shared,
            thread: Some(thread),
        })
    }

    /// How many opens were scanned since it was last asked.
    pub fn scans(&self) -> u64 {
        self.shared.scans.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers until it is to end; whoever waits then goes on, for the group is closed.
fn scan(group: &Group, takes: Duration, shared: &Shared) {
    while !shared.ends.load(Ordering::Relaxed) {
        match group.next() {
            Ok(Some(event)) => {
                let Some(file) = event.file else { continue };
                std::thread::sleep(takes);
                shared.scans.fetch_add(1, Ordering::Relaxed);
                allow(group, &file);
            }
            _ => {
                let _ = poll(&mut [PollFd::new(group, PollFlags::IN)], Some(&TICK));
            }
        }
    }
}

fn allow(group: &Group, file: &OwnedFd) {
    let response = libc::fanotify_response {
        fd: file.as_raw_fd(),
        response: libc::FAN_ALLOW,
    };
    // SAFETY: reads the structure. It fails only for what does not wait any more, as who was killed.
    unsafe {
        libc::write(
            group.as_fd().as_raw_fd(),
            (&raw const response).cast(),
            size_of_val(&response),
        )
    };
}
