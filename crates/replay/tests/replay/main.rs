//! What a replay reads and what it leaves, on file systems of its own. Needs root, for loop devices.

#![allow(clippy::unwrap_used)] // Tests fail by panicking, in their helpers too.

mod common;
mod compressed;
mod handles;
mod hang;
mod limits;
mod neighbours;
mod reads;
