//! From the initramfs into the root that follows it.
//!
//! The hook starts this process when the root is mounted. Nothing can be recorded or found before `/proc`, `/sys`, `/dev`
//! and `/run` have been moved there, the last thing that an initramfs does before it becomes the root: that is waited
//! for. By then systemd has ended what it wanted to end, so the name that made it spare this process can go.

use super::RUN;
use super::install::FROM_INITRAMFS;
use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, openat};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// An initramfs that asks somebody for a password has done so before it mounts the root.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Waits until `next` is about to be the root, and begins anew in it. Does not return unless it fails.
pub fn enter(next: &Path) -> Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let named = || format!("cannot enter {}", next.display());
    // A descriptor leads there wherever it is moved.
    let root = openat(CWD, next, flags, Mode::empty()).with_context(named)?;
    // The real init waits where it can be told to go on, and nowhere else.
    let tell = fifo().ok();
    let begun = Instant::now();
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
        std::thread::sleep(LOOK_EVERY);
    }
    rustix::process::fchdir(&root).with_context(named)?;
    rustix::process::chroot(".").with_context(named)?;
    // The file of the initramfs, in memory until nobody runs it.
    let error = Command::new("/proc/self/exe")
        .arg0("headstart")
        .args(["boot", "run"])
        .env(
            FROM_INITRAMFS,
            tell.map_or(String::new(), |tell| tell.as_raw_fd().to_string()),
        )
        .exec();
    Err(error).with_context(named)
}

/// The pipe by which headstart-init, where it stands before the real init, is let go; it is left to the next program.
fn fifo() -> Result<OwnedFd> {
    let path = Path::new(RUN).join("init");
    std::fs::create_dir_all(RUN)?;
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    // For both: for writing alone it opens only where somebody reads.
    Ok(openat(CWD, &path, OFlags::RDWR, Mode::empty())?)
}
