//! `compare`, `layout` and `hydrate` on file systems of their own. A program of its own: a mount makes looks
//! into what is in memory fail that happen meanwhile, and other tests expect warm starts. Needs root, loop
//! devices and BPF.

#![allow(clippy::unwrap_used)] // Tests fail by panicking, in their helpers too.

#[path = "../common/mod.rs"]
mod common;
mod compare;
mod hydrate;
mod layout;
