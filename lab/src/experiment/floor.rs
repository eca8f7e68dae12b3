//! Floors: the least time that any order of reads could give a start on its disk, as headstart reckons it. Kept in `floors.json`
//! beside the runs, for each case and setup.
//!
//! A setup's command prints `headstart floor --json` of the starts that the setup has learned from, then of warm starts, as many as
//! it likes. Starts differ, so of warm ones the least floor counts; and because what a start needs when is known the better the less
//! it waited, of both the larger.

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

/// What is read of each `headstart floor --json`.
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
    let floor_ns = of_both(&said).context("what headstart says of the floor")?;
    let mut all = floors(directory)?;
    let of_case = all.entry(case.to_owned()).or_default();
    of_case.insert(setup.to_owned(), floor_ns as f64 / 1e9);
    let (path, temporary) = (directory.join(FILE), directory.join("floors.tmp"));
    fs::write(&temporary, serde_json::to_vec_pretty(&all)?)
        .and_then(|()| fs::rename(&temporary, &path))
        .with_context(|| format!("writing {}", path.display()))
}

/// The floor by what the command printed.
fn of_both(said: &str) -> Result<u64> {
    let mut floors = serde_json::Deserializer::from_str(said)
        .into_iter::<Said>()
        .map(|said| said.map(|said| said.floor.floor_ns));
    let learned = floors.next().context("nothing")??;
    let warm = floors.try_fold(None, |least: Option<u64>, floor| {
        floor.map(|floor| Some(least.map_or(floor, |least| least.min(floor))))
    })?;
    Ok(warm.map_or(learned, |warm| warm.max(learned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_warm_starts_the_least_counts_and_of_both_kinds_the_larger() {
        let said = |floors: &[u64]| -> String {
            let document = |ns: &u64| format!("{{\"floor\": {{\"floor_ns\": {ns}, \"more\": 1}}}}\n");
            floors.iter().map(document).collect()
        };
        assert_eq!(of_both(&said(&[5])).unwrap(), 5);
        assert_eq!(of_both(&said(&[5, 9, 7, 8])).unwrap(), 7);
        assert_eq!(of_both(&said(&[5, 9, 4])).unwrap(), 5);
        assert!(of_both("").is_err());
        assert!(of_both("{\"floor\": {}}").is_err());
    }
}
