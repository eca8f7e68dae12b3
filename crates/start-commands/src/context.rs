//! What the subcommands share: how results are printed.

use anyhow::{Context as _, Result};
use headstart_run::document::Written;
use serde::Serialize;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;

/// `--json`, for subcommands that print.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Output {
    /// Print one JSON document instead of text.
    #[arg(long)]
    pub json: bool,
}

impl Output {
    /// Prints one of the two, as it is made: all pages of a file with many take more memory than the file.
    pub fn print<D: Serialize + ?Sized, T: Display>(
        self,
        document: &D,
        text: impl FnOnce() -> T,
    ) -> Result<()> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let written = match self.json {
            true => serde_json::to_writer_pretty(&mut out, document)
                .map_err(io::Error::from)
                .and_then(|()| out.write_all(b"\n")),
            false => write!(out, "{}", text()),
        };
        match written.and_then(|()| out.flush()) {
            // Whoever read has read enough, as `head` does.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.context("cannot write to standard output"),
        }
    }
}

/// Whether people see colours: on a terminal that has some, unless `NO_COLOR` says otherwise (no-color.org).
pub fn colours() -> bool {
    let is = |name: &str, value: &str| std::env::var_os(name).is_some_and(|given| given == value);
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !refused && !is("TERM", "dumb")
}

/// `--json` of subcommands whose standard output is their command's.
#[derive(Clone, Debug, clap::Args)]
pub struct Aside {
    /// When all is done, write what was done as one JSON document, to FILE or as the last line to standard
    /// error; waits for it.
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
