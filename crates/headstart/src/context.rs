//! What the subcommands share: the state directory, the clock, and how results are printed.

use anyhow::{Context as _, Result};
use headstart_store::Store;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

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

/// Where the document goes.
pub enum Written {
    /// Standard error, in a line.
    Error,
    /// This file, open from before the command starts: what cannot be written should not cost a start.
    File(PathBuf, File),
}

impl Aside {
    /// Opens where the document goes; `None` if none is wanted.
    pub fn open(self) -> Result<Option<Written>> {
        Ok(match self.json {
            None => None,
            Some(None) => Some(Written::Error),
            Some(Some(path)) => {
                let file = File::create(&path).with_context(|| format!("--json={}", path.display()))?;
                Some(Written::File(path, file))
            }
        })
    }
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

/// The state directory that `--state`, the environment or the user decides on.
pub fn store(state: Option<PathBuf>) -> Result<Store> {
    let root = match state {
        Some(root) if root.as_os_str().is_empty() => anyhow::bail!("the state directory is empty: name one"),
        // A later change of the working directory must not move it.
        Some(root) => std::path::absolute(&root).with_context(|| format!("--state {}", root.display()))?,
        None => headstart_store::default_root()?,
    };
    Ok(Store::new(root))
}

/// Now, nanoseconds since 1970.
pub fn now_unix_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}
