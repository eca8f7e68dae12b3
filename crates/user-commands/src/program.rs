//! The program `headstart`, which records: what this one asks it for.

use anyhow::{Context, Result, ensure};
use headstart_record::Features;
use headstart_start_commands::commands::features;
use headstart_system::own_program;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where it is: beside this program, as in a build directory, or where packages put it.
pub fn headstart_program() -> Result<PathBuf> {
    let places = own_program::beside(OsStr::new("headstart")).context("/proc/self/exe cannot be read")?;
    // Packages put this program below /usr/libexec, and that one into /usr/bin.
    let installed = PathBuf::from("/usr/bin/headstart");
    let [beside, _] = places;
    let found = [beside, installed].into_iter().find(|path| path.is_file());
    let found = found
        .context("the program headstart is not beside this one, nor in /usr/bin: install the package anew")?;
    Ok(found.canonicalize()?)
}

/// What this kernel offers to a recorder. The recorder is not linked into this program.
pub fn recorder_features() -> Result<Features> {
    let program = headstart_program()?;
    let ran = Command::new(&program)
        .arg("features")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot execute {}", program.display()))?;
    ensure!(
        ran.status.success(),
        "`headstart features` ended with {}",
        ran.status
    );
    features::parse(&ran.stdout)
}
