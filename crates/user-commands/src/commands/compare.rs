//! `headstart compare`: what devices read during a start, and whether the plan had it.

use crate::compare::{orders, plan_of_trace, reads};
use crate::files::{self, Any};
use anyhow::{Result, bail};
use headstart_inspect::compare::text;
use headstart_model::Key;
use headstart_model::plan::PlanFile;
use headstart_start::complain;
use headstart_start_commands::context::Output;
use headstart_start_commands::options::name;
use headstart_store::Store;
use std::path::PathBuf;
use std::time::Duration;

/// Name the owner of every block that devices read during a start, and say whether the plan had it.
///
/// The owner is a file and an offset in it, or a kind of metadata: on ext2, ext3, ext4, XFS and btrfs.
/// Planned bytes are found, or late if the start read them first; all others are missing. Metadata of XFS and
/// btrfs comes with look-ups, and a plan does not say what those read.
///
/// The file systems of the trace have to be mounted, from the same devices as then. Device mapper and RAID
/// devices are not looked into. Needs root.
///
/// With --after, what the medium read is set beside what it read once its files were in another order
/// (`headstart export --for`), and what both take on a CD-ROM and on a USB stick: where the order does not
/// pay, this says so.
///
/// The document of --json is described in headstart-compare(5).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The trace of the start, recorded with --chart.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The plan [default: that of the start's key].
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// The key whose plan it is, if it was given a name.
    #[arg(long, value_name = "KEY", value_parser = name, conflicts_with = "plan")]
    name: Option<Key>,
    /// The trace of the same start with the files of the medium in another order.
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["plan", "name", "limit", "blocks"])]
    after: Option<PathBuf>,
    /// Seconds after which the search for owners of blocks ends.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    limit: u64,
    /// List every piece of every read.
    #[arg(long)]
    blocks: bool,
    #[command(flatten)]
    output_form: Output,
}

pub fn run(args: Args, store: &Store) -> Result<()> {
    let trace = files::trace(&args.trace)?;
    if let Some(after) = &args.after {
        let orders = orders(&trace, &files::trace(after)?)?;
        return args
            .output_form
            .print(&orders, || headstart_inspect::orders::text(&orders));
    }
    let plan = match (&args.plan, &args.name) {
        (Some(path), _) => Some(plan(path)?),
        (None, Some(key)) => {
            let plan = store.key(key).plan().or_tell(|line| complain(&line));
            if plan.is_none() {
                bail!(
                    "the key {:?} has no plan: `headstart status` lists what is known",
                    key.as_str()
                );
            }
            plan
        }
        (None, None) => plan_of_trace(store, &trace, |line| complain(&line)),
    };
    let comparison = reads(&trace, plan.as_ref(), Duration::from_secs(args.limit))?;
    args.output_form
        .print(&comparison, || text(&comparison, args.blocks))
}

fn plan(path: &std::path::Path) -> Result<PlanFile> {
    match files::read_any(path)? {
        Any::Plan(plan) => Ok(plan),
        _ => bail!("{} is no plan: make one with `headstart plan`", path.display()),
    }
}
