//! The section WIND of a trace: uses by windows, as columns.

use super::columns::{Column, Cursor, Recent};
use super::rows::{KINDS, TICK_NS, place, table, value_at};
use crate::limits::{self, bounded};
use crate::trace::Trace;
use crate::uses::{WINDOW_PAGES, WindowUse};

/// Number of columns.
pub(super) const WINDOWS: usize = 7;

/// The columns.
pub(super) fn write(rows: &[WindowUse]) -> [Column; WINDOWS] {
    let mut columns = <[Column; WINDOWS]>::default();
    let [time, process, ago, files, window, pages, kind] = &mut columns;
    let (mut at, mut of, mut file, mut behind) = (0, 0, Recent::default(), 0);
    for row in rows {
        let ticks = row.time_ns / TICK_NS;
        time.step(at, ticks);
        process.step(of, u64::from(row.process));
        file.put(ago, files, u64::from(row.file));
        window.step(behind, row.window);
        pages.number(u64::from(row.pages));
        kind.number(place(&KINDS, &row.kind));
        (at, of, behind) = (ticks, u64::from(row.process), row.window.wrapping_add(1));
    }
    columns
}

/// Reads what [`write`] wrote.
pub(super) fn read(columns: [Cursor<'_>; WINDOWS]) -> Result<Vec<WindowUse>, String> {
    let [
        mut time,
        mut process,
        mut ago,
        mut files,
        mut window,
        mut pages,
        mut kind,
    ] = columns;
    let (mut at, mut of, mut file, mut behind) = (0, 0, Recent::default(), 0);
    let mut rows = table("rows of WIND", &time, limits::WINDOWS)?;
    while time.more() {
        at = time.step(at)?;
        of = process.step(of)?;
        let number = file.take(&mut ago, &mut files)?;
        let place = window.step(behind)?;
        behind = place.wrapping_add(1);
        rows.push(WindowUse {
            time_ns: at.checked_mul(TICK_NS).ok_or("a time is out of range")?,
            process: u32::try_from(of).map_err(|_| "a process is out of range")?,
            file: u32::try_from(number).map_err(|_| "a file is out of range")?,
            window: place,
            pages: pages.small()?,
            kind: value_at(&KINDS, kind.number()?)?,
        });
    }
    Ok(rows)
}

/// Whether every index leads somewhere, and every value is in its range.
pub(super) fn check(trace: &Trace) -> Result<(), String> {
    bounded(
        "uses and rows of WIND together",
        trace.use_rows(),
        limits::WINDOWS,
    )?;
    for (index, row) in trace.windows.iter().enumerate() {
        if row.process as usize >= trace.processes.len() || row.file as usize >= trace.files.len() {
            return Err(format!(
                "row {index} of WIND is of process {} and file {}, which it does not list",
                row.process, row.file
            ));
        }
        let first = row.window.checked_mul(WINDOW_PAGES);
        let fits = |first| super::addressable(first, WINDOW_PAGES, trace.meta.page_size);
        if row.pages == 0 || !first.is_some_and(fits) {
            return Err(format!(
                "row {index} of WIND has no page, or lies beyond the largest file"
            ));
        }
    }
    Ok(())
}
