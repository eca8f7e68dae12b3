//! By what names a key's programs are called, where these are not their paths: symbolic links lead from one
//! to the other.

use crate::{KeyDir, KeyLock, StoreError, file};
use headstart_model::FilePath;

const FILE: &str = "names";

/// More than so many names take, bytes: the longest path there is, thrice.
const MAX: u64 = 16 << 10;

/// Stands behind each: no path has it.
const END: u8 = 0;

impl KeyDir {
    /// The names; none where they cannot be read.
    pub fn names(&self) -> Vec<FilePath> {
        let bytes = file::read_bounded(&self.path().join(FILE), MAX).ok().flatten();
        let bytes = bytes.unwrap_or_default();
        let names = bytes.split(|byte| *byte == END);
        names
            .filter(|name| !name.is_empty())
            .map(FilePath::from)
            .collect()
    }
}

impl KeyLock {
    /// Keeps these names, as many of the first as there is room for.
    pub fn save_names(&self, names: &[FilePath]) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        let mut kept = 0;
        for name in names {
            if (bytes.len() + name.as_bytes().len()) as u64 >= MAX {
                break;
            }
            bytes.extend_from_slice(name.as_bytes());
            bytes.push(END);
            kept += 1;
        }
        match names[..kept] == self.dir().names() {
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
        assert_eq!(key.names(), names);
        let long: Vec<FilePath> = (0..9)
            .map(|n| format!("/{n}{}", "x".repeat(4000)).as_str().into())
            .collect();
        lock.save_names(&long).unwrap();
        assert_eq!(key.names(), long[..4]);
        lock.save_names(&[]).unwrap();
        assert_eq!(key.names(), []);
        std::fs::write(&file, vec![b'x'; MAX as usize + 1]).unwrap();
        assert_eq!(key.names(), [], "more than is ever written");
    }
}
