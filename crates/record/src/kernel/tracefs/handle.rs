//! Opening an inode by its number alone, with a file handle made up: possible where the file system takes any
//! generation (0 on ext2/3/4, f2fs, erofs, squashfs, btrfs, and vfat and exfat while it is in memory) or
//! tells it for a number (XFS's bulkstat).

use headstart_system::handle::Handle;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// `XFS_IOC_BULKSTAT` of `fs/xfs/libxfs/xfs_fs.h`: `_IOWR`-less by history,
/// `_IOR('X', 127, struct xfs_bulkstat_req)`.
const XFS_IOC_BULKSTAT: libc::c_ulong = 0x8040_587f;
/// `BTRFS_IOC_INO_LOOKUP` of `include/uapi/linux/btrfs.h`: `_IOWR(0x94, 18, 4096 bytes)`.
const BTRFS_IOC_INO_LOOKUP: libc::c_ulong = 0xd000_9412;
/// `BTRFS_FIRST_FREE_OBJECTID`: the root directory of every subvolume.
const BTRFS_ROOT_DIRECTORY: u64 = 256;

/// Opens (O_PATH) the inode `inode` of the file system that `mount`, a directory on it, is on.
pub(super) fn open(mount: BorrowedFd<'_>, fstype: &str, inode: u64) -> io::Result<OwnedFd> {
    let handle = match fstype {
        "xfs" => Handle::of_inode(fstype, inode, xfs_generation(mount, inode)?),
        "btrfs" => Some(Handle::of_btrfs(btrfs_subvolume(mount)?, inode)),
        _ => Handle::of_inode(fstype, inode, 0),
    };
    // From 6.18 on, and where that was taken over, EROFS knows only those of the second kind.
    if fstype == "erofs" {
        let file = handle.map(|handle| handle.open(mount));
        if let Some(Ok(file)) = file {
            return Ok(file);
        }
        return Handle::of_erofs(inode).open(mount);
    }
    handle.ok_or(io::ErrorKind::Unsupported)?.open(mount)
}

/// `struct xfs_bulkstat_req` with room for one inode.
#[repr(C)]
struct BulkStat {
    inode: u64,
    flags: u32,
    room: u32,
    found: u32,
    group: u32,
    reserved: [u64; 5],
    stat: [u64; 24],
}

/// The generation of an inode on XFS.
fn xfs_generation(mount: BorrowedFd<'_>, inode: u64) -> io::Result<u32> {
    let mut request = BulkStat {
        inode,
        flags: 0,
        room: 1,
        found: 0,
        group: 0,
        reserved: [0; 5],
        stat: [0; 24],
    };
    // SAFETY: `request` has the layout of struct xfs_bulkstat_req with room for the one struct xfs_bulkstat
    // (192 bytes) that it asks for; it outlives the call.
    let result = unsafe { libc::ioctl(mount.as_raw_fd(), XFS_IOC_BULKSTAT as _, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // The first inode at or after the number: bs_ino is the first word, bs_gen the low half of the ninth.
    if request.found != 1 || request.stat[0] != inode {
        return Err(io::ErrorKind::NotFound.into());
    }
    let bytes = request.stat[8].to_ne_bytes();
    Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// The number of the subvolume that a directory is in.
fn btrfs_subvolume(mount: BorrowedFd<'_>) -> io::Result<u64> {
    // struct btrfs_ioctl_ino_lookup_args: treeid (0 asks for the directory's own, and is filled in),
    // objectid, name.
    let mut request = [0u64; 512];
    request[1] = BTRFS_ROOT_DIRECTORY;
    // SAFETY: `request` has the 4096 bytes of struct btrfs_ioctl_ino_lookup_args and outlives the call.
    let result = unsafe { libc::ioctl(mount.as_raw_fd(), BTRFS_IOC_INO_LOOKUP as _, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(request[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bulkstat_request_is_laid_out_as_the_kernel_says() {
        assert_eq!(std::mem::offset_of!(BulkStat, stat), 64);
    }
}
