//! The super block: where the groups' inode tables are. Field offsets are those of the kernel's ext4
//! documentation (Documentation/filesystems/ext4: super.rst, group_descr.rst).

use super::bytes::{u16_at, u32_at, wide};
use super::{Ext4Error, Superblock};

const COMPAT_HAS_JOURNAL: u32 = 0x4;
const COMPAT_RESIZE_INODE: u32 = 0x10;
const COMPAT_SPARSE_SUPER2: u32 = 0x200;
const INCOMPAT_META_BG: u32 = 0x10;
const INCOMPAT_64BIT: u32 = 0x80;
const INCOMPAT_JOURNAL_DEV: u32 = 0x8;
const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
/// Group descriptors have checksums, and with them flags: RO_COMPAT_GDT_CSUM, RO_COMPAT_METADATA_CSUM.
const RO_COMPAT_GROUP_CHECKSUMS: u32 = 0x10 | 0x400;
/// Hashes of names were made with unsigned characters.
const FLAG_UNSIGNED_HASH: u32 = 0x2;

/// What of the super block is needed to find things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a block: 1024 to 65536.
    pub block_size: u64,
    /// Blocks of the file system.
    pub blocks: u64,
    /// The file system's UUID.
    pub uuid: [u8; 16],
    /// Seed of the hash of names in directories.
    pub hash_seed: [u32; 4],
    /// Whether that hash takes characters as unsigned.
    pub hash_unsigned: bool,
    /// The inode of the journal; 0 if it has none of its own.
    pub journal: u64,
    reserved_descriptor_blocks: u64,
    inodes: u32,
    inodes_per_group: u32,
    blocks_per_group: u32,
    first_data_block: u32,
    inode_size: u64,
    descriptor_size: u64,
    meta_bg_from: Option<u64>,
    compat: u32,
    ro_compat: u32,
    backup_groups: [u32; 2],
}

impl Geometry {
    /// Reads the 1024 bytes that begin at byte 1024 of the device.
    pub fn parse(sb: &[u8]) -> Result<Geometry, Ext4Error> {
        let bad = |what: &'static str| Ext4Error::Damaged { what };
        let long = |at| u32_at(sb, at).ok_or(bad("super block (too short)"));
        let short = |at| u16_at(sb, at).ok_or(bad("super block (too short)"));
        let Superblock { uuid, block_size, .. } =
            Superblock::parse(sb).ok_or(bad("super block (no magic number 0xEF53, or no block size)"))?;
        let (compat, incompat, ro_compat) = (long(0x5C)?, long(0x60)?, long(0x64)?);
        if incompat & INCOMPAT_JOURNAL_DEV != 0 {
            return Err(bad("super block (an external journal)"));
        }
        let wide_blocks = incompat & INCOMPAT_64BIT != 0;
        let descriptor_size = if wide_blocks {
            u64::from(short(0xFE)?).max(64)
        } else {
            32
        };
        // Revision 0 had no field for it.
        let inode_size = if long(0x4C)? == 0 {
            128
        } else {
            u64::from(short(0x58)?)
        };
        let (inodes_per_group, blocks_per_group) = (long(0x28)?, long(0x20)?);
        if inodes_per_group == 0 || blocks_per_group == 0 {
            return Err(bad("group size"));
        }
        if inode_size < 128 || inode_size > block_size || !inode_size.is_power_of_two() {
            return Err(bad("inode size"));
        }
        if descriptor_size > block_size || !descriptor_size.is_power_of_two() {
            return Err(bad("size of a group descriptor"));
        }
        let blocks = wide(long(0x4)?, if wide_blocks { long(0x150)? } else { 0 });
        // Their bytes can be counted, by who asks for the last of them too.
        if blocks.checked_mul(block_size).is_none() {
            return Err(bad("number of blocks"));
        }
        let mut hash_seed = [long(0xEC)?, long(0xF0)?, long(0xF4)?, long(0xF8)?];
        if hash_seed == [0; 4] {
            hash_seed = super::hash::DEFAULT_SEED;
        }
        Ok(Geometry {
            block_size,
            blocks,
            uuid,
            hash_seed,
            hash_unsigned: long(0x160)? & FLAG_UNSIGNED_HASH != 0,
            journal: match compat & COMPAT_HAS_JOURNAL {
                0 => 0,
                _ => u64::from(long(0xE0)?),
            },
            reserved_descriptor_blocks: match compat & COMPAT_RESIZE_INODE {
                0 => 0,
                _ => u64::from(short(0xCE)?),
            },
            inodes: long(0x0)?,
            inodes_per_group,
            blocks_per_group,
            first_data_block: long(0x14)?,
            inode_size,
            descriptor_size,
            meta_bg_from: (incompat & INCOMPAT_META_BG != 0).then_some(u64::from(long(0x104)?)),
            compat,
            ro_compat,
            backup_groups: [long(0x24C)?, long(0x250)?],
        })
    }

    /// Where an inode's group descriptor begins on the device, bytes.
    pub fn descriptor(&self, inode: u64) -> Result<u64, Ext4Error> {
        let group = self.index(inode)? / u64::from(self.inodes_per_group);
        let per_block = self.block_size / self.descriptor_size;
        let table_block = group / per_block;
        let block = match self.meta_bg_from {
            Some(from) if table_block >= from => self.meta_descriptor_block(table_block * per_block),
            _ => u64::from(self.first_data_block) + 1 + table_block,
        };
        self.byte_of(block)
            .map(|start| start + group % per_block * self.descriptor_size)
    }

