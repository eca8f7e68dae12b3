//! What the state directory promises.

#![allow(clippy::unwrap_used)]

mod files;
mod limits;
mod samples;
mod writers;
