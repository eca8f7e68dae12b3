//! A root that is read-only only to be checked, and has been.
//!
//! Debian's kernel command line says `ro`, for a file system must not be written to while it is checked. Its initramfs does
//! that, leaves a file to say so, and mounts the root read-only all the same; systemd makes it writable some seconds
//! later. Nobody but this process runs meanwhile, so that can as well be now, when the guard wants to be taken.

use anyhow::{Context, Result};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountFlags, mount_remount};
use std::path::Path;

/// Left by initramfs-tools where the check found nothing, or has mended all (`_checkfs_once` in its `scripts/functions`); for
/// Debian's systemd too, up to 12, there is nothing to be checked then (`systemd-fsck-root.service`).
const CHECKED: &str = "run/initramfs/fsck-root";

/// Words of the kernel command line by which systemd goes to a target where the root may stay read-only, for somebody to mend it
/// (kernel-command-line(7)).
const OTHER_TARGETS: [&str; 8] = ["emergency", "-b", "rescue", "single", "-s", "s", "S", "1"];
const OTHER_TARGET: &str = "systemd.unit=";

/// Makes the root of this boot writable, as [`make_writable`] does.
pub fn make_root_writable() -> Result<bool> {
    let line = std::fs::read_to_string("/proc/cmdline").context("cannot read /proc/cmdline")?;
    make_writable(Path::new("/"), &line)
}

/// Makes the root writable, if it is not, has been checked, and is to be: `/etc/fstab` names it, and not as `ro`, and the kernel command line does not say
/// that this is to be another boot than usual. Whether it did. Only as long as process 1 waits: systemd would check the root again, however briefly.
fn make_writable(root: &Path, command_line: &str) -> Result<bool> {
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
    let line = fstab
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| {
            words.first().is_some_and(|first| !first.starts_with('#')) && words.get(1) == Some(&"/")
        });
    line.is_some_and(|words| {
        let options = words.get(3).copied().unwrap_or_default();
        !options.split(',').any(|option| option == "ro")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
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

    #[test]
    fn a_root_that_was_checked_becomes_writable_and_no_other() {
        if !rustix::process::geteuid().is_root() {
            assert!(
                std::env::var_os("HEADSTART_TESTS_SKIP").is_some(),
                "it mounts: run it as root, or leave out what cannot be tested here with HEADSTART_TESTS_SKIP=1"
            );
            eprintln!("skipped: it needs root");
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
            let root = Mounted(tempfile::tempdir().unwrap());
            let root = root.0.path();
            mount("tmpfs", root, "tmpfs", MountFlags::NODEV, c"size=1m").unwrap();
            fs::create_dir_all(root.join("run/initramfs")).unwrap();
            fs::create_dir(root.join("etc")).unwrap();
            fs::write(root.join("etc/fstab"), fstab).unwrap();
            if checked {
                fs::write(root.join(CHECKED), "").unwrap();
            }
            mount_remount(root, MountFlags::RDONLY | MountFlags::NODEV, c"").unwrap();
            assert_eq!(
                make_writable(root, line).unwrap(),
                expected,
                "{checked} {fstab} {line}"
            );
            assert_eq!(fs::write(root.join("guard"), "").is_ok(), expected);
            let flags = statvfs(root).unwrap().f_flag;
            assert!(
                flags.contains(StatVfsMountFlags::NODEV),
                "what else it was it stays"
            );
            assert!(!make_writable(root, line).unwrap(), "nothing is left to do");
        }
    }
}
