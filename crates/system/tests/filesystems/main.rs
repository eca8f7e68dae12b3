//! What the crate says of files, checked against real file systems on private loop devices. Needs root.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod compressed;
mod dead;
mod extents;
mod metadata;
mod paths;
