//! What became of a request.

use crate::device::Device;
use crate::file::{Files, PlannedFile};
use crate::request::{Prepared, Reason, RequestState};
use headstart_model::PageRange;
use headstart_model::outcome::Issued;
use headstart_model::plan::RequestKind;
use headstart_system::residency;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What became of a request of a replay that was left behind: nobody looks at memory any more, for that may
/// wait too. What has arrived is taken to be what was there before.
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

/// How long pages may be on their way when the replay has ended.
pub const ON_THE_WAY: Duration = Duration::from_millis(100);

/// Whether a request for data that bridges holes has not read all that it asked for: a part failed, or pages
/// of it are in the cache and hold nothing. Such pages are given this time to come; with `None` they say
/// nothing.
pub fn is_broken_bridge(state: &RequestState, files: &Files<'_>, patience: Option<Duration>) -> bool {
    let request = &state.request;
    if request.kind != RequestKind::Data || request.bridged == 0 {
        return false;
    }
    let prepared = match done(state) {
        Ok((prepared, _)) => prepared,
        // What could not even be opened says nothing of a sector.
        Err(reason) => return reason == Reason::Failed && matches!(state.prepared.get(), Some(Ok(_))),
    };
    let length = prepared.end.saturating_sub(prepared.start);
    let is_broken = |file: &PlannedFile| file.has_empty_pages(prepared.start, length);
    let Ok(file) = files.get(request.file) else {
        return false;
    };
    let Some(patience) = patience.filter(|_| is_broken(&file)) else {
        return false;
    };
    std::thread::sleep(patience);
    is_broken(&file)
}

/// Whether it was asked for, bridges holes, and was not answered when its replay was left behind.
pub fn is_unanswered_bridge(state: &RequestState) -> bool {
    let is_asked = matches!(state.prepared.get(), Some(Ok(_)));
    state.request.kind == RequestKind::Data && state.request.bridged > 0 && is_asked
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
