//! What the subcommands share: how results are printed.

use anyhow::{Context as _, Result};
use headstart_session::document::Written;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

/// `--json`, for subcommands that print.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Output {
    /// Print one JSON document instead of text.
    #[arg(long)]
    pub json: bool,
}

impl Output {
    /// Prints one of the two.
    pub fn print<T: Serialize + ?Sized>(self, document: &T, text: impl FnOnce() -> String) -> Result<()> {
        let bytes = match self.json {
            true => {
                let mut bytes = serde_json::to_vec_pretty(document).context("cannot make JSON of it")?;
                bytes.push(b'\n');
                bytes
            }
            false => text().into_bytes(),
        };
        let mut out = io::stdout().lock();
        match out.write_all(&bytes).and_then(|()| out.flush()) {
            // Whoever read has read enough, as `head` does.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.context("cannot write to standard output"),
        }
    }
}

/// `--json` of subcommands whose standard output is their command's.
#[derive(Clone, Debug, clap::Args)]
pub struct Aside {
    /// When all is done, write what was done as one JSON document, to FILE or as the last line to standard error; waits
    /// for it.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    json: Option<Option<PathBuf>>,
}

impl Aside {
    /// Opens where the document goes; `None` if none is wanted.
    pub fn open(&self) -> Result<Option<Written>> {
        Ok(match &self.json {
            None => None,
            Some(None) => Some(Written::Error),
            Some(Some(path)) => {
                let file = File::create(path).with_context(|| format!("--json={}", path.display()))?;
                Some(Written::File(path.clone(), file))
            }
        })
    }
}
