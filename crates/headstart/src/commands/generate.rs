//! `headstart generate`: man pages and shell completions, made of the same definitions as `--help`.

use crate::cli::Cli;
use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use std::fs;
use std::path::{Path, PathBuf};

/// Write man pages and shell completions.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to: DIR/man and DIR/completions are made.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub fn run(args: Args) -> Result<()> {
    let make = |name: &str| -> Result<PathBuf> {
        let directory = args.directory.join(name);
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        Ok(directory)
    };
    let (pages, completions) = (make("man")?, make("completions")?);
    let mut command = Cli::command();
    command.build();
    page(&command, "headstart", &pages)?;
    for sub in command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
    {
        page(sub, &format!("headstart-{}", sub.get_name()), &pages)?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Cli::command(), "headstart", &completions)
            .with_context(|| completions.display().to_string())?;
    }
    Ok(())
}

fn page(command: &Command, name: &str, directory: &Path) -> Result<()> {
    let path = directory.join(format!("{name}.1"));
    let mut text = Vec::new();
    // The page's own name; a static string, as clap wants one.
    let command = command.clone().name(String::leak(name.to_string()) as &str);
    clap_mangen::Man::new(command)
        .title(name.to_uppercase())
        .manual("headstart")
        .render(&mut text)
        .and_then(|()| fs::write(&path, text))
        .with_context(|| path.display().to_string())
}
