//! `headstart record`: a start, written down as a trace.

use super::recorded_command::{RecordedCommand, RunRequest};
use crate::options::until;
use anyhow::Result;
use headstart_model::trace::{self, End, Lost};
use headstart_model::{PageSet, Trace};
use headstart_record::{BackendChoice, Options, Until};
use headstart_run::{Ending, Origin, Purpose};
use headstart_store::check_output;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// Start a command and write down what it used, as a trace.
///
/// The command's output, exit status and signals are its own. If nothing can record, the command is not
/// started.
///
/// The document of --json has the end of the recording, the losses, and how much there is of each kind;
/// `show --json` prints the trace itself.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The trace to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Whose uses of files are recorded: those of the command and its descendants (tree), or everybody's
    /// (system).
    #[arg(long, value_enum, default_value_t = Scope::Tree)]
    scope: Scope,
    /// When the start has ended: when the command exits, before that when it is idle for 2 seconds, or before
    /// that after so many seconds.
    #[arg(long, value_name = "exit|idle|SECONDS", default_value = "exit", value_parser = until)]
    until: Until,
    /// What records: BPF programs, a tracefs instance, or the first of them that works.
    #[arg(long, value_enum, default_value_t = Backend::Auto)]
    backend: Backend,
    /// Seconds after which the recording ends in any case.
    #[arg(long, value_name = "SECONDS", default_value_t = Options::LIMIT.as_secs(), value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Record what a chart needs, too: what threads and block devices do when, and how busy processors and
    /// memory are. Only BPF can; where it cannot, a line says so and the trace is without.
    #[arg(long)]
    chart: bool,
    #[command(flatten)]
    beside: RecordedCommand,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Scope {
    Tree,
    System,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Backend {
    Auto,
    Bpf,
    Tracefs,
}

/// Ends as the command does; returns only if it was not started.
///
/// # Errors
/// Nothing can record, or the command cannot be started.
pub fn run(args: Args) -> Result<()> {
    let origin = Origin::now();
    let path = std::path::absolute(args.output)?;
    check_output(&path)?;
    let purpose = || {
        let purpose = Purpose::Trace {
            path: path.clone(),
            summarize: |trace, bytes| Ok(serde_json::to_string(&Summary::from_trace(trace, bytes))?),
        };
        Ok(RunRequest {
            purpose,
            rest: Vec::new(),
            bypass: None,
        })
    };
    let adapt = |record: &mut Options| {
        record.scope = match args.scope {
            Scope::Tree => trace::Scope::Tree,
            Scope::System => trace::Scope::System,
        };
        record.backend = match args.backend {
            Backend::Auto => BackendChoice::Auto,
            Backend::Bpf => BackendChoice::Bpf,
            Backend::Tracefs => BackendChoice::Tracefs,
        };
        record.activity = args.chart;
        record.until = args.until;
        record.limit = Duration::from_secs(args.limit);
    };
    let ending = Ending::WhenDone;
    args.beside
        .start(origin, true, &|| None, &purpose, ending, &adapt)
}

/// What a trace holds, in numbers.
#[derive(Clone, Debug, Serialize)]
struct Summary {
    /// How the recording ended.
    end: End,
    /// What the recorder knows it did not see.
    lost: Lost,
    /// Processes seen.
    processes: usize,
    /// Files of which pages were used.
    files: usize,
    /// Pages used, of `page_size` bytes.
    pages: u64,
    /// Bytes of a page.
    page_size: u32,
    /// First uses of page ranges.
    uses: usize,
    /// Paths looked up.
    lookups: usize,
    /// Metadata blocks read, in so many places.
    metadata: usize,
    /// Bytes of the file.
    file_bytes: usize,
}

impl Summary {
    /// Summarises a trace whose file has so many bytes.
    fn from_trace(trace: &Trace, file_bytes: usize) -> Summary {
        Summary {
            end: trace.end,
            lost: trace.lost,
            processes: trace.processes.len(),
            files: trace.files.len(),
            pages: trace.used_pages().iter().map(PageSet::pages).sum(),
            page_size: trace.meta.page_size,
            uses: trace.all_uses().count(),
            lookups: trace.lookups.len(),
            metadata: trace.metadata.len(),
            file_bytes,
        }
    }
}
