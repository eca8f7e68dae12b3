//! A start during which the kernel maps nothing around a fault (decision 14). That takes a process of its own to begin and to end, for which
//! whoever answers starts has no time.

use headstart_system::fault_around::NoFaultAround;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// No start is recorded for longer than that.
const MOST: Duration = Duration::from_secs(35);

/// Under way.
pub(super) struct Exact(JoinHandle<Option<NoFaultAround>>);

impl Exact {
    /// Begins within a moment; `None` where there is no thread to be had.
    pub(super) fn begin() -> Option<Exact> {
        let begin = || NoFaultAround::begin(MOST).ok();
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
            let _ = thread().spawn(move || drop(began));
        }
        exact
    }
}

fn thread() -> Builder {
    Builder::new().name("exact".into()).stack_size(128 << 10)
}
