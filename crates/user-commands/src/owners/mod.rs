//! Whose the bytes of a block device are: from a read of a device to a file and offset, or to a kind of
//! metadata.
//!
//! [`places`] says which parts of which devices local file systems are on; [`find`] looks for the owners of
//! bytes of one of them. How far that goes depends on the file system:
//!
//! - ext2, ext3, ext4: what the file system itself uses is at known places, and all inodes that are in use
//!   are looked at.
//! - XFS (version 5): files by FIEMAP, those that are known first, then all; metadata says itself what it is.
//! - btrfs (without RAID0, RAID10, RAID5 and RAID6): metadata says itself of which tree it is, and the kernel
//!   tells whose data is.
//! - others: data of files by FIEMAP, if they have it.
//!
//! What a device mapper or RAID device is made of is not looked into. Everything read here is taken for
//! possibly damaged.

mod btrfs;
mod claims;
mod ext4;
mod names;
pub(crate) mod raw;
mod walk;
pub(crate) mod xfs;

pub use claims::{MAX_PIECES, Progress};

use claims::Claims;
use headstart_model::FilePath;
use headstart_model::blocks::{Part, SECTOR};
use headstart_model::machine::ByteRange;
use headstart_system::device::DeviceFacts;
use headstart_system::ext4::Ext4;
use headstart_system::extents::Mapper;
use headstart_system::mounts::{Mount, MountTable};
use headstart_system::open::{open_root, pin};
use raw::Raw;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Files that are known already: path by inode number.
pub type Named = HashMap<u64, FilePath>;

/// Nodes deeper than this are not followed: what a stack of device mappers is made of has few floors.
const MAX_FLOORS: u32 = 8;

/// A part of a block device, and how to ask whose its bytes are.
#[derive(Clone, Debug)]
pub struct Place {
    /// The part; nothing is known of its bytes yet.
    pub part: Part,
    mount: Option<usize>,
    node: Option<PathBuf>,
}

/// The parts of block devices that local file systems are on, each once, and those that such devices are made
/// of, which are not looked into.
pub fn places(mounts: &MountTable) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    let mut seen = HashSet::new();
    let mut asked = HashSet::new();
    for (index, mount) in mounts.all().iter().enumerate() {
        // Bound ten thousand times it is one device still.
        if mount.overlay.is_some() || !mounts.is_local(mount) || !asked.insert((mount.major, mount.minor)) {
            continue;
        }
        let Some(facts) = DeviceFacts::of_mount(mount) else {
            continue;
        };
        if !seen.insert((facts.major, facts.minor)) {
            continue;
        }
        let mount = mounts.by_device(mount.major, mount.minor).unwrap_or(mount);
        let index = mounts
            .all()
            .iter()
            .position(|known| known.id == mount.id)
            .unwrap_or(index);
        let Some(part) = part_of(&facts, mount) else {
            continue;
        };
        devices_below(&facts, &part, MAX_FLOORS, &mut seen, &mut places);
        places.push(Place {
            part,
            mount: Some(index),
            node: facts.node,
        });
    }
    places
}

fn part_of(facts: &DeviceFacts, mount: &Mount) -> Option<Part> {
    let (major, minor) = number(&facts.sysfs.join("dev"))?;
    let start = match facts.partition {
        None => 0,
        Some(_) => {
            let path = format!("/sys/dev/block/{}:{}/start", facts.major, facts.minor);
            let sectors: u64 = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
            sectors.checked_mul(SECTOR)?
        }
    };
    Some(Part {
        major,
        minor,
        own: (facts.major, facts.minor),
        name: facts.name.clone(),
        range: ByteRange {
            start,
            length: facts.size,
        },
        fstype: mount.fstype.clone(),
        mount_point: mount.mount_point.clone(),
        ..Part::default()
    })
}

/// The devices that a device is made of.
fn devices_below(
    facts: &DeviceFacts,
    above: &Part,
    floors: u32,
    seen: &mut HashSet<(u32, u32)>,
    found: &mut Vec<Place>,
) {
    for slave in &facts.slaves {
        // A name of the kernel's, which has no slash.
        let Some((major, minor)) = number(&Path::new("/sys/class/block").join(slave).join("dev")) else {
            continue;
        };
        let Some(own) = DeviceFacts::read(major, minor).filter(|_| floors > 0 && seen.insert((major, minor)))
        else {
            continue;
        };
        let mount = Mount {
            id: 0,
            parent: 0,
            major,
            minor,
            root: FilePath::default(),
            mount_point: above.mount_point.clone(),
            fstype: above.fstype.clone(),
            source: FilePath::default(),
            overlay: None,
            is_remote: false,
        };
        if let Some(mut part) = part_of(&own, &mount) {
            part.unfinished = Some(format!(
                "{} is made of it by the device mapper or RAID, which is not looked into",
                above.name
            ));
            found.push(Place {
                part,
                mount: None,
                node: None,
            });
        }
        devices_below(&own, above, floors - 1, seen, found);
    }
}

