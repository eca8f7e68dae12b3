//! Ways to an inode: the mounts through which it can be opened by number, and what it turns out to be.

use super::handle;
use crate::kernel::event::{Dev, Location};
use crate::trace::inode::identify;
use crate::trace::mounts::{Mount, Mounts, is_local, join, strip_root};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags, openat, statx};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// What tells a file from another one of the same number.
pub(super) type Birth = (i64, u32, u32);

/// What was found behind a number.
pub(super) struct FoundInode {
    pub location: Location,
    pub generation: u32,
    pub size: u64,
    pub mtime_ns: i64,
    pub mode: u32,
    pub born: Birth,
    /// How many names it has.
    pub names: u32,
    /// Whether the place is any of these.
    pub by_some_name: bool,
}

impl FoundInode {
    /// Nothing is known.
    pub fn unknown() -> FoundInode {
        FoundInode {
            location: Location::Unknown,
            generation: 0,
            // Nothing is known to be beyond its end.
            size: u64::MAX,
            mtime_ns: 0,
            mode: 0,
            born: Birth::default(),
            names: 0,
            by_some_name: false,
        }
    }
}

/// Opens an inode by its number.
pub(super) fn by_number(openers: &[Opener], inode: u64) -> Option<FoundInode> {
    openers.iter().find_map(|(opener, mount)| {
        let file = handle::open(opener.as_fd(), &mount.fstype, inode).ok()?;
        describe(&file, inode, &mount.fstype, Some(mount))
    })
}

/// Opens an inode by the path that a process holds it by.
pub(super) fn by_path(path: &[u8], inode: u64, fstype: &str) -> FoundInode {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let there = openat(CWD, OsStr::from_bytes(path), flags, Mode::empty()).ok();
    // Else it is held but no longer there under its name.
    let location = Location::Absolute(without_mark(path).to_vec());
    there
        .and_then(|file| describe(&file, inode, fstype, None))
        .unwrap_or(FoundInode {
            location,
            ..FoundInode::unknown()
        })
}

/// A directory through which a file system's inodes can be opened.
pub(super) type Opener = (OwnedFd, Mount);

/// So many of a file system are tried: whoever is shown by none of them is reached by a descriptor, or not at
/// all.
const OPENERS: usize = 40;

/// Those of a file system, whole ones before mounts of a part.
pub(super) fn openers(mounts: &Mounts, dev: Dev) -> Vec<Opener> {
    // Memory and network file systems do not take numbers, or would ask a server.
    mounts
        .of_device(dev)
        .filter(|mount| is_local(mount))
        .take(OPENERS)
        .filter_map(|mount| Some((opener(mount)?, mount.clone())))
        .collect()
}

fn opener(mount: &Mount) -> Option<OwnedFd> {
    // A descriptor with O_PATH would not do for open_by_handle_at(2).
    let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(
        CWD,
        mount.mount_point.as_path(),
        flags | OFlags::DIRECTORY,
        Mode::empty(),
    )
    .ok()?;
    // Another mount may cover it. Linux before 5.8 does not tell; then the inode numbers must.
    let stat = statx(&fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    let told = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    (!told || stat.stx_mnt_id == u64::from(mount.id)).then_some(fd)
}

/// What an open inode is; `None` if it is not `inode`. Through a `mount` the place is told within its file
/// system.
fn describe(file: &OwnedFd, inode: u64, fstype: &str, mount: Option<&Mount>) -> Option<FoundInode> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, wanted)
        .ok()
        .filter(|s| s.stx_ino == inode)?;
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let identity = identify(&path, fstype).ok().filter(|found| found.inode == inode);
    let path = path.into_os_string().into_vec();
    let location = match (mount, identity) {
        (None, _) => Location::Absolute(path),
        (Some(_), None) if path == b"/" => return None,
        (Some(mount), identity) => Location::Within(within(mount, without_mark(&path), identity.is_some())),
    };
    let generation = identity.and_then(|found| found.generation).unwrap_or(0);
    Some(FoundInode {
        location,
        generation,
        size: stat.stx_size,
        mtime_ns: mtime(&stat),
        mode: u32::from(stat.stx_mode),
        born: born(&stat, generation),
        names: stat.stx_nlink,
        by_some_name: mount.is_some() && stat.stx_nlink > 1,
    })
}

/// The path from the root of the file system, of what shows as `path` through `mount`. What lies outside a
/// mount of a part shows as its path from the root of the file system, which leads nowhere, or elsewhere.
fn within(mount: &Mount, path: &[u8], leads_there: bool) -> Vec<u8> {
    let (point, root) = (mount.mount_point.as_bytes(), mount.root.as_bytes());
    match strip_root(path, point) {
        Some(rest) if leads_there || point != b"/" => join(root, rest),
        Some(rest) if root == b"/" => join(b"/", rest),
        _ => path.to_vec(),
    }
}

/// A path without what the kernel puts behind that of an unlinked file.
fn without_mark(path: &[u8]) -> &[u8] {
    match path.strip_suffix(b" (deleted)") {
        Some(short) if std::fs::symlink_metadata(Path::new(OsStr::from_bytes(path))).is_err() => short,
        _ => path,
    }
}

fn mtime(stat: &Statx) -> i64 {
    stat.stx_mtime
        .tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(i64::from(stat.stx_mtime.tv_nsec))
}

/// Time of birth where the file system has one, else the generation.
fn born(stat: &Statx, generation: u32) -> Birth {
    match stat.stx_mask & StatxFlags::BTIME.bits() {
        0 => (0, 0, generation),
        _ => (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec, 0),
    }
}
