//! The subcommands, one file each: its arguments, and what they are parsed, called and printed for.

mod beside;
pub mod boot;
mod boot_status;
pub mod diff;
pub mod doctor;
pub mod explain;
pub mod forget;
pub mod generate;
pub mod learn;
pub mod mark;
pub mod plan;
pub mod record;
pub mod replay;
pub mod run;
pub mod show;
pub mod status;

use crate::cli::{Cli, Command};
use anyhow::Result;
use headstart_session::store;

/// Runs the subcommand.
pub fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::Run(args) => run::run(args, cli.state),
        Command::Record(args) => record::run(args),
        Command::Learn(args) => learn::run(args),
        Command::Plan(args) => plan::run(args, &store(cli.state)?),
        Command::Replay(args) => replay::run(args, &store(cli.state)?),
        Command::Show(args) => show::run(args),
        Command::Explain(args) => explain::run(args, &store(cli.state)?),
        Command::Diff(args) => diff::run(args),
        Command::Status(args) => status::run(args, &store(cli.state)?),
        Command::Forget(args) => forget::run(args, &store(cli.state)?),
        Command::Boot(args) => boot::run(args, cli.state),
        Command::Mark(args) => mark::run(args),
        Command::Doctor(args) => doctor::run(args, &store(cli.state)?),
        Command::Generate(args) => generate::run(args),
    }
}
