//! What was written to a disk, kept across runs in a file of its own; the image stays as it is.
//!
//! A delta changes by [`Delta::save`] alone, whole or not at all: a new file beside it, fsync, rename. A lab
//! that is killed leaves the state of the last save, never half of a run. The file is locked while a disk
//! uses it.
//!
//! Format, integers little-endian: magic, image size u64, image mtime (seconds i64, nanoseconds u32), number
//! of blocks u64, the block numbers in order (u64 each), the blocks of 4096 bytes, SHA-256 of all before.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};

use super::block::{BLOCK, Blocks};

const MAGIC: &[u8; 16] = b"headstart-delta1";

/// The image a delta belongs to: one that was built anew would be mixed with blocks of the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Image {
    size: u64,
    seconds: i64,
    nanoseconds: u32,
}

/// An open delta file, locked.
#[derive(Debug)]
pub(super) struct Delta {
    path: PathBuf,
    image: Image,
    lock: File,
}

impl Delta {
    /// Opens the delta at `path` of the image `file`, or begins an empty one; returns what it holds.
    pub(super) fn open(path: &Path, file: &File) -> Result<(Delta, Blocks)> {
        let metadata = file.metadata()?;
        let image = Image {
            size: metadata.len(),
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec() as u32,
        };
        let lock = lock(path)?;
        let mut delta = Delta {
            path: path.to_owned(),
            image,
            lock,
        };
        let blocks = if delta.lock.metadata()?.len() == 0 {
            let blocks = Blocks::new();
            delta.save(&blocks)?;
            blocks
        } else {
            delta.load()?
        };
        Ok((delta, blocks))
    }

    /// Makes `blocks` what the file holds. After an error, or a kill at any moment, it holds what it held
    /// before.
    pub(super) fn save(&mut self, blocks: &Blocks) -> Result<()> {
        let mut name = self.path.clone().into_os_string();
        name.push(".new");
        let new = PathBuf::from(name);
        let saved = self.write(&new, blocks).and_then(|file| {
            fs::rename(&new, &self.path)?;
            Ok(file)
        });
        match saved {
            Ok(file) => self.lock = file,
            Err(error) => {
                // The next save begins it anew in any case.
                let _ = fs::remove_file(&new);
                return Err(error).with_context(|| format!("writing {}", new.display()));
            }
        }
        let directory = match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .with_context(|| format!("syncing {}", directory.display()))
    }

    fn write(&self, path: &Path, blocks: &Blocks) -> io::Result<File> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let mut out = Summed {
            inner: BufWriter::with_capacity(1 << 20, file),
            sum: Sha256::new(),
        };
        let mut numbers: Vec<u64> = blocks.keys().copied().collect();
        numbers.sort_unstable();
        out.put(MAGIC)?;
        out.put(&self.image.size.to_le_bytes())?;
        out.put(&self.image.seconds.to_le_bytes())?;
        out.put(&self.image.nanoseconds.to_le_bytes())?;
        out.put(&(numbers.len() as u64).to_le_bytes())?;
        for number in &numbers {
            out.put(&number.to_le_bytes())?;
        }
        for number in &numbers {
            out.put(&blocks[number])?;
        }
        let Summed { mut inner, sum } = out;
        inner.write_all(&sum.finalize())?;
        let file = inner.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(file)
    }

    fn load(&self) -> Result<Blocks> {
        let shown = self.path.display();
        let way_out = "remove it to begin from the image again";
        let length = self.lock.metadata()?.len();
        let mut from = Summed {
            inner: BufReader::with_capacity(1 << 20, &self.lock),
            sum: Sha256::new(),
        };
        let cut = || format!("delta {shown} is cut short: {way_out}");
        ensure!(
            from.take::<16>().with_context(cut)? == *MAGIC,
            "{shown} is not a delta of a lab disk"
        );
        let image = Image {
            size: u64::from_le_bytes(from.take().with_context(cut)?),
            seconds: i64::from_le_bytes(from.take().with_context(cut)?),
            nanoseconds: u32::from_le_bytes(from.take().with_context(cut)?),
        };
        ensure!(
            image == self.image,
            "delta {shown} belongs to another image, or the image has changed since: {way_out}"
        );
        let count = u64::from_le_bytes(from.take().with_context(cut)?);
        // Bounded by the file before anything is reserved for it.
        ensure!(
            count <= length / BLOCK,
            "delta {shown} says {count} blocks in {length} bytes: {way_out}"
        );
        let numbers: Vec<u64> = (0..count)
            .map(|_| Ok(u64::from_le_bytes(from.take()?)))
            .collect::<io::Result<_>>()
            .with_context(cut)?;
        if let Some(beyond) = numbers.iter().find(|n| **n >= image.size / BLOCK) {
            bail!("delta {shown} has block {beyond}, beyond the image: {way_out}");
        }
        let mut blocks = Blocks::with_capacity(numbers.len());
        for number in numbers {
            let block: [u8; BLOCK as usize] = from.take().with_context(cut)?;
            blocks.insert(number, Arc::new(block));
        }
        let Summed { mut inner, sum } = from;
        let mut stored = [0; 32];
        inner.read_exact(&mut stored).with_context(cut)?;
        ensure!(
            sum.finalize()[..] == stored,
            "delta {shown} is damaged (its checksum does not match): {way_out}"
        );
        Ok(blocks)
    }
}

