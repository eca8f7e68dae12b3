//! Which inode a path leads to, and which path an inode has, by file handle: handles hold inode number and
//! generation, so that a file that took over a removed one's number is not mistaken for it.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Handle types as in the kernel's `include/linux/exportfs.h`.
const INO32_GEN: i32 = 1;
const INO32_GEN_PARENT: i32 = 2;
const BTRFS: i32 = 0x4d;
const BTRFS_PARENT: i32 = 0x4e;
const BTRFS_PARENT_ROOT: i32 = 0x4f;
/// `FILEID_INO64_GEN` of `fs/xfs/xfs_export.h`: XFS where inode numbers do not fit 32 bits.
const XFS_INO64_GEN: i32 = 0x81;
const XFS_INO64_GEN_PARENT: i32 = 0x82;

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub inode: u64,
    /// `None` where the file system's handles do not tell.
    pub generation: Option<u32>,
    /// The mount it lies in, if told.
    pub mount: Option<u32>,
}

/// `struct file_handle` with the most bytes the kernel ever writes (`MAX_HANDLE_SZ`).
#[repr(C, align(8))]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

impl Handle {
    fn u32_at(&self, offset: usize) -> u32 {
        u32::from_ne_bytes([0, 1, 2, 3].map(|i| self.data.get(offset + i).copied().unwrap_or(0)))
    }

    fn u64_at(&self, offset: usize) -> u64 {
        u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| self.data.get(offset + i).copied().unwrap_or(0)))
    }

    /// Inode number and generation. Others than these file systems use the same types for other contents (tmpfs and
    /// FUSE do).
    fn decode(&self, fstype: &str) -> Option<(u64, u32)> {
        match (fstype, self.kind) {
            ("ext2" | "ext3" | "ext4" | "f2fs" | "xfs", INO32_GEN | INO32_GEN_PARENT) => {
                Some((self.u32_at(0).into(), self.u32_at(4)))
            }
            ("xfs", XFS_INO64_GEN | XFS_INO64_GEN_PARENT) => Some((self.u64_at(0), self.u32_at(8))),
            // objectid, root_objectid, generation: the inode's i_generation is the low half.
            ("btrfs", BTRFS | BTRFS_PARENT | BTRFS_PARENT_ROOT) => Some((self.u64_at(0), self.u32_at(16))),
            _ => None,
        }
    }
}

/// What `path` itself (not what a symbolic link points to) is. On another file system than one of this type the
/// generation may be wrong; the mount tells.
pub(crate) fn identify(path: &Path, fstype: &str) -> io::Result<Identity> {
    let c_path = CString::new(path.as_os_str().to_owned().into_vec())?;
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        data: [0; 128],
    };
    let mut mount = 0;
    // SAFETY: the path ends in NUL, `handle` has the layout of struct file_handle and as much room as its first
    // field says, `mount` is an int; all outlive the call.
    let result = unsafe {
        libc::name_to_handle_at(
            libc::AT_FDCWD,
            c_path.as_ptr(),
            (&raw mut handle).cast::<libc::file_handle>(),
            &mut mount,
            0,
        )
    };
    let mount = if result == 0 {
        u32::try_from(mount).ok()
    } else {
        None
    };
    if let (Some(_), Some((inode, generation))) = (mount, handle.decode(fstype)) {
        return Ok(Identity {
            inode,
            generation: Some(generation),
            mount,
        });
    }
    // No handles, or of another kind.
    let metadata = std::fs::symlink_metadata(path)?;
    Ok(Identity {
        inode: metadata.ino(),
        generation: None,
        mount,
    })
}

/// The present path of an inode by its number and generation, as long as the inode lives; `mount` is a descriptor
/// of anything on the mount that the path shall lead through. `None` where the file system (`fstype`) has no handles
/// that can be made up, the inode is gone or unlinked, or CAP_DAC_READ_SEARCH is missing.
pub(crate) fn path_of(mount: BorrowedFd<'_>, fstype: &str, inode: u64, generation: u32) -> Option<Vec<u8>> {
    let mut handle = Handle {
        bytes: 8,
        kind: INO32_GEN,
        data: [0; 128],
    };
    match (fstype, u32::try_from(inode)) {
        ("ext2" | "ext3" | "ext4" | "f2fs" | "xfs", Ok(short)) => {
            handle.data[..4].copy_from_slice(&short.to_ne_bytes());
            handle.data[4..8].copy_from_slice(&generation.to_ne_bytes());
        }
        ("xfs", Err(_)) => {
            handle.bytes = 12;
            handle.kind = XFS_INO64_GEN;
            handle.data[..8].copy_from_slice(&inode.to_ne_bytes());
            handle.data[8..12].copy_from_slice(&generation.to_ne_bytes());
        }
        _ => return None,
    }
    // SAFETY: `handle` has the layout of struct file_handle and holds as many bytes as its first field says; the
    // kernel only reads it.
    let fd = unsafe {
        libc::open_by_handle_at(
            mount.as_raw_fd(),
            (&raw mut handle).cast::<libc::file_handle>(),
            libc::O_PATH | libc::O_CLOEXEC,
        )
    };
    if fd < 0 {
        return None;
    }
    // SAFETY: the kernel just gave this descriptor to us alone.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
    // An unlinked file is shown with " (deleted)" behind its name, a disconnected one with part of its path: only
    // what leads back to the inode is a path.
    (identify(&path, fstype).ok()?.inode == inode).then(|| path.into_os_string().into_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_path_and_its_inode_lead_to_one_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let identity = identify(&path, "ext4").unwrap();
        assert_eq!(identity.inode, std::fs::metadata(&path).unwrap().ino());
        // Only with the privilege, and on a file system with handles, the way back is open.
        let renamed = dir.path().join("renamed");
        std::fs::rename(&path, &renamed).unwrap();
        let mount = std::fs::File::open(dir.path()).unwrap();
        if let Some(found) = path_of(
            mount.as_fd(),
            "ext4",
            identity.inode,
            identity.generation.unwrap_or(0),
        ) {
            assert_eq!(found, renamed.as_os_str().as_encoded_bytes());
        }
        assert!(identify(&path, "ext4").is_err());
    }

    #[test]
    fn a_symbolic_link_is_itself() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        assert_eq!(
            identify(&link, "ext4").unwrap().inode,
            std::fs::symlink_metadata(&link).unwrap().ino()
        );
    }
}
