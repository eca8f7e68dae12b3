//! Sub-buffers of the kernel's ring buffer, as `trace_pipe_raw` hands them out.
//!
//! A page begins with a time and a `commit` word: the bytes of events on it, and two flags above them (bit
//! 31: events were lost before this page; bit 30: how many is stored behind the events). Events follow, each
//! with a 32-bit head of 5 bits type and 27 bits of time since the one before (`events/header_event`; kernel:
//! include/linux/ring_buffer.h).

use super::format::{Field, Format};

/// Types above this are no events.
const DATA_MAX: u32 = 28;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// An absolute time has 59 bits; the bits above are those of the time before.
const STAMP_BITS: u32 = 59;

const MISSED_EVENTS: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;

/// Where the parts of a page are, from `events/header_page`.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageLayout {
    time: Field,
    commit: Field,
    data: Field,
}

impl PageLayout {
    /// From the parsed `header_page`; `None` if a part is missing.
    pub fn new(format: &Format) -> Option<PageLayout> {
        Some(PageLayout {
            time: format.field("timestamp")?,
            commit: format.field("commit")?,
            data: format.field("data")?,
        })
    }

    /// Bytes of a whole page: the least a read must ask for.
    pub fn page_bytes(&self) -> usize {
        self.data.offset + self.data.size
    }

    /// Takes a page apart. One that contradicts itself is [`Damaged`].
    pub fn page<'a>(&self, bytes: &'a [u8]) -> Result<Page<'a>, Damaged> {
        let time = self.time.number(bytes).ok_or(Damaged)?;
        let commit = self.commit.number(bytes).ok_or(Damaged)?;
        let length = (commit & (MISSED_STORED - 1)) as usize;
        let data = bytes.get(self.data.offset..).ok_or(Damaged)?;
        let events = data.get(..length).ok_or(Damaged)?;
        let missed = match commit {
            c if c & MISSED_EVENTS == 0 => 0,
            c if c & MISSED_STORED == 0 => 1,
            _ => Field {
                offset: length,
                size: self.commit.size,
            }
            .number(data)
            .unwrap_or(1)
            .max(1),
        };
        Ok(Page {
            missed,
            events: Events { rest: events, time },
        })
    }
}

/// A page that contradicts itself; what it held is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

/// A page, taken apart.
#[derive(Debug)]
pub(super) struct Page<'a> {
    /// Events lost before this page, 0 if none; 1 if some, but the kernel had no room to say how many.
    pub missed: u64,
    /// Those on it.
    pub events: Events<'a>,
}

/// The events of a page: time in nanoseconds and record. Ends after the first damage.
#[derive(Debug)]
pub(super) struct Events<'a> {
    rest: &'a [u8],
    time: u64,
}

impl<'a> Events<'a> {
    fn word(&self, at: usize) -> Result<u32, Damaged> {
        Field { offset: at, size: 4 }
            .number(self.rest)
            .map(|n| n as u32)
            .ok_or(Damaged)
    }

    /// The record at `from..to` of the rest, which is then passed.
    fn slice(&mut self, from: usize, to: usize) -> Result<&'a [u8], Damaged> {
        let record = self.rest.get(from..to).ok_or(Damaged)?;
        self.rest = &self.rest[to..];
        Ok(record)
    }

    fn step(&mut self) -> Result<Option<(u64, &'a [u8])>, Damaged> {
        while !self.rest.is_empty() {
            let head = self.word(0)?;
            // Bit fields begin at the low end on little-endian machines, at the high end on the others.
            let (kind, delta) = if cfg!(target_endian = "little") {
                (head & 31, u64::from(head >> 5))
            } else {
                (head >> 27, u64::from(head & ((1 << 27) - 1)))
            };
            match kind {
                PADDING if delta == 0 => self.rest = &[],
                PADDING => {
                    self.time = self.time.wrapping_add(delta);
                    let length = self.word(4)? as usize;
                    self.slice(4, length.checked_add(4).ok_or(Damaged)?)?;
                }
                TIME_EXTEND => {
                    self.time = self.time.wrapping_add(delta | u64::from(self.word(4)?) << 27);
                    self.slice(4, 8)?;
                }
                TIME_STAMP => {
                    let stamp = delta | u64::from(self.word(4)?) << 27;
                    self.time = self.time >> STAMP_BITS << STAMP_BITS | stamp;
                    self.slice(4, 8)?;
                }
                0 => {
                    self.time = self.time.wrapping_add(delta);
                    let length = self.word(4)? as usize;
                    return self
                        .slice(8, length.checked_add(4).ok_or(Damaged)?)
                        .map(|r| Some((self.time, r)));
                }
                words => {
                    debug_assert!(words <= DATA_MAX);
                    self.time = self.time.wrapping_add(delta);
                    return self
                        .slice(4, 4 + 4 * words as usize)
                        .map(|r| Some((self.time, r)));
                }
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Result<(u64, &'a [u8]), Damaged>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step();
        if step.is_err() {
            self.rest = &[];
        }
        step.transpose()
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
