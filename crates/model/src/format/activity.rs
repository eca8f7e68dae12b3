//! The section ACTV of a trace: what processors, block devices and memory did, as columns.

use super::columns::{Column, Cursor};
use super::rows::{place, table, value_at};
use crate::activity::{
    Activity, BlockDevice, BlockRequest, BusySample, MemorySample, RequestKind, Slice, ThreadState,
};
use crate::limits::{self, bounded};
use crate::trace::{Process, Trace};

/// The unit of times, 1 us: fast devices answer within tens of them.
const TICK_NS: u64 = 1000;

/// Number of columns.
pub(super) const ACTIVITY: usize = 22;

const KINDS: [RequestKind; 5] = [
    RequestKind::Read,
    RequestKind::Write,
    RequestKind::Discard,
    RequestKind::Flush,
    RequestKind::Other,
];
const STATES: [ThreadState; 3] = [
    ThreadState::Running,
    ThreadState::WaitingForDisk,
    ThreadState::Sleeping,
];

/// What [`BlockRequest::kind`] leaves room for beside it.
const METADATA: u64 = 8;
const AHEAD: u64 = 16;

/// Times that never go back.
#[derive(Default)]
struct Clock(u64);

impl Clock {
    fn put(&mut self, column: &mut Column, time_ns: u64) {
        let ticks = time_ns / TICK_NS;
        // What goes back is refused before it is written; a forgery of it is another sound file.
        column.number(ticks.saturating_sub(self.0));
        self.0 = ticks.max(self.0);
    }

    fn take(&mut self, column: &mut Cursor<'_>) -> Result<u64, String> {
        self.0 = sum(self.0, column.number()?)?;
        nanoseconds(self.0)
    }
}

fn sum(ticks: u64, more: u64) -> Result<u64, String> {
    ticks.checked_add(more).ok_or_else(out_of_range)
}

fn nanoseconds(ticks: u64) -> Result<u64, String> {
    ticks.checked_mul(TICK_NS).ok_or_else(out_of_range)
}

fn out_of_range() -> String {
    "a time is out of range".into()
}

/// How long something lasted, in whole ticks of both ends.
fn lasted(from_ns: u64, to_ns: u64) -> u64 {
    (to_ns / TICK_NS).saturating_sub(from_ns / TICK_NS)
}

/// When something ended that began at a tick.
fn end(from_ns: u64, lasted: u64) -> Result<u64, String> {
    nanoseconds(sum(from_ns / TICK_NS, lasted)?)
}

/// The columns.
pub(super) fn write(activity: &Activity, processes: &[Process]) -> [Column; ACTIVITY] {
    let mut columns = <[Column; ACTIVITY]>::default();
    let [
        issued,
        took,
        device,
        sector,
        sectors,
        what,
        asked,
        from,
        length,
        doing,
        thread,
        looked,
        busy,
        sampled,
        free,
        cache,
        dirty,
        major,
        minor,
        size,
        name,
        lost,
    ] = &mut columns;
    let (mut clock, mut next) = (Clock::default(), 0);
    for request in &activity.requests {
        clock.put(issued, request.issued_ns);
        took.number(
            request
                .completed_ns
                .map_or(0, |at| lasted(request.issued_ns, at).saturating_add(1)),
        );
        device.number(request.device.into());
        sector.step(next, request.sector);
        next = request.sector.wrapping_add(request.sectors.into());
        sectors.number(request.sectors.into());
        let flags = u64::from(request.metadata) * METADATA + u64::from(request.ahead) * AHEAD;
        what.number(place(&KINDS, &request.kind) + flags);
        asked.number(request.process.map_or(0, |process| u64::from(process) + 1));
    }
    let mut clock = Clock::default();
    for slice in &activity.slices {
        clock.put(from, slice.from_ns);
        length.number(lasted(slice.from_ns, slice.to_ns));
        doing.number(u64::from(slice.process) * STATES.len() as u64 + place(&STATES, &slice.state));
        let pid = processes
            .get(slice.process as usize)
            .map_or(0, |process| process.pid);
        thread.step(pid.into(), slice.thread.into());
    }
    let mut clock = Clock::default();
    for sample in &activity.processors {
        clock.put(looked, sample.time_ns);
        busy.number(sample.busy.to_bits().into());
    }
    let (mut clock, mut before) = (Clock::default(), [0; 3]);
    for sample in &activity.memory {
        clock.put(sampled, sample.time_ns);
        let now = [sample.free, sample.page_cache, sample.dirty];
        for ((column, before), now) in [&mut *free, &mut *cache, &mut *dirty]
            .into_iter()
            .zip(before)
            .zip(now)
        {
            column.step(before, now);
        }
        before = now;
    }
    for device in &activity.devices {
        major.number(device.major.into());
        minor.number(device.minor.into());
        size.number(device.sectors);
        name.text(device.name.as_bytes());
    }
    lost.number(activity.lost);
    columns
}

