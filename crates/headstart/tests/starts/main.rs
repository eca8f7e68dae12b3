//! A start by `headstart run`: the command beside it, and what is read ahead. Recording and mounting need
//! root.

#![allow(clippy::unwrap_used)] // Tests fail by panicking, in their helpers too.

#[path = "../common/mod.rs"]
mod common;
mod failing;
mod growing;
mod killed;
mod namespaces;
mod own_program;
mod seldom;
mod transparency;
mod waiting;
