//! The bytes behind a modelled disk: an image file that is not changed, and what was written since, in
//! memory.
//!
//! Writes go to the overlay, so every fresh attach starts from the same bytes without copying the image. What
//! becomes of them then is for [`Writes`] to say.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use anyhow::{Context, Result, ensure};
use rustix::fs::{SeekFrom, seek};

use super::block::{BLOCK, Blocks};
use super::delta::Delta;
use crate::model::MAX_REQUEST;

/// Buffers above this size are kept for the next request: fresh ones would cost a page fault for every 4 KiB
/// of them.
const POOLED: usize = 64 << 10;

/// What becomes of the bytes written to a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Writes {
    /// Forgotten at the next fresh attach.
    Forget,
    /// Kept in this file, beside the image, each time [`Backing::commit`] is called; what was written after
    /// the last such call is forgotten. The file is made when missing.
    Delta(PathBuf),
    /// Written into the image.
    Image,
}

/// What a read returned.
#[derive(Debug)]
pub struct Data {
    buffer: Vec<u8>,
    length: usize,
}

impl std::ops::Deref for Data {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

/// An image with its overlay.
#[derive(Debug)]
pub struct Backing {
    pub(super) file: File,
    size: u64,
    through: bool,
    pub(super) overlay: RwLock<Blocks>,
    /// What blocks held that were written since the last flush, before they were; `None` where the image had
    /// them.
    unflushed: Mutex<HashMap<u64, Option<Arc<[u8]>>>>,
    /// Writes that outlive this process, and their file.
    kept: Mutex<Option<(Delta, Blocks)>>,
    pool: Mutex<Vec<Vec<u8>>>,
    /// Holes of the image in order, so that reading one costs no page cache. Unknown (empty) when writes go
    /// through.
    holes: Vec<Range<u64>>,
}

impl Backing {
    /// Opens an image.
    pub fn open(path: &Path, writes: &Writes) -> Result<Backing> {
        let through = *writes == Writes::Image;
        let shown = path.display();
        let file = OpenOptions::new()
            .read(true)
            .write(through)
            .open(path)
            .with_context(|| format!("disk image {shown}"))?;
        // The size in whole blocks, as a block device has it.
        let size = file.metadata()?.len() / BLOCK * BLOCK;
        ensure!(
            size > 0,
            "disk image {shown}: shorter than one block of 4096 bytes"
        );
        let holes = if through { Vec::new() } else { holes(&file, size)? };
        let kept = match writes {
            Writes::Delta(path) => Some(Delta::open(path, &file)?),
            Writes::Forget | Writes::Image => None,
        };
        let overlay = kept
            .as_ref()
            .map_or_else(Blocks::new, |(_, blocks)| blocks.clone());
        Ok(Backing {
            file,
            size,
            through,
            overlay: RwLock::new(overlay),
            unflushed: Mutex::default(),
            kept: Mutex::new(kept),
            pool: Mutex::default(),
            holes,
        })
    }

    /// Bytes of the device.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads the whole image once, so that no later read waits for the disk below.
    pub fn warm(&self) -> io::Result<()> {
        let mut at = 0;
        while at < self.size {
            let data = self.read(at, MAX_REQUEST as usize)?;
            at += data.len() as u64;
            self.recycle(data);
        }
        Ok(())
    }

    /// Forgets what was written since the last [`Backing::commit`], or ever.
    pub fn reset(&self) {
        let kept = self.kept();
        let blocks = kept
            .as_ref()
            .map_or_else(Blocks::new, |(_, blocks)| blocks.clone());
        *self.overlay.write().unwrap_or_else(PoisonError::into_inner) = blocks;
        self.flush();
    }

    /// What was written up to now survives a power cut.
    pub fn flush(&self) {
        self.unflushed().clear();
    }

    pub(super) fn unflushed(&self) -> MutexGuard<'_, HashMap<u64, Option<Arc<[u8]>>>> {
        self.unflushed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what has been written so far: in the delta or in the image; with [`Writes::Forget`] that is an
    /// error. After an error or a kill, what was kept before is kept still.
    pub fn commit(&self) -> Result<()> {
        if self.through {
            return self.file.sync_all().context("syncing the disk image");
        }
        let written = self.overlay.read().unwrap_or_else(PoisonError::into_inner);
        let written = written.clone();
        self.keep(written)
    }

