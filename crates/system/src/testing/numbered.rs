//! Files that are told apart by their numbers, and what a start needs that reads them from the last to the
//! first.

use headstart_model::profile::Policy;
use headstart_model::{Key, Profile};
use std::io;
use std::path::{Path, PathBuf};

/// Where the file of this number is, below a directory.
pub fn path(at: &Path, number: u64) -> PathBuf {
    at.join(format!("{number:03}"))
}

/// So many bytes that tell the file and the place in it.
pub fn contents(number: u64, bytes: u64) -> Vec<u8> {
    let words = (0..bytes.div_ceil(8)).map(|word| (number << 32 | word).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut contents: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    contents.truncate(bytes as usize);
    contents
}

/// The profile of a start that reads so many of them whole, from the last to the first.
pub fn backwards(key: &Key, at: &Path, files: u64) -> io::Result<Profile> {
    let entries = (0..files).map(|number| super::whole(&path(at, number), files - number));
    Ok(Profile {
        entries: entries.collect::<io::Result<_>>()?,
        ..Profile::new(key.clone(), rustix::param::page_size() as u32, Policy::Decay)
    })
}
