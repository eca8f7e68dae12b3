//! Which builds of headstart are measured: options that several commands share.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use headstart_lab::experiment::{self, Experiment};

/// What is measured.
#[derive(Debug, Args)]
pub struct Builds {
    /// The headstart binary; the one beside this program when not given.
    #[arg(long)]
    headstart: Option<PathBuf>,
    /// An earlier headstart binary, measured beside it in the same rounds.
    #[arg(long, value_name = "BINARY")]
    earlier: Option<PathBuf>,
}

impl Builds {
    /// `experiment` with a twin of each setup for the earlier build, where there is one.
    pub fn measured(&self, experiment: Experiment) -> Result<Experiment> {
        match self.earlier {
            Some(_) => experiment.with_earlier_build(),
            None => Ok(experiment),
        }
    }

    /// How to run it, in the directory `out`.
    pub fn options(&self, out: &Path, mixed: bool, again: bool) -> Result<experiment::Options> {
        let absolute = |option: &str, path: &Path| {
            fs::canonicalize(path).with_context(|| format!("--{option} {}", path.display()))
        };
        let headstart = match &self.headstart {
            Some(path) => absolute("headstart", path)?,
            None => beside()?,
        };
        let earlier = self.earlier.as_deref().map(|path| absolute("earlier", path));
        Ok(experiment::Options {
            out: out.to_owned(),
            headstart,
            earlier: earlier.transpose()?,
            mixed,
            again,
        })
    }
}

/// The program of the same `make build` as this one: it is linked statically, so it is in a directory of its
/// own, `target/TRIPLE/release`, beside this one's, `target/release`.
fn beside() -> Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let made = own
        .ancestors()
        .nth(2)
        .map(|target| target.join(triple).join("release/headstart"));
    Ok(made
        .filter(|made| made.is_file())
        .unwrap_or_else(|| own.with_file_name("headstart")))
}
