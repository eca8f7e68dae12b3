//! A mount namespace for a lab, and for each machine in it.
//!
//! A namespace begins as a copy of another, and where mounts are private, as in most containers, the copies stay for as long as it
//! lives: a program that unshares its mounts while a lab runs would keep the lab's disks busy, though it never looks at them. So the
//! lab mounts where nobody else sees it, and lets go of what it has copied of other labs.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};

use crate::tools;

/// The program that makes a namespace.
pub(crate) const UNSHARE: &str = "unshare";

/// The source of a lab's overlays in the mount table: it tells them from those of others.
pub(crate) const OVERLAY: &str = "headstart-lab";

/// Set in a lab that has a namespace of its own.
const MARK: &str = "HEADSTART_LAB_MOUNTS";

/// Arguments for [`UNSHARE`], before a program and its own: a namespace without the mounts of FUSE, of loop devices other than `own`,
/// and of overlays of a lab.
pub(crate) fn alone(own: &str) -> Vec<String> {
    let script = format!(
        "while read -r source target kind rest; do case $kind:$source in *:\"$0\") ;; \
         fuse*:* | *:/dev/loop* | overlay:{OVERLAY}) umount -l \"$target\" ;; esac; done </proc/self/mounts; exec \"$@\""
    );
    let words = [
        "--mount",
        "--propagation",
        "slave",
        "--",
        "/bin/sh",
        "-c",
        &script,
        own,
    ];
    words.map(str::to_owned).to_vec()
}

/// Goes on as the same process in a mount namespace of its own; call it first of all. Mounts that are seen from outside, such as those
/// of `disk serve`, are not for it.
pub fn enter_own() -> Result<()> {
    if std::env::var_os(MARK).is_some() {
        return Ok(());
    }
    tools::require_root()?;
    tools::require(&[UNSHARE, "umount"])?;
    let mut command = Command::new(UNSHARE);
    command
        .args(alone("none"))
        .arg(std::env::current_exe().context("finding this program")?);
    command.args(std::env::args_os().skip(1)).env(MARK, "own");
    Err(tools::explain(UNSHARE, &command.exec()))
}
