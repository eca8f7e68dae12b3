//! The records of the ring buffer (events.h) and the events they stand for.

use crate::kernel::event::{
    Dev, Event, Exec, FileSeen, Fork, Location, LookupSeen, MetadataSeen, Place, RanSeen, RequestSeen,
    UseSeen,
};
use headstart_model::PageRange;
use headstart_model::activity::{RequestKind, ThreadState};
use headstart_model::trace::{LookupKind, UseKind};
use zerocopy::{FromBytes, Immutable, KnownLayout};

const USE: u8 = 1;
const METADATA: u8 = 2;
const FORK: u8 = 3;
const EXIT: u8 = 4;
const FILE: u8 = 5;
const EXEC: u8 = 6;
const LOOKUP: u8 = 7;
const RAN: u8 = 8;
const REQUEST: u8 = 9;
const START: u8 = 10;

const BY_SOME_NAME: u8 = 1;

const FOUND: u8 = 1;
const HAS_BASE: u8 = 2;
const HAS_ROOT: u8 = 4;

const METADATA_REQUEST: u8 = 1;
const AHEAD: u8 = 2;

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    kind_of_record: u8,
    kind: u8,
    flags: u8,
    whose: u8,
    pid: u32,
    time_ns: u64,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct UseRecord {
    file: u64,
    start: u64,
    pages: u32,
    touched: u32,
    mapped_from: u64,
    mapped_pages: u64,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct MetadataRecord {
    start: u64,
    dev: u32,
    pages: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct ForkRecord {
    child: u32,
    _unused: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct PlaceRecord {
    dev: u32,
    mount: u32,
    length: u32,
    whole: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct FileRecord {
    id: u64,
    inode: u64,
    size: u64,
    mtime_ns: i64,
    generation: u32,
    mode: u32,
    place: PlaceRecord,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RanRecord {
    from_ns: u64,
    until_ns: u64,
    thread: u32,
    _unused: u32,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct RequestRecord {
    issued_ns: u64,
    sector: u64,
    sectors: u32,
    dev: u32,
}

/// `struct thread` of sched_slices.h.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct ThreadEntry {
    from_ns: u64,
    until_ns: u64,
    id: u32,
    waits: u32,
    process: u32,
    thread: u32,
}

/// `struct asked` of block_rq.h.
#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct AskedEntry {
    request: RequestRecord,
    process: u32,
    kind: u8,
    flags: u8,
    _unused: u16,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct LookupRecord {
    length: u32,
    uid: u32,
    base: PlaceRecord,
    root: PlaceRecord,
}

/// What a record of scope watch says.
pub(crate) enum Watched {
    /// A start has begun.
    Start(StartSeen),
    /// A process of the start in this slot has ended, with this status.
    Exit {
        slot: u8,
        time_ns: u64,
        pid: u32,
        status: i32,
    },
    /// Something else of the start in this slot.
    Event(u8, Event),
}

/// A start has begun: a process runs an executable.
pub(crate) struct StartSeen {
    pub number: u32,
    /// The start that the process belonged to; 0 if there is none.
    pub before: u32,
    /// Whether the process has left that start; if not, nothing was answered about that one then.
    pub apart: bool,
    pub program: u64,
    pub ignored: u64,
    pub executable: u64,
    pub file: u64,
    /// The process's parent, 0 where that is in no namespace that this process sees.
    pub parent: u32,
    pub exec: Exec,
    /// Its arguments, with a NUL behind each, as far as they are told.
    pub arguments: Vec<u8>,
}

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct StartRecord {
    program: u64,
    ignored: u64,
    executable: u64,
    file: u64,
    start: u32,
    before: u32,
    apart: u32,
    arguments: u32,
    parent: u32,
    zero: u32,
    place: PlaceRecord,
}

/// What a record of scope watch says, or `None` for one that this version does not know.
pub(super) fn decode_watched(record: &[u8]) -> Option<Watched> {
    let (head, rest) = Head::ref_from_prefix(record).ok()?;
    let (slot, time_ns, pid) = (head.whose, head.time_ns, head.pid);
    Some(match head.kind_of_record {
        START => {
            let (r, names) = StartRecord::ref_from_prefix(rest).ok()?;
            let (executable, rest) = place(&r.place, names)?;
            Watched::Start(StartSeen {
                number: r.start,
                before: r.before,
                apart: r.apart != 0,
                program: r.program,
                ignored: r.ignored,
                executable: r.executable,
                file: r.file,
                parent: r.parent,
                exec: Exec {
                    time_ns,
                    pid,
                    executable,
                },
                arguments: rest.get(..r.arguments as usize)?.to_vec(),
            })
        }
        EXIT => Watched::Exit {
            slot,
            time_ns,
            pid,
            status: i32::from_ne_bytes(rest.get(..4)?.try_into().ok()?),
        },
        _ => Watched::Event(slot, decode_of(record, 0)?),
    })
}

/// The event of a record, or `None` for one that this version does not know.
pub(super) fn decode(record: &[u8]) -> Option<Event> {
    let (head, _) = Head::ref_from_prefix(record).ok()?;
    decode_of(record, head.whose)
}

/// The same, of this group of users.
fn decode_of(record: &[u8], user: u8) -> Option<Event> {
    let (head, rest) = Head::ref_from_prefix(record).ok()?;
    let (time_ns, pid) = (head.time_ns, head.pid);
    Some(match head.kind_of_record {
        USE => {
            let (r, _) = UseRecord::ref_from_prefix(rest).ok()?;
            let last = r.start.checked_add(u64::from(r.pages.checked_sub(1)?))?;
            let kind = match head.kind {
                0 => UseKind::Read,
                1 => UseKind::Map,
                2 => UseKind::Fault,
                3 => UseKind::Add,
                _ => return None,
            };
            // The programs cut at the end of the file.
            Event::Use(UseSeen {
                time_ns,
                pid,
                file: r.file,
                start: r.start,
                last,
                size: u64::MAX,
                user,
                kind,
                touched: match r.touched {
                    0 => None,
                    nth => Some(
                        r.start
                            .checked_add(u64::from(nth) - 1)
                            .filter(|page| *page <= last)?,
                    ),
                },
                mapped: match r.mapped_pages {
                    0 => None,
                    pages => Some(PageRange::new(r.mapped_from, pages)),
                },
            })
        }
        METADATA => {
            let (r, _) = MetadataRecord::ref_from_prefix(rest).ok()?;
            Event::Metadata(MetadataSeen {
                time_ns,
                dev: Dev::from_kernel(r.dev),
                start: r.start,
                pages: r.pages,
            })
        }
        FORK => {
            let (r, _) = ForkRecord::ref_from_prefix(rest).ok()?;
            Event::Fork(Fork {
                time_ns,
                parent: pid,
                pid: r.child,
            })
        }
        EXIT => Event::Exit { time_ns, pid },
        FILE => {
            let (r, names) = FileRecord::ref_from_prefix(rest).ok()?;
            Event::File(FileSeen {
                id: r.id,
                place: place(&r.place, names)?.0,
                inode: r.inode,
                generation: r.generation,
                size: r.size,
                user,
                by_some_name: head.flags & BY_SOME_NAME != 0,
                mtime_ns: r.mtime_ns,
                mode: r.mode,
            })
        }
        EXEC => {
            let (r, names) = PlaceRecord::ref_from_prefix(rest).ok()?;
            Event::Exec(Exec {
                time_ns,
                pid,
                executable: place(r, names)?.0,
            })
        }
        LOOKUP => {
            let (r, rest) = LookupRecord::ref_from_prefix(rest).ok()?;
            let (path, mut rest) = rest.split_at_checked(r.length as usize)?;
            let mut optional = |flag, record| {
                if head.flags & flag == 0 {
                    return Some(None);
                }
                let (place, after) = place(record, rest)?;
                rest = after;
                Some(Some(place))
            };
            Event::Lookup(LookupSeen {
                time_ns,
                pid,
                path: path.strip_suffix(b"\0").unwrap_or(path).to_vec(),
                base: optional(HAS_BASE, &r.base)?,
                root: optional(HAS_ROOT, &r.root)?,
                kind: match head.kind {
                    0 => LookupKind::Open,
                    1 => LookupKind::Stat,
                    2 => LookupKind::Link,
                    3 => LookupKind::List,
                    _ => return None,
                },
                found: head.flags & FOUND != 0,
                uid: r.uid,
            })
        }
        RAN => {
            let (r, _) = RanRecord::ref_from_prefix(rest).ok()?;
            Event::Ran(RanSeen {
                time_ns,
                pid,
                thread: r.thread,
                from_ns: r.from_ns,
                until_ns: r.until_ns,
                then: waits(head.kind),
            })
        }
        REQUEST => {
            let (r, _) = RequestRecord::ref_from_prefix(rest).ok()?;
            Event::Request(request(r, Some(time_ns), pid, head.kind, head.flags)?)
        }
        _ => return None,
    })
}

/// What a thread waits for, as the programs say it.
fn waits(kind: u8) -> Option<ThreadState> {
    match kind {
        1 => Some(ThreadState::WaitingForDisk),
        2 => Some(ThreadState::Sleeping),
        _ => None,
    }
}

fn request(
    record: &RequestRecord,
    completed_ns: Option<u64>,
    pid: u32,
    kind: u8,
    flags: u8,
) -> Option<RequestSeen> {
    Some(RequestSeen {
        issued_ns: record.issued_ns,
        completed_ns,
        dev: Dev::from_kernel(record.dev),
        sector: record.sector,
        sectors: record.sectors,
        kind: match kind {
            0 => RequestKind::Read,
            1 => RequestKind::Write,
            2 => RequestKind::Discard,
            3 => RequestKind::Flush,
            4 => RequestKind::Other,
            _ => return None,
        },
        metadata: flags & METADATA_REQUEST != 0,
        ahead: flags & AHEAD != 0,
        pid: (pid != 0).then_some(pid),
    })
}

/// What an entry of the map `threads` says of a thread that has not ended at `now_ns`; `None` for one of
/// nobody.
pub(super) fn unfinished_thread(entry: &[u8], now_ns: u64) -> Option<Event> {
    let (thread, _) = ThreadEntry::ref_from_prefix(entry).ok()?;
    let runs = thread.until_ns == 0;
    (thread.id != 0).then_some(Event::Ran(RanSeen {
        time_ns: now_ns,
        pid: thread.process,
        thread: thread.thread,
        from_ns: thread.from_ns,
        until_ns: if runs { now_ns } else { thread.until_ns },
        then: u8::try_from(thread.waits).ok().filter(|_| !runs).and_then(waits),
    }))
}

/// What an entry of the map `in_flight` says of a request that was not answered.
pub(super) fn unanswered_request(entry: &[u8]) -> Option<Event> {
    let (asked, _) = AskedEntry::ref_from_prefix(entry).ok()?;
    request(&asked.request, None, asked.process, asked.kind, asked.flags).map(Event::Request)
}

/// A place and what follows its names.
fn place<'a>(record: &PlaceRecord, rest: &'a [u8]) -> Option<(Place, &'a [u8])> {
    let (names, rest) = rest.split_at_checked(record.length as usize)?;
    let location = if record.whole != 0 {
        Location::Within(path(names))
    } else {
        Location::Unknown
    };
    let mount = (record.mount != 0).then_some(record.mount);
    Some((
        Place {
            dev: Dev::from_kernel(record.dev),
            location,
            mount,
        },
        rest,
    ))
}

/// Names from the last to the first, each with a NUL behind it, as an absolute path.
fn path(names: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(names.len() + 1);
    for name in names.split(|b| *b == 0).rev().filter(|name| !name.is_empty()) {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_the_last_to_the_first_make_a_path() {
        assert_eq!(path(b"c\0b\0a\0"), b"/a/b/c");
        assert_eq!(path(b""), b"/");
    }

    #[test]
    fn a_cut_record_is_no_event() {
        let mut record = vec![0u8; 16 + 8 + 32];
        record[0] = LOOKUP;
        record[16] = 1;
        assert!(decode(&record).is_none(), "a path of one byte that is not there");
        record.push(0);
        assert!(matches!(decode(&record), Some(Event::Lookup(_))));
        for length in 0..record.len() {
            assert!(decode(&record[..length]).is_none());
        }
    }
}
