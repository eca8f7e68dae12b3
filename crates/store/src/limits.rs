//! How much is kept, and for how long.

use std::time::Duration;

/// How much is kept, and for how long. What exceeds a limit goes oldest first, traces before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Traces of a key: enough to learn a profile anew with another policy.
    pub traces: usize,
    /// Outcomes of a key: enough for twenty control runs at one in ten, with which a verdict finds replays that are 5 %
    /// slower. An outcome is below 1 KiB, and all are read only when a start has ended.
    pub outcomes: usize,
    /// Bytes of a key. A boot's five traces, profile and plan are below 30 MB.
    pub key_bytes: u64,
    /// Bytes of all keys.
    pub total_bytes: u64,
    /// Traces and outcomes older than this go.
    pub age: Duration,
    /// A key that was not started for so long goes.
    pub key_age: Duration,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            traces: 5,
            outcomes: 200,
            key_bytes: 64 << 20,
            total_bytes: 512 << 20,
            age: DAY.saturating_mul(180),
            key_age: DAY.saturating_mul(400),
        }
    }
}
