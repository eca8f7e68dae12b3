//! Floors: the least time that any order of reads could give a start on its disk, as headstart reckons it. Kept in `floors.json`
//! beside the runs, for each case and setup.
//!
//! A setup's command prints `headstart floor --json` of the starts that the setup has learned from: first by what was measured of the disk, as nothing else tells
//! where the time of the last one went, then by the disk's model; and of warm starts, as many as it likes. Starts differ, so of warm ones the least floor counts; and because what a start needs when is known the better the less
//! it waited, of both the larger.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use headstart_model::floor::{Above, Floor};
use serde::{Deserialize, Serialize};

use crate::machine::{Machine, Place};

/// By case and setup.
pub type Floors = BTreeMap<String, BTreeMap<String, Known>>;

/// What is known of a setup's starts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// Seconds.
    pub floor_seconds: f64,
    /// Where the time of its last start with a replay went above the floor of that one.
    pub above: Option<Above>,
}

/// The file.
pub(super) const FILE: &str = "floors.json";

/// What is read of each `headstart floor --json`.
#[derive(Deserialize)]
struct Said {
    floor: Floor,
    above: Option<Above>,
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
    let known = of_both(&said).context("what headstart says of the floor")?;
    let mut all = floors(directory)?;
    let of_case = all.entry(case.to_owned()).or_default();
    of_case.insert(setup.to_owned(), known);
    let (path, temporary) = (directory.join(FILE), directory.join("floors.tmp"));
    fs::write(&temporary, serde_json::to_vec_pretty(&all)?)
        .and_then(|()| fs::rename(&temporary, &path))
        .with_context(|| format!("writing {}", path.display()))
}

/// What is known by what the command printed.
fn of_both(said: &str) -> Result<Known> {
    let mut all = serde_json::Deserializer::from_str(said).into_iter::<Said>();
    let measured = all.next().context("nothing")??;
    let learned = all.next().context("nothing by the disk's model")??;
    let warm = all.try_fold(None, |least: Option<u64>, said| {
        said.map(|said| Some(least.map_or(said.floor.floor_ns, |least| least.min(said.floor.floor_ns))))
    })?;
    let floor_ns = warm.map_or(learned.floor.floor_ns, |warm| warm.max(learned.floor.floor_ns));
    Ok(Known {
        floor_seconds: floor_ns as f64 / 1e9,
        above: measured.above,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_warm_starts_the_least_counts_and_of_both_kinds_the_larger() {
        let said = |floors: &[u64]| -> String {
            let document = |ns: &u64| {
                let floor = Floor {
                    floor_ns: *ns,
                    ..Floor::default()
                };
                serde_json::json!({ "start": "x", "floor": floor, "above": null }).to_string()
            };
            floors.iter().map(document).collect()
        };
        let floor = |floors: &[u64]| (of_both(&said(floors)).unwrap().floor_seconds * 1e9).round();
        assert_eq!(floor(&[6, 5]), 5.0);
        assert_eq!(floor(&[6, 5, 9, 7, 8]), 7.0);
        assert_eq!(floor(&[6, 5, 9, 4]), 5.0);
        assert!(of_both("").is_err());
        assert!(of_both(&said(&[6])).is_err());
        assert!(of_both("{\"floor\": {}}").is_err());
    }

    #[test]
    fn where_the_time_went_is_told_of_the_start_that_was_read_ahead() {
        let above = Above {
            own_ns: 7,
            took_ns: 9,
            ..Above::default()
        };
        let document = |above: Option<Above>| {
            serde_json::json!({ "floor": Floor::default(), "above": above }).to_string()
        };
        let said = document(Some(above)) + &document(None);
        assert_eq!(of_both(&said).unwrap().above, Some(above));
        let nothing = document(None).repeat(2);
        assert_eq!(of_both(&nothing).unwrap().above, None);
    }
}
