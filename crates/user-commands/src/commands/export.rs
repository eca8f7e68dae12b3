//! `headstart export`: a trace, or a profile's files, for other programs.

mod order;
mod places;

use crate::files;
use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser};
use headstart_inspect::export::{self, Consumer, Form as Takes, Needed, Waits};
use headstart_model::FilePath;
use headstart_start::complain;
use headstart_store::write_output_by;
use headstart_system::packages;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Write a trace for databases, Perfetto or flame graphs, or a profile's files for what fetches or writes
/// images.
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
///
/// With --for FILE is a profile, and the list names the files whose pages it needs, in order of first use, by
/// their paths in the image, as one program reads it; --for with --help lists the programs.
///
/// Most lists cannot say which part of a file is used, and no list of names says where directories and inodes
/// go. Names that the program would misread are in no list. One line on standard error counts what the list
/// does not say.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The trace, or with --for the profile.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write a trace in this form.
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        required_unless_present = "consumer",
        conflicts_with = "consumer"
    )]
    to: Option<Form>,
    /// Write the order of a profile's files for this program.
    #[arg(long = "for", value_name = "CONSUMER", value_parser = consumers())]
    consumer: Option<String>,
    /// Where the image was mounted when the profile was learned [default: /]. Where it was the lower layer of
    /// an overlay, as in live systems, this is the layer's mount point, such as
    /// /run/live/rootfs/filesystem.squashfs.
    #[arg(long, value_name = "DIR", requires = "consumer", conflicts_with = "to")]
    root: Option<PathBuf>,
    /// List only regular files of this tree: that from which the image is made, or the mounted image.
    /// xorrisofs, tar and lfs fail where a file that is listed is missing; desync and overlaybd-trace list
    /// where these files are on their device, which has ext2/3/4, with their metadata, or XFS. --for
    /// erofs-tar fails on a mounted EROFS that does not have the files in this order.
    #[arg(
        long,
        value_name = "DIR",
        requires = "consumer",
        conflicts_with = "to",
        required_if_eq_any(which(Consumer::needs_tree))
    )]
    tree: Option<PathBuf>,
    /// A file of the image that says where the list's places are; once for each, in the order that --for
    /// says.
    #[arg(
        long = "image",
        value_name = "FILE",
        requires = "consumer",
        conflicts_with = "to",
        required_if_eq_any(which(Consumer::needs_images))
    )]
    images: Vec<PathBuf>,
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

fn consumers() -> PossibleValuesParser {
    let help = |consumer: &Consumer| match consumer.form() {
        Takes::List(_) => consumer.about.to_string(),
        Takes::Places { images, .. } => format!("{}; --image: {images}", consumer.about),
    };
    PossibleValuesParser::new(
        export::consumers().map(|consumer| PossibleValue::new(consumer.name).help(help(consumer))),
    )
}

fn which(needs: impl Fn(&Consumer) -> bool) -> Vec<(&'static str, &'static str)> {
    let needing = export::consumers().filter(|consumer| needs(consumer));
    needing.map(|consumer| ("consumer", consumer.name)).collect()
}

pub fn run(args: Args) -> Result<()> {
    let consumer = args.consumer.as_deref().and_then(export::consumer);
    match (args.to, consumer) {
        (Some(form), _) => trace(&args, form),
        (None, Some(consumer)) => files_of_profile(&args, consumer),
        (None, None) => bail!("give --to FORM for a trace or --for CONSUMER for a profile"),
    }
}

fn trace(args: &Args, form: Form) -> Result<()> {
    let trace = files::trace(&args.file)?;
    let write = |write: &dyn Fn(&mut dyn Write) -> io::Result<()>| write_output_by(&args.output, write);
    match form {
        Form::Csv => write(&|out| export::csv(&trace, out)),
        Form::Perfetto => write(&|out| export::perfetto(&trace, out)),
        Form::Folded => {
            let Some(waits) = Waits::from_trace(&trace) else {
                bail!(
                    "{} does not say when threads waited: record it with `headstart record --chart`",
                    args.file.display()
                );
            };
            let paths = waits.paths().map(FilePath::as_bytes).collect();
            let owners = packages::owners(Path::new(packages::LISTS), &paths);
            write(&|out| waits.folded(&owners, out))
        }
    }?;
    Ok(())
}

fn files_of_profile(args: &Args, consumer: &Consumer) -> Result<()> {
    let profile = files::profile(&args.file)?;
    let root = args.root.as_deref().unwrap_or(Path::new("/"));
    let root = FilePath::from(
        std::path::absolute(root)
            .with_context(|| root.display().to_string())?
            .as_path(),
    );
    let is_in_tree = |name: &[u8]| {
        let Some(tree) = &args.tree else { return true };
        let file = tree.join(OsStr::from_bytes(name));
        file.symlink_metadata().is_ok_and(|facts| facts.is_file())
    };
    let needed = Needed::of(&profile, &root, &is_in_tree);
    if let Some(tree) = args.tree.as_ref().filter(|_| consumer.may_lose_order) {
        order::is_kept(tree, &needed)?;
    }
    let listed = match consumer.form() {
        Takes::List(_) if !args.images.is_empty() => bail!("--for {} takes no --image", consumer.name),
        Takes::List(list) => list.of(needed),
        Takes::Places { of, .. } => places::list(needed, *of, args)?,
    };
    let unsaid = match listed.unsaid.is_empty() {
        true => "nothing".into(),
        false => listed.unsaid.to_string(),
    };
    if listed.files == 0 {
        bail!(
            "{} has no file to list below {root}: give --root, and --tree and --image if they are used, as they are; \
             not listed: {unsaid}",
            args.file.display()
        );
    }
    write_output_by(&args.output, |out| out.write_all(&listed.text))?;
    if !listed.unsaid.is_empty() {
        complain(&format!("the list does not say: {unsaid}"));
    }
    if !consumer.advice.is_empty() {
        complain(consumer.advice);
    }
    Ok(())
}
