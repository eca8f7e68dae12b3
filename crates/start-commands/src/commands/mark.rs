//! `headstart mark`: a stage of the boot begins.

use anyhow::Result;
use headstart_boot::{RUN, marks};
use std::path::Path;

/// Note that a stage of the boot begins now.
///
/// What is first needed from then on belongs to this stage: it is read ahead after what earlier stages need.
/// headstart itself marks the local file systems, system services, login screen, session, and the end of
/// systemd's work.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The stage: letters, digits, -, _ and dots.
    #[arg(value_name = "NAME")]
    name: String,
}

/// Notes it.
///
/// # Errors
/// The name is no stage's, or it cannot be written.
pub fn run(args: Args) -> Result<()> {
    marks::add(Path::new(RUN), &args.name)
}
