//! The records of the ring buffer (events.h) and the events they stand for.

use crate::event::{Dev, Event, Exec, FileSeen, Fork, Location, LookupSeen, MetadataSeen, Place, UseSeen};
use headstart_model::PageRange;
use headstart_model::trace::{LookupKind, UseKind};
use zerocopy::{FromBytes, Immutable, KnownLayout};

const USE: u8 = 1;
const METADATA: u8 = 2;
const FORK: u8 = 3;
const EXIT: u8 = 4;
const FILE: u8 = 5;
const EXEC: u8 = 6;
const LOOKUP: u8 = 7;

const FOUND: u8 = 1;
const HAS_BASE: u8 = 2;
const HAS_ROOT: u8 = 4;

#[derive(FromBytes, KnownLayout, Immutable)]
#[repr(C)]
struct Head {
    kind_of_record: u8,
    kind: u8,
    flags: u8,
    _unused: u8,
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
struct LookupRecord {
    length: u32,
    uid: u32,
    base: PlaceRecord,
    root: PlaceRecord,
}

/// The event of a record, or `None` for one that this version does not know.
pub(super) fn decode(record: &[u8]) -> Option<Event> {
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
        _ => return None,
    })
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