/// Opens `path`, made when missing, and locks it.
fn lock(path: &Path) -> Result<File> {
    loop {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| format!("opening delta {}", path.display()))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                bail!("delta {} is in use by another disk", path.display())
            }
            Err(error) => return Err(error).with_context(|| format!("locking delta {}", path.display())),
        }
        // A save may have put another file in its place between the two steps.
        if fs::metadata(path).is_ok_and(|now| now.ino() == file.metadata().map_or(0, |m| m.ino())) {
            return Ok(file);
        }
    }
}

/// A reader or writer that sums what passes.
struct Summed<T> {
    inner: T,
    sum: Sha256,
}

impl<W: Write> Summed<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.inner.write_all(bytes)
    }
}

impl<R: Read> Summed<R> {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes)?;
        self.sum.update(bytes);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(directory: &Path) -> File {
        let path = directory.join("image");
        fs::write(&path, vec![7; 64 << 10]).unwrap();
        File::open(path).unwrap()
    }

    fn blocks(numbers: &[u64]) -> Blocks {
        numbers
            .iter()
            .map(|n| (*n, Arc::from([*n as u8; BLOCK as usize])))
            .collect()
    }

    #[test]
    fn keeps_what_was_saved_last() {
        let scratch = tempfile::tempdir().unwrap();
        let (image, path) = (image(scratch.path()), scratch.path().join("d"));
        let (mut delta, empty) = Delta::open(&path, &image).unwrap();
        assert!(empty.is_empty());
        delta.save(&blocks(&[3, 1])).unwrap();
        delta.save(&blocks(&[15, 3])).unwrap();
        let busy = Delta::open(&path, &image).unwrap_err().to_string();
        assert!(busy.contains("in use"), "{busy}");
        drop(delta);
        assert_eq!(Delta::open(&path, &image).unwrap().1, blocks(&[3, 15]));
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 2);
    }

    /// Cut anywhere or with any byte changed it is refused, by name, and never believed.
    #[test]
    fn damage_is_noticed() {
        let scratch = tempfile::tempdir().unwrap();
        let (image, path) = (image(scratch.path()), scratch.path().join("d"));
        Delta::open(&path, &image)
            .unwrap()
            .0
            .save(&blocks(&[2, 9]))
            .unwrap();
        let whole = fs::read(&path).unwrap();
        for at in (1..whole.len()).step_by(61) {
            fs::write(&path, &whole[..at]).unwrap();
            let cut = Delta::open(&path, &image).unwrap_err().to_string();
            assert!(cut.contains(path.to_str().unwrap()), "{cut}");
            let mut changed = whole.clone();
            changed[at] ^= 0x40;
            fs::write(&path, &changed).unwrap();
            let changed = Delta::open(&path, &image).unwrap_err().to_string();
            assert!(changed.contains(path.to_str().unwrap()), "{at}: {changed}");
        }
    }

    #[test]
    fn another_image_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("d");
        drop(Delta::open(&path, &image(scratch.path())).unwrap());
        let newer = image(scratch.path());
        newer.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        let message = Delta::open(&path, &newer).unwrap_err().to_string();
        assert!(message.contains("another image"), "{message}");
    }
}
