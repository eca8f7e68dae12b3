//! The state directory as a whole.

use crate::file;
use crate::keydir::KeyDir;
use crate::layout::{STARTS, directory_name, is_directory_name, is_somebodys};
use crate::{Limits, Log, StoreError};
use headstart_model::Key;
use headstart_model::sort::Sort;
use rustix::fs::Access;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::DirEntry;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Nobody takes so long to write a file.
pub(crate) const STRAY_AGE: Duration = Duration::from_secs(24 * 60 * 60);

/// A state directory. Making the value touches nothing; directories are made when something is written.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// The keys of a state directory, as they were when somebody looked.
#[derive(Clone, Debug, Default)]
pub struct KnownKeys {
    by_directory: HashMap<OsString, Key>,
    by_key: BTreeSet<Key>,
    is_whole: bool,
}

impl KnownKeys {
    /// Whether each directory said whose it is, but for leftovers: one that is being made does not yet.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Those that come behind one, or all of them, in order.
    pub fn behind<'a>(&'a self, after: Option<&'a str>) -> impl Iterator<Item = &'a Key> + 'a {
        let from = match after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Unbounded,
        };
        self.by_key.range::<str, _>((from, Bound::Unbounded))
    }
}

/// One that says nothing is being made for so long at most.
const MAKING: Duration = Duration::from_secs(60);

fn is_recent(entry: &DirEntry) -> bool {
    let made = entry.metadata().and_then(|facts| facts.modified());
    made.is_ok_and(|at| at.elapsed().unwrap_or_else(|ahead| ahead.duration()) < MAKING)
}

/// The key that a directory is of; `None` for one without a readable key, which is a leftover and goes by its
/// age.
fn key_in(entry: &DirEntry) -> Option<Key> {
    let text = file::read_bounded(&entry.path().join("key"), headstart_model::key::MAX_KEY as u64);
    let key = Key::new(String::from_utf8(text.ok()??).ok()?).ok()?;
    (directory_name(&key).as_str() == entry.file_name()).then_some(key)
}

impl Store {
    /// The state directory at `root`.
    pub fn new(root: impl Into<PathBuf>) -> Store {
        Store { root: root.into() }
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the directory, if it is not there; an error says why nothing can be kept in it.
    pub fn make(&self) -> Result<(), StoreError> {
        file::make_directory(&self.root)?;
        let may = Access::WRITE_OK | Access::EXEC_OK;
        rustix::fs::access(&self.root, may).map_err(|e| StoreError::io("write to", &self.root, e))
    }

    /// The log of background work.
    pub fn log(&self) -> Log {
        Log::new(self.root.join("log"))
    }

    /// What is kept of a key; it need not exist.
    pub fn key(&self, key: &Key) -> KeyDir {
        KeyDir::new(self.root.join("keys").join(directory_name(key)), key.clone())
    }

    /// The keys of which something is kept, in order.
    pub fn keys(&self) -> Result<Vec<Key>, StoreError> {
        let mut known = KnownKeys::default();
        self.look_for_keys(&mut known)?;
        Ok(known.by_key.into_iter().collect())
    }

    /// Brings what is known up to date: only keys that are new are read.
    pub fn look_for_keys(&self, known: &mut KnownKeys) -> Result<(), StoreError> {
        let path = self.root.join("keys");
        let mut before = std::mem::take(known);
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                known.is_whole = true;
                return Ok(());
            }
            Err(e) => return Err(StoreError::io("list", &path, e)),
        };
        let mut being_made = 0;
        for entry in entries {
            let entry = entry.map_err(|e| StoreError::io("list", &path, e))?;
            let key = match before.by_directory.remove(&entry.file_name()) {
                Some(key) => Some(key),
                None => key_in(&entry),
            };
            match key {
                Some(key) => {
                    known.by_key.insert(key.clone());
                    known.by_directory.insert(entry.file_name(), key);
                }
                None => being_made += u32::from(is_recent(&entry)),
            }
        }
        known.is_whole = being_made == 0;
        Ok(())
    }

    /// Removes what exceeds the limits on all keys together: keys not started for long, then, oldest key
    /// first, traces, then whole keys, until the rest fits. Keys that somebody has locked stay.
    pub fn tidy(&self, limits: &Limits, now: SystemTime) -> Result<(), StoreError> {
        let mut keys: Vec<(SystemTime, u64, KeyDir)> = Vec::new();
        for key in self.keys()? {
            let dir = self.key(&key);
            let (used, size) = dir.last_used_and_size();
            keys.push((used, size, dir));
        }
        // What was last used in the future, by a clock that was wrong, would otherwise outlast all others
        // until then.
        keys.sort_small_by_key(|(used, _, _)| (*used <= now, *used));
        let may_age = keys.len().saturating_sub(limits.ageless_keys);
        // One that cannot be removed does not keep the others.
        let mut failed = None;
        let mut kept = Vec::new();
        for (index, (used, size, dir)) in keys.into_iter().enumerate() {
            let age = now.duration_since(used).unwrap_or(Duration::ZERO);
            if index < may_age && age > limits.key_age && dir.is_enabled() {
                if let Err(error) = dir.forget_unless_locked() {
                    failed = Some(error);
                }
            } else {
                kept.push((used, size, dir));
            }
        }
        let mut keys = kept;
        self.remove_strays(now);
        let mut total: u64 = keys.iter().map(|(_, size, _)| size).sum();
        for (_, size, dir) in &mut keys {
            if total <= limits.total_bytes {
                break;
            }
            match dir.try_lock() {
                Ok(Some(lock)) => {
                    let removed = lock.remove_traces();
                    *size = size.saturating_sub(removed);
                    total = total.saturating_sub(removed);
                }
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        for (_, size, dir) in &keys {
            if total <= limits.total_bytes {
                break;
            }
            if dir.is_enabled() {
                match dir.forget_unless_locked() {
                    Ok(true) => total = total.saturating_sub(*size),
                    Ok(false) => {}
                    Err(error) => failed = Some(error),
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Removes what a kill left outside of any key: directories that were being forgotten or made, temporary
    /// files of devices. Those younger than a day may be in use.
    fn remove_strays(&self, now: SystemTime) {
        for part in ["keys", "devices", STARTS] {
            let directory = self.root.join(part);
            // What a link leads to is somebody else's.
            if !std::fs::symlink_metadata(&directory).is_ok_and(|facts| facts.is_dir()) {
                continue;
            }
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                let path = entry.path();
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let temporary = name.starts_with(file::TEMPORARY);
                // Nor is what has another name: somebody may have named a directory that was there.
                let nobodys = match part {
                    "keys" => is_directory_name(&name) && !path.join("key").exists(),
                    "devices" => false,
                    _ => {
                        is_directory_name(&name) && !is_somebodys(&entry.file_name(), &self.root.join("keys"))
                    }
                };
                let modified = std::fs::symlink_metadata(&path).and_then(|m| m.modified());
                let old = modified.is_ok_and(|m| now.duration_since(m).unwrap_or(Duration::ZERO) > STRAY_AGE);
                if old && (temporary || nobodys) {
                    // What stays is tried again.
                    let _ = std::fs::remove_dir_all(&path).or_else(|_| std::fs::remove_file(&path));
                }
            }
        }
    }
}
