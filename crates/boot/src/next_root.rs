//! From the initramfs into the root that follows it.
//!
//! The hook starts this process when the root is mounted. Nothing can be recorded or found before `/proc`,
//! `/sys`, `/dev` and `/run` have been moved there, the last thing that an initramfs does before it becomes
//! the root: that is waited for. By then systemd has ended what it wanted to end, so the name that made it
//! spare this process can go.

use crate::wait::who::FROM_INITRAMFS;
use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// An initramfs that asks somebody for a password has done so before it mounts the root.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// `/proc` is moved at once: where it has gone to another root than this for so long, as to an overlay, this
/// one is none. Process 1 may wait for the word of this one meanwhile.
const ELSEWHERE: Duration = Duration::from_millis(100);

/// Waits until `next` is about to be the root, and begins anew in it. Does not return unless it fails.
pub fn enter(next: &Path) -> Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let named = || format!("cannot enter {}", next.display());
    // A descriptor leads there wherever it is moved.
    let root = openat(CWD, next, flags, Mode::empty()).with_context(named)?;
    let name = next.canonicalize().with_context(named)?;
    let is_there = || {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        openat(&root, "proc/self/exe", flags, Mode::empty()).is_ok()
    };
    let begun = Instant::now();
    let mut seen = begun;
    while !is_there() {
        if is_covered(&root, &name) && !is_there() {
            bail!("another root is mounted at {}", name.display());
        }
        if begun.elapsed() > PATIENCE {
            bail!(
                "{} has not become the root in {} s",
                next.display(),
                PATIENCE.as_secs()
            );
        }
        if Path::new("/proc/self/exe").is_symlink() {
            seen = Instant::now();
        }
        if seen.elapsed() > ELSEWHERE {
            bail!("{} is not the root that follows", next.display());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    rustix::process::fchdir(&root).with_context(named)?;
    rustix::process::chroot(".").with_context(named)?;
    // What the hook has left there, or nothing.
    let told_by = std::env::var_os(FROM_INITRAMFS).unwrap_or_default();
    let error = Command::new("/proc/self/exe")
        .arg0("headstart")
        .args(["boot", "run"])
        .env(FROM_INITRAMFS, told_by)
        .exec();
    Err(error).with_context(named)
}

/// Whether something else is mounted by now at the path that the root had, as an overlay in which it is a
/// layer: that will be the root. One that was only moved leaves a directory there.
fn is_covered(root: &OwnedFd, name: &Path) -> bool {
    let device = |path: &Path| Some(std::fs::metadata(path).ok()?.dev());
    let Ok(ours) = rustix::fs::fstat(root) else {
        return false;
    };
    let there = device(name);
    there.is_some_and(|there| there != ours.st_dev) && name.parent().and_then(device) != there
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    #[test]
    fn case_16_a_root_over_which_another_is_mounted_is_none_and_one_that_was_moved_is() {
        if !headstart_system::testing::can_mount() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("root");
        std::fs::create_dir(&name).unwrap();
        let mount_one = || mount("tmpfs", &name, "tmpfs", MountFlags::empty(), c"size=1m").unwrap();
        mount_one();
        let root = openat(CWD, &name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let at_first = is_covered(&root, &name);
        unmount(&name, UnmountFlags::DETACH).unwrap();
        let moved = is_covered(&root, &name);
        mount_one();
        let covered = is_covered(&root, &name);
        unmount(&name, UnmountFlags::DETACH).unwrap();
        assert_eq!((at_first, moved, covered), (false, false, true));
    }
}
