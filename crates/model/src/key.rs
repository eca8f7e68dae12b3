//! Whose start it is.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of what is started: `boot`, or a program. Equal keys share a profile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key(String);

/// The longest key that is accepted, in bytes.
pub const MAX_KEY: usize = crate::limits::KEY;

/// The key of boots, which is no program's.
pub const BOOTS: &str = "boot";

/// What stands between the key of all users' starts and the number of one of them.
const OF_USER: &str = " of user ";

/// Why a text is not a key.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    /// It has no characters.
    #[error("the key is empty: give a name such as a program's path")]
    Empty,
    /// It is longer than [`MAX_KEY`].
    #[error("the key has {0} bytes, {MAX_KEY} are allowed: choose a shorter --name")]
    TooLong(usize),
    /// It has a control character, which would disturb every listing.
    #[error("the key {0:?} has a control character: choose a --name without one")]
    Control(String),
}

/// Keys are in the order of their texts, and equal where those are.
impl std::borrow::Borrow<str> for Key {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl Key {
    /// A key of the given text.
    pub fn new(name: impl Into<String>) -> Result<Key, KeyError> {
        let name = name.into();
        if name.is_empty() {
            return Err(KeyError::Empty);
        }
        if name.len() > MAX_KEY {
            return Err(KeyError::TooLong(name.len()));
        }
        if name.chars().any(char::is_control) {
            return Err(KeyError::Control(name));
        }
        Ok(Key(name))
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key of one user's starts of the same.
    pub fn of_user(&self, user: u32) -> Result<Key, KeyError> {
        Key::new(format!("{self}{OF_USER}{user}"))
    }

    /// Whose starts it is of, if they are one user's.
    pub fn user(&self) -> Option<u32> {
        self.parts().1
    }

    /// The text of the key of all users' starts of the same.
    pub fn of_all(&self) -> &str {
        self.parts().0
    }

    fn parts(&self) -> (&str, Option<u32>) {
        let parts = self.0.rsplit_once(OF_USER);
        let user = parts.and_then(|(all, user)| Some((all, Some(user.parse().ok()?))));
        user.unwrap_or((&self.0, None))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_names_are_refused_with_a_reason() {
        assert_eq!(Key::new(""), Err(KeyError::Empty));
        assert_eq!(
            Key::new("x".repeat(MAX_KEY + 1)),
            Err(KeyError::TooLong(MAX_KEY + 1))
        );
        assert!(matches!(Key::new("a\nb"), Err(KeyError::Control(_))));
        assert_eq!(Key::new("boot").map(|k| k.to_string()), Ok("boot".into()));
    }

    #[test]
    fn a_key_of_a_user_tells_whose_it_is() {
        let key = Key::new("/srv/a of user").unwrap();
        let of_user = key.of_user(1000).unwrap();
        assert_eq!(of_user.as_str(), "/srv/a of user of user 1000");
        assert_eq!((of_user.of_all(), of_user.user()), (key.as_str(), Some(1000)));
        for text in [
            "/usr/bin/x",
            "/srv/a of user b",
            "/srv/a of user ",
            "a of user 4294967296",
        ] {
            let key = Key::new(text).unwrap();
            assert_eq!((key.of_all(), key.user()), (text, None));
        }
    }
}
