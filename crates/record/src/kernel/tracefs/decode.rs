//! Records → what they say: which events are wanted, and the meaning of their bytes by the kernel's format
//! files.

use super::dir::Instance;
use super::format::{Field, Format};
use super::page::PageLayout;
use crate::error::RecordError;
use crate::kernel::event::Dev;
use headstart_model::trace::{Evidence, UseKind};
use std::collections::BTreeSet;

const READ: &str = "filemap/mm_filemap_get_pages";
const MAP: &str = "filemap/mm_filemap_map_pages";
const FAULT: &str = "filemap/mm_filemap_fault";
const ADD: &str = "filemap/mm_filemap_add_to_page_cache";
/// Unlike `sched_process_fork` it says whether the child is a process or a thread.
const NEW_TASK: &str = "task/task_newtask";
const EXEC: &str = "sched/sched_process_exec";
const EXIT: &str = "sched/sched_process_exit";

/// From `include/uapi/linux/sched.h`.
const CLONE_THREAD: u64 = 0x10000;

/// Adds of block-device pages: their file system has an anonymous device number (major 0) and their inode
/// number is that of the device, whose major is not 0.
const BLOCK_DEVICES: &str = "s_dev < 1048576 && i_ino > 1048575";

/// Adds on loop devices (major 7): what is mounted of one that nobody has mounted yet may be a file system of
/// [`Inodes::told_by_adds`](super::inodes::Inodes::told_by_adds).
const LOOP_DEVICES: &str = "s_dev >= 7340032 && s_dev < 8388608";

/// Devices that are named to the kernel at a time; a filter fits a page of memory.
const DEVICES: usize = 64;

/// The adds that are wanted where the kernel tells of uses; it drops the others before they take room. Of
/// file systems on `devices` all are.
fn adds(devices: &BTreeSet<Dev>) -> String {
    let named = devices.iter().filter(|dev| dev.major != 7).take(DEVICES);
    let named = named.map(|dev| format!(" || s_dev == {}", dev.major << 20 | dev.minor));
    format!(
        "({BLOCK_DEVICES}) || ({LOOP_DEVICES}){}",
        named.collect::<String>()
    )
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub time_ns: u64,
    /// The thread in whose context it happened.
    pub tid: u32,
    pub what: EventKind,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    /// Pages `start..=last` of an inode were used.
    Pages {
        dev: Dev,
        inode: u64,
        start: u64,
        last: u64,
        kind: UseKind,
    },
    /// `tid` began.
    NewTask { tid: u32, thread: bool },
    /// The process `pid` runs another program.
    Exec { pid: u32, path: Vec<u8> },
    /// The thread ended; `last` if the kernel told whether it was its process's last.
    Exit { last: Option<bool> },
}

/// Where the parts of one kind of event are.
#[derive(Debug)]
enum Shape {
    /// `last` is absent where an event is of one page, `order` where it is not of a power of two.
    Pages {
        kind: UseKind,
        dev: Field,
        inode: Field,
        start: Field,
        last: Option<Field>,
        order: Option<Field>,
    },
    NewTask {
        tid: Field,
        flags: Field,
    },
    Exec {
        pid: Field,
        path: Field,
    },
    Exit {
        last: Option<Field>,
    },
}

/// The decoder for one instance's events.
#[derive(Debug)]
pub(super) struct Decoder {
    kind: Field,
    tid: Field,
    /// By the event's number. A vector, since this is asked for every event.
    shapes: Vec<Option<Shape>>,
    pub pages: PageLayout,
    pub evidence: Evidence,
}

impl Decoder {
    /// Reads the formats of the events that this kernel has, and enables those that are wanted.
    pub fn enable(instance: &Instance, told_by_adds: &BTreeSet<Dev>) -> Result<Decoder, RecordError> {
        let decoder = Decoder::read(instance)?;
        decoder.filter(instance, told_by_adds)?;
        for event in wanted(decoder.evidence) {
            instance.write(&format!("events/{event}/enable"), "1")?;
        }
        Ok(decoder)
    }

