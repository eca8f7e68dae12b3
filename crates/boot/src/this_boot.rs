//! This boot: the key that boots are known by, how the kernel names this one, and where it keeps what lasts
//! until the next.

use anyhow::Result;
use headstart_model::Key;
use headstart_model::key::BOOTS;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Where a running boot keeps what lasts until the next: marks, and the lock of the one process that serves
/// it.
pub const RUN: &str = "/run/headstart";

/// The key that boots are known by.
pub fn key() -> Result<Key> {
    Ok(Key::new(BOOTS)?)
}

/// This boot, as the kernel names it.
pub fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_owned()
}

/// Makes that directory, or another in its place, for root alone: who can open the lock in it can take the
/// lock.
pub fn make_run(run: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(run)
}
