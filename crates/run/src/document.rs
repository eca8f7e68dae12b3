//! Where the JSON document goes that says what was done.

use anyhow::{Context, Result};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

/// Where the document goes.
pub enum Written {
    /// Standard error, in a line.
    Error,
    /// This file, open from before the command starts: what cannot be written should not cost a start.
    File(PathBuf, File),
}

impl Written {
    /// Writes the document.
    pub fn write(self, document: &str) -> Result<()> {
        let line = format!("{document}\n");
        match self {
            Written::Error => io::stderr()
                .write_all(line.as_bytes())
                .context("cannot write to standard error"),
            Written::File(path, mut file) => file
                .write_all(line.as_bytes())
                .with_context(|| format!("cannot write to {}", path.display())),
        }
    }
}
