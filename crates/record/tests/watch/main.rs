//! Many starts at a time, noticed as they begin. A program of its own: what other tests start would be
//! noticed, and take some of the kernel's 32 slots. Needs root and Linux 6.12 with BTF.

#![allow(clippy::unwrap_used)] // Helpers of tests may fail as tests do.

mod bounds;
mod harness;
mod noticing;
mod starts;
#[path = "../record/support.rs"]
mod support;
