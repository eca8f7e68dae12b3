//! What became of a request.

use crate::device::Device;
use crate::file::Files;
use crate::request::{Prepared, Reason, RequestState};
use headstart_model::PageRange;
use headstart_model::outcome::Issued;
use headstart_model::plan::RequestKind;
use headstart_system::residency;
use std::sync::atomic::Ordering;

/// What became of a request of a replay that was left behind: nobody looks at memory any more, for that may wait too. What
/// has arrived is taken to be what was there before.
pub fn confirmed(state: &RequestState) -> Result<Issued, Reason> {
    let (prepared, done_ns) = done(state)?;
    Ok(Issued {
        request: state.index,
        pages: pages(prepared),
        issued_ns: prepared.at_ns,
        done_ns: done_ns.max(prepared.at_ns),
        resident: prepared.resident.clone(),
        arrived_pages: prepared.resident.iter().map(PageRange::pages).sum(),
    })
}

/// What was found when it was taken up and when it was done, nanoseconds since the origin; or why it was not.
fn done(state: &RequestState) -> Result<(&Prepared, u64), Reason> {
    let prepared = match state.prepared.get() {
        None => return Err(Reason::Stopped),
        Some(Err(reason)) => return Err(*reason),
        Some(Ok(prepared)) => prepared,
    };
    match state.done_ns.load(Ordering::Relaxed) {
        0 => Err(Reason::Stopped),
        _ if state.failed.load(Ordering::Relaxed) => Err(Reason::Failed),
        done_ns => Ok((prepared, done_ns)),
    }
}

/// The pages that were asked for.
fn pages(prepared: &Prepared) -> PageRange {
    let page = rustix::param::page_size() as u64;
    PageRange {
        start: prepared.start / page,
        end: prepared.end.div_ceil(page),
    }
}

/// What became of a request: counts its pages in memory now, or says why it was not issued.
pub fn issued(state: &RequestState, device: &Device, files: &Files<'_>) -> Result<Issued, Reason> {
    let (prepared, done_ns) = done(state)?;
    let offset = prepared.start;
    let length = prepared.end.saturating_sub(offset);
    let arrived_pages = match state.request.kind {
        RequestKind::Stat | RequestKind::List => 0,
        RequestKind::Metadata => device.block.as_ref().map_or(0, |block| {
            residency::resident_pages(block.fd(), offset, length).unwrap_or(0)
        }),
        // A file that was replaced meanwhile has no page that could still help.
        RequestKind::Data => files
            .get(state.request.file)
            .map_or(0, |file| file.resident_pages(offset, length)),
    };
    Ok(Issued {
        request: state.index,
        pages: pages(prepared),
        issued_ns: prepared.at_ns,
        done_ns: done_ns.max(prepared.at_ns),
        resident: prepared.resident.clone(),
        arrived_pages,
    })
}
