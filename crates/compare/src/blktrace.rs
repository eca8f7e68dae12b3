//! Files of blktrace(8), as the kernel's include/uapi/linux/blktrace_api.h describes them: one file a processor, each a row of
//! events of 48 bytes, of which some have data behind them.
//!
//! What a device read is what was given to its driver (`D`). Devices without a queue of requests, such as those of the device
//! mapper, have no such event: of them what was completed (`C`) counts, or else what was asked (`Q`).

use headstart_model::blocks::{BlockRead, SECTOR};
use headstart_model::limits;
use headstart_model::machine::ByteRange;
use std::collections::{HashMap, HashSet};
use std::io::{self, Read};

/// `BLK_IO_TRACE_MAGIC`, above the version.
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
/// Bytes of `struct blk_io_trace`.
const EVENT: usize = 48;

/// `enum blktrace_act`, of which `__BLK_TA_CGROUP` is a flag.
const QUEUE: u32 = 1;
const REQUEUE: u32 = 6;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;
const CGROUP: u32 = 1 << 8;
/// `enum blktrace_cat`, in the upper half of the action.
const READ: u32 = 1 << 16;
const WRITE: u32 = 1 << 17;
/// Commands of a packet, whose sectors say nothing.
const PACKET: u32 = 1 << 25;
const NOTIFY: u32 = 1 << 26;
/// `__BLK_TN_TIMESTAMP`: the wall clock, as seconds and nanoseconds.
const TIMESTAMP: u32 = 1;
/// Bits of a device's minor number.
const MINOR_BITS: u32 = 20;

/// Why files of blktrace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BlktraceError {
    /// It is something else.
    #[error(
        "{name} is no file of blktrace: it begins with {found:02x?}; give those that `blktrace -o NAME` wrote, NAME.blktrace.0 and so on"
    )]
    NoBlktrace {
        /// Of the file.
        name: String,
        /// The first bytes.
        found: [u8; 4],
    },
    /// The kernel wrote another version.
    #[error("{name} is of version {found} of blktrace's events, {VERSION} can be read")]
    Version {
        /// Of the file.
        name: String,
        /// Its version.
        found: u32,
    },
    /// An event is cut off or is none.
    #[error("{name} is damaged at byte {at}: {what}; record it again")]
    Damaged {
        /// Of the file.
        name: String,
        /// Where.
        at: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// There is more than is read.
    #[error(
        "{name}: there are more than {most} {what}: trace less, `blktrace -a read` or for a shorter time"
    )]
    TooMuch {
        /// Of the file.
        name: String,
        /// How many would be read.
        most: usize,
        /// What.
        what: &'static str,
    },
    /// It cannot be read.
    #[error("cannot read {name}: {source}")]
    Io {
        /// Of the file.
        name: String,
        /// The system's error.
        source: io::Error,
    },
}

/// An event of a read.
#[derive(Clone, Copy, Debug)]
struct Event {
    /// The kernel's monotonic clock.
    time: u64,
    sequence: u32,
    action: u32,
    device: u32,
    sector: u64,
    bytes: u32,
    process: u32,
}

/// The events of some files, in the making.
#[derive(Default)]
pub struct Reader {
    events: Vec<Event>,
    bytes: u64,
    /// The wall clock less the kernel's, nanoseconds.
    clock: Option<i128>,
}

/// What some files say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blktrace {
    /// What devices read, in the order in which they were asked.
    pub reads: Vec<BlockRead>,
    /// Whether the files say what the wall clock was: else times are not known.
    pub has_clock: bool,
}

/// When a start was, and who took part.
pub struct Start<'a> {
    /// The wall clock when it began, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// The ids of its processes.
    pub processes: &'a HashSet<u32>,
}

impl Reader {
    /// Reads a file; `name` is what errors call it.
    pub fn file(&mut self, name: &str, mut source: impl Read) -> Result<(), BlktraceError> {
        let mut at = 0;
        let mut swapped = None;
        let mut data = Vec::new();
        loop {
            let mut event = [0; EVENT];
            let read = fill(&mut source, &mut event).map_err(|source| BlktraceError::Io {
                name: name.into(),
                source,
            })?;
            if read == 0 {
                return Ok(());
            }
            let damaged = |what| BlktraceError::Damaged {
                name: name.into(),
                at,
                what,
            };
            let magic = [event[0], event[1], event[2], event[3]];
            let (little, big) = (u32::from_le_bytes(magic), u32::from_be_bytes(magic));
            let order = match (little & !0xff == MAGIC, big & !0xff == MAGIC) {
                (true, _) => false,
                (_, true) => true,
                _ if at == 0 => {
                    return Err(BlktraceError::NoBlktrace {
                        name: name.into(),
                        found: magic,
                    });
                }
                _ => return Err(damaged("no event is there")),
            };
            if *swapped.get_or_insert(order) != order {
                return Err(damaged("its byte order changes"));
            }
            let version = if order { big } else { little } & 0xff;
            if version != VERSION {
                return Err(BlktraceError::Version {
                    name: name.into(),
                    found: version,
                });
            }
            if read < EVENT {
                return Err(damaged("it is cut off"));
            }
            let event = Raw(event, order);
            let length = usize::from(event.short(46));
            data.resize(length, 0);
            let read = fill(&mut source, &mut data).map_err(|source| BlktraceError::Io {
                name: name.into(),
                source,
            })?;
            if read < length {
                return Err(damaged("it is cut off"));
            }
            let whole = (EVENT + length) as u64;
            at += whole;
            self.bytes += whole;
            if self.bytes > limits::BLKTRACE_BYTES as u64 {
                return Err(too_much(name, limits::BLKTRACE_BYTES, "bytes"));
            }
            self.event(&event, &data);
            if self.events.len() > limits::BLKTRACE_EVENTS {
                return Err(too_much(name, limits::BLKTRACE_EVENTS, "events of reads"));
            }
        }
    }

