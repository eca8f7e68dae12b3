//! What is mounted where, from `/proc/self/mountinfo`, and which mount a path leads to, without touching the
//! path.
//!
//! A path is looked up the way the kernel walks it: from the root mount into the mount that covers each
//! directory on the way, the uppermost where several are stacked. So a path below a dead network mount is
//! known to be there before anybody waits for it.

mod by_device;
mod cached_table;
mod followed_table;
mod mounted_at;
pub mod notes;
mod overlay;
mod root;

use crate::file_systems;
pub use crate::file_systems::{
    Kind, inodes_last, is_local, kind_of, may_wait_for_servers, waits_for_servers,
};
pub use by_device::WAYS;
pub use followed_table::Followed;
pub use overlay::Overlay;
pub(crate) use root::{INSIDE, Inside, LOOK};

use by_device::ByDevice;
use headstart_model::FilePath;
use mounted_at::Above;
use root::Root;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::sync::{Arc, OnceLock};

/// Bytes that the table of most machines fits into.
const USUAL: usize = 16 << 10;

/// Overlays of overlays are seen through so deep.
pub(crate) const LAYERS: u32 = 8;

/// One mounted file system, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Id of the mount.
    pub id: u32,
    /// Id of the mount it is mounted on; its own, or an unknown one, for the root.
    pub parent: u32,
    /// Major number of the super block's device.
    pub major: u32,
    /// Minor number of the super block's device.
    pub minor: u32,
    /// What of the file system is mounted: `/`, or the directory of a bind mount or of a btrfs subvolume.
    pub root: FilePath,
    /// Where it is mounted.
    pub mount_point: FilePath,
    /// File system type.
    pub fstype: String,
    /// What was mounted: usually a device node.
    pub source: FilePath,
    /// Layers, for an overlay.
    pub overlay: Option<Overlay>,
    /// Whether a server answers, or a program of root's, and may never: see [`may_wait_for_servers`].
    pub is_remote: bool,
}

/// All mounts of this process's mount namespace, below its root.
#[derive(Clone, Debug, Default)]
pub struct MountTable {
    mounts: Arc<Vec<Mount>>,
    /// Id → index.
    ids: Arc<HashMap<u32, usize>>,
    above: Arc<Above>,
    /// Of each mount the uppermost of those that are stacked on it at its mount point; itself where there are
    /// none.
    tops: Arc<[usize]>,
    root: Option<usize>,
    /// Where there is no root: mount point → index of the last mount there.
    points: Arc<OnceLock<HashMap<Vec<u8>, usize>>>,
    by_device: Arc<OnceLock<ByDevice>>,
    /// What reading from each means, once somebody asked.
    kinds: Arc<[OnceLock<Kind>]>,
    /// Of each mount the root, opened by the first who needs it.
    roots: Arc<OnceLock<Vec<Root>>>,
}

impl MountTable {
    /// The mounts of this process, now. The kernel's table is read only when it has changed: of ten thousand
    /// mounts it takes tens of milliseconds. What is returned is for one use: the roots that it opens keep
    /// their mounts from being unmounted.
    pub fn read() -> io::Result<MountTable> {
        cached_table::table(false)
    }

    /// The same, or as they were a moment ago where reading them again would take too much of a processor's
    /// time: where thousands are mounted and some come and go all the time.
    pub fn read_in_time() -> io::Result<MountTable> {
        cached_table::table(true)
    }

    fn read_of(file: &mut File) -> io::Result<MountTable> {
        // With room enough it is two calls; from none it would be ten, each twice as long as the one before.
        let mut mountinfo = Vec::with_capacity(USUAL);
        file.read_to_end(&mut mountinfo)?;
        Ok(MountTable::parse(&mountinfo))
    }

