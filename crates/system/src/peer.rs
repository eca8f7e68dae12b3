//! Who is at the other end of a Unix socket, and the socket that systemd hands over.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;

/// A peer's credentials when it connected: the kernel's word (unix(7), SO_PEERCRED).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its process in this PID namespace; 0 if it is in none that can be seen from here.
    pub pid: i32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

/// `SO_PEERPIDFD`, asm-generic/socket.h (6.5).
const SO_PEERPIDFD: libc::c_int = 77;

/// Whose socket it is that this one is connected to.
pub fn credentials(socket: BorrowedFd<'_>) -> io::Result<Credentials> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    option(socket, libc::SO_PEERCRED, &mut credentials)?;
    Ok(Credentials {
        pid: credentials.pid,
        uid: credentials.uid,
        gid: credentials.gid,
    })
}

/// The process itself, also when its number belongs to another by now; `None` before Linux 6.5, or if it has
/// ended.
pub fn pidfd(socket: BorrowedFd<'_>) -> Option<OwnedFd> {
    let mut fd: libc::c_int = -1;
    option(socket, SO_PEERPIDFD, &mut fd).ok()?;
    // SAFETY: the kernel has just made this descriptor for the caller, and nobody else knows of it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads an option of a socket that is a plain structure.
fn option<T>(socket: BorrowedFd<'_>, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0);
    let place = std::ptr::from_mut(value).cast();
    // SAFETY: the kernel writes at most `length` bytes there, which is the size of what `value` borrows; T is
    // `ucred` or an int, of which any bytes are a value.
    let failed = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, place, &mut length) };
    match failed {
        0 if length as usize == size_of::<T>() => Ok(()),
        0 => Err(io::ErrorKind::InvalidData.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The first descriptor that systemd hands over (sd_listen_fds(3), SD_LISTEN_FDS_START).
const FIRST: i32 = 3;

/// The listening Unix socket that systemd handed over at this process's start; `None` if it handed over none.
/// To be called once, before other descriptors are opened.
pub fn inherited_listener() -> io::Result<Option<UnixListener>> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) || number("LISTEN_FDS").is_none_or(|count| count == 0)
    {
        return Ok(None);
    }
    // SAFETY: systemd has opened it for this process, which the variable LISTEN_PID names; nothing else here
    // uses it.
    let fd = unsafe { OwnedFd::from_raw_fd(FIRST) };
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
    let mut listens: libc::c_int = 0;
    let mut domain: libc::c_int = 0;
    option(fd.as_fd(), libc::SO_ACCEPTCONN, &mut listens)?;
    option(fd.as_fd(), libc::SO_DOMAIN, &mut domain)?;
    if (listens, domain) != (1, libc::AF_UNIX) {
        let why =
            "what systemd handed over is no listening Unix socket: see ListenStream= of headstartd.socket";
        return Err(io::Error::other(why));
    }
    Ok(Some(UnixListener::from(fd)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_peer_is_known_by_the_kernels_word() {
        let (here, _there) = UnixStream::pair().unwrap();
        let peer = credentials(here.as_fd()).unwrap();
        assert_eq!(peer.pid, std::process::id() as i32);
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.gid, rustix::process::getegid().as_raw());
        if let Some(fd) = pidfd(here.as_fd()) {
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap();
            let own = format!("Pid:\t{}\n", std::process::id());
            assert!(info.contains(&own), "{info}");
        }
        let pipe = rustix::pipe::pipe().unwrap();
        assert!(credentials(pipe.0.as_fd()).is_err());
    }
}
