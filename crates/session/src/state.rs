//! The state directory that a user names, and the clock.

use anyhow::{Context as _, Result, bail};
use headstart_store::{ENVIRONMENT, Store};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The state directory: the one that `--state` names, else the one of the environment, else that of the user.
pub fn store(named: Option<PathBuf>) -> Result<Store> {
    let of_environment = || std::env::var_os(ENVIRONMENT).map(PathBuf::from);
    let root = match (named, of_environment()) {
        (Some(root), _) => absolute("--state", &root)?,
        (None, Some(root)) => {
            let root = absolute(ENVIRONMENT, &root)?;
            is_trusted(&root)?;
            root
        }
        (None, None) => headstart_store::default_root()?,
    };
    Ok(Store::new(root))
}

/// A later change of the working directory must not move it.
fn absolute(source: &str, root: &Path) -> Result<PathBuf> {
    if root.as_os_str().is_empty() {
        bail!("{source} is empty: name a directory");
    }
    std::path::absolute(root).with_context(|| format!("{source} {}", root.display()))
}

/// su(1) and sudo -E hand the environment of a user to root: what such a user owns is not root's state. Only what exists is
/// looked at, for what does not is made by root.
fn is_trusted(root: &Path) -> Result<()> {
    let me = rustix::process::geteuid().as_raw();
    let Some((path, facts)) = root
        .ancestors()
        .find_map(|path| Some((path, std::fs::metadata(path).ok()?)))
    else {
        return Ok(());
    };
    if facts.uid() != me && facts.uid() != 0 {
        bail!(
            "{ENVIRONMENT} names {}, which belongs to user {}: unset it, or name the directory by --state",
            path.display(),
            facts.uid()
        );
    }
    Ok(())
}

/// Now, nanoseconds since 1970.
pub fn now_unix_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}
