//! What `run` and `record` share: a command that is started beside a recording.

use crate::context::Aside;
use anyhow::Result;
use headstart_record::Options;
use headstart_run::{Ask, Ending, Job, Origin, Purpose, start};
use headstart_store::Store;
use std::ffi::OsString;

/// The command, and where to tell what was done.
#[derive(Debug, clap::Args)]
pub struct RecordedCommand {
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

/// What a command is started for.
pub struct RunRequest {
    pub purpose: Purpose,
    /// What the command is given beside what its key says.
    pub rest: Vec<OsString>,
    /// Why nothing is to be done, where that is so.
    pub bypass: Option<String>,
}

impl RecordedCommand {
    /// Starts the command and ends as it does; `wanted` says what for, `adapt` how to record. Another process
    /// may call both. Returns only if nothing was started.
    pub fn start(
        &self,
        origin: Origin,
        must: bool,
        store: &dyn Fn() -> Option<Store>,
        wanted: &dyn Fn() -> Result<RunRequest>,
        ending: Ending,
        adapt: &dyn Fn(&mut Options),
    ) -> Result<()> {
        let own = std::process::id();
        let written = self.aside.open()?;
        let document = written.is_some();
        // Whoever wants to read what was done waits for it.
        let ending = if document { Ending::WhenDone } else { ending };
        let job = || {
            let words = self
                .command
                .iter()
                .map(|word| word.to_string_lossy().into_owned());
            let mut record = Options::tree(words.collect());
            record.exclude_pids.push(own);
            adapt(&mut record);
            let RunRequest {
                purpose,
                rest,
                bypass,
            } = wanted()?;
            Ok(Job {
                origin,
                record,
                purpose,
                rest,
                bypass,
                document,
            })
        };
        let ask = Ask {
            must,
            document,
            store,
            job: &job,
        };
        start(&self.command, origin, &ask, ending, written)
    }
}
