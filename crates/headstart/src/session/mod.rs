//! A command started beside a recording and a replay, in three processes that cannot harm one another.
//!
//! ```text
//!  headstart ──fork──▶ helper: replays, records, and when the start has ended learns
//!      │                 ▲
//!      ├──fork──▶ command (held until the helper is ready, or too slow, or gone)
//!      └── passes signals on, stops and ends as the command does
//! ```
//!
//! headstart itself has one thread and waits; whatever fails in the helper leaves the command alone, and learning
//! delays nobody. Where headstart is killed the command goes on, and the helper learns nothing from it.

pub mod after;
mod front;
pub mod gate;
mod helper;
mod message;
mod replan;
pub mod turns;
mod watch;

pub use front::{Ending, start};
pub use helper::{Notes, plan_of};

use headstart_model::Key;
use headstart_store::Store;
use std::path::PathBuf;
use std::time::Instant;

/// What the helper does.
pub struct Job {
    /// The first instant of the start.
    pub origin: Instant,
    /// The same on the wall clock, nanoseconds since 1970.
    pub origin_unix_ns: u64,
    /// How to record.
    pub record: headstart_record::Options,
    /// What for.
    pub purpose: Purpose,
    /// Whether headstart wants to know what was done, as a JSON document.
    pub document: bool,
}

/// What a command is started for.
pub enum Purpose {
    /// The whole loop: replay if its plan is known, record, learn, plan.
    Loop {
        /// Where everything is kept.
        store: Store,
        /// Whose start it is.
        key: Key,
        /// Every how many starts one is a control run without replay; 0 for never.
        control_every: u32,
    },
    /// A trace, as a file.
    Trace(PathBuf),
}
