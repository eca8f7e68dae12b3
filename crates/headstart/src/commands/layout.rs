//! `headstart layout`: what is read together lies together.

use crate::context::Output;
use crate::options;
use anyhow::{Result, bail};
use headstart_layout::{
    Bounds, State, apply_to, failed_text, items_text, kept_text, order_text, orders, status, underway,
};
use headstart_start::progress::Progress;
use headstart_start::{complain, now_unix_ns};
use headstart_store::Store;

/// Move what starts read together on disk, in the order they read it.
#[derive(Debug, clap::Args)]
#[command(long_about = headstart_layout::ABOUT)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// List the files in the order they would have, and where they lie now.
    Show(Of),
    /// Say what moving them would bring.
    Plan(Of),
    /// Move them, if it is worth it. Ctrl-C ends it between two extents, and the next time goes on from there.
    Apply {
        #[command(flatten)]
        of: Of,
        /// Move anew also what lies in order, and where it is not worth it.
        #[arg(long)]
        force: bool,
        /// The most that is moved in a second, such as 20M.
        #[arg(long, value_name = "SIZE", value_parser = options::size)]
        rate: Option<u64>,
        /// Move programs that ran the last time, and nothing else; only while the machine shuts down, or with --force.
        #[arg(long)]
        at_shutdown: bool,
    },
    /// Say when files were moved last, where to, and what failed.
    Status(Output),
}

#[derive(Debug, clap::Args)]
struct Of {
    /// For whose starts: `boot` or the keys of programs, in the order in which their files are to lie [default: all].
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    #[command(flatten)]
    output_form: Output,
}

pub fn run(args: Args, store: &Store) -> Result<()> {
    let tell = &mut |line: String| complain(&line);
    let (of, bounds) = match args.what {
        What::Status(output_form) => {
            let all = status(store)?;
            return output_form.print(&all, || kept_text(&all, now_unix_ns()));
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
    let progress = Progress::begin();
    let moved = apply_to(&of.keys, store, bounds, tell, &mut |kept| {
        progress.tell(&underway(kept));
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
    Ok(())
}
