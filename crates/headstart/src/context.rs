//! What the subcommands share: the state directory, the clock, and how results are printed.

use anyhow::{Context as _, Result};
use headstart_store::Store;
use serde::Serialize;
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
