//! One inode (Documentation/filesystems/ext4/inodes.rst).

use super::Ext4Error;
use super::bytes::{u16_at, u32_at, wide};

const FLAG_ENCRYPTED: u32 = 0x800;
const FLAG_INDEX: u32 = 0x1000;
const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_INLINE: u32 = 0x1000_0000;
const FLAG_CASEFOLD: u32 = 0x4000_0000;

/// Below this length a symbolic link's target is in the inode.
const FAST_SYMLINK: u64 = 60;

/// One inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    bytes: Vec<u8>,
    mode: u16,
    flags: u32,
    /// Size in bytes.
    pub size: u64,
    /// The block of its extended attributes, 0 for none.
    pub attributes: u64,
}

impl Inode {
    /// Reads an inode's bytes, at least 128.
    pub fn parse(bytes: Vec<u8>) -> Result<Inode, Ext4Error> {
        let bad = Ext4Error::Damaged {
            what: "inode (too short)",
        };
        if bytes.len() < 128 {
            return Err(bad);
        }
        let long = |at| u32_at(&bytes, at).unwrap_or(0);
        let mode = u16_at(&bytes, 0).unwrap_or(0);
        let (mode_type, size_high) = (mode & 0xF000, long(0x6C));
        // In ext2 the upper half of a directory's size was its access control list.
        let size_high = if mode_type == 0x8000 || mode_type == 0x4000 {
            size_high
        } else {
            0
        };
        let attributes = wide(long(0x68), u16_at(&bytes, 0x76).unwrap_or(0).into());
        Ok(Inode {
            mode,
            flags: long(0x20),
            size: wide(long(0x4), size_high),
            attributes,
            bytes,
        })
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.mode & 0xF000 == 0x4000
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & 0xF000 == 0x8000
    }

    /// Whether it is a symbolic link whose target is in a block of its own.
    pub fn is_slow_symlink(&self) -> bool {
        self.mode & 0xF000 == 0xA000 && (self.size >= FAST_SYMLINK || self.has_extents())
    }

    /// Whether its data is in the inode itself.
    pub fn is_inline(&self) -> bool {
        self.flags & FLAG_INLINE != 0
    }

    /// Whether its blocks are found by an extent tree.
    pub fn has_extents(&self) -> bool {
        self.flags & FLAG_EXTENTS != 0
    }

    /// Whether it is a directory with an index of hashes that can be computed from names.
    pub fn is_indexed(&self) -> bool {
        self.flags & FLAG_INDEX != 0 && self.flags & (FLAG_ENCRYPTED | FLAG_CASEFOLD) == 0
    }

    /// The 60 bytes that hold block numbers or the root of the extent tree.
    pub fn block_area(&self) -> &[u8] {
        &self.bytes[0x28..0x28 + 60]
    }
}
