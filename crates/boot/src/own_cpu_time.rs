//! The processors' time that headstart itself takes in a boot, by part: what others do not have meanwhile,
//! where processors are what is short.

use crate::marks::clock_ns;
use headstart_model::human::duration;
use headstart_start::decide::record_every;
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};

/// Processors' time by part, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnCpuTime {
    /// From its first instruction until the replay has begun: reading itself and what it needs first,
    /// deciding.
    pub begin_ns: u64,
    /// Attaching the recorder.
    pub attach_ns: u64,
    /// Until the replay was over, the recording of that time included.
    pub replay_ns: u64,
    /// Recording from then on.
    pub record_ns: u64,
    /// What waited for the boot's end: review, learning, planning.
    pub finish_ns: u64,
}

/// That of all of this process's threads so far.
fn of_process() -> u64 {
    clock_ns(ClockId::ProcessCPUTime)
}

impl OwnCpuTime {
    /// All until the boot's end.
    fn before_end_ns(&self) -> u64 {
        [self.begin_ns, self.attach_ns, self.replay_ns, self.record_ns]
            .into_iter()
            .fold(0, u64::saturating_add)
    }

    /// What was spent beside others: from when nobody had to wait for headstart any more to the boot's end.
    /// Before that its time passes for all who wait, which is counted as time.
    pub fn beside_others_ns(&self) -> u64 {
        self.replay_ns.saturating_add(self.record_ns)
    }

    /// One known boot in so many is recorded, by what attaching and recording take of what boots take of
    /// processors, of which this one took `cpu_ns`. What was recorded while the replay went on is not told
    /// apart from that, and left out.
    pub fn record_every(&self, cpu_ns: Option<u64>) -> u32 {
        record_every(self.attach_ns.saturating_add(self.record_ns), cpu_ns)
    }

    /// Gives what has been spent by now, and is in no part yet, to one.
    pub fn until_now(&mut self, part: fn(&mut OwnCpuTime) -> &mut u64) {
        let known = self.before_end_ns().saturating_add(self.finish_ns);
        let part = part(self);
        *part = part.saturating_add(of_process().saturating_sub(known));
    }

    /// For people.
    pub fn text(&self) -> String {
        format!(
            "Until the boot's end headstart took {} of processors: {} to begin, {} to attach the recorder, {} while it read ahead, {} while it \
             only recorded; and {} after it.",
            duration(self.before_end_ns()),
            duration(self.begin_ns),
            duration(self.attach_ns),
            duration(self.replay_ns),
            duration(self.record_ns),
            duration(self.finish_ns)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_waited_for_and_what_comes_after_the_end_is_not_spent_beside_them() {
        let spent = OwnCpuTime {
            begin_ns: 100,
            attach_ns: 20,
            replay_ns: 3,
            record_ns: 4,
            finish_ns: 5000,
        };
        assert_eq!(spent.beside_others_ns(), 7);
    }

    #[test]
    fn recording_takes_a_hundredth_of_the_processors_over_all_boots() {
        let spent = |attach_ns, record_ns| OwnCpuTime {
            begin_ns: 1 << 40,
            attach_ns,
            record_ns,
            ..OwnCpuTime::default()
        };
        assert_eq!(spent(60, 40).record_every(Some(10_000)), 1);
        assert_eq!(spent(60, 41).record_every(Some(10_000)), 2);
        assert_eq!(spent(780, 460).record_every(Some(20_700)), 6);
        assert_eq!(spent(780, 460).record_every(Some(100)), 10);
        assert_eq!(spent(780, 460).record_every(Some(0)), 10);
        assert_eq!(spent(780, 460).record_every(None), 1, "nobody knows");
        assert_eq!(OwnCpuTime::default().record_every(Some(0)), 1);
    }

    #[test]
    fn the_parts_are_all_that_was_spent() {
        let mut spent = OwnCpuTime {
            attach_ns: of_process() / 2,
            ..OwnCpuTime::default()
        };
        spent.until_now(|spent| &mut spent.begin_ns);
        let begun = spent.begin_ns;
        let mut sum = 0u64;
        // Longer than any clock's step.
        while of_process() < spent.before_end_ns() + 2_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        spent.until_now(|spent| &mut spent.record_ns);
        spent.until_now(|spent| &mut spent.finish_ns);
        assert!(spent.record_ns >= 2_000_000 && spent.begin_ns == begun && spent.replay_ns == 0);
        assert!(spent.before_end_ns() + spent.finish_ns <= of_process());
    }
}
