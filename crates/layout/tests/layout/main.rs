//! Files moved on real file systems. Needs root and loop devices.

#![allow(clippy::unwrap_used)] // Tests fail by panicking, in their helpers too.

mod disk;
mod ext4;
mod rescue;
mod room;
mod xfs;
