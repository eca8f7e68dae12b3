//! ext4: extents are exchanged by the kernel, which copies the data.

use super::mover::Mover;
use headstart_system::direct::{Aligned, Direct};
use headstart_system::ext4::Superblock;
use headstart_system::extents::Mapper;
use headstart_system::mounts::Mount;
use headstart_system::sys;
use rustix::fs::IFlags;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// `EXT4_FEATURE_COMPAT_HAS_JOURNAL`.
const HAS_JOURNAL: u32 = 0x4;
/// `EXT4_FEATURE_COMPAT_FAST_COMMIT`.
const FAST_COMMIT: u32 = 0x400;
/// Why the kernel makes a full commit instead of a fast one, as it is listed by one that knows that a fast
/// commit cannot tell moves (690558921d9f, January 2026). By that list also kernels are known that the change
/// was brought back to.
const FAST_COMMIT_KNOWS: &str = "\"Move extents\"";
/// `EXT4_FEATURE_RO_COMPAT_BIGALLOC`: the kernel refuses.
const BIGALLOC: u32 = 0x200;

/// The first release of each series in which a move that fails half-way frees no block twice
/// (CVE-2024-26704).
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

/// Flags of a file that stays where it is, and why.
const STAY: [(u32, &str); 6] = [
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

/// Bytes that are recovered at once.
const RECOVER: u64 = 1 << 20;

/// Moves by `EXT4_IOC_MOVE_EXT`.
pub(super) struct Ext4 {
    block: u64,
    node: PathBuf,
}

impl Ext4 {
    /// The one on this device node, mounted; `Err` says why nothing can be moved there.
    pub(super) fn open(node: &Path, mount: &Mount) -> Result<Ext4, String> {
        kernel_is_safe()?;
        let device = File::open(node).map_err(|error| format!("cannot read {}: {error}", node.display()))?;
        let superblock = Superblock::read(&device)
            .map_err(|error| format!("cannot read {}: {error}", node.display()))?
            .ok_or_else(|| format!("there is no ext4 on {}", node.display()))?;
        if superblock.features[2] & BIGALLOC != 0 {
            return Err("its file system has the feature bigalloc".to_owned());
        }
        if superblock.features[0] & FAST_COMMIT != 0
            && !read_proc(mount, "fc_info").contains(FAST_COMMIT_KNOWS)
        {
            return Err(
                "its file system has the feature fast_commit, and this kernel forgets moves in a fast commit"
                    .to_owned(),
            );
        }
        let options = read_proc(mount, "options");
        let is_mounted_with = |wanted: &str| options.lines().any(|option| option == wanted);
        // The journal is what has a file's new places known no sooner than its data is there.
        if superblock.features[0] & HAS_JOURNAL == 0 || is_mounted_with("norecovery") {
            return Err(
                "its file system keeps no journal: a power cut could leave foreign contents in what is moved"
                    .to_owned(),
            );
        }
        if is_mounted_with("data=journal") {
            return Err("its file system is mounted with data=journal".to_owned());
        }
        if superblock.features[1] & EXTENTS_FEATURE == 0 {
            return Err("its file system lists blocks in the manner of ext3, without extents".to_owned());
        }
        if superblock.block_size > rustix::param::page_size() as u64 {
            return Err("its file system has blocks larger than a page".to_owned());
        }
        Ok(Ext4 {
            block: superblock.block_size,
            node: node.to_owned(),
        })
    }
}

impl Mover for Ext4 {
    fn block(&self) -> u64 {
        self.block
    }

    fn why_immovable(&self, file: &File) -> io::Result<Option<&'static str>> {
        let flags = rustix::fs::ioctl_getflags(file)?.bits();
        if let Some((_, why)) = STAY.iter().find(|(bit, _)| flags & bit != 0) {
            return Ok(Some(why));
        }
        Ok((flags & EXTENTS == 0).then_some("its blocks are listed in the manner of ext3"))
    }

    fn move_extent(
        &self,
        file: &File,
        start: u64,
        donor: BorrowedFd<'_>,
        to: u64,
        length: u64,
    ) -> io::Result<()> {
        let blocks = length.div_ceil(self.block);
        let moved = sys::ext4_move_extent(file.as_fd(), start / self.block, donor, to / self.block, blocks)?;
        if moved != blocks {
            return Err(io::Error::other(format!("{moved} of {blocks} blocks were moved")));
        }
        Ok(())
    }

    fn settle(&self, root: BorrowedFd<'_>) -> io::Result<()> {
        match sys::ext4_checkpoint(root) {
            // Before Linux 5.14.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOTTY.raw_os_error()) => Ok(()),
            settled => settled,
        }
    }

    /// What the donor is given counts as never written: it reads as zeros. So the blocks are read from the
    /// device and written again where they are, which a device takes that has no room for others.
    fn recover(&self, donor: &File, start: u64, length: u64) -> io::Result<()> {
        let device = Direct::open(&self.node)?;
        let end = start + length;
        for extent in Mapper::new().allocated(donor.as_fd())? {
            let mut from = start.max(extent.logical);
            let to = end.min(extent.logical + extent.length);
            while from < to {
                let part = (to - from).min(RECOVER);
                let mut buffer = Aligned::new(part as usize);
                let at = extent.physical + (from - extent.logical);
                // The kernel tells the next reader what it could not write to the device, once, and reads
                // nothing for it.
                let read = device.read(at, &mut buffer);
                let read = read.or_else(|_| device.read(at, &mut buffer))?;
                if (read as u64) < part {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                donor.write_all_at(buffer.bytes(), from)?;
                from += part;
            }
        }
        Ok(())
    }
}

/// What the kernel tells of a mounted ext4 in a file of `/proc/fs/ext4`; nothing where it tells nothing.
fn read_proc(mount: &Mount, file: &str) -> String {
    let device = std::fs::read_link(format!("/sys/dev/block/{}:{}", mount.major, mount.minor));
    let name = device.as_deref().ok().and_then(Path::file_name);
    let read = |name| std::fs::read_to_string(Path::new("/proc/fs/ext4").join(name).join(file));
    name.and_then(|name| read(name).ok()).unwrap_or_default()
}

/// Whether this kernel moves extents safely; if not, why.
fn kernel_is_safe() -> Result<(), String> {
    let name = rustix::system::uname();
    let (release, version) = (name.release().to_string_lossy(), name.version().to_string_lossy());
    // Debian's releases do not say which stable release they are made from; their version does: "#1 SMP
    // Debian 6.1.76-1 (…)".
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
    let series = MENDED
        .iter()
        .find(|mended| (mended.0, mended.1) == (major, minor));
    Some(series.is_some_and(|mended| patch >= mended.2))
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
