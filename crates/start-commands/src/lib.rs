//! The program `headstart`, which runs at starts, at boots and as the daemon: parse, call, print. One file
//! per subcommand under [`commands`]; a start is one thing of `headstart_start`, a boot of `headstart_boot`.
//! It is small, because a cold start reads it before anything is read ahead, and nothing that it links moves
//! files. It executes the other programs of the package for their subcommands ([`part`]).
//!
//! Exit status: 0 done, 1 could not, 2 wrong usage; `run` and `record` pass the status of their command on.

mod cli;
pub mod commands;
pub mod context;
pub mod options;
pub mod part;

use anyhow::Result;
use clap::Parser;
pub use cli::Cli;
use cli::Command;
use commands::{boot, daemon, features, mark, op, record, run};
use headstart_start::complain;
use headstart_system::launch::survive_file_limit;
use std::path::PathBuf;
use std::process::ExitCode;

/// The program: parses the command line, does what it says, and says how it ended.
pub fn main() -> ExitCode {
    // A log or a terminal's file that is full is an error to be told, not this process's end.
    survive_file_limit();
    if std::env::args_os().skip(1).eq(["boot", "run"]) && !headstart_boot::early_bypass::serve_or_release() {
        return ExitCode::SUCCESS;
    }
    if let Some(part) = part::from_arguments(std::env::args_os().skip(1)) {
        return ended(part.execute().map(|never| match never {}));
    }
    // Exits with 2 on wrong usage, with 0 after --help and --version.
    let cli = Cli::parse();
    // What somebody waits for is not to come with all the others.
    ended(match cli.command {
        Command::Run(args) => run::run(args, cli.state),
        Command::Boot(args) => boot::run(args, cli.state),
        command => run(command, cli.state),
    })
}

/// Tells of an error; the exit status.
pub fn ended(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs any subcommand. The compiler puts all of them in here.
#[inline(never)]
fn run(command: Command, state: Option<PathBuf>) -> Result<()> {
    match command {
        Command::Run(args) => run::run(args, state),
        Command::Record(args) => record::run(args),
        Command::Boot(args) => boot::run(args, state),
        Command::Daemon(args) => daemon::run(args, state),
        Command::Op(args) => op::run(args),
        Command::Mark(args) => mark::run(args),
        Command::Features(_) => features::run(),
    }
}
