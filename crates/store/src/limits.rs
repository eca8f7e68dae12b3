//! How much is kept, and for how long.

use std::time::Duration;

/// How much is kept, and for how long. What exceeds a limit goes oldest first, traces before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Traces of a key: enough to learn a profile anew with another policy.
    pub traces: usize,
    /// Outcomes of a key: enough for twenty control runs at one in ten, with which a verdict finds replays
    /// that are 5 % slower. An outcome is below 1 KiB, and all are read only when a start has ended.
    pub outcomes: usize,
    /// Bytes of a key. A boot's five traces, profile and plan are below 30 MB.
    pub key_bytes: u64,
    /// Bytes of all keys.
    pub total_bytes: u64,
    /// Traces and outcomes older than this go, but for the newest ones.
    pub age: Duration,
    /// So many of the newest traces stay whatever their age: a clock that is wrong for once must not take all
    /// that a key is learned anew from.
    pub ageless_traces: usize,
    /// So many of the newest outcomes stay whatever their age: those that a verdict is made from anew.
    pub ageless_outcomes: usize,
    /// A key that was not started for so long goes, but for the newest ones.
    pub key_age: Duration,
    /// So many of the keys last started stay whatever their age, for the same reason.
    pub ageless_keys: usize,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            traces: 5,
            outcomes: 200,
            key_bytes: 64 << 20,
            // With what is kept of others' starts 512 MiB.
            total_bytes: 448 << 20,
            age: DAY.saturating_mul(180),
            ageless_traces: 2,
            ageless_outcomes: 10,
            key_age: DAY.saturating_mul(400),
            ageless_keys: 16,
        }
    }
}