    /// Has all adds told of file systems on these devices, beside those of block devices.
    pub fn filter(&self, instance: &Instance, told_by_adds: &BTreeSet<Dev>) -> Result<(), RecordError> {
        match self.evidence {
            Evidence::Uses => instance.write(&format!("events/{ADD}/filter"), &adds(told_by_adds)),
            // All of all file systems are.
            _ => Ok(()),
        }
    }

    /// Reads the formats of the events that this kernel has.
    pub fn read(instance: &Instance) -> Result<Decoder, RecordError> {
        let evidence = match instance.read(&format!("events/{READ}/format")) {
            Ok(_) => Evidence::Uses,
            Err(_) => Evidence::Adds,
        };
        let header = Format::parse(&instance.read("events/header_page")?);
        let pages =
            PageLayout::new(&header).ok_or_else(|| misses("header_page", "timestamp, commit or data"))?;
        let mut decoder = Decoder {
            kind: Field { offset: 0, size: 2 },
            tid: Field { offset: 4, size: 4 },
            shapes: Vec::new(),
            pages,
            evidence,
        };
        for event in wanted(evidence) {
            let format = Format::parse(&instance.read(&format!("events/{event}/format"))?);
            decoder.learn(event, &format)?;
        }
        Ok(decoder)
    }

    fn learn(&mut self, event: &str, format: &Format) -> Result<(), RecordError> {
        let need = |name: &str| format.field(name).ok_or_else(|| misses(event, name));
        // The same in all events.
        self.kind = need("common_type")?;
        self.tid = need("common_pid")?;
        let pages = |kind| -> Result<Shape, RecordError> {
            Ok(Shape::Pages {
                kind,
                dev: need("s_dev")?,
                inode: need("i_ino")?,
                start: need("index")?,
                last: format.field("last_index"),
                order: format.field("order"),
            })
        };
        let shape = match event {
            READ => pages(UseKind::Read)?,
            MAP => pages(UseKind::Map)?,
            FAULT => pages(UseKind::Fault)?,
            ADD => pages(UseKind::Add)?,
            NEW_TASK => Shape::NewTask {
                tid: need("pid")?,
                flags: need("clone_flags")?,
            },
            EXEC => Shape::Exec {
                pid: need("pid")?,
                path: need("filename")?,
            },
            _ => Shape::Exit {
                last: format.field("group_dead"),
            },
        };
        let id = usize::from(format.id.ok_or_else(|| misses(event, "ID"))?);
        if self.shapes.len() <= id {
            self.shapes.resize_with(id + 1, || None);
        }
        self.shapes[id] = Some(shape);
        Ok(())
    }

    /// What a record says; `None` for an event that is not wanted (or too short for its own format, which the
    /// kernel does not write).
    pub fn record(&self, time_ns: u64, bytes: &[u8]) -> Option<Record> {
        let number = |field: &Field| field.number(bytes);
        let what = match self
            .shapes
            .get(usize::try_from(number(&self.kind)?).ok()?)?
            .as_ref()?
        {
            Shape::Pages {
                kind,
                dev,
                inode,
                start,
                last,
                order,
            } => {
                let start = number(start)?;
                let last = match (last, order) {
                    (Some(last), _) => number(last)?,
                    (None, Some(order)) => start.checked_add((1u64 << number(order)?.min(32)) - 1)?,
                    (None, None) => start,
                };
                let dev = Dev::from_kernel(u32::try_from(number(dev)?).ok()?);
                EventKind::Pages {
                    dev,
                    inode: number(inode)?,
                    start,
                    last,
                    kind: *kind,
                }
            }
            Shape::NewTask { tid, flags } => EventKind::NewTask {
                tid: number(tid)? as u32,
                thread: number(flags)? & CLONE_THREAD != 0,
            },
            Shape::Exec { pid, path } => EventKind::Exec {
                pid: number(pid)? as u32,
                path: path.text(bytes)?.to_vec(),
            },
            Shape::Exit { last } => EventKind::Exit {
                last: last.as_ref().and_then(number).map(|n| n != 0),
            },
        };
        Some(Record {
            time_ns,
            tid: number(&self.tid)? as u32,
            what,
        })
    }
}

