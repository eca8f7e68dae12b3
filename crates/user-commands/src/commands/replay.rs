//! `headstart replay`: what a plan lists becomes resident.

use crate::files;
use anyhow::{Context, Result, bail};
use headstart_inspect::replay::{text, view};
use headstart_model::NamedFiles;
use headstart_model::plan::PlanFile;
use headstart_replay::{Forks, Options, Replay};
use headstart_start::keys;
use headstart_start_commands::context::Output;
use headstart_store::Store;
use headstart_system::launch::background;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Read what a plan lists into memory.
///
/// Returns at once, and reads in the background, unless --wait is given. Before a command on a disk with one
/// head give
/// --wait: a start beside the replay overtakes it, and the head jumps to and fro between the two.
/// `headstart run` knows when to wait.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A plan, or the key of a command whose plan is known.
    #[arg(value_name = "PLAN|KEY")]
    what: String,
    /// Return when all is read, and print what was done; on a disk with one head start the command then.
    #[arg(long)]
    wait: bool,
    /// Requests in flight per device [default: what the plan says of it].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    depth: Option<u32>,
    #[command(flatten)]
    output_form: Output,
}

pub fn run(args: Args, store: &Store) -> Result<()> {
    let origin = Instant::now();
    let plan = find(&args.what, store)?;
    let options = Options {
        depth: args.depth,
        beside: !args.wait,
        forks: Forks::Caller,
        ..Options::new(origin)
    };
    // No start has named anything.
    let plan = Arc::new(plan.of_start(&NamedFiles::default())?.unwrap_or(plan));
    let followed = Arc::clone(&plan);
    if args.wait {
        let report = Replay::start(followed, options)?.finish();
        let plan = plan.plan()?;
        let view = view(&plan, &report);
        return args.output_form.print(&view, || text(&view));
    }
    background(
        || None,
        move |_| match Replay::start(followed, options) {
            Ok(replay) => {
                replay.finish();
                0
            }
            Err(_) => 1,
        },
    )
    .context("cannot start a process for the replay; use --wait")?;
    if args.output_form.json {
        let plan = plan.plan()?;
        let started = serde_json::json!({ "key": plan.key(), "background": true, "requests": plan.cut() });
        return args.output_form.print(&started, String::new);
    }
    Ok(())
}

/// The plan at a path, or of a key.
fn find(what: &str, store: &Store) -> Result<PlanFile> {
    if Path::new(what).is_file() {
        let file = files::read_any(Path::new(what));
        // The path of a program is its key.
        match file {
            Ok(files::Any::Plan(plan)) => return Ok(plan),
            Ok(_) => bail!("{what} is no plan: make one with `headstart plan`"),
            Err(error) if keys::candidates(what).iter().all(|key| !store.key(key).exists()) => {
                return Err(error);
            }
            Err(_) => {}
        }
    }
    for key in keys::candidates(what) {
        if let Some(plan) = store
            .key(&key)
            .plan()
            .or_tell(|line| headstart_start::complain(&line))
        {
            return Ok(plan);
        }
    }
    bail!("{what:?} is neither a plan nor a known key: `headstart status` lists what is known")
}
