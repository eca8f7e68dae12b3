//! `headstart fleet`: another program's, which is installed apart.

use anyhow::{Result, anyhow};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What is executed, as the person's PATH finds it.
const PROGRAM: &str = "headstart-fleet";

/// What `headstart fleet` does.
const ABOUT: &str = "\
Make one file of profiles of many machines' (executes headstart-fleet, which is installed apart).

`collect` reads files that `headstart profile export` has written on many machines into a table, a Parquet file. `merge` makes one file of \
profiles of it for each kind of machine, which `headstart profile import` takes. `compare` holds the ways to merge against machines that are \
left out. `report` makes an HTML page of what `headstart status --json` prints on each machine: gains, verdicts, what was read in vain, and \
who is slower. `headstart fleet COMMAND --help` has the options of each.

headstart-fleet is a Python program: `pipx install DIR/fleet`, where DIR is headstart's source, installs it. It needs none of headstart's other \
programs, so the machine that merges need not run headstart. Nothing is sent anywhere: the owner of the fleet collects the files.";

/// Make one file of profiles of many machines'.
#[derive(Debug, clap::Args)]
#[command(long_about = ABOUT, disable_help_flag = true)]
pub struct Args {
    /// Its command and options.
    #[arg(value_name = "ARG", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Executes it in the place of this process; returns only if it cannot.
pub fn run(args: Args) -> Result<()> {
    let error = Command::new(PROGRAM).args(args.words).exec();
    Err(match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "{PROGRAM} is not in PATH: install it by `pipx install DIR/fleet`, where DIR is headstart's source"
        ),
        _ => anyhow!("cannot execute {PROGRAM}: {error}"),
    })
}
