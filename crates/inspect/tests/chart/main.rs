//! What a picture of a start promises: as it is written, and in a browser.

#![allow(clippy::unwrap_used)] // Tests fail by panicking, in their helpers too.

mod browser;
mod chromium;
mod common;
mod pictures;
