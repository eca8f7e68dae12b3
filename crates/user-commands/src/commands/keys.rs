//! `headstart keys`: what shells complete where a key is wanted.

use anyhow::Result;
use headstart_inspect::human::printable;
use headstart_store::Store;
use std::io::{self, Write};

/// Print all keys, one a line.
#[derive(Debug, clap::Args)]
pub struct Args {}

pub fn run(store: &Store) -> Result<()> {
    let mut out = io::stdout().lock();
    for key in store.keys()? {
        // A shell may have stopped reading.
        if writeln!(out, "{}", printable(key.as_str())).is_err() {
            break;
        }
    }
    Ok(())
}
