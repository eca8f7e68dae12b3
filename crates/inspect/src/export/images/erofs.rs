//! An EROFS image that has the metadata only, as nydus 3 makes it: where the chunks of a file are
//! (fs/erofs/erofs_fs.h of Linux; nydus-format's src/erofs).

use super::{ImageFile, u16_at, u32_at, u64_at};
use std::cell::Cell;
use std::ops::Range;

/// Bytes of a block: nydus makes no other.
pub(super) const BLOCK: u64 = 4096;
const SUPERBLOCK: u64 = 1024;
const MAGIC: u32 = 0xe0f5_e1e2;
/// Feature of RAFS 6, the EROFS of nydus 2.
const COMPAT_RAFS_V6: u32 = 0x4000_0000;
/// Chunks, device table, and what concerns compressed files only: zero padding, big clusters, fragments.
const INCOMPAT_KNOWN: u32 = 0x4 | 0x8 | 0x1 | 0x2 | 0x20;
const DEVICE_SLOT: usize = 128;
const CHUNK_INDEXES: u32 = 0x20;
const CHUNK_BITS: u32 = 0x1f;
const CHUNK_INDEX: usize = 8;
const HOLE: u32 = u32::MAX;

/// Reads of a bootstrap: half a second. A profile with as many files as it may have takes six for each in
/// directories of usual size.
const READS: u32 = 500_000;

/// A blob that holds data.
pub(super) struct Device {
    /// Size in blocks.
    pub(super) blocks: u32,
    /// Its first block, where chunks have addresses in one space.
    mapped: u32,
}

/// The metadata of an image.
pub(super) struct Bootstrap<'a> {
    file: &'a ImageFile<'a>,
    /// Where inode 0 would be.
    inodes: u64,
    root: u64,
    /// In the order of the device table.
    pub(super) devices: Vec<Device>,
    reads: Cell<u32>,
}

/// A file or directory.
#[derive(Clone, Copy)]
pub(super) struct Inode {
    /// Where it is.
    at: u64,
    layout: u16,
    kind: u16,
    /// Size in bytes.
    pub(super) size: u64,
    /// First block, or format of its chunks.
    u: u32,
    /// Bytes of the inode and its attributes.
    header: u64,
}

/// Bytes in a blob.
pub(super) struct InBlob {
    /// Index into [`Bootstrap::devices`].
    pub(super) device: usize,
    pub(super) bytes: Range<u64>,
}

