//! Moving the data of files on a mounted ext4. The extents of a file are exchanged with those of a donor, a nameless file whose
//! room was allocated before: the kernel copies the data, a reader or writer of the file notices nothing, and a crash leaves
//! either the old place or the new one. What the donor holds in the end is free when it is closed, also by a crash.

use super::Superblock;
use crate::extents::Mapper;
use crate::files::Stat;
use crate::mounts::MountTable;
use crate::open::{self, Expect};
use crate::skip::Skip;
use crate::sys;
use headstart_model::machine::Extent;
use rustix::fs::{FallocateFlags, IFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// Features of a file system whose extents are not moved: (which word, bit, name).
const NOT_WITH: [(usize, u32, &str); 2] = [
    // Moves were not marked as what a fast commit cannot tell until January 2026.
    (0, 0x400, "fast_commit"),
    // The kernel refuses.
    (2, 0x200, "bigalloc"),
];

/// The first release of each series in which a move that fails half-way frees no block twice (CVE-2024-26704).
const MENDED: [(u32, u32, u32); 7] = [
    (4, 19, 307),
    (5, 4, 269),
    (5, 10, 210),
    (5, 15, 149),
    (6, 1, 79),
    (6, 6, 18),
    (6, 7, 6),
];
/// From this series on all have it.
const MENDED_FROM: (u32, u32) = (6, 8);

/// Flags of a file that is left where it is, and why.
const LEFT: [(u32, &str); 6] = [
    (IFlags::IMMUTABLE.bits(), "immutable"),
    (IFlags::APPEND.bits(), "append only"),
    (IFlags::JOURNALING.bits(), "its data goes through the journal"),
    (0x800, "encrypted"),
    (0x10_0000, "protected by fs-verity"),
    (0x1000_0000, "so small that it is in its inode"),
];
/// `EXT4_FEATURE_INCOMPAT_EXTENTS`.
const EXTENTS_FEATURE: u32 = 0x40;
/// `EXT4_EXTENTS_FL`: a file of an ext3 that became an ext4 may be without.
const EXTENTS: u32 = 0x8_0000;

/// Whether this kernel moves extents safely; if not, why.
pub fn kernel_is_safe() -> Result<(), String> {
    let name = rustix::system::uname();
    let (release, version) = (name.release().to_string_lossy(), name.version().to_string_lossy());
    // Debian's releases do not say which stable release they are made from; their version does: "#1 SMP Debian 6.1.76-1 (…)".
    let stable = version
        .split_once("Debian ")
        .map_or(&*release, |(_, after)| after);
    match mended(stable) {
        Some(true) => Ok(()),
        Some(false) => Err(format!(
            "Linux {release} may free blocks twice when a move fails (CVE-2024-26704): a newer kernel is needed"
        )),
        None => Err(format!(
            "{release:?} is not a version of Linux that can be judged"
        )),
    }
}

/// `None`: not a version.
fn mended(release: &str) -> Option<bool> {
    let mut numbers = release
        .split(|letter: char| !letter.is_ascii_digit())
        .map(|digits| digits.parse::<u32>().ok());
    let (major, minor) = (numbers.next()??, numbers.next()??);
    let patch = numbers.next().flatten().unwrap_or(0);
    if (major, minor) >= MENDED_FROM {
        return Some(true);
    }
    let series = MENDED.iter().find(|one| (one.0, one.1) == (major, minor));
    Some(series.is_some_and(|one| patch >= one.2))
}

/// A mounted ext4 that files are moved on.
pub struct Volume {
    root: OwnedFd,
    block: u64,
}

impl Volume {
    /// The one at a mount point, on this device node; `Err` says why nothing can be moved there.
    pub fn open(mounts: &MountTable, mount_point: &Path, node: &Path) -> Result<Volume, String> {
        let device = File::open(node).map_err(|error| format!("cannot read {}: {error}", node.display()))?;
        let superblock = Superblock::read(&device)
            .map_err(|error| format!("cannot read {}: {error}", node.display()))?
            .ok_or_else(|| format!("there is no ext4 on {}", node.display()))?;
        if let Some((_, _, name)) = NOT_WITH
            .iter()
            .find(|(word, bit, _)| superblock.features[*word] & bit != 0)
        {
            return Err(format!(
                "the file system at {} has the feature {name}",
                mount_point.display()
            ));
        }
        if superblock.features[1] & EXTENTS_FEATURE == 0 {
            return Err(format!(
                "the file system at {} lists blocks in the manner of ext3, without extents",
                mount_point.display()
            ));
        }
        if superblock.block_size > rustix::param::page_size() as u64 {
            return Err(format!(
                "the file system at {} has blocks larger than a page",
                mount_point.display()
            ));
        }
        let mount = mounts
            .lookup(mount_point.as_os_str().as_encoded_bytes())
            .ok_or("it is not mounted any more")?;
        let root = open::open_root(mounts, mount).map_err(|skip| skip.to_string())?;
        Ok(Volume {
            root,
            block: superblock.block_size,
        })
    }

    /// Bytes of a block.
    pub fn block(&self) -> u64 {
        self.block
    }

    /// Bytes that root may still fill.
    pub fn free(&self) -> io::Result<u64> {
        let found = rustix::fs::fstatvfs(&self.root)?;
        Ok(found.f_bfree.saturating_mul(found.f_frsize))
    }

    /// All bytes of it.
    pub fn size(&self) -> io::Result<u64> {
        let found = rustix::fs::fstatvfs(&self.root)?;
        Ok(found.f_blocks.saturating_mul(found.f_frsize))
    }

    /// Takes `bytes` of its free room, in as few pieces as the allocator finds.
    pub fn donor(&self, bytes: u64) -> io::Result<Donor> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.root, ".", flags, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
        let room = Mapper::new().allocated(file.as_fd())?;
        Ok(Donor { file, room })
    }
}

