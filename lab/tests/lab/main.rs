//! The lab as a program: experiments, machines that boot, and pages of figures. Needs root, FUSE, loop
//! devices and systemd-nspawn.

#![allow(clippy::unwrap_used)] // Tests fail by panicking, in their helpers too.

mod common;
mod experiment;
mod machine;
mod page;
