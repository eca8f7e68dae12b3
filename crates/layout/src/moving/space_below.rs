//! What a file system lies on may have less room than the file system itself: an image in a file with holes,
//! a thin volume. How much of it is left is asked where that can be told; elsewhere room is found out by
//! writing it ([`super::donor::Donor::write`]).

use super::mapper;
use headstart_system::ask_within::ask_within;
use headstart_system::mounts::MountTable;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// So many devices lie below each other, at most, and as many beside each other.
const MOST_DEPTH: usize = 8;
const MOST_BESIDE: usize = 64;
/// What lies below is others', too: of a small file system this share stays free, of a large one so much.
const STAYS_FREE_SHARE: u64 = 20;
const STAYS_FREE_BYTES: u64 = 1 << 30;
/// A file system that does not answer in this time says nothing.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// How many bytes may be taken of what lies below a device, in whichever of its layers there is the least;
/// `None` where none of them says.
pub(super) fn free(device: (u32, u32)) -> Option<u64> {
    least(&device_directory(device)?, 0)
}

fn device_directory((major, minor): (u32, u32)) -> Option<PathBuf> {
    let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    device.canonicalize().ok()
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
    let of_file = file.and_then(|path| space_of_file(path.trim_ascii_end(), depth));
    let slaves = devices_linked(device, "slaves");
    let mapped = device
        .join("dm")
        .exists()
        .then(|| space_of_mapped(device, &slaves))
        .flatten();
    let below = slaves.iter().filter_map(|device| least(device, depth + 1));
    below.chain(of_file).chain(mapped).min()
}

/// The devices that one lies on (`slaves`), or that lie on it (`holders`).
fn devices_linked(device: &Path, which: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(device.join(which))
        .into_iter()
        .flatten()
        .flatten();
    let entries = entries.take(MOST_BESIDE);
    entries
        .filter_map(|entry| entry.path().canonicalize().ok())
        .collect()
}

/// What a volume of device mapper says of itself, and where it has snapshots, what those say: what is written
/// to it is first copied to them.
fn space_of_mapped(device: &Path, slaves: &[PathBuf]) -> Option<u64> {
    let numbers = |device: &Path| {
        let text = std::fs::read_to_string(device.join("dev")).ok()?;
        let (major, minor) = text.trim_end().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    let mut devices = vec![numbers(device)?];
    let snapshots = slaves.iter().flat_map(|device| devices_linked(device, "holders"));
    let snapshots: Vec<_> = snapshots
        .filter_map(|device| numbers(&device))
        .take(MOST_BESIDE)
        .collect();
    let ask = move || {
        if !snapshots.is_empty() && mapper::is_origin(devices[0]) {
            devices.extend(snapshots);
        }
        devices
            .into_iter()
            .filter_map(mapper::free)
            .min()
            .map(|free| free.to_ne_bytes().to_vec())
    };
    let answer = ask_within(0, ANSWERS_WITHIN, Box::new(ask))?;
    Some(u64::from_ne_bytes(answer.try_into().ok()?))
}

/// What the file system of an image may still give it, and what that lies on.
fn space_of_file(path: &[u8], depth: usize) -> Option<u64> {
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(path));
    // Who owns the image may have mounted something over it that does not answer.
    let answer = ask_within(0, ANSWERS_WITHIN, Box::new(move || ask_file_system(&path)))?;
    let number = |at: usize| {
        Some(u64::from_ne_bytes(
            answer.get(at * 8..at * 8 + 8)?.try_into().ok()?,
        ))
    };
    let (device, free) = (number(0)?, number(1)?);
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    let below = device_directory(device).and_then(|below| least(&below, depth + 1));
    Some(below.map_or(free, |below| below.min(free)))
}

/// The device that a file lies on, and the bytes that its file system may still give it, as two numbers.
fn ask_file_system(path: &Path) -> Option<Vec<u8>> {
    let facts = std::fs::metadata(path).ok().filter(Metadata::is_file)?;
    let holes = facts.len().saturating_sub(facts.blocks() * 512);
    let volume = rustix::fs::statvfs(path).ok()?;
    let free = may_give(
        volume.f_blocks.saturating_mul(volume.f_frsize),
        volume.f_bavail.saturating_mul(volume.f_frsize),
    );
    // It takes what its holes are, at most; one without holes takes nothing more.
    let free = if free >= holes { u64::MAX } else { free };
    Some(
        [device_of_source(path, facts.dev()), free]
            .map(u64::to_ne_bytes)
            .concat(),
    )
}

