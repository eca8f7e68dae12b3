//! Whether a key is disabled: nothing is done for its starts, because somebody said so.
//!
//! A file `disabled` that is there as long as it holds. It outlives its age: what somebody said lasts until
//! somebody says otherwise, or has the key forgotten.

use crate::layout::directory_name;
use crate::{KeyDir, KeyLock, StoreError};
use headstart_model::Key;

const FILE: &str = "disabled";

impl KeyDir {
    /// Whether nobody has disabled it.
    pub fn is_enabled(&self) -> bool {
        // By its name alone: `run` asks at every start.
        std::fs::symlink_metadata(self.path().join(FILE)).is_err()
    }

    /// Whether anything is done for its starts: also, whether nobody has disabled all that they are among.
    pub fn is_served(&self) -> bool {
        let is_enabled =
            |key: Key| KeyDir::new(self.path().with_file_name(directory_name(&key)), key).is_enabled();
        self.is_enabled()
            && are_among(self.key())
                .filter_map(|text| Key::new(text).ok())
                .all(is_enabled)
    }

    /// Whether its starts are among those of another key: a user's among all users', and those of a part of a
    /// suite (`soffice --writer`) among the suite's.
    pub fn is_among(&self, other: &Key) -> bool {
        are_among(self.key()).any(|text| text == other.as_str())
    }
}

/// The texts of other keys that starts of this one are among.
fn are_among(key: &Key) -> impl Iterator<Item = &str> {
    let name = key.of_all();
    let suite = name.rsplit_once(' ').filter(|(_, part)| part.starts_with("--"));
    let whole = [Some(name), suite.map(|(suite, _)| suite)];
    whole.into_iter().flatten().filter(|text| *text != key.as_str())
}

impl KeyLock {
    /// Has anything or nothing done for the key's starts.
    pub(crate) fn write_enabled(&self, on: bool) -> Result<(), StoreError> {
        match on {
            true => self.remove(FILE),
            false => self.write(FILE, b""),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Limits, Store};
    use headstart_model::Key;
    use std::time::{Duration, SystemTime};

    #[test]
    fn who_disables_a_suite_or_all_users_starts_disables_each() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let key = |text: &str| store.key(&Key::new(text).unwrap());
        let (suite, part) = ("/bin/sh /usr/bin/soffice", "/bin/sh /usr/bin/soffice --writer");
        let of_user = key(&format!("{part} of user 1000"));
        for disabled in [suite, part] {
            key(disabled).lock().unwrap().write_enabled(false).unwrap();
            assert!(!key(part).is_served() && !of_user.is_served(), "{disabled}");
            key(disabled).lock().unwrap().write_enabled(true).unwrap();
            assert!(key(part).is_served() && of_user.is_served());
        }
        key(part).lock().unwrap().write_enabled(false).unwrap();
        assert!(key(suite).is_served());
        assert!(!of_user.is_among(of_user.key()) && of_user.is_among(key(suite).key()));
    }

    #[test]
    fn a_disabled_key_stays_disabled_until_it_is_enabled_or_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let key = store.key(&Key::new("/usr/bin/x").unwrap());
        assert!(key.is_enabled());
        key.lock().unwrap().write_enabled(true).unwrap();
        assert!(!key.exists(), "nothing is kept of a key that is as any other");
        key.lock().unwrap().write_enabled(false).unwrap();
        assert!(!key.is_enabled() && key.exists());
        // However long ago that was, and however full the directory is.
        let limits = Limits {
            ageless_keys: 0,
            total_bytes: 0,
            ..Limits::default()
        };
        let later = SystemTime::now() + Duration::from_secs(3 * 365 * 24 * 60 * 60);
        store.tidy(&limits, later).unwrap();
        assert!(!key.is_enabled());
        key.lock().unwrap().write_enabled(true).unwrap();
        assert!(key.is_enabled());
        key.lock().unwrap().write_enabled(false).unwrap();
        assert!(key.forget().unwrap() && key.is_enabled());
    }

    #[test]
    fn whoever_disables_a_program_disables_it_for_all() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let key = Key::new("/usr/bin/x").unwrap();
        let (all, one) = (store.key(&key), store.key(&key.of_user(1000).unwrap()));
        assert!(all.is_served() && one.is_served());
        one.lock().unwrap().write_enabled(false).unwrap();
        assert!(all.is_served() && !one.is_served());
        one.lock().unwrap().write_enabled(true).unwrap();
        all.lock().unwrap().write_enabled(false).unwrap();
        assert!(!all.is_served() && !one.is_served() && one.is_enabled());
    }
}
