//! A trace for Perfetto (ui.perfetto.dev): processes with what their threads did, first uses and look-ups, what the block
//! devices were asked, processors and memory, stages.
//!
//! Numbers of fields are those of protos/perfetto/trace/perfetto_trace.proto; a test reads what is written with that
//! schema.

use super::access::bounded;
use super::protobuf::Message;
use headstart_model::activity::{Activity, BlockRequest, RequestKind, Slice, ThreadState};
use headstart_model::trace::{LookupKind, Process, UseKind};
use headstart_model::{FilePath, Trace};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

// TracePacket.
const TIMESTAMP: u32 = 8;
const SEQUENCE: u32 = 10;
const TRACK_EVENT: u32 = 11;
const SEQUENCE_FLAGS: u32 = 13;
const TRACK_DESCRIPTOR: u32 = 60;
/// SEQ_INCREMENTAL_STATE_CLEARED: the first packet of a sequence.
const CLEARED: u64 = 1;

// TrackDescriptor.
const UUID: u32 = 1;
const NAME: u32 = 2;
const PROCESS: u32 = 3;
const THREAD: u32 = 4;
const PARENT: u32 = 5;
const COUNTER: u32 = 8;

// TrackEvent.
const TYPE: u32 = 9;
const TRACK: u32 = 11;
const CATEGORY: u32 = 22;
const EVENT_NAME: u32 = 23;
const COUNTER_VALUE: u32 = 30;
const DOUBLE_VALUE: u32 = 44;
const ANNOTATION: u32 = 4;
const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const VALUE: u64 = 4;

/// CounterDescriptor.unit: UNIT_SIZE_BYTES.
const BYTES: u64 = 3;

/// Writes a trace.
pub fn perfetto(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    bounded(trace)?;
    let mut writer = Perfetto {
        out,
        tracks: 0,
        first: true,
    };
    let processes = writer.processes(trace)?;
    if !trace.marks.is_empty() {
        let track = writer.track(|it| it.text(NAME, "stages"))?;
        for mark in &trace.marks {
            writer.instant(track, mark.time_ns, "stage", &mark.stage, Message::default())?;
        }
    }
    writer.accesses(trace, &processes)?;
    if let Some(activity) = &trace.activity {
        writer.threads(trace, activity, &processes)?;
        writer.requests(trace, activity)?;
        writer.samples(activity)?;
    }
    Ok(())
}

struct Perfetto<'a> {
    out: &'a mut dyn Write,
    tracks: u64,
    first: bool,
}

