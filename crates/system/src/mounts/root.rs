//! The roots of mounts, from which paths are resolved without leaving the mount.
//!
//! A mount table is a picture of one moment. A path that led to a local file system then may lead to another
//! now: something was mounted over one of its directories, or an automount point was reached. Whoever walks
//! such a path asks a server that may never answer. So a path is resolved from the root of the mount that the
//! table names, and the kernel is told to go no further than that mount (openat2(2): `RESOLVE_NO_XDEV`,
//! `RESOLVE_BENEATH`).

use super::{Kind, LAYERS, MountTable, closed, strip_prefix};
use crate::resolve;
use crate::why_not_opened::{Skip, skip};
use rustix::fs::{AtFlags, CWD, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// The root of a mount, once somebody asked for it.
pub(super) type Root = OnceLock<Result<OwnedFd, Skip>>;

/// What a path is opened with in order to see what is there: nothing is opened in earnest.
pub(crate) const LOOK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How a path is resolved: below the mount's root, through no link, into no other mount.
pub(crate) const INSIDE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_XDEV)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

/// A path as its mount has it.
pub(crate) struct Inside<'a> {
    /// The root of the mount.
    pub root: BorrowedFd<'a>,
    /// The path from there; empty for the root itself.
    pub path: CString,
}

impl MountTable {
    /// The mount of a path and the path from its root on. Nothing of the path is touched; the way to the
    /// mount point is walked once.
    pub(crate) fn inside(&self, index: usize, path: &[u8]) -> Result<Inside<'_>, Skip> {
        let mount = self.mounts.get(index).ok_or(Skip::NotLocal)?;
        let rest = strip_prefix(path, mount.mount_point.as_bytes()).ok_or(Skip::NotLocal)?;
        let path = CString::new(rest).map_err(|_| Skip::Io(libc::EINVAL))?;
        let roots = self.roots.get_or_init(|| closed(&self.mounts));
        let slot = roots.get(index).ok_or(Skip::NotLocal)?;
        let root = slot.get_or_init(|| self.open_root(index));
        let root = root.as_ref().map_err(|reason| *reason)?;
        Ok(Inside {
            root: root.as_fd(),
            path,
        })
    }

    /// Opens the root of a mount, if it still is the uppermost mount at its mount point.
    fn open_root(&self, index: usize) -> Result<OwnedFd, Skip> {
        let mount = self.mounts.get(index).ok_or(Skip::NotLocal)?;
        if !self.reachable(index) {
            return Err(Skip::NotLocal);
        }
        let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let point = mount.mount_point.as_path();
        let root = resolve::open(CWD, point, LOOK, how).map_err(skip)?;
        // DONT_SYNC: should it be a server's by now, it is not asked.
        let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        let facts = rustix::fs::statx(&root, c"", flags, StatxFlags::MNT_ID).map_err(skip)?;
        match facts.stx_mask & StatxFlags::MNT_ID.bits() != 0 && facts.stx_mnt_id == u64::from(mount.id) {
            true => Ok(root),
            false => Err(Skip::NotLocal),
        }
    }

    /// Whether the way to a mount point leads through no file system that may not answer. The first mount is
    /// taken as it is: whoever runs here needs it. An automount point that is covered by what was mounted on
    /// it asks nobody.
    fn reachable(&self, index: usize) -> bool {
        let mut above = &self.mounts[index];
        for _ in 0..self.mounts.len() {
            let below = self.index_of_id(above.parent).map(|index| &self.mounts[index]);
            let Some(below) = below.filter(|below| below.id != above.id) else {
                return true;
            };
            let first = self.root.is_some_and(|root| self.mounts[root].id == below.id);
            let covered = below.fstype == "autofs" && below.mount_point == above.mount_point;
            if !first && !covered && self.kind(below, LAYERS) == Kind::Other {
                return false;
            }
            above = below;
        }
        true
    }
}

impl Inside<'_> {
    /// Opens what is there. With `cached`, only if nothing has to be read for that ([`Skip::Cold`]).
    pub fn open(&self, cached: bool) -> Result<OwnedFd, Skip> {
        if self.path.is_empty() {
            return self.root.try_clone_to_owned().map_err(|_| Skip::Io(libc::EMFILE));
        }
        let how = match cached {
            true => INSIDE | ResolveFlags::CACHED,
            false => INSIDE,
        };
        let path = Path::new(OsStr::from_bytes(self.path.as_bytes()));
        resolve::open(self.root, path, LOOK, how).map_err(|error| match error {
            Errno::AGAIN if cached => Skip::Cold,
            error => skip(error),
        })
    }
}
