//! The headstart command: parse, call, print. One file per subcommand under [`commands`]; a start is one thing of
//! `headstart_start`, a boot of `headstart_boot`.
//!
//! Exit status: 0 done, 1 could not, 2 wrong usage; `run` and `record` pass the status of their command on.

mod cli;
mod commands;
mod context;
mod files;
mod options;
mod starts;

use anyhow::Result;
use clap::Parser;
pub use cli::Cli;
use cli::Command;
use commands::{
    apps, boot, chart, compare, daemon, diff, doctor, explain, export, floor, forget, layout, learn, mark,
    op, plan, record, replay, report_bug, run, show, status,
};
use headstart_start::{complain, store};
use headstart_system::launch::survive_file_limit;
use std::path::PathBuf;
use std::process::ExitCode;

/// The program: parses the command line, does what it says, and says how it ended.
pub fn main() -> ExitCode {
    // A log or a terminal's file that is full is an error to be told, not this process's end.
    survive_file_limit();
    if std::env::args_os().skip(1).eq(["boot", "run"]) && !headstart_boot::early::begin() {
        return ExitCode::SUCCESS;
    }
    // Exits with 2 on wrong usage, with 0 after --help and --version.
    let cli = Cli::parse();
    // What somebody waits for is not to come with all the others.
    let result = match cli.command {
        Command::Run(args) => run::run(args, cli.state),
        Command::Boot(args) => boot::run(args, cli.state),
        command => run(command, cli.state),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs any subcommand. The compiler puts all of them in here, 200 KB.
#[inline(never)]
fn run(command: Command, state: Option<PathBuf>) -> Result<()> {
    match command {
        Command::Run(args) => run::run(args, state),
        Command::Record(args) => record::run(args),
        Command::Learn(args) => learn::run(args),
        Command::Plan(args) => plan::run(args, &store(state)?),
        Command::Replay(args) => replay::run(args, &store(state)?),
        Command::Show(args) => show::run(args),
        Command::Export(args) => export::run(args),
        Command::Explain(args) => explain::run(args, &store(state)?),
        Command::Diff(args) => diff::run(args),
        Command::Compare(args) => compare::run(args, &store(state)?),
        Command::Chart(args) => chart::run(args, &store(state)?),
        Command::Status(args) => status::run(args, &store(state)?),
        Command::Floor(args) => floor::run(args, &store(state)?),
        Command::Layout(args) => layout::run(args, &store(state)?),
        Command::Forget(args) => forget::run(args, &store(state)?),
        Command::Boot(args) => boot::run(args, state),
        Command::Daemon(args) => daemon::run(args, state),
        Command::Apps(args) => apps::run(args, state),
        Command::Op(args) => op::run(args),
        Command::Mark(args) => mark::run(args),
        Command::Doctor(args) => doctor::run(args, &store(state)?),
        Command::ReportBug(args) => report_bug::run(args, &store(state)?),
    }
}
