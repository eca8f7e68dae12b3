//! Which inode a path leads to, and which path an inode has, by file handle: handles hold inode number and
//! generation, so that a file that took over a removed one's number is not mistaken for it.

use headstart_system::handle::Handle;
use headstart_system::resolve;
use rustix::fs::{AtFlags, CWD, OFlags, ResolveFlags, StatxFlags, fstat, statx};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub inode: u64,
    /// `None` where the file system's handles do not tell.
    pub generation: Option<u32>,
    /// The mount it lies in, if told.
    pub mount: Option<u32>,
}

/// What `path` itself (not what a symbolic link points to) is. On another file system than one of this type
/// the generation may be wrong; the mount tells. The kernel's paths lead through no symbolic link, and one
/// that somebody has put on the way since, to a server that never answers, is not followed.
pub(crate) fn identify(path: &Path, fstype: &str) -> io::Result<Identity> {
    let pin = pin(path)?;
    let handle_and_mount = Handle::from_fd(pin.as_fd()).ok();
    let mount = handle_and_mount
        .as_ref()
        .and_then(|(_, mount)| u32::try_from(*mount).ok());
    let decoded = handle_and_mount.and_then(|(handle, _)| handle.decode(fstype));
    if let (Some(_), Some((inode, generation))) = (mount, decoded) {
        return Ok(Identity {
            inode,
            generation: Some(generation),
            mount,
        });
    }
    // No handles, or of another kind.
    Ok(Identity {
        inode: fstat(&pin)?.st_ino,
        generation: None,
        mount,
    })
}

/// When what is at `path` was made, nanoseconds since 1970; `None` where the file system does not keep that.
pub(crate) fn made_unix_ns(path: &Path) -> io::Result<Option<i64>> {
    let facts = statx(pin(path)?, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME)?;
    let ns = i64::from(facts.stx_btime.tv_nsec);
    let made = facts
        .stx_btime
        .tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(ns);
    Ok((facts.stx_mask & StatxFlags::BTIME.bits() != 0).then_some(made))
}

/// What a file looks like, whatever its file system.
pub(crate) struct Facts {
    pub inode: u64,
    pub size: u64,
    pub mtime_ns: i64,
    pub mode: u32,
}

/// That of `path` itself; as of [`identify`], nothing is followed and nobody is asked.
pub(crate) fn facts(path: &Path) -> io::Result<Facts> {
    let stat = fstat(pin(path)?)?;
    Ok(Facts {
        inode: stat.st_ino,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mtime_ns: (stat.st_mtime as i64)
            .saturating_mul(1_000_000_000)
            .saturating_add(stat.st_mtime_nsec as i64),
        mode: stat.st_mode,
    })
}

fn pin(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(resolve::open(CWD, path, flags, ResolveFlags::NO_SYMLINKS)?)
}

/// The present path of an inode by its number and generation, as long as the inode lives; `mount` is a
/// descriptor of anything on the mount that the path shall lead through. `None` where the file system
/// (`fstype`) has no handles that can be made up, the inode is gone or unlinked, or CAP_DAC_READ_SEARCH is
/// missing.
pub(crate) fn path_of(mount: BorrowedFd<'_>, fstype: &str, inode: u64, generation: u32) -> Option<Vec<u8>> {
    let fd = Handle::of_inode(fstype, inode, generation)?.open(mount).ok()?;
    let path = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
    // An unlinked file is shown with " (deleted)" behind its name, a disconnected one with part of its path:
    // only what leads back to the inode is a path.
    (identify(&path, fstype).ok()?.inode == inode).then(|| path.into_os_string().into_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

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
