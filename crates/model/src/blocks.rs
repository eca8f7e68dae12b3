//! What block devices read, and whose the bytes are: what `headstart compare` joins with a plan.

use crate::FilePath;
use crate::machine::ByteRange;
use serde::Serialize;

/// Bytes of a sector as the kernel counts them, whatever those of the device are.
pub const SECTOR: u64 = 512;

/// A read that a block device was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRead {
    /// Major number of the device, a whole one or a partition.
    pub major: u32,
    /// Minor number of the device.
    pub minor: u32,
    /// The bytes, counted on the whole device.
    pub range: ByteRange,
    /// When it was given to the driver, since the trace began; `None` where the clocks cannot be compared.
    /// May be before.
    pub issued_ns: Option<i64>,
    /// When the device had answered; `None` if that was not seen.
    pub completed_ns: Option<i64>,
    /// Whether a process of the start made it: `Some(false)` if somebody else did, `None` if that is not
    /// known.
    pub by_start: Option<bool>,
}

/// What a byte of a device is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Data of a regular file.
    Data,
    /// Entries of a directory, or the index of one.
    Directory,
    /// Where a file's data is: blocks of an extent tree, indirect blocks.
    ExtentBlock,
    /// The target of a symbolic link.
    SymbolicLink,
    /// Extended attributes.
    Attributes,
    /// Inodes: ext2/3/4's inode tables, XFS's inode chunks.
    Inodes,
    /// Which blocks and inodes are in use, ext2/3/4.
    Bitmap,
    /// Group descriptors of ext2/3/4, headers of XFS's allocation groups.
    Groups,
    /// A super block, or a copy of it.
    SuperBlock,
    /// The journal.
    Journal,
    /// XFS's trees of inodes, free space and owners.
    AllocationTree,
    /// btrfs: trees of files, with inodes, directories, small files and the places of data.
    FileTree,
    /// btrfs: checksums.
    ChecksumTree,
    /// btrfs: what is in use, and by whom.
    ExtentTree,
    /// btrfs: where the file system's parts are on the devices.
    ChunkTree,
    /// btrfs: all other trees.
    OtherTree,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 16] = [
        Kind::Data,
        Kind::Directory,
        Kind::ExtentBlock,
        Kind::SymbolicLink,
        Kind::Attributes,
        Kind::Inodes,
        Kind::Bitmap,
        Kind::Groups,
        Kind::SuperBlock,
        Kind::Journal,
        Kind::AllocationTree,
        Kind::FileTree,
        Kind::ChecksumTree,
        Kind::ExtentTree,
        Kind::ChunkTree,
        Kind::OtherTree,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Data => "data",
            Kind::Directory => "directory",
            Kind::ExtentBlock => "extent block",
            Kind::SymbolicLink => "symbolic link",
            Kind::Attributes => "attributes",
            Kind::Inodes => "inodes",
            Kind::Bitmap => "bitmap",
            Kind::Groups => "groups",
            Kind::SuperBlock => "super block",
            Kind::Journal => "journal",
            Kind::AllocationTree => "allocation tree",
            Kind::FileTree => "file tree",
            Kind::ChecksumTree => "checksum tree",
            Kind::ExtentTree => "extent tree",
            Kind::ChunkTree => "chunk tree",
            Kind::OtherTree => "other tree",
        }
    }
}

/// A file that bytes of a device belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwningFile {
    /// Inode number.
    pub inode: u64,
    /// Its path, if that was found.
    pub path: Option<FilePath>,
}

/// Bytes of a file system's device, and whose they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The bytes, counted from where the file system begins.
    pub range: ByteRange,
    /// What they are used for.
    pub kind: Kind,
    /// Whose they are, an index into [`Part::files`]; `None` where they are nobody's alone.
    pub file: Option<u32>,
    /// For [`Kind::Data`] the offset in the file, bytes; else 0.
    pub offset: u64,
}

/// A part of a block device with a mounted file system, and whose its bytes are as far as somebody read them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Major number of the whole device.
    pub major: u32,
    /// Minor number of the whole device.
    pub minor: u32,
    /// Numbers of the part itself: the same, unless it is a partition.
    pub own: (u32, u32),
    /// The kernel's name, such as `sda1`.
    pub name: String,
    /// Where it is on the whole device.
    pub range: ByteRange,
    /// Type of the file system.
    pub fstype: String,
    /// Where it is mounted.
    pub mount_point: FilePath,
    /// The files that own bytes.
    pub files: Vec<OwningFile>,
    /// By their first byte; none overlap.
    pub owned: Vec<Owned>,
    /// Why more could not be found out; `None` if everything was looked at.
    pub unfinished: Option<String>,
}
