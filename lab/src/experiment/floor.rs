//! Floors: the least time that any order of reads could give a start on its disk, as headstart reckons it.
//! Kept in `floors.json` beside the runs, for each case and setup.
//!
//! A setup's command prints `headstart floor --json` of the starts that the setup has learned from: first by
//! what was measured of the disk, as nothing else tells where the time of the last one went, then by the
//! disk's model; and of warm starts, as many as it likes. Starts differ, so of warm ones the least floor
//! counts; and because what a start needs when is known the better the less it waited, of both the larger.
//!
//! On one head what a jump takes depends on how far it goes, which no number in `--disk` says. So where
//! headstart tells what a start needs when (`--needs`), the lab asks the disk's model itself how long that
//! takes, as it does for T_io.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use headstart_model::floor::{Above, Floor, Need};
use serde::{Deserialize, Serialize};

use super::told::{by_case, keep};
use crate::machine::{Machine, Place};
use crate::model::{Extent, Kind, Model, t_io};

/// By case and setup.
pub type Floors = BTreeMap<String, BTreeMap<String, KnownFloor>>;

/// What is known of a setup's starts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KnownFloor {
    /// Seconds.
    pub floor_seconds: f64,
    /// Where the time of its last start with a replay went above the floor of that one.
    pub above: Option<Above>,
}

/// The file.
pub(super) const FILE: &str = "floors.json";

/// What is read of each `headstart floor --json`.
#[derive(Deserialize)]
struct FloorOutput {
    floor: Floor,
    above: Option<Above>,
    /// An earlier build does not tell.
    needs: Option<Vec<Need>>,
}

/// The disk that a start is on.
pub(super) struct Disk<'a> {
    pub model: &'a Model,
    /// Bytes.
    pub size: u64,
}

/// The disk is asked at so many moments of a start, with as many needs between one and the next.
const MOMENTS: usize = 128;

impl Disk<'_> {
    /// The floor of a start, nanoseconds.
    fn floor(&self, said: &FloorOutput) -> u64 {
        match (&self.model.kind, &said.needs) {
            (Kind::OneHead(_), Some(needs)) => self.by_model(said, needs),
            _ => said.floor.floor_ns,
        }
    }

    /// The floor of a start, each moment's needs being read as fast as the model says. A start may need some
    /// bytes of other disks, but most of this one; the others' are left out.
    fn by_model(&self, said: &FloorOutput, needs: &[Need]) -> u64 {
        let mut bytes = BTreeMap::<u32, u64>::new();
        for need in needs {
            *bytes.entry(need.device).or_default() += need.end.saturating_sub(need.start);
        }
        let most = bytes.iter().max_by_key(|(_, bytes)| **bytes);
        let is_here = |need: &&Need| {
            most.is_some_and(|(device, _)| need.device == *device)
                && need.start < need.end
                && need.end <= self.size
        };
        let needs: Vec<&Need> = needs.iter().filter(is_here).collect();
        let extents: Vec<Extent> = needs
            .iter()
            .map(|need| Extent {
                offset: need.start,
                length: need.end - need.start,
            })
            .collect();
        let warm_ns = said.floor.warm_ns;
        let mut best = warm_ns;
        let mut at_most = u64::MAX;
        // What is needed by an earlier moment takes no longer, so of most there is nothing to ask.
        for moment in (1..=MOMENTS).rev() {
            let count = needs.len() * moment / MOMENTS;
            let Some(last) = count.checked_sub(1).and_then(|last| needs.get(last)) else {
                continue;
            };
            let after_ns = warm_ns - last.time_ns.min(warm_ns);
            if at_most.saturating_add(after_ns) > best {
                at_most = t_io(&extents[..count], self.model, self.size).as_nanos() as u64;
                best = best.max(at_most + after_ns);
            }
        }
        best
    }
}

/// The floors of an experiment's directory; none where it has none.
pub fn floors(directory: &Path) -> Result<Floors> {
    by_case(directory, FILE)
}

/// Asks headstart by `command`, a template, and keeps what it says.
pub(super) fn ask(
    machine: &mut dyn Machine,
    place: &Place,
    command: &[String],
    directory: &Path,
    names: [&str; 2],
    model: &Model,
) -> Result<()> {
    let said = machine.inspect(place, &[command.to_vec()])?;
    let size = machine.size();
    let known = of_both(&said, &Disk { model, size }).context("what headstart says of the floor")?;
    keep(directory, FILE, names, known)
}

