//! Files of an overlay whose layers the recorder does not see, as in a container: the kernel tells of the
//! file in its layer, and no mount shows that. The path within a layer is the path within the overlay, so
//! what leads to the same inode there is it.

use crate::kernel::event::{Dev, FileSeen, Location};
use crate::trace::inode;
use crate::trace::mounts::{Mount, Mounts, join};
use headstart_model::FilePath;
use headstart_model::limits::PATH;
use std::collections::HashMap;

/// So many paths are tried at most for layers that are not known yet: what belongs to other containers is at
/// none.
const TRIES: usize = 20_000;

/// So many overlays are looked through.
const OVERLAYS: usize = 8;

/// An overlay that has more layers than so many is known by the first (the kernel allows 500).
const LAYERS: usize = 1024;

/// The layers found so far.
pub(crate) struct Layers {
    /// Where a layer is on its file system → the id of the mount of the overlay.
    known: HashMap<(Dev, Vec<u8>), u32>,
    left: usize,
}

impl Layers {
    /// None yet.
    pub(crate) fn new() -> Layers {
        Layers {
            known: HashMap::new(),
            left: TRIES,
        }
    }

    /// The path of a file through an overlay, and the id of the overlay's mount.
    pub(crate) fn find(&mut self, seen: &FileSeen, mounts: &Mounts) -> Option<(Vec<u8>, u32)> {
        let Location::Within(within) = &seen.place.location else {
            return None;
        };
        let dev = seen.place.dev;
        let cuts = || (0..within.len()).filter(|at| within[*at] == b'/');
        for at in cuts() {
            if let Some(id) = self.known.get(&(dev, within[..at].to_vec())).copied() {
                let path = mounts
                    .by_id(id)
                    .and_then(|mount| at_path(seen, mount, &within[at..], mounts));
                if let Some(path) = path {
                    return Some((path, id));
                }
            }
        }
        for mount in mounts.overlays(OVERLAYS) {
            for at in cuts() {
                self.left = self.left.checked_sub(1)?;
                if let Some(path) = at_path(seen, mount, &within[at..], mounts) {
                    if self.known.len() < LAYERS {
                        self.known.insert((dev, within[..at].to_vec()), mount.id);
                    }
                    return Some((path, mount.id));
                }
            }
        }
        None
    }
}

/// The path of a layer's file through an overlay, if it is there: `rest` is its path in the layer.
fn at_path(seen: &FileSeen, mount: &Mount, rest: &[u8], mounts: &Mounts) -> Option<Vec<u8>> {
    let rest = crate::trace::mounts::strip_root(rest, mount.root.as_bytes())?;
    let path = join(mount.mount_point.as_bytes(), rest);
    (path.len() <= PATH && is_at(seen, &path, mount.id, mounts)).then_some(path)
}

/// Whether a path through the overlay's mount leads to the file. An overlay has the inode number of the file
/// in its layer, with bits of its own above where layers are on several file systems (`xino`,
/// Documentation/filesystems/overlayfs.rst).
pub(crate) fn is_at(seen: &FileSeen, path: &[u8], mount: u32, mounts: &Mounts) -> bool {
    // Below another mount somebody else would be asked, who may never answer.
    if mounts.leads_to(path) != Some(mount) {
        return false;
    }
    let path = FilePath::from(path);
    inode::facts(path.as_path()).is_ok_and(|facts| {
        let same_number = facts.inode as u32 == seen.inode as u32;
        // It may have been written since.
        let same_version = facts.size == seen.size || facts.mtime_ns == seen.mtime_ns;
        same_number && same_version && facts.mode == seen.mode
    })
}