    /// With meta_bg a block of descriptors is at the beginning of the first group that it describes, behind
    /// the copy of the super block if that group has one.
    fn meta_descriptor_block(&self, group: u64) -> u64 {
        let first = u64::from(self.first_data_block) + group * u64::from(self.blocks_per_group);
        // With 1 KiB blocks that are counted from 0, group 0 begins with the boot block.
        let boot = group == 0 && self.block_size == 1024 && self.first_data_block == 0;
        first + u64::from(self.has_super(group)) + u64::from(boot)
    }

    /// Block groups of the file system.
    pub fn groups(&self) -> u64 {
        let blocks = self.blocks.saturating_sub(u64::from(self.first_data_block));
        // No more than there are inodes for.
        let by_inodes = u64::from(self.inodes).div_ceil(u64::from(self.inodes_per_group));
        blocks.div_ceil(u64::from(self.blocks_per_group)).min(by_inodes)
    }

    /// The first block of a group.
    pub fn group_start(&self, group: u64) -> u64 {
        u64::from(self.first_data_block).saturating_add(group.saturating_mul(self.blocks_per_group.into()))
    }

    /// The block that the first group begins with.
    pub fn first_data_block(&self) -> u32 {
        self.first_data_block
    }

    /// Inodes of a group.
    pub fn inodes_per_group(&self) -> u64 {
        self.inodes_per_group.into()
    }

    /// Blocks of a group's inode table.
    pub fn inode_table_blocks(&self) -> u64 {
        (u64::from(self.inodes_per_group) * self.inode_size).div_ceil(self.block_size)
    }

    /// Whether group descriptors tell what was never written.
    pub fn has_group_flags(&self) -> bool {
        self.ro_compat & RO_COMPAT_GROUP_CHECKSUMS != 0
    }

    /// The blocks of a group that hold group descriptors or are kept for them: the first, and how many.
    pub fn descriptor_blocks(&self, group: u64) -> Option<(u64, u64)> {
        let per_block = self.block_size / self.descriptor_size;
        let blocks = self.groups().div_ceil(per_block);
        let (old, meta) = match self.meta_bg_from {
            Some(from) => (blocks.min(from), true),
            None => (blocks.saturating_add(self.reserved_descriptor_blocks), false),
        };
        let behind_super = self
            .group_start(group)
            .saturating_add(u64::from(self.has_super(group)));
        // With meta_bg copies are in the second and last of the groups that a block describes.
        let place = group % per_block;
        let is_meta = meta && group / per_block >= old && (place <= 1 || place + 1 == per_block);
        match (is_meta, self.has_super(group)) {
            (true, _) if group == 0 => Some((self.meta_descriptor_block(0), 1)),
            (true, _) => Some((behind_super, 1)),
            (false, true) if old > 0 => Some((behind_super, old)),
            _ => None,
        }
    }

    /// Whether a group begins with a copy of the super block.
    pub(super) fn has_super(&self, group: u64) -> bool {
        if group == 0 {
            return true;
        }
        if self.compat & COMPAT_SPARSE_SUPER2 != 0 {
            return self
                .backup_groups
                .iter()
                .any(|backup| u64::from(*backup) == group);
        }
        let power_of = |base: u64| {
            let mut power = base;
            while power < group {
                power *= base;
            }
            power == group
        };
        self.ro_compat & RO_COMPAT_SPARSE_SUPER == 0 || group == 1 || [3, 5, 7].into_iter().any(power_of)
    }

    /// The first block of the inode table, from a group descriptor.
    pub fn inode_table(&self, descriptor: &[u8]) -> Option<u64> {
        let high = if self.descriptor_size >= 64 {
            u32_at(descriptor, 0x28)?
        } else {
            0
        };
        Some(wide(u32_at(descriptor, 0x8)?, high))
    }

    /// Where an inode is on the device: its first byte, from the first block of its group's inode table.
    pub fn inode(&self, inode: u64, table: u64) -> Result<u64, Ext4Error> {
        let offset = self.index(inode)? % u64::from(self.inodes_per_group) * self.inode_size;
        let block = table
            .checked_add(offset / self.block_size)
            .ok_or(Ext4Error::Damaged { what: "inode table" })?;
        Ok(self.byte_of(block)? + offset % self.block_size)
    }

    /// Bytes of an inode.
    pub fn inode_size(&self) -> usize {
        self.inode_size as usize
    }

    /// Bytes of a group descriptor.
    pub fn descriptor_size(&self) -> usize {
        self.descriptor_size as usize
    }

    fn index(&self, inode: u64) -> Result<u64, Ext4Error> {
        if inode == 0 || inode > u64::from(self.inodes) {
            return Err(Ext4Error::NoInode(inode));
        }
        Ok(inode - 1)
    }

    /// The first byte of a block of this file system.
    pub fn byte_of(&self, block: u64) -> Result<u64, Ext4Error> {
        if block >= self.blocks {
            return Err(Ext4Error::Damaged {
                what: "block number beyond the end",
            });
        }
        block
            .checked_mul(self.block_size)
            .ok_or(Ext4Error::Damaged { what: "block number" })
    }
}
