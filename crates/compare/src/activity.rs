//! The reads that a trace recorded itself.

use headstart_model::Trace;
use headstart_model::activity::RequestKind;
use headstart_model::blocks::{BlockRead, SECTOR};
use headstart_model::machine::ByteRange;

/// The reads of a trace that was recorded with what block devices did; `None` if it was not. And how many events of all
/// kinds were lost.
pub fn of_activity(trace: &Trace) -> Option<(Vec<BlockRead>, u64)> {
    let activity = trace.activity.as_ref()?;
    let at = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
    let reads = activity
        .requests
        .iter()
        .filter(|request| request.kind == RequestKind::Read);
    let reads = reads.filter_map(|request| {
        let device = activity.devices.get(request.device as usize)?;
        Some(BlockRead {
            major: device.major,
            minor: device.minor,
            range: ByteRange {
                start: request.sector.saturating_mul(SECTOR),
                length: u64::from(request.sectors) * SECTOR,
            },
            issued_ns: Some(at(request.issued_ns)),
            completed_ns: request.completed_ns.map(at),
            // Nobody of the start, where the recorder knows only these, or somebody it does not know.
            by_start: request.process.map(|_| true),
        })
    });
    Some((reads.collect(), activity.lost))
}
