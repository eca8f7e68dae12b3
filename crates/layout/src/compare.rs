//! Whether files that were moved are what they were.

use crate::moves::Move;
use crate::moving::movable::Movable;
use crate::moving::volume::Volume;
use anyhow::Result;
use headstart_model::FilePath;
use headstart_system::extents::extents;
use headstart_system::residency::{advise_dontneed, fadvise_willneed};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are read at once, and asked for at once.
const READ: u64 = 128 << 10;

/// Why a file counts as one that stayed whose contents differ though none of its times does, where others
/// than root may write it: what a device writes to memory on behalf of a program is told by none.
pub(crate) const CHANGED: &str = "its contents changed meanwhile, and not its times";

/// A file that was moved, or a part of it.
pub(crate) struct Moved {
    pub path: FilePath,
    pub file: Movable,
    /// What was moved. Of the last it may be no more than its beginning: all of it is to be what it was,
    /// wherever it lies.
    pub moves: Vec<Move>,
    /// Bytes that were moved.
    pub bytes: u64,
    /// Why the rest stays, if some does.
    pub stays: Option<String>,
    /// Checksums of the data before, of these moves and those that were not made.
    pub before: Vec<[u8; 32]>,
}

/// Writes what was moved to the device, reads it back from there, and compares: of each file the bytes that
/// were moved, or why it counts as one that stayed. After an error none of them is known to be what it was.
pub(crate) fn read_back(volume: &Volume, moved: &[Moved]) -> Result<Vec<Result<u64, String>>> {
    if moved.is_empty() {
        return Ok(Vec::new());
    }
    volume.sync()?;
    // Who was faster than its mover and leased it is asked for nothing: it is compared on the device.
    let open = || {
        moved
            .iter()
            .filter_map(|moved| Some((moved, moved.file.file().ok()?)))
    };
    for (one, file) in open() {
        for part in &one.moves {
            // What is read next comes from the device, but for pages that a program has mapped.
            let _ = advise_dontneed(&file, part.start, part.length);
        }
    }
    for (one, file) in open() {
        for part in &one.moves {
            ask_for_range(&file, part.start, part.length);
        }
    }
    moved.iter().map(|file| file.compare(volume)).collect()
}

impl Moved {
    /// The bytes that were moved, or why it counts as one that stayed.
    fn compare(&self, volume: &Volume) -> Result<Result<u64, String>> {
        let file = match self.file.file() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            file => Some(file?),
        };
        let after = match &file {
            Some(file) => sums_of(file, &self.moves)?,
            None => self.sums_on(volume)?,
        };
        if !self.file.is_unchanged()? {
            // Its writer goes on where it lies now.
            return Ok(Ok(self.bytes));
        }
        let same = after == self.before[..after.len()];
        let stat = &self.file.stat;
        if !same && (stat.owner != 0 || stat.others_may_write()) {
            return Ok(Err(CHANGED.into()));
        }
        anyhow::ensure!(
            same,
            "{}: its contents are not what they were: check the file system, and restore the file",
            self.path
        );
        let Some(file) = file else {
            return Ok(Ok(self.bytes));
        };
        let now = extents(&file)?;
        let lie: u64 = self.moves.iter().map(|part| part.done(&now)).sum();
        Ok(match lie == self.bytes {
            true => Ok(self.bytes),
            false => Err("it does not lie where it was moved to".into()),
        })
    }
}

impl Moved {
    /// Checksums of what lies where it was moved to.
    fn sums_on(&self, volume: &Volume) -> io::Result<Vec<[u8; 32]>> {
        let size = self.file.stat.size;
        let sum = |one: &Move| {
            let mut sum = Sha256::new();
            let length = one.length.min(size.saturating_sub(one.start));
            volume.read(one.physical, length, &mut |bytes| sum.update(bytes))?;
            Ok(sum.finalize().into())
        };
        self.moves.iter().map(sum).collect()
    }
}

/// Reads bytes `[start, start + length)` of a file into memory.
pub(crate) fn read(file: &File, start: u64, length: u64) -> io::Result<()> {
    let mut buffer = vec![0; READ as usize];
    ask_for_range(file, start, length);
    for at in (start..start + length).step_by(READ as usize) {
        let _ = file.read_at(&mut buffer, at)?;
    }
    Ok(())
}

/// A checksum of the data of each move.
pub(crate) fn sums(file: &Movable, moves: &[Move]) -> io::Result<Vec<[u8; 32]>> {
    sums_of(&file.file()?, moves)
}

fn sums_of(file: &File, moves: &[Move]) -> io::Result<Vec<[u8; 32]>> {
    let mut buffer = vec![0; READ as usize];
    let mut sums = Vec::with_capacity(moves.len());
    for part in moves {
        let mut sum = Sha256::new();
        let mut done = 0;
        while done < part.length {
            let most = (part.length - done).min(READ) as usize;
            let read = file.read_at(&mut buffer[..most], part.start + done)?;
            if read == 0 {
                break;
            }
            sum.update(&buffer[..read]);
            done += read as u64;
        }
        sums.push(sum.finalize().into());
    }
    Ok(sums)
}

/// Has bytes `[start, start + length)` of a file read.
pub(crate) fn ask_for_range(file: &File, start: u64, length: u64) {
    for chunk in 0..length.div_ceil(READ) {
        let done = chunk * READ;
        let _ = fadvise_willneed(file, start + done, READ.min(length - done));
    }
}
