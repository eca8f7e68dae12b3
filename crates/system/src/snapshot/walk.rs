//! Walking paths: what each component is, each looked at once.

use super::Need;
use crate::extents::Mapper;
use crate::files::{self, Stat, Type};
use crate::mounts::{Kind, MountTable};
use crate::open::{Skip, reopen, stat_pin};
use crate::open_cost;
use headstart_model::FilePath;
use headstart_model::machine::{Extent, PathKind};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

/// Symbolic links followed on one path, as the kernel's MAXSYMLINKS.
const MAX_LINKS: u32 = 40;

/// What is kept of all that is looked at may take so many bytes; of each path it is `NODE`, its length
/// `COPIES` times, and its extents twice.
const KEPT: usize = 64 << 20;
const NODE: usize = 640;
const COPIES: usize = 4;

/// So many bytes of paths are walked through, each as often as one goes through it: whoever can make links
/// has a short path lead through thousands of directories. A boot's have some ten million.
const WALKED: usize = 256 << 20;

/// A path that was looked at.
#[derive(Clone, Debug)]
pub struct Node {
    /// The path, without symbolic links before its last component.
    pub path: FilePath,
    /// What is there.
    pub found: PathKind,
    /// Index of its mount.
    pub mount: Option<usize>,
    /// Inode number.
    pub inode: u64,
    /// Inode generation; only of files wanted for their data.
    pub generation: u32,
    /// Size in bytes.
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// User id of its owner.
    pub owner: u32,
    /// Whether others than its owner and root may write it.
    pub others_may_write: bool,
    /// Extents; only of files wanted for their data.
    pub extents: Vec<Extent>,
    /// Names looked up in it.
    pub names: Vec<Vec<u8>>,
    /// Whether all of its names are wanted.
    pub list: bool,
    /// Whether its data is wanted.
    pub data: bool,
    /// On an overlay: where it is in the layers, the uppermost first.
    pub layers: Vec<usize>,
    /// A symbolic link's target.
    target: Vec<u8>,
    /// What to do with it on the way to something else.
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Into,
    Follow,
    /// A character device 0:0 in an overlay's layer: the name is deleted.
    Whiteout,
    Stop,
}

/// All that was looked at.
pub struct Walk<'a> {
    mounts: &'a MountTable,
    nodes: Vec<Node>,
    by_path: HashMap<Vec<u8>, usize>,
    mapper: Mapper,
    /// What is left of [`KEPT`] and of [`WALKED`].
    left_to_keep: usize,
    left_to_walk: usize,
    /// Files that were opened; `None` where all are to be.
    opened: Option<u32>,
}

