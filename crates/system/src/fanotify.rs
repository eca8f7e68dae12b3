//! What is common to all that the kernel tells by fanotify(7): a group, its marks, its events.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A group: a queue of events, and what they are about.
pub(crate) struct Group(OwnedFd);

/// Something that was told.
pub(crate) struct Event {
    /// The process; 0 if that is in no pid namespace that can be seen from here.
    pub(crate) pid: u32,
    /// The file; `None` where it could not be opened, or where more came than are kept, and some were not
    /// told of.
    pub(crate) file: Option<OwnedFd>,
}

impl Group {
    /// Of this class. Reading the group does not wait for an event. Reading an event opens its file. Needs
    /// CAP_SYS_ADMIN.
    pub(crate) fn new(class: libc::c_uint) -> io::Result<Group> {
        const OPENED: libc::c_int = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC;
        let how = class | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK;
        // SAFETY: takes two numbers.
        let group = unsafe { libc::fanotify_init(how, OPENED as libc::c_uint) };
        if group < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, and nobody else knows of it.
        Ok(Group(unsafe { OwnedFd::from_raw_fd(group) }))
    }

    /// Adds or removes a mark on this file, or on what it is on; with `None` on nothing, for what needs no
    /// file.
    pub(crate) fn mark(&self, how: libc::c_uint, mask: u64, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let file = file.map_or(libc::AT_FDCWD, |file| file.as_raw_fd());
        // SAFETY: numbers, and no path: the descriptor itself is meant.
        let marked = unsafe { libc::fanotify_mark(self.0.as_raw_fd(), how, mask, file, std::ptr::null()) };
        match marked {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The next event; `None` if there is none now.
    pub(crate) fn next(&self) -> io::Result<Option<Event>> {
        loop {
            let mut event = libc::fanotify_event_metadata {
                event_len: 0,
                vers: 0,
                reserved: 0,
                metadata_len: 0,
                mask: 0,
                fd: libc::FAN_NOFD,
                pid: 0,
            };
            let room = size_of_val(&event);
            // SAFETY: the kernel writes one event of this length, or nothing.
            let got = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut event).cast(), room) };
            if got < 0 {
                let error = io::Error::last_os_error();
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(None),
                    io::ErrorKind::Interrupted => continue,
                    _ => Err(error),
                };
            }
            if got as usize != room || event.vers != libc::FANOTIFY_METADATA_VERSION {
                return Err(io::Error::other("fanotify tells of events in another way"));
            }
            // SAFETY: the kernel has just made this descriptor, and nobody else knows of it.
            let file = (event.fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(event.fd) });
            return Ok(Some(Event {
                pid: u32::try_from(event.pid).unwrap_or(0),
                file,
            }));
        }
    }
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
