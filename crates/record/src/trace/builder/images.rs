//! Images of file systems that only the start sees (`unshare --mount; mount -o loop`, `RootImage=`): their
//! files have no path that anybody else could read them by, but the image has one, and what the loop driver
//! reads of it is what the start needs.

use crate::kernel::event::{Dev, Place};
use std::collections::HashMap;

/// So many file systems are looked for.
const MOST: usize = 64;

/// A device that lies on others does so through so many.
const DEPTH: u32 = 4;

/// The file systems that were used and that no mount shows: on what device, and of which file.
#[derive(Default)]
pub(super) struct Images(HashMap<Dev, Vec<Vec<u8>>>);

impl Images {
    /// A file was seen that no mount shows. The device may be gone at the end: so its image is asked for now.
    pub(super) fn add(&mut self, place: &Place) {
        let dev = place.dev;
        // Not one without a block device, as file systems in memory.
        if dev.major != 0 && self.0.len() < MOST {
            self.0.entry(dev).or_insert_with(|| backing(dev));
        }
    }

    /// Whether what the kernel read of a file may have been read for one of them. Of a device that was gone
    /// before it could be asked any file may be the image.
    pub(super) fn may_be(&self, path: &[u8]) -> bool {
        let is_it = |files: &Vec<Vec<u8>>| files.is_empty() || files.iter().any(|file| file == path);
        self.0.values().any(is_it)
    }

    /// Whether a file system is one of them.
    pub(super) fn has(&self, dev: Dev) -> bool {
        self.0.contains_key(&dev)
    }
}

/// The files that a device lies in, itself or by way of others.
fn backing(dev: Dev) -> Vec<Vec<u8>> {
    let mut images = Vec::new();
    scan(
        &format!("/sys/dev/block/{}:{}", dev.major, dev.minor),
        DEPTH,
        &mut images,
    );
    images
}

fn scan(device: &str, depth: u32, found: &mut Vec<Vec<u8>>) {
    // A partition's is its disk's.
    for device in [device.to_owned(), format!("{device}/..")] {
        if let Ok(mut file) = std::fs::read(format!("{device}/loop/backing_file")) {
            file.truncate(file.trim_ascii_end().len());
            found.push(file);
        }
    }
    let below = std::fs::read_dir(format!("{device}/slaves"))
        .into_iter()
        .flatten();
    for slave in below.flatten().take(MOST) {
        if let (Some(left), Ok(path)) = (depth.checked_sub(1), slave.path().into_os_string().into_string()) {
            scan(&path, left, found);
        }
    }
}
