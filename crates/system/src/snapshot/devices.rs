//! The devices of a snapshot: their cost, their file system's UUID, and where ext2/3/4 keeps metadata.

use super::Options;
use super::walk::Node;
use crate::device::{DeviceFacts, Guess, default_cost, request_limit, sequential_cutoff};
use crate::ext4::{Ext4, Superblock, Want};
use crate::mounts::{Mount, MountTable};
use crate::open::open_root;
use headstart_model::FilePath;
use headstart_model::machine::{ByteRange, Compression, Device, DeviceClass};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What a device is known by to whoever keeps measured costs.
#[derive(Clone, Debug)]
pub struct DeviceIdentity {
    /// Facts from sysfs; `None` where there is no block device (an overlay whose layers cannot be seen).
    pub facts: Option<DeviceFacts>,
    /// UUID of the file system, zeros where unknown.
    pub uuid: [u8; 16],
    /// Type of the file system.
    pub fstype: String,
    /// Where it is mounted.
    pub mount_point: FilePath,
    /// The class that the facts suggest.
    pub guess: Guess,
}

/// The devices met so far, by mount.
pub struct DeviceTable<'a> {
    mounts: &'a MountTable,
    options: &'a Options<'a>,
    devices: Vec<(Device, Option<Ext4>)>,
    by_number: HashMap<(u32, u32), u32>,
}

