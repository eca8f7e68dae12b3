//! `headstart daemon`, on private file systems that are cold when they are to be. A program of its own: a
//! daemon sees what all tests start. Needs root, loop devices, and BPF.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod containers;
mod failing;
mod harness;
mod imported;
mod learning;
mod remote;
mod services;
mod sessions;
mod storms;
mod together;
mod user_shares;
mod user_socket;
mod users;
