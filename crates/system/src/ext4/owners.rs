//! Whose the blocks are: what the file system itself uses, group by group, and those of each inode.

use super::blocks::{self, Run};
use super::bytes::{u16_at, u32_at, wide};
use super::inode::Inode;
use super::{Ext4, Ext4Error, ReadAt};
use headstart_model::machine::ByteRange;

/// The inode whose blocks are room for more group descriptors.
pub const RESIZE_INODE: u64 = 7;
/// The inode table of a group was never written, and none of it is in use.
const INODE_UNINIT: u16 = 0x1;

/// What the file system itself uses blocks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// A super block or its copy.
    SuperBlock,
    /// Group descriptors, copies of them, and room for more.
    Groups,
    /// Which blocks or inodes are in use.
    Bitmap,
    /// Inodes.
    Inodes,
}

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Something that has no blocks of data.
    Other,
}

/// The blocks of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeBlocks {
    /// What it is.
    pub kind: InodeKind,
    /// Those that hold the map of its blocks, beyond what is in the inode.
    pub map: Vec<u64>,
    /// Those of its data, entries or target that were written.
    pub data: Vec<Run>,
    /// The one with its extended attributes.
    pub attributes: Option<u64>,
}

impl<S: ReadAt> Ext4<S> {
    /// What the file system itself uses of a group, and for the first group what is before it.
    pub fn areas(&self, group: u64) -> Result<Vec<(Area, ByteRange)>, Ext4Error> {
        let geometry = &self.geometry;
        let first = geometry.group_start(group);
        let mut areas = Vec::new();
        let mut add = |area, block: u64, count: u64| -> Result<(), Ext4Error> {
            let start = geometry.byte_of(block)?;
            // The last group may end before what it has room for.
            let count = count.min(geometry.blocks - block);
            let length = count * geometry.block_size;
            areas.push((area, ByteRange { start, length }));
            Ok(())
        };
        if group == 0 {
            // The boot block too.
            add(Area::SuperBlock, 0, u64::from(geometry.first_data_block()) + 1)?;
        } else if geometry.has_super(group) {
            add(Area::SuperBlock, first, 1)?;
        }
        if let Some((block, count)) = geometry.descriptor_blocks(group) {
            add(Area::Groups, block, count)?;
        }
        let descriptor = self.descriptor(group)?;
        let block = |at: usize| self.wide_field(&descriptor, at);
        add(Area::Bitmap, block(0x0), 1)?;
        add(Area::Bitmap, block(0x4), 1)?;
        add(Area::Inodes, block(0x8), geometry.inode_table_blocks())?;
        Ok(areas)
    }

    /// The inodes of a group that are in use.
    pub fn inodes_in_use(&self, group: u64) -> Result<Vec<u64>, Ext4Error> {
        let descriptor = self.descriptor(group)?;
        let flags = u16_at(&descriptor, 0x12).unwrap_or(0);
        if self.geometry.has_group_flags() && flags & INODE_UNINIT != 0 {
            return Ok(Vec::new());
        }
        let bitmap = self.block(self.wide_field(&descriptor, 0x4))?;
        let per_group = self.geometry.inodes_per_group();
        let bits = bitmap.iter().enumerate().flat_map(|(at, byte)| {
            (0..8)
                .filter(move |bit| byte >> bit & 1 == 1)
                .map(move |bit| at * 8 + bit)
        });
        let numbers = bits
            .map(|bit| bit as u64)
            .take_while(|bit| *bit < per_group)
            .map(|bit| group * per_group + bit + 1);
        Ok(numbers.collect())
    }

    /// The blocks of an inode that is in use.
    pub fn blocks_of(&self, number: u64) -> Result<InodeBlocks, Ext4Error> {
        let mut bytes = vec![0; self.geometry.inode_size()];
        self.read(self.place_of(number)?, &mut bytes)?;
        let inode = Inode::parse(bytes)?;
        let limit = inode.size.div_ceil(self.geometry.block_size);
        let kind = match () {
            () if inode.is_directory() => InodeKind::Directory,
            () if inode.is_file() || number == RESIZE_INODE => InodeKind::File,
            () if inode.is_slow_symlink() => InodeKind::Symlink,
            () => InodeKind::Other,
        };
        let map = match kind {
            InodeKind::Other => blocks::Map::default(),
            _ => blocks::map(self, &inode, limit)?,
        };
        Ok(InodeBlocks {
            kind,
            map: map.own,
            data: map.data,
            attributes: Some(inode.attributes).filter(|block| *block != 0),
        })
    }

    fn descriptor(&self, group: u64) -> Result<Vec<u8>, Ext4Error> {
        let first = group
            .checked_mul(self.geometry.inodes_per_group())
            .and_then(|inodes| inodes.checked_add(1))
            .ok_or(Ext4Error::Damaged { what: "group" })?;
        let mut descriptor = vec![0; self.geometry.descriptor_size()];
        self.read(self.geometry.descriptor(first)?, &mut descriptor)?;
        Ok(descriptor)
    }

    /// A block number of a group descriptor, of which the upper half is 32 bytes on.
    fn wide_field(&self, descriptor: &[u8], at: usize) -> u64 {
        let high = match descriptor.len() >= 64 {
            true => u32_at(descriptor, at + 0x20).unwrap_or(0),
            false => 0,
        };
        wide(u32_at(descriptor, at).unwrap_or(0), high)
    }
}
