//! Which file systems are local, on a device of this machine, and which are remote: a server or a program
//! answers, and may never.
//!
//! No process of headstart's touches a remote file system but those that exist for that alone
//! ([`may_wait_for_servers`]): everywhere else it counts as [`Kind::Other`].

use std::sync::atomic::{AtomicBool, Ordering};

/// What reading from a file system means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads a device of this machine.
    Local,
    /// Holds everything in memory: harmless to look at, nothing to prefetch.
    Memory,
    /// A server, a user-space program or the kernel answers: never touched.
    Other,
}

const LOCAL: &[&str] = &[
    "ext4", "ext3", "ext2", "xfs", "btrfs", "f2fs", "squashfs", "erofs", "overlay", "iso9660", "udf", "vfat",
    "msdos", "exfat", "ntfs3", "bcachefs", "jfs", "nilfs2", "reiserfs", "hfsplus", "hfs", "cramfs", "romfs",
    "ubifs",
];

/// File systems that a server answers for, by type. Their pages are in the page cache, and what is learned of
/// them is read ahead by a process that may wait.
const REMOTE: &[&str] = &[
    "nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "afs", "lustre", "beegfs", "orangefs",
];

/// FUSE file systems that hold no files: what is read there is made up at each read.
const NEVER: &[&str] = &["fuse.lxcfs", "fuse.portal"];

const MEMORY: &[&str] = &["tmpfs", "devtmpfs", "ramfs", "rootfs"];

/// What reading from a file system of that type means; unknown types are [`Kind::Other`].
pub fn kind_of(fstype: &str) -> Kind {
    if LOCAL.contains(&fstype) {
        Kind::Local
    } else if MEMORY.contains(&fstype) {
        Kind::Memory
    } else {
        Kind::Other
    }
}

/// Whether a file has the same inode number whenever it is looked at. vfat and exfat give it the next free
/// one each time it comes into memory (iunique() in their fat_build_inode and exfat_build_inode), also with
/// `nfs=nostale_ro`, which is about handles. The others have it from where the file's record lies on the
/// disk: ntfs3 (number of its MFT record), udf and iso9660 (its block), cramfs and romfs (its offset), hfs
/// and hfsplus (its catalogue's).
/// What a server or a program says of a number is not relied on.
pub fn inodes_last(fstype: &str) -> bool {
    !matches!(fstype, "vfat" | "msdos" | "exfat") && !REMOTE.contains(&fstype) && !is_fuse(fstype)
}

/// Whether a mounted file system is remote: by its type, or one of FUSE that root has mounted (`fuse_user`,
/// option `user_id`). FUSE of another user's is not even that: it is never touched.
pub(super) fn is_remote(fstype: &str, fuse_user: Option<u32>) -> bool {
    REMOTE.contains(&fstype) || (is_fuse(fstype) && fuse_user == Some(0) && !NEVER.contains(&fstype))
}

/// Whether a program of this machine answers.
fn is_fuse(fstype: &str) -> bool {
    matches!(fstype, "fuse" | "fuseblk") || fstype.starts_with("fuse.")
}

/// The user whose FUSE mount it is, by the options of its super block.
pub(super) fn fuse_user(fstype: &str, options: &[u8]) -> Option<u32> {
    let mut options = options.split(|byte| *byte == b',').filter(|_| is_fuse(fstype));
    let user = options.find_map(|option| option.strip_prefix(b"user_id="))?;
    std::str::from_utf8(user).ok()?.parse().ok()
}

/// Whether this process may touch remote file systems.
static MAY_WAIT: AtomicBool = AtomicBool::new(false);

/// From now on this process may touch remote file systems, and wait for them for ever: they count as local
/// to it. Only for a process that nobody waits for, before it looks at any mount.
pub fn may_wait_for_servers() {
    MAY_WAIT.store(true, Ordering::Relaxed);
}

/// Whether it may.
pub fn waits_for_servers() -> bool {
    MAY_WAIT.load(Ordering::Relaxed)
}

/// Whether a file system type is local. FUSE is not, `fuseblk` included: a program answers, and may never.
pub fn is_local(fstype: &str) -> bool {
    kind_of(fstype) == Kind::Local
}