impl<'a> Walk<'a> {
    /// Begins at the root.
    pub fn new(mounts: &'a MountTable, opens_all: bool) -> Walk<'a> {
        let mut walk = Walk {
            mounts,
            nodes: Vec::new(),
            by_path: HashMap::new(),
            mapper: Mapper::new(),
            left_to_keep: KEPT,
            left_to_walk: WALKED,
            opened: (!opens_all).then_some(0),
        };
        walk.visit(b"/".to_vec(), mounts.index_of(b"/"), &[]);
        walk
    }

    /// What was looked at, the root first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Walks to a path and notes what it is wanted for. Gives the index of what it leads to, links followed
    /// but one that is to be read itself, or what is found at it if the way ends before. Where there is no
    /// room for more, nothing is found.
    pub fn want(&mut self, path: &[u8], need: Need) -> Result<usize, PathKind> {
        let index = self.walk(path, need != Need::List)?;
        self.need(index, need);
        let node = &self.nodes[index];
        if node.path.as_bytes() != path {
            // It has an entry of its own.
            let extents = node.extents.len();
            self.keep(NODE + COPIES * path.len() + size_of::<Extent>() * extents);
        }
        Ok(index)
    }

    fn keep(&mut self, bytes: usize) {
        self.left_to_keep = self.left_to_keep.saturating_sub(bytes);
    }

    fn need(&mut self, index: usize, need: Need) {
        match need {
            Need::Stat => return,
            Need::List => self.nodes[index].list = true,
            Need::Data if self.nodes[index].data => return,
            Need::Data => {
                self.nodes[index].data = true;
                self.map(index);
            }
        }
        for layer in self.nodes[index].layers.clone() {
            self.need(layer, need);
        }
    }

    /// Walks to a path. `follows` says whether a symbolic link at its end is followed.
    fn walk(&mut self, path: &[u8], follows: bool) -> Result<usize, PathKind> {
        if path.first() != Some(&b'/') {
            return Err(PathKind::Missing);
        }
        let mut todo = components(path);
        let (mut at, mut links) = (0, 0);
        while let Some(name) = todo.pop() {
            let length = self.nodes[at].path.as_bytes().len() + name.len();
            self.left_to_walk = self.left_to_walk.saturating_sub(length);
            if self.left_to_walk == 0 || self.left_to_keep == 0 {
                return Err(PathKind::Missing);
            }
            if self.nodes[at].step != Step::Into {
                let elsewhere = self.nodes[at].found == PathKind::NotLocal;
                return Err(if elsewhere {
                    PathKind::NotLocal
                } else {
                    PathKind::Missing
                });
            }
            if name == b".." {
                at = self.parent(at);
                continue;
            }
            at = self.child(at, &name);
            if self.nodes[at].step == Step::Follow && (follows || !todo.is_empty()) {
                links += 1;
                if links > MAX_LINKS {
                    return Err(PathKind::Missing);
                }
                let target = &self.nodes[at].target;
                let absolute = target.first() == Some(&b'/');
                todo.extend(components(target));
                at = if absolute { 0 } else { self.parent(at) };
            }
        }
        Ok(at)
    }

    fn parent(&self, index: usize) -> usize {
        let parent = self.nodes[index].path.parent();
        parent
            .and_then(|path| self.by_path.get(path.as_bytes()).copied())
            .unwrap_or(0)
    }

    fn child(&mut self, directory: usize, name: &[u8]) -> usize {
        let path = crate::mounts::join(self.nodes[directory].path.as_bytes(), name)
            .as_bytes()
            .to_vec();
        if let Some(index) = self.by_path.get(&path) {
            return *index;
        }
        let parent = &mut self.nodes[directory];
        parent.names.push(name.to_vec());
        let above = parent.mount;
        let mount = above.map(|above| self.mounts.covering(above, &path));
        // Below a mount point the layers are those of the overlay mounted there, if one is.
        let layers = if mount == above {
            parent.layers.clone()
        } else {
            Vec::new()
        };
        let layers = self.in_layers(&layers, name);
        self.visit(path, mount, &layers)
    }

    /// Where a name of an overlay's directory is in the layers. Files hide what is below them, directories
    /// are merged.
    fn in_layers(&mut self, layers: &[usize], name: &[u8]) -> Vec<usize> {
        let mut nodes = Vec::new();
        for layer in layers {
            if self.nodes[*layer].step != Step::Into {
                continue;
            }
            let index = self.child(*layer, name);
            match self.nodes[index].step {
                Step::Into => nodes.push(index),
                Step::Whiteout => break,
                Step::Follow => {
                    nodes.push(index);
                    break;
                }
                Step::Stop if self.nodes[index].found == PathKind::Missing => {}
                Step::Stop => {
                    nodes.push(index);
                    break;
                }
            }
        }
        nodes
    }

    /// Looks at a path that has no node yet.
    fn visit(&mut self, path: Vec<u8>, mount: Option<usize>, layers: &[usize]) -> usize {
        let index = self.nodes.len();
        self.keep(NODE + COPIES * path.len());
        self.by_path.insert(path.clone(), index);
        self.nodes.push(Node {
            path: FilePath::from(path),
            found: PathKind::NotLocal,
            mount,
            inode: 0,
            generation: 0,
            size: 0,
            mtime_ns: 0,
            owner: 0,
            others_may_write: false,
            extents: Vec::new(),
            names: Vec::new(),
            list: false,
            data: false,
            layers: layers.to_vec(),
            target: Vec::new(),
            step: Step::Stop,
        });
        let kind = mount.map_or(Kind::Other, |mount| self.mounts.kind_at(mount));
        if kind != Kind::Other {
            self.pin(index, kind);
        }
        self.enter_overlay(index);
        index
    }

    fn pin(&mut self, index: usize, kind: Kind) {
        let seen = self.open_node(index);
        let node = &mut self.nodes[index];
        let (fd, stat) = match seen {
            Ok(found) => found,
            // Something else was mounted there just now.
            Err(Skip::NotLocal) => return,
            Err(Skip::Missing) => {
                node.found = PathKind::Missing;
                return;
            }
            // No permission, or it changed just now: nothing that could be opened.
            Err(_) => {
                node.found = PathKind::Special;
                return;
            }
        };
        (node.inode, node.size, node.mtime_ns) = (stat.inode, stat.size, stat.mtime_ns);
        (node.owner, node.others_may_write) = (stat.owner, stat.others_may_write());
        let (found, step) = match stat.kind {
            Type::File => (PathKind::File, Step::Stop),
            Type::Directory => (PathKind::Directory, Step::Into),
            Type::Symlink => (PathKind::Symlink, Step::Follow),
            Type::Special if stat.mode & 0o170_000 == 0o020_000 && stat.rdev == (0, 0) => {
                (PathKind::Special, Step::Whiteout)
            }
            Type::Special => (PathKind::Special, Step::Stop),
        };
        if kind == Kind::Local {
            node.found = found;
        }
        node.step = step;
        if step == Step::Follow {
            node.target = rustix::fs::readlinkat(&fd, c"", Vec::new()).map_or(Vec::new(), |t| t.into_bytes());
        }
    }

    /// Sees what is at a node's path, without leaving its mount.
    fn open_node(&self, index: usize) -> Result<(OwnedFd, Stat), Skip> {
        let node = &self.nodes[index];
        let mount = node.mount.ok_or(Skip::NotLocal)?;
        let fd = self.mounts.inside(mount, node.path.as_bytes())?.open(false)?;
        let stat = stat_pin(fd.as_fd())?;
        Ok((fd, stat))
    }

    /// At the root of an overlay: the roots of its layers.
    fn enter_overlay(&mut self, index: usize) {
        let Some(mount) = self.nodes[index].mount.map(|mount| &self.mounts.all()[mount]) else {
            return;
        };
        let Some(overlay) = mount
            .overlay
            .as_ref()
            .filter(|_| mount.mount_point == self.nodes[index].path)
        else {
            return;
        };
        let inside = mount.root.as_bytes().strip_prefix(b"/").unwrap_or(b"");
        let paths: Vec<FilePath> = overlay
            .layers()
            .map(|layer| crate::mounts::join(layer.as_bytes(), inside))
            .collect();
        // While they are walked to, possibly through this very overlay, it has no layers: that ends the
        // recursion. What lies in the overlay itself is none: in a container a layer's name leads there, or
        // nowhere.
        let above = self.nodes[index].mount;
        let mut layers = Vec::new();
        for path in &paths {
            let layer = self.walk(path.as_bytes(), true);
            layers.extend(layer.ok().filter(|layer| self.nodes[*layer].mount != above));
        }
        self.nodes[index].layers = layers;
    }

    /// Generation and extents of a regular file. Where somebody looks at each file that is opened neither is
    /// known of most: no plan is worth that.
    fn map(&mut self, index: usize) {
        if self.nodes[index].found != PathKind::File {
            return;
        }
        if let Some(opened) = &mut self.opened {
            if *opened >= open_cost::AT_LEAST && open_cost::dear().is_some() {
                return;
            }
            *opened += 1;
        }
        let Ok((pin, stat)) = self.open_node(index) else {
            return;
        };
        let node = &mut self.nodes[index];
        if stat.kind != Type::File || stat.inode != node.inode {
            return;
        }
        let Ok(fd) = reopen(pin.as_fd()) else { return };
        node.generation = files::generation(fd.as_fd());
        node.extents = self.mapper.extents(fd.as_fd()).unwrap_or_default();
        let extents = node.extents.len();
        self.keep(2 * size_of::<Extent>() * extents);
    }
}

/// The names of a path, the last first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path
        .split(|b| *b == b'/')
        .filter(|name| !name.is_empty() && *name != b".");
    names.rev().map(<[u8]>::to_vec).collect()
}
