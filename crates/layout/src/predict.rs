//! What reading comes to by the cost model, and whether a difference is worth it.

use headstart_model::machine::{Cost, Extent};
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
