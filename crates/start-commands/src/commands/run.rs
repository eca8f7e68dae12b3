//! `headstart run`: the whole loop for one command.

use super::recorded_command::{RecordedCommand, RunRequest};
use crate::options::{QUIET_SECONDS, name};
use anyhow::Result;
use headstart_model::Key;
use headstart_record::{Options, Until};
use headstart_run::{Ending, Origin, Purpose, become_command, complain_once, rehearse};
use headstart_start::config::Programs;
use headstart_start::keys;
use headstart_start::{Arguments, StartRequest, store};
use headstart_store::Store;
use headstart_system::own_program::{REHEARSED, Role, role};
use rustix::process::geteuid;
use std::path::PathBuf;

/// Start a command: record it the first time, read ahead for it from then on.
///
/// The command's output, exit status and signals are its own, and whatever goes wrong with headstart is one
/// line on standard error, never a failed command. A command that cannot be started gives 127 (not found)
/// or 126.
///
/// An unknown command is recorded. For a known one, what it will read is read ahead as it starts; it is
/// recorded again, and what was learned and how it went is kept. That happens in the background once the
/// start has ended: when the command ends, or reads nothing new and hardly computes for 2 seconds, or after
/// 60 seconds. Where recording takes more than 1 % of a command that ends by itself, from the fourth time on
/// only one start in N is recorded, N at most 10, and one after its files have changed.
///
/// A bypassed start runs at once, and headstart does nothing for it. A start is bypassed if what it reads is
/// in memory; one in N, by chance, is recorded all the same. Starts are also bypassed if earlier ones show
/// that reading ahead makes the command slower, or that it hardly waits for disks; one in N, later one in 4
/// N, re-evaluates that (`status` reports it). With --control-every 0 this second rule does not apply. Starts
/// of a disabled program (`headstart apps disable`) and command lines of more than 8,192 words or 256 KiB are
/// always bypassed.
///
/// With --wait, once the command has ended a signal that would end any process ends the wait, and headstart
/// by that signal; learning goes on in the background.
///
/// The document of --json is the outcome of the start, as `status KEY --json` lists it: headstart-outcome(5).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The name under which the command is known [default: its executable, with the script or module it
    /// interprets].
    #[arg(long, value_name = "KEY", value_parser = name)]
    name: Option<Key>,
    /// Make every Nth cold start a control, for which nothing is read ahead, to compare with (every
    /// second one where reading ahead looks slower). 0: no control starts [default: 10, and a multiple of it
    /// once a gain is shown, see headstart.toml(5)].
    #[arg(long, value_name = "N")]
    control_every: Option<u32>,
    /// Return when the start has been learned from and stored, not as soon as the command ends.
    #[arg(long, env = "HEADSTART_SYNC", value_parser = clap::builder::FalseyValueParser::new())]
    wait: bool,
    /// Record what a chart needs, too, as record --chart does: `headstart chart KEY` then draws processors
    /// and disks beside what was read ahead.
    #[arg(long)]
    chart: bool,
    #[command(flatten)]
    beside: RecordedCommand,
}

/// Ends as the command does; returns only an error: the command could not be executed.
///
/// # Errors
/// The command cannot be executed.
pub fn run(args: Args, state: Option<PathBuf>) -> Result<()> {
    if role() == Role::Scout {
        let rehearsed = rehearse().is_ok();
        std::process::exit(if rehearsed {
            REHEARSED.into()
        } else {
            NOT_REHEARSED
        });
    }
    let kept = || store(state.clone());
    let begun = run_command(&args, &kept);
    // Nothing was started, and the command is to run whatever happens to headstart.
    let why = begun
        .err()
        .map_or("nothing was started".into(), |error| format!("{error:#}"));
    complain_once(
        &|| kept().ok(),
        &format!("the command starts without headstart: {why}"),
    );
    become_command(&args.beside.command)
}

/// What the command is given; nothing where a name was given for it, for that says all.
fn arguments(args: &Args) -> Arguments {
    let words = args.beside.command.get(1..).unwrap_or_default();
    match args.name {
        Some(_) => Arguments::default(),
        None => Arguments::new(words, std::env::current_dir().ok(), geteuid().as_raw(), false),
    }
}

/// How a scout ends that could not do all, as if it had been killed: the command starts without headstart.
const NOT_REHEARSED: i32 = 101;

/// Ends as the command ends; returns only if nothing was started.
fn run_command(args: &Args, kept: &dyn Fn() -> Result<Store>) -> Result<()> {
    let purpose = || {
        let store = kept()?;
        let whose = keys::named_or_of(args.name.as_ref(), &args.beside.command, &store)?;
        // A name that was given is the caller's own word.
        let is_secret = args.name.is_none() && keys::is_secret(&whose.key, &whose.rest);
        let purpose = Purpose::Loop(StartRequest {
            store,
            key: whose.key,
            arguments: arguments(args),
            control_every: args.control_every.unwrap_or(Programs::default().control_every),
            fixed_rate: args.control_every.is_some(),
        });
        Ok(RunRequest {
            purpose,
            rest: whose.rest,
            bypass: is_secret.then(|| "its command names what is encrypted".into()),
        })
    };
    let ending = match args.wait {
        true => Ending::WhenDone,
        false => Ending::WithCommand,
    };
    let adapt = |record: &mut Options| {
        record.until = Until::Quiet {
            seconds: QUIET_SECONDS,
        };
        record.activity = args.chart;
    };
    args.beside
        .start(Origin::now(), false, &|| kept().ok(), &purpose, ending, &adapt)
}
