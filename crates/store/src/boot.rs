//! What is kept of boots besides what every key has: the boot-failure guard, against a replay that keeps the machine from booting,
//! and what the last boot had to say.
//!
//! The guard is a file, `guard`, that a boot leaves armed when it has come to its end. A replay disarms it, for good,
//! before its first request: if the boot then does not come to its end, the next one finds it disarmed and goes
//! without a replay; once it has come to its end it leaves another. It is a block that is written over where it is: to
//! remove a file instead took four reads and two flushes of the journal, 80 ms of a boot from a 7200 rpm disk.

use crate::file;
use crate::{KeyDir, KeyLock, StoreError};
use rustix::fs::{CWD, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// See [`GUARD_BYTES`]; `headstart-init` reads it ahead.
const GUARD: &str = "guard";
/// A block of most file systems, written whole, for which nothing has to be read.
const GUARD_BYTES: usize = 4096;
const ARMED: u8 = b'1';
const DISARMED: u8 = b'0';
const LAST: &str = "last.json";
/// More than a boot has to say.
const MAX_LAST: u64 = 1 << 20;

impl KeyDir {
    /// Whether the last start came to its end, so that the next may be replayed.
    pub fn is_armed(&self) -> bool {
        let guard = File::open(self.path().join(GUARD));
        guard.and_then(|guard| is_armed(&guard)).unwrap_or(false)
    }

    /// Takes what is armed for good and waits until that will survive a power cut; false if it was not armed.
    pub fn disarm(&self) -> Result<bool, StoreError> {
        let path = self.path().join(GUARD);
        let disarm = || -> io::Result<bool> {
            let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
            let guard = match rustix::fs::openat(CWD, &path, flags, Mode::empty()) {
                Ok(guard) => File::from(guard),
                Err(rustix::io::Errno::NOENT) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            if !is_armed(&guard)? {
                return Ok(false);
            }
            guard.write_all_at(&[DISARMED; GUARD_BYTES], 0)?;
            guard.sync_data().map(|()| true)
        };
        disarm().map_err(|error| StoreError::io("disarm", &path, error))
    }

    /// What the last boot had to say, as JSON.
    pub fn last(&self) -> Result<Option<Vec<u8>>, StoreError> {
        file::read_bounded(&self.path().join(LAST), MAX_LAST)
    }
}

impl KeyLock {
    /// The start came to its end: the next may be replayed.
    pub fn arm(&self) -> Result<(), StoreError> {
        self.write(GUARD, &[ARMED; GUARD_BYTES])
    }

    /// Keeps what the boot had to say, as JSON.
    pub fn save_last(&self, json: &[u8]) -> Result<(), StoreError> {
        self.write(LAST, json)
    }
}

/// Whether a guard is armed; one that is not whole is not.
fn is_armed(guard: &File) -> io::Result<bool> {
    let mut found = [DISARMED];
    let read = guard.read_at(&mut found, 0)?;
    Ok(read == 1 && found == [ARMED] && guard.metadata()?.len() == GUARD_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::GUARD;
    use crate::Store;
    use headstart_model::Key;

    #[test]
    fn the_boot_failure_guard_is_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let boot = Store::new(dir.path()).key(&Key::new("boot").unwrap());
        assert!(!boot.is_armed() && !boot.disarm().unwrap(), "nothing is there");
        boot.lock().unwrap().arm().unwrap();
        assert!(boot.is_armed());
        assert!(boot.disarm().unwrap());
        assert!(!boot.is_armed() && !boot.disarm().unwrap());
        std::fs::write(boot.path().join(GUARD), "1").unwrap();
        assert!(!boot.is_armed() && !boot.disarm().unwrap(), "cut off");
        assert_eq!(boot.last().unwrap(), None);
        boot.lock().unwrap().save_last(b"{}").unwrap();
        assert_eq!(boot.last().unwrap().unwrap(), b"{}");
    }
}
