//! Which users have started a key, so that each can be told of the own starts and of nobody else's.

use crate::{KeyDir, KeyLock, StoreError, file};
use serde::{Deserialize, Serialize};

const FILE: &str = "users";

/// So many users are known of a key; who has not started it for longest goes first.
const MOST: usize = 64;

/// More than so many users take, bytes.
const MAX: u64 = 16 << 10;

/// A user's starts of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStarts {
    /// The user.
    pub uid: u32,
    /// How many starts.
    pub starts: u64,
    /// When the last one began, nanoseconds since 1970.
    pub last_unix_ns: u64,
}

impl KeyDir {
    /// Who has started it; nobody where that cannot be read.
    pub fn users(&self) -> Vec<UserStarts> {
        let bytes = file::read_bounded(&self.path().join(FILE), MAX).ok().flatten();
        bytes
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }
}

impl KeyLock {
    /// Counts a start by a user.
    pub fn add_user(&self, uid: u32, started_unix_ns: u64) -> Result<(), StoreError> {
        let mut users = self.dir().users();
        let before = users
            .iter()
            .position(|user| user.uid == uid)
            .map(|at| users.remove(at));
        let starts = before.map_or(0, |user| user.starts).saturating_add(1);
        users.push(UserStarts {
            uid,
            starts,
            last_unix_ns: started_unix_ns,
        });
        // Each goes to the end when it starts the key: the first ones have not for longest.
        let excess = users.len().saturating_sub(MOST);
        users.drain(..excess);
        let bytes = serde_json::to_vec(&users)
            .map_err(|e| StoreError::io("encode", &self.dir().path().join(FILE), std::io::Error::other(e)))?;
        self.write(FILE, &bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use headstart_model::Key;

    #[test]
    fn starts_are_counted_by_user_and_users_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let key = Store::new(dir.path()).key(&Key::new("/usr/bin/x").unwrap());
        assert_eq!(key.users(), []);
        let lock = key.lock().unwrap();
        lock.add_user(1000, 5).unwrap();
        lock.add_user(1001, 6).unwrap();
        lock.add_user(1000, 7).unwrap();
        let of_1000 = UserStarts {
            uid: 1000,
            starts: 2,
            last_unix_ns: 7,
        };
        assert_eq!(key.users()[1], of_1000);
        for uid in 0..100 {
            lock.add_user(u32::MAX - uid, u64::MAX).unwrap();
        }
        assert_eq!(key.users().len(), MOST);
        assert!(key.users().iter().all(|user| user.uid != 1001));
        assert!(std::fs::metadata(key.path().join(FILE)).unwrap().len() < MAX);
        std::fs::write(key.path().join(FILE), "nonsense").unwrap();
        assert_eq!(key.users(), []);
    }
}
