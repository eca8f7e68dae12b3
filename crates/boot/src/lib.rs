//! The boot of the whole machine: one process, `headstart boot run`, that reads ahead what the boot will
//! need, records what it used, and when it has ended learns from it.
//!
//! ```text
//!  initramfs hook, or `init=`, or else the first unit of sysinit
//!        │
//!   [`run`]  boot-failure guard ── taken before the first request and the recorder (`guard`)
//!        │   [`replays`]  a device's part begins when it is mounted; who would catch up waits ([`wait`])
//!        │   recorder     from the same instant, everybody but this process
//!        │   [`end`]      systemd has finished, a session has begun, quiet; or 120 s
//!        ▼
//!   `finish`: [`stages`] marks after the fact, [`ordinary_boot`] whether it was a boot like others,
//!             then learn, plan, keep, arm the guard
//! ```
//!
//! Nothing here can make a boot fail: nobody waits for this process without a limit, and whatever goes wrong
//! is a line in the log and in `headstart boot status`.

mod boot;
pub mod boot_report;
mod boot_signs;
mod bus;
pub mod cmdline;
pub mod decision;
pub mod early_bypass;
mod end_of_boot;
mod finish;
mod guard;
mod image;
pub mod init;
pub mod install;
mod manager;
pub mod marks;
mod medium;
mod memory;
pub mod next_root;
mod ordinary_boot;
mod own_cpu_time;
pub mod persistence;
mod program;
mod recording;
mod replays;
mod root_after_check;
pub mod run;
mod runtime_unit;
mod stages;
mod this_boot;
pub mod units;
pub mod wait;

pub use guard::GIVEN_UP;
pub use image::state_below;
pub use this_boot::{RUN, boot_id, key};