    pub(super) fn keep(&self, written: Blocks) -> Result<()> {
        let mut kept = self.kept();
        let (delta, blocks) = kept
            .as_mut()
            .context("this disk forgets what is written: it has no delta to keep it in")?;
        delta.save(&written)?;
        *blocks = written;
        Ok(())
    }

    fn kept(&self) -> MutexGuard<'_, Option<(Delta, Blocks)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads up to `length` bytes; short at the end of the device.
    pub fn read(&self, offset: u64, length: usize) -> io::Result<Data> {
        let length = (self.size.saturating_sub(offset)).min(length as u64) as usize;
        let mut buffer = self.buffer(length);
        let data = &mut buffer[..length];
        if self.is_hole(offset, length as u64) {
            data.fill(0);
        } else {
            self.file.read_exact_at(data, offset)?;
        }
        let overlay = self.overlay.read().unwrap_or_else(PoisonError::into_inner);
        if length == 0 || overlay.is_empty() {
            return Ok(Data { buffer, length });
        }
        for block in offset / BLOCK..=(offset + length as u64 - 1) / BLOCK {
            if let Some(written) = overlay.get(&block) {
                let (start, end) = span(block, offset, length);
                let within = (start - block * BLOCK) as usize;
                let target = (start - offset) as usize..(end - offset) as usize;
                let count = target.len();
                data[target].copy_from_slice(&written[within..within + count]);
            }
        }
        Ok(Data { buffer, length })
    }

    fn is_hole(&self, offset: u64, length: u64) -> bool {
        let next = self.holes.partition_point(|hole| hole.end <= offset);
        self.holes
            .get(next)
            .is_some_and(|hole| hole.start <= offset && offset + length <= hole.end)
    }

    /// Gives a buffer back for the next read.
    pub fn recycle(&self, data: Data) {
        if data.buffer.len() == MAX_REQUEST as usize {
            self.pool
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(data.buffer);
        }
    }

    fn buffer(&self, length: usize) -> Vec<u8> {
        if length <= POOLED || length > MAX_REQUEST as usize {
            return vec![0; length];
        }
        let pooled = self.pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        pooled.unwrap_or_else(|| vec![0; MAX_REQUEST as usize])
    }

    /// Writes; beyond the end of the device is an error.
    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset + data.len() as u64 > self.size {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        if self.through {
            return self.file.write_all_at(data, offset);
        }
        if data.is_empty() {
            return Ok(());
        }
        let mut overlay = self.overlay.write().unwrap_or_else(PoisonError::into_inner);
        for block in offset / BLOCK..=(offset + data.len() as u64 - 1) / BLOCK {
            let (start, end) = span(block, offset, data.len());
            let source = &data[(start - offset) as usize..(end - offset) as usize];
            self.unflushed()
                .entry(block)
                .or_insert_with(|| overlay.get(&block).cloned());
            let copy = match overlay.entry(block) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let mut whole = [0; BLOCK as usize];
                    if source.len() < whole.len() {
                        self.file.read_exact_at(&mut whole, block * BLOCK)?;
                    }
                    entry.insert(Arc::new(whole))
                }
            };
            // A block that is also in the delta is copied first.
            let copy = Arc::make_mut(copy);
            let within = (start - block * BLOCK) as usize;
            copy[within..within + source.len()].copy_from_slice(source);
        }
        Ok(())
    }
}

/// The holes of a sparse file of `size` bytes.
fn holes(file: &File, size: u64) -> io::Result<Vec<Range<u64>>> {
    let mut holes = Vec::new();
    let mut at = 0;
    while at < size {
        let start = seek(file, SeekFrom::Hole(at))?.min(size);
        at = match seek(file, SeekFrom::Data(start)) {
            Ok(data) => data.min(size),
            // No data up to the end.
            Err(rustix::io::Errno::NXIO) => size,
            Err(error) => return Err(error.into()),
        };
        if at > start {
            holes.push(start..at);
        }
    }
    Ok(holes)
}

