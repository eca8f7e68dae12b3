//! Floors: the least time that any order of reads could give a start on its disk, as headstart reckons it from what a setup has
//! learned. Kept in `floors.json` beside the runs, for each case and setup.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::machine::{Machine, Place};

/// Seconds by case and setup.
pub type Floors = BTreeMap<String, BTreeMap<String, f64>>;

/// The file.
pub(super) const FILE: &str = "floors.json";

/// What is read of `headstart floor --json`.
#[derive(Deserialize)]
struct Said {
    floor: Floor,
}

#[derive(Deserialize)]
struct Floor {
    floor_ns: u64,
}

/// The floors of an experiment's directory; none where it has none.
pub fn floors(directory: &Path) -> Result<Floors> {
    let path = directory.join(FILE);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| path.display().to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Floors::new()),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

/// Asks headstart by `command`, a template, and keeps what it says.
pub(super) fn ask(
    machine: &mut dyn Machine,
    place: &Place,
    command: &[String],
    directory: &Path,
    [case, setup]: [&str; 2],
) -> Result<()> {
    let said = machine.look(place, &[command.to_vec()])?;
    let said: Said = serde_json::from_str(&said).context("what headstart says of the floor")?;
    let mut all = floors(directory)?;
    let of_case = all.entry(case.to_owned()).or_default();
    of_case.insert(setup.to_owned(), said.floor.floor_ns as f64 / 1e9);
    let (path, temporary) = (directory.join(FILE), directory.join("floors.tmp"));
    fs::write(&temporary, serde_json::to_vec_pretty(&all)?)
        .and_then(|()| fs::rename(&temporary, &path))
        .with_context(|| format!("writing {}", path.display()))
}
