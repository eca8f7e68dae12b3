//! Whether a device answers as its plan says: an image that was learned on a disk of its own may have become
//! a volume that is fetched over a network, or a volume may be filled from a snapshot once more. The plan's
//! order still holds there; how much is asked for at once does not.

use headstart_model::machine::Cost;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Answers in a row that are late before a device is one that answers later than planned. Until then it is
/// asked as planned: of one that takes 33 ms, for a tenth of a second.
const LATE: u32 = 3;
/// How many times as long as planned an answer takes that is late, ...
const TIMES: f64 = 4.0;
/// ... and how much longer at least: on busy processors a thread waits as long for its turn.
const LONGER: Duration = Duration::from_millis(5);

/// How long a device's answers take, beside what was planned.
#[derive(Debug)]
pub struct Pace {
    planned: Cost,
    /// Late answers in a row; it stays once it has come to [`LATE`].
    late: AtomicU32,
}

impl Pace {
    /// Of a device that costs as much as this, as far as its plan knows.
    pub fn new(planned: Cost) -> Pace {
        Pace {
            planned,
            late: AtomicU32::new(0),
        }
    }

    /// A read of so many bytes was waited for, from when it was asked for or later.
    pub fn note_read(&self, bytes: u64, time: Duration) {
        let planned = self.planned.latency + bytes as f64 / self.planned.bandwidth;
        // Nothing is, where what was planned is no number, or without end.
        let late = time.as_secs_f64() > (planned * TIMES).max(planned + LONGER.as_secs_f64());
        let counted = |so_far: u32| match (so_far, late) {
            (LATE.., _) => None,
            (_, true) => Some(so_far + 1),
            (_, false) => Some(0),
        };
        // An error: it is late already.
        let _ = self
            .late
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted);
    }

    /// Whether it answers later than planned.
    pub fn is_late(&self) -> bool {
        self.late.load(Ordering::Relaxed) >= LATE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::machine::DeviceClass;

    fn pace() -> Pace {
        Pace::new(Cost {
            class: DeviceClass::Flash,
            bandwidth: 500e6,
            latency: 161e-6,
            depth: 1,
        })
    }

    #[test]
    fn three_late_answers_in_a_row_are_enough() {
        let pace = pace();
        let (late, soon) = (Duration::from_millis(33), Duration::from_micros(200));
        for (time, is_late) in [
            (late, false),
            (late, false),
            (soon, false),
            (late, false),
            (late, false),
            (late, true),
            (soon, true),
        ] {
            pace.note_read(4096, time);
            assert_eq!(pace.is_late(), is_late);
        }
    }

    #[test]
    fn what_takes_long_to_transfer_is_not_late_nor_is_a_turn_that_was_waited_for() {
        let pace = pace();
        for _ in 0..5 {
            pace.note_read(8 << 20, Duration::from_millis(60));
            pace.note_read(4096, Duration::from_millis(5));
        }
        assert!(!pace.is_late());
    }
}
