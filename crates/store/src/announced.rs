//! What users were told already: each thing is said once, not at each start.

use crate::Store;
use std::fs::File;
use std::io::ErrorKind;
use std::time::{Duration, SystemTime};

/// Said again after so long: who reads it now may be another, and most of what fails is mended by then.
const FORGOTTEN: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// So many are remembered; then all are forgotten.
const MOST: usize = 256;
/// What the files' names begin with. They are empty: on a full disk there is room for a name most often, and
/// not for more.
const NAME: &str = "said-";

/// Whether something was said before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// It was.
    Before,
    /// It was not, and will have been from now on.
    Never,
    /// That cannot be remembered here.
    Unknown,
}

/// What a line is about: without the words that have a digit or a slash, as numbers, times, addresses and
/// names of files have.
pub fn kind_of(line: &str) -> String {
    let about = |word: &&str| !word.contains(|c: char| c == '/' || c.is_ascii_digit());
    line.split_whitespace()
        .filter(about)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A number for a text, the same in each process (FNV-1a).
fn number_of(text: &str) -> u64 {
    let add = |number: u64, byte: u8| (number ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, add)
}

impl Store {
    /// Whether a line of this kind was said before, and notes that it is said.
    pub fn announce(&self, line: &str) -> Announced {
        let path = self
            .root()
            .join(format!("{NAME}{:016x}", number_of(&kind_of(line))));
        let since = std::fs::symlink_metadata(&path).and_then(|file| file.modified());
        if let Ok(since) = since {
            let is_late = SystemTime::now()
                .duration_since(since)
                .is_ok_and(|age| age > FORGOTTEN);
            if !is_late {
                return Announced::Before;
            }
            let _ = std::fs::remove_file(&path);
        }
        if self.make().is_err() {
            return Announced::Unknown;
        }
        self.forget_said();
        match File::options().write(true).create_new(true).open(&path) {
            Ok(_) => Announced::Never,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Announced::Before,
            Err(_) => Announced::Unknown,
        }
    }

    /// Forgets all where there are too many.
    fn forget_said(&self) {
        let entries = std::fs::read_dir(self.root()).into_iter().flatten().flatten();
        let said = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(NAME));
        let files: Vec<_> = said.map(|entry| entry.path()).collect();
        if files.len() >= MOST {
            for path in files {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_by_what_it_is_about() {
        let full =
            |name| format!("cannot write {name}: No space left on device (os error 28); make room there");
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("state"));
        assert_eq!(store.announce(&full("/a/.tmp-12-0-345")), Announced::Never);
        assert_eq!(store.announce(&full("/a/.tmp-13-0-678")), Announced::Before);
        assert_eq!(
            store.announce(&full("/a/b").replace("No space left", "No quota left")),
            Announced::Never
        );
        let known = || std::fs::read_dir(dir.path().join("state")).unwrap().count();
        assert_eq!(known(), 2);
        for n in 0..MOST {
            let word = |n: usize| char::from(b'a' + n as u8);
            store.announce(&format!("{}{}", word(n / 26), word(n % 26)));
        }
        assert!(known() <= MOST);
        assert_eq!(store.announce(&full("/a/c")), Announced::Never, "forgotten");
    }

    #[test]
    fn what_cannot_be_remembered_is_not_said_to_be_new() {
        let store = Store::new("/dev/null/state");
        assert_eq!(store.announce("no"), Announced::Unknown);
    }
}
