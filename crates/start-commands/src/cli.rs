//! The command line that all programs of the package share: the one source of help, man pages and
//! completions.

use crate::commands::{boot, daemon, features, mark, op, record, run};
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Learns what a program reads from disk as it starts, and reads it first the next time.
#[derive(Debug, Parser)]
#[command(
    name = "headstart",
    // Each program of the package is called by way of headstart.
    bin_name = "headstart",
    version,
    max_term_width = 80,
    arg_required_else_help = true
)]
#[command(
    after_help = "Begin with `headstart run -- CMD`. Exit status: 0 done, 1 could not, 2 wrong usage; `run` and \
                        `record` pass the status of their command on."
)]
pub struct Cli<C: Subcommand> {
    /// The state directory [default: $HEADSTART_STATE, unless it belongs to another user; else
    /// /var/lib/headstart, for others than root ~/.local/state/headstart].
    #[arg(long, global = true, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: C,
}

/// The subcommands of the program that runs at starts and boots; what each does is said where its arguments
/// are.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Args),
    Record(record::Args),
    Boot(boot::Args),
    Daemon(daemon::Args),
    Op(op::Args),
    Mark(mark::Args),
    #[command(hide = true)]
    Features(features::Args),
}
