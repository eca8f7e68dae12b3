//! Where the parts of a picture are, in pixels: the same for both forms.
//!
//! Lanes lie below one another on one time axis; of two starts each has a column, as wide as the other.

use crate::chart::picture::{Kind, Picture, Run, SERVICES};
use crate::chart::text::shortened;
use serde::Serialize;

/// Width of a picture.
pub const WIDTH: usize = 1200;
/// Where the columns begin; before them are the lanes' names.
pub const GUTTER: usize = 158;
/// What stays free at the right.
const MARGIN: usize = 14;
/// Between two columns.
const BETWEEN: usize = 18;
/// Height of a row of processes.
pub const ROW: usize = 14;
/// Of a character of ordinary text, on average; of a title half as much more.
pub const CHARACTER: f64 = 6.0;
/// Of a line of text.
pub const LINE: usize = 16;

/// What a lane shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shows {
    /// The floor, and what lies above it.
    Floor,
    /// When the stages began.
    Stages,
    /// Processes as a tree.
    Processes,
    /// How busy the processors were.
    Cpu,
    /// Bytes used so far, by what had been done for them.
    Uses,
    /// First uses by file.
    Files,
    /// First uses by what had been done for them, a strip each.
    Services,
    /// What a device read and wrote.
    Throughput,
    /// How busy a device was.
    Busy,
    /// How many requests a device had.
    Depth,
    /// Where on a device the requests were.
    Map,
    /// What memory held.
    Memory,
}

/// A lane.
#[derive(Clone, Debug, Serialize)]
pub struct Lane {
    /// What it shows.
    pub shows: Shows,
    /// Of which device, by its place in the runs; 0 where it is about none.
    pub device: usize,
    /// Its upper edge.
    pub y: usize,
    /// Its height.
    pub height: usize,
    /// Its name.
    pub title: String,
    /// What its colours mean: name in the picture's style, and for people.
    pub legend: Vec<(&'static str, &'static str)>,
}

/// The places of all parts.
#[derive(Clone, Debug, Serialize)]
pub struct Layout {
    /// Where the names of the runs are; their lines follow.
    pub head: usize,
    /// The lanes, from above.
    pub lanes: Vec<Lane>,
    /// Where the columns begin, from the left.
    pub columns: Vec<usize>,
    /// How wide a column is.
    pub width: usize,
    /// Of the whole.
    pub whole: usize,
    /// Between two columns.
    pub between: usize,
    /// What stays free at the right.
    pub margin: usize,
    /// Upper edge of the first lane.
    pub top: usize,
    /// Lower edge of the last lane.
    pub bottom: usize,
    /// Of the picture.
    pub height: usize,
}

const SERVICE_LEGEND: [(&str, &str); 4] = [
    (SERVICES[0].1, SERVICES[0].2),
    (SERVICES[1].1, SERVICES[1].2),
    (SERVICES[2].1, SERVICES[2].2),
    (SERVICES[3].1, SERVICES[3].2),
];

const MAP_LEGEND: [(&str, &str); 4] = [
    (Kind::ALL[0].1, Kind::ALL[0].2),
    (Kind::ALL[1].1, Kind::ALL[1].2),
    (Kind::ALL[2].1, Kind::ALL[2].2),
    (Kind::ALL[3].1, Kind::ALL[3].2),
];

