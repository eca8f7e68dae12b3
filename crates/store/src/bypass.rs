//! The bypass of a key: that nothing is done for its starts, and why.
//!
//! A file of five lines, `bypass`, that is there as long as the key is bypassed: one start in how many
//! re-evaluates it, the kernel and the machine that it holds for, whether that start has a replay, and why.
//! It is read before anything else is done for a start, by `headstart-init` too, which is a program without a
//! library: hence no JSON, and a place that it knows.

use crate::file;
use crate::{KeyDir, KeyLock, StoreError};

const FILE: &str = "bypass";
/// More than five lines have, bytes.
const MAX: u64 = 4096;

/// Starts of a key are bypassed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bypass {
    /// One start in so many, by chance, is not bypassed, and re-evaluates whether the others are.
    pub every: u32,
    /// The kernel that ran, as uname(2) calls its release: with another one nothing is bypassed.
    pub kernel: String,
    /// The machine that it was found on, as /etc/machine-id names it; empty where there is none. What an
    /// image brought from another machine bypasses nothing.
    pub machine: String,
    /// Whether the start that re-evaluates has a replay: where only that can tell.
    pub replay: bool,
    /// Why starts are bypassed, for people.
    pub why: String,
}

impl Bypass {
    fn to_text(&self) -> String {
        let mode = if self.replay { "replay" } else { "record" };
        let why = self.why.replace('\n', " ");
        let Bypass {
            every,
            kernel,
            machine,
            ..
        } = self;
        format!("{every}\n{kernel}\n{machine}\n{mode}\n{why}\n")
    }

    fn parse(text: &str) -> Option<Bypass> {
        let mut lines = text.lines();
        Some(Bypass {
            every: lines.next()?.parse().ok()?,
            kernel: lines.next()?.into(),
            machine: lines.next()?.into(),
            replay: lines.next()? == "replay",
            why: lines.next()?.into(),
        })
    }
}

impl KeyDir {
    /// Its bypass, if its starts are bypassed. What cannot be read bypasses nothing.
    pub fn bypass(&self) -> Option<Bypass> {
        let bytes = file::read_bounded(&self.path().join(FILE), MAX).ok().flatten()?;
        Bypass::parse(&String::from_utf8(bytes).ok()?)
    }
}

impl KeyLock {
    /// Has the key's starts bypassed, or with `None` not any more.
    pub(crate) fn write_bypass(&self, bypass: Option<&Bypass>) -> Result<(), StoreError> {
        match bypass {
            Some(bypass) if self.dir().bypass().as_ref() == Some(bypass) => Ok(()),
            Some(bypass) => self.write(FILE, bypass.to_text().as_bytes()),
            None => self.remove(FILE),
        }
    }
}

#[cfg(test)]
impl Bypass {
    /// One, for tests.
    pub(crate) fn example() -> Bypass {
        Bypass {
            every: 10,
            kernel: "6.18.1".into(),
            machine: "4ed0".into(),
            replay: false,
            why: "nothing to gain".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Store;
    use headstart_model::Key;

    #[test]
    fn a_bypass_is_kept_as_it_was_saved_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let key = Store::new(dir.path()).key(&Key::new("boot").unwrap());
        assert_eq!(key.bypass(), None);
        let lock = key.lock().unwrap();
        lock.write_bypass(Some(&Bypass::example())).unwrap();
        assert_eq!(key.bypass(), Some(Bypass::example()));
        lock.write_bypass(None).unwrap();
        lock.write_bypass(None).unwrap();
        assert_eq!(key.bypass(), None);
        std::fs::write(
            key.path().join(FILE),
            "10\n6.18.1\nrecord\nas it was written before\n",
        )
        .unwrap();
        assert_eq!(key.bypass(), None, "what cannot be read bypasses nothing");
    }
}
