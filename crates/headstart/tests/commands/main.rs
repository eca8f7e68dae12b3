//! The commands that people call, and what these tell. Recording and mounting need root.

#![allow(clippy::unwrap_used)] // Tests fail by panicking, in their helpers too.

mod apps;
mod bench;
mod chart;
#[path = "../common/mod.rs"]
mod common;
mod consumers;
mod fleet;
mod hostile;
mod parts;
mod runs;
mod steps;
mod terminal;
mod travel;
mod usage;
