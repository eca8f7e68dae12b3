//! The headstart command: parse, call, print. One file per subcommand under [`commands`]; starting a command beside a
//! recording and a replay is [`session`].
//!
//! Exit status: 0 done, 1 could not, 2 wrong usage; `run` and `record` pass the status of their command on.

mod boot;
mod cli;
mod commands;
mod context;
mod files;
mod keys;
mod machine;
mod options;
mod session;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Who starts it by --init has done that.
    if std::env::args_os().skip(1).eq(["boot", "run"]) && !boot::early::begin() {
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

/// One line on standard error.
fn complain(message: &str) {
    use std::io::Write;
    let line = format!(
        "headstart: {}\n",
        headstart_report::human::printable(&message.replace('\n', " "))
    );
    // Where standard error is closed nobody wants to know.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
