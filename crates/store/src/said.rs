//! What users were told already: each thing is said once, not at each start.

use crate::Store;
use crate::file::{read_bounded, write_whole};
use std::time::{SystemTime, UNIX_EPOCH};

/// Said again after so many days: who reads it now may be another, and most of what fails is mended by then.
const FORGOTTEN: u64 = 30;
const DAY: u64 = 24 * 60 * 60;
/// So many are remembered, the latest.
const MOST: usize = 256;
/// Characters of a line that are looked at.
const LONGEST: usize = 200;
/// Bytes of the file that are read, as those lines take at most.
const BYTES: u64 = (MOST * (LONGEST * 4 + 32)) as u64;

/// Whether something was said before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It was.
    Before,
    /// It was not, and will have been from now on.
    Never,
    /// That cannot be remembered here.
    Unknown,
}

/// What a line is about: without the words that have a digit or a slash, as numbers, times, addresses and names of files have.
pub fn kind_of(line: &str) -> String {
    let about = |word: &&str| !word.contains(|c: char| c == '/' || c.is_ascii_digit());
    line.split_whitespace()
        .filter(about)
        .collect::<Vec<_>>()
        .join(" ")
}

impl Store {
    /// Whether a line of this kind was said before, and notes that it is said.
    pub fn said(&self, line: &str) -> Said {
        let path = self.root().join("said");
        let kind: String = kind_of(line).chars().take(LONGEST).collect();
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let today = since.unwrap_or_default().as_secs() / DAY;
        let text = match read_bounded(&path, BYTES) {
            Ok(bytes) => String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned(),
            Err(_) => return Said::Unknown,
        };
        let of_late = |line: &&str| {
            let day = line.split(' ').next().and_then(|day| day.parse().ok());
            day.is_some_and(|day: u64| (today.saturating_sub(FORGOTTEN)..=today).contains(&day))
        };
        let mut lines: Vec<&str> = text.lines().filter(of_late).collect();
        let is_same = |line: &&str| line.split_once(' ').is_some_and(|(_, said)| said == kind);
        if lines.iter().any(is_same) {
            return Said::Before;
        }
        let line = format!("{today} {kind}");
        lines.push(&line);
        let text = lines.split_off(lines.len().saturating_sub(MOST)).join("\n");
        match self.make().and_then(|()| write_whole(&path, text.as_bytes())) {
            Ok(()) => Said::Never,
            Err(_) => Said::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_by_what_it_is_about() {
        let full = |name| {
            format!("cannot write {name}: No space left on device (os error 28); the old file stays, free some")
        };
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("state"));
        assert_eq!(store.said(&full("/a/.tmp-12-0-345")), Said::Never);
        assert_eq!(store.said(&full("/a/.tmp-13-0-678")), Said::Before);
        assert_eq!(
            store.said(&full("/a/b").replace("No space left", "No quota left")),
            Said::Never
        );
        for n in 0..2 * MOST {
            let word = |n: usize| char::from(b'a' + n as u8);
            store.said(&format!("{}{}", word(n / 26), word(n % 26)));
        }
        let text = std::fs::read_to_string(dir.path().join("state/said")).unwrap();
        assert_eq!(text.lines().count(), MOST);
        assert_eq!(store.said(&full("/a/c")), Said::Never, "long ago");
    }

    #[test]
    fn what_cannot_be_remembered_is_not_said_to_be_new() {
        let store = Store::new("/dev/null/state");
        assert_eq!(store.said("no"), Said::Unknown);
    }
}