    /// The mounts in the text of a mountinfo file; lines that cannot be understood are left out.
    pub fn parse(mountinfo: &[u8]) -> MountTable {
        // With room for all at once: thousands of mounts take megabytes, and the kernel hands out each page
        // of them.
        let mut mounts: Vec<Mount> =
            Vec::with_capacity(mountinfo.iter().filter(|b| **b == b'\n').count() + 1);
        mounts.extend(mountinfo.split(|b| *b == b'\n').filter_map(parse_line));
        let mut ids: HashMap<u32, usize> = HashMap::with_capacity(mounts.len());
        ids.extend(mounts.iter().enumerate().map(|(index, mount)| (mount.id, index)));
        let mut above = Above::with_capacity(mounts.len());
        let mut root = None;
        // Of each the one that is stacked on it at its mount point.
        let mut stacked = vec![None; mounts.len()];
        for (index, mount) in mounts.iter().enumerate() {
            match ids.get(&mount.parent).copied() {
                Some(below) if mount.parent != mount.id => {
                    above.add(&mounts, index);
                    if mounts[below].mount_point == mount.mount_point {
                        stacked[below] = Some(index);
                    }
                }
                _ if mount.mount_point.as_bytes() == b"/" => root = Some(index),
                _ => {}
            }
        }
        MountTable {
            tops: tops(&stacked).into(),
            roots: Arc::default(),
            kinds: mounts.iter().map(|_| OnceLock::new()).collect(),
            mounts: mounts.into(),
            ids: ids.into(),
            above: above.into(),
            root,
            points: Arc::default(),
            by_device: Arc::default(),
        }
    }

    /// The same table for another use, with no root open.
    pub fn read_again(&self) -> MountTable {
        MountTable {
            roots: Arc::default(),
            ..self.clone()
        }
    }

    /// Whether both are of one moment.
    pub fn is_same(&self, other: &MountTable) -> bool {
        Arc::ptr_eq(&self.mounts, &other.mounts)
    }

    /// Index into [`MountTable::all`] of the mount with this id.
    pub fn index_of_id(&self, id: u32) -> Option<usize> {
        self.ids.get(&id).copied()
    }

    /// All mounts, in the kernel's order.
    pub fn all(&self) -> &[Mount] {
        &self.mounts
    }

    /// The mount that an absolute path without `.`, `..` and symbolic links leads to.
    pub fn lookup(&self, path: &[u8]) -> Option<&Mount> {
        self.index_of(path).map(|index| &self.mounts[index])
    }

    /// Index into [`MountTable::all`] of the mount that a path leads to.
    pub fn index_of(&self, path: &[u8]) -> Option<usize> {
        let Some(mut current) = self.root else {
            return self.longest_prefix(path);
        };
        current = self.covering(current, b"/");
        for (end, _) in path.iter().enumerate().filter(|(i, b)| *i > 0 && **b == b'/') {
            current = self.covering(current, &path[..end]);
        }
        if path.len() > 1 && path.last() != Some(&b'/') {
            current = self.covering(current, path);
        }
        Some(current)
    }

    /// The mount that covers `path`, which is a directory of mount `below`, or `below` itself.
    pub(crate) fn covering(&self, below: usize, path: &[u8]) -> usize {
        let above = self.above.get(&self.mounts, self.mounts[below].id, path);
        above.map_or(below, |above| self.tops[above])
    }

    /// Below a root that is no mount point (chroot) the kernel shows no root mount: the longest prefix has to
    /// do.
    fn longest_prefix(&self, path: &[u8]) -> Option<usize> {
        let points = self.points.get_or_init(|| {
            let mounts = self.mounts.iter().enumerate();
            mounts
                .map(|(index, mount)| (plain(mount.mount_point.as_bytes()).to_vec(), index))
                .collect()
        });
        prefixes(path)
            .rev()
            .find_map(|prefix| points.get(prefix).copied())
    }

    /// Whether headstart may read from a mount: a local file system, or an overlay of which a layer is local
    /// and none is on a network.
    pub fn is_local(&self, mount: &Mount) -> bool {
        self.kind(mount, LAYERS) == Kind::Local
    }

    /// What reading from the mount of this index means, overlays seen through; found out once.
    pub(crate) fn kind_at(&self, index: usize) -> Kind {
        let kind = || self.kind(&self.mounts[index], LAYERS);
        self.kinds[index].get_or_init(kind).to_owned()
    }

