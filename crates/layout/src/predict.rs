//! What reading comes to by the cost model, and whether a difference is worth it.

use headstart_model::machine::{Cost, Device, Extent};
use headstart_model::{PageRange, PageSet};
use headstart_plan::sweep_seconds;
use serde::{Deserialize, Serialize};

/// It is not worth it below this share of the time that reading takes now …
const LEAST_SHARE: f64 = 0.10;
/// … or below this many seconds.
const LEAST_SECONDS: f64 = 0.05;

/// What reading all that is needed comes to, in one pass over the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Jumps of the head: holes that take longer to read than to jump over.
    pub jumps: u64,
    /// Time by the cost model, nanoseconds.
    pub time_ns: u64,
}

/// What moving costs the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Price {
    /// Bytes that are written.
    pub writes_bytes: u64,
    /// Time by what the device was measured to need, or by the rate that it is bounded to, nanoseconds.
    pub takes_ns: u64,
}

/// What moving so many bytes costs, which take so long to be read where they lie; `rate` is the most that is
/// written in a second.
pub(crate) fn price(bytes: u64, now: &Prediction, device: &Device, rate: Option<u64>) -> Price {
    // On ext4 room is written before files move into it; on XFS the copy is what is exchanged.
    let times = if device.fstype == "xfs" { 1 } else { 2 };
    let writes_bytes = bytes.saturating_mul(times);
    // All is read once more to be compared.
    let passes = writes_bytes.saturating_add(bytes) as f64 / device.cost.bandwidth.max(1.0);
    let paced = rate.map_or(0.0, |rate| writes_bytes as f64 / rate.max(1) as f64);
    let seconds = f64::max(now.time_ns as f64 / 1e9 + passes, paced);
    Price {
        writes_bytes,
        takes_ns: (seconds * 1e9) as u64,
    }
}

/// Why the difference is not worth it, if it is not.
pub(crate) fn unless_worthwhile(before: &Prediction, after: &Prediction) -> Option<String> {
    let seconds = before.time_ns as f64 / 1e9;
    let gain = seconds - after.time_ns as f64 / 1e9;
    let least = (LEAST_SHARE * seconds).max(LEAST_SECONDS);
    (gain < least).then(|| {
        format!(
            "it would bring {:.2} of {:.2} s, and is worth it from {least:.2} s on",
            gain.max(0.0),
            seconds
        )
    })
}

/// Where bytes `[start, start + length)` lie, by the extents of a file or of the room.
pub(crate) fn on_device(extents: &[Extent], start: u64, length: u64) -> Vec<PageRange> {
    let end = start.saturating_add(length);
    let first = extents.partition_point(|extent| extent.logical.saturating_add(extent.length) <= start);
    extents[first..]
        .iter()
        .take_while(|extent| extent.logical < end)
        .map(|extent| {
            let from = start.max(extent.logical);
            let to = end.min(extent.logical.saturating_add(extent.length));
            let at = extent.physical + (from - extent.logical);
            PageRange {
                start: at,
                end: at + (to - from),
            }
        })
        .collect()
}

pub(crate) fn prediction(bytes: &PageSet, cost: &Cost) -> Prediction {
    Prediction {
        jumps: (bytes.bridged(cost.bridge()).ranges().len() as u64).saturating_sub(1),
        time_ns: (sweep_seconds(bytes, cost) * 1e9) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;
    use headstart_model::machine::DeviceClass;

    #[test]
    fn on_ext4_all_is_written_twice_and_a_bound_of_the_rate_counts() {
        const MIB: u64 = 1 << 20;
        let writes_and_takes = |fstype, rate| {
            let mut device = machine(vec![], DeviceClass::Disk, fstype).devices.remove(0);
            device.cost.bandwidth = (10 * MIB) as f64;
            let now = Prediction {
                jumps: 9,
                time_ns: 5_000_000_000,
            };
            let price = price(100 * MIB, &now, &device, rate);
            (price.writes_bytes / MIB, price.takes_ns / 1_000_000_000)
        };
        assert_eq!(writes_and_takes("ext4", None), (200, 35));
        assert_eq!(writes_and_takes("xfs", None), (100, 25));
        assert_eq!(writes_and_takes("ext4", Some(MIB)), (200, 200));
        assert_eq!(writes_and_takes("ext4", Some(0)).0, 200);
    }
}
