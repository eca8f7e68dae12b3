//! What is kept of boots besides what every key has: the boot-failure guard, against a replay that keeps the machine from booting,
//! and what the last boot had to say.
//!
//! The guard is a file that a boot leaves armed when it has come to its end. A replay disarms it, for good,
//! before its first request: if the boot then does not come to its end, the next one finds it disarmed and goes
//! without a replay; once it has come to its end it leaves another. It is a block that is written over where it is: to
//! remove a file instead took four reads and two flushes of the journal, 80 ms of a boot from a 7200 rpm disk. It lies beside what is needed first of
//! boots ([`KeyDir::start_path`]), so the way to it has been read.

use crate::file;
use crate::{KeyDir, KeyLock, StoreError};
use rustix::fs::{CWD, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What follows the key's own name in that of its guard, of [`GUARD_BYTES`]; `headstart-init` reads it ahead.
pub(crate) const ENDING: &str = ".guard";
/// A block of most file systems, written whole, for which nothing has to be read.
const GUARD_BYTES: usize = 4096;
const ARMED: u8 = b'1';
const DISARMED: u8 = b'0';
/// Where it lay, in the key's own directory, until November 2026.
const FORMER: &str = "guard";
const LAST: &str = "last.json";
/// More than a boot has to say.
const MAX_LAST: u64 = 1 << 20;

impl KeyDir {
    /// Where the guard is.
    pub fn guard_path(&self) -> Option<PathBuf> {
        let mut path = self.start_path()?.into_os_string();
        path.push(ENDING);
        Some(path.into())
    }

    /// Whether the last start came to its end, so that the next may be replayed.
    pub fn is_armed(&self) -> bool {
        let places = [self.guard_path(), Some(self.path().join(FORMER))];
        let guard = places
            .into_iter()
            .flatten()
            .find_map(|path| File::open(path).ok());
        guard.is_some_and(|guard| is_armed(&guard).unwrap_or(false))
    }

    /// Takes what is armed for good and waits until that will survive a power cut; false if it was not armed.
    pub fn disarm(&self) -> Result<bool, StoreError> {
        let Some(path) = self.guard_path() else {
            return Ok(false);
        };
        let disarm = || -> io::Result<bool> {
            let former = self.path().join(FORMER);
            let mut guard = open(&path)?;
            if guard.is_none() && former.exists() {
                // As the first boot after an upgrade finds it. What is written over is the same file, wherever a power cut leaves its name.
                std::fs::rename(former, &path)?;
                guard = open(&path)?;
            }
            let Some(guard) = guard else {
                return Ok(false);
            };
            if !is_armed(&guard)? {
                return Ok(false);
            }
            write_over(&guard, DISARMED).map(|()| true)
        };
        disarm().map_err(|error| StoreError::io("disarm", &path, error))
    }

    /// What the last boot had to say, as JSON.
    pub fn last(&self) -> Result<Option<Vec<u8>>, StoreError> {
        file::read_bounded(&self.path().join(LAST), MAX_LAST)
    }
}

impl KeyLock {
    /// The start came to its end: the next may be replayed. A guard that is there is written over: on a full disk there is no room for
    /// another, and what is known is replayed all the same.
    pub fn arm(&self) -> Result<(), StoreError> {
        let Some(path) = self.dir().guard_path() else {
            return Ok(());
        };
        let rearm = || -> io::Result<bool> {
            match open(&path)? {
                Some(guard) if is_whole(&guard)? => write_over(&guard, ARMED).map(|()| true),
                _ => Ok(false),
            }
        };
        match rearm() {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => {
                self.name()?;
                path.parent().map_or(Ok(()), file::make_directory)?;
                file::write_whole(&path, &[ARMED; GUARD_BYTES])
            }
        }
    }

    /// Keeps what the boot had to say, as JSON.
    pub fn save_last(&self, json: &[u8]) -> Result<(), StoreError> {
        self.write(LAST, json)
    }
}

/// A guard, to be written over; `None` if there is none.
fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(guard) => Ok(Some(File::from(guard))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Writes a guard where it is, and waits until that will survive a power cut.
fn write_over(guard: &File, state: u8) -> io::Result<()> {
    guard.write_all_at(&[state; GUARD_BYTES], 0)?;
    guard.sync_data()
}

/// Whether a guard is armed; one that is not whole is not.
fn is_armed(guard: &File) -> io::Result<bool> {
    let mut found = [DISARMED];
    let read = guard.read_at(&mut found, 0)?;
    Ok(read == 1 && found == [ARMED] && is_whole(guard)?)
}

fn is_whole(guard: &File) -> io::Result<bool> {
    let facts = guard.metadata()?;
    Ok(facts.is_file() && facts.len() == GUARD_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use crate::Store;
    use headstart_model::Key;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_boot_failure_guard_is_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let boot = Store::new(dir.path()).key(&Key::new("boot").unwrap());
        assert!(!boot.is_armed() && !boot.disarm().unwrap(), "nothing is there");
        boot.lock().unwrap().arm().unwrap();
        assert!(boot.is_armed());
        assert!(boot.disarm().unwrap());
        assert!(!boot.is_armed() && !boot.disarm().unwrap());
        // One that is there is written over: another would need room on the disk.
        let guard = boot.guard_path().unwrap();
        let inode = || std::fs::metadata(&guard).unwrap().ino();
        let before = inode();
        boot.lock().unwrap().arm().unwrap();
        assert!(boot.is_armed() && inode() == before);
        std::fs::write(&guard, "1").unwrap();
        assert!(!boot.is_armed() && !boot.disarm().unwrap(), "cut off");
        boot.lock().unwrap().arm().unwrap();
        assert!(boot.is_armed(), "one that is cut off is made anew");
        let former = boot.path().join(super::FORMER);
        std::fs::rename(&guard, &former).unwrap();
        assert!(boot.is_armed() && boot.disarm().unwrap(), "where it lay");
        assert!(!former.exists() && !boot.is_armed() && !boot.disarm().unwrap());
        assert_eq!(boot.last().unwrap(), None);
        boot.lock().unwrap().save_last(b"{}").unwrap();
        assert_eq!(boot.last().unwrap().unwrap(), b"{}");
    }
}
