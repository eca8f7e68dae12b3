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
        (None, Some(root)) => trusted(&absolute(ENVIRONMENT, &root)?)?,
        (None, None) => headstart_store::default_root()?,
    };
    headstart_system::secrets::are_kept_in(&root);
    Ok(Store::new(root))
}

/// A later change of the working directory must not move it.
fn absolute(source: &str, root: &Path) -> Result<PathBuf> {
    if root.as_os_str().is_empty() {
        bail!("{source} is empty: name a directory");
    }
    std::path::absolute(root).with_context(|| format!("{source} {}", root.display()))
}

/// The same directory, by a path that leads through no link. su(1) and sudo -E hand the environment of a user
/// to root: what such a user owns is not root's state, nor what any user can put something else in the place
/// of.
fn trusted(root: &Path) -> Result<PathBuf> {
    // In a user namespace root's own is nobody's, `/` among it.
    let mut trusted = vec![0, rustix::process::geteuid().as_raw()];
    trusted.extend(std::fs::metadata("/").map(|root| root.uid()));
    let Some((there, real)) = root
        .ancestors()
        .find_map(|path| Some((path, path.canonicalize().ok()?)))
    else {
        return Ok(root.to_path_buf());
    };
    let refuse = |path: &Path, why: String| -> Result<PathBuf> {
        bail!(
            "{ENVIRONMENT} names {}, which {why}: unset it, or name the directory by --state",
            path.display()
        )
    };
    for path in real.ancestors() {
        let facts =
            std::fs::symlink_metadata(path).with_context(|| format!("{ENVIRONMENT} {}", path.display()))?;
        if !trusted.contains(&facts.uid()) {
            return refuse(path, format!("belongs to user {}", facts.uid()));
        }
        let (anybody, own) = (facts.mode() & 0o002 != 0, facts.mode() & 0o1000 != 0);
        // Where all may write, but replace nothing of others', what is there stays.
        if anybody && (path == real || !own) {
            return refuse(path, "any user may write".into());
        }
    }
    let rest = root.strip_prefix(there)?;
    Ok(if rest.as_os_str().is_empty() {
        real
    } else {
        real.join(rest)
    })
}

/// Now, nanoseconds since 1970.
pub fn now_unix_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}
