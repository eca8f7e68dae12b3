//! What waits for a shutdown: programs that run. So they are moved when services have stopped and before file systems are unmounted, by a
//! unit that is started when something waits and does its work when it is stopped.

use crate::kept::{Kept, State};
use anyhow::{Context, Result};
use headstart_store::{Store, default_root, read_bounded, write_whole};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The unit, as packages install it.
pub const UNIT: (&str, &str) = (
    "headstart-layout.service",
    include_str!("../../../packaging/systemd/headstart-layout.service"),
);
/// The most bytes of the file that says whose programs wait.
const MOST: u64 = 1 << 20;

/// Whose programs wait.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Waiting {
    /// The names of their keys; none for all.
    pub keys: Vec<String>,
    /// They are moved also where it is not worth it, as all else was.
    pub force: bool,
}

/// Whose programs wait; `None` if nobody's do.
pub(crate) fn waiting(store: &Store) -> Result<Option<Waiting>> {
    let path = path(store);
    let Some(bytes) = read_bounded(&path, MOST)? else {
        return Ok(None);
    };
    let waiting = serde_json::from_slice(&bytes);
    Ok(Some(waiting.with_context(|| {
        format!("{} is damaged: remove it", path.display())
    })?))
}

/// Has the programs of these keys moved at the next shutdown.
pub(crate) fn remember(store: &Store, waiting: &Waiting, tell: &mut dyn FnMut(String)) -> Result<()> {
    write_whole(&path(store), &serde_json::to_vec(waiting)?)?;
    // The unit knows of one state directory.
    let is_its = default_root().is_ok_and(|root| root == store.root());
    if is_its && Path::new("/run/systemd/system").is_dir() {
        let started = Command::new("systemctl")
            .args(["--quiet", "--no-block", "start", UNIT.0])
            .stdin(Stdio::null())
            .status();
        if !started.is_ok_and(|status| status.success()) {
            tell(format!(
                "{} cannot be started: programs stay where they are",
                UNIT.0
            ));
        }
    }
    Ok(())
}

/// Nothing waits any more, unless there was not enough time for all.
pub(crate) fn done(store: &Store, moved: &[Kept]) -> Result<()> {
    if moved.iter().any(|kept| kept.state == State::Stopped) {
        return Ok(());
    }
    match std::fs::remove_file(path(store)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path(store).display()))
        }
        _ => Ok(()),
    }
}

/// What systemd says of the machine: that it is `starting`, `running`, `stopping`; nothing where there is no systemd.
pub(crate) fn system() -> String {
    let asked = Command::new("systemctl")
        .arg("is-system-running")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    let said = asked.map(|answer| answer.stdout).unwrap_or_default();
    String::from_utf8_lossy(said.trim_ascii()).into_owned()
}

fn path(store: &Store) -> PathBuf {
    store.root().join("layout.waiting")
}
