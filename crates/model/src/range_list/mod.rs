//! Which bytes of a volume its first boot needs, by address and in that order: what `headstart plan
//! --ranges-of` writes and `headstart hydrate` reads, headstart-ranges(5). It is text, because it lies in
//! images, where people look at what they ship.

pub mod text;
pub mod touches;

use crate::sort::Sort;
use std::collections::BTreeMap;
use std::fmt;
use text::{Check, FIRST_LINE, LAST_LINE, MOST_CHECKS, MOST_IN_ALL, MOST_RANGES, Span, Volume, Wrong};

/// A list of ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeList {
    /// Which volume it is of.
    pub volume: Volume,
    /// By what it is noticed that the volume has other contents.
    pub checks: Vec<Check>,
    /// What is needed, in the order of first use; none overlaps another.
    pub ranges: Vec<Span>,
}

impl RangeList {
    /// Reads a list, and refuses what a reader of volumes would refuse. The error names the line.
    pub fn parse(bytes: &[u8]) -> Result<RangeList, String> {
        if bytes.len() > text::MOST_BYTES {
            return Err(format!(
                "{} bytes, more than {} of a range list",
                bytes.len(),
                text::MOST_BYTES
            ));
        }
        let mut checks = [Check::default(); MOST_CHECKS];
        let mut ranges = vec![Span::default(); MOST_RANGES];
        let read = text::read(bytes, &mut checks, &mut ranges)
            .map_err(|Wrong { line, what }| format!("line {line}: {what}"))?;
        ranges.truncate(read.ranges);
        let ordered = ranges.clone();
        if let Some([a, b]) = text::overlap(&mut ranges) {
            return Err(format!("the ranges at {} and {} overlap", a.start, b.start));
        }
        Ok(RangeList {
            volume: read.volume,
            checks: checks.into_iter().take(read.checks).collect(),
            ranges: ordered,
        })
    }

    /// Bytes of all ranges.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.length).sum()
    }
}

/// The text of the file.
impl fmt::Display for RangeList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Volume { uuid, size, block } = self.volume;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let [a, b, c, d, e] = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex);
        writeln!(
            out,
            "{FIRST_LINE}\nuuid {a}-{b}-{c}-{d}-{e}\nsize {size}\nblock {block}"
        )?;
        for Check { span, crc } in &self.checks {
            writeln!(out, "check {} {} {crc:08x}", span.start, span.length)?;
        }
        for Span { start, length } in &self.ranges {
            writeln!(out, "range {start} {length}")?;
        }
        writeln!(out, "{LAST_LINE}")
    }
}

/// Ranges of a device in the making: each byte once, where it was first asked for.
#[derive(Debug)]
pub struct Ranges {
    volume: Volume,
    hole: u64,
    /// By their first bytes: the byte behind, and the place in the order.
    found: BTreeMap<u64, (u64, usize)>,
    asked: usize,
}

impl Ranges {
    /// None yet. Those are joined that lie next to one another, or have at most `hole` bytes between them.
    pub fn new(volume: Volume, hole: u64) -> Ranges {
        Ranges {
            volume,
            hole,
            found: BTreeMap::new(),
            asked: 0,
        }
    }

    /// Asks for bytes of the device, in whole blocks. What lies beyond its end is left out.
    pub fn ask_for(&mut self, start: u64, length: u64) {
        let block = self.volume.block;
        let last = self.volume.size / block * block;
        let mut end = last.min(round_up(start.saturating_add(length), block));
        let mut start = start / block * block;
        let mut order = self.asked;
        self.asked += 1;
        if length == 0 || start >= end {
            return;
        }
        let from = start.saturating_sub(self.hole);
        let mut near: Vec<u64> = Vec::new();
        // The one that begins before may reach up to here.
        let before = self.found.range(..from).next_back();
        near.extend(
            before
                .filter(|(_, (behind, _))| *behind >= from)
                .map(|(at, _)| *at),
        );
        let to = end.saturating_add(self.hole);
        near.extend(self.found.range(from..=to).map(|(at, _)| *at));
        for at in near {
            if let Some((behind, earlier)) = self.found.remove(&at) {
                start = start.min(at);
                end = end.max(behind);
                order = order.min(earlier);
            }
        }
        self.found.insert(start, (end, order));
    }

    /// The ranges in the order of first use; the error says what there is too much of.
    pub fn finish(self) -> Result<Vec<Span>, String> {
        if self.found.len() > MOST_RANGES {
            return Err(format!("{} ranges, {MOST_RANGES} at most", self.found.len()));
        }
        let mut ranges: Vec<(usize, Span)> = self
            .found
            .into_iter()
            .map(|(start, (end, order))| {
                let length = end - start;
                (order, Span { start, length })
            })
            .collect();
        ranges.sort_small_by_key(|(order, span)| (*order, span.start));
        let ranges: Vec<Span> = ranges.into_iter().map(|(_, span)| span).collect();
        let bytes: u64 = ranges.iter().map(|range| range.length).sum();
        match bytes <= MOST_IN_ALL {
            true => Ok(ranges),
            false => Err(format!("{bytes} bytes, {MOST_IN_ALL} at most")),
        }
    }
}

fn round_up(value: u64, block: u64) -> u64 {
    value
        .checked_next_multiple_of(block)
        .unwrap_or(u64::MAX / block * block)
}

#[cfg(test)]
mod tests;
