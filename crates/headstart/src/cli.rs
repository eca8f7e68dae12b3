//! The command line: the one source of help, man pages and completions.

use crate::commands::{
    diff, doctor, explain, forget, generate, learn, plan, record, replay, run, show, status,
};
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Learns what a program reads from disk as it starts, and reads it first the next time.
#[derive(Debug, Parser)]
#[command(
    name = "headstart",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(
    after_help = "Begin with `headstart run -- CMD`. Exit status: 0 done, 1 could not, 2 wrong usage; `run` and \
                        `record` pass the status of their command on."
)]
pub struct Cli {
    /// The state directory [default: /var/lib/headstart; for others than root ~/.local/state/headstart].
    #[arg(long, global = true, value_name = "DIR", env = headstart_store::ENVIRONMENT, hide_env_values = true)]
    pub state: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a command: record it the first time, read ahead for it from then on.
    Run(run::Args),
    /// Start a command and write down what it used, as a trace.
    Record(record::Args),
    /// Make a profile, what is needed, of one or more traces.
    Learn(learn::Args),
    /// Make a plan, where that is on this machine, of a profile.
    Plan(plan::Args),
    /// Read what a plan lists into memory.
    Replay(replay::Args),
    /// Show a trace, profile, plan or outcome.
    Show(show::Args),
    /// Say why a path is read ahead, or why it is not.
    Explain(explain::Args),
    /// Compare two traces, two profiles or two plans.
    Diff(diff::Args),
    /// List what is known, and whether it pays.
    Status(status::Args),
    /// Forget all that is known of a key.
    Forget(forget::Args),
    /// Tell what this kernel and machine offer, what falls back, and why.
    Doctor(doctor::Args),
    /// Write man pages and shell completions.
    #[command(hide = true)]
    Generate(generate::Args),
}
