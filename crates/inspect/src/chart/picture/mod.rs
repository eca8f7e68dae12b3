//! What is drawn: starts in rows, dots and samples, nothing added up yet, and no place on paper.

mod devices;
mod files;
mod processes;

pub use devices::{Device, Kind};
pub use files::{Dot, Files, Pages, SERVICES, pages};
pub use processes::{Processes, Row};

use crate::chart::FloorLine;
use crate::chart::Start;
use crate::chart::text::clean;
use headstart_model::activity::{BusySample, MemorySample};
use headstart_model::human::{bytes, duration, percent};
use headstart_model::trace::{EndReason, Evidence};
use headstart_model::{Trace, limits};

/// Starts on one scale.
pub struct Picture<'a> {
    /// The starts, one or two of them are drawn.
    pub runs: Vec<Run<'a>>,
    /// The end of the time axis.
    pub span_ns: u64,
}

/// A start.
pub struct Run<'a> {
    /// What it is called.
    pub title: String,
    /// Its figures, a line each.
    pub facts: Vec<String>,
    /// What the picture lacks, a line each.
    pub notes: Vec<String>,
    /// When the start had ended.
    pub end_ns: u64,
    /// The least time it could have taken.
    pub floor: Option<FloorLine>,
    /// When its stages began.
    pub marks: Vec<(u64, String)>,
    /// Who ran.
    pub processes: Processes,
    /// What was used.
    pub files: Files,
    /// The block devices that were asked most, busiest first.
    pub devices: Vec<Device<'a>>,
    /// How busy the processors were.
    pub processors: &'a [BusySample],
    /// What memory held.
    pub memory: &'a [MemorySample],
    /// Bytes of a page.
    pub page_size: u32,
}

/// The most marks: there is no room for more.
const MARKS: usize = 200;

/// Characters of a title.
const TITLE: usize = 120;

impl<'a> Picture<'a> {
    /// A picture of the first two starts.
    pub fn new(starts: &'a [Start<'a>]) -> Picture<'a> {
        let mut runs: Vec<Run<'a>> = starts.iter().take(2).map(Run::from_start).collect();
        if let [one, other] = &mut runs[..] {
            let share = percent(other.end_ns, one.end_ns);
            other
                .facts
                .push(format!("{share} of the time of the start on the left"));
        }
        Device::align(runs.iter_mut().map(|run| &mut run.devices).collect());
        let span_ns = runs.iter().map(Run::last_ns).max().unwrap_or(0);
        Picture {
            runs,
            // An axis of no length has no scale.
            span_ns: span_ns.max(1_000),
        }
    }

    /// The sectors that the map of the devices of this number shows: of all runs, so that they compare.
    pub fn sectors(&self, device: usize) -> (u64, u64) {
        let devices = self.runs.iter().filter_map(|run| run.devices.get(device));
        let (mut first, mut end) = (u64::MAX, 0);
        for drawn in devices.filter(|device| !device.requests.is_empty()) {
            first = first.min(drawn.first);
            end = end.max(drawn.end);
        }
        (first.min(end), end)
    }

    /// The most bytes a second and the most requests in flight of a device in one of so many intervals, of
    /// all starts, so that they compare; at least one.
    pub fn most_rates(&self, device: usize, count: usize) -> (f64, f64) {
        let (mut bytes, mut depth): (f64, f64) = (1.0, 1.0);
        for drawn in self.runs.iter().filter_map(|run| run.devices.get(device)) {
            let rates = drawn.rates(self.span_ns, count);
            let moved = rates.read.iter().chain(&rates.written);
            bytes = moved.copied().fold(bytes, f64::max);
            depth = rates.depth.iter().copied().fold(depth, f64::max);
        }
        (bytes, depth)
    }

    /// Pages of the start that used most.
    pub fn most_pages(&self) -> u64 {
        let pages = |run: &Run<'_>| run.files.pages.all();
        self.runs.iter().map(pages).max().unwrap_or(0).max(1)
    }

    /// Files of the start that used most.
    pub fn most_files(&self) -> usize {
        self.runs
            .iter()
            .map(|run| run.files.rows.len())
            .max()
            .unwrap_or(0)
    }

    /// The most pages of one kind of service in one of so many intervals.
    pub fn most_pages_of_service(&self, count: usize) -> f64 {
        let mut most: f64 = 1.0;
        for run in &self.runs {
            for (service, _, _) in SERVICES {
                let sums = run.files.by_time(service, self.span_ns, count);
                most = sums.into_iter().fold(most, f64::max);
            }
        }
        most
    }

    /// Bytes of memory at the top of its scale.
    pub fn most_memory(&self) -> f64 {
        let samples = self.runs.iter().flat_map(|run| run.memory);
        let most = samples.map(|sample| sample.free.max(sample.page_cache).max(sample.dirty));
        most.max().unwrap_or(0).max(1) as f64
    }
}

