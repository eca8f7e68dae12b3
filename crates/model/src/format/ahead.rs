//! The section AHED of a trace: what a replay read ahead, as columns.

use super::columns::{Column, Cursor, Recent};
use super::rows::{TICK_NS, table};
use crate::limits::{self, bounded};
use crate::trace::{Ahead, Trace};

/// Number of columns.
pub(super) const AHEAD: usize = 6;

/// The columns.
pub(super) fn write(ahead: &[Ahead]) -> [Column; AHEAD] {
    let mut columns = <[Column; AHEAD]>::default();
    let [issued, took, ago, files, start, pages] = &mut columns;
    let (mut at, mut file, mut end) = (0, Recent::default(), 0);
    for request in ahead {
        let ticks = request.issued_ns / TICK_NS;
        issued.step(at, ticks);
        at = ticks;
        took.number((request.done_ns / TICK_NS).saturating_sub(ticks));
        file.put(ago, files, u64::from(request.file));
        start.step(end, request.start);
        end = request.start.wrapping_add(u64::from(request.pages));
        pages.number(u64::from(request.pages));
    }
    columns
}

/// Reads what [`write`] wrote.
pub(super) fn read(columns: [Cursor<'_>; AHEAD]) -> Result<Vec<Ahead>, String> {
    let [mut issued, mut took, mut ago, mut files, mut start, mut pages] = columns;
    let (mut at, mut file, mut end) = (0, Recent::default(), 0u64);
    let mut ahead = table("requests of a replay", &issued, limits::AHEAD)?;
    while issued.more() {
        at = issued.step(at)?;
        let done = at.checked_add(took.number()?);
        let times = at
            .checked_mul(TICK_NS)
            .zip(done.and_then(|done| done.checked_mul(TICK_NS)));
        let (issued_ns, done_ns) = times.ok_or("a time is out of range")?;
        let number = file.take(&mut ago, &mut files)?;
        let start = start.step(end)?;
        let pages = pages.small::<u32>()?;
        end = start.wrapping_add(u64::from(pages));
        ahead.push(Ahead {
            file: u32::try_from(number).map_err(|_| "a file is out of range")?,
            start,
            pages,
            issued_ns,
            done_ns,
        });
    }
    Ok(ahead)
}

/// Whether every index leads somewhere, and every value is in its range and its order.
pub(super) fn check(ahead: &[Ahead], trace: &Trace) -> Result<(), String> {
    bounded("requests of a replay", ahead.len(), limits::AHEAD)?;
    for (index, one) in ahead.iter().enumerate() {
        if one.file as usize >= trace.files.len() {
            return Err(format!(
                "request {index} of the replay is for a file that is not listed"
            ));
        }
        if one.pages == 0 || !super::addressable(one.start, u64::from(one.pages), trace.meta.page_size) {
            return Err(format!(
                "request {index} of the replay is for no page or beyond the largest file"
            ));
        }
        if one.done_ns < one.issued_ns {
            return Err(format!(
                "request {index} of the replay was answered before it was issued"
            ));
        }
    }
    match ahead.is_sorted_by_key(|request| request.issued_ns) {
        true => Ok(()),
        false => Err("the requests of the replay are not in order of time".into()),
    }
}