/// Room that was taken.
pub struct Donor {
    file: OwnedFd,
    room: Vec<Extent>,
}

impl Donor {
    /// Gives it a name at the root of its file system, so that it stays: an ordinary file that root alone may read. Fails if there
    /// is something of that name.
    pub fn keep(&self, volume: &Volume, name: &str) -> io::Result<()> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = rustix::fs::AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, own, &volume.root, name, flags)?;
        Ok(rustix::fs::fsync(&self.file)?)
    }

    /// Where it is, by offset in the donor.
    pub fn room(&self) -> &[Extent] {
        &self.room
    }
}

/// A file whose data can be moved.
pub struct Movable {
    file: File,
    /// Its facts when it was opened.
    pub stat: Stat,
}

impl Movable {
    /// Opens one, if it still is what is expected; `Err` says why it stays where it is.
    pub fn open(mounts: &MountTable, path: &Path, expect: &Expect) -> Result<Movable, String> {
        let (pin, stat) = open::pin(mounts, path).map_err(|skip| skip.to_string())?;
        // Checks what is there and that it is what is expected, on the descriptor that is opened for writing below.
        open::open_pinned(pin.as_fd(), stat, expect).map_err(|skip| skip.to_string())?;
        if stat.kind != crate::files::Type::File {
            return Err(Skip::Special.to_string());
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOATIME | OFlags::CLOEXEC | OFlags::NOCTTY;
        let again = format!("/proc/self/fd/{}", pin.as_raw_fd());
        let file = rustix::fs::open(again, flags, Mode::empty()).map_err(|error| match error {
            Errno::TXTBSY => "a program that runs".to_owned(),
            Errno::ROFS => "on a file system that is mounted read-only".to_owned(),
            Errno::PERM => "immutable".to_owned(),
            error => error.to_string(),
        })?;
        let flags = rustix::fs::ioctl_getflags(&file)
            .map_err(|error| error.to_string())?
            .bits();
        if let Some((_, why)) = LEFT.iter().find(|(bit, _)| flags & bit != 0) {
            return Err((*why).to_owned());
        }
        if flags & EXTENTS == 0 {
            return Err("its blocks are listed in the manner of ext3".to_owned());
        }
        let links = rustix::fs::fstat(&file)
            .map_err(|error| error.to_string())?
            .st_nlink;
        if links > 1 {
            return Err("it has several names".to_owned());
        }
        Ok(Movable {
            file: file.into(),
            stat,
        })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where its written data lies.
    pub fn extents(&self) -> io::Result<Vec<Extent>> {
        Mapper::new().extents(self.file.as_fd())
    }

    /// Whether its data and size are what they were when it was opened.
    pub fn is_unchanged(&self) -> io::Result<bool> {
        let now = crate::files::stat(&self.file)?;
        Ok((now.size, now.mtime_ns) == (self.stat.size, self.stat.mtime_ns))
    }

    /// Moves the data at `[start, start + length)`, which lies in one extent, to the donor's `[to, to + length)`, which does
    /// too; all are multiples of the page size, but that the last page of a file may end with its last block. One extent a
    /// call: then a move is whole or was not begun.
    pub fn move_to(
        &self,
        volume: &Volume,
        donor: &Donor,
        start: u64,
        to: u64,
        length: u64,
    ) -> io::Result<()> {
        let block = volume.block;
        let blocks = length.div_ceil(block);
        let moved = sys::ext4_move_extent(
            self.file.as_fd(),
            start / block,
            donor.file.as_fd(),
            to / block,
            blocks,
        )?;
        if moved != blocks {
            return Err(io::Error::other(format!("{moved} of {blocks} blocks were moved")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_free_blocks_twice_are_told_by_their_version() {
        let cases = [
            ("6.18.44", Some(true)),
            ("6.8.0-31-generic", Some(true)),
            ("6.7.5", Some(false)),
            ("6.7.6", Some(true)),
            ("6.1.76-1 (2024-02-01)", Some(false)),
            ("6.1.158-1", Some(true)),
            ("6.2.16", Some(false)),
            ("5.10.0", Some(false)),
            ("7.0", Some(true)),
            ("4.19", Some(false)),
            ("next-20261101", None),
            ("", None),
        ];
        for (release, safe) in cases {
            assert_eq!(mended(release), safe, "{release}");
        }
    }
}
