//! `headstart layout`: what is read together lies together.

use crate::context::Output;
use crate::options;
use anyhow::Result;
use headstart_layout::{Bounds, apply, items_text, kept_text, named, order_text, orders, status, underway};
use headstart_session::progress::Progress;
use headstart_session::{complain, now_unix_ns, plan_again};
use headstart_store::Store;

/// Move what starts read together on disk, in the order they read it.
///
/// A start takes as long as a disk's head jumps, or elsewhere as its requests take: what lies together is one. Files are moved
/// while they are in use: their contents stay, and a crash leaves each in its old or in its new place. It is done on ext4, and
/// only where the cost model says that it is worth it. What cannot be moved (running programs, files with several names,
/// encrypted and immutable ones) stays where it is and is told.
#[derive(Debug, clap::Args)]
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
    /// Move them, if it is worth it, at idle priority. Ctrl-C ends it between two files' extents.
    Apply {
        #[command(flatten)]
        of: Of,
        /// Also where it is not worth it.
        #[arg(long)]
        force: bool,
        /// The most that is moved in a second, such as 20M.
        #[arg(long, value_name = "SIZE", value_parser = options::size)]
        rate: Option<u64>,
    },
    /// Say when files were moved last, where to, and what failed.
    Status(Output),
}

#[derive(Debug, clap::Args)]
struct Of {
    /// For whose starts: `boot` or the keys of programs, the most important first [default: all].
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    #[command(flatten)]
    output_form: Output,
}

pub fn run(args: Args, store: &Store) -> Result<()> {
    let tell = &mut |line: String| complain(&line);
    let find = |of: &Of| named(&of.keys, store);
    let (of, bounds) = match args.what {
        What::Status(output_form) => {
            let all = status(store)?;
            return output_form.print(&all, || kept_text(&all, now_unix_ns()));
        }
        What::Show(of) => {
            let (machine, orders) = orders(store, &find(&of)?, tell)?;
            return of.output_form.print(&orders, || items_text(&orders, &machine));
        }
        What::Plan(of) => {
            let (machine, orders) = orders(store, &find(&of)?, tell)?;
            return of.output_form.print(&orders, || order_text(&orders, &machine));
        }
        What::Apply { of, force, rate } => (of, Bounds { force, rate }),
    };
    let keys = find(&of)?;
    let (machine, orders) = orders(store, &keys, tell)?;
    let progress = Progress::begin();
    let moved = apply(orders, &machine, &keys, store, bounds, &mut |kept| {
        progress.tell(&underway(kept));
    })?;
    drop(progress);
    let planned = if moved.iter().any(|kept| kept.files > 0) {
        &keys[..]
    } else {
        &[]
    };
    for key in planned {
        plan_again(store, key, tell)?;
    }
    of.output_form.print(&moved, || kept_text(&moved, now_unix_ns()))
}
