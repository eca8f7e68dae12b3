//! Room on a file system: a nameless file.

use super::mover::{copy, reopen};
use super::volume::{MOST_TRIMMED, Volume};
use headstart_model::machine::Extent;
use headstart_system::direct::Aligned;
use headstart_system::extents::Mapper;
use headstart_system::sys;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Bytes that are written at once.
const STEP: u64 = 1 << 20;

/// Room that was taken.
pub struct Donor {
    file: OwnedFd,
    room: Vec<Extent>,
}

impl Donor {
    /// What was allocated to this file.
    pub(super) fn new(file: OwnedFd) -> io::Result<Donor> {
        let room = Mapper::new().allocated(file.as_fd())?;
        Ok(Donor { file, room })
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Writes `[start, start + length)` of it, multiples of [`headstart_system::direct::BLOCK`], past the
    /// page cache: then what lies below has room for it, or it is an error while nothing else is at stake. No
    /// zeros and nothing twice, which may be stored as nothing.
    pub fn write(&self, start: u64, length: u64) -> io::Result<()> {
        let direct: File = reopen(self.file.as_fd(), OFlags::RDWR | OFlags::DIRECT)?;
        let mut buffer = Aligned::new(STEP.min(length) as usize);
        let now = std::time::UNIX_EPOCH
            .elapsed()
            .map_or(1, |now| now.as_nanos() as u64);
        let mut word = now ^ self.room.first().map_or(0, |first| first.physical) | 1;
        let mut done = 0;
        while done < length {
            let part = (length - done).min(STEP) as usize;
            for bytes in buffer.bytes()[..part].chunks_exact_mut(8) {
                // Marsaglia's xorshift.
                word ^= word << 13;
                word ^= word >> 7;
                word ^= word << 17;
                bytes.copy_from_slice(&word.to_ne_bytes());
            }
            direct.write_all_at(&buffer.bytes()[..part], start + done)?;
            done += part as u64;
        }
        // What a device keeps in a cache of its own, and what lies below in memory.
        direct.sync_data()
    }

    /// Tells what lies below that it holds nothing, while it has its room still: where all is full there, the
    /// file system itself needs room to note that this one is free. Nothing was exchanged with it yet. Where
    /// that is not possible nothing happens.
    pub fn discard(&self, volume: &Volume) {
        let Ok(device) = volume.device() else { return };
        for place in self.places().iter().take(MOST_TRIMMED) {
            if sys::discard(device.as_fd(), place.physical, place.length).is_err() {
                break;
            }
        }
    }

    /// Where what it has lies now, which after exchanges is where the files lay.
    pub fn places(&self) -> Vec<Extent> {
        Mapper::new().allocated(self.file.as_fd()).unwrap_or_default()
    }

    /// Gives it a name at the root of its file system, so that it stays: an ordinary file that root alone may
    /// read. Fails if there is something of that name.
    pub fn keep(&self, volume: &Volume, name: &str) -> io::Result<()> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let flags = rustix::fs::AtFlags::SYMLINK_FOLLOW;
        rustix::fs::linkat(rustix::fs::CWD, own, volume.root(), name, flags)?;
        // Where the device takes nothing any more, it stays as long as the file system is mounted.
        let _ = rustix::fs::fsync(&self.file);
        Ok(())
    }

    /// Has it tell the old contents of what was moved to `[start, start + length)` of it.
    pub fn recover(&self, volume: &Volume, start: u64, length: u64) -> io::Result<()> {
        let file = File::from(self.file.try_clone()?);
        volume.mover.recover(&file, start, length)
    }

    /// Writes what it tells at `[start, start + length)` to another, at `at`.
    pub fn copy(&self, start: u64, length: u64, to: &Donor, at: u64) -> io::Result<()> {
        let [from, to] = [
            File::from(self.file.try_clone()?),
            File::from(to.file.try_clone()?),
        ];
        copy(&from, start, &to, at, length)
    }

    /// Where it is, by offset in the donor.
    pub fn room(&self) -> &[Extent] {
        &self.room
    }

    /// Gives back `[start, start + length)` of it.
    pub fn release(&self, start: u64, length: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, flags, start, length)?)
    }
}

impl Volume {
    /// Takes `bytes` of its free room, in as few pieces as the allocator finds.
    pub fn donor(&self, bytes: u64) -> io::Result<Donor> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.root(), ".", flags, Mode::RUSR | Mode::WUSR)?;
        let flags = match self.mover.keeps_size() {
            true => FallocateFlags::KEEP_SIZE,
            false => FallocateFlags::empty(),
        };
        rustix::fs::fallocate(&file, flags, 0, bytes)?;
        Donor::new(file)
    }
}
