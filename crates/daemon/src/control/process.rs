//! The process that an operation is of: another one of the same user, or the caller itself.

use crate::service::Peer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;

/// A process of the peer's user by its number, held by a descriptor where the kernel has them, so that the
/// number cannot become another's; `None` if there is none, or it is somebody else's. root has every process.
pub fn open(peer: &Peer, pid: u64) -> Option<Peer> {
    let pid = i32::try_from(pid).ok()?;
    let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    // The owner is the process's effective user, or root where it has more rights than its user (proc(5)).
    let owner = || Some(std::fs::symlink_metadata(format!("/proc/{pid}")).ok()?.uid());
    let uid = owner().filter(|uid| *uid == peer.uid || peer.is_root())?;
    // Had it ended before its owner was looked at, another may have been looked at.
    let alive = !has_ended(&pidfd);
    alive.then_some(Peer {
        uid,
        gid: peer.gid,
        pid,
        pidfd: Some(pidfd),
    })
}

/// A process that has ended can be read from (pidfd_open(2)).
pub(crate) fn has_ended(pidfd: &OwnedFd) -> bool {
    poll(
        &mut [PollFd::new(pidfd, PollFlags::IN)],
        Some(&Timespec::default()),
    ) != Ok(0)
}
