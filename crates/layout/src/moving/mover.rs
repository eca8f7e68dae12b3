//! What differs between kinds of file systems when data is moved.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

/// Bytes that are copied at once.
const COPY: usize = 1 << 20;

/// How one mounted file system moves data. One that cannot safely do so on this kernel has none.
pub trait Mover {
    /// Bytes of a block: what is moved begins at one, and ends at one or at the end of the file.
    fn block(&self) -> u64;

    /// Opens a pinned file for moving. `root` is the root of its mount.
    fn open(&self, _root: BorrowedFd<'_>, pin: BorrowedFd<'_>) -> io::Result<File> {
        reopen(pin, OFlags::RDWR)
    }

    /// Whether a donor's size is what was written to it, and its room lies behind its end; else its size is
    /// that of its room.
    fn keeps_size(&self) -> bool {
        false
    }

    /// Why this file stays where it is by what this kind of file system knows of it; `None` if it may be
    /// moved. What holds for all kinds is asked elsewhere.
    fn why_immovable(&self, file: &File) -> io::Result<Option<&'static str>>;

    /// Brings the data at `[start, start + length)` of `file` to where the donor has `[to, to + length)`, and
    /// gives the donor the old place; that it tells the old contents takes [`Mover::recover`]. On either side
    /// it is one extent. All is moved, or it is an error; after an error each block is in its old or its new
    /// place, whole. `file` is open for reading and writing, as is the donor, which has room there that was
    /// allocated and never written.
    fn move_extent(
        &self,
        file: &File,
        start: u64,
        donor: BorrowedFd<'_>,
        to: u64,
        length: u64,
    ) -> io::Result<()>;

    /// Has what is in the journal of the file system with this root where it belongs, as far as that can be
    /// asked for.
    fn settle(&self, _root: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Has the donor tell the old contents that it was given at `[start, start + length)`, where it does not
    /// by itself.
    fn recover(&self, _donor: &File, _start: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }
}

/// A pinned file, opened.
pub(super) fn reopen(pin: BorrowedFd<'_>, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NONBLOCK | OFlags::NOATIME | OFlags::CLOEXEC | OFlags::NOCTTY;
    let path = format!("/proc/self/fd/{}", pin.as_raw_fd());
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Copies `length` bytes.
pub(super) fn copy(from: &File, start: u64, donor: &File, to: u64, length: u64) -> io::Result<()> {
    let mut buffer = vec![0; COPY.min(length as usize)];
    let mut done = 0;
    while done < length {
        let part = (length - done).min(buffer.len() as u64) as usize;
        from.read_exact_at(&mut buffer[..part], start + done)?;
        donor.write_all_at(&buffer[..part], to + done)?;
        done += part as u64;
    }
    Ok(())
}
