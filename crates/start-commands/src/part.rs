//! The other programs of the package, executed for their subcommands: the program that a cold start reads has
//! no code that only people call, and none that moves files (decision 34).

use anyhow::{Context, Result, bail};
use headstart_system::own_program;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The subcommands of this program.
const OWN: [&str; 7] = ["run", "record", "boot", "daemon", "op", "mark", "features"];

/// A program of the package beside this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What people call. It knows the whole command line, so it answers `--help` and wrong usage, too.
    Inspect,
    /// What moves files.
    Layout,
}

/// Which program has the subcommand that these arguments name; `None`: this one.
pub fn from_arguments(arguments: impl IntoIterator<Item = OsString>) -> Option<Part> {
    let mut arguments = arguments.into_iter();
    while let Some(word) = arguments.next() {
        if word == "--state" {
            arguments.next();
        } else if word == "layout" {
            return Some(Part::Layout);
        } else if OWN.iter().any(|own| word == *own) {
            return None;
        } else if !word.as_encoded_bytes().starts_with(b"--state=") {
            break;
        }
    }
    Some(Part::Inspect)
}

impl Part {
    /// The name of its file.
    fn name(self) -> &'static str {
        match self {
            Part::Inspect => "headstart-inspect",
            Part::Layout => "headstart-layout",
        }
    }

    /// Executes it in the place of this process, with the same arguments; returns only if it cannot.
    pub fn execute(self) -> Result<Infallible> {
        let path = find(self.name())?;
        let mut words = std::env::args_os();
        let name = words.next().unwrap_or_else(|| OsString::from("headstart"));
        let error = Command::new(&path).arg0(name).args(words).exec();
        Err(error).with_context(|| format!("cannot execute {}", path.display()))
    }
}

/// Where a program of the package is. It belongs to whoever this program belongs to: another user may have
/// put a file of that name beside a copy.
pub fn find(name: &str) -> Result<PathBuf> {
    let places =
        own_program::beside(OsStr::new(name)).context("/proc/self/exe cannot be read: mount /proc")?;
    let own = std::fs::metadata("/proc/self/exe")
        .context("/proc/self/exe")?
        .uid();
    for place in &places {
        match std::fs::metadata(place) {
            Ok(part) if part.uid() == own => return Ok(place.clone()),
            Ok(part) => bail!(
                "{} belongs to user {}, and headstart to user {own}: install the package headstart anew",
                place.display(),
                part.uid()
            ),
            Err(_) => {}
        }
    }
    let [beside, installed] = places;
    bail!(
        "{} is not there, nor {}: install the package headstart anew, which has it",
        installed.display(),
        beside.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::CommandFactory;

    fn part(words: &str) -> Option<Part> {
        from_arguments(words.split_whitespace().map(OsString::from))
    }

    #[test]
    fn what_this_program_does_not_do_another_one_does() {
        let command = Cli::<Command>::command();
        let own: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        assert_eq!(own, OWN);
        for own in OWN {
            assert_eq!(part(own), None);
            assert_eq!(part(&format!("--state=/s {own} --help")), None);
        }
        for words in [
            "status",
            "",
            "--help",
            "-h",
            "--version",
            "help run",
            "rum",
            "--state",
            "--stat run",
        ] {
            assert_eq!(part(words), Some(Part::Inspect), "{words}");
        }
        assert_eq!(part("--state layout run"), None, "a directory of that name");
        assert_eq!(part("--state /s layout apply"), Some(Part::Layout));
        assert_eq!(part("--state=layout status"), Some(Part::Inspect));
    }
}
