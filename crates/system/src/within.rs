//! Asking what may never be answered: a process can have whoever reads its memory wait, by what it maps there and by the locks that it holds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::Builder;
use std::time::Duration;

/// So many may be asked at a time. With more nobody is, so that who has all of them wait costs each start nothing but its question.
const MOST: usize = 4;

/// Stack of a thread that asks, bytes.
const STACK: usize = 128 << 10;

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

/// What `ask` finds, by a thread of its own; `None` also if that takes longer than this. Such a thread stays until it is answered, or its process ends.
pub(crate) fn within<T: Send + 'static>(
    most: Duration,
    ask: impl FnOnce() -> Option<T> + Send + 'static,
) -> Option<T> {
    let asked = Asked::begin()?;
    let (tell, told) = sync_channel(1);
    let thread = Builder::new().name("ask".into()).stack_size(STACK);
    let begun = thread.spawn(move || {
        let found = ask();
        drop(asked);
        // Nobody may wait for it any more.
        let _ = tell.send(found);
    });
    begun.ok()?;
    told.recv_timeout(most).ok()?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    #[test]
    fn who_does_not_answer_is_waited_for_so_long_and_not_asked_by_ever_more_threads() {
        let (short, long) = (Duration::from_millis(10), Duration::from_secs(60));
        let mut answers = Vec::new();
        for _ in 0..MOST {
            let (answer, answered) = channel::<u32>();
            answers.push(answer);
            assert_eq!(within(short, move || answered.recv().ok()), None);
        }
        let begun = Instant::now();
        assert_eq!(within(long, || Some(7)), None);
        assert!(begun.elapsed() < long);
        drop(answers);
        while within(long, || Some(7)).is_none() {
            assert!(begun.elapsed() < long, "nobody is asked any more");
        }
        // Each has ended when its answer is there.
        for number in 0..100 {
            assert_eq!(within(long, move || Some(number)), Some(number));
        }
    }
}
