//! The clock of all events, and that of the processors' time.

use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    ns(ClockId::Monotonic)
}

/// That instant of CLOCK_MONOTONIC in nanoseconds since 1970, by the wall clock as it is set now: a machine
/// that has none of its own sets it amid a boot.
pub(crate) fn unix_ns_of(monotonic_ns: u64) -> i64 {
    let ago = self::monotonic_ns().saturating_sub(monotonic_ns);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    i64::try_from(now.saturating_sub(ago)).unwrap_or(i64::MAX)
}

/// The processors' time of the thread that asks, nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    ns(ClockId::ThreadCPUTime)
}

fn ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
