//! File handles: an inode by number and generation instead of by path. Making them up needs
//! `CAP_DAC_READ_SEARCH`, and whoever opens one passes by all directories:
//! [`crate::handle_opener::HandleOpener`] does so for files a plan names, by its rules.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Handle types as in the kernel's `include/linux/exportfs.h`.
const INO32_GEN: i32 = 1;
const INO32_GEN_PARENT: i32 = 2;
const BTRFS: i32 = 0x4d;
const BTRFS_PARENT: i32 = 0x4e;
const BTRFS_PARENT_ROOT: i32 = 0x4f;
/// `FILEID_INO64_GEN`: XFS (`fs/xfs/xfs_export.h`) where inode numbers do not fit 32 bits, and newer EROFS.
const INO64_GEN: i32 = 0x81;
const INO64_GEN_PARENT: i32 = 0x82;
/// The most bytes the kernel ever writes (`MAX_HANDLE_SZ`).
const MOST: usize = 128;

/// `struct file_handle`.
#[derive(Clone, Debug)]
#[repr(C, align(8))]
pub struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; MOST],
}

impl Handle {
    fn new(kind: i32, parts: &[&[u8]]) -> Handle {
        let mut handle = Handle {
            bytes: 0,
            kind,
            data: [0; MOST],
        };
        for byte in parts.iter().copied().flatten().take(MOST) {
            handle.data[handle.bytes as usize] = *byte;
            handle.bytes += 1;
        }
        handle
    }

    /// The handle of an inode of a file system of that type. Most take generation 0 for any. `None` where
    /// inode number and generation make no handle.
    pub fn of_inode(fstype: &str, inode: u64, generation: u32) -> Option<Handle> {
        let generation = generation.to_ne_bytes();
        match (fstype, u32::try_from(inode)) {
            (
                "ext2" | "ext3" | "ext4" | "f2fs" | "xfs" | "erofs" | "squashfs" | "jfs" | "ntfs3" | "vfat"
                | "msdos" | "exfat",
                Ok(short),
            ) => Some(Handle::new(INO32_GEN, &[&short.to_ne_bytes(), &generation])),
            ("xfs", Err(_)) => Some(Handle::new(INO64_GEN, &[&inode.to_ne_bytes(), &generation])),
            _ => None,
        }
    }

    /// The handle of an inode of a btrfs subvolume, of any generation.
    pub fn of_btrfs(subvolume: u64, inode: u64) -> Handle {
        Handle::new(
            BTRFS,
            &[
                &inode.to_ne_bytes(),
                &subvolume.to_ne_bytes(),
                &0u32.to_ne_bytes(),
            ],
        )
    }

    /// The handle of an inode of EROFS, of any generation, since that encodes inode numbers of 64 bits: the
    /// higher half first.
    pub fn of_erofs(inode: u64) -> Handle {
        let (high, low) = ((inode >> 32) as u32, inode as u32);
        let parts = [high, low, 0].map(u32::to_ne_bytes);
        Handle::new(INO64_GEN, &[&parts[0], &parts[1], &parts[2]])
    }

    /// The handle of what a descriptor leads to, which may be one to look only (`O_PATH`), and the id of the
    /// mount it is on.
    pub fn from_fd(file: BorrowedFd<'_>) -> io::Result<(Handle, i32)> {
        let mut handle = Handle::new(0, &[]);
        handle.bytes = MOST as u32;
        let mut mount = 0;
        // SAFETY: `handle` has the layout of struct file_handle and as much room as its first
        // field says, `mount` is an int; all outlive the call.
        let result = unsafe {
            libc::name_to_handle_at(
                file.as_raw_fd(),
                c"".as_ptr(),
                (&raw mut handle).cast::<libc::file_handle>(),
                &mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        match result {
            0 => Ok((handle, mount)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Inode number and generation. Others than these file systems use the same types for other contents
    /// (tmpfs and FUSE do).
    pub fn decode(&self, fstype: &str) -> Option<(u64, u32)> {
        match (fstype, self.kind) {
            ("ext2" | "ext3" | "ext4" | "f2fs" | "xfs", INO32_GEN | INO32_GEN_PARENT) => {
                Some((self.u32_at(0).into(), self.u32_at(4)))
            }
            ("xfs", INO64_GEN | INO64_GEN_PARENT) => Some((self.u64_at(0), self.u32_at(8))),
            // objectid, root_objectid, generation: the inode's i_generation is the low half.
            ("btrfs", BTRFS | BTRFS_PARENT | BTRFS_PARENT_ROOT) => Some((self.u64_at(0), self.u32_at(16))),
            _ => None,
        }
    }

    fn u32_at(&self, offset: usize) -> u32 {
        u32::from_ne_bytes([0, 1, 2, 3].map(|i| self.data.get(offset + i).copied().unwrap_or(0)))
    }

    fn u64_at(&self, offset: usize) -> u64 {
        u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| self.data.get(offset + i).copied().unwrap_or(0)))
    }

    /// PathResolver (`O_PATH`) the inode on the file system of `mount`, a descriptor of anything on it that
    /// is open in earnest. ESTALE if there is none of that number and generation, EPERM without
    /// `CAP_DAC_READ_SEARCH`.
    pub fn open(&self, mount: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        // SAFETY: `self` has the layout of struct file_handle and holds as many bytes as its first field
        // says; the kernel only reads it.
        let fd = unsafe {
            libc::open_by_handle_at(
                mount.as_raw_fd(),
                (&raw const *self).cast_mut().cast::<libc::file_handle>(),
                libc::O_PATH | libc::O_CLOEXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave this descriptor to us alone.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_hold_their_parts_in_order() {
        let handle = Handle::of_btrfs(2, 1);
        assert_eq!((handle.bytes, handle.kind), (20, BTRFS));
        assert_eq!(handle.u64_at(0), 1);
        assert_eq!(handle.u64_at(8), 2);
        assert_eq!(std::mem::offset_of!(Handle, data), 8);

        let short = Handle::of_inode("ext4", 7, 9).unwrap();
        assert_eq!((short.bytes, short.decode("ext4")), (8, Some((7, 9))));
        assert_eq!(short.decode("tmpfs"), None);
        let long = Handle::of_inode("xfs", 1 << 40, 9).unwrap();
        assert_eq!((long.bytes, long.decode("xfs")), (12, Some((1 << 40, 9))));
        assert!(Handle::of_inode("ext4", 1 << 40, 9).is_none());
        assert!(Handle::of_inode("nfs", 1, 9).is_none());
    }
}
