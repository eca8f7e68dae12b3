//! Where the state directory is.

use crate::StoreError;
use std::path::PathBuf;

/// The environment variable that names the state directory.
pub const ENVIRONMENT: &str = "HEADSTART_STATE";

/// The state directory of root, of boots and of the daemon.
pub const MACHINE: &str = "/var/lib/headstart";

/// The state directory where none is named: `/var/lib/headstart` for root, `$XDG_STATE_HOME/headstart`
/// (`~/.local/state/headstart`) for others.
pub fn default_root() -> Result<PathBuf, StoreError> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(MACHINE));
    }
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|base| base.join("headstart"))
        .ok_or(StoreError::NoPlace)
}