impl Perfetto<'_> {
    /// Writes a packet of the one sequence that there is.
    fn packet(&mut self, packet: Message) -> io::Result<()> {
        let mut packet = packet.number(SEQUENCE, 1);
        if std::mem::take(&mut self.first) {
            packet = packet.number(SEQUENCE_FLAGS, CLEARED);
        }
        // Trace.packet
        self.out
            .write_all(Message::default().inner(1, &packet).as_bytes())
    }

    /// Makes a track; its uuid.
    fn track(&mut self, describe: impl FnOnce(Message) -> Message) -> io::Result<u64> {
        self.tracks += 1;
        let described = describe(Message::default().number(UUID, self.tracks));
        self.packet(Message::default().inner(TRACK_DESCRIPTOR, &described))?;
        Ok(self.tracks)
    }

    fn event(&mut self, time_ns: u64, event: &Message) -> io::Result<()> {
        self.packet(
            Message::default()
                .number(TIMESTAMP, time_ns)
                .inner(TRACK_EVENT, event),
        )
    }

    /// `more` has further fields of the event.
    fn instant(
        &mut self,
        track: u64,
        time_ns: u64,
        category: &str,
        name: &str,
        more: Message,
    ) -> io::Result<()> {
        let event = more
            .number(TYPE, INSTANT)
            .number(TRACK, track)
            .text(CATEGORY, category)
            .text(EVENT_NAME, name);
        self.event(time_ns, &event)
    }

    fn slice(&mut self, track: u64, times: (u64, u64), name: &str, more: Message) -> io::Result<()> {
        let begin = more
            .number(TYPE, BEGIN)
            .number(TRACK, track)
            .text(EVENT_NAME, name);
        self.event(times.0, &begin)?;
        let end = Message::default().number(TYPE, END).number(TRACK, track);
        self.event(times.1, &end)
    }

    /// A track for each process.
    fn processes(&mut self, trace: &Trace) -> io::Result<Vec<u64>> {
        let mut tracks = Vec::with_capacity(trace.processes.len());
        for process in &trace.processes {
            let path = lossy(&process.executable);
            let described = Message::default()
                .number(1, process.pid.into())
                .text(2, &path)
                .text(6, name(process).as_str());
            tracks.push(self.track(|it| it.inner(PROCESS, &described))?);
        }
        Ok(tracks)
    }

    /// First uses and look-ups, on the tracks of their processes.
    fn accesses(&mut self, trace: &Trace, processes: &[u64]) -> io::Result<()> {
        for used in &trace.uses {
            let Some(track) = processes.get(used.process as usize) else {
                continue;
            };
            let path = trace.files.get(used.file as usize).map(|it| lossy(&it.path));
            let kind = match used.kind {
                UseKind::Read => "read",
                UseKind::Map => "map",
                UseKind::Fault => "fault",
                UseKind::Add => "add",
                UseKind::Around => "around",
            };
            let more =
                number("first_page", used.start).inner(ANNOTATION, &annotation("pages", used.pages.into()));
            self.instant(*track, used.time_ns, kind, &path.unwrap_or_default(), more)?;
        }
        for lookup in &trace.lookups {
            let Some(track) = processes.get(lookup.process as usize) else {
                continue;
            };
            let kind = match lookup.kind {
                LookupKind::Open => "open",
                LookupKind::Stat => "stat",
                LookupKind::Link => "link",
                LookupKind::List => "list",
            };
            let more = number("found", lookup.found.into());
            self.instant(*track, lookup.time_ns, kind, &lossy(&lookup.path), more)?;
        }
        Ok(())
    }

    /// What threads did, a track for each.
    fn threads(&mut self, trace: &Trace, activity: &Activity, processes: &[u64]) -> io::Result<()> {
        // Those of one thread together, in order of time as they were.
        let mut slices: Vec<&Slice> = activity.slices.iter().collect();
        slices.sort_by_key(|slice| (slice.process, slice.thread));
        // The thread, its track, and until when it is told what it did.
        let mut current: Option<((u32, u32), u64, u64)> = None;
        for slice in slices {
            let key = (slice.process, slice.thread);
            let Some(process) = trace.processes.get(slice.process as usize) else {
                continue;
            };
            let (track, busy_until) = match current {
                Some((same, track, until)) if same == key => (track, until),
                _ => {
                    let described = Message::default()
                        .number(1, process.pid.into())
                        .number(2, slice.thread.into())
                        .text(5, &name(process));
                    let parent = processes.get(slice.process as usize).copied().unwrap_or(0);
                    let track = self.track(|it| it.inner(THREAD, &described).number(PARENT, parent))?;
                    (track, 0)
                }
            };
            current = Some((key, track, slice.to_ns.max(busy_until)));
            // A thread does one thing at a time; what says otherwise is damaged, and would nest wrongly.
            if slice.from_ns < busy_until {
                continue;
            }
            let state = match slice.state {
                ThreadState::Running => "running",
                ThreadState::WaitingForDisk => "waiting for disk",
                ThreadState::Sleeping => "sleeping",
            };
            self.slice(track, (slice.from_ns, slice.to_ns), state, Message::default())?;
        }
        Ok(())
    }

    /// What the block devices were asked: as many tracks for a device as it had requests at once.
    fn requests(&mut self, trace: &Trace, activity: &Activity) -> io::Result<()> {
        let mut of_devices: Vec<Vec<&BlockRequest>> = vec![Vec::new(); activity.devices.len()];
        for request in &activity.requests {
            if let Some(own) = of_devices.get_mut(request.device as usize) {
                own.push(request);
            }
        }
        for (device, own) in activity.devices.iter().zip(of_devices) {
            let whole = self.track(|it| it.text(NAME, &format!("block device {}", device.name)))?;
            // When the last request on each track ends, and the track; the first that ends first.
            let mut lanes: BinaryHeap<Reverse<(u64, u64)>> = BinaryHeap::new();
            for request in own {
                // What was never answered lasted to the end.
                let end = trace.end.elapsed_ns.max(request.issued_ns);
                let times = (request.issued_ns, request.completed_ns.unwrap_or(end));
                let is_free = lanes.peek().is_some_and(|Reverse((until, _))| *until <= times.0);
                let free = if is_free { lanes.pop() } else { None };
                let track = match free {
                    Some(Reverse((_, track))) => track,
                    None => {
                        let name = format!("requests, {} at once", lanes.len() + 1);
                        self.track(|it| it.text(NAME, &name).number(PARENT, whole))?
                    }
                };
                lanes.push(Reverse((times.1, track)));
                self.slice(track, times, kind(request), described(trace, request))?;
            }
        }
        Ok(())
    }

    /// Processors and memory.
    fn samples(&mut self, activity: &Activity) -> io::Result<()> {
        if !activity.processors.is_empty() {
            let counter = Message::default().text(6, "share");
            let track = self.track(|it| it.text(NAME, "processors busy").inner(COUNTER, &counter))?;
            for sample in &activity.processors {
                let event = Message::default()
                    .number(TYPE, VALUE)
                    .number(TRACK, track)
                    .double(DOUBLE_VALUE, sample.busy.into());
                self.event(sample.time_ns, &event)?;
            }
        }
        for field in 0..3 {
            if activity.memory.is_empty() {
                break;
            }
            let name = ["memory free", "page cache", "to be written back"][field];
            let counter = Message::default().number(3, BYTES);
            let track = self.track(|it| it.text(NAME, name).inner(COUNTER, &counter))?;
            for sample in &activity.memory {
                let value = [sample.free, sample.page_cache, sample.dirty][field];
                let event = Message::default()
                    .number(TYPE, VALUE)
                    .number(TRACK, track)
                    .number(COUNTER_VALUE, value);
                self.event(sample.time_ns, &event)?;
            }
        }
        Ok(())
    }
}

