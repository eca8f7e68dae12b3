//! The boot of the whole machine: one process, `headstart boot run`, that reads ahead what the boot will need, records
//! what it used, and when it has ended learns from it.
//!
//! ```text
//!  initramfs hook, or `init=`, or else the first unit of sysinit
//!        │
//!   [`run`]  guard ── taken before the first request
//!        │   [`replays`]  a device's part begins when it is mounted
//!        │   recorder     from the same instant, everybody but this process
//!        │   [`end`]      systemd has finished, a session has begun, quiet; or 120 s
//!        ▼
//!   [`stages`] marks after the fact, [`fit`] whether it was a boot like others, then learn, plan, keep, arm the guard
//! ```
//!
//! Nothing here can make a boot fail: nobody waits for this process without a limit, and whatever goes wrong is a line in the log and in
//! `headstart boot status`.

mod bus;
mod checked;
pub mod cmdline;
pub mod config;
pub mod decision;
pub mod early;
mod end;
mod fit;
mod hold;
pub mod init;
pub mod install;
pub mod last;
mod manager;
pub mod marks;
mod memory;
pub mod next_root;
mod recording;
mod replays;
pub mod run;
mod sessions;
mod stages;

use anyhow::Result;
use headstart_model::Key;

/// The key that boots are known by.
pub fn key() -> Result<Key> {
    Ok(Key::new("boot")?)
}

/// This boot, as the kernel names it.
pub fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_owned()
}

/// Where a running boot keeps what lasts until the next: marks, and the lock of the one process that serves it.
pub const RUN: &str = "/run/headstart";