impl<'a> Run<'a> {
    fn from_start(start: &'a Start<'a>) -> Run<'a> {
        let trace = start.trace;
        let files = Files::from_trace(trace);
        let activity = trace.activity.as_ref();
        Run {
            title: clean(&start.name, TITLE),
            facts: facts(trace, &files),
            notes: notes(trace),
            end_ns: trace.end.elapsed_ns,
            floor: start.floor.as_ref().map(floor),
            marks: (trace.marks.iter().take(MARKS))
                .map(|mark| (mark.time_ns, clean(&mark.stage, limits::STAGE_NAME.min(40))))
                .collect(),
            processes: Processes::from_trace(trace),
            files,
            devices: activity.map(Device::busiest).unwrap_or_default(),
            processors: activity.map_or(&[], |activity| &activity.processors),
            memory: activity.map_or(&[], |activity| &activity.memory),
            page_size: trace.meta.page_size,
        }
    }

    /// The last moment that is drawn: of the recording, or of the floor where that is later.
    fn last_ns(&self) -> u64 {
        self.end_ns.max(self.floor.as_ref().map_or(0, |floor| floor.ns))
    }
}

/// The floor with harmless names.
fn floor(floor: &FloorLine) -> FloorLine {
    /// The most causes: colours come again after four.
    const CAUSES: usize = 32;
    let causes = floor.causes.iter().take(CAUSES);
    FloorLine {
        ns: floor.ns,
        causes: causes.map(|(cause, ns)| (clean(cause, 80), *ns)).collect(),
    }
}

fn facts(trace: &Trace, files: &Files) -> Vec<String> {
    let page = u64::from(trace.meta.page_size);
    let size = |pages: u64| bytes(pages.saturating_mul(page));
    let Pages {
        in_time,
        late,
        missed,
        ..
    } = files.pages;
    let pages = files.pages.all();
    let ended = match trace.end.reason {
        EndReason::Exit(_) => "until it ended",
        EndReason::Quiet => "until it fell quiet",
        EndReason::Limit => "until the time limit",
        EndReason::Interrupted => "until it was interrupted",
    };
    let blocked = match trace.end.blocked_ns {
        Some(ns) => format!("; its threads waited {} for disks", duration(ns)),
        None => String::new(),
    };
    let command = match trace.meta.command.is_empty() {
        true => "a boot".into(),
        false => clean(&trace.meta.command.join(" "), 160),
    };
    let mut facts = vec![
        command,
        format!("{} {ended}{blocked}", duration(trace.end.elapsed_ns)),
        format!("{} of {} files used first", size(pages), files.rows.len()),
    ];
    if trace.ahead.is_some() {
        facts.push(format!(
            "read ahead in time: {} of it, late {}, missed {}",
            percent(in_time, pages),
            percent(late, pages),
            percent(missed, pages),
        ));
    }
    facts
}

fn notes(trace: &Trace) -> Vec<String> {
    let mut notes = Vec::new();
    if trace.lost.events > 0 {
        notes.push(format!(
            "{} events were lost: the picture has holes",
            trace.lost.events
        ));
    }
    match &trace.activity {
        None => notes.push("processors, disks and memory were not recorded (record --chart does)".into()),
        Some(activity) if activity.lost > 0 => notes.push(format!(
            "{} events of processors and disks were lost: the picture has holes",
            activity.lost
        )),
        Some(_) => {}
    }
    if trace.lost.late {
        notes.push("the recording began when the start had begun already".into());
    }
    if trace.meta.replayed && trace.ahead.is_none() {
        notes.push("a replay ran, but what it read ahead is not in the trace".into());
    }
    if trace.meta.evidence == Evidence::Adds {
        notes.push("uses are pages that entered memory: more than were used".into());
    }
    notes
}
