//! What comes before the real init: headstart-init, and the hook of an initramfs.

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod generator;
mod init;
mod initramfs;
mod live;
mod premount;
mod root;
mod serve;
