//! Small images, made by hand, and what is made of damaged and hostile ones. That nydus's own code reads and
//! writes the same is what tests/consumers tests.

#![allow(clippy::single_range_in_vec_init)] // These are lists of ranges, also of one.

use super::ImageFile;
use std::io;

mod desync;
mod nydus;
mod overlaybd;

const BLOCK: usize = 4096;

/// Calls with an image file of these bytes.
fn with<T>(bytes: &[&[u8]], call: impl FnOnce(&[ImageFile<'_>]) -> T) -> T {
    type ReadAt<'a> = Box<dyn Fn(&mut [u8], u64) -> io::Result<()> + 'a>;
    let reads: Vec<ReadAt<'_>> = bytes
        .iter()
        .map(|bytes| {
            Box::new(|into: &mut [u8], at: u64| {
                into.copy_from_slice(&bytes[at as usize..][..into.len()]);
                Ok(())
            }) as ReadAt<'_>
        })
        .collect();
    let files: Vec<ImageFile<'_>> = bytes
        .iter()
        .zip(&reads)
        .enumerate()
        .map(|(index, (bytes, read_at))| ImageFile {
            name: format!("image {index}"),
            size: bytes.len() as u64,
            read_at,
        })
        .collect();
    call(&files)
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

/// What `bytes` becomes when each of some places is cut off or set to extremes: what is made of it has to end
/// in time, by a result or an error.
fn damaged(bytes: &[u8], most: usize, mut check: impl FnMut(&[u8])) {
    let step = (bytes.len() / most).max(1);
    for at in (0..bytes.len()).step_by(step) {
        check(&bytes[..at]);
        for value in [&[0xff; 8][..], &[0; 8], &[0xff], &[1, 0, 0, 0]] {
            let mut changed = bytes.to_vec();
            let end = changed.len().min(at + value.len());
            changed[at..end].copy_from_slice(&value[..end - at]);
            check(&changed);
        }
    }
}
