//! How fast files are moved, and when not: others come first.

use headstart_system::device::DeviceFacts;
use headstart_system::memory::{Resource, memory, pressure};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// With less memory than this nothing more is moved: what is moved goes through it.
const LEAST_MEMORY: u64 = 32 << 20;
/// So often it is looked whether others use the device. A look takes [`LOOK`], in which nothing is moved:
/// what is under way then is of others.
const EVERY: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);
/// They do if the device is busy for this share of a look.
const SHARE: f64 = 0.5;
/// So often it is looked how much memory there is: a look reads a dozen files.
const EVERY_MEMORY: Duration = Duration::from_millis(100);
/// Of memory this share of the last ten seconds, percent, is too much.
const MEMORY_10: f64 = 10.0;
/// After so long it ends instead of waiting on.
const PATIENCE: Duration = Duration::from_secs(300);

/// Why it ended before all was moved.
#[derive(Debug)]
pub(crate) enum Halt {
    /// A signal.
    Asked,
    /// Too little memory.
    NoMemory,
    /// Others waited for the device or for memory all the time.
    Pressed,
    /// The time it had is over.
    NoTime,
    /// It cannot be done, or is not worth it: nothing was moved.
    Declined(String),
    /// An error.
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Halt {
    fn from(error: E) -> Halt {
        Halt::Failed(error.into())
    }
}

/// Whether it was asked to end, or its time is over.
pub(crate) fn halt(stop: &AtomicBool, deadline: Option<Instant>) -> Option<Halt> {
    if stop.load(Ordering::Relaxed) {
        return Some(Halt::Asked);
    }
    let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
    is_late.then_some(Halt::NoTime)
}

/// Keeps to the bounds of one time.
pub(crate) struct Pace<'a> {
    stop: &'a AtomicBool,
    rate: Option<u64>,
    deadline: Option<Instant>,
    began: Instant,
    bytes: u64,
    looked: Instant,
    /// When it was looked how much memory there is, and whether that was too little.
    memory: Cell<Option<(Instant, bool)>>,
    /// The device that is moved on.
    pub device: Option<DeviceFacts>,
}

impl<'a> Pace<'a> {
    /// `rate` is bytes a second; `deadline` when it ends at the latest.
    pub fn new(stop: &'a AtomicBool, rate: Option<u64>, deadline: Option<Instant>) -> Pace<'a> {
        let now = Instant::now();
        Pace {
            stop,
            rate,
            deadline,
            began: now,
            bytes: 0,
            looked: now,
            memory: Cell::new(None),
            device: None,
        }
    }

    /// Why it ends here, if it does.
    pub fn halt(&self) -> Option<Halt> {
        let is_over = || halt(self.stop, self.deadline);
        is_over().or_else(|| self.is_short().then_some(Halt::NoMemory))
    }

    /// Whether memory is short, as it was when it was last looked.
    fn is_short(&self) -> bool {
        if let Some((at, short)) = self.memory.get() {
            if at.elapsed() < EVERY_MEMORY {
                return short;
            }
        }
        let short = memory().is_ok_and(|memory| memory.available < LEAST_MEMORY);
        self.memory.set(Some((Instant::now(), short)));
        short
    }

    /// Whether it is time to look for others.
    pub fn is_to_look(&self) -> bool {
        self.looked.elapsed() >= EVERY
    }

    /// Makes way after so many bytes were moved: for the rate, and where it `looks`, as long as others wait:
    /// what of ours is on its way to the device counts as theirs.
    pub fn make_way(&mut self, bytes: u64, looks: bool) -> Result<(), Halt> {
        self.bytes += bytes;
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.bytes as f64 / rate.max(1) as f64);
            while self.began.elapsed() < due && self.halt().is_none() {
                let left = due.saturating_sub(self.began.elapsed());
                std::thread::sleep(left.min(Duration::from_millis(100)));
            }
        }
        if looks {
            let began = Instant::now();
            while self.others_wait() {
                std::thread::sleep(LOOK);
                if began.elapsed() > PATIENCE {
                    return Err(Halt::Pressed);
                }
                if let Some(halt) = self.halt() {
                    return Err(halt);
                }
            }
            self.looked = Instant::now();
        }
        self.halt().map_or(Ok(()), Err)
    }

    /// Looks whether others wait, for a moment.
    fn others_wait(&self) -> bool {
        let busy = self.device.as_ref().and_then(|device| device.busy_for(LOOK));
        busy.is_some_and(|share| share > SHARE)
            || pressure(Resource::Memory).is_some_and(|memory| memory.some_10 > MEMORY_10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_it_is_asked_to_and_when_its_time_is_over() {
        let stop = AtomicBool::new(false);
        assert!(Pace::new(&stop, None, None).halt().is_none());
        let over = Pace::new(&stop, None, Some(Instant::now())).halt();
        assert!(matches!(over, Some(Halt::NoTime)), "{over:?}");
        stop.store(true, Ordering::Relaxed);
        // Also while it keeps to a rate: this one would take it hours.
        let mut pace = Pace::new(&stop, Some(1), None);
        assert!(matches!(pace.make_way(1 << 20, true), Err(Halt::Asked)));
    }
}
