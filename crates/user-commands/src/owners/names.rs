//! Paths of inodes that are known by number only, by file handle.

use headstart_model::FilePath;
use headstart_system::files;
use headstart_system::handle::Handle;
use headstart_system::mounts::MountTable;
use headstart_system::open::{pin, reopen};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Pins an inode; `tree` is its subvolume on btrfs. `None` where the file system takes no such handle.
pub fn by_number(root: BorrowedFd<'_>, fstype: &str, tree: u64, inode: u64) -> Option<OwnedFd> {
    let handle = match fstype {
        "btrfs" => Handle::of_btrfs(tree, inode),
        _ => Handle::of_inode(fstype, inode, 0)?,
    };
    let pin = handle.open(root).ok()?;
    (files::stat(&pin).ok()?.inode == inode).then_some(pin)
}

/// The path of what is pinned, if there is one that leads to it.
pub fn path_of(mounts: &MountTable, pinned: BorrowedFd<'_>) -> Option<FilePath> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", pinned.as_raw_fd())).ok()?;
    let ours = files::stat(pinned).ok()?;
    let (_, found) = pin(mounts, &path).ok()?;
    let same = (found.major, found.minor, found.inode) == (ours.major, ours.minor, ours.inode);
    same.then(|| FilePath::from(path.as_path()))
}

/// Opens what is pinned for reading, if it is a regular file.
pub fn open_file(pinned: &OwnedFd) -> Option<OwnedFd> {
    let is_file = files::stat(pinned).ok()?.kind == files::Type::File;
    is_file.then(|| reopen(pinned.as_fd()).ok()).flatten()
}

/// `directory` and an entry of it.
pub fn join(directory: &[u8], name: &[u8]) -> FilePath {
    let mut path = directory.to_vec();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    FilePath::from(Path::new(OsStr::from_bytes(&path)))
}
