//! What people see. Nobody may be reading: a pipe's reader has read enough, as `head` does, or a terminal is
//! gone.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use anyhow::{Context, Result};

/// Nobody reads standard output any more: a command ends as if it had printed all.
#[derive(Debug, thiserror::Error)]
#[error("nobody reads standard output any more")]
pub struct Unread;

/// A line of the command's answer, on standard output.
pub fn line(text: impl Display) -> Result<()> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Unread.into()),
        other => other.context("writing to standard output"),
    }
}

/// No error if it is only that nobody reads.
pub fn unless_unread(error: anyhow::Error) -> Result<()> {
    if error.is::<Unread>() { Ok(()) } else { Err(error) }
}

/// A line on how it goes, on standard error. What is done does not depend on anybody reading it.
pub fn note(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}
