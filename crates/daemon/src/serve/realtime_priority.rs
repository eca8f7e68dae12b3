//! The thread that answers comes before all others: each turn that a start's replay waits for on busy
//! processors is some milliseconds, and a start has none to lose.
//!
//! It does so as long as it does little, as it does but in storms: whoever makes it work all the time has it
//! work like anybody.

use super::NICE;
use headstart_start::notes::log;
use headstart_system::limits::bound_time_before_others;
use headstart_system::priority::{before_others, leave_realtime, set_nice};
use std::time::{Duration, Instant};

/// It has had nothing to do, if it waited for so long.
const RESTED: Duration = Duration::from_micros(200);

/// Without a rest it comes before others for so long. A start is answered in a millisecond.
const MOST: Duration = Duration::from_millis(20);

/// A thread that still comes before others after so much computing is stuck: the kernel ends the daemon, and
/// the service manager starts it anew.
const STUCK: Duration = Duration::from_secs(2);

/// How the calling thread stands to others.
pub(super) struct RealtimePriority {
    /// Whether it may come before them.
    may: bool,
    /// Whether it does.
    is: bool,
    rested: Instant,
}

impl RealtimePriority {
    pub(super) fn raise() -> RealtimePriority {
        if let Err(error) = set_nice(NICE) {
            log(&format!("starts are answered no sooner than others run: {error}"));
        }
        // In a control group without a share of such time, and in a container, it is not allowed: then its
        // nice value has to do.
        let may = bound_time_before_others(STUCK).is_ok() && before_others().is_ok();
        RealtimePriority {
            may,
            is: may,
            rested: Instant::now(),
        }
    }

    /// It has waited for so long, and has something to do now.
    pub(super) fn note_wait(&mut self, time: Duration) {
        if time >= RESTED {
            self.rested = Instant::now();
            if self.may && !self.is {
                self.is = before_others().is_ok();
            }
        } else if self.is && self.rested.elapsed() >= MOST {
            self.is = leave_realtime().is_err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_system::testing::needs;

    #[test]
    fn who_never_rests_comes_before_nobody() {
        let seen = std::thread::spawn(|| {
            let mut first = RealtimePriority::raise();
            if !first.may {
                return None;
            }
            let at_first = first.is;
            first.rested = Instant::now().checked_sub(MOST).unwrap();
            first.note_wait(Duration::ZERO);
            let after = first.is;
            first.note_wait(RESTED);
            Some((at_first, after, first.is))
        });
        let seen = seen.join().unwrap();
        if needs("the right to real-time priority", seen.is_some()) {
            assert_eq!(seen, Some((true, false, true)));
        }
    }
}
