//! The clock of all events, and that of the processors' time.

use rustix::time::{ClockId, clock_gettime};

/// Now, in nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    ns(ClockId::Monotonic)
}

/// The processors' time of the thread that asks, nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    ns(ClockId::ThreadCPUTime)
}

fn ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