/// What is known by what the command printed.
fn of_both(said: &str, disk: &Disk<'_>) -> Result<KnownFloor> {
    let mut documents = serde_json::Deserializer::from_str(said).into_iter::<FloorOutput>();
    let measured = documents.next().context("nothing")??;
    let learned = documents.next().context("nothing by the disk's model")??;
    let warm = documents.try_fold(None, |least: Option<u64>, said| {
        said.map(|said| Some(disk.floor(&said).min(least.unwrap_or(u64::MAX))))
    })?;
    let floor_ns = disk.floor(&learned).max(warm.unwrap_or(0));
    Ok(KnownFloor {
        floor_seconds: floor_ns as f64 / 1e9,
        above: measured.above,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_warm_starts_the_least_counts_and_of_both_kinds_the_larger() {
        let model = &Model::load("cloud").unwrap();
        let disk = Disk { model, size: 1 << 30 };
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
        let floor = |floors: &[u64]| (of_both(&said(floors), &disk).unwrap().floor_seconds * 1e9).round();
        assert_eq!(floor(&[6, 5]), 5.0);
        assert_eq!(floor(&[6, 5, 9, 7, 8]), 7.0);
        assert_eq!(floor(&[6, 5, 9, 4]), 5.0);
        assert!(of_both("", &disk).is_err());
        assert!(of_both(&said(&[6]), &disk).is_err());
        assert!(of_both("{\"floor\": {}}", &disk).is_err());
    }

    /// Two places far apart, the second needed at the end of a start of 100 ms.
    fn needs() -> Vec<Need> {
        let need = |time_ms: u64, device, start: u64| Need {
            time_ns: time_ms * 1_000_000,
            device,
            start,
            end: start + 4096,
        };
        vec![need(0, 1, 0), need(0, 0, 100 << 20), need(99, 0, 200 << 20)]
    }

    #[test]
    fn on_one_head_the_model_itself_is_asked() {
        let size = 1 << 30;
        let said = |needs| FloorOutput {
            floor: Floor {
                floor_ns: 7,
                warm_ns: 100_000_000,
                ..Floor::default()
            },
            above: None,
            needs,
        };
        let floor = |name: &str, needs| {
            let model = &Model::load(name).unwrap();
            Disk { model, size }.floor(&said(needs))
        };
        let model = Model::load("disk7200").unwrap();
        let alone = |offsets: &[u64]| {
            let extent = |offset: &u64| Extent {
                offset: *offset,
                length: 4096,
            };
            let extents: Vec<Extent> = offsets.iter().map(extent).collect();
            t_io(&extents, &model, size).as_nanos() as u64
        };
        // Before the first instant one place has to be read, and there is time enough for the other. That on
        // the other disk does not count.
        let first = alone(&[100 << 20]);
        assert!(first > 2_000_000 && alone(&[100 << 20, 200 << 20]) < 99_000_000);
        assert_eq!(floor("disk7200", Some(needs())), first + 100_000_000);
        assert_eq!(floor("disk7200", None), 7);
        assert_eq!(floor("cloud", Some(needs())), 7);
        // What no disk of this size has is nobody's need.
        let mut beyond = needs();
        beyond[2].end = 2 << 30;
        assert_eq!(floor("disk7200", Some(beyond)), first + 100_000_000);
    }

    #[test]
    fn where_the_time_went_is_told_of_the_start_that_was_read_ahead() {
        let model = &Model::load("cloud").unwrap();
        let disk = Disk { model, size: 1 << 30 };
        let above = Above {
            own_ns: 7,
            took_ns: 9,
            ..Above::default()
        };
        let document = |above: Option<Above>| {
            serde_json::json!({ "floor": Floor::default(), "above": above }).to_string()
        };
        let said = document(Some(above)) + &document(None);
        assert_eq!(of_both(&said, &disk).unwrap().above, Some(above));
        let nothing = document(None).repeat(2);
        assert_eq!(of_both(&nothing, &disk).unwrap().above, None);
    }
}
