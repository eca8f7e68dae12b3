//! `headstart bench`: what headstart brings for a command on this machine.

use crate::bench::{Bench, Interrupted, bench, boots, most_starts};
use crate::files;
use crate::floor::{Wanted, last_start};
use anyhow::{Context, Result, bail, ensure};
use headstart_bench::report::ColdBy;
use headstart_bench::rule::LEAST_ROUNDS;
use headstart_inspect::bench::{boots_text, html, text};
use headstart_inspect::human::printable;
use headstart_start::complain;
use headstart_start::keys::find_known;
use headstart_start::progress::Progress;
use headstart_start_commands::context::Output;
use headstart_store::{Store, write_output};
use headstart_system::launch::end_like;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

/// Measure what headstart brings for a command on this machine.
///
/// The command is started cold, cold with headstart, and warm, in turns, until it is clear whether headstart
/// makes a difference: after 5 rounds where the times lie plainly apart, after 15 at most. Before that two
/// starts teach headstart what the command reads. Nothing needs to be known of it, and nothing is kept.
///
/// The result is six lines: how long the three kinds of start take, what is saved, what would be possible at
/// best by the devices of this machine (see `headstart floor`), and what is left above that. An interval
/// holds the true value in 95 of 100 cases. A difference of less than 50 ms or 2 % is not called one.
///
/// Before a cold start the pages of the files that the command reads are taken out of memory, and the
/// metadata that is read for them, so far as nobody else uses them. Directories and inodes stay in memory,
/// unless --drop-caches is given.
///
/// A volume that is filled as it is first read, such as a cloud disk from a snapshot, is filled by the first
/// of these starts. What headstart saves of that fill cannot be measured twice, so it is not in the result.
///
/// A start ends when the command ends. If it goes on and is quiet for 2 seconds, as a program with a window
/// is, its start ended then, and the program is asked to close. Standard input is empty, and what the command
/// prints is thrown away.
///
/// Everything that the command does is done at each start. So it is asked for consent first, and --yes gives
/// it. Only root can call this. To start the command as a user: `headstart bench -- runuser -u USER -- CMD`.
///
/// With --boot the next boots are read ahead and not in turns, as many of either as --rounds says (default
/// 5), once one is known. The same command then tells what they have shown, also before all of them are over.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A key, for the command line of its last start that is kept.
    #[arg(value_name = "KEY", required_unless_present_any = ["command", "boot"], conflicts_with = "command")]
    key: Option<String>,
    /// Measure the next boots.
    #[arg(long, conflicts_with_all = ["key", "command", "drop_caches", "keep", "html"])]
    boot: bool,
    /// So many rounds of the three starts, instead of as many as it takes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(LEAST_ROUNDS as i64..=100))]
    rounds: Option<u8>,
    /// Drop the caches of the whole machine before each cold start: other programs are slower for a while.
    #[arg(long)]
    drop_caches: bool,
    /// Start the command without asking first.
    #[arg(long)]
    yes: bool,
    /// Keep what was learned of the command, if nothing is known of it yet.
    #[arg(long)]
    keep: bool,
    /// Write a page with a picture of all starts, too; it loads nothing.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    output_form: Output,
    /// The command and its arguments.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub fn run(args: Args, store: &Store) -> Result<()> {
    ensure!(
        geteuid().is_root(),
        "only root can take files out of memory, and measure boots: call it as root, as by sudo"
    );
    if args.boot {
        let status = boots::measure(store, args.rounds)?;
        return args.output_form.print(&status, || boots_text(&status));
    }
    let command = match &args.key {
        Some(key) => command_of(key, store)?,
        None => args.command.clone(),
    };
    if let Some(path) = &args.html {
        files::refuse_all_but_files(path)?;
    }
    let rounds = args.rounds.map(usize::from);
    if !args.yes {
        consent(&command, most_starts(rounds))?;
    }
    let progress = Progress::for_terminal();
    let wanted = Bench {
        command: &command,
        store,
        rounds,
        cold_by: match args.drop_caches {
            true => ColdBy::DropCaches,
            false => ColdBy::Files,
        },
        keep: args.keep,
    };
    let measured = bench(&wanted, &progress);
    drop(progress);
    let report = match measured {
        Err(error) if error.is::<Interrupted>() => {
            // As any command ends by it; all that it made is gone.
            let signal = error.downcast_ref::<Interrupted>().map_or(0, |by| by.0);
            end_like(signal)
        }
        other => other?,
    };
    if let Some(path) = &args.html {
        write_output(path, html(&report).as_bytes())?;
    }
    args.output_form.print(&report, || text(&report))
}

/// The command line of the key's last start that is kept.
fn command_of(key: &str, store: &Store) -> Result<Vec<OsString>> {
    let kept = find_known(key, store)?;
    let start = last_start(&kept, Wanted::Any, &mut |line| complain(&line));
    let words = start.map(|start| start.trace.meta.command).unwrap_or_default();
    ensure!(
        !words.is_empty(),
        "how {} was started is not kept: give its command line, headstart bench -- CMD",
        kept.key()
    );
    Ok(words.into_iter().map(OsString::from).collect())
}

/// Asks whoever sits at the terminal.
fn consent(command: &[OsString], starts: usize) -> Result<()> {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let line = printable(&words.join(" "));
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        bail!(
            "this starts the command up to {starts} times, and each time it does all that it does: give --yes if it may ({line})"
        );
    }
    eprint!(
        "This starts the command up to {starts} times:\n  {line}\nWhat it writes, sends or deletes, it does each \
         time. Go on? [y/N] "
    );
    io::stderr().flush().context("cannot write to standard error")?;
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .context("cannot read the answer")?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!("not started"),
    }
}
