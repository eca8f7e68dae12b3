//! Lists that say places in an image rather than names: files of the image tell where a file's bytes are.
//! These may come from anybody, so all that they say is checked, and what they make this program do is
//! bounded.

mod crc32c;
mod desync;
mod erofs;
mod lookup;
mod nydus;
mod overlaybd;

pub use desync::{ImageSize, desync};
pub use nydus::nydus;
pub use overlaybd::overlaybd;

use std::io;

/// A file of an image. Parsers read what they need of it, where they need it.
pub struct ImageFile<'a> {
    /// What errors call it.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Fills a buffer with its bytes from this offset on.
    pub read_at: &'a dyn Fn(&mut [u8], u64) -> io::Result<()>,
}

/// A list of places.
#[derive(Debug)]
pub struct Places {
    /// The list.
    pub text: Vec<u8>,
    /// Number of places listed.
    pub places: usize,
}

impl ImageFile<'_> {
    fn read(&self, into: &mut [u8], at: u64) -> Result<(), String> {
        let end = at.checked_add(into.len() as u64).filter(|end| *end <= self.size);
        let Some(end) = end else {
            return Err(self.refuse(&format!("ends at {}, within what begins at {at}", self.size)));
        };
        (self.read_at)(into, at).map_err(|error| self.refuse(&format!("bytes {at} to {end}: {error}")))
    }

    fn array<const N: usize>(&self, at: u64) -> Result<[u8; N], String> {
        let mut bytes = [0; N];
        self.read(&mut bytes, at)?;
        Ok(bytes)
    }

    fn vec(&self, at: u64, length: usize) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; length];
        self.read(&mut bytes, at)?;
        Ok(bytes)
    }

    fn refuse(&self, why: &str) -> String {
        format!("{}: {why}", self.name)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests;
