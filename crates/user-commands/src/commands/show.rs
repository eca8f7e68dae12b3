//! `headstart show`: any of headstart's files, for people or as JSON.

use crate::files::{self, Any};
use anyhow::Result;
use headstart_inspect::{outcome, plan, profile, profile_set, trace};
use headstart_start::now_unix_ns;
use headstart_start_commands::context::Output;
use std::path::PathBuf;

/// Show a trace, a profile, profiles that were exported, a plan or an outcome.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// List every page range, or every request of a plan.
    #[arg(long)]
    pages: bool,
    #[command(flatten)]
    output_form: Output,
}

pub fn run(args: Args) -> Result<()> {
    let form = args.output_form;
    match files::read_any(&args.file)? {
        Any::Trace(it, size) => form.print(&it, || trace::text(&it, size, args.pages)),
        Any::Profile(it) => form.print(&it, || profile::text(&it, args.pages, now_unix_ns())),
        Any::ProfileSet(it) => form.print(&it, || profile_set::text(&it)),
        Any::Outcome(it) => form.print(&it, || outcome::text(&it)),
        Any::Plan(file) => {
            let shown = file.plan()?;
            form.print(&plan::view(&shown), || {
                plan::text(&shown, args.pages, now_unix_ns())
            })
        }
    }
}
