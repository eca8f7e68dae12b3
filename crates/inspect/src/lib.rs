//! The program `headstart-inspect`, which `headstart` executes for what people call: parse, call, print. One file per subcommand under
//! [`commands`]. It knows the whole command line, so it also answers `--help` and wrong usage.
//!
//! Exit status: 0 done, 1 could not, 2 wrong usage.

mod cli;
mod commands;
mod files;
mod reads;
mod starts;

use anyhow::{Result, bail};
use clap::{CommandFactory, Parser};
use cli::Command;
use commands::{
    apps, boot_status, chart, compare, diff, doctor, explain, export, floor, forget, learn, plan, replay,
    report_bug, show, status,
};
use headstart_session::store;
use headstart_system::launch::survive_file_limit;
use std::path::PathBuf;
use std::process::ExitCode;

type Cli = headstart_command::Cli<Command>;

/// The whole command line, of which man pages and completions are made.
pub fn definition() -> clap::Command {
    Cli::command()
}

/// The program: parses the command line, does what it says, and says how it ended.
pub fn main() -> ExitCode {
    // A log or a terminal's file that is full is an error to be told, not this process's end.
    survive_file_limit();
    // Exits with 2 on wrong usage, with 0 after --help and --version.
    let cli = Cli::parse();
    headstart_command::ended(run(cli.command, cli.state))
}

fn run(command: Command, state: Option<PathBuf>) -> Result<()> {
    match command {
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
        Command::Forget(args) => forget::run(args, &store(state)?),
        Command::Apps(args) => apps::run(args, state),
        Command::Doctor(args) => doctor::run(args, &store(state)?),
        Command::ReportBug(args) => report_bug::run(args, &store(state)?),
        Command::Boot(args) => match args.into_status() {
            Some(place) => boot_status::run(&place.store(state)?, place.root.as_deref(), place.output_form),
            None => not_here(),
        },
        Command::Run(_)
        | Command::Record(_)
        | Command::Layout(_)
        | Command::Daemon(_)
        | Command::Op(_)
        | Command::Mark(_) => not_here(),
    }
}

fn not_here() -> Result<()> {
    bail!("headstart-inspect does not do that: call it by `headstart`, which executes the program that does")
}
