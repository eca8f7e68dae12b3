//! `headstart learn`: traces become a profile.

use crate::files;
use anyhow::{Context, Result, bail};
use headstart_inspect::human::pages;
use headstart_inspect::profile::page_counts;
use headstart_learn::{DEFAULT_EXCLUDE, LearnOptions};
use headstart_model::Key;
use headstart_model::profile::Policy;
use headstart_start::keys;
use headstart_start::now_unix_ns;
use headstart_start_commands::context::Output;
use headstart_start_commands::options::name;
use headstart_store::write_output;
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;

/// Make a profile (what a start needs) from one or more traces.
///
/// A trace that is not whole (events were lost, or it was cut short) is refused, and no profile is written.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The traces, oldest first.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// The profile to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// How runs are merged: votes that fade (decay), all pages of any run (union), pages of every run
    /// (intersection), or pages of at least K of the last N runs.
    #[arg(long, value_name = "decay|union|intersection|K/N", default_value = "decay")]
    policy: Policy,
    /// The profile's key [default: that of the first trace's command].
    #[arg(long, value_name = "KEY", value_parser = name)]
    name: Option<Key>,
    #[command(flatten)]
    output_form: Output,
}

/// What was learned.
#[derive(Serialize)]
struct Learned {
    profile: PathBuf,
    key: String,
    runs: u32,
    paths: usize,
    pages: u64,
    pages_known: u64,
    page_size: u32,
}

pub fn run(args: Args) -> Result<()> {
    let traces = args
        .traces
        .iter()
        .map(|path| files::trace(path))
        .collect::<Result<Vec<_>>>()?;
    for (path, trace) in args.traces.iter().zip(&traces) {
        if let Some(reason) = trace.unfit() {
            bail!("{} teaches nothing: {reason}", path.display());
        }
    }
    let command: Vec<OsString> = traces
        .first()
        .map(|trace| trace.meta.command.iter().map(OsString::from).collect())
        .unwrap_or_default();
    let key = match args.name {
        Some(key) => key,
        None if command.is_empty() => headstart_boot::key()?,
        None => keys::of_command(&command)?,
    };
    let options = LearnOptions {
        key,
        policy: args.policy,
        now_unix_ns: now_unix_ns(),
        exclude: DEFAULT_EXCLUDE.iter().map(|path| (*path).into()).collect(),
        // Whoever learns from traces plans for the starts they are of.
        named: Default::default(),
    };
    let profile = headstart_learn::learn(None, &traces, &options)?;
    let bytes = profile
        .to_bytes()
        .with_context(|| args.output.display().to_string())?;
    write_output(&args.output, &bytes)?;
    let (taken, known) = page_counts(&profile);
    let learned = Learned {
        profile: args.output,
        key: profile.key.to_string(),
        runs: profile.runs,
        paths: profile.entries.len(),
        pages: taken,
        pages_known: known,
        page_size: profile.page_size,
    };
    args.output_form.print(&learned, || {
        format!(
            "{}: {} in {} paths from {} runs of {}\n",
            learned.profile.display(),
            pages(taken, profile.page_size),
            learned.paths,
            learned.runs,
            learned.key
        )
    })
}
