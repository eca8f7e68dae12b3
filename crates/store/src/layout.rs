//! Where things are in the state directory: the names of directories and of what lies beside them.

use crate::file;
use headstart_model::Key;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

include!("name_of_boots.rs");

/// The name of the directory of the key `boot`, and of what is needed first of boots; `headstart-init`, which
/// has no library, takes it from the same file.
pub const NAME_OF_BOOTS: &str = name_of_boots!();

/// What is needed first of each key that is replayed, beside `keys`; `headstart_system::own_program` and
/// `headstart-init` look for it too.
pub(crate) const STARTS: &str = "starts";

/// What follows the key's own name in that of its boot-failure guard; `headstart-init` reads it ahead.
pub(crate) const GUARD_ENDING: &str = ".guard";

/// Whether a directory has the form of [`directory_name`].
pub(crate) fn is_directory_name(name: &str) -> bool {
    let is_hexadecimal = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.get(..HASH)
        .is_some_and(|hash| hash.bytes().all(is_hexadecimal))
        && name[HASH..].starts_with('-')
}

/// The digits of a key's hash in its directory's name.
const HASH: usize = 16;

/// The name of a key's directory: a hash that tells keys apart, and a part for people.
pub(crate) fn directory_name(key: &Key) -> String {
    let hash = Sha256::digest(key.as_str().as_bytes());
    let mut name: String = hash
        .iter()
        .take(HASH / 2)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    // The last words of a path or command say most.
    let slug: Vec<char> = key
        .as_str()
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') {
                c
            } else {
                '-'
            }
        })
        .collect();
    name.push('-');
    name.extend(slug.iter().skip(slug.len().saturating_sub(40)));
    name
}

/// Where that of a key's directory is.
pub(crate) fn path_of_start(key: &Path) -> Option<PathBuf> {
    Some(key.parent()?.with_file_name(STARTS).join(key.file_name()?))
}

/// Its bytes, for what a key has in all.
pub(crate) fn size_of_start(key: &Path) -> u64 {
    path_of_start(key).map_or(0, |path| file::taken_by(&path))
}

/// Whether what has this name in [`STARTS`] belongs to a key of these, `keys` being where those are.
pub(crate) fn is_somebodys(name: &OsStr, keys: &Path) -> bool {
    let guarded = name.to_str().and_then(|name| name.strip_suffix(GUARD_ENDING));
    keys.join(name).exists() || guarded.is_some_and(|key| keys.join(key).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boots_have_the_name_that_headstart_init_knows() {
        assert_eq!(directory_name(&Key::new("boot").unwrap()), NAME_OF_BOOTS);
    }
}
