//! What is kept of boots besides what every key has: the guard against a replay that keeps the machine from booting,
//! and what the last boot had to say.
//!
//! The guard is a file, `armed`, that a boot leaves when it has come to its end. A replay takes it away, for good,
//! before its first request: if the boot then does not come to its end, the next one finds no `armed` and goes
//! without a replay; once it has come to its end it leaves another.

use crate::file;
use crate::{KeyDir, KeyLock, StoreError};
use std::fs;
use std::io::ErrorKind;

const ARMED: &str = "armed";
const LAST: &str = "last.json";
/// More than a boot has to say.
const MAX_LAST: u64 = 1 << 20;

impl KeyDir {
    /// Whether the last start came to its end, so that the next may be replayed.
    pub fn is_armed(&self) -> bool {
        self.path().join(ARMED).exists()
    }

    /// Takes the marker away and waits until that will survive a power cut; false if there was none.
    pub fn disarm(&self) -> Result<bool, StoreError> {
        let path = self.path().join(ARMED);
        match fs::remove_file(&path) {
            Ok(()) => file::sync_directory(self.path()).map(|()| true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(StoreError::io("remove", &path, error)),
        }
    }

    /// What the last boot had to say, as JSON.
    pub fn last(&self) -> Result<Option<Vec<u8>>, StoreError> {
        file::read_bounded(&self.path().join(LAST), MAX_LAST)
    }
}

impl KeyLock {
    /// The start came to its end: the next may be replayed.
    pub fn arm(&self) -> Result<(), StoreError> {
        self.write(ARMED, b"")
    }

    /// Keeps what the boot had to say, as JSON.
    pub fn save_last(&self, json: &[u8]) -> Result<(), StoreError> {
        self.write(LAST, json)
    }
}

#[cfg(test)]
mod tests {
    use crate::Store;
    use headstart_model::Key;

    #[test]
    fn a_marker_is_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let boot = Store::new(dir.path()).key(&Key::new("boot").unwrap());
        assert!(!boot.is_armed() && !boot.disarm().unwrap(), "nothing is there");
        boot.lock().unwrap().arm().unwrap();
        assert!(boot.is_armed());
        assert!(boot.disarm().unwrap());
        assert!(!boot.is_armed() && !boot.disarm().unwrap());
        assert_eq!(boot.last().unwrap(), None);
        boot.lock().unwrap().save_last(b"{}").unwrap();
        assert_eq!(boot.last().unwrap().unwrap(), b"{}");
    }
}