    /// What reading from a mount means, overlays seen through. A layer that this namespace does not show, as
    /// in a container, is taken for one on a disk: by its name it may lead into the overlay itself.
    pub fn kind(&self, mount: &Mount, depth: u32) -> Kind {
        let Some(overlay) = &mount.overlay else {
            return match mount.is_remote && file_systems::waits_for_servers() {
                true => Kind::Local,
                false => kind_of(&mount.fstype),
            };
        };
        if depth == 0 {
            return Kind::Other;
        }
        let mut kind = Kind::Memory;
        for layer in overlay.layers() {
            match self
                .lookup(layer.as_bytes())
                .filter(|below| below.id != mount.id)
                .map(|below| self.kind(below, depth - 1))
            {
                Some(Kind::Other) => return Kind::Other,
                Some(Kind::Memory) => {}
                Some(Kind::Local) | None => kind = Kind::Local,
            }
        }
        kind
    }
}

/// Stacked mounts are each other's children at the same point. What is mounted over itself ever again may lie
/// thousands deep, and each path below it leads through all of them: so the way to the uppermost is walked
/// once.
fn tops(stacked: &[Option<usize>]) -> Vec<usize> {
    let mut tops: Vec<Option<usize>> = vec![None; stacked.len()];
    let mut way = Vec::new();
    for first in 0..stacked.len() {
        let mut at = first;
        let top = loop {
            if let Some(top) = tops[at] {
                break top;
            }
            // Until it is known; a table that leads in a circle ends there.
            tops[at] = Some(at);
            way.push(at);
            match stacked[at] {
                Some(above) => at = above,
                None => break at,
            }
        };
        way.drain(..).for_each(|below| tops[below] = Some(top));
    }
    let tops = tops.into_iter().enumerate();
    tops.map(|(index, top)| top.unwrap_or(index)).collect()
}

/// A place for the root of each, none of which is open.
fn closed(mounts: &[Mount]) -> Vec<Root> {
    mounts.iter().map(|_| Root::new()).collect()
}

/// The part of `path` below the directory `prefix`, without a leading slash; `None` if it is not below.
pub(crate) fn strip_prefix<'a>(path: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
    match path.strip_prefix(prefix)? {
        [] => Some(b""),
        [b'/', rest @ ..] => Some(rest),
        _ => None,
    }
}

/// A directory's path without a slash at its end; that of the root is empty.
fn plain(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// A path and the directories above it, the root (empty) first.
fn prefixes(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let path = plain(path);
    let ends = (0..=path.len()).filter(move |at| *at == path.len() || path[*at] == b'/');
    ends.map(move |end| &path[..end])
}

/// `directory` and below it `rest`, which has no leading slash.
pub(crate) fn join(directory: &[u8], rest: &[u8]) -> FilePath {
    let mut path = directory.to_vec();
    if !rest.is_empty() {
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(rest);
    }
    FilePath::from(path)
}

/// `id parent major:minor root mount_point options tags… - fstype source super_options`, proc(5).
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse::<u32>().ok();
    let (id, parent) = (number()?, number()?);
    let device = std::str::from_utf8(fields.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let root = unescape(fields.next()?);
    let mount_point = unescape(fields.next()?);
    fields.by_ref().find(|field| *field == b"-")?;
    let fstype = String::from_utf8_lossy(&unescape(fields.next()?)).into_owned();
    let source = unescape(fields.next()?);
    let options = fields.next().unwrap_or(b"");
    Some(Mount {
        id,
        parent,
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
        root: root.into(),
        mount_point: mount_point.into(),
        overlay: (fstype == "overlay").then(|| Overlay::parse(options)),
        is_remote: file_systems::is_remote(&fstype, file_systems::fuse_user(&fstype, options)),
        fstype,
        source: source.into(),
    })
}

/// Undoes the kernel's `\ooo` for blanks, backslashes and the like.
pub(crate) fn unescape(field: &[u8]) -> Vec<u8> {
    if !field.contains(&b'\\') {
        return field.to_vec();
    }
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        match rest {
            [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                after @ ..,
            ] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests;
