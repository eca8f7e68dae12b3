//! The program `headstart-inspect`, which `headstart` executes for what people call: parse, call, print. One
//! file per subcommand under [`commands`]. It knows the whole command line, so it also answers `--help` and
//! wrong usage. Other modules ask for what is not kept: the floor of a start on this machine's devices
//! ([`floor`]), and whose the bytes are that devices read ([`compare`], [`owners`]).
//!
//! Exit status: 0 done, 1 could not, 2 wrong usage.

mod addresses;
pub mod bench;
mod cli;
mod commands;
pub mod compare;
mod files;
pub mod floor;
pub mod owners;
mod people;
pub mod privacy;
mod program;
mod ranges;
mod starts;
pub mod travel;

use anyhow::{Result, bail};
use clap::{CommandFactory, Parser};
use cli::Command;
use headstart_start::store;
use headstart_system::launch::survive_file_limit;
use std::path::PathBuf;
use std::process::ExitCode;

type Cli = headstart_start_commands::Cli<Command>;

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
    headstart_start_commands::ended(run(cli.command, cli.state))
}

fn run(command: Command, state: Option<PathBuf>) -> Result<()> {
    match command {
        Command::Learn(args) => commands::learn::run(args),
        Command::Plan(args) => commands::plan::run(args, &store(state)?),
        Command::Hydrate(args) => commands::hydrate::run(args),
        Command::Replay(args) => commands::replay::run(args, &store(state)?),
        Command::Show(args) => commands::show::run(args),
        Command::Export(args) => commands::export::run(args),
        Command::Explain(args) => commands::explain::run(args, &store(state)?),
        Command::Diff(args) => commands::diff::run(args),
        Command::Compare(args) => commands::compare::run(args, &store(state)?),
        Command::Chart(args) => commands::chart::run(args, &store(state)?),
        Command::Bench(args) => commands::bench::run(args, &store(state)?),
        Command::Estimate(args) => commands::estimate::run(args, &store(state)?),
        Command::Keys(_) => commands::keys::run(&store(state)?),
        Command::Status(args) => commands::status::run(args, &store(state)?),
        Command::Floor(args) => commands::floor::run(args, &store(state)?),
        Command::Forget(args) => commands::forget::run(args, &store(state)?),
        Command::Profile(args) => commands::profile::run(args, &store(state)?),
        Command::Fleet(args) => commands::fleet::run(args),
        Command::Apps(args) => commands::apps::run(args, state),
        Command::Doctor(args) => commands::doctor::run(args, &store(state)?),
        Command::ReportBug(args) => commands::report_bug::run(args, &store(state)?),
        Command::Boot(args) => match args.into_status() {
            Some(place) => {
                commands::boot_status::run(&place.store(state)?, place.root.as_deref(), place.output_form)
            }
            None => not_here(),
        },
        Command::Run(_)
        | Command::Record(_)
        | Command::Layout(_)
        | Command::Daemon(_)
        | Command::Op(_)
        | Command::Mark(_)
        | Command::Features(_) => not_here(),
    }
}

fn not_here() -> Result<()> {
    bail!("headstart-inspect does not do that: call it by `headstart`, which executes the program that does")
}
