//! `headstart run`: the whole loop for one command.

use super::beside::{Beside, Origin};
use crate::keys;
use crate::options::QUIET_SECONDS;
use crate::session::{Ending, Purpose};
use anyhow::Result;
use headstart_record::Until;
use headstart_store::Store;

/// Start a command: record it the first time, read ahead for it from then on.
///
/// The command's output, exit status and signals are its own, and whatever goes wrong with headstart is one line on
/// standard error, never a failed command. A command that cannot be started gives 127 (not found) or 126.
///
/// An unknown command is recorded. For a known one, what it will read is read ahead as it starts; it is recorded again,
/// and what was learned and how it went is kept. That happens in the background once the start has ended: when the
/// command ends, or reads nothing new and hardly computes for 2 seconds, or after 60 seconds.
///
/// Where earlier starts show that reading ahead makes the command slower, its starts are left alone, neither read ahead
/// nor recorded, but for one in N, later in 4 N, by chance, that tries again (`status` says so); with --control-every 0 all are read ahead.
///
/// With --wait, once the command has ended a signal that would end any process ends the wait, and headstart by that
/// signal; learning goes on in the background.
///
/// The document of --json is the outcome of the start, as `status KEY --json` lists it: headstart-outcome(5).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The name under which the command is known [default: its executable, with the script or module it interprets].
    #[arg(long, value_name = "KEY")]
    name: Option<String>,
    /// Do not read ahead at every Nth start, to have something to compare with; 0 to read ahead at all.
    #[arg(long, value_name = "N", default_value_t = 10)]
    control_every: u32,
    /// Return only when all is learned and kept, not as soon as the command ends.
    #[arg(long, env = "HEADSTART_SYNC", value_parser = clap::builder::FalseyValueParser::new())]
    wait: bool,
    #[command(flatten)]
    beside: Beside,
}

pub fn run(args: Args, store: Store) -> Result<()> {
    let origin = Origin::now();
    let key = keys::of_command(args.name.as_deref(), &args.beside.command)?;
    let purpose = Purpose::Loop {
        store,
        key,
        control_every: args.control_every,
    };
    let ending = match args.wait {
        true => Ending::WhenDone,
        false => Ending::WithCommand,
    };
    args.beside.start(origin, purpose, ending, |record| {
        record.until = Until::Quiet {
            seconds: QUIET_SECONDS,
        };
    })
}
