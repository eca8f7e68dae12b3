//! Where ext2, ext3 and ext4 keep what has to be read before data can be: inodes, the blocks of extent trees
//! and indirect blocks, directories, extended attributes. These file systems find such blocks in memory if
//! they were read through the block device before, so that thousands of reads one after the other become a
//! few at once.
//!
//! Everything is read through the block device, which shows a mounted file system's current metadata. All of
//! it is taken for possibly damaged: no number leads out of the device, no tree is followed without a limit.

mod blocks;
mod bytes;
mod directory;
mod geometry;
mod hash;
mod inode;
mod owners;
mod superblock;

pub use geometry::Geometry;
pub use owners::{Area, InodeBlocks, InodeKind, RESIZE_INODE};
pub use superblock::Superblock;

use headstart_model::machine::ByteRange;
use inode::Inode;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

/// A directory of at most this many blocks is read whole: they are mostly neighbours, and the kernel itself
/// reads directories without an index in batches of eight.
pub const SMALL_DIRECTORY: u64 = 16;
/// A directory's blocks are listed up to this many: a million names.
const MAX_DIRECTORY: u64 = 1 << 15;
/// Blocks kept in memory while a snapshot is taken: 16 MiB of 4 KiB blocks.
const CACHED_BLOCKS: usize = 4096;

/// Why metadata could not be found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ext4Error {
    /// Something does not look as it should: the file system is damaged, or is none.
    #[error("damaged or no ext2/3/4: {what}")]
    Damaged {
        /// What.
        what: &'static str,
    },
    /// There is no inode of that number.
    #[error("there is no inode {0}")]
    NoInode(u64),
    /// The device cannot be opened or read.
    #[error("cannot read the block device: {0}")]
    Io(String),
}

impl From<io::Error> for Ext4Error {
    fn from(error: io::Error) -> Self {
        Ext4Error::Io(error.to_string())
    }
}

/// Something that can be read at an offset: a block device, an image, a buffer.
pub trait ReadAt {
    /// Fills the buffer from `offset` on.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start
            .checked_add(buffer.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_slice().read_at(buffer, offset)
    }
}

/// What an object is needed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want<'a> {
    /// Its facts, or a symbolic link's target.
    Stat,
    /// A file's data: the map of its blocks too.
    Data,
    /// These names in a directory, whether they are there or not.
    Names(&'a [&'a [u8]]),
    /// All names of a directory.
    List,
}

/// An ext2, ext3 or ext4 on a device that can be read.
pub struct Ext4<S = File> {
    geometry: Geometry,
    source: S,
    cache: RefCell<HashMap<u64, Rc<[u8]>>>,
}

impl Ext4<File> {
    /// Opens the file system on a block device node or in an image file.
    pub fn open(node: &Path) -> Result<Ext4<File>, Ext4Error> {
        Ext4::new(File::open(node)?)
    }
}

impl<S: ReadAt> Ext4<S> {
    /// Reads the super block.
    pub fn new(source: S) -> Result<Ext4<S>, Ext4Error> {
        let mut bytes = vec![0; 1024];
        source.read_at(&mut bytes, 1024)?;
        let geometry = Geometry::parse(&bytes)?;
        Ok(Ext4 {
            geometry,
            source,
            cache: RefCell::default(),
        })
    }

    /// The super block's facts.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The byte ranges of the device that have to be read before the object can be used as wanted, in order,
    /// whole blocks, neighbours joined. Never its data, if it is a regular file.
    pub fn metadata_of(&self, number: u64, want: &Want<'_>) -> Result<Vec<ByteRange>, Ext4Error> {
        let at = self.place_of(number)?;
        let mut blocks = vec![at / self.geometry.block_size];
        let mut bytes = vec![0; self.geometry.inode_size()];
        self.read(at, &mut bytes)?;
        let inode = Inode::parse(bytes)?;
        if inode.attributes != 0 {
            blocks.push(inode.attributes);
        }
        if inode.is_directory() {
            blocks.extend(self.directory(&inode, want)?);
        } else if inode.is_slow_symlink() {
            let map = blocks::map(self, &inode, 1)?;
            blocks.extend(map.data.iter().map(|run| run.physical));
        } else if inode.is_file() && *want == Want::Data {
            let limit = inode.size.div_ceil(self.geometry.block_size);
            blocks.extend(blocks::map_blocks(self, &inode, limit)?);
        }
        self.ranges(blocks)
    }

