//! `headstart explain`: why a path is read ahead, or why not.

use super::status::known_keys;
use crate::people::with_names;
use anyhow::{Context, Result, bail};
use headstart_inspect::explain::{Explanation, Known, Now, explain, lines, text};
use headstart_learn::DEFAULT_EXCLUDE;
use headstart_model::{FilePath, Key};
use headstart_start::complain;
use headstart_start::keys::find_known;
use headstart_start_commands::context::Output;
use headstart_start_commands::options::name;
use headstart_store::{KeyDir, Store};
use headstart_system::open::generation_at;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Say why a path is read ahead, or why it is not.
///
/// A line for each key that knows the path says whether its next start is read ahead from it, and why. With
/// --name or --verbose all that is known follows: weight, pages, requests. The exit status is 1 where no key
/// knows the path.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The path.
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// For this key only [default: for each that knows the path].
    #[arg(long, value_name = "KEY", value_parser = name)]
    name: Option<Key>,
    /// Say all that is known of it, not a line for each key.
    #[arg(long)]
    verbose: bool,
    #[command(flatten)]
    output_form: Output,
}

pub fn run(args: Args, store: &Store) -> Result<()> {
    let path = std::path::absolute(&args.path).with_context(|| args.path.display().to_string())?;
    // POSIX lets two slashes at the beginning mean something else; Linux does not.
    let path: PathBuf = path.components().collect();
    let keys = match &args.name {
        Some(name) => vec![find_known(name.as_str(), store)?],
        None => known_keys(store)?.iter().map(|key| store.key(key)).collect(),
    };
    if keys.is_empty() {
        bail!("nothing is known yet: `headstart run -- CMD` begins");
    }
    let mut explanations = Vec::new();
    for kept in &keys {
        let own = kept.plan().or_tell(|line| complain(&line));
        // Where starts here have taught nothing, others' are read ahead by.
        let imported = kept.imported().filter(|_| own.is_none());
        let from = imported.as_ref().map_or(kept, |(_, dir)| dir);
        let profile = from.profile().or_tell(|line| complain(&line));
        let file = own.or_else(|| from.plan().or_tell(|line| complain(&line)));
        let origin = imported.as_ref().and_then(|(_, dir)| dir.origin());
        let plan = file.as_ref().and_then(|file| file.plan().ok());
        // Of one key: hundreds of traces take a while.
        let untold = args.name.as_ref().map_or(0, |_| untold(kept));
        let mut candidates = vec![path.clone()];
        // Learned is what symbolic links lead to; the links are learned as such.
        candidates.extend(path.canonicalize().ok().filter(|real| *real != path));
        let mut of_key: Vec<Explanation> = candidates
            .iter()
            .map(|path| {
                let known = Known {
                    key: kept.key().as_str(),
                    profile: profile.as_ref(),
                    plan: plan.as_ref(),
                    now: now(path),
                    excluded: DEFAULT_EXCLUDE
                        .into_iter()
                        .find(|excluded| path.starts_with(excluded)),
                    untold,
                };
                Explanation {
                    imported: origin.clone(),
                    ..explain(&FilePath::from(path.as_path()), known)
                }
            })
            .collect();
        let any = of_key.iter().any(|explanation| explanation.entry.is_some());
        of_key.retain(|explanation| explanation.entry.is_some() || !any);
        of_key.truncate(if any { 2 } else { 1 });
        explanations.extend(of_key);
    }
    // Of many keys those are of interest that know it.
    let is_known = explanations.iter().any(|explanation| explanation.entry.is_some());
    if args.name.is_none() && is_known {
        explanations.retain(|explanation| explanation.entry.is_some());
    }
    if args.name.is_none() && !is_known && !args.output_form.json {
        let excluded = explanations.iter().any(|it| it.because.contains("is excluded"));
        match excluded {
            true => bail!("{}: {}", path.display(), explanations[0].because),
            false => bail!(
                "no start of the {} known keys used {}: `headstart status` lists them",
                keys.len(),
                path.display()
            ),
        }
    }
    args.output_form.print(&explanations, || {
        with_names(match args.verbose || args.name.is_some() {
            true => explanations.iter().map(text).collect::<Vec<_>>().join("\n"),
            false => lines(&explanations),
        })
    })?;
    if !is_known {
        std::process::exit(1);
    }
    Ok(())
}

/// How many uses and look-ups the key's newest trace does not tell of.
fn untold(kept: &KeyDir) -> u64 {
    let newest = kept.traces().pop();
    let trace = newest.and_then(|path| kept.trace(&path).or_tell(|line| complain(&line)));
    trace.map_or(0, |trace| trace.lost.dropped.saturating_add(trace.lost.paths))
}

fn now(path: &Path) -> Now {
    match std::fs::symlink_metadata(path) {
        Ok(facts) if facts.is_file() => Now::File {
            size: facts.size(),
            mtime_ns: facts
                .mtime()
                .saturating_mul(1_000_000_000)
                .saturating_add(facts.mtime_nsec()),
            inode: facts.ino(),
            generation: generation_at(path),
        },
        Ok(facts) if facts.is_dir() => Now::Directory,
        Ok(facts) if facts.is_symlink() => Now::Unknown("a symbolic link".into()),
        Ok(_) => Now::Special,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Now::Missing,
        Err(error) => Now::Unknown(error.to_string()),
    }
}
