//! First uses as columns of variable-length numbers: what repeats or grows slowly stands together, so that zstd
//! leaves less than two bytes of a use.

use crate::trace::{Use, UseKind};

/// Appends a number, seven bits a byte, least significant first (LEB128).
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a number off the front.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let part = u64::from(byte & 0x7f);
        if shift == 63 && part > 1 {
            return None;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Small numbers of either sign as small numbers.
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

fn difference(from: u64, to: u64) -> u64 {
    zigzag(to.wrapping_sub(from) as i64)
}

fn sum(from: u64, difference: u64) -> u64 {
    from.wrapping_add(unzigzag(difference) as u64)
}

const KINDS: [UseKind; 4] = [UseKind::Read, UseKind::Map, UseKind::Fault, UseKind::Add];

/// Number of columns: time, process, file, start, pages, kind.
const COLUMNS: usize = 6;

/// Where the last use of each file ended; grows with the files met.
#[derive(Default)]
struct Ends(Vec<u64>);

impl Ends {
    fn get(&self, file: u32) -> u64 {
        self.0.get(file as usize).copied().unwrap_or(0)
    }

    fn set(&mut self, file: u32, end: u64) {
        let index = file as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] = end;
    }
}

/// The uses as bytes: their number, then each column with its length before it.
pub(super) fn encode(uses: &[Use]) -> Vec<u8> {
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    let (mut time, mut process, mut file) = (0, 0, 0);
    let mut ends = Ends::default();
    for used in uses {
        // Microseconds: the recorder's clock says no more, and a third of the size is saved.
        let micros = used.time_ns / 1000;
        put(&mut columns[0], difference(time, micros));
        put(&mut columns[1], difference(process, u64::from(used.process)));
        put(&mut columns[2], difference(file, u64::from(used.file)));
        put(&mut columns[3], difference(ends.get(used.file), used.start));
        put(&mut columns[4], u64::from(used.pages));
        columns[5].push(KINDS.iter().position(|k| *k == used.kind).unwrap_or(0) as u8);
        (time, process, file) = (micros, u64::from(used.process), u64::from(used.file));
        ends.set(used.file, used.start.wrapping_add(u64::from(used.pages)));
    }
    let mut out = Vec::new();
    put(&mut out, uses.len() as u64);
    for column in columns {
        put(&mut out, column.len() as u64);
        out.extend_from_slice(&column);
    }
    out
}

/// The uses in `bytes`, each of one of `processes` processes and `files` files.
pub(super) fn decode(mut bytes: &[u8], processes: usize, files: usize) -> Result<Vec<Use>, String> {
    let cut = || "the uses are cut".to_string();
    let count = take(&mut bytes).ok_or_else(cut)?;
    let mut columns: [&[u8]; COLUMNS] = [&[]; COLUMNS];
    for column in &mut columns {
        let length = take(&mut bytes)
            .and_then(|n| usize::try_from(n).ok())
            .ok_or_else(cut)?;
        (*column, bytes) = bytes.split_at_checked(length).ok_or_else(cut)?;
    }
    // A use has a byte in every column, so the columns bound the memory taken.
    if columns.iter().any(|c| (c.len() as u64) < count) {
        return Err(cut());
    }
    let [times, process_steps, file_steps, starts, pages, kinds] = &mut columns;
    let mut uses = Vec::with_capacity(count as usize);
    let (mut time, mut process, mut file) = (0, 0, 0);
    let mut ends = Ends::default();
    for index in 0..count as usize {
        time = sum(time, take(times).ok_or_else(cut)?);
        process = sum(process, take(process_steps).ok_or_else(cut)?);
        file = sum(file, take(file_steps).ok_or_else(cut)?);
        if process >= processes as u64 || file >= files as u64 {
            return Err(format!(
                "use {index} is of process {process} and file {file}, which it does not list"
            ));
        }
        let start = sum(ends.get(file as u32), take(starts).ok_or_else(cut)?);
        let length = take(pages).ok_or_else(cut)?;
        let kind = kinds.get(index).and_then(|k| KINDS.get(usize::from(*k)));
        let (Some(kind), Ok(length)) = (kind, u32::try_from(length)) else {
            return Err(format!(
                "use {index} has an unknown kind or a length out of range"
            ));
        };
        let Some(end) = start.checked_add(u64::from(length)).filter(|_| length > 0) else {
            return Err(format!("use {index} has no pages or too large a page number"));
        };
        let time_ns = time
            .checked_mul(1000)
            .ok_or_else(|| format!("use {index} is out of time"))?;
        uses.push(Use {
            time_ns,
            process: process as u32,
            file: file as u32,
            start,
            pages: length,
            kind: *kind,
        });
        ends.set(file as u32, end);
    }
    Ok(uses)
}
