//! What is known of the last time that files were moved: kept in the state directory, so that [`status`] can
//! tell also of one that was killed.

use crate::predict::Prediction;
use anyhow::{Context, Result};
use headstart_store::{Store, read_bounded, write_whole};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The most bytes of the file that is kept.
const MOST: u64 = 1 << 20;

/// So many file systems are told of.
const MOST_KEPT: usize = 100;

/// How far it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Files are being moved now.
    Underway,
    /// All was moved that can be, and has room.
    Complete,
    /// It was not worth it.
    Declined,
    /// It was asked to stop.
    Stopped,
    /// It was killed, or the machine went down. Files lie in their old or in their new place, whole.
    Interrupted,
    /// It ended with an error.
    Failed,
}

/// What was done on one file system, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayoutResult {
    /// Whose starts it was for.
    pub keys: Vec<String>,
    /// Where the file system is mounted.
    pub mount_point: String,
    /// Whether it was of programs, at a shutdown; each is told of beside the other.
    #[serde(default)]
    pub at_shutdown: bool,
    /// How far it came.
    pub state: State,
    /// What else there is to say of the state.
    pub why: Option<String>,
    /// When it began, nanoseconds since 1970.
    pub began_unix_ns: u64,
    /// When it ended, 0 while it has not.
    pub ended_unix_ns: u64,
    /// Files that were moved.
    pub files: u64,
    /// Bytes that were moved.
    pub bytes: u64,
    /// Bytes that were to be moved.
    pub planned_bytes: u64,
    /// Bytes of room for that which were written before the first was moved.
    #[serde(default)]
    pub room_bytes: u64,
    /// Bytes that are written in all for what is to be moved: where room is written before, twice as many.
    #[serde(default)]
    pub writes_bytes: u64,
    /// How long that takes at least by the rate at which the device was measured, or at the one that it is
    /// bounded to, nanoseconds.
    #[serde(default)]
    pub takes_ns: u64,
    /// The first and the last byte of the device between which what was to be moved lay before.
    #[serde(default)]
    pub from: Option<[u64; 2]>,
    /// Where the room begins that they were moved to, byte of the device; `None` before it was taken.
    pub to: Option<u64>,
    /// In how many pieces that room is.
    #[serde(default)]
    pub pieces: u64,
    /// Files that lay in their order already, and stayed.
    #[serde(default)]
    pub settled: u64,
    /// Files that no start wants any more, and that were moved out of the room of an earlier time.
    #[serde(default)]
    pub evicted: u64,
    /// When data was last moved on this file system, nanoseconds since 1970; 0 if it never was, or that time
    /// was not whole and nothing was moved since.
    #[serde(default)]
    pub moved_unix_ns: u64,
    /// What reading took before.
    pub before: Prediction,
    /// What it takes now.
    pub after: Prediction,
    /// Files that stay where they were, by reason.
    pub left: BTreeMap<String, u64>,
}

/// The right to move files: one process at a time has it.
pub(crate) struct Turn {
    lock: OwnedFd,
    path: PathBuf,
    /// What is kept of file systems, the last time of each.
    others: Vec<LayoutResult>,
}

impl Drop for Turn {
    /// A process that this one has just forked has the lock, too, until it executes something: it is given
    /// back for both.
    fn drop(&mut self) {
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Turn {
    /// Takes it; fails if another process has it.
    pub fn acquire(store: &Store) -> Result<Turn> {
        store.make()?;
        let lock = lock(store)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => anyhow::bail!("another headstart is moving files: wait for its end"),
            Err(error) => return Err(error).context("cannot lock layout.lock"),
        }
        let path = path(store);
        // What cannot be read is written anew.
        let others = read(&path).unwrap_or_default();
        Ok(Turn { lock, path, others })
    }

    /// When data was last moved on the file system that is mounted there; 0 if that time did not come to its
    /// end: it is gone on with. Programs at a shutdown are a part of another time.
    pub fn moved_unix_ns(&self, mount_point: &str) -> u64 {
        moved_unix_ns(&self.others, mount_point)
    }

    /// Keeps what is known by now; of other file systems what was known of them.
    pub fn keep(&self, results: &[LayoutResult]) -> Result<()> {
        let volume_and_kind = |one: &LayoutResult| (one.mount_point.clone(), one.at_shutdown);
        let is_new = |one: &&LayoutResult| {
            results
                .iter()
                .any(|new| volume_and_kind(new) == volume_and_kind(one))
        };
        let others = self.others.iter().filter(|other| !is_new(other));
        let most_recent: Vec<&LayoutResult> = results.iter().chain(others).take(MOST_KEPT).collect();
        Ok(write_whole(&self.path, &serde_json::to_vec(&most_recent)?)?)
    }
}

/// As [`Turn::moved_unix_ns`].
pub(crate) fn moved_unix_ns(results: &[LayoutResult], mount_point: &str) -> u64 {
    let is_whole = |one: &&LayoutResult| matches!(one.state, State::Complete | State::Declined);
    let mut there = results.iter();
    there
        .find(|result| result.mount_point == mount_point && !result.at_shutdown)
        .filter(is_whole)
        .map_or(0, |result| result.moved_unix_ns)
}

/// What was done the last time, one for each file system; empty if nothing ever was.
pub fn status(store: &Store) -> Result<Vec<LayoutResult>> {
    let mut results = read(&path(store))?;
    let runs = lock(store)
        .is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK));
    for result in results
        .iter_mut()
        .filter(|result| result.state == State::Underway && !runs)
    {
        result.state = State::Interrupted;
    }
    Ok(results)
}

fn read(path: &Path) -> Result<Vec<LayoutResult>> {
    let Some(bytes) = read_bounded(path, MOST)? else {
        return Ok(Vec::new());
    };
    serde_json::from_slice(&bytes).with_context(|| format!("{} is damaged: remove it", path.display()))
}

fn path(store: &Store) -> PathBuf {
    store.root().join("layout.json")
}

fn lock(store: &Store) -> Result<OwnedFd> {
    let path = store.root().join("layout.lock");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
        .with_context(|| format!("cannot open {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_was_not_whole_is_no_reason_to_rest() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::new(state.path());
        let kept = |state, left: &[&str]| LayoutResult {
            keys: vec!["k".into()],
            mount_point: "/".into(),
            at_shutdown: false,
            state,
            why: None,
            began_unix_ns: 1,
            ended_unix_ns: 2,
            files: 1,
            bytes: 1,
            planned_bytes: 1,
            room_bytes: 1,
            writes_bytes: 2,
            takes_ns: 1,
            from: None,
            to: None,
            pieces: 1,
            settled: 0,
            evicted: 0,
            moved_unix_ns: 7,
            before: Prediction::default(),
            after: Prediction::default(),
            left: left.iter().map(|why| (why.to_string(), 1)).collect(),
        };
        let moved = |one: LayoutResult| {
            Turn::acquire(&store).unwrap().keep(&[one]).unwrap();
            Turn::acquire(&store).unwrap().moved_unix_ns("/")
        };
        assert_eq!(moved(kept(State::Complete, &["immutable"])), 7);
        assert_eq!(moved(kept(State::Declined, &[])), 7);
        for state in [State::Underway, State::Stopped, State::Failed] {
            assert_eq!(moved(kept(state, &[])), 0, "{state:?}");
        }
        let at_shutdown = LayoutResult {
            at_shutdown: true,
            ..kept(State::Complete, &[])
        };
        assert_eq!(moved(at_shutdown), 0, "a part of a time that failed");
        assert_eq!(
            moved(kept(State::Complete, &[crate::NO_ROOM])),
            7,
            "what had room"
        );
    }
}
