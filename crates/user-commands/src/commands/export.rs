//! `headstart export`: a trace for other programs.

use crate::files;
use anyhow::{Result, bail};
use headstart_inspect::export::{self, Waits};
use headstart_model::FilePath;
use headstart_store::write_whole_by;
use headstart_system::packages;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Write a trace for other programs: databases, Perfetto, flame graphs.
///
/// csv is one table of accesses in order of time: first uses of page ranges, look-ups, and metadata blocks
/// that were read. Its columns, of which all but the first two may be empty:
///
/// time_ns: nanoseconds since the start; what: `use`, `look-up` or `metadata`; kind: of a use `read`, `fault`
/// (touched), `map` (up to 16 pages mapped around a touched one), `around` (the same, where the touched one
/// is told as `fault`) or `add` (entered the page cache), of a look-up `open`, `stat`, `link` or `list`; pid:
/// the process; executable: what that ran at last; path: of the file, or as it was looked up; file: the
/// file's index in the trace; major, minor: the device of its file system, or that of the metadata; inode;
/// first_page, pages: of the file, or of the device, pages of as many bytes as the trace says; found: whether
/// the path that was looked up was there.
///
/// Texts are UTF-8: what is none in a path is replaced by U+FFFD. DuckDB makes a Parquet file of it:
/// `duckdb -c "copy (from 'start.csv') to 'start.parquet'"`.
///
/// perfetto is a file for ui.perfetto.dev, JSON of the trace event format: processes with first uses and
/// look-ups as instants, stages; and, where the trace was recorded with --chart, what threads did, the
/// requests of block devices, processors and memory.
///
/// folded is a line `package;path nanoseconds` for each file that threads waited for on block devices, as
/// flame graphs take it, or `package;path;look-up nanoseconds` for a look-up; it needs a trace recorded
/// with --chart. The package is what dpkg says, else the top directory. A wait counts for the nearest use or
/// look-up of its process within 5 ms, else for `(unknown)`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The trace.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// What to write.
    #[arg(long, value_enum, value_name = "FORM")]
    to: Form,
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Form {
    Csv,
    Perfetto,
    Folded,
}

pub fn run(args: Args) -> Result<()> {
    let trace = files::trace(&args.trace)?;
    let write = |write: &dyn Fn(&mut dyn Write) -> io::Result<()>| write_whole_by(&args.output, write);
    match args.to {
        Form::Csv => write(&|out| export::csv(&trace, out)),
        Form::Perfetto => write(&|out| export::perfetto(&trace, out)),
        Form::Folded => {
            let Some(waits) = Waits::from_trace(&trace) else {
                bail!(
                    "{} does not say when threads waited: record it with `headstart record --chart`",
                    args.trace.display()
                );
            };
            let paths = waits.paths().map(FilePath::as_bytes).collect();
            let owners = packages::owners(Path::new(packages::LISTS), &paths);
            write(&|out| waits.folded(&owners, out))
        }
    }?;
    Ok(())
}
