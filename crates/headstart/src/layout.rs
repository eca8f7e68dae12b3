//! The program `headstart-layout`, which `headstart layout` executes: what is read together lies together. It
//! is the only one that moves files.

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use headstart_layout::{
    Bounds, LayoutResult, State, apply_to, failed_text, items_text, kept_text, order_text, orders, status,
    underway,
};
use headstart_start::progress::Progress;
use headstart_start::{complain, now_unix_ns, store};
use headstart_start_commands::Cli;
use headstart_start_commands::commands::layout::{Args, What};
use headstart_system::launch::survive_file_limit;
use std::path::PathBuf;
use std::process::ExitCode;

/// Its only subcommand.
#[derive(Debug, Subcommand)]
enum Command {
    Layout(Args),
}

fn main() -> ExitCode {
    // A log or a terminal's file that is full is an error to be told, not this process's end.
    survive_file_limit();
    let cli = Cli::<Command>::parse();
    let Command::Layout(args) = cli.command;
    headstart_start_commands::ended(run(args, cli.state))
}

fn run(args: Args, state: Option<PathBuf>) -> Result<()> {
    let store = &store(state)?;
    let tell = &mut |line: String| complain(&line);
    let (of, bounds) = match args.what {
        What::Status(output_form) => {
            let results = status(store)?;
            return output_form.print(&results, || kept_text(&results, now_unix_ns()));
        }
        What::Show(of) => {
            let (machine, orders) = orders(&of.keys, store, tell)?;
            return of.output_form.print(&orders, || items_text(&orders, &machine));
        }
        What::Plan(of) => {
            let (machine, orders) = orders(&of.keys, store, tell)?;
            return of.output_form.print(&orders, || order_text(&orders, &machine));
        }
        What::Apply {
            of,
            force,
            rate,
            at_shutdown,
        } => (
            of,
            Bounds {
                force,
                rate,
                at_shutdown,
                until: None,
            },
        ),
    };
    let progress = Progress::for_terminal();
    let moved = apply_to(&of.keys, store, bounds, tell, &mut |kept| {
        progress.show(&underway(kept));
    })?;
    drop(progress);
    let (failed, rest): (Vec<_>, Vec<_>) = moved
        .iter()
        .cloned()
        .partition(|kept| kept.state == State::Failed);
    // What failed is told once, as the error.
    of.output_form
        .print(&moved, || match rest.is_empty() && !failed.is_empty() {
            true => String::new(),
            false => kept_text(&rest, now_unix_ns()),
        })?;
    if !failed.is_empty() {
        let why: Vec<String> = failed.iter().map(failed_text).collect();
        bail!("{}", why.join("; "));
    }
    let is_stopped = |kept: &LayoutResult| kept.state == State::Stopped && kept.why.is_none();
    if rest.iter().any(is_stopped) {
        bail!("stopped before all files were in order: run it again to go on");
    }
    Ok(())
}