    fn event(&mut self, event: &Raw, data: &[u8]) {
        let action = event.long(28);
        if action & NOTIFY != 0 {
            if let (TIMESTAMP, Some(words)) = (action & 0xffff & !CGROUP, data.get(..8)) {
                let word = |at: usize| {
                    let bytes = [words[at], words[at + 1], words[at + 2], words[at + 3]];
                    i128::from(if event.1 {
                        u32::from_be_bytes(bytes)
                    } else {
                        u32::from_le_bytes(bytes)
                    })
                };
                let wall = word(0) * 1_000_000_000 + word(4);
                self.clock.get_or_insert(wall - i128::from(event.wide(8)));
            }
            return;
        }
        let kind = action & 0xffff & !CGROUP;
        let is_read = action & READ != 0 && action & (WRITE | PACKET) == 0;
        if is_read && matches!(kind, QUEUE | REQUEUE | ISSUE | COMPLETE) {
            self.events.push(Event {
                time: event.wide(8),
                sequence: event.long(4),
                action: kind,
                device: event.long(36),
                sector: event.wide(16),
                bytes: event.long(24),
                process: event.long(32),
            });
        }
    }

    /// What all files say together.
    pub fn finish(mut self, start: &Start<'_>) -> Blktrace {
        self.events.sort_by_key(|event| (event.time, event.sequence));
        let clock = self.clock.map(|clock| clock - i128::from(start.started_unix_ns));
        let since = |time: u64| i64::try_from(i128::from(time) + clock?).ok();
        let actions = actions(&self.events);
        let mut reads: Vec<BlockRead> = Vec::new();
        // Under way: of a device and sector the read that was given last.
        let mut open: HashMap<(u32, u64), usize> = HashMap::new();
        let mut taken_back = HashSet::new();
        for event in &self.events {
            let id = (event.device, event.sector);
            let counts = actions.get(&event.device).copied();
            if Some(event.action) == counts && event.bytes > 0 {
                open.insert(id, reads.len());
                reads.push(BlockRead {
                    major: event.device >> MINOR_BITS,
                    minor: event.device & ((1 << MINOR_BITS) - 1),
                    range: ByteRange {
                        start: event.sector.saturating_mul(SECTOR),
                        length: event.bytes.into(),
                    },
                    issued_ns: since(event.time),
                    completed_ns: None,
                    by_start: start.processes.contains(&event.process).then_some(true),
                });
            }
            match event.action {
                // The driver gave it back, and will be given it again.
                REQUEUE if counts == Some(ISSUE) => taken_back.extend(open.remove(&id)),
                COMPLETE => {
                    if let Some(read) = open.remove(&id).and_then(|index| reads.get_mut(index)) {
                        read.completed_ns = since(event.time);
                    }
                }
                _ => {}
            }
        }
        let mut index = 0;
        reads.retain(|_| {
            index += 1;
            !taken_back.contains(&(index - 1))
        });
        Blktrace {
            reads,
            has_clock: clock.is_some(),
        }
    }
}

/// Which events count as reads of each device.
fn actions(events: &[Event]) -> HashMap<u32, u32> {
    let rank = |action| match action {
        ISSUE => 3,
        COMPLETE => 2,
        _ => 1,
    };
    let mut actions: HashMap<u32, u32> = HashMap::new();
    let counting = |event: &&Event| matches!(event.action, ISSUE | COMPLETE | QUEUE) && event.bytes > 0;
    for event in events.iter().filter(counting) {
        let best = actions.entry(event.device).or_insert(event.action);
        if rank(event.action) > rank(*best) {
            *best = event.action;
        }
    }
    actions
}

/// An event's bytes, and whether they are big-endian.
struct Raw([u8; EVENT], bool);

impl Raw {
    fn number(&self, at: usize, size: usize) -> u64 {
        let bytes = &self.0[at..at + size];
        let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        match self.1 {
            true => bytes.iter().fold(0, add),
            false => bytes.iter().rev().fold(0, add),
        }
    }

    fn short(&self, at: usize) -> u16 {
        self.number(at, 2) as u16
    }

    fn long(&self, at: usize) -> u32 {
        self.number(at, 4) as u32
    }

    fn wide(&self, at: usize) -> u64 {
        self.number(at, 8)
    }
}

fn too_much(name: &str, most: usize, what: &'static str) -> BlktraceError {
    BlktraceError::TooMuch {
        name: name.into(),
        most,
        what,
    }
}

/// Fills the buffer as far as there is anything.
fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
#[path = "blktrace_tests.rs"]
mod tests;
