//! From the initramfs into the root that follows it.
//!
//! The hook starts this process when the root is mounted. Nothing can be recorded or found before `/proc`, `/sys`, `/dev`
//! and `/run` have been moved there, the last thing that an initramfs does before it becomes the root: that is waited
//! for. By then systemd has ended what it wanted to end, so the name that made it spare this process can go.

use crate::waiters::FROM_INITRAMFS;
use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// An initramfs that asks somebody for a password has done so before it mounts the root.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// `/proc` is moved at once: where it has gone to another root than this for so long, as to an overlay, this one is none.
const ELSEWHERE: Duration = Duration::from_secs(1);

/// Waits until `next` is about to be the root, and begins anew in it. Does not return unless it fails.
pub fn enter(next: &Path) -> Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let named = || format!("cannot enter {}", next.display());
    // A descriptor leads there wherever it is moved.
    let root = openat(CWD, next, flags, Mode::empty()).with_context(named)?;
    let begun = Instant::now();
    let mut seen = begun;
    while openat(
        &root,
        "proc/self/exe",
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .is_err()
    {
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