/// The part of `offset..offset + length` that lies in `block`.
fn span(block: u64, offset: u64, length: usize) -> (u64, u64) {
    (
        offset.max(block * BLOCK),
        (offset + length as u64).min((block + 1) * BLOCK),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    pub(in super::super) fn image(blocks: usize) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..blocks * 4096).map(|i| (i / 512) as u8).collect();
        file.write_all(&bytes).unwrap();
        file
    }

    proptest! {
        #[test]
        fn behaves_like_plain_bytes_and_leaves_the_image_alone(
            writes in prop::collection::vec((0u64..16_000, 1usize..6000, any::<u8>()), 0..12),
        ) {
            let file = image(6);
            let original = std::fs::read(file.path()).unwrap();
            let backing = Backing::open(file.path(), &Writes::Forget).unwrap();
            let mut expected = original.clone();
            for (offset, length, byte) in writes {
                backing.write(offset, &vec![byte; length]).unwrap();
                expected[offset as usize..offset as usize + length].fill(byte);
            }
            prop_assert_eq!(&backing.read(0, expected.len()).unwrap()[..], &expected[..]);
            prop_assert_eq!(&backing.read(1000, 9000).unwrap()[..], &expected[1000..10_000]);
            prop_assert_eq!(std::fs::read(file.path()).unwrap(), original.clone());
            backing.reset();
            prop_assert_eq!(&backing.read(0, original.len()).unwrap()[..], &original[..]);
        }
    }

    #[test]
    fn holes_read_as_zeroes_between_data() {
        let file = image(2);
        file.as_file().set_len(1 << 20).unwrap();
        file.as_file().write_all_at(&[7; 4096], 512 << 10).unwrap();
        let backing = Backing::open(file.path(), &Writes::Forget).unwrap();
        let expected = std::fs::read(file.path()).unwrap();
        for (offset, length) in [
            (0, 1 << 20),
            (8192, 4096),
            (516 << 10, 4096),
            (508 << 10, 8192),
            (4096, 8192),
        ] {
            assert_eq!(
                &backing.read(offset, length).unwrap()[..],
                &expected[offset as usize..][..length]
            );
        }
        assert!(!backing.holes.is_empty(), "the scratch file system keeps holes");
    }

    #[test]
    fn ends_where_the_image_ends() {
        let file = image(2);
        let backing = Backing::open(file.path(), &Writes::Forget).unwrap();
        assert_eq!(backing.read(8000, 4096).unwrap().len(), 192);
        assert!(backing.read(9000, 10).unwrap().is_empty());
        assert!(backing.write(8190, &[0; 4]).is_err());
    }

    #[test]
    fn a_delta_keeps_what_was_committed_and_leaves_the_image_alone() {
        let file = image(3);
        let original = std::fs::read(file.path()).unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let writes = Writes::Delta(scratch.path().join("delta"));
        let open = || Backing::open(file.path(), &writes).unwrap();
        let at = |backing: &Backing, offset| backing.read(offset, 4).unwrap().to_vec();
        let backing = open();
        backing.write(5000, b"once").unwrap();
        backing.commit().unwrap();
        backing.write(5000, b"lost").unwrap();
        backing.write(9000, b"lost").unwrap();
        backing.reset();
        assert_eq!(at(&backing, 5000), b"once");
        assert_eq!(at(&backing, 9000), original[9000..9004]);
        backing.write(9000, b"lost").unwrap();
        drop(backing);
        let backing = open();
        assert_eq!(at(&backing, 5000), b"once");
        assert_eq!(at(&backing, 9000), original[9000..9004]);
        assert_eq!(std::fs::read(file.path()).unwrap(), original);
        assert!(
            Backing::open(file.path(), &Writes::Forget)
                .unwrap()
                .commit()
                .is_err()
        );
    }

    #[test]
    fn image_writes_through() {
        let file = image(1);
        Backing::open(file.path(), &Writes::Image)
            .unwrap()
            .write(5, b"kept")
            .unwrap();
        assert_eq!(&std::fs::read(file.path()).unwrap()[5..9], b"kept");
    }
}
