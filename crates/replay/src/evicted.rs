//! Whether what was read stays in memory: samples of it, looked at again after a while.
//!
//! A page that the kernel takes back before the start has used it was read in vain, and pushed something else
//! out. The kernel counts refaults, but of all pages of all programs; what tells of this replay alone is
//! whether its own pages are still there.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What was read so long ago is looked at again.
const AGE: Duration = Duration::from_millis(500);
/// One sample is taken in so long at most, and so many wait to be looked at.
const EVERY: Duration = Duration::from_millis(50);
const MOST: usize = 16;
/// With fewer pages nothing is said, and with one in so many gone nothing is wrong: some page is always the
/// oldest.
const ENOUGH: u64 = 32;
const GONE: u64 = 4;

/// Pages of a file that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When they had arrived.
    pub at: Instant,
    /// The file's number in the plan.
    pub file: u32,
    /// The first byte, and how many.
    pub bytes: (u64, u64),
    /// How many pages were in memory then.
    pub pages: u64,
}

/// Samples that wait, and what those found that were looked at.
#[derive(Default)]
pub struct Evicted(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Sample>,
    last: Option<Instant>,
    looked: u64,
    gone: u64,
}

impl Evicted {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a sample, if it is time for one.
    pub fn offer(&self, at: Instant, sample: impl FnOnce() -> Sample) {
        let mut state = self.state();
        let is_due = state
            .last
            .is_none_or(|last| at.saturating_duration_since(last) >= EVERY);
        if is_due && state.waiting.len() < MOST {
            state.last = Some(at);
            state.waiting.push_back(sample());
        }
    }

    /// The next sample that is to be looked at.
    pub fn due(&self, now: Instant) -> Option<Sample> {
        let mut state = self.state();
        let is_old = |sample: &&Sample| now.saturating_duration_since(sample.at) >= AGE;
        state.waiting.front().filter(is_old)?;
        state.waiting.pop_front()
    }

    /// Of a sample so many pages were in memory then, and so many are now: how many of those looked at so far
    /// are gone, if that is too many.
    pub fn note(&self, then: u64, now: u64) -> Option<(u64, u64)> {
        let mut state = self.state();
        state.looked += then;
        state.gone += then.saturating_sub(now);
        let State { looked, gone, .. } = *state;
        (looked >= ENOUGH && gone > looked / GONE).then_some((looked, gone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: Instant, file: u32) -> Sample {
        Sample {
            at,
            file,
            bytes: (0, 4096),
            pages: 1,
        }
    }

    #[test]
    fn few_samples_are_taken_and_each_is_looked_at_once_it_is_old() {
        let (evicted, begun) = (Evicted::default(), Instant::now());
        for file in 0..1000 {
            let at = begun + Duration::from_millis(u64::from(file));
            evicted.offer(at, || sample(at, file));
        }
        assert_eq!(evicted.due(begun + AGE / 2), None);
        let later = begun + Duration::from_secs(10);
        let files: Vec<u32> = std::iter::from_fn(|| evicted.due(later).map(|it| it.file)).collect();
        assert_eq!(files.len(), MOST);
        assert!(files.windows(2).all(|two| two[1] - two[0] >= 50), "{files:?}");
    }

    #[test]
    fn one_page_in_four_may_be_gone_and_few_pages_say_nothing() {
        let evicted = Evicted::default();
        assert_eq!(evicted.note(ENOUGH - 1, 0), None);
        assert_eq!(evicted.note(1, 1), Some((32, 31)));
        let evicted = Evicted::default();
        assert_eq!(evicted.note(100, 75), None);
        assert_eq!(evicted.note(4, 2), Some((104, 27)));
        assert_eq!(evicted.note(1000, 5000), None);
    }
}
