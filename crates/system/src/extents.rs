//! Where a file's data lies on its device, by FIEMAP.

use crate::sys::{FIEMAP_BATCH, Fiemap, FiemapExtent};
use headstart_model::machine::Extent;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

const LAST: u32 = 0x1;
/// What has no place on the device that could be read: location unknown (0x2), not yet allocated (0x4), data
/// inside metadata (0x200, inline or in a tail), allocated but never written (0x800: reads as zeros without
/// any read).
const NOWHERE: u32 = 0x2 | 0x4 | 0x200 | UNWRITTEN;
const UNWRITTEN: u32 = 0x800;
/// Compressed or encrypted: it has another length on the device.
const ENCODED: u32 = 0x8;

/// The most extents that are listed of one file: beyond it is fragmented so badly that the order of its parts
/// no longer matters, and the list would grow without bound.
pub const MAX_EXTENTS: usize = 1 << 20;

/// A buffer for FIEMAP calls, to use for many files.
pub struct Mapper(Box<Fiemap>);

impl Default for Mapper {
    fn default() -> Self {
        Mapper::new()
    }
}

impl Mapper {
    /// A buffer.
    pub fn new() -> Mapper {
        Mapper(Fiemap::new())
    }

    /// The extents of an open file (on ext4 of a directory too) that are on the device, by logical offset;
    /// those that continue each other are joined. The last may reach beyond the file's end. Compressed data
    /// (btrfs, erofs) has its compressed place with its uncompressed length.
    ///
    /// Fails with EOPNOTSUPP or ENOTTY where the file system tells no extents (squashfs, vfat).
    pub fn extents(&mut self, fd: BorrowedFd<'_>) -> io::Result<Vec<Extent>> {
        self.without(fd, NOWHERE)
    }

    /// [`Mapper::extents`] without those that have another length on the device than in the file.
    pub fn unencoded(&mut self, fd: BorrowedFd<'_>) -> io::Result<Vec<Extent>> {
        self.without(fd, NOWHERE | ENCODED)
    }

    /// [`Mapper::extents`] with those that are allocated and were never written.
    pub fn allocated(&mut self, fd: BorrowedFd<'_>) -> io::Result<Vec<Extent>> {
        self.without(fd, NOWHERE & !UNWRITTEN)
    }

    fn without(&mut self, fd: BorrowedFd<'_>, flags: u32) -> io::Result<Vec<Extent>> {
        let mut extents = Vec::new();
        let mut start = 0;
        while extents.len() < MAX_EXTENTS {
            let batch = self.0.get(fd, start)?;
            for found in batch {
                if found.flags & flags == 0 {
                    push(&mut extents, found);
                }
            }
            let Some(last) = batch.last() else { break };
            let next = last.logical.saturating_add(last.length);
            if last.flags & LAST != 0 || batch.len() < FIEMAP_BATCH || next <= start {
                break;
            }
            start = next;
        }
        Ok(extents)
    }
}

/// [`Mapper::extents`] for one file.
pub fn extents(fd: impl AsFd) -> io::Result<Vec<Extent>> {
    Mapper::new().extents(fd.as_fd())
}

fn push(extents: &mut Vec<Extent>, extent: &FiemapExtent) {
    if extent.length == 0 {
        return;
    }
    match extents.last_mut() {
        Some(last)
            if last.logical.checked_add(last.length) == Some(extent.logical)
                && last.physical.checked_add(last.length) == Some(extent.physical) =>
        {
            last.length = last.length.saturating_add(extent.length);
        }
        _ => extents.push(Extent {
            logical: extent.logical,
            physical: extent.physical,
            length: extent.length,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(logical: u64, physical: u64, length: u64, flags: u32) -> FiemapExtent {
        FiemapExtent {
            logical,
            physical,
            length,
            flags,
            ..FiemapExtent::default()
        }
    }

    #[test]
    fn neighbours_are_joined_and_what_has_no_place_is_left_out() {
        let mut extents = Vec::new();
        for extent in [
            found(0, 4096, 4096, 0),
            found(4096, 8192, 4096, 0),
            found(8192, 0, 4096, 0x2 | 0x4),
            found(12288, 40960, 4096, 0x800),
            found(16384, 16384, 4096, LAST),
            found(20480, u64::MAX, 4096, 0),
            found(24576, 4095, 4096, 0),
        ] {
            if extent.flags & NOWHERE == 0 {
                push(&mut extents, &extent);
            }
        }
        let ends: Vec<_> = extents
            .iter()
            .map(|e| (e.logical, e.physical, e.length))
            .collect();
        assert_eq!(
            ends,
            [
                (0, 4096, 8192),
                (16384, 16384, 4096),
                (20480, u64::MAX, 4096),
                (24576, 4095, 4096)
            ]
        );
    }
}