/// The bytes that a file system of this size may give of those that it has free.
fn may_give(size: u64, free: u64) -> u64 {
    free.saturating_sub((size / STAYS_FREE_SHARE).min(STAYS_FREE_BYTES))
}

/// The device of a file system; where its number is no device's (btrfs), that which was mounted.
fn device_of_source(path: &Path, device: u64) -> u64 {
    if rustix::fs::major(device) != 0 {
        return device;
    }
    let table = MountTable::read().unwrap_or_default();
    let mount = table.lookup(path.as_os_str().as_bytes());
    let source = mount.map(|mount| mount.source.as_path());
    let source = source.filter(|source| source.starts_with("/dev"));
    let source = source.and_then(|source| std::fs::metadata(source).ok());
    source.map_or(device, |source| source.rdev())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_system::testing::{Mounted, Scratch, can_mount, run};
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
        let free_at = |at: &Path| {
            let device = std::fs::metadata(at).unwrap().dev();
            free((rustix::fs::major(device), rustix::fs::minor(device))).unwrap()
        };
        let (outer_free, inner_free) = (free_at(outer.path()), free_at(inner.path()));
        assert!(
            outer_free < 40 << 20 && inner_free <= outer_free,
            "{outer_free} {inner_free}"
        );
        let before = std::fs::File::create(pool.path().join("ballast")).unwrap();
        rustix::fs::fallocate(&before, rustix::fs::FallocateFlags::empty(), 0, 20 << 20).unwrap();
        assert!(free_at(inner.path()) <= inner_free - (19 << 20));
        drop(inner);
    }

    #[test]
    fn a_large_file_system_with_little_left_still_gives() {
        // 12 GB of 252 were free, and a move of 10 MiB was refused.
        assert_eq!(may_give(252 << 30, 12 << 30), 11 << 30);
        assert_eq!(may_give(252 << 30, 1 << 30), 0);
        assert_eq!(may_give(2000 << 20, 300 << 20), 200 << 20);
        assert_eq!(may_give(40 << 20, 1 << 20), 0);
    }

    #[test]
    fn an_image_takes_no_more_than_its_holes_are() {
        let scratch = Scratch::new().unwrap();
        let image = scratch.path().join("image");
        std::fs::write(&image, [7; 100_000]).unwrap();
        assert_eq!(ask_file_system(&image).unwrap()[8..], u64::MAX.to_ne_bytes());
        // A hole that is smaller than what is free.
        let file = std::fs::OpenOptions::new().write(true).open(&image).unwrap();
        file.set_len(1 << 20).unwrap();
        assert_eq!(ask_file_system(&image).unwrap()[8..], u64::MAX.to_ne_bytes());
        file.set_len(1 << 43).unwrap();
        let free = u64::from_ne_bytes(ask_file_system(&image).unwrap()[8..].try_into().unwrap());
        assert!(free < 1 << 43, "{free}");
    }

    #[test]
    fn below_a_file_system_whose_number_is_no_devices_it_is_asked_on() {
        if !can_mount() {
            return;
        }
        let scratch = Scratch::new().unwrap();
        let pool = ["-t", "tmpfs", "-o", "size=40M", "none"];
        let pool = Mounted::new(&pool, &scratch.path().join("pool")).unwrap();
        let make = |image: &Path, size: u64, mkfs: &[&str], at: &Path| {
            std::fs::File::create(image).unwrap().set_len(size << 20).unwrap();
            run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(image)).unwrap();
            Mounted::new(&["-o", "loop", image.to_str().unwrap()], at).unwrap()
        };
        let outer = make(
            &pool.path().join("image"),
            300,
            &["mkfs.btrfs", "-q"],
            &scratch.path().join("outer"),
        );
        let inner = make(
            &outer.path().join("image"),
            100,
            &["mkfs.ext4", "-q", "-F"],
            &scratch.path().join("inner"),
        );
        let device = std::fs::metadata(inner.path()).unwrap().dev();
        let free = free((rustix::fs::major(device), rustix::fs::minor(device))).unwrap();
        assert!(free < 40 << 20, "{free}");
        drop(inner);
    }
}