    /// The byte range of the inode-table block that holds an inode.
    pub fn inode_block(&self, number: u64) -> Result<ByteRange, Ext4Error> {
        let start = self.place_of(number)? / self.geometry.block_size * self.geometry.block_size;
        Ok(ByteRange {
            start,
            length: self.geometry.block_size,
        })
    }

    fn directory(&self, inode: &Inode, want: &Want<'_>) -> Result<Vec<u64>, Ext4Error> {
        let count = inode.size.div_ceil(self.geometry.block_size).min(MAX_DIRECTORY);
        let map = blocks::map(self, inode, count)?;
        let mut blocks = map.own.clone();
        let chosen = match want {
            Want::Stat | Want::Data => return Ok(Vec::new()),
            Want::Names(names) if count > SMALL_DIRECTORY && inode.is_indexed() => {
                directory::blocks_of_names(self, &map, names)?
            }
            Want::Names(_) | Want::List => None,
        };
        match chosen {
            Some(logical) => blocks.extend(logical.into_iter().filter_map(|block| map.find(block))),
            None => {
                for run in map.data.iter().filter(|run| run.logical < count) {
                    let length = run.length.min(count - run.logical);
                    blocks.extend(run.physical..run.physical + length);
                }
            }
        }
        Ok(blocks)
    }

    /// Where an inode begins on the device, bytes.
    fn place_of(&self, number: u64) -> Result<u64, Ext4Error> {
        let mut descriptor = vec![0; self.geometry.descriptor_size()];
        self.read(self.geometry.descriptor(number)?, &mut descriptor)?;
        let table = self.geometry.inode_table(&descriptor).ok_or(Ext4Error::Damaged {
            what: "group descriptor",
        })?;
        self.geometry.inode(number, table)
    }

    /// Bytes within one block.
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), Ext4Error> {
        let block = self.block(at / self.geometry.block_size)?;
        let start = (at % self.geometry.block_size) as usize;
        let slice = block
            .get(start..start + bytes.len())
            .ok_or(Ext4Error::Damaged { what: "alignment" })?;
        bytes.copy_from_slice(slice);
        Ok(())
    }

    fn block(&self, number: u64) -> Result<Rc<[u8]>, Ext4Error> {
        if let Some(block) = self.cache.borrow().get(&number) {
            return Ok(Rc::clone(block));
        }
        let mut bytes = vec![0; self.geometry.block_size as usize];
        self.source.read_at(&mut bytes, self.geometry.byte_of(number)?)?;
        let block: Rc<[u8]> = bytes.into();
        let mut cache = self.cache.borrow_mut();
        if cache.len() >= CACHED_BLOCKS {
            cache.clear();
        }
        cache.insert(number, Rc::clone(&block));
        Ok(block)
    }

    fn ranges(&self, mut blocks: Vec<u64>) -> Result<Vec<ByteRange>, Ext4Error> {
        blocks.sort_unstable();
        blocks.dedup();
        let size = self.geometry.block_size;
        let mut ranges: Vec<ByteRange> = Vec::new();
        for block in blocks {
            let start = self.geometry.byte_of(block)?;
            match ranges.last_mut() {
                Some(last) if last.start + last.length == start => last.length += size,
                _ => ranges.push(ByteRange { start, length: size }),
            }
        }
        Ok(ranges)
    }
}

#[cfg(test)]
mod tests;
