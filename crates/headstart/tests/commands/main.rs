//! What people call, and what they are told. Recording and mounting need root.

#![allow(clippy::unwrap_used)] // Tests fail by panicking, in their helpers too.

mod apps;
mod chart;
#[path = "../common/mod.rs"]
mod common;
mod compare;
mod each;
mod hostile;
mod layout;
