//! Why a path was not opened, and which error of the kernel says so.

use rustix::io::Errno;

/// Why a path was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Skip {
    /// Nothing is there, or the path is not absolute.
    #[error("missing")]
    Missing,
    /// A component is a symbolic link.
    #[error("a symbolic link")]
    Symlink,
    /// A device, socket or FIFO.
    #[error("a device, socket or FIFO")]
    Special,
    /// On a network, memory or pseudo file system.
    #[error("not on a local file system")]
    NotLocal,
    /// No permission.
    #[error("no permission")]
    Denied,
    /// It is not the file it was.
    #[error("changed: another {what}")]
    Changed {
        /// What differs: `inode`, `size`, `mtime` or `generation`.
        what: &'static str,
    },
    /// Reading it would touch its access time (it belongs to another user).
    #[error("its access time would change")]
    NoAtime,
    /// To see what it is, something would have to be read.
    #[error("not in memory")]
    Cold,
    /// The system call failed with this error number.
    #[error("error {0}")]
    Io(i32),
}

/// The reason behind an error of openat2(2).
pub(crate) fn skip(error: Errno) -> Skip {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG => Skip::Missing,
        Errno::LOOP => Skip::Symlink,
        Errno::ACCESS | Errno::PERM => Skip::Denied,
        Errno::NXIO | Errno::NODEV => Skip::Special,
        // Another mount is there by now.
        Errno::XDEV => Skip::NotLocal,
        error => Skip::Io(error.raw_os_error()),
    }
}
