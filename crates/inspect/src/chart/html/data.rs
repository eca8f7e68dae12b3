//! What the page's script draws, as one JSON document: added up by slots of time, as many as there is room
//! for.

use super::columns::{repeats, shared, steps};
use crate::chart::bins::{place, sampled};
use crate::chart::layout::{GUTTER, LINE, Layout, ROW};
use crate::chart::picture::{Device, Dot, Kind, Picture, Run, SERVICES};
use crate::chart::text::script;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// The document.
#[derive(Serialize)]
struct Document<'a> {
    span: u64,
    layout: &'a Layout,
    gutter: usize,
    row: usize,
    line: usize,
    /// Intervals of the whole span in each series; a series ends with its last sample.
    intervals: usize,
    /// Classes of services and of requests, by their number.
    services: Vec<(&'static str, &'static str)>,
    kinds: Vec<(&'static str, &'static str)>,
    runs: Vec<RunData<'a>>,
}

#[derive(Serialize)]
struct RunData<'a> {
    title: &'a str,
    facts: &'a [String],
    notes: &'a [String],
    end: u64,
    page: u32,
    floor: Option<FloorData<'a>>,
    marks: &'a [(u64, String)],
    processes: ProcessData,
    files: FileData<'a>,
    devices: Vec<DeviceData<'a>>,
    cpu: Series,
    memory: [Series; 3],
}

#[derive(Serialize)]
struct FloorData<'a> {
    ns: u64,
    causes: &'a [(String, u64)],
}

/// Values in equal intervals, as shares of `most` in parts of [`PARTS`].
#[derive(Serialize)]
struct Series {
    most: f64,
    values: Vec<u32>,
}

const PARTS: f64 = 500.0;

#[derive(Serialize)]
struct ProcessData {
    slots: usize,
    slices: bool,
    folded: usize,
    rows: Vec<RowData>,
}

#[derive(Serialize)]
struct RowData {
    label: String,
    path: String,
    from: u64,
    to: u64,
    parent: Option<u32>,
    /// By slot, ten times the share that it ran and the share that it waited, in ninths; as repeats.
    shares: Vec<u64>,
}

#[derive(Serialize)]
struct FileData<'a> {
    slots: usize,
    /// All files; a row stands for `per` of them.
    count: usize,
    per: usize,
    /// Shared with the one before, and the rest; empty where there was no room.
    names: Vec<(usize, &'a str)>,
    /// Of each cell: slot and row as steps, service and process row as repeats, pages.
    times: Vec<i64>,
    rows: Vec<i64>,
    services: Vec<u64>,
    processes: Vec<u64>,
    pages: Vec<u64>,
}

#[derive(Serialize)]
struct DeviceData<'a> {
    name: &'a str,
    first: u64,
    end: u64,
    read: Series,
    written: Series,
    busy: Series,
    depth: Series,
    slots: usize,
    /// Parts that the addresses are told in.
    lines: usize,
    /// Of each cell in the order in which they were asked for: slot as steps, place, kind as repeats.
    times: Vec<i64>,
    places: Vec<i64>,
    kinds: Vec<u64>,
    /// Instead of cells, where there are too many: of each place of each slot which kinds there were, a bit
    /// each, as a hexadecimal digit.
    grid: String,
}

/// The document in about so many bytes, as it stands in a script element.
pub fn document(picture: &Picture<'_>, layout: &Layout, room: usize) -> String {
    let room = Room {
        bytes: room / picture.runs.len().max(1),
    };
    let document = Document {
        span: picture.span_ns,
        layout,
        gutter: GUTTER,
        row: ROW,
        line: LINE,
        intervals: room.intervals(),
        services: SERVICES.iter().map(|(_, class, name)| (*class, *name)).collect(),
        kinds: Kind::ALL.iter().map(|(_, class, name)| (*class, *name)).collect(),
        runs: picture
            .runs
            .iter()
            .map(|run| RunData::new(run, picture, &room))
            .collect(),
    };
    script(&json(&document))
}

/// What serializes here are numbers and texts: nothing that could fail.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".into())
}

/// How much of the page a run may take, and its parts of that.
struct Room {
    bytes: usize,
}

impl Room {
    fn share(&self, percent: usize) -> usize {
        self.bytes / 100 * percent
    }

    /// Intervals of each series, of which there are at most a dozen of four bytes a value.
    fn intervals(&self) -> usize {
        (self.share(13) / 48).clamp(64, 4096)
    }
}

