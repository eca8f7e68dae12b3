//! Files of a mounted ext2, ext3 or ext4 by file handle: of all metadata only their inodes are read, no
//! directory above them. On one head that spares a jump for each directory before the first byte of data.
//!
//! A handle passes by the directories, and with them by what a path would be refused for, so a path of a plan
//! has the last word still: the mount table must lead it to the very mount the opener is of, which shows the
//! whole of a local file system; what the handle leads to must be a regular file of the inode number and
//! generation that the plan says, and of its size and modification time where those are expected
//! ([`crate::open::open_pinned`]). So the worst a crafted plan does is to have a file read ahead that is on
//! that file system under another name than it says, whose number and generation it knows. Whatever is not
//! opened here may still be by path.

use crate::files::{self, Type};
use crate::handle::Handle;
use crate::mounts::{Mount, MountTable};
use crate::open::{Expect, Opened, Skip, local_mount, open_pinned, open_root, stat_pin};
use crate::why_not_opened::skip;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// A way to the files of one mounted file system.
#[derive(Debug)]
pub struct HandleOpener {
    root: OwnedFd,
    mount: u32,
    device: (u32, u32),
    fstype: String,
}

impl HandleOpener {
    /// The opener of a mount. Fails where the file system is none of these, a part of it is mounted, or
    /// `CAP_DAC_READ_SEARCH` is missing.
    pub fn new(mounts: &MountTable, mount: &Mount) -> io::Result<HandleOpener> {
        let whole = mount.root.as_bytes() == b"/";
        if !matches!(mount.fstype.as_str(), "ext2" | "ext3" | "ext4") || !whole || !mounts.is_local(mount) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // Something else may have been mounted over it since.
        let root = open_root(mounts, mount).map_err(io::Error::other)?;
        let facts = files::stat(&root)?;
        let device = (mount.major, mount.minor);
        if (facts.major, facts.minor) != device {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // Its own inode is in memory. If this one may be opened others may be.
        handle(&mount.fstype, facts.inode, 0)?.open(root.as_fd())?;
        Ok(HandleOpener {
            root,
            mount: mount.id,
            device,
            fstype: mount.fstype.clone(),
        })
    }

    /// Opens the regular file of the inode number and generation that are expected (0 is one, not any) for a
    /// path that should lead to it. Without knowing both nothing is opened.
    pub fn open(&self, mounts: &MountTable, path: &Path, expect: &Expect) -> Result<Opened, Skip> {
        let changed = |what| Skip::Changed { what };
        let inode = expect.inode.ok_or(changed("inode"))?;
        let generation = expect.generation.ok_or(changed("generation"))?;
        if local_mount(mounts, path)?.id != self.mount {
            return Err(Skip::NotLocal);
        }
        let handle = handle(&self.fstype, inode, generation).map_err(|_| changed("inode"))?;
        let pin = handle
            .open(self.root.as_fd())
            .map_err(|error| match Errno::from_io_error(&error) {
                Some(Errno::STALE) => changed("generation"),
                error => skip(error.unwrap_or(Errno::IO)),
            })?;
        let stat = stat_pin(pin.as_fd())?;
        if (stat.major, stat.minor) != self.device {
            return Err(Skip::NotLocal);
        }
        if stat.kind == Type::Directory {
            return Err(Skip::Special);
        }
        open_pinned(pin.as_fd(), stat, expect)
    }
}

fn handle(fstype: &str, inode: u64, generation: u32) -> io::Result<Handle> {
    Handle::of_inode(fstype, inode, generation).ok_or_else(|| io::ErrorKind::Unsupported.into())
}