/// The events that are read, by what tells of uses.
fn wanted(evidence: Evidence) -> &'static [&'static str] {
    match evidence {
        Evidence::Uses => &[READ, MAP, FAULT, ADD, NEW_TASK, EXEC, EXIT],
        _ => &[ADD, NEW_TASK, EXEC, EXIT],
    }
}

fn misses(event: &str, field: &str) -> RecordError {
    RecordError::Unsupported {
        backend: "tracefs",
        feature: format!("the format of {event} has no {field}"),
        way_out: "use --backend bpf",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoder() -> Decoder {
        let header = "field: u64 timestamp;\toffset:0;\tsize:8;\nfield: local_t commit;\toffset:8;\tsize:8;\n\
            field: char data;\toffset:16;\tsize:4080;\n";
        let mut decoder = Decoder {
            kind: Field { offset: 0, size: 2 },
            tid: Field { offset: 4, size: 4 },
            shapes: Vec::new(),
            pages: PageLayout::new(&Format::parse(header)).unwrap(),
            evidence: Evidence::Uses,
        };
        let common = "field:unsigned short common_type;\toffset:0;\tsize:2;\nfield:int common_pid;\toffset:4;\tsize:4;\n";
        let read = "ID: 1\nfield:unsigned long i_ino;\toffset:8;\tsize:8;\nfield:dev_t s_dev;\toffset:16;\tsize:4;\n\
            field:unsigned long index;\toffset:24;\tsize:8;\nfield:unsigned long last_index;\toffset:32;\tsize:8;\n";
        let add = "ID: 2\nfield:unsigned long i_ino;\toffset:8;\tsize:8;\nfield:unsigned long index;\toffset:16;\tsize:8;\n\
            field:dev_t s_dev;\toffset:24;\tsize:4;\nfield:unsigned char order;\toffset:28;\tsize:1;\n";
        decoder
            .learn(READ, &Format::parse(&[common, read].concat()))
            .unwrap();
        decoder
            .learn(ADD, &Format::parse(&[common, add].concat()))
            .unwrap();
        decoder
    }

    fn words(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_ne_bytes()).collect()
    }

    #[test]
    fn pages_are_decoded_with_their_device() {
        let bytes = words(&[1 | 77 << 32, 12, 7 << 20 | 3, 5, 9]);
        let expected = EventKind::Pages {
            dev: Dev { major: 7, minor: 3 },
            inode: 12,
            start: 5,
            last: 9,
            kind: UseKind::Read,
        };
        assert_eq!(
            decoder().record(4, &bytes),
            Some(Record {
                time_ns: 4,
                tid: 77,
                what: expected
            })
        );
    }

    #[test]
    fn an_added_folio_has_two_to_the_order_pages() {
        let bytes = words(&[2, 12, 64, 4 << 32 | 7 << 20]);
        let EventKind::Pages {
            start, last, kind, ..
        } = decoder().record(0, &bytes).unwrap().what
        else {
            panic!()
        };
        assert_eq!((start, last, kind), (64, 79, UseKind::Add));
        // An order that no folio has, and an index at the very end: no overflow.
        assert_eq!(decoder().record(0, &words(&[2, 12, u64::MAX, 255 << 32])), None);
    }

    #[test]
    fn records_that_are_cut_or_foreign_say_nothing() {
        let bytes = words(&[1, 12, 7 << 20, 5, 9]);
        for length in 0..bytes.len() {
            assert_eq!(decoder().record(0, &bytes[..length]), None);
        }
        assert_eq!(decoder().record(0, &words(&[3, 0, 0, 0, 0])), None);
    }

    #[test]
    fn a_format_without_a_needed_field_is_refused_by_name() {
        let error = decoder()
            .learn(EXEC, &Format::parse("ID: 4"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("sched_process_exec") && error.contains("common_type"),
            "{error}"
        );
    }
}
