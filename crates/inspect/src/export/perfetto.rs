//! A trace for ui.perfetto.dev, as JSON of the trace event format: processes with what their threads did,
//! first uses and look-ups, what the block devices were asked, processors and memory, stages.
//!
//! Perfetto documents the format at <https://perfetto.dev/docs/getting-started/other-formats>. Times are
//! microseconds.

use super::access::{COLUMNS, Value, bounded, rows};
use headstart_model::activity::{Activity, BlockRequest, RequestKind, Slice, ThreadState};
use headstart_model::{FilePath, Trace};
use serde_json::{Map, json};
use std::io::{self, Write};

/// Writes a trace.
pub fn perfetto(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    bounded(trace)?;
    out.write_all(b"{\"traceEvents\":[\n")?;
    let mut events = Events { out, first: true };
    processes(trace, &mut events)?;
    // Events need a process. These are of none, and have numbers that no process of the trace has.
    let pids = trace.processes.iter().map(|process| u64::from(process.pid));
    let machine = pids.max().unwrap_or(0) + 1;
    events.process(machine, "machine")?;
    for mark in &trace.marks {
        events.write(json!({
            "ph": "i", "s": "g", "pid": machine, "tid": machine, "ts": us(mark.time_ns), "cat": "stage", "name": mark.stage,
        }))?;
    }
    accesses(trace, &mut events)?;
    if let Some(activity) = &trace.activity {
        threads(trace, activity, &mut events)?;
        requests(trace, activity, machine + 1, &mut events)?;
        samples(activity, machine, &mut events)?;
    }
    events.out.write_all(b"\n]}\n")
}

struct Events<'a> {
    out: &'a mut dyn Write,
    first: bool,
}

impl Events<'_> {
    fn write(&mut self, event: serde_json::Value) -> io::Result<()> {
        if !std::mem::take(&mut self.first) {
            self.out.write_all(b",\n")?;
        }
        Ok(serde_json::to_writer(&mut *self.out, &event)?)
    }

    fn process(&mut self, pid: u64, name: &str) -> io::Result<()> {
        self.write(json!({ "ph": "M", "pid": pid, "name": "process_name", "args": { "name": name } }))
    }

    fn counter(
        &mut self,
        pid: u64,
        time_ns: u64,
        name: &str,
        value: impl serde::Serialize,
    ) -> io::Result<()> {
        self.write(
            json!({ "ph": "C", "pid": pid, "ts": us(time_ns), "name": name, "args": { "value": value } }),
        )
    }
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn lossy(path: &FilePath) -> String {
    String::from_utf8_lossy(path.as_bytes()).into_owned()
}

fn processes(trace: &Trace, events: &mut Events<'_>) -> io::Result<()> {
    for process in &trace.processes {
        events.process(process.pid.into(), &lossy(&process.executable))?;
    }
    Ok(())
}

/// First uses and look-ups, on their processes.
fn accesses(trace: &Trace, events: &mut Events<'_>) -> io::Result<()> {
    for row in rows(trace) {
        let [Value::U64(time_ns), _, kind, pid @ Value::U32(_), _, path, ..] = &row else {
            continue;
        };
        // Which pages, and whether it was found.
        let args = COLUMNS.iter().zip(&row).skip(10);
        let args = args.filter(|(_, value)| **value != Value::None);
        let args: Map<String, serde_json::Value> = args
            .map(|(name, value)| ((*name).to_owned(), json!(value)))
            .collect();
        events.write(json!({
            "ph": "i", "s": "p", "pid": pid, "tid": pid, "ts": us(*time_ns), "cat": kind, "name": path, "args": args,
        }))?;
    }
    Ok(())
}

/// What threads did.
fn threads(trace: &Trace, activity: &Activity, events: &mut Events<'_>) -> io::Result<()> {
    // Those of one thread together, in order of time as they were.
    let mut slices: Vec<&Slice> = activity.slices.iter().collect();
    slices.sort_by_key(|slice| (slice.process, slice.thread));
    // The thread, and until when it is told what it did.
    let (mut current, mut busy_until) = (None, 0);
    for slice in slices {
        let Some(process) = trace.processes.get(slice.process as usize) else {
            continue;
        };
        if current.replace((slice.process, slice.thread)) != current {
            busy_until = 0;
        }
        // A thread does one thing at a time; what says otherwise is damaged, and would nest wrongly.
        if slice.from_ns < busy_until || slice.to_ns < slice.from_ns {
            continue;
        }
        busy_until = slice.to_ns;
        let state = match slice.state {
            ThreadState::Running => "running",
            ThreadState::WaitingForDisk => "waiting for disk",
            ThreadState::Sleeping => "sleeping",
        };
        events.write(json!({
            "ph": "X", "pid": process.pid, "tid": slice.thread, "ts": us(slice.from_ns),
            "dur": us(slice.to_ns - slice.from_ns), "cat": "thread", "name": state,
        }))?;
    }
    Ok(())
}

/// What the block devices were asked; each is a process, from number `pid` on. Requests are asynchronous
/// events, which may overlap.
fn requests(trace: &Trace, activity: &Activity, pid: u64, events: &mut Events<'_>) -> io::Result<()> {
    for (device, pid) in activity.devices.iter().zip(pid..) {
        events.process(pid, &format!("block device {}", device.name))?;
    }
    for (id, request) in activity.requests.iter().enumerate() {
        if request.device as usize >= activity.devices.len() {
            continue;
        }
        // What was never answered lasted to the end.
        let end = request.completed_ns.unwrap_or(trace.end.elapsed_ns);
        let end = end.max(request.issued_ns);
        let process = request
            .process
            .and_then(|index| trace.processes.get(index as usize));
        let args = json!({
            "sector": request.sector, "sectors": request.sectors, "for_pid": process.map(|process| process.pid),
        });
        for (phase, time_ns, args) in [("b", request.issued_ns, args), ("e", end, json!({}))] {
            events.write(json!({
                "ph": phase, "pid": pid + u64::from(request.device), "id": id, "ts": us(time_ns), "cat": "request",
                "name": kind(request), "args": args,
            }))?;
        }
    }
    Ok(())
}

/// Processors and memory.
fn samples(activity: &Activity, machine: u64, events: &mut Events<'_>) -> io::Result<()> {
    for sample in &activity.processors {
        events.counter(machine, sample.time_ns, "processors busy, share", sample.busy)?;
    }
    for sample in &activity.memory {
        events.counter(machine, sample.time_ns, "memory free, bytes", sample.free)?;
        events.counter(machine, sample.time_ns, "page cache, bytes", sample.page_cache)?;
        events.counter(machine, sample.time_ns, "to be written back, bytes", sample.dirty)?;
    }
    Ok(())
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