impl Layout {
    /// Lays out a picture, with a lane for whatever any of its runs has.
    pub fn new(picture: &Picture<'_>) -> Layout {
        let runs = &picture.runs;
        let any = |has: &dyn Fn(&Run<'_>) -> bool| runs.iter().any(has);
        let most = |count: &dyn Fn(&Run<'_>) -> usize| runs.iter().map(count).max().unwrap_or(0);
        let mut lanes = Stack::default();
        if any(&|run| run.floor.is_some()) {
            lanes.add(
                Shows::Floor,
                0,
                34,
                "floor, and above it",
                &[("floorline", "no order beats it")],
            );
        }
        if any(&|run| !run.marks.is_empty()) {
            lanes.add(Shows::Stages, 0, 32, "stages", &[]);
        }
        if any(&|run| !run.processors.is_empty()) {
            lanes.add(Shows::Cpu, 0, 46, "processors", &[("run", "busy, of all")]);
        }
        for device in 0..most(&|run| run.devices.len()) {
            let name = runs.iter().find_map(|run| run.devices.get(device));
            let name = name.map_or("disk".into(), |device| shortened(&device.name, 10));
            let legend = [("read", "read"), ("write", "written")];
            lanes.add(
                Shows::Throughput,
                device,
                56,
                &format!("{name}: throughput"),
                &legend,
            );
            lanes.add(
                Shows::Busy,
                device,
                30,
                &format!("{name}: busy"),
                &[("busy", "share of time")],
            );
            lanes.add(
                Shows::Depth,
                device,
                40,
                &format!("{name}: queue"),
                &[("depth", "requests at once")],
            );
            lanes.add(
                Shows::Map,
                device,
                128,
                &format!("{name}: addresses"),
                &MAP_LEGEND,
            );
        }
        if any(&|run| !run.memory.is_empty()) {
            let legend = [
                ("cache", "page cache"),
                ("dirty", "to be written"),
                ("free", "free"),
            ];
            lanes.add(Shows::Memory, 0, 56, "memory", &legend);
        }
        if any(&|run| !run.files.dots.is_empty()) {
            // Without a replay one colour says all.
            let served = any(&|run| run.files.pages.served());
            let legend: &[_] = match served {
                true => &SERVICE_LEGEND,
                false => &SERVICE_LEGEND[3..],
            };
            lanes.add(Shows::Uses, 0, 64, "bytes used so far", legend);
            // Few files need no room for many.
            let rows = most(&|run| run.files.rows.len());
            lanes.add(
                Shows::Files,
                0,
                (rows * 6).clamp(40, 240),
                "files by first use",
                legend,
            );
            if served {
                lanes.add(Shows::Services, 0, legend.len() * LINE, "when that was", legend);
            }
        }
        let rows = most(&|run| run.processes.rows.len());
        if rows > 0 {
            let legend: &[_] = match any(&|run| run.processes.has_slices) {
                true => &[
                    ("run", "runs: from below"),
                    ("wait", "waits for disk:\u{a0}above"),
                    ("alive", "else asleep"),
                ],
                false => &[("alive", "first to last seen"), ("plain", "uses pages first")],
            };
            lanes.add(Shows::Processes, 0, (rows * ROW + 2).max(62), "processes", legend);
        }
        let lines = 1 + most(&|run| run.facts.len() + run.notes.len());
        let head = 30;
        let top = head + lines * LINE + 26;
        lanes.placed(head, top, runs.len().max(1))
    }
}

/// Lanes without their places.
#[derive(Default)]
struct Stack(Vec<Lane>);

impl Stack {
    fn add(
        &mut self,
        shows: Shows,
        device: usize,
        height: usize,
        title: &str,
        legend: &[(&'static str, &'static str)],
    ) {
        // A legend stands below the title; a lane is at least as high as both.
        let text = match shows {
            Shows::Services => 0,
            _ => LINE + legend.len() * 14,
        };
        self.0.push(Lane {
            shows,
            device,
            y: 0,
            height: height.max(text),
            title: title.to_owned(),
            legend: legend.to_vec(),
        });
    }

    fn placed(self, head: usize, top: usize, columns: usize) -> Layout {
        /// Between two lanes.
        const GAP: usize = 8;
        let mut lanes = self.0;
        let mut y = top;
        for lane in &mut lanes {
            lane.y = y;
            y += lane.height + GAP;
        }
        let bottom = y.saturating_sub(GAP).max(top);
        let room = WIDTH - GUTTER - MARGIN - BETWEEN * (columns - 1);
        let width = room / columns;
        Layout {
            head,
            lanes,
            columns: (0..columns).map(|i| GUTTER + i * (width + BETWEEN)).collect(),
            width,
            whole: WIDTH,
            between: BETWEEN,
            margin: MARGIN,
            top,
            bottom,
            height: bottom + 30,
        }
    }
}

/// Round times for an axis of so many pixels, with a label each; not closer than people read.
pub fn ticks(span_ns: u64, pixels: usize) -> Vec<(u64, String)> {
    const APART: usize = 72;
    let most = (pixels / APART).max(1) as u64;
    let mut step = 1_000u64;
    'found: loop {
        for factor in [1, 2, 5] {
            if span_ns / step.saturating_mul(factor) <= most {
                step = step.saturating_mul(factor);
                break 'found;
            }
        }
        step = step.saturating_mul(10);
    }
    let mut ticks = Vec::new();
    let mut at = 0u64;
    while at <= span_ns {
        ticks.push((at, time(at, step)));
        match at.checked_add(step) {
            Some(next) => at = next,
            None => break,
        }
    }
    ticks
}

/// A time on an axis whose marks are `step` apart.
fn time(ns: u64, step: u64) -> String {
    let (unit, name) = match step {
        0..1_000_000 => (1_000, "us"),
        1_000_000..100_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    match ns {
        0 => "0".into(),
        _ if ns % unit == 0 => format!("{} {name}", ns / unit),
        _ => format!("{:.1} {name}", ns as f64 / unit as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_have_room() {
        let labels = |span, pixels| -> Vec<String> {
            ticks(span, pixels).into_iter().map(|(_, label)| label).collect()
        };
        assert_eq!(labels(4_200_000_000, 400), ["0", "1 s", "2 s", "3 s", "4 s"]);
        assert_eq!(
            labels(900_000_000, 400),
            ["0", "0.2 s", "0.4 s", "0.6 s", "0.8 s"]
        );
        assert_eq!(labels(42_000_000, 400), ["0", "10 ms", "20 ms", "30 ms", "40 ms"]);
        for span in [1, 1_000, 123_456, 7_000_000_000, u64::MAX] {
            for pixels in [1, 300, 1000] {
                let marks = ticks(span, pixels);
                assert!(marks.len() <= (pixels / 72).max(1) + 1, "{span} {pixels}");
            }
        }
    }
}
