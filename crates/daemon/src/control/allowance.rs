//! How much of the serving thread's time each user has.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A user's calls may take one part in so many of the time.
const ONE_IN: u32 = 10;

/// And so much time without a rest, that counted: a list of all programs is some hundred calls of a
/// millisecond.
const AT_ONCE: Duration = Duration::from_secs(2);

/// By user, until when what was answered so far has been paid for.
#[derive(Default)]
pub(super) struct Allowances(HashMap<u32, Instant>);

impl Allowances {
    /// A call of this user's has taken so long; gives when the next may be answered.
    pub(super) fn charge(&mut self, user: u32, time: Duration, now: Instant) -> Instant {
        // Of others nothing is owed any more.
        self.0.retain(|_, paid| *paid > now);
        let paid = self.0.entry(user).or_insert(now);
        *paid = (*paid).max(now) + time * ONE_IN;
        match paid.checked_sub(AT_ONCE) {
            Some(next) => next.max(now),
            None => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_calls_without_a_rest_has_a_tenth_of_the_time_and_takes_nothing_from_others() {
        let begun = Instant::now();
        let mut allowances = Allowances::default();
        let took = Duration::from_millis(4);
        let (mut now, mut calls) = (begun, 0);
        while now < begun + Duration::from_secs(100) {
            now = allowances.charge(1000, took, now + took);
            calls += 1;
        }
        // With what may come at once.
        assert!((2500..=2560).contains(&calls), "{calls}");
        assert_eq!(allowances.charge(1001, took, now), now);
        // Some are answered at once again after a rest, and nothing is kept of who owes nothing.
        let later = now + Duration::from_secs(10);
        assert_eq!(allowances.charge(1000, took, later), later);
        assert_eq!(allowances.0.len(), 1);
    }
}
