//! A root that is read-only only to be checked, and has been.
//!
//! Debian's kernel command line says `ro`, for a file system must not be written to while it is checked. Its
//! initramfs does that, leaves a file to say so, and mounts the root read-only all the same; systemd makes it
//! writable some seconds later. While process 1 waits nobody but this process runs, so that can as well be
//! now, when the boot-failure guard is to be taken.

use crate::persistence::{fields, is_read_only};
use anyhow::{Context, Result};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountFlags, mount_remount};
use std::path::Path;

/// Left by initramfs-tools where the check found nothing, or has mended all (`_checkfs_once` in its
/// `scripts/functions`); for Debian's systemd too, up to 12, there is nothing to be checked then
/// (`systemd-fsck-root.service`).
const CHECKED: &str = "run/initramfs/fsck-root";

/// Words of the kernel command line by which systemd goes to a target where the root may stay read-only, for
/// somebody to mend it (kernel-command-line(7)).
const OTHER_TARGETS: [&str; 8] = ["emergency", "-b", "rescue", "single", "-s", "s", "S", "1"];
const OTHER_TARGET: &str = "systemd.unit=";

/// Makes the root of this boot writable, as [`make_writable`] does.
pub fn make_root_writable(is_alone: impl FnOnce() -> bool) -> Result<bool> {
    let line = std::fs::read("/proc/cmdline").context("cannot read /proc/cmdline")?;
    make_writable(Path::new("/"), &String::from_utf8_lossy(&line), is_alone)
}

/// Makes the root writable, if it is not, has been checked, and is to be: `/etc/fstab` names it, and not as
/// `ro`, and the kernel command line does not say that this is to be another boot than usual. Whether it did.
/// `is_alone` is asked at the last moment, for it decides: systemd would check the root again, however
/// briefly, and a file system must not become writable amid that.
fn make_writable(root: &Path, command_line: &str, is_alone: impl FnOnce() -> bool) -> Result<bool> {
    let named = || format!("cannot make {} writable", root.display());
    let flags = statvfs(root).with_context(named)?.f_flag;
    // Read only where it decides: a boot waits.
    let fstab = || std::fs::read_to_string(root.join("etc/fstab")).unwrap_or_default();
    if !flags.contains(StatVfsMountFlags::RDONLY)
        || !root.join(CHECKED).exists()
        || !is_to_be_writable(&fstab())
        || command_line
            .split_whitespace()
            .any(|word| OTHER_TARGETS.contains(&word) || word.starts_with(OTHER_TARGET))
        || !is_alone()
    {
        return Ok(false);
    }
    let kept = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ];
    let kept = kept
        .into_iter()
        .filter(|(flag, _)| flags.contains(*flag))
        .fold(MountFlags::empty(), |all, (_, flag)| all | flag);
    mount_remount(root, kept, c"").with_context(named)?;
    Ok(true)
}

/// What systemd-remount-fs(8) does with the root: nothing without a line of fstab(5).
fn is_to_be_writable(fstab: &str) -> bool {
    fields(fstab)
        .find(|(point, _)| *point == "/")
        .is_some_and(|(_, options)| !is_read_only(options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_system::testing::is_root;
    use rustix::mount::{UnmountFlags, mount, unmount};
    use std::fs;

    #[test]
    fn fstab_decides() {
        for (fstab, writable) in [
            ("UUID=1 / ext4 errors=remount-ro 0 1\n", true),
            (
                "# / is here\nproc /proc proc ro\n  UUID=1\t/\text4 defaults,noatime",
                true,
            ),
            ("/dev/sda1 /\n", true),
            ("/dev/sda1 / ext4 noatime,ro 0 1\n/dev/sda2 /var ext4 rw", false),
            ("#/dev/sda1 / ext4 rw 0 1\n/dev/sda2 /var ext4 rw", false),
            ("", false),
        ] {
            assert_eq!(is_to_be_writable(fstab), writable, "{fstab:?}");
        }
    }

    struct Mounted(tempfile::TempDir);

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = unmount(self.0.path(), UnmountFlags::DETACH);
        }
    }

    /// A root on a file system of its own, with its sign of a check and its fstab.
    fn read_only_root(checked: bool, fstab: &str) -> Mounted {
        let mounted = Mounted(tempfile::tempdir().unwrap());
        let root = mounted.0.path();
        mount("tmpfs", root, "tmpfs", MountFlags::NODEV, c"size=1m").unwrap();
        fs::create_dir_all(root.join("run/initramfs")).unwrap();
        fs::create_dir(root.join("etc")).unwrap();
        fs::write(root.join("etc/fstab"), fstab).unwrap();
        if checked {
            fs::write(root.join(CHECKED), "").unwrap();
        }
        mount_remount(root, MountFlags::RDONLY | MountFlags::NODEV, c"").unwrap();
        mounted
    }

    #[test]
    fn a_root_becomes_writable_only_while_process_1_waits_as_root() {
        if !is_root() {
            return;
        }
        let root = read_only_root(true, "/dev/sda / ext4 noatime 0 1\n");
        let root = root.0.path();
        assert!(!make_writable(root, "ro", || false).unwrap());
        assert!(
            fs::write(root.join("guard"), "").is_err(),
            "others may be checking it"
        );
        assert!(make_writable(root, "ro", || true).unwrap());
    }

    #[test]
    fn a_root_that_was_checked_becomes_writable_and_no_other() {
        if !is_root() {
            return;
        }
        let usual = "root=/dev/sda ro quiet";
        for (checked, fstab, line, expected) in [
            (true, "/dev/sda / ext4 noatime 0 1\n", usual, true),
            (false, "/dev/sda / ext4 noatime 0 1\n", usual, false),
            (true, "/dev/sda / ext4 ro,noatime 0 1\n", usual, false),
            (true, "/dev/sda / ext4 noatime 0 1\n", "ro emergency", false),
            (
                true,
                "/dev/sda / ext4 noatime 0 1\n",
                "ro systemd.unit=my.target",
                false,
            ),
        ] {
            let root = read_only_root(checked, fstab);
            let root = root.0.path();
            assert_eq!(
                make_writable(root, line, || true).unwrap(),
                expected,
                "{checked} {fstab} {line}"
            );
            assert_eq!(fs::write(root.join("guard"), "").is_ok(), expected);
            let flags = statvfs(root).unwrap().f_flag;
            assert!(
                flags.contains(StatVfsMountFlags::NODEV),
                "what else it was it stays"
            );
            assert!(
                !make_writable(root, line, || true).unwrap(),
                "nothing is left to do"
            );
        }
    }
}
