//! The command line: the one source of help, man pages and completions.

use crate::commands::{
    apps, boot, chart, compare, daemon, diff, doctor, explain, export, floor, forget, layout, learn, mark,
    op, plan, record, replay, report_bug, run, show, status,
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
    /// The state directory [default: $HEADSTART_STATE, unless it belongs to another user; else /var/lib/headstart, for
    /// others than root ~/.local/state/headstart].
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands; what each does is said where its arguments are.
#[derive(Debug, Subcommand)]
pub enum Command {
    Run(run::Args),
    Record(record::Args),
    Learn(learn::Args),
    Plan(plan::Args),
    Replay(replay::Args),
    Show(show::Args),
    Explain(explain::Args),
    Diff(diff::Args),
    Chart(chart::Args),
    Export(export::Args),
    Compare(compare::Args),
    Status(status::Args),
    Floor(floor::Args),
    Layout(layout::Args),
    Forget(forget::Args),
    Boot(boot::Args),
    Daemon(daemon::Args),
    Apps(apps::Args),
    Op(op::Args),
    Mark(mark::Args),
    Doctor(doctor::Args),
    ReportBug(report_bug::Args),
}
