//! `headstart run` and `headstart record`: a command beside a recording and a replay, in three processes that
//! cannot harm one another:
//!
//! ```text
//!  supervisor ──fork──▶ worker: replays, records, and when the start has ended learns
//!      │                 ▲
//!      ├──fork──▶ command (waits at the barrier until the worker is ready, or too slow, or gone)
//!      └── passes signals on, stops and ends as the command does
//! ```
//!
//! The supervisor has one thread and waits; whatever fails in the worker leaves the command as it is, and
//! learning delays nobody. Where the supervisor is killed the command goes on, and the worker learns nothing
//! from it.

mod complain_once;
pub mod document;
mod fate;
mod message;
mod namespace;
mod prepared;
mod rehearsal;
mod supervised;
mod supervisor;
mod worker;

pub use complain_once::complain_once;
pub use prepared::Ask;
pub use rehearsal::rehearse;
pub use supervised::Ending;
pub use supervisor::{become_command, start};

use headstart_model::Trace;
use headstart_start::{StartRequest, now_unix_ns};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

/// The first instant of a start, on both clocks.
#[derive(Clone, Copy)]
pub struct Origin {
    /// On the monotonic clock.
    pub instant: Instant,
    /// On the wall clock, nanoseconds since 1970.
    pub unix_ns: u64,
}

impl Origin {
    /// This instant.
    pub fn now() -> Origin {
        Origin {
            instant: Instant::now(),
            unix_ns: now_unix_ns(),
        }
    }
}

/// A start that is asked for.
pub struct Job {
    /// When the start began.
    pub origin: Origin,
    /// How to record.
    pub record: headstart_record::Options,
    /// What for.
    pub purpose: Purpose,
    /// What the command is given beside what its key says; nothing where a name was given for it.
    pub rest: Vec<OsString>,
    /// Why nothing is to be done, where that is known before anything is looked at.
    pub bypass: Option<String>,
    /// Whether the caller wants to know what was done, as a JSON document.
    pub document: bool,
}

/// What a command is started for.
pub enum Purpose {
    /// The whole loop: replay if its plan is known, record, learn, plan.
    Loop(StartRequest),
    /// A trace, as a file.
    Trace {
        /// Its path.
        path: PathBuf,
        /// Makes the document of it: the trace, and the bytes of its file.
        summarize: fn(&Trace, usize) -> anyhow::Result<String>,
    },
}
