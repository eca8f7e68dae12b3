//! From an inode's blocks to the device's: the extent tree of ext4, the indirect blocks of ext2 and ext3.
//! Both give the blocks that hold the map itself, which have to be read before the data can be found, and the
//! data's.

use super::bytes::{u16_at, u32_at, wide};
use super::inode::Inode;
use super::{Ext4, Ext4Error, ReadAt};

/// An extent tree's root is at most this far above its leaves (EXT4_MAX_EXTENT_DEPTH).
const MAX_DEPTH: u16 = 5;
/// Blocks of a map that are listed at most: the map of 1 TiB in extents of 1 MiB, or of 256 GiB in indirect
/// blocks. Damaged trees can refer to themselves; this ends it.
const MAX_MAP_BLOCKS: usize = 1 << 16;
/// Runs of data that are listed at most, as with FIEMAP: a file in more pieces than that is fragmented so
/// badly that no order of reading it matters.
const MAX_RUNS: usize = crate::extents::MAX_EXTENTS;

/// A run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First block in the file.
    pub logical: u64,
    /// First block on the device.
    pub physical: u64,
    /// Number of blocks.
    pub length: u64,
}

/// Where a file's blocks are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Blocks of the device that hold the map, beyond what is in the inode.
    pub own: Vec<u64>,
    /// Where the data is; empty if that was not asked for.
    pub data: Vec<Run>,
    own_only: bool,
}

impl Map {
    /// The device's block of a block of the file.
    pub fn find(&self, logical: u64) -> Option<u64> {
        let run = self
            .data
            .iter()
            .find(|run| (run.logical..run.logical + run.length).contains(&logical))?;
        Some(run.physical + (logical - run.logical))
    }

    fn own_block(&mut self, block: u64) -> Result<(), Ext4Error> {
        if self.own.len() >= MAX_MAP_BLOCKS {
            return Err(Ext4Error::Damaged {
                what: "block map (too large)",
            });
        }
        self.own.push(block);
        Ok(())
    }

    fn data_run(&mut self, logical: u64, physical: u64, length: u64) -> Result<(), Ext4Error> {
        let full = self.data.len() >= MAX_RUNS;
        match self.data.last_mut() {
            Some(last)
                if last.logical + last.length == logical && last.physical + last.length == physical =>
            {
                last.length += length;
            }
            _ if full => {
                return Err(Ext4Error::Damaged {
                    what: "block map (too many pieces)",
                });
            }
            _ => self.data.push(Run {
                logical,
                physical,
                length,
            }),
        }
        Ok(())
    }
}

/// The map of an inode. `limit` is the number of the file's blocks that are of interest: indirect blocks list
/// beyond a file's end what is to be ignored.
pub fn map<S: ReadAt>(fs: &Ext4<S>, inode: &Inode, limit: u64) -> Result<Map, Ext4Error> {
    build(fs, inode, limit, Map::default())
}

/// The blocks that hold the map of an inode, without reading the lowest of them.
pub fn map_blocks<S: ReadAt>(fs: &Ext4<S>, inode: &Inode, limit: u64) -> Result<Vec<u64>, Ext4Error> {
    Ok(build(
        fs,
        inode,
        limit,
        Map {
            own_only: true,
            ..Map::default()
        },
    )?
    .own)
}

fn build<S: ReadAt>(fs: &Ext4<S>, inode: &Inode, limit: u64, mut map: Map) -> Result<Map, Ext4Error> {
    if inode.is_inline() {
        return Ok(map);
    }
    if inode.has_extents() {
        extents(fs, inode.block_area(), None, &mut map)?;
    } else {
        indirect(fs, inode.block_area(), limit, &mut map)?;
    }
    Ok(map)
}

/// A node of an extent tree. `below` is the depth it must have, known from the node above.
fn extents<S: ReadAt>(fs: &Ext4<S>, node: &[u8], below: Option<u16>, map: &mut Map) -> Result<(), Ext4Error> {
    let bad = Ext4Error::Damaged { what: "extent tree" };
    let field = |at| u16_at(node, at).ok_or(bad.clone());
    let (magic, entries, depth) = (field(0)?, usize::from(field(2)?), field(6)?);
    let room = node.len() / 12 - 1;
    if magic != 0xF30A || entries > room || depth > MAX_DEPTH || below.is_some_and(|below| below != depth) {
        return Err(bad);
    }
    for entry in node[12..].chunks_exact(12).take(entries) {
        let long = |at| u32_at(entry, at).unwrap_or(0);
        let short = |at| u16_at(entry, at).unwrap_or(0);
        if depth > 0 {
            let block = wide(long(4), short(8).into());
            map.own_block(block)?;
            if depth == 1 && map.own_only {
                continue;
            }
            extents(fs, &fs.block(block)?, Some(depth - 1), map)?;
            continue;
        }
        let (length, start) = (u64::from(short(4)), wide(long(8), short(6).into()));
        // More than 32768 means that many fewer blocks, allocated but never written.
        if length <= 32768 && length > 0 && !map.own_only {
            fs.geometry.byte_of(start + length - 1)?;
            map.data_run(long(0).into(), start, length)?;
        }
    }
    Ok(())
}

/// Twelve blocks, then one each with one, two and three levels of indirection.
fn indirect<S: ReadAt>(fs: &Ext4<S>, area: &[u8], limit: u64, map: &mut Map) -> Result<(), Ext4Error> {
    let mut logical = 0;
    for slot in 0..15 {
        let block = u64::from(u32_at(area, slot * 4).unwrap_or(0));
        level(
            fs,
            block,
            slot.saturating_sub(11) as u32,
            limit,
            &mut logical,
            map,
        )?;
    }
    Ok(())
}

fn level<S: ReadAt>(
    fs: &Ext4<S>,
    block: u64,
    levels: u32,
    limit: u64,
    logical: &mut u64,
    map: &mut Map,
) -> Result<(), Ext4Error> {
    let per_block = fs.geometry.block_size / 4;
    let spans = per_block.pow(levels);
    if *logical >= limit || block == 0 {
        *logical = logical.saturating_add(spans);
        return Ok(());
    }
    fs.geometry.byte_of(block)?;
    if levels == 0 {
        if !map.own_only {
            map.data_run(*logical, block, 1)?;
        }
        *logical += 1;
        return Ok(());
    }
    map.own_block(block)?;
    if levels == 1 && map.own_only {
        *logical = logical.saturating_add(spans);
        return Ok(());
    }
    for entry in fs.block(block)?.chunks_exact(4) {
        level(
            fs,
            u32_at(entry, 0).unwrap_or(0).into(),
            levels - 1,
            limit,
            logical,
            map,
        )?;
    }
    Ok(())
}
