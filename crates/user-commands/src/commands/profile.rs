//! `headstart profile`: what was learned goes to other machines, and comes from them.

use crate::files;
use crate::travel::export::{Exported, all_keys, export};
use crate::travel::import::{Importer, Report, text};
use crate::travel::{LeftOut, lines, packaged};
use anyhow::{Context, Result, bail};
use headstart_inspect::human::bytes;
use headstart_start::complain;
use headstart_start::keys::find_known;
use headstart_start_commands::context::Output;
use headstart_store::{Rank, Store, write_output};
use serde::Serialize;
use std::path::PathBuf;

/// Take what was learned to other machines.
///
/// A file of profiles, headstart-profiles(5), tells what boots and programs need, and nothing of the machine
/// that made it: no addresses, no time of day, no user. Where it is imported, the first start of each key is
/// read ahead already. What starts there teach replaces it, key by key: from the first start on that was
/// recorded whole, a key is planned by its own starts alone.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Export(Export),
    Import(Import),
}

/// Write what was learned of some keys, or of all, into one file for other machines.
///
/// A key of several users' starts is exported once, and names none of them. Names that are encrypted on disk
/// are left out. So are, without --with-homes, paths below home directories, paths that have a user's name as
/// a part, temporary files, and keys with such a path. With --all, one-liners and users' operations are left
/// out, too.
#[derive(Debug, clap::Args)]
struct Export {
    /// The keys: names, or paths of programs.
    #[arg(value_name = "KEY", required_unless_present = "all", conflicts_with = "all")]
    keys: Vec<String>,
    /// All keys of which something was learned.
    #[arg(long)]
    all: bool,
    /// Export also what lies below home directories, names users, or is temporary.
    #[arg(long)]
    with_homes: bool,
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    output_form: Output,
}

/// Read profiles that another machine has exported, or that packages have brought, and plan each for this
/// machine.
///
/// A file is checked as a whole before anything is kept. A key of which none of the files is here is left
/// out: install the programs first. An earlier import of the same key is replaced. Starts here always count
/// more than what is imported, and what is imported more than what packages bring. `headstart forget KEY`
/// forgets it.
///
/// A device whose cost is not known yet is measured, which takes a second; not with --packaged.
#[derive(Debug, clap::Args)]
struct Import {
    /// The files.
    #[arg(
        value_name = "FILE",
        required_unless_present = "packaged",
        conflicts_with = "packaged"
    )]
    files: Vec<PathBuf>,
    /// Import the files in this directory whose names end in `.profile` and which nobody but root may write
    /// to, and forget what other files brought there before; the packages of headstart call this when another
    /// package adds or removes one.
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = packaged::DIRECTORY
    )]
    packaged: Option<PathBuf>,
    #[command(flatten)]
    output_form: Output,
}

pub fn run(args: Args, store: &Store) -> Result<()> {
    match args.what {
        What::Export(args) => write(&args, store),
        What::Import(args) => read(&args, store),
    }
}

/// What was written.
#[derive(Serialize)]
struct Written {
    file: PathBuf,
    bytes: usize,
    keys: Vec<String>,
    left_out: Vec<LeftOut>,
    paths_left_out: usize,
}

fn write(args: &Export, store: &Store) -> Result<()> {
    let mut left_out = Vec::new();
    let kept = match args.all {
        true => all_keys(store, &mut left_out)?,
        false => args
            .keys
            .iter()
            .map(|key| find_known(key, store))
            .collect::<Result<_>>()?,
    };
    let Exported {
        set,
        left_out: more,
        paths_left_out,
    } = export(&kept, args.with_homes, &mut |line| complain(&line));
    left_out.extend(more);
    if set.profiles().is_empty() {
        let why = left_out.first();
        let why = why.map_or("nothing is known yet".into(), |it| {
            format!("{}: {}", it.key, it.why)
        });
        bail!("there is nothing to export: {why}");
    }
    let file = set.to_bytes()?;
    write_output(&args.output, &file)?;
    let keys = set.profiles().iter().map(|profile| profile.key.to_string());
    let written = Written {
        file: args.output.clone(),
        bytes: file.len(),
        keys: keys.collect(),
        left_out,
        paths_left_out,
    };
    args.output_form.print(&written, || {
        let mut text = format!(
            "{}: {} of {} keys\n",
            written.file.display(),
            bytes(written.bytes as u64),
            written.keys.len()
        );
        if written.paths_left_out > 0 {
            text += &format!(
                "{} paths are left out: they name people, what is theirs, or temporary files\n",
                written.paths_left_out
            );
        }
        text + &lines(&written.left_out).collect::<String>()
    })
}

fn read(args: &Import, store: &Store) -> Result<()> {
    let mut tell = |line: String| complain(&line);
    let report = match &args.packaged {
        Some(directory) => packaged::import(store, directory, &mut tell)?,
        None => {
            let importer = Importer {
                store,
                rank: Rank::Imported,
                measures: true,
            };
            // Nothing is kept of any if one is damaged. They are read again one by one: each may take tens of
            // MiB.
            for path in args.files.iter().filter(|_| args.files.len() > 1) {
                files::profile_set(path)?;
            }
            let mut report = Report::default();
            for path in &args.files {
                let set = files::profile_set(path)?;
                let origin = std::path::absolute(path).unwrap_or_else(|_| path.clone());
                importer
                    .import(set, &origin.display().to_string(), &mut report, &mut tell)
                    .with_context(|| path.display().to_string())?;
            }
            report
        }
    };
    args.output_form.print(&report, || text(&report))
}