impl<'a> DeviceTable<'a> {
    /// No devices yet.
    pub fn new(mounts: &'a MountTable, options: &'a Options<'a>) -> DeviceTable<'a> {
        DeviceTable {
            mounts,
            options,
            devices: Vec::new(),
            by_number: HashMap::new(),
        }
    }

    /// The devices.
    pub fn into_devices(self) -> Vec<Device> {
        self.devices.into_iter().map(|(device, _)| device).collect()
    }

    /// The index of the device that a mount reads from.
    pub fn index(&mut self, mount: usize) -> u32 {
        let mount = &self.mounts.all()[mount];
        let number = (mount.major, mount.minor);
        if let Some(index) = self.by_number.get(&number) {
            return *index;
        }
        let index = self.devices.len() as u32;
        self.devices
            .push(self.read_device(self.mounts.by_device(number.0, number.1).unwrap_or(mount)));
        self.by_number.insert(number, index);
        index
    }

    /// The byte ranges that hold a node's metadata; none where they are not known.
    pub fn metadata(&self, device: u32, node: &Node) -> Vec<ByteRange> {
        let Some((_, Some(ext4))) = self.devices.get(device as usize) else {
            return Vec::new();
        };
        let names: Vec<&[u8]> = node.names.iter().map(Vec::as_slice).collect();
        let want = match node {
            Node { list: true, .. } => Want::List,
            Node { data: true, .. } => Want::Data,
            _ if !names.is_empty() => Want::Names(&names),
            _ => Want::Stat,
        };
        ext4.metadata_of(node.inode, &want).unwrap_or_default()
    }

    fn read_device(&self, mount: &Mount) -> (Device, Option<Ext4>) {
        let facts = DeviceFacts::of_mount(mount);
        let node = facts.as_ref().and_then(|facts| facts.node.as_deref());
        let ext4 = node
            .filter(|_| self.options.metadata && found_by_block(mount, facts.as_ref()))
            .and_then(open_ext4);
        let uuid = match &ext4 {
            Some(ext4) => ext4.geometry().uuid,
            None => uuid(self.mounts, mount, node),
        };
        let guess = facts.as_ref().map_or_else(
            || Guess {
                class: DeviceClass::Flash,
                told: false,
                reason: "it has no block device".into(),
            },
            DeviceFacts::guess,
        );
        let limit = request_limit(mount, facts.as_ref(), &uuid);
        let node = node.map_or_else(FilePath::default, FilePath::from);
        let sequential_cutoff = facts.as_ref().and_then(sequential_cutoff);
        let identity = DeviceIdentity {
            facts,
            uuid,
            fstype: mount.fstype.clone(),
            mount_point: mount.mount_point.clone(),
            guess,
        };
        let usual = || match &identity.facts {
            Some(facts) => facts.usual_cost(),
            None => default_cost(identity.guess.class),
        };
        let (cost, first_touch) = (self.options.costs)(&identity).unwrap_or_else(|| (usual(), None));
        let device = Device {
            major: mount.major,
            minor: mount.minor,
            node,
            mount_point: identity.mount_point.clone(),
            fstype: identity.fstype.clone(),
            uuid,
            cost,
            first_touch: first_touch.filter(|_| has_addresses(&identity.fstype)),
            request_limit: limit,
            sequential_cutoff,
            metadata_by_block: ext4.is_some(),
            compression: compression(self.mounts, mount),
        };
        (device, ext4)
    }
}

/// Whether where this file system says that a file lies is where it lies on the device: btrfs has addresses
/// of its own.
fn has_addresses(fstype: &str) -> bool {
    matches!(fstype, "ext2" | "ext3" | "ext4" | "xfs")
}

/// Whether the file system looks for its metadata in the block device's page cache: the ext4 driver does,
/// which serves ext2 and ext3 too on most kernels. The ext2 driver keeps directories in page caches of their
/// own.
fn found_by_block(mount: &Mount, facts: Option<&DeviceFacts>) -> bool {
    let driver = |facts: &DeviceFacts| {
        Path::new("/sys/fs/ext4")
            .join(facts.name.replace('/', "!"))
            .is_dir()
    };
    match mount.fstype.as_str() {
        "ext4" => true,
        "ext2" | "ext3" => facts.is_some_and(driver),
        _ => false,
    }
}

fn open_ext4(node: &Path) -> Option<Ext4> {
    Ext4::open(node).ok()
}

/// A mounted file system's UUID: from the kernel (6.9 and later), else from the super block if that can be
/// read.
fn uuid(mounts: &MountTable, mount: &Mount, node: Option<&Path>) -> [u8; 16] {
    let root = open_root(mounts, mount).ok();
    let told = root.and_then(|fd| crate::sys::fs_uuid(fd.as_fd()).ok());
    told.or_else(|| uuid_on_device(&mount.fstype, node?))
        .unwrap_or_default()
}

/// By which blocks a SquashFS compresses: statfs(2) gives those of its superblock. EROFS tells the compressed
/// places of each file as extents.
fn compression(mounts: &MountTable, mount: &Mount) -> Option<Compression> {
    if mount.fstype != "squashfs" {
        return None;
    }
    let root = open_root(mounts, mount).ok()?;
    let block = rustix::fs::fstatvfs(root).ok()?.f_bsize;
    Compression::of_blocks(block)
}

/// What tells a SquashFS, which has no UUID, from another: how many inodes it has, when it was made, and how
/// large it is (`squashfs_super_block`, fs/squashfs/squashfs_fs.h).
fn squashfs_identity(device: &File) -> Option<[u8; 16]> {
    let mut start = [0; 48];
    device.read_exact_at(&mut start, 0).ok()?;
    let mut identity = [0; 16];
    identity[..8].copy_from_slice(&start[4..12]);
    identity[8..].copy_from_slice(&start[40..48]);
    start.starts_with(b"hsqs").then_some(identity)
}

/// (magic number, where it is, where the UUID is), from the file systems' documentation of their super
/// blocks.
fn uuid_on_device(fstype: &str, node: &Path) -> Option<[u8; 16]> {
    let device = File::open(node).ok()?;
    let (magic, at, uuid_at): (&[u8], u64, u64) = match fstype {
        "ext2" | "ext3" | "ext4" => return Some(Superblock::read(&device).ok()??.uuid),
        "xfs" => (b"XFSB", 0, 32),
        "btrfs" => (b"_BHRfS_M", 0x10040, 0x10020),
        "erofs" => (&[0xE2, 0xE1, 0xF5, 0xE0], 1024, 1024 + 48),
        "squashfs" => return squashfs_identity(&device),
        "f2fs" => (&[0x10, 0x20, 0xF5, 0xF2], 1024, 1024 + 108),
        _ => return None,
    };
    let mut bytes = vec![0; magic.len()];
    device.read_exact_at(&mut bytes, at).ok()?;
    let mut uuid = [0; 16];
    device.read_exact_at(&mut uuid, uuid_at).ok()?;
    (bytes == magic).then_some(uuid)
}