impl<'a> Bootstrap<'a> {
    pub(super) fn read(file: &'a ImageFile<'a>) -> Result<Bootstrap<'a>, String> {
        let block: [u8; 128] = file.array(SUPERBLOCK)?;
        if u32_at(&block, 0) != MAGIC {
            return Err(file.refuse("is no EROFS image: give the bootstrap of the image first"));
        }
        if u32_at(&block, 8) & COMPAT_RAFS_V6 != 0 {
            return Err(file.refuse("is a bootstrap of nydus 2: use --for nydus2"));
        }
        if block[12] != 12 {
            return Err(file.refuse(&format!("has blocks of 2^{} bytes, not of 4096", block[12])));
        }
        let unknown = u32_at(&block, 80) & !INCOMPAT_KNOWN;
        if unknown != 0 {
            return Err(file.refuse(&format!("has features that are not known here: {unknown:#x}")));
        }
        let count = usize::from(u16_at(&block, 86));
        let slots = file.vec(
            u64::from(u16_at(&block, 88)) * DEVICE_SLOT as u64,
            count * DEVICE_SLOT,
        )?;
        let slots = slots.chunks_exact(DEVICE_SLOT);
        Ok(Bootstrap {
            file,
            inodes: u64::from(u32_at(&block, 40)) * BLOCK,
            root: u64::from(u16_at(&block, 14)),
            devices: slots
                .map(|slot| Device {
                    blocks: u32_at(slot, 64),
                    mapped: u32_at(slot, 68),
                })
                .collect(),
            reads: Cell::new(0),
        })
    }

    pub(super) fn root(&self) -> Result<Inode, String> {
        self.inode(self.root)
    }

    pub(super) fn inode(&self, number: u64) -> Result<Inode, String> {
        self.count()?;
        let at = number.checked_mul(32).and_then(|at| at.checked_add(self.inodes));
        let at = at.ok_or_else(|| self.file.refuse(&format!("inode {number} is beyond its end")))?;
        let head: [u8; 32] = self.file.array(at)?;
        let format = u16_at(&head, 0);
        let is_extended = format & 1 == 1;
        let attributes = u64::from(u16_at(&head, 2));
        Ok(Inode {
            at,
            layout: format >> 1 & 7,
            kind: u16_at(&head, 4) & 0o170_000,
            size: match is_extended {
                true => u64_at(&head, 8),
                false => u64::from(u32_at(&head, 8)),
            },
            u: u32_at(&head, 16),
            header: if is_extended { 64 } else { 32 } + if attributes == 0 { 0 } else { attributes * 4 + 8 },
        })
    }

    /// A block of a directory.
    pub(super) fn directory_block(&self, directory: &Inode, index: u64) -> Result<Vec<u8>, String> {
        self.count()?;
        let begin = index.saturating_mul(BLOCK);
        let length = directory.size.saturating_sub(begin).min(BLOCK);
        let is_inline = directory.layout == Inode::INLINE && length < BLOCK;
        let at = match is_inline {
            true => directory.at + directory.header,
            false => begin.saturating_add(u64::from(directory.u) * BLOCK),
        };
        self.file.vec(at, length as usize)
    }

    /// Where these bytes of a file are, in pieces. What lies beyond its end, in holes or in the bootstrap is
    /// nowhere.
    pub(super) fn locate(
        &self,
        file: &Inode,
        bytes: &Range<u64>,
        found: &mut dyn FnMut(InBlob) -> Result<(), String>,
    ) -> Result<(), String> {
        if file.layout != Inode::CHUNKS {
            return Ok(());
        }
        if file.u & CHUNK_INDEXES == 0 {
            return Err(self.file.refuse("has chunks without indices"));
        }
        let chunk = BLOCK << (file.u & CHUNK_BITS);
        let indices = file.at + file.header.next_multiple_of(CHUNK_INDEX as u64);
        let end = bytes.end.min(file.size);
        let mut begin = bytes.start;
        while begin < end {
            self.count()?;
            let number = begin / chunk;
            let index: [u8; CHUNK_INDEX] = self.file.array(indices + number * CHUNK_INDEX as u64)?;
            let (device, block) = (u16_at(&index, 2), u32_at(&index, 4));
            let next = (number + 1).saturating_mul(chunk).min(end);
            if block != HOLE {
                let at = u64::from(block) * BLOCK + begin % chunk;
                found(self.in_blob(device, at..at + (next - begin))?)?;
            }
            begin = next;
        }
        Ok(())
    }

    fn in_blob(&self, device: u16, bytes: Range<u64>) -> Result<InBlob, String> {
        // Addresses of device 0 are in one space, in which each blob has its place.
        let in_space = |device: &Device| {
            let (begin, size) = (u64::from(device.mapped) * BLOCK, u64::from(device.blocks) * BLOCK);
            Some(bytes.start.checked_sub(begin)?..bytes.end.checked_sub(begin)?).filter(|it| it.end <= size)
        };
        let found = match device.checked_sub(1) {
            Some(index) => Some((usize::from(index), bytes.clone())),
            None => {
                let mut devices = self.devices.iter().enumerate();
                devices.find_map(|(index, device)| Some((index, in_space(device)?)))
            }
        };
        match found {
            Some((device, bytes)) if device < self.devices.len() => Ok(InBlob { device, bytes }),
            _ => Err(self.file.refuse(&format!(
                "has a chunk at {} of device {device}, which is in none of its {} blobs",
                bytes.start,
                self.devices.len()
            ))),
        }
    }

    /// Counts a step, which is a read or as quick.
    pub(super) fn count(&self) -> Result<(), String> {
        let reads = self.reads.get() + 1;
        self.reads.set(reads);
        match reads {
            ..=READS => Ok(()),
            _ => Err(self.file.refuse(&format!("is read in more than {READS} places"))),
        }
    }

    pub(super) fn refuse(&self, why: &str) -> String {
        self.file.refuse(why)
    }
}

impl Inode {
    const INLINE: u16 = 2;
    const CHUNKS: u16 = 4;

    pub(super) fn is_file(&self) -> bool {
        self.kind == 0o100_000
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == 0o040_000
    }

    /// Whether its data is compressed by EROFS, and so not in chunks.
    pub(super) fn is_compressed(&self) -> bool {
        matches!(self.layout, 1 | 3)
    }
}
