//! One start, whoever asks for it: [`Start`] is what is decided, done and was found for it, [`decide`] says what is done, and [`finish`] reviews, learns, plans and keeps.
//!
//! A command runs beside a recording and a replay in three processes that cannot harm one another:
//!
//! ```text
//!  supervisor ──fork──▶ worker: replays, records, and when the start has ended learns
//!      │                 ▲
//!      ├──fork──▶ command (waits at the barrier until the worker is ready, or too slow, or gone)
//!      └── passes signals on, stops and ends as the command does
//! ```
//!
//! The supervisor has one thread and waits; whatever fails in the worker leaves the command as it is, and learning
//! delays nobody. Where the supervisor is killed the command goes on, and the worker learns nothing from it.

mod again;
mod arguments;
mod asked;
pub mod bypass;
pub mod config;
pub mod deadline;
pub mod decide;
pub mod document;
mod fate;
pub mod finish;
pub mod floor;
pub mod keys;
mod known;
pub mod machine;
mod message;
mod namespace;
pub mod notes;
mod once;
pub mod privacy;
pub mod progress;
mod rehearsal;
mod replan;
mod secret_names;
pub mod shutdown_unit;
mod start;
mod state;
mod supervised;
mod supervisor;
mod unmounted;
mod warmth;
mod worker;

pub use again::plan_again;
pub use arguments::Arguments;
pub use asked::Ask;
pub use known::{First, plan_of, waits_on_one_head};
pub use notes::{Notes, complain};
pub use once::tell as tell_once;
pub use rehearsal::rehearse;
pub use secret_names::{are_some_unknown, forget_secret_names};
pub use start::{Over, Replayed, Start};
pub use state::{now_unix_ns, store};
pub use supervised::Ending;
pub use supervisor::{become_command, start};

use headstart_model::{Key, Trace};
use headstart_store::Store;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

/// A start that is asked for.
pub struct Job {
    /// The first instant of the start.
    pub origin: Instant,
    /// The same on the wall clock, nanoseconds since 1970.
    pub origin_unix_ns: u64,
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
    Loop {
        /// Where everything is kept.
        store: Store,
        /// Whose start it is.
        key: Key,
        /// What it is given.
        arguments: Arguments,
        /// Every how many starts one is a control run without replay; 0 for never.
        control_every: u32,
        /// Whether it is recorded. What is not is never a control run.
        is_recorded: bool,
    },
    /// A trace, as a file.
    Trace {
        /// Its path.
        path: PathBuf,
        /// Makes the document of it: the trace, and the bytes of its file.
        summarize: fn(&Trace, usize) -> anyhow::Result<String>,
    },
}
