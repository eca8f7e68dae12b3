//! Asking what may never be answered: a process can have whoever reads its memory wait, by what it maps there and by the locks that it holds.

use crate::thread::begin_small;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// So many may be asked at a time. With more nobody is, so that who has all of them wait costs each start nothing but its question.
const MOST: usize = 4;

/// How many are asked now.
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// One who is asked.
struct Asked;

impl Asked {
    fn begin() -> Option<Asked> {
        let before = ASKED.fetch_add(1, Ordering::Relaxed);
        let asked = Asked;
        (before < MOST).then_some(asked)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        ASKED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A question; what it finds are bytes.
pub(crate) type Ask = Box<dyn FnOnce() -> Option<Vec<u8>> + Send>;

/// What `ask` finds, by a thread of its own; `None` also if that takes longer than this. Such a thread stays until it is answered, or its process ends.
pub(crate) fn within(most: Duration, ask: Ask) -> Option<Vec<u8>> {
    let until = Instant::now() + most;
    let asked = Asked::begin()?;
    // Not there yet, or all that was found.
    let answer = Arc::new(Mutex::new(None));
    let (told, asker) = (Arc::clone(&answer), std::thread::current());
    let ask = move || {
        let found = ask();
        drop(asked);
        if let Ok(mut answer) = told.lock() {
            *answer = Some(found);
        }
        asker.unpark();
    };
    begin_small("ask", Box::new(ask)).ok()?;
    loop {
        if let Some(found) = answer.lock().ok()?.take() {
            return found;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn who_does_not_answer_is_waited_for_so_long_and_not_asked_by_ever_more_threads() {
        let (short, long) = (Duration::from_millis(10), Duration::from_secs(60));
        let mut answers = Vec::new();
        for _ in 0..MOST {
            let (answer, answered) = channel();
            answers.push(answer);
            assert_eq!(within(short, Box::new(move || answered.recv().ok())), None);
        }
        let begun = Instant::now();
        assert_eq!(within(long, Box::new(|| Some(vec![7]))), None);
        assert!(begun.elapsed() < long);
        drop(answers);
        while within(long, Box::new(|| Some(vec![7]))).is_none() {
            assert!(begun.elapsed() < long, "nobody is asked any more");
        }
        // Each has ended when its answer is there.
        for number in 0..100 {
            assert_eq!(
                within(long, Box::new(move || Some(vec![number]))),
                Some(vec![number])
            );
        }
    }
}
