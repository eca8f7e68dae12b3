//! Whether this boot was one like the next: what a boot reads that checks a file system, updates packages or goes to a
//! rescue shell says nothing about others.

use crate::manager::Manager;
use headstart_system::device::DeviceFacts;
use headstart_system::ext4::Superblock;
use headstart_system::mounts::MountTable;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Targets of boots that are not like others, and what they are for.
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
    if let Some(manager) = manager {
        for (target, why) in OTHER_TARGETS {
            if manager.active_ns(target).is_ok_and(|at| at.is_some()) {
                return Some(format!("{why} ({target})"));
            }
        }
    }
    packages(&PACKAGES.map(Path::new), began_unix_s).or_else(|| checked(began_unix_s))
}

fn packages(databases: &[&Path], began_unix_s: u64) -> Option<String> {
    let changed = |path: &&&Path| {
        std::fs::metadata(path).is_ok_and(|facts| u64::try_from(facts.mtime()).unwrap_or(0) >= began_unix_s)
    };
    let path = databases.iter().find(changed)?;
    Some(format!(
        "packages were installed or removed meanwhile ({} was written)",
        path.display()
    ))
}

/// Of ext2/3/4 the super block tells when the file system was last checked in full; a look that finds it clean does not
/// count as one.
fn checked(began_unix_s: u64) -> Option<String> {
    let mounts = MountTable::read().ok()?;
    let ext = |fstype: &str| matches!(fstype, "ext2" | "ext3" | "ext4");
    for mount in mounts.all().iter().filter(|mount| ext(&mount.fstype)) {
        let Some(node) = DeviceFacts::of_mount(mount).and_then(|facts| facts.node) else {
            continue;
        };
        if File::open(&node).is_ok_and(|device| last_check(&device) >= Some(began_unix_s)) {
            return Some(format!("the file system of {} was checked", mount.mount_point));
        }
    }
    None
}

/// When an ext2/3/4 file system was last checked, seconds since 1970.
fn last_check(device: &File) -> Option<u64> {
    Some(Superblock::read(device).ok()??.last_check_unix_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_database_written_since_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("nothing"), dir.path().join("status"));
        std::fs::write(&new, "x").unwrap();
        let written = u64::try_from(std::fs::metadata(&new).unwrap().mtime()).unwrap();
        assert_eq!(packages(&[&old, &new], written + 1), None);
        let why = packages(&[&old, &new], written).unwrap();
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
