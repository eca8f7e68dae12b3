//! Whether this boot was one like the next: what a boot reads that checks a file system, updates packages or
//! goes to a rescue shell says nothing about others.

use crate::manager::Manager;
use headstart_start::now_unix_ns;
use headstart_system::device::DeviceFacts;
use headstart_system::ext4::Superblock;
use headstart_system::mounts::{Mount, MountTable};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Targets of boots that are not like others, and what they are for. Those that something may have failed for
/// come first.
const OTHER_TARGETS: [(&str, &str); 4] = [
    ("rescue.target", "it went to the rescue shell"),
    ("emergency.target", "it went to the emergency shell"),
    ("system-update.target", "it installed updates"),
    ("factory-reset.target", "it was a factory reset"),
];

/// What package managers write when they install or remove something.
const PACKAGES: [&str; 5] = [
    "/var/lib/dpkg/status",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/var/lib/rpm/rpmdb.sqlite",
    "/var/lib/pacman/local",
    "/lib/apk/db/installed",
];

/// Why this boot, which began at `began_unix_s`, teaches nothing; `None` if it does.
pub fn unfit(manager: Option<&mut Manager>, began_unix_s: u64) -> Option<String> {
    let other = manager.and_then(|manager| went_to(manager, &OTHER_TARGETS).ok().flatten());
    // What has a time that is still to come, as by a clock that was set back or stands, is not of this boot
    // either.
    let boot = began_unix_s..=now_unix_ns() / 1_000_000_000;
    let packages = || packages(&PACKAGES.map(Path::new), &boot);
    other.or_else(packages).or_else(|| checked(&boot))
}

/// Whether it went to a shell for somebody to mend it: systemd calls such a boot finished, too.
pub fn has_failed(manager: &mut Manager) -> io::Result<bool> {
    Ok(went_to(manager, &OTHER_TARGETS[..2])?.is_some())
}

fn went_to(manager: &mut Manager, targets: &[(&str, &str)]) -> io::Result<Option<String>> {
    for (target, why) in targets {
        if manager.active_ns(target)?.is_some() {
            return Ok(Some(format!("{why} ({target})")));
        }
    }
    Ok(None)
}

fn packages(databases: &[&Path], boot: &RangeInclusive<u64>) -> Option<String> {
    let changed = |path: &&&Path| {
        std::fs::metadata(path).is_ok_and(|facts| boot.contains(&u64::try_from(facts.mtime()).unwrap_or(0)))
    };
    let path = databases.iter().find(changed)?;
    Some(format!(
        "packages were installed or removed meanwhile ({} was written)",
        path.display()
    ))
}

/// Of ext2/3/4 the super block tells when the file system was last checked in full; a look that finds it
/// clean does not count as one.
fn checked(boot: &RangeInclusive<u64>) -> Option<String> {
    let mounts = MountTable::read().ok()?;
    for mount in of_ext(&mounts) {
        let Some(node) = DeviceFacts::of_mount(mount).and_then(|facts| facts.node) else {
            continue;
        };
        let device = File::open(&node).ok();
        if device
            .and_then(|device| last_check(&device))
            .is_some_and(|at| boot.contains(&at))
        {
            return Some(format!("the file system of {} was checked", mount.mount_point));
        }
    }
    None
}

/// A mount of each file system of ext2/3/4, one of thousands.
fn of_ext(mounts: &MountTable) -> Vec<&Mount> {
    let ext = |mount: &&Mount| matches!(mount.fstype.as_str(), "ext2" | "ext3" | "ext4");
    let mut seen = HashSet::new();
    let is_first = |mount: &&Mount| seen.insert((mount.major, mount.minor));
    mounts.all().iter().filter(ext).filter(is_first).collect()
}

/// When an ext2/3/4 file system was last checked, seconds since 1970.
fn last_check(device: &File) -> Option<u64> {
    Some(Superblock::read(device).ok()??.last_check_unix_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_ten_thousand_mounts_of_one_file_system_its_super_block_is_read_once() {
        let mut text =
            "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n21 20 8:2 / /srv rw - xfs /dev/sda2 rw\n".to_owned();
        for nth in 0..10_000 {
            text += &format!(
                "{} 20 8:{} / /jail/{nth} rw - ext4 /dev/sda rw\n",
                100 + nth,
                1 + 2 * (nth % 2)
            );
        }
        let mounts = MountTable::parse(text.as_bytes());
        let minors: Vec<u32> = of_ext(&mounts).iter().map(|mount| mount.minor).collect();
        assert_eq!(minors, [1, 3]);
    }

    #[test]
    fn a_package_database_written_since_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("nothing"), dir.path().join("status"));
        std::fs::write(&new, "x").unwrap();
        let written = u64::try_from(std::fs::metadata(&new).unwrap().mtime()).unwrap();
        assert_eq!(packages(&[&old, &new], &(written + 1..=written + 2)), None);
        assert_eq!(
            packages(&[&old, &new], &(written - 2..=written - 1)),
            None,
            "the clock stands behind"
        );
        let why = packages(&[&old, &new], &(written..=written + 1)).unwrap();
        assert!(why.contains(new.to_str().unwrap()), "{why}");
    }

    #[test]
    fn the_last_check_is_in_the_super_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let mut image = vec![0; 2048];
        std::fs::write(&path, &image).unwrap();
        assert_eq!(last_check(&File::open(&path).unwrap()), None);
        image[1024 + 0x38..1024 + 0x3a].copy_from_slice(&[0x53, 0xEF]);
        image[1024 + 0x40..1024 + 0x44].copy_from_slice(&7u32.to_le_bytes());
        std::fs::write(&path, &image).unwrap();
        assert_eq!(last_check(&File::open(&path).unwrap()), Some(7));
    }
}
