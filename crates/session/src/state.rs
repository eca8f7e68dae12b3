//! The state directory that a user names, and the clock.

use anyhow::{Context as _, Result};
use headstart_store::Store;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

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
