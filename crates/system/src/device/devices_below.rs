//! What a block device lies on: disks, the volumes and arrays made of them, and the directories that hold
//! images.

use super::DeviceFacts;
use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};
use std::path::Path;

/// So many devices lie below each other, at most, and as many beside each other.
const MOST_DEPTH: usize = 8;
const MOST_BESIDE: usize = 64;

/// Something that a device lies on.
pub enum Layer<'a> {
    /// A whole disk or volume, itself at first: its directory in sysfs.
    Disk(&'a Path),
    /// A directory above an image.
    Directory(&'a Statx),
}

/// Visits all that a device lies on.
pub fn visit_below(device: (u32, u32), visit: &mut dyn FnMut(Layer<'_>)) {
    visit_device(device, 0, visit);
}

fn visit_device((major, minor): (u32, u32), depth: usize, visit: &mut dyn FnMut(Layer<'_>)) {
    let device = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    if let Ok(device) = device.canonicalize() {
        visit_directory(&device, depth, visit);
    }
}

fn visit_directory(device: &Path, depth: usize, visit: &mut dyn FnMut(Layer<'_>)) {
    if depth > MOST_DEPTH {
        return;
    }
    let whole = match device.join("partition").exists() {
        true => device.parent().unwrap_or(device),
        false => device,
    };
    visit(Layer::Disk(whole));
    if let Ok(image) = std::fs::read_to_string(whole.join("loop/backing_file")) {
        let mut holds = None;
        for at in Path::new(image.trim_end_matches('\n')).ancestors().skip(1) {
            let how = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
            if let Ok(found) = statx(CWD, at, how, StatxFlags::INO) {
                holds = holds.or(Some((found.stx_dev_major, found.stx_dev_minor)));
                visit(Layer::Directory(&found));
            }
        }
        if let Some(number) = holds {
            visit_device(number, depth + 1, visit);
        }
    }
    let below = std::fs::read_dir(whole.join("slaves"))
        .into_iter()
        .flatten()
        .flatten();
    for device in below.take(MOST_BESIDE) {
        if let Ok(device) = device.path().canonicalize() {
            visit_directory(&device, depth + 1, visit);
        }
    }
}

/// How many bytes a sequential read has, at least, that passes by a cache of the device (bcache); `None`
/// where none does.
pub fn sequential_cutoff(device: &DeviceFacts) -> Option<u64> {
    let mut least = None;
    visit_below((device.major, device.minor), &mut |layer| {
        let Layer::Disk(disk) = layer else { return };
        let text = |name: &str| std::fs::read_to_string(disk.join("bcache").join(name)).ok();
        if text("state").is_some_and(|state| state.trim() == "no cache") {
            return;
        }
        let cutoff = text("sequential_cutoff").and_then(|text| bytes(text.trim()));
        least = least.into_iter().chain(cutoff.filter(|bytes| *bytes > 0)).min();
    });
    least
}

/// A number as bcache prints it: `512.0k`, `4.0M`.
fn bytes(text: &str) -> Option<u64> {
    let (number, power) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'M') => (&text[..at], 20),
        (at, 'G') => (&text[..at], 30),
        (at, 'T') => (&text[..at], 40),
        _ => (text, 0),
    };
    let number: f64 = number.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some((number * (1u64 << power) as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::testing::needs;

    #[test]
    fn sizes_are_read_as_bcache_prints_them() {
        for (text, expected) in [
            ("4.0M", Some(4 << 20)),
            ("512.0k", Some(512 << 10)),
            ("1.5G", Some(3 << 29)),
            ("0", Some(0)),
            ("1000", Some(1000)),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
        for text in ["", "M", "4.0E", "-1", "inf", "nan"] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn a_device_that_lies_on_nothing_is_visited_itself() {
        let some = std::fs::read_dir("/sys/dev/block").unwrap().flatten().next();
        if !needs("a block device", some.is_some()) {
            return;
        }
        let some = some.unwrap();
        let name = some.file_name().into_string().unwrap();
        let (major, minor) = name.split_once(':').unwrap();
        let mut disks = 0;
        visit_below((major.parse().unwrap(), minor.parse().unwrap()), &mut |layer| {
            disks += usize::from(matches!(layer, Layer::Disk(_)));
        });
        assert!(disks >= 1);
    }
}
