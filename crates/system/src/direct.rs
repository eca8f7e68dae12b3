//! Reads of a block device past the page cache (`O_DIRECT`).

use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// What places, lengths and buffers are multiples of: no device of this kernel has larger blocks.
pub const BLOCK: u64 = 4096;

/// A buffer at a multiple of [`BLOCK`], as direct reads want it.
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    /// Of so many bytes.
    pub fn new(length: usize) -> Aligned {
        let bytes = vec![0; length + BLOCK as usize];
        let start = bytes.as_ptr().align_offset(BLOCK as usize);
        Aligned { bytes, start, length }
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}

/// A node opened for reads past the page cache.
pub struct Direct {
    fd: OwnedFd,
}

impl Direct {
    /// Opens a node; no last symlink is followed.
    pub fn open(node: &Path) -> io::Result<Direct> {
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(node, flags | OFlags::NOFOLLOW | OFlags::NOCTTY, Mode::empty())?;
        Ok(Direct { fd })
    }

    /// Its descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Reads at a multiple of [`BLOCK`]; the bytes read.
    pub fn read(&self, offset: u64, buffer: &mut Aligned) -> io::Result<usize> {
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(&self.fd, buffer.bytes(), offset));
        Ok(read?)
    }
}
