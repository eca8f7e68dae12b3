//! The reads that a trace recorded itself.

use headstart_model::Trace;
use headstart_model::activity::RequestKind;
use headstart_model::blocks::{BlockRead, SECTOR};
use headstart_model::machine::ByteRange;

/// The reads of a trace that was recorded with what block devices did; `None` if it was not. And how many
/// events of all kinds were lost.
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

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::activity::{Activity, BlockDevice, BlockRequest};
    use headstart_model::testing::trace;

    #[test]
    fn reads_of_devices_that_are_known_count() {
        let mut trace = trace();
        assert!(of_activity(&trace).is_none());
        let request = BlockRequest {
            issued_ns: 5,
            completed_ns: Some(9),
            device: 0,
            sector: 2048,
            sectors: 8,
            kind: RequestKind::Read,
            metadata: false,
            ahead: false,
            process: Some(0),
        };
        let (device, kind) = (7, RequestKind::Write);
        trace.activity = Some(Activity {
            devices: vec![BlockDevice {
                major: 8,
                minor: 16,
                name: "sdb".into(),
                sectors: 1 << 20,
            }],
            requests: vec![
                request,
                BlockRequest { device, ..request },
                BlockRequest { kind, ..request },
            ],
            lost: 3,
            ..Activity::default()
        });
        let read = BlockRead {
            major: 8,
            minor: 16,
            range: ByteRange {
                start: 1 << 20,
                length: 4096,
            },
            issued_ns: Some(5),
            completed_ns: Some(9),
            by_start: Some(true),
        };
        assert_eq!(of_activity(&trace), Some((vec![read], 3)));
    }
}
