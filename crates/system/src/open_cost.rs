//! What opening a file costs here. Beside an on-access scanner (`FAN_OPEN_PERM` of fanotify(7)) each open
//! waits until the file was scanned, also one that only reads ahead: whoever opens all files of a start first
//! doubles its work.

use crate::mounts::waits_for_servers;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// An open of what is pinned, and so in memory, takes some microseconds. One that takes longer than this has
/// waited for somebody.
const SLOW: Duration = Duration::from_micros(200);
/// Of so many of the latest opens is remembered whether they were slow, and if so many were, the next will
/// be. A process that does not get the processor has a slow one now and then.
const LATEST: u32 = 16;
const MOSTLY: u32 = 12;

/// The opens of this process.
pub(crate) static OPENS: OpenCost = OpenCost::new();

/// How long each open takes lately, if that is long: somebody looks at each file that is opened. Whoever
/// opens files for no other reason than to read ahead opens [`AT_LEAST`] of them at a time, for else nobody
/// would notice that it is over, and then asks this. A server takes long for each, and is asked all the same.
pub fn dear() -> Option<Duration> {
    OPENS.dear().filter(|_| !waits_for_servers())
}

/// See [`dear`].
pub const AT_LEAST: u32 = 8;

/// The latest opens.
pub(crate) struct OpenCost {
    /// A bit for each, the latest the lowest: whether it was slow. Those that were not yet were quick.
    slow: AtomicU32,
    /// How long the latest slow one took, nanoseconds.
    took_ns: AtomicU64,
}

impl OpenCost {
    const fn new() -> OpenCost {
        OpenCost {
            slow: AtomicU32::new(0),
            took_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn note(&self, took: Duration) {
        let is_slow = took > SLOW;
        if is_slow {
            let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.took_ns.store(ns, Ordering::Relaxed);
        }
        let add = |slow: u32| Some(slow << 1 & ((1 << LATEST) - 1) | u32::from(is_slow));
        let _ = self.slow.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    fn dear(&self) -> Option<Duration> {
        let is_dear = self.slow.load(Ordering::Relaxed).count_ones() >= MOSTLY;
        is_dear.then(|| Duration::from_nanos(self.took_ns.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_are_dear_when_most_of_the_latest_were_slow() {
        let (quick, slow) = (Duration::from_micros(5), Duration::from_millis(1));
        let opens = OpenCost::new();
        let all = |took, times: u32| {
            (0..times).for_each(|_| opens.note(took));
            opens.dear()
        };
        assert_eq!(all(slow, MOSTLY - 1), None, "too few");
        assert_eq!(all(slow, 1), Some(slow));
        assert_eq!(all(slow, 1000), Some(slow));
        assert_eq!(all(quick, LATEST - MOSTLY), Some(slow));
        assert_eq!(all(quick, 1), None, "it is over");
        for _ in 0..100 {
            all(quick, 1);
            assert_eq!(all(slow, 1), None, "half of them: a busy machine");
        }
    }
}
