//! Asking what may never be answered: a process can have whoever reads its memory wait, by what it maps there
//! and by the locks that it holds.

use crate::thread::spawn_small;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So many may be asked at a time, and of one user so many: more are not, so that who has them wait costs
/// each start nothing but its question, and others' starts not even that. The last are for the system's.
const MOST: usize = 16;
const MOST_OF_A_USER: usize = 4;

/// Whose are asked now.
static ASKED: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// One who is asked.
struct QuestionSlot(u32);

impl QuestionSlot {
    fn take(user: u32) -> Option<QuestionSlot> {
        let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
        let theirs = asked.iter().filter(|other| **other == user).count();
        let room = match user {
            0 => MOST,
            _ => MOST - MOST_OF_A_USER,
        };
        (theirs < MOST_OF_A_USER && asked.len() < room).then(|| {
            asked.push(user);
            QuestionSlot(user)
        })
    }
}

impl Drop for QuestionSlot {
    fn drop(&mut self) {
        let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = asked.iter().position(|other| *other == self.0) {
            asked.swap_remove(at);
        }
    }
}

/// A question; what it finds are bytes.
pub(crate) type Ask = Box<dyn FnOnce() -> Option<Vec<u8>> + Send>;

/// What `ask` finds of a process of this user's, by a thread of its own; `None` also if that takes longer
/// than this. Such a thread stays until it is answered, or its process ends.
pub fn ask_within(user: u32, most: Duration, ask: Ask) -> Option<Vec<u8>> {
    let until = Instant::now() + most;
    let asked = QuestionSlot::take(user)?;
    // Not there yet, or all that was found.
    let answer = Arc::new(Mutex::new(None));
    let (told, asker) = (Arc::clone(&answer), std::thread::current());
    let ask = move || {
        let bytes = ask();
        drop(asked);
        if let Ok(mut answer) = told.lock() {
            *answer = Some(bytes);
        }
        asker.unpark();
    };
    spawn_small("ask", Box::new(ask)).ok()?;
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
        for _ in 0..MOST_OF_A_USER {
            let (answer, answered) = channel();
            answers.push(answer);
            assert_eq!(
                ask_within(1000, short, Box::new(move || answered.recv().ok())),
                None
            );
        }
        let begun = Instant::now();
        assert_eq!(ask_within(1000, long, Box::new(|| Some(vec![7]))), None);
        assert!(begun.elapsed() < long);
        // Another's is.
        for user in [0, 1001] {
            assert_eq!(ask_within(user, long, Box::new(|| Some(vec![7]))), Some(vec![7]));
        }
        drop(answers);
        while ask_within(1000, long, Box::new(|| Some(vec![7]))).is_none() {
            assert!(begun.elapsed() < long, "nobody is asked any more");
        }
        // Each has ended when its answer is there.
        for number in 0..100 {
            assert_eq!(
                ask_within(1000, long, Box::new(move || Some(vec![number]))),
                Some(vec![number])
            );
        }
    }
}
