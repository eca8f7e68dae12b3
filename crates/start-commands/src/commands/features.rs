//! `headstart features`: what this kernel offers to a recorder, for the programs that link none.

use anyhow::{Context, Result};
use headstart_record::{Features, features};
use std::io;

/// Print what this kernel offers to a recorder, as JSON.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Looks at the kernel and prints it.
///
/// # Errors
/// Standard output cannot be written to.
pub fn run() -> Result<()> {
    serde_json::to_writer(io::stdout().lock(), &features()).context("cannot write to standard output")
}

/// What the program `headstart` printed.
///
/// # Errors
/// It is none.
pub fn parse(printed: &[u8]) -> Result<Features> {
    serde_json::from_slice(printed).context("what `headstart features` printed is no JSON of its kind")
}
