//! The headstart command: parse, call, print. One file per subcommand under [`commands`]; a start is one thing of
//! `headstart_session`, a boot of `headstart_boot`.
//!
//! Exit status: 0 done, 1 could not, 2 wrong usage; `run` and `record` pass the status of their command on.

mod cli;
mod commands;
mod context;
mod files;
mod options;

use clap::Parser;
use headstart_session::complain;
use headstart_system::launch::survive_file_limit;
use std::process::ExitCode;

fn main() -> ExitCode {
    // A log or a terminal's file that is full is an error to be told, not this process's end.
    survive_file_limit();
    // Who starts it by --init has done that.
    if std::env::args_os().skip(1).eq(["boot", "run"]) && !headstart_boot::early::begin() {
        return ExitCode::SUCCESS;
    }
    // Exits with 2 on wrong usage, with 0 after --help and --version.
    let cli = cli::Cli::parse();
    match commands::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
