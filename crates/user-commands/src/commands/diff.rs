//! `headstart diff`: two traces, two profiles or two plans side by side.

use crate::files::{self, Any};
use anyhow::{Result, bail};
use headstart_inspect::diff::{Side, diff, plan_side, profile_side, text, trace_side};
use headstart_start_commands::context::Output;
use std::path::{Path, PathBuf};

/// Compare two traces, two profiles or two plans.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The first file.
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The second file, of the same kind.
    #[arg(value_name = "B")]
    b: PathBuf,
    /// List the page ranges that differ.
    #[arg(long)]
    pages: bool,
    #[command(flatten)]
    output_form: Output,
}

fn side(path: &Path) -> Result<(&'static str, Side)> {
    Ok(match files::read_any(path)? {
        Any::Trace(trace, _) => ("trace", trace_side(&trace)),
        Any::Profile(profile) => ("profile", profile_side(&profile)),
        Any::Plan(file) => ("plan", plan_side(&file.plan()?)),
        Any::Outcome(_) | Any::ProfileSet(_) => bail!(
            "{} is no trace, profile or plan: only these are compared",
            path.display()
        ),
    })
}

pub fn run(args: Args) -> Result<()> {
    let ((kind, a), (other, b)) = (side(&args.a)?, side(&args.b)?);
    if kind != other {
        bail!(
            "{} is a {kind} and {} a {other}: give two of a kind",
            args.a.display(),
            args.b.display()
        );
    }
    if a.page_size != b.page_size {
        bail!(
            "{} has pages of {} bytes and {} of {}",
            args.a.display(),
            a.page_size,
            args.b.display(),
            b.page_size
        );
    }
    let difference = diff(kind, &a, &b);
    args.output_form
        .print(&difference, || text(&difference, args.pages))
}
