//! Many starts at a time, noticed as they begin. These need root and Linux 6.12 with BTF.

#![allow(clippy::unwrap_used)] // Helpers of tests may fail as tests do.

mod bounds;
mod harness;
mod noticing;
mod starts;
#[path = "../support/mod.rs"]
mod support;