/// Reads what [`write`] wrote; `trace` has all else.
pub(super) fn read(columns: [Cursor<'_>; ACTIVITY], trace: &Trace) -> Result<Activity, String> {
    let [
        issued,
        took,
        device,
        sector,
        sectors,
        what,
        asked,
        from,
        length,
        doing,
        thread,
        looked,
        busy,
        sampled,
        free,
        cache,
        dirty,
        major,
        minor,
        size,
        name,
        mut lost,
    ] = columns;
    // Before memory is taken for either.
    rows(trace, issued.rows(), from.rows())?;
    Ok(Activity {
        requests: requests([issued, took, device, sector, sectors, what, asked])?,
        slices: slices([from, length, doing, thread], trace)?,
        processors: processors([looked, busy])?,
        memory: memory([sampled, free, cache, dirty])?,
        devices: devices([major, minor, size, name])?,
        lost: lost.number()?,
    })
}

fn requests(columns: [Cursor<'_>; 7]) -> Result<Vec<BlockRequest>, String> {
    let [
        mut issued,
        mut took,
        mut device,
        mut sector,
        mut sectors,
        mut what,
        mut asked,
    ] = columns;
    let mut requests = table("block requests", &issued, limits::REQUESTED)?;
    let (mut clock, mut next) = (Clock::default(), 0u64);
    while issued.more() {
        let issued_ns = clock.take(&mut issued)?;
        let completed_ns = match took.number()? {
            0 => None,
            more => Some(end(issued_ns, more - 1)?),
        };
        let device = device.small()?;
        let sector = sector.step(next)?;
        let sectors = sectors.small()?;
        next = sector.wrapping_add(u64::from(sectors));
        let flags = what.number()?;
        if flags >= 2 * AHEAD {
            return Err(format!("{flags} is no kind of a block request"));
        }
        requests.push(BlockRequest {
            issued_ns,
            completed_ns,
            device,
            sector,
            sectors,
            kind: value_at(&KINDS, flags % METADATA)?,
            metadata: flags & METADATA != 0,
            ahead: flags & AHEAD != 0,
            process: index_or_none(asked.number()?)?,
        });
    }
    Ok(requests)
}

fn slices(columns: [Cursor<'_>; 4], trace: &Trace) -> Result<Vec<Slice>, String> {
    let [mut from, mut length, mut doing, mut thread] = columns;
    let mut slices = table("slices of threads", &from, limits::SLICES)?;
    let mut clock = Clock::default();
    while from.more() {
        let from_ns = clock.take(&mut from)?;
        let to_ns = end(from_ns, length.number()?)?;
        let number = doing.number()?;
        let process = number / STATES.len() as u64;
        let pid = usize::try_from(process)
            .ok()
            .and_then(|at| trace.processes.get(at));
        let pid = pid.ok_or_else(|| format!("slice {} is of a process that is not listed", slices.len()))?;
        slices.push(Slice {
            from_ns,
            to_ns,
            process: process as u32,
            thread: u32::try_from(thread.step(pid.pid.into())?).map_err(|_| "a thread is out of range")?,
            state: value_at(&STATES, number % STATES.len() as u64)?,
        });
    }
    Ok(slices)
}

fn processors(columns: [Cursor<'_>; 2]) -> Result<Vec<BusySample>, String> {
    let [mut looked, mut busy] = columns;
    let mut processors = table("samples of processors", &looked, limits::SAMPLES)?;
    let mut clock = Clock::default();
    while looked.more() {
        processors.push(BusySample {
            time_ns: clock.take(&mut looked)?,
            busy: f32::from_bits(busy.small()?),
        });
    }
    Ok(processors)
}

fn memory(columns: [Cursor<'_>; 4]) -> Result<Vec<MemorySample>, String> {
    let [mut sampled, mut free, mut cache, mut dirty] = columns;
    let mut memory: Vec<MemorySample> = table("samples of memory", &sampled, limits::SAMPLES)?;
    let mut clock = Clock::default();
    while sampled.more() {
        let before = memory
            .last()
            .map_or([0; 3], |sample| [sample.free, sample.page_cache, sample.dirty]);
        memory.push(MemorySample {
            time_ns: clock.take(&mut sampled)?,
            free: free.step(before[0])?,
            page_cache: cache.step(before[1])?,
            dirty: dirty.step(before[2])?,
        });
    }
    Ok(memory)
}

fn devices(columns: [Cursor<'_>; 4]) -> Result<Vec<BlockDevice>, String> {
    let [mut major, mut minor, mut size, mut name] = columns;
    let mut devices = table("block devices", &major, limits::BLOCK_DEVICES)?;
    while major.more() {
        let text = name.text()?;
        bounded("bytes of a block device's name", text.len(), limits::BLOCK_NAME)?;
        devices.push(BlockDevice {
            major: major.small()?,
            minor: minor.small()?,
            name: String::from_utf8(text.to_vec()).map_err(|_| "the name of a block device is no text")?,
            sectors: size.number()?,
        });
    }
    Ok(devices)
}

/// An index that may be none.
fn index_or_none(number: u64) -> Result<Option<u32>, String> {
    match number.checked_sub(1) {
        None => Ok(None),
        Some(index) => u32::try_from(index)
            .map(Some)
            .map_err(|_| format!("{index} is out of range")),
    }
}

/// Whether a trace has room for so many requests and slices beside its other rows.
fn rows(trace: &Trace, requests: usize, slices: usize) -> Result<(), String> {
    let rows = trace.rows() + 2 * requests + slices;
    bounded(
        "rows beside ACTV, all but slices counted twice",
        rows,
        limits::ROWS,
    )
}

/// Whether every index leads somewhere, and every value is in its range and its order.
pub(super) fn check(activity: &Activity, trace: &Trace) -> Result<(), String> {
    for (what, rows, most) in [
        ("block requests", activity.requests.len(), limits::REQUESTED),
        ("slices of threads", activity.slices.len(), limits::SLICES),
        (
            "samples of processors",
            activity.processors.len(),
            limits::SAMPLES,
        ),
        ("samples of memory", activity.memory.len(), limits::SAMPLES),
        ("block devices", activity.devices.len(), limits::BLOCK_DEVICES),
    ] {
        bounded(what, rows, most)?;
    }
    rows(trace, activity.requests.len(), activity.slices.len())?;
    let processes = trace.processes.len() as u64;
    for (index, device) in activity.devices.iter().enumerate() {
        let bytes = device.name.len();
        bounded("bytes of a block device's name", bytes, limits::BLOCK_NAME)?;
        if device.name.contains('\0') {
            return Err(format!("block device {index} has a NUL in its name"));
        }
    }
    for (index, request) in activity.requests.iter().enumerate() {
        if request.device as usize >= activity.devices.len()
            || request
                .process
                .is_some_and(|process| u64::from(process) >= processes)
        {
            return Err(format!(
                "block request {index} is of a device or a process that is not listed"
            ));
        }
        if request.completed_ns.is_some_and(|at| at < request.issued_ns) {
            return Err(format!("block request {index} was answered before it was issued"));
        }
        let sectors = request.sector.checked_add(request.sectors.into());
        if sectors.is_none_or(|end| end > i64::MAX as u64 / 512) {
            return Err(format!("block request {index} is beyond the largest device"));
        }
    }
    for (index, slice) in activity.slices.iter().enumerate() {
        if u64::from(slice.process) >= processes {
            return Err(format!("slice {index} is of a process that is not listed"));
        }
        if slice.to_ns < slice.from_ns {
            return Err(format!("slice {index} ends before it begins"));
        }
    }
    if let Some(at) = activity
        .processors
        .iter()
        .position(|sample| !(0.0..=1.0).contains(&sample.busy))
    {
        return Err(format!("sample {at} of the processors is no share"));
    }
    for (what, ordered) in [
        (
            "block requests",
            activity.requests.is_sorted_by_key(|request| request.issued_ns),
        ),
        (
            "slices of threads",
            activity.slices.is_sorted_by_key(|slice| slice.from_ns),
        ),
        (
            "samples of processors",
            activity.processors.is_sorted_by_key(|sample| sample.time_ns),
        ),
        (
            "samples of memory",
            activity.memory.is_sorted_by_key(|sample| sample.time_ns),
        ),
    ] {
        if !ordered {
            return Err(format!("the {what} are not in order of time"));
        }
    }
    Ok(())
}
