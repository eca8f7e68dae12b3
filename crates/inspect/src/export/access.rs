//! The table of accesses: its columns, and a trace as its rows.

use headstart_model::trace::{LookupKind, Use, UseKind};
use headstart_model::{FilePath, Trace};
use serde::Serialize;
use std::borrow::Cow;
use std::io;

/// The most bytes of the texts of all rows, 256 for each row that a trace may have. Each use names its file
/// anew here: long paths would make gigabytes of a small trace.
const MOST_TEXT: usize = 80 << 20;

/// Refuses a trace of which every row names long paths.
pub(super) fn bounded(trace: &Trace) -> io::Result<()> {
    let length = |path: &FilePath| path.as_bytes().len();
    let files: Vec<usize> = trace.files.iter().map(|file| length(&file.path)).collect();
    let runs: Vec<usize> = trace
        .processes
        .iter()
        .map(|process| length(&process.executable))
        .collect();
    let length_of = |lengths: &[usize], index: u32| lengths.get(index as usize).copied().unwrap_or(0);
    let uses = trace.all_uses();
    let uses = uses.map(|used| length_of(&files, used.file) + length_of(&runs, used.process));
    let lookups = trace.lookups.iter();
    let lookups = lookups.map(|lookup| length(&lookup.path) + length_of(&runs, lookup.process));
    let rows: usize = uses.chain(lookups).sum();
    match rows > MOST_TEXT {
        true => Err(io::Error::other(format!(
            "its rows would name {rows} bytes of paths, {MOST_TEXT} are allowed"
        ))),
        false => Ok(()),
    }
}

/// The names of the columns. A row may be without all but the first two.
pub(super) const COLUMNS: [&str; 13] = [
    "time_ns",
    "what",
    "kind",
    "pid",
    "executable",
    "path",
    "file",
    "major",
    "minor",
    "inode",
    "first_page",
    "pages",
    "found",
];

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum Value<'a> {
    None,
    Text(Cow<'a, str>),
    U64(u64),
    U32(u32),
    Bool(bool),
}

/// A row.
pub(super) type Row<'a> = [Value<'a>; COLUMNS.len()];

/// Which row of the trace stands where.
#[derive(Clone, Copy)]
enum Place {
    Use(Use),
    Lookup(usize),
    Metadata(usize),
}

/// The rows in order of time.
pub(super) fn rows(trace: &Trace) -> impl Iterator<Item = Row<'_>> {
    let lookups = trace.lookups.iter().map(|lookup| lookup.time_ns).enumerate();
    let metadata = trace.metadata.iter().map(|read| read.time_ns).enumerate();
    let mut order: Vec<(u64, Place)> = (trace.all_uses())
        .map(|used| (used.time_ns, Place::Use(used)))
        .chain(lookups.map(|(at, time)| (time, Place::Lookup(at))))
        .chain(metadata.map(|(at, time)| (time, Place::Metadata(at))))
        .collect();
    order.sort_by_key(|(time, _)| *time);
    order.into_iter().map(|(time, place)| row(trace, time, place))
}

fn row(trace: &Trace, time_ns: u64, place: Place) -> Row<'_> {
    let text = |text: &'static str| Value::Text(Cow::Borrowed(text));
    let process = |index: u32| trace.processes.get(index as usize);
    let pid = |index: u32| process(index).map_or(Value::None, |process| Value::U32(process.pid));
    let executable = |index: u32| {
        process(index).map_or(Value::None, |process| {
            Value::Text(String::from_utf8_lossy(process.executable.as_bytes()))
        })
    };
    let mut row: Row<'_> = std::array::from_fn(|_| Value::None);
    row[0] = Value::U64(time_ns);
    match place {
        Place::Use(used) => {
            row[1] = text("use");
            row[2] = text(match used.kind {
                UseKind::Read => "read",
                UseKind::Map => "map",
                UseKind::Fault => "fault",
                UseKind::Add => "add",
                UseKind::Around => "around",
            });
            row[3] = pid(used.process);
            row[4] = executable(used.process);
            if let Some(file) = trace.files.get(used.file as usize) {
                row[5] = Value::Text(String::from_utf8_lossy(file.path.as_bytes()));
                let on = file
                    .filesystem
                    .and_then(|index| trace.filesystems.get(index as usize));
                if let Some(on) = on {
                    (row[7], row[8]) = (Value::U32(on.major), Value::U32(on.minor));
                }
                row[9] = Value::U64(file.inode);
            }
            row[6] = Value::U32(used.file);
            row[10] = Value::U64(used.start);
            row[11] = Value::U32(used.pages);
        }
        Place::Lookup(at) => {
            let lookup = &trace.lookups[at];
            row[1] = text("look-up");
            row[2] = text(match lookup.kind {
                LookupKind::Open => "open",
                LookupKind::Stat => "stat",
                LookupKind::Link => "link",
                LookupKind::List => "list",
            });
            row[3] = pid(lookup.process);
            row[4] = executable(lookup.process);
            row[5] = Value::Text(String::from_utf8_lossy(lookup.path.as_bytes()));
            row[12] = Value::Bool(lookup.found);
        }
        Place::Metadata(at) => {
            let miss = &trace.metadata[at];
            row[1] = text("metadata");
            (row[7], row[8]) = (Value::U32(miss.major), Value::U32(miss.minor));
            row[10] = Value::U64(miss.start);
            row[11] = Value::U32(miss.pages);
        }
    }
    row
}
