//! By what names a key's programs are called, where these are not their paths: symbolic links lead from one to the other.

use crate::{KeyDir, KeyLock, StoreError, file};
use headstart_model::FilePath;

const FILE: &str = "names";

/// More than so many names take, bytes: the longest path there is, thrice.
const MAX: u64 = 16 << 10;

impl KeyDir {
    /// The names; none where they cannot be read.
    pub fn names(&self) -> Vec<FilePath> {
        let bytes = file::read_bounded(&self.path().join(FILE), MAX).ok().flatten();
        bytes
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }
}

impl KeyLock {
    /// Keeps these names, as many of the first as there is room for. What is no UTF-8 the file has no way to say.
    pub fn save_names(&self, names: &[FilePath]) -> Result<(), StoreError> {
        let can_be_said = |name: &&FilePath| std::str::from_utf8(name.as_bytes()).is_ok();
        let mut names: Vec<FilePath> = names.iter().filter(can_be_said).cloned().collect();
        let mut bytes;
        loop {
            bytes = serde_json::to_vec(&names).map_err(|e| {
                StoreError::io("encode", &self.dir().path().join(FILE), std::io::Error::other(e))
            })?;
            if bytes.len() as u64 <= MAX || names.pop().is_none() {
                break;
            }
        }
        match names == self.dir().names() {
            true => Ok(()),
            false => self.write(FILE, &bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use headstart_model::Key;

    #[test]
    fn names_are_kept_as_far_as_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let key = Store::new(dir.path()).key(&Key::new("/usr/bin/x").unwrap());
        let file = key.path().join(FILE);
        let lock = key.lock().unwrap();
        lock.save_names(&[]).unwrap();
        assert!(key.names().is_empty() && !file.exists(), "nothing to keep");
        let names = ["/usr/bin/a".into(), FilePath::from(&b"/\xff"[..])];
        lock.save_names(&names).unwrap();
        assert_eq!(key.names(), names[..1]);
        let long: Vec<FilePath> = (0..9)
            .map(|n| format!("/{n}{}", "x".repeat(4000)).as_str().into())
            .collect();
        lock.save_names(&long).unwrap();
        assert_eq!(key.names(), long[..4]);
        lock.save_names(&[]).unwrap();
        assert_eq!(key.names(), []);
        std::fs::write(&file, "nonsense").unwrap();
        assert_eq!(key.names(), []);
    }
}
