//! Whose keys are whose: those of users, and of the system.

use headstart_model::Key;
use headstart_model::users::is_ordinary;

/// The key of a user's starts. What root's starts read is read ahead for root alone, and what a user's read
/// for that user: so nobody has a file read that is another's. A service of the system's is the same whoever
/// it runs as; but an ordinary user's process may have got into its control group, as a job of cron's has,
/// and may have process 1 for a parent.
pub(super) fn key_of_user(key: Key, uid: u32) -> Option<Key> {
    if uid == 0 || !key.as_str().starts_with('/') && !is_ordinary(uid) {
        return Some(key);
    }
    key.of_user(uid).ok()
}

/// Who has to be allowed to read what is read ahead for a start: its user, unless all that its key's starts
/// read is the system's.
pub(super) fn reader_of(key: &Key, uid: u32) -> Option<u32> {
    (uid != 0 && (key.as_str().starts_with('/') || key.user() == Some(uid))).then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_starts_are_that_users_and_read_what_that_user_may() {
        let user_key_of = |text: &str, uid| key_of_user(Key::new(text).unwrap(), uid).unwrap();
        for (text, uid, key, reader) in [
            ("/usr/bin/x", 0, "/usr/bin/x", None),
            ("/usr/bin/x", 1000, "/usr/bin/x of user 1000", Some(1000)),
            ("/usr/bin/x", 33, "/usr/bin/x of user 33", Some(33)),
            ("postgresql.service", 110, "postgresql.service", None),
            // A service with `DynamicUser=`.
            ("fwupd.service", 61184, "fwupd.service", None),
            // A job that cron has started, and left behind.
            ("cron.service", 1000, "cron.service of user 1000", Some(1000)),
        ] {
            let user_key = user_key_of(text, uid);
            assert_eq!((user_key.as_str(), reader_of(&user_key, uid)), (key, reader));
        }
        // What an administrator has learned for all.
        let system_key = Key::new("/usr/bin/x").unwrap();
        assert_eq!(reader_of(&system_key, 1000), Some(1000));
        let operation = crate::key::of_operation(1000, "load").unwrap();
        assert_eq!(reader_of(&operation, 1000), Some(1000));
    }
}
