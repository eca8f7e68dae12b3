//! What a file system lies on may have less room than the file system itself: an image in a file with holes, a thin volume. How much of it is left
//! is asked where that can be told; elsewhere room is found out by writing it ([`super::donor::Donor::write`]).

use crate::within::within;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// So many devices lie below each other, at most, and as many beside each other.
const MOST_DEPTH: usize = 8;
const MOST_BESIDE: usize = 64;
/// This share of what lies below stays free: it is others', too.
const STAYS_FREE: u64 = 20;
/// A file system that does not answer in this time says nothing.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// How many bytes may be taken of what lies below a device, in whichever of its layers there is the least; `None` where none of them says.
pub(super) fn free((major, minor): (u32, u32)) -> Option<u64> {
    let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    least(&device.canonicalize().ok()?, 0)
}

fn least(device: &Path, depth: usize) -> Option<u64> {
    if depth > MOST_DEPTH {
        return None;
    }
    // A partition is a directory in that of its disk.
    let device = match device.join("partition").exists() {
        true => device.parent()?,
        false => device,
    };
    let file = std::fs::read(device.join("loop/backing_file")).ok();
    let of_file = file.and_then(|path| of_file(path.trim_ascii_end(), depth));
    let below = std::fs::read_dir(device.join("slaves")).into_iter().flatten();
    let below = below.flatten().take(MOST_BESIDE);
    let below = below.filter_map(|one| least(&one.path().canonicalize().ok()?, depth + 1));
    below.chain(of_file).min()
}

/// What the file system of an image may still give it, and what that lies on.
fn of_file(path: &[u8], depth: usize) -> Option<u64> {
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
    // Who owns the image may have mounted something over it that does not answer.
    let found = within(0, ANSWERS_WITHIN, Box::new(move || ask(&path)))?;
    let number = |at: usize| {
        Some(u64::from_ne_bytes(
            found.get(at * 8..at * 8 + 8)?.try_into().ok()?,
        ))
    };
    let (device, free) = (number(0)?, number(1)?);
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let below = PathBuf::from(format!("/sys/dev/block/{major}:{minor}")).canonicalize();
    let below = below.ok().and_then(|below| least(&below, depth + 1));
    Some(below.map_or(free, |below| below.min(free)))
}

/// The device of a file, and the bytes that its file system may still give it, as two numbers.
fn ask(path: &Path) -> Option<Vec<u8>> {
    let facts = std::fs::metadata(path).ok().filter(Metadata::is_file)?;
    // One without holes takes nothing more.
    let free = match facts.blocks() * 512 >= facts.len() {
        true => u64::MAX,
        false => {
            let found = rustix::fs::statvfs(path).ok()?;
            let stays = found.f_blocks / STAYS_FREE;
            found
                .f_bavail
                .saturating_sub(stays)
                .saturating_mul(found.f_frsize)
        }
    };
    Some([facts.dev(), free].map(u64::to_ne_bytes).concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Mounted, Scratch, can_mount, run};
    use std::process::Command;

    #[test]
    fn of_an_image_in_an_image_the_layer_with_the_least_room_counts() {
        if !can_mount() {
            return;
        }
        let scratch = Scratch::new().unwrap();
        let pool = Mounted::new(
            &["-t", "tmpfs", "-o", "size=40M", "none"],
            &scratch.path().join("pool"),
        )
        .unwrap();
        let make = |image: &Path, at: &Path| {
            std::fs::File::create(image).unwrap().set_len(200 << 20).unwrap();
            run(Command::new("mkfs.ext4")
                .args(["-q", "-F", "-J", "size=4"])
                .arg(image))
            .unwrap();
            Mounted::new(&["-o", "loop", image.to_str().unwrap()], at).unwrap()
        };
        let outer = make(&pool.path().join("image"), &scratch.path().join("outer"));
        let inner = make(&outer.path().join("image"), &scratch.path().join("inner"));
        let of = |at: &Path| {
            let device = std::fs::metadata(at).unwrap().dev();
            free((rustix::fs::major(device), rustix::fs::minor(device))).unwrap()
        };
        let (outer_free, inner_free) = (of(outer.path()), of(inner.path()));
        assert!(
            outer_free < 40 << 20 && inner_free <= outer_free,
            "{outer_free} {inner_free}"
        );
        let before = std::fs::File::create(pool.path().join("ballast")).unwrap();
        rustix::fs::fallocate(&before, rustix::fs::FallocateFlags::empty(), 0, 20 << 20).unwrap();
        assert!(of(inner.path()) <= inner_free - (19 << 20));
        drop(inner);
    }

    #[test]
    fn an_image_without_holes_takes_nothing_more() {
        let scratch = Scratch::new().unwrap();
        let image = scratch.path().join("image");
        std::fs::write(&image, [7; 100_000]).unwrap();
        let found = ask(&image).unwrap();
        assert_eq!(found[8..], u64::MAX.to_ne_bytes());
    }
}
