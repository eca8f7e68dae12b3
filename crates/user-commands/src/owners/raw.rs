//! Metadata as it is on the device, past the page cache: XFS and btrfs keep theirs elsewhere, and what the
//! block device has in memory may be older than what they wrote.

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, pread};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// What reads past the page cache is aligned to: no device has larger sectors than a page.
const ALIGNMENT: usize = 4096;
/// Bytes of a read at most.
pub const MOST: usize = 256 << 10;

/// A device that is read past the page cache.
pub struct Raw {
    device: OwnedFd,
    buffer: Vec<u8>,
}

impl Raw {
    /// Opens a block device.
    pub fn open(node: &Path) -> io::Result<Raw> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let device = match rustix::fs::open(node, flags | OFlags::DIRECT, Mode::empty()) {
            // It has no such way.
            Err(Errno::INVAL) => rustix::fs::open(node, flags, Mode::empty()),
            other => other,
        }?;
        Ok(Raw {
            device,
            buffer: vec![0; MOST + 2 * ALIGNMENT],
        })
    }

    /// The bytes of a range, at most [`MOST`]; fewer at the device's end.
    pub fn read(&mut self, start: u64, length: usize) -> io::Result<&[u8]> {
        let first = start / ALIGNMENT as u64 * ALIGNMENT as u64;
        let skip = (start - first) as usize;
        let whole = (skip + length.min(MOST)).next_multiple_of(ALIGNMENT);
        let at = self.buffer.as_ptr().align_offset(ALIGNMENT);
        let room = self
            .buffer
            .get_mut(at..at.saturating_add(whole))
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let read = pread(&self.device, &mut *room, first)?;
        let end = read.min(skip + length.min(MOST));
        Ok(room.get(skip..end).unwrap_or_default())
    }
}
