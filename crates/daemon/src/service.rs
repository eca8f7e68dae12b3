//! What the daemon offers to others, whoever asks and by whatever way: the control socket asks it, and the
//! daemon answers.
//!
//! Whether somebody may ask is decided before the daemon is asked ([`crate::control`]), but for operations,
//! which are a peer's own.

use headstart_model::Key;
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// What is known of a program, and what is done for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct App {
    /// The key's text.
    pub key: String,
    /// Whether anything is done for its starts.
    pub enabled: bool,
    /// Starts that were recorded.
    pub starts: u64,
    /// Those of them with a replay.
    pub replays: u64,
    /// What its replays have saved, seconds, against the median of cold starts without; below 0 where they
    /// lost. `None` where there is nothing to compare with, or where it would tell of other users.
    pub seconds_saved: Option<f64>,
    /// When it was last started, nanoseconds since 1970.
    pub last_start_unix_ns: Option<u64>,
    /// Whether replays pay; `None` where it would tell of other users.
    pub verdict: Option<Pays>,
    /// Why its starts are bypassed; `None` if they are not, or where it would tell of other users.
    pub bypassed: Option<String>,
}

/// Whether replays pay, as the interface calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Pays {
    /// There is too little to compare.
    TooFew,
    /// No difference is shown.
    NoDifference,
    /// Starts with a replay are faster.
    Faster,
    /// They are slower.
    Slower,
}

/// What [`Service::now`] has begun to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Who asks, by the socket's credentials (SO_PEERCRED of unix(7)): nothing of it is the peer's own word.
#[derive(Debug)]
pub struct Peer {
    /// The effective user when it connected.
    pub uid: u32,
    /// The effective group.
    pub gid: u32,
    /// The process that connected, as this PID namespace numbers it.
    pub pid: i32,
    /// The process itself (SO_PEERPIDFD, Linux 6.5): a number may belong to another process by now, this does
    /// not. `None` where the kernel has none.
    pub pidfd: Option<OwnedFd>,
}

impl Peer {
    /// Whether it may do everything.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }
}

/// Why the daemon does not do what it is asked for. Each becomes an error of the interface of its own.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ServiceError {
    /// Nothing is known of the key.
    #[error("the key {0:?} is not known: `headstart apps list` lists those that are")]
    UnknownKey(String),
    /// There is no such operation, or it is another user's: which of the two is not told.
    #[error("there is no operation {0} of yours: it has ended, or was never begun")]
    UnknownOperation(u64),
    /// So many operations are under way that no more are begun.
    #[error("{0} operations are under way, which is the most: end one")]
    TooMany(usize),
    /// It could not be done.
    #[error("{0}")]
    Failed(String),
}

/// What the daemon does when it is asked. All functions are called on the thread of the control socket and
/// must return within milliseconds: what takes longer is begun, and goes on elsewhere.
pub trait Service: Send + Sync {
    /// The programs whose keys come behind `after`, or the first, in order, at most so many: all (`None`), or
    /// those that a user has started, with what tells only of the user's own starts.
    fn apps(&self, user: Option<u32>, after: Option<&str>, most: usize) -> Result<Vec<App>, ServiceError>;
    /// What is known of a key.
    fn app(&self, key: &Key) -> Result<App, ServiceError>;
    /// Has anything or nothing done for the starts of a key, known or not.
    fn set_enabled(&self, key: &Key, on: bool) -> Result<(), ServiceError>;
    /// Forgets what is known of a key.
    fn forget(&self, key: &Key) -> Result<(), ServiceError>;
    /// Begins to read ahead what a key needs, as if it were started now.
    fn now(&self, key: &Key) -> Result<Reading, ServiceError>;
    /// Begins an operation of the peer's process, or of another one of the same user that stands in its
    /// place: what it and its children read belongs to it until it ends, or the process does. The key is
    /// [`crate::key::of_operation`]'s.
    fn begin_operation(&self, peer: &Peer, name: &str) -> Result<u64, ServiceError>;
    /// Ends an operation that the same user has begun; root ends any.
    fn end_operation(&self, peer: &Peer, id: u64) -> Result<(), ServiceError>;
}
