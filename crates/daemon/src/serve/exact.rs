//! A start during which the kernel maps nothing around a fault (decision 14). That takes a process of its own
//! to begin and to end, for which whoever answers starts has no time.

use headstart_record::Options;
use headstart_system::fault_around::NoFaultAround;
use headstart_system::thread;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// No start is recorded for longer than that: its limit, and what it takes to begin and to end.
const MOST: Duration = Options::LIMIT.saturating_add(Duration::from_secs(5));

/// All others' faults map less, too: so such starts take one in so many parts of the time, whoever starts
/// programs, and how often.
const PART: u32 = 50;

/// When the next may begin.
#[derive(Default)]
pub(super) struct Budget(Option<Instant>);

impl Budget {
    /// Starts an exact recording, unless others ran lately.
    pub(super) fn start(&mut self, now: Instant) -> Option<Exact> {
        if self.0.is_some_and(|next| now < next) {
            return None;
        }
        self.0 = Some(now + MOST * PART);
        Exact::start()
    }

    /// One that took so long has ended.
    pub(super) fn charge(&mut self, now: Instant, took: Duration) {
        self.0 = Some(now + took.min(MOST) * PART);
    }
}

/// Under way.
pub(super) struct Exact(JoinHandle<Option<NoFaultAround>>);

impl Exact {
    /// Begins within a moment; `None` where there is no thread to be had.
    fn start() -> Option<Exact> {
        let begin = || NoFaultAround::start(MOST).ok();
        Some(Exact(thread().spawn(begin).ok()?))
    }

    /// Ends within a moment; whether it was so since soon after the beginning.
    pub(super) fn end(self) -> bool {
        let began = match self.0.is_finished() {
            true => self.0.join().ok().flatten(),
            // The start was over before, and it ends by itself.
            false => None,
        };
        let exact = began.is_some();
        if began.is_some() {
            // Where there is no thread it is dropped here.
            let _ = thread::spawn_small("exact", Box::new(move || drop(began)));
        }
        exact
    }
}

fn thread() -> Builder {
    Builder::new().name("exact".into()).stack_size(128 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_took_long_is_followed_by_none_for_much_longer() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        let may = |budget: &Budget, seconds| {
            budget
                .0
                .is_none_or(|next| now + Duration::from_secs(seconds) >= next)
        };
        assert!(may(&budget, 0));
        budget.0 = Some(now + MOST * PART);
        assert!(
            budget.start(now + Duration::from_secs(60)).is_none(),
            "while it is under way"
        );
        budget.charge(now, Duration::from_secs(3));
        assert!(!may(&budget, 149) && may(&budget, 150));
        budget.charge(now, Duration::from_secs(1000));
        assert!(!may(&budget, 65 * 50 - 1) && may(&budget, 65 * 50));
    }
}
