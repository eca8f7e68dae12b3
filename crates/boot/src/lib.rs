//! The boot of the whole machine: one process, `headstart boot run`, that reads ahead what the boot will need, records
//! what it used, and when it has ended learns from it.
//!
//! ```text
//!  initramfs hook, or `init=`, or else the first unit of sysinit
//!        │
//!   [`run`]  boot-failure guard ── taken before the first request and the recorder (`begin`)
//!        │   [`replays`]  a device's part begins when it is mounted; who would catch up waits (`barrier`)
//!        │   recorder     from the same instant, everybody but this process
//!        │   [`end`]      systemd has finished, a session has begun, quiet; or 120 s
//!        ▼
//!   `finish`: [`stages`] marks after the fact, [`fit`] whether it was a boot like others, then learn, plan, keep, arm the guard
//! ```
//!
//! Nothing here can make a boot fail: nobody waits for this process without a limit, and whatever goes wrong is a line in the log and in
//! `headstart boot status`.

mod barrier;
mod begin;
mod boot;
mod bus;
mod checked;
pub mod cmdline;
pub mod decision;
pub mod early;
mod end;
mod finish;
mod fit;
mod image;
pub mod init;
pub mod install;
pub mod last;
pub mod lasting;
mod manager;
pub mod marks;
mod memory;
pub mod next_root;
mod program;
mod recording;
mod replays;
pub mod run;
mod sessions;
mod signs;
mod spent;
mod stages;
mod this_boot;
pub mod units;
pub mod waiters;

pub use begin::GIVEN_UP;
pub use image::state_below;
pub use this_boot::{RUN, boot_id, key};
