//! What `run` and `record` share: a command that is started beside a recording.

use crate::context::Aside;
use anyhow::Result;
use headstart_record::Options;
use headstart_session::{Ending, Job, Purpose, now_unix_ns, start};
use std::ffi::OsString;
use std::time::Instant;

/// The command, and where to tell what was done.
#[derive(Debug, clap::Args)]
pub struct Beside {
    #[command(flatten)]
    aside: Aside,
    /// The command and its arguments.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub command: Vec<OsString>,
}

/// The first instant of a start, on both clocks.
#[derive(Clone, Copy)]
pub struct Origin(Instant, u64);

impl Origin {
    /// This one.
    pub fn now() -> Origin {
        Origin(Instant::now(), now_unix_ns())
    }
}

impl Beside {
    /// Starts the command and ends as it does; `rest` is what its key says nothing of, `adapt` says how to record. Returns only if nothing was started.
    pub fn start(
        &self,
        Origin(origin, origin_unix_ns): Origin,
        purpose: Purpose,
        rest: Vec<OsString>,
        ending: Ending,
        adapt: impl FnOnce(&mut Options),
    ) -> Result<()> {
        let words = self
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned());
        let mut record = Options::tree(words.collect());
        record.exclude_pids.push(std::process::id());
        adapt(&mut record);
        let written = self.aside.open()?;
        // Whoever wants to read what was done waits for it.
        let ending = written.as_ref().map_or(ending, |_| Ending::WhenDone);
        let job = Job {
            origin,
            origin_unix_ns,
            record,
            purpose,
            rest,
            document: written.is_some(),
        };
        start(&self.command, job, ending, written)
    }
}
