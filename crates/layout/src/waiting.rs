//! What waits for a shutdown: programs that run. So they are moved when services have stopped and before file
//! systems are unmounted, by a unit that is started when something waits, and again after a boot that no
//! shutdown has ended, and does its work when it is stopped.

use crate::results::{LayoutResult, State};
use anyhow::{Context, Result};
use headstart_start::shutdown_unit::{self, is_its, path, start, wait_for_status};
use headstart_store::{Store, read_bounded, write_whole};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::process::{Command, Stdio};

/// The unit, as packages install it.
pub const UNIT: (&str, &str) = (
    shutdown_unit::NAME,
    include_str!("../../../packaging/systemd/headstart-layout.service"),
);
/// The most bytes of the file that says whose programs wait.
const MOST: u64 = 1 << 20;

/// More keys than this are all.
const MOST_KEYS: usize = 1000;

/// Whose programs wait.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Waiting {
    /// The names of their keys; none for all.
    pub keys: Vec<String>,
    /// They are moved also where it is not worth it, as all else was.
    pub force: bool,
}

impl Waiting {
    /// Both.
    fn and(mut self, other: Waiting) -> Waiting {
        self.force |= other.force;
        if self.keys.is_empty() || other.keys.is_empty() {
            self.keys.clear();
            return self;
        }
        self.keys.extend(other.keys);
        self.keys.sort_unstable();
        self.keys.dedup();
        if self.keys.len() > MOST_KEYS {
            // As well all.
            self.keys.clear();
        }
        self
    }
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

/// Has the programs of these keys moved at the next shutdown, too.
pub(crate) fn remember(store: &Store, new: Waiting, tell: &mut dyn FnMut(String)) -> Result<()> {
    // What cannot be read is written anew.
    let waiting = match self::waiting(store) {
        Ok(Some(earlier)) => earlier.and(new),
        Ok(None) | Err(_) => new,
    };
    write_whole(&path(store), &serde_json::to_vec(&waiting)?)?;
    if is_its(store) && !start() {
        tell(format!(
            "{} cannot be started: programs stay where they are",
            UNIT.0
        ));
    }
    Ok(())
}

/// Nothing waits any more, unless something was left.
pub(crate) fn done(store: &Store, moved: &[LayoutResult]) -> Result<()> {
    if !moved.iter().all(is_done) {
        return Ok(());
    }
    match std::fs::remove_file(path(store)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path(store).display()))
        }
        _ => Ok(()),
    }
}

/// Whether no program waits on this file system any more.
fn is_done(kept: &LayoutResult) -> bool {
    match kept.state {
        // What runs then, as process 1 does, runs at every shutdown.
        State::Complete => true,
        // Before files were looked at: none was found to wait there. Else what was found does.
        State::Declined => kept.from.is_none(),
        State::Underway | State::Stopped | State::Interrupted | State::Failed => false,
    }
}

/// What systemd says of the machine: that it is `starting`, `running`, `stopping`; nothing where there is no
/// systemd.
pub(crate) fn system() -> String {
    let asked = Command::new("systemctl")
        .arg("is-system-running")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = asked else {
        return String::new();
    };
    let mut said = String::new();
    // A word, which the pipe holds: it is read when its writer has ended.
    if let (Some(_), Some(out)) = (wait_for_status(&mut child), child.stdout.take()) {
        let _ = out.take(1024).read_to_string(&mut said);
    }
    said.trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::survey::RUNS_ON;

    fn waiting_for(keys: &[&str], force: bool) -> Waiting {
        Waiting {
            keys: keys.iter().map(|key| key.to_string()).collect(),
            force,
        }
    }

    #[test]
    fn whose_programs_wait_from_an_earlier_time_wait_on() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::new(state.path());
        let remember = |new| {
            remember(&store, new, &mut |line| panic!("{line}")).unwrap();
            let waiting = waiting(&store).unwrap().unwrap();
            (waiting.keys.join(" "), waiting.force)
        };
        assert_eq!(remember(waiting_for(&["b"], true)), ("b".into(), true));
        assert_eq!(remember(waiting_for(&["a", "b"], false)), ("a b".into(), true));
        let many: Vec<String> = (0..MOST_KEYS).map(|number| number.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(remember(waiting_for(&many, false)), (String::new(), true), "all");
        assert_eq!(remember(waiting_for(&["a"], false)), (String::new(), true), "all");
        std::fs::write(path(&store), "{").unwrap();
        assert_eq!(
            remember(waiting_for(&["a"], false)),
            ("a".into(), false),
            "what was damaged"
        );
    }

    #[test]
    fn they_wait_until_all_of_them_were_moved() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::new(state.path());
        let kept = |state, from: Option<[u64; 2]>, left: &str| -> LayoutResult {
            serde_json::from_value(serde_json::json!({
                "keys": ["k"], "mount_point": "/", "state": state, "why": null, "began_unix_ns": 1,
                "ended_unix_ns": 2, "files": 0, "bytes": 0, "planned_bytes": 0, "from": from, "to": null,
                "before": {"jumps": 0, "time_ns": 0}, "after": {"jumps": 0, "time_ns": 0}, "left": {left: 1},
            }))
            .unwrap()
        };
        let waits = |moved: &[LayoutResult]| {
            remember(&store, waiting_for(&["k"], false), &mut |line| panic!("{line}")).unwrap();
            done(&store, moved).unwrap();
            path(&store).exists()
        };
        let whole = || kept(State::Complete, Some([0, 1]), "immutable");
        assert!(!waits(&[whole(), kept(State::Declined, None, "immutable")]));
        assert!(waits(&[
            whole(),
            kept(State::Declined, Some([0, 1]), "immutable")
        ]));
        assert!(!waits(&[whole(), kept(State::Complete, Some([0, 1]), RUNS_ON)]));
        for state in [State::Stopped, State::Failed] {
            assert!(
                waits(&[kept(state, Some([0, 1]), "immutable"), whole()]),
                "{state:?}"
            );
        }
    }
}