impl<'a> RunData<'a> {
    fn new(run: &'a Run<'a>, picture: &Picture<'_>, room: &Room) -> RunData<'a> {
        let span = picture.span_ns;
        let count = room.intervals();
        let memory = |value: fn(&headstart_model::activity::MemorySample) -> u64| {
            let samples = run
                .memory
                .iter()
                .map(|sample| (sample.time_ns, value(sample) as f64));
            Series::new(&sampled(span, count, samples), picture.most_memory())
        };
        let busy = run
            .processors
            .iter()
            .map(|sample| (sample.time_ns, f64::from(sample.busy)));
        RunData {
            title: &run.title,
            facts: &run.facts,
            notes: &run.notes,
            end: run.end_ns,
            page: run.page_size,
            floor: run.floor.as_ref().map(|floor| FloorData {
                ns: floor.ns,
                causes: &floor.causes,
            }),
            marks: &run.marks,
            processes: processes(run, span, room.share(14)),
            files: files(run, span, room),
            devices: (run.devices.iter().enumerate())
                .map(|(index, device)| {
                    let share = room.share(15) / run.devices.len();
                    DeviceData::new(device, picture, index, count, share)
                })
                .collect(),
            cpu: Series::new(&sampled(span, count, busy), 1.0),
            memory: [
                memory(|sample| sample.page_cache),
                memory(|sample| sample.dirty),
                memory(|sample| sample.free),
            ],
        }
    }
}

impl Series {
    fn new(values: &[f64], most: f64) -> Series {
        let part = |value: &f64| {
            let parts = (value / most.max(1e-9)).clamp(0.0, 1.0) * PARTS;
            // What is there is seen.
            if *value > 0.0 { parts.max(1.0) as u32 } else { 0 }
        };
        Series {
            most,
            values: values.iter().map(part).collect(),
        }
    }
}

fn processes(run: &Run<'_>, span: u64, room: usize) -> ProcessData {
    let mut slots = 16_384;
    loop {
        let data = ProcessData {
            slots,
            slices: run.processes.has_slices,
            folded: run.processes.folded,
            rows: run
                .processes
                .rows
                .iter()
                .map(|row| row_data(row, span, slots))
                .collect(),
        };
        if slots <= 64 || script(&json(&data)).len() <= room {
            return data;
        }
        slots /= 2;
    }
}

fn row_data(row: &crate::chart::picture::Row, span: u64, slots: usize) -> RowData {
    let ninths = |share: f64| match share > 0.0 {
        true => (share * 9.0).round().clamp(1.0, 9.0) as u64,
        false => 0,
    };
    let shares = row.shares(span, slots).into_iter();
    let shares = shares.map(|(run, wait)| ninths(run) * 10 + ninths(wait));
    RowData {
        label: row.label(),
        path: row.path.clone(),
        from: row.from_ns,
        to: row.to_ns,
        parent: row.parent,
        shares: repeats(shares),
    }
}

/// First uses of one kind of one row in one slot.
struct Cell {
    slot: usize,
    row: usize,
    dot: Dot,
    pages: u64,
}

fn cells(run: &Run<'_>, span: u64, slots: usize, per: usize) -> Vec<Cell> {
    let mut cells: BTreeMap<(usize, usize, usize), Cell> = BTreeMap::new();
    for dot in &run.files.dots {
        let (slot, row) = (place(dot.time_ns, span, slots), dot.row as usize / per);
        let cell = cells.entry((slot, row, dot.service as usize)).or_insert(Cell {
            slot,
            row,
            dot: *dot,
            pages: 0,
        });
        cell.pages += dot.pages;
    }
    cells.into_values().collect()
}

fn files<'a>(run: &'a Run<'a>, span: u64, room: &Room) -> FileData<'a> {
    /// More rows than any screen has lines.
    const ROWS: usize = 16_384;
    let rows = &run.files.rows;
    let mut per = rows.len().div_ceil(ROWS).max(1);
    let mut slots = 65_536;
    let row_of = |process: u32| run.processes.row_of.get(process as usize).copied();
    loop {
        let cells = cells(run, span, slots, per);
        let mut data = FileData {
            slots,
            count: rows.len(),
            per,
            names: Vec::new(),
            times: steps(cells.iter().map(|cell| cell.slot as i64)),
            rows: steps(cells.iter().map(|cell| cell.row as i64)),
            services: repeats(cells.iter().map(|cell| cell.dot.service as u64)),
            // One more, so that 0 is nobody.
            processes: repeats(
                cells
                    .iter()
                    .map(|cell| row_of(cell.dot.process).map_or(0, |row| u64::from(row) + 1)),
            ),
            pages: cells.iter().map(|cell| cell.pages).collect(),
        };
        if json(&data).len() > room.share(40) && slots.max(per) > 64 && cells.len() > 64 {
            // Both ways alike, until slots are as wide as a pixel; a lane has less lines than a column has
            // pixels.
            match slots > 2048 || slots > 3 * rows.len() / per {
                true => slots = slots * 3 / 4,
                false => per += per.div_ceil(3),
            }
            continue;
        }
        data.names = names(run, per, room.share(16));
        return data;
    }
}

/// The names of the rows, as many as there is room for, those of which most was used first.
fn names<'a>(run: &'a Run<'a>, per: usize, room: usize) -> Vec<(usize, &'a str)> {
    let rows: Vec<_> = run.files.rows.chunks(per).map(|files| &files[0]).collect();
    let mut kept: Vec<&str> = rows.iter().map(|row| row.path.as_str()).collect();
    let whole = shared(kept.iter().copied());
    if script(&json(&whole)).len() <= room {
        return whole;
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(rows[*index].pages));
    // A name that is left out still takes an entry.
    const EMPTY: usize = 8;
    let mut left = room.saturating_sub(rows.len() * EMPTY);
    for index in order {
        let cost = script(&json(&kept[index])).len() + EMPTY;
        match left.checked_sub(cost) {
            Some(rest) => left = rest,
            None => kept[index] = "",
        }
    }
    shared(kept.into_iter())
}

