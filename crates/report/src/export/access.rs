//! The table of accesses, which all exports of tables have: its columns, and a trace as its rows.

use headstart_model::Trace;
use headstart_model::trace::{LookupKind, UseKind};
use std::borrow::Cow;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    U64,
    U32,
    Bool,
}

/// The columns: name, what it holds, and whether a row may be without.
pub(super) const COLUMNS: [(&str, Type, bool); 13] = [
    ("time_ns", Type::U64, false),
    ("what", Type::Text, false),
    ("kind", Type::Text, true),
    ("pid", Type::U32, true),
    ("executable", Type::Text, true),
    ("path", Type::Text, true),
    ("file", Type::U32, true),
    ("major", Type::U32, true),
    ("minor", Type::U32, true),
    ("inode", Type::U64, true),
    ("first_page", Type::U64, true),
    ("pages", Type::U32, true),
    ("found", Type::Bool, true),
];

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    Use(usize),
    Lookup(usize),
    Metadata(usize),
}

/// The rows in order of time.
pub(super) fn rows(trace: &Trace) -> impl Iterator<Item = Row<'_>> {
    let uses = trace.uses.iter().map(|it| it.time_ns).enumerate();
    let lookups = trace.lookups.iter().map(|it| it.time_ns).enumerate();
    let metadata = trace.metadata.iter().map(|it| it.time_ns).enumerate();
    let mut order: Vec<(u64, Place)> = uses
        .map(|(at, time)| (time, Place::Use(at)))
        .chain(lookups.map(|(at, time)| (time, Place::Lookup(at))))
        .chain(metadata.map(|(at, time)| (time, Place::Metadata(at))))
        .collect();
    order.sort_by_key(|(time, _)| *time);
    order.into_iter().map(|(time, place)| row(trace, time, place))
}

fn row(trace: &Trace, time_ns: u64, place: Place) -> Row<'_> {
    let text = |text: &'static str| Value::Text(Cow::Borrowed(text));
    let process = |index: u32| trace.processes.get(index as usize);
    let pid = |index: u32| process(index).map_or(Value::None, |it| Value::U32(it.pid));
    let executable = |index: u32| {
        process(index).map_or(Value::None, |it| {
            Value::Text(String::from_utf8_lossy(it.executable.as_bytes()))
        })
    };
    let mut row: Row<'_> = std::array::from_fn(|_| Value::None);
    row[0] = Value::U64(time_ns);
    match place {
        Place::Use(at) => {
            let used = &trace.uses[at];
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
