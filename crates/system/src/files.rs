//! Facts of one file, from statx(2) and the generation ioctl.

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// So much is read of the kernel's table of locks, bytes: some ten thousand of them.
const MOST_OF_LOCKS: u64 = 1 << 20;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Device, socket or FIFO.
    Special,
}

/// Facts of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Type,
    /// Major number of its file system (on btrfs: of its subvolume).
    pub major: u32,
    /// Minor number of its file system.
    pub minor: u32,
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// User id of its owner.
    pub owner: u32,
    /// Group id.
    pub group: u32,
    /// Device number of a device node: (major, minor).
    pub rdev: (u32, u32),
}

impl Stat {
    /// Whether a user may read it, by its owner and permissions. Who is in a group is not asked: what only a
    /// group may read, and what all but a group may, counts as closed.
    pub fn may_be_read_by(&self, user: u32) -> bool {
        self.is_open_to(user, 0o4)
    }

    /// Whether a user may look up names in it, a directory, by its owner and permissions; as
    /// [`Stat::may_be_read_by`].
    pub fn may_be_searched_by(&self, user: u32) -> bool {
        self.is_open_to(user, 0o1)
    }

    fn is_open_to(&self, user: u32, right: u32) -> bool {
        let needed = match user == self.owner {
            true => right << 6,
            false => right << 3 | right,
        };
        user == 0 || self.mode & needed == needed
    }

    /// Whether others than the owner and root may write it. Whom an access control list lets write, the bits
    /// of the group tell of (acl(5)); a symbolic link nobody writes.
    pub fn others_may_write(&self) -> bool {
        let by_group = self.mode & 0o020 != 0 && self.group != 0;
        let by_all = self.mode & 0o002 != 0;
        self.kind != Type::Symlink && (by_group || by_all)
    }
}

/// Whether an access control list (acl(5)) may say more of an open file, also one opened with O_PATH, than
/// its permissions do.
pub fn has_access_list(fd: BorrowedFd<'_>) -> bool {
    // The descriptor itself would have to be open for reading.
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    !matches!(
        rustix::fs::getxattr_query(path, c"system.posix_acl_access"),
        Ok(0) | Err(Errno::NODATA | Errno::OPNOTSUPP)
    )
}

/// Facts of an open file, also one opened with O_PATH.
pub fn stat(fd: impl AsFd) -> io::Result<Stat> {
    let flags = StatxFlags::TYPE
        | StatxFlags::MODE
        | StatxFlags::INO
        | StatxFlags::SIZE
        | StatxFlags::MTIME
        | StatxFlags::UID
        | StatxFlags::GID;
    let facts = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT, flags)?;
    Ok(Stat::from(facts))
}

impl From<Statx> for Stat {
    fn from(stat: Statx) -> Stat {
        let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile => Type::File,
            FileType::Directory => Type::Directory,
            FileType::Symlink => Type::Symlink,
            _ => Type::Special,
        };
        Stat {
            kind,
            major: stat.stx_dev_major,
            minor: stat.stx_dev_minor,
            inode: stat.stx_ino,
            size: stat.stx_size,
            mtime_ns: nanoseconds(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            mode: stat.stx_mode.into(),
            owner: stat.stx_uid,
            group: stat.stx_gid,
            rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
        }
    }
}

/// The inode generation of an open file, 0 where the file system tells none.
pub fn generation(fd: BorrowedFd<'_>) -> u32 {
    crate::sys::generation(fd).unwrap_or(0)
}

/// Whether somebody has a lock on the file at `path`, as the kernel's table tells (proc_locks(5)): nobody is
/// kept from taking one by asking. The file system has to be one whose number is the same there and by
/// stat(2), such as a tmpfs. False where nothing is there.
pub fn is_locked(path: &Path) -> io::Result<bool> {
    let file = match std::fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let name = format!("{major:02x}:{minor:02x}:{}", file.ino());
    let mut locks = String::new();
    File::open("/proc/locks")?
        .take(MOST_OF_LOCKS)
        .read_to_string(&mut locks)?;
    // Who waits for one is told with an arrow before the kind of lock.
    Ok(locks.split_whitespace().any(|word| word == name))
}

/// Seconds and nanoseconds as nanoseconds since 1970, saturating (an i64 reaches from 1677 to 2262).
pub fn nanoseconds(seconds: i64, nanoseconds: u32) -> i64 {
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(i64::from(nanoseconds))
}

/// The inverse of [`nanoseconds`]: seconds, rounded down, and the rest.
pub fn timespec(nanoseconds: i64) -> (i64, u32) {
    (
        nanoseconds.div_euclid(1_000_000_000),
        nanoseconds.rem_euclid(1_000_000_000) as u32,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_lock_is_seen_without_taking_it() {
        // On a file system whose number is the same by stat(2) and in the table.
        let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        assert!(!is_locked(file.path()).unwrap());
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(is_locked(file.path()).unwrap());
        rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock).unwrap();
        assert!(!is_locked(file.path()).unwrap());
        let path = file.path().to_owned();
        drop(file);
        assert!(!is_locked(&path).unwrap(), "nothing is there");
    }

    #[test]
    fn facts_are_those_of_stat() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let (ours, theirs) = (stat(&file).unwrap(), file.metadata().unwrap());
        assert_eq!(
            (ours.inode, ours.size, ours.mode),
            (theirs.ino(), theirs.len(), theirs.mode())
        );
        assert_eq!(rustix::fs::makedev(ours.major, ours.minor), theirs.dev());
        assert_eq!(
            timespec(ours.mtime_ns),
            (theirs.mtime(), theirs.mtime_nsec() as u32)
        );
        assert_eq!(ours.kind, Type::File);
    }

    #[test]
    fn who_may_write_is_told_by_group_and_mode() {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        let own = stat(file.as_file()).unwrap();
        assert_eq!(own.owner, file.as_file().metadata().unwrap().uid());
        let with = |mode, group| Stat { mode, group, ..own }.others_may_write();
        assert!(!with(0o100_755, 50) && !with(0o100_664, 0));
        assert!(with(0o100_664, 50) && with(0o100_646, 0));
    }

    #[test]
    fn times_before_1970_are_rounded_down() {
        assert_eq!(nanoseconds(-1, 999_999_999), -1);
        assert_eq!(timespec(-1), (-1, 999_999_999));
        assert_eq!(nanoseconds(i64::MAX, 0), i64::MAX);
    }
}
