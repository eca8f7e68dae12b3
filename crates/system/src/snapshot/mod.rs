//! What a list of paths is on this machine, now: the facts that a plan is made from.
//!
//! Each path is walked component by component, so that the directories and symbolic links on the way are
//! known too: they have to be read before the file can. What is not on a local file system is never touched,
//! except that file systems in memory are walked through (a symbolic link in `/run` may lead to a disk).
//!
//! An overlay's paths are followed into its layers, for it is there that inodes, directories and data are
//! read; the overlay's own entry has the data's extents and the device of the layer the file was found in,
//! and no metadata.

mod devices;
mod walk;

use devices::DeviceTable;
use headstart_model::FilePath;
use headstart_model::machine::{Cost, Device, FileFacts, FirstTouch, Machine, PathKind};
use std::collections::HashSet;
use std::io;
use walk::{Node, Walk};

pub use devices::DeviceIdentity;

/// A path whose facts are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Absolute path.
    pub path: FilePath,
    /// What for.
    pub need: Need,
}

/// What a path is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It is looked up: nothing, or its inode.
    Stat,
    /// It is a directory whose entries are read, or a symbolic link that is read and not followed.
    List,
    /// It is a file of which pages are read.
    Data,
}

/// What a device costs, and what a first touch costs beyond that, if it was measured before.
pub type Costs<'a> = dyn Fn(&DeviceIdentity) -> Option<(Cost, Option<FirstTouch>)> + 'a;

/// How a snapshot is taken.
pub struct Options<'a> {
    /// Measured costs; where there is none the device's class is guessed.
    pub costs: &'a Costs<'a>,
    /// Whether to look for metadata on block devices. Without, [`Device::metadata_by_block`] is false
    /// everywhere.
    pub metadata: bool,
    /// Whether all files are opened, though somebody looks at each that is ([`crate::open_cost::dear`]). Else
    /// generation and extents of most are left out then.
    pub opens_all: bool,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            costs: &|_| None,
            metadata: true,
            opens_all: false,
        }
    }
}

/// Takes a snapshot. Fails only if the mount table or the memory's state cannot be read.
///
/// Every wanted path has an entry. One that leads through symbolic links has the facts of what it leads to,
/// without metadata, which is in the entries of the links, directories and file on the way; one that is
/// itself a symbolic link has an entry as such, and its target another, unless the link is only read.
///
/// They are looked at in this order. What is kept of them is bounded (some 64 MiB), and so is how far they
/// lead: of those behind, nothing is found then.
pub fn snapshot(wanted: &[Wanted], options: &Options<'_>) -> io::Result<Machine> {
    let mounts = crate::mounts::MountTable::read()?;
    let mut walk = Walk::new(&mounts, options.opens_all);
    let reached: Vec<Result<usize, PathKind>> = wanted
        .iter()
        .map(|w| walk.want(w.path.as_bytes(), w.need))
        .collect();

    let mut table = DeviceTable::new(&mounts, options);
    let nodes = walk.nodes();
    let mut files: Vec<FileFacts> = nodes.iter().map(|node| facts(node, nodes, &mut table)).collect();
    let mut known: HashSet<&FilePath> = nodes.iter().map(|node| &node.path).collect();
    let aliases: Vec<FileFacts> = (wanted.iter().zip(reached))
        .filter(|(want, _)| known.insert(&want.path))
        .map(|(want, reached)| alias(&want.path, reached.map(|index| &files[index])))
        .collect();
    files.extend(aliases);
    Ok(Machine {
        page_size: rustix::param::page_size() as u32,
        memory_available: crate::memory::memory()?.available,
        devices: table.into_devices(),
        files,
    })
}

/// The facts of a device, as a snapshot has them, for one mounted file system.
pub fn device_at(path: &FilePath, options: &Options<'_>) -> io::Result<Option<Device>> {
    let mounts = crate::mounts::MountTable::read()?;
    let Some(index) = mounts.index_of(path.as_bytes()) else {
        return Ok(None);
    };
    let mut table = DeviceTable::new(&mounts, options);
    table.index(index);
    Ok(table.into_devices().pop())
}

fn facts(node: &Node, nodes: &[Node], table: &mut DeviceTable<'_>) -> FileFacts {
    let there = !matches!(node.found, PathKind::Missing | PathKind::NotLocal);
    // What an overlay shows is read from the layer that has it.
    let below = node
        .layers
        .first()
        .map(|layer| &nodes[*layer])
        .filter(|layer| layer.found == node.found);
    let mount = below.map_or(node.mount, |layer| layer.mount);
    let device = mount.filter(|_| there).map(|mount| table.index(mount));
    let metadata = match device {
        Some(device) if below.is_none() => table.metadata(device, node),
        _ => Vec::new(),
    };
    FileFacts {
        path: node.path.clone(),
        found: node.found,
        device,
        inode: node.inode,
        generation: node.generation,
        size: node.size,
        mtime_ns: node.mtime_ns,
        owner: node.owner,
        others_may_write: node.others_may_write,
        extents: node.extents.clone(),
        metadata,
    }
}

fn alias(path: &FilePath, target: Result<&FileFacts, PathKind>) -> FileFacts {
    let nothing = |found| FileFacts {
        path: path.clone(),
        found,
        device: None,
        inode: 0,
        generation: 0,
        size: 0,
        mtime_ns: 0,
        owner: 0,
        others_may_write: false,
        extents: Vec::new(),
        metadata: Vec::new(),
    };
    target.map_or_else(nothing, |target| FileFacts {
        path: path.clone(),
        metadata: Vec::new(),
        ..target.clone()
    })
}