impl<'a> DeviceData<'a> {
    fn new(
        device: &'a Device<'a>,
        picture: &Picture<'_>,
        index: usize,
        count: usize,
        room: usize,
    ) -> DeviceData<'a> {
        let span = picture.span_ns;
        let rates = device.rates(span, count);
        let (bytes, depth) = picture.most_rates(index, count);
        let (first, end) = picture.sectors(index);
        let mut data = DeviceData {
            name: &device.name,
            first,
            end,
            read: Series::new(&rates.read, bytes),
            written: Series::new(&rates.written, bytes),
            busy: Series::new(&rates.busy, 1.0),
            depth: Series::new(&rates.depth, depth),
            slots: 32_768,
            lines: 512,
            times: Vec::new(),
            places: Vec::new(),
            kinds: Vec::new(),
            grid: String::new(),
        };
        while data.slots >= 2048 {
            let cells = map(device, span, data.slots, first..end, data.lines);
            data.times = steps(cells.iter().map(|cell| cell.0 as i64));
            data.places = cells.iter().map(|cell| cell.1 as i64).collect();
            data.kinds = repeats(cells.iter().map(|cell| cell.2 as u64));
            if json(&data.times).len() + json(&data.places).len() + json(&data.kinds).len() <= room {
                return data;
            }
            data.slots /= 2;
        }
        // More than can be told one by one.
        (data.lines, data.slots) = (96, (room / 96).clamp(16, 1024));
        let mut grid = vec![0u8; data.slots * data.lines];
        for (slot, line, kind) in map(device, span, data.slots, first..end, data.lines) {
            grid[slot * data.lines + line] |= 1 << kind;
        }
        let digits = grid
            .into_iter()
            .filter_map(|mask| char::from_digit(mask.into(), 16));
        data.grid = digits.collect();
        (data.times, data.places, data.kinds) = (Vec::new(), Vec::new(), Vec::new());
        data
    }
}

/// Slot, place and kind of requests in the order in which they were issued, each that differs from those
/// before it in its slot.
fn map(
    device: &Device<'_>,
    span: u64,
    slots: usize,
    sectors: Range<u64>,
    lines: usize,
) -> Vec<(usize, usize, usize)> {
    let mut marks = Vec::new();
    let (mut slot, mut seen) = (usize::MAX, std::collections::BTreeSet::new());
    for request in device.placed() {
        let now = place(request.issued_ns, span, slots);
        if now != slot {
            seen.clear();
            slot = now;
        }
        let line = place(
            request.sector - sectors.start,
            (sectors.end - sectors.start).max(1),
            lines,
        );
        let kind = Kind::from_request(request) as usize;
        if seen.insert((line, kind)) {
            marks.push((slot, line, kind));
        }
    }
    marks
}