/// `major:minor` in a file of sysfs.
fn number(path: &Path) -> Option<(u32, u32)> {
    let text = std::fs::read_to_string(path).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Looks for the owners of bytes of a part, counted from where its file system begins. What is not found is
/// in none of [`Part::owned`]; [`Part::unfinished`] says why not everything was looked at.
pub fn find(
    mounts: &MountTable,
    place: Place,
    wanted: &[ByteRange],
    named: &Named,
    deadline: Instant,
    progress: Progress<'_>,
) -> Part {
    let mut part = place.part;
    let Some(mount) = place.mount.and_then(|index| mounts.all().get(index)) else {
        return part;
    };
    // Files that are not what they were own nothing by their old names.
    let mut named = named.clone();
    named.retain(|inode, path| pin(mounts, path.as_path()).is_ok_and(|(_, stat)| stat.inode == *inode));
    let named = &named;
    let mut claims = Claims::new(wanted, deadline, progress);
    if let Err(error) = ask_file_system(mounts, mount, place.node.as_deref(), &mut claims, named) {
        // The places of files are told without it.
        for path in named.values() {
            let _ = walk::file(mounts, path, &mut Mapper::new(), &mut claims);
        }
        claims.give_up(error);
    }
    if let Ok(root) = open_root(mounts, mount) {
        let by_handle = |tree, inode| {
            let pinned = names::by_number(root.as_fd(), &mount.fstype, tree, inode)?;
            names::path_of(mounts, pinned.as_fd())
        };
        let is_btrfs = mount.fstype == "btrfs";
        for (tree, inode) in claims.nameless() {
            let path = match named.get(&inode) {
                // On btrfs numbers are those of a subvolume.
                Some(path) if !is_btrfs => Some(path.clone()),
                _ => by_handle(tree, inode),
            };
            if let Some(path) = path {
                claims.name(tree, inode, path);
            }
        }
        walk::name(mounts, mount, &mut claims, |tree, inode, path| match is_btrfs {
            true => by_handle(tree, inode),
            false => Some(path.clone()),
        });
    }
    (part.files, part.owned, part.unfinished) = claims.finish();
    part
}

fn ask_file_system(
    mounts: &MountTable,
    mount: &Mount,
    node: Option<&Path>,
    claims: &mut Claims,
    named: &Named,
) -> Result<(), String> {
    let node = node.ok_or_else(|| format!("{} has no device node", mount.mount_point));
    let cannot =
        |node: &Path, error: io::Error| format!("cannot read {}: {error}; run it as root", node.display());
    let raw = || {
        let node = node.clone()?;
        Raw::open(node).map_err(|error| cannot(node, error))
    };
    match mount.fstype.as_str() {
        "ext2" | "ext3" | "ext4" => {
            let node = node.clone()?;
            let fs = Ext4::open(node).map_err(|error| format!("{}: {error}", node.display()))?;
            ext4::claim(&fs, claims, named);
        }
        "xfs" => {
            let mut raw = raw()?;
            let failed = |error: io::Error| format!("{}: {error}", mount.mount_point);
            let geometry = xfs::Geometry::parse(raw.read(0, 512).map_err(failed)?)?;
            xfs::claim_fixed(&geometry, claims);
            by_path(mounts, claims, named);
            xfs::claim_metadata(&geometry, &mut raw, claims).map_err(failed)?;
            walk::claim(mounts, mount, claims);
        }
        "btrfs" => {
            let failed = |error: io::Error| format!("{}: {error}", mount.mount_point);
            let root = open_root(mounts, mount).map_err(|skip| format!("{}: {skip}", mount.mount_point))?;
            btrfs::claim(mounts, root.as_fd(), &mut raw()?, claims, named).map_err(failed)?;
        }
        _ => {
            by_path(mounts, claims, named);
            walk::claim(mounts, mount, claims);
            if !claims.is_over() {
                claims.give_up(format!("metadata of {} is not told apart", mount.fstype));
            }
        }
    }
    Ok(())
}

/// Claims the data of files that are known.
fn by_path(mounts: &MountTable, claims: &mut Claims, named: &Named) {
    let mut mapper = Mapper::new();
    for path in named.values() {
        if claims.is_over() {
            return;
        }
        // What tells no places, or is not there any more, claims nothing.
        let _ = walk::file(mounts, path, &mut mapper, claims);
    }
}