fn lossy(path: &FilePath) -> String {
    String::from_utf8_lossy(path.as_bytes()).into_owned()
}

/// The last part of a process's executable.
fn name(process: &Process) -> String {
    let path = lossy(&process.executable);
    path.rsplit('/').next().unwrap_or_default().into()
}

/// DebugAnnotation: a name and an unsigned number.
fn annotation(name: &str, value: u64) -> Message {
    Message::default().number(3, value).text(10, name)
}

fn number(name: &str, value: u64) -> Message {
    Message::default().inner(ANNOTATION, &annotation(name, value))
}

fn kind(request: &BlockRequest) -> &'static str {
    match request.kind {
        RequestKind::Read if request.metadata => "read metadata",
        RequestKind::Read if request.ahead => "read ahead",
        RequestKind::Read => "read",
        RequestKind::Write => "write",
        RequestKind::Discard => "discard",
        RequestKind::Flush => "flush",
        RequestKind::Other => "other",
    }
}

/// Where a request went, and whose it was.
fn described(trace: &Trace, request: &BlockRequest) -> Message {
    let place =
        number("sector", request.sector).inner(ANNOTATION, &annotation("sectors", request.sectors.into()));
    let process = request
        .process
        .and_then(|index| trace.processes.get(index as usize));
    match process {
        Some(process) => place.inner(ANNOTATION, &annotation("pid", process.pid.into())),
        None => place,
    }
}
