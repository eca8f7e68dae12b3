//! Stacks for flame graphs: for how long threads waited for block devices, by what they waited for.

use crate::human::printable;
use headstart_model::activity::ThreadState;
use headstart_model::{FilePath, Trace};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// A wait further away from a use or look-up of its process than this is for neither.
const NEAR_NS: u64 = 5_000_000;

/// What threads waited for, as far as it is known.
pub struct Waits<'a> {
    /// Nanoseconds by path, those for its look-up apart.
    ns: BTreeMap<Option<(&'a FilePath, bool)>, u64>,
}

impl<'a> Waits<'a> {
    /// For each wait the use or look-up of the same process that is nearest in time: an event comes right
    /// before the wait that it stands for, or right after it. `None` if the trace does not say when threads
    /// waited.
    pub fn from_trace(trace: &'a Trace) -> Option<Waits<'a>> {
        let activity = trace.activity.as_ref()?;
        let events = events(trace);
        let mut ns = BTreeMap::new();
        let waited = activity
            .slices
            .iter()
            .filter(|slice| slice.state == ThreadState::WaitingForDisk);
        for slice in waited {
            let events = events.get(slice.process as usize);
            let near = events.and_then(|events| nearest(events, slice.from_ns, slice.to_ns));
            let sum: &mut u64 = ns.entry(near).or_default();
            *sum = sum.saturating_add(slice.to_ns.saturating_sub(slice.from_ns));
        }
        Some(Waits { ns })
    }

    /// The paths that were waited for.
    pub fn paths(&self) -> impl Iterator<Item = &'a FilePath> {
        self.ns.keys().flatten().map(|(path, _)| *path)
    }

    /// Writes a line for each file: its package, by `owners`, or its top directory; its path, with `look-up`
    /// behind it if that was waited for; and nanoseconds.
    pub fn folded(&self, owners: &BTreeMap<Vec<u8>, String>, out: &mut dyn Write) -> io::Result<()> {
        for (what, ns) in &self.ns {
            let Some((path, lookup)) = what else {
                writeln!(out, "(unknown) {ns}")?;
                continue;
            };
            let text = path.to_string();
            let end = text.get(1..).and_then(|rest| rest.find('/'));
            let top = end.map_or("/", |end| &text[..end + 1]);
            let group = owners.get(path.as_bytes()).map_or(top, String::as_str);
            let lookup = if *lookup { ";look-up" } else { "" };
            writeln!(out, "{};{}{lookup} {ns}", frame(group), frame(&text))?;
        }
        Ok(())
    }
}

/// When a process used a path, or looked it up.
type Seen<'a> = (u64, &'a FilePath, bool);

/// The uses and look-ups of each process in order of time.
fn events(trace: &Trace) -> Vec<Vec<Seen<'_>>> {
    let mut events: Vec<Vec<Seen<'_>>> = vec![Vec::new(); trace.processes.len()];
    for used in trace.all_uses() {
        let file = trace.files.get(used.file as usize);
        if let (Some(events), Some(file)) = (events.get_mut(used.process as usize), file) {
            events.push((used.time_ns, &file.path, false));
        }
    }
    for lookup in &trace.lookups {
        if let Some(events) = events.get_mut(lookup.process as usize) {
            events.push((lookup.time_ns, &lookup.path, true));
        }
    }
    for events in &mut events {
        events.sort_by_key(|(time, ..)| *time);
    }
    events
}

/// What was seen nearest to a time, if that is near.
fn nearest<'a>(events: &[Seen<'a>], from_ns: u64, to_ns: u64) -> Option<(&'a FilePath, bool)> {
    let distance = |time: u64| match time < from_ns {
        true => from_ns - time,
        false => time.saturating_sub(to_ns),
    };
    let after = events.partition_point(|(time, ..)| *time < to_ns);
    let neighbours = [after.checked_sub(1), Some(after)];
    let neighbours = neighbours.into_iter().flatten().filter_map(|at| events.get(at));
    neighbours
        .map(|(time, path, lookup)| (distance(*time), (*path, *lookup)))
        .filter(|(distance, _)| *distance <= NEAR_NS)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, what)| what)
}

/// A text without what ends a frame or a line.
fn frame(text: &str) -> String {
    printable(text).replace(';', "\\u{3b}")
}
