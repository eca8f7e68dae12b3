//! `headstart daemon`, on private file systems that are cold when they are to be. A program of its own: a
//! daemon sees what all tests start. Needs root, loop devices, and Linux 6.12 with BPF, but for fanotify.

#![allow(clippy::unwrap_used)]

mod by_fanotify;
#[path = "../common/mod.rs"]
mod common;
mod containers;
mod failing;
mod harness;
mod learning;
mod leased;
mod services;
mod storms;
mod together;
mod users;
