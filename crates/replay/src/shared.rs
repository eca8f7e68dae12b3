//! What the threads of a replay share with its owner.

use crate::apart::Apart;
use crate::governor::Governor;
use crate::options::Options;
use crate::work::Work;
use std::sync::atomic::AtomicU64;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// What the threads of a replay share with its owner.
pub struct Shared {
    pub governor: Governor,
    /// Devices whose barrier the start still waits at.
    barriers: Mutex<usize>,
    released: Condvar,
    /// When the last of them was released.
    released_at: OnceLock<Instant>,
    /// Whether nothing of the plan is open any more, nor will be.
    closed: Mutex<bool>,
    closing: Condvar,
    /// Parts of requests that are over.
    pub over: AtomicU64,
    /// Those of them that could be read.
    pub arrived: AtomicU64,
    /// Granules of lazily filled volumes that were fetched.
    pub fetched: AtomicU64,
    /// The requests, once they are shared out.
    pub works: OnceLock<Vec<Work>>,
    /// The processes that read remote file systems.
    pub apart: Vec<Apart>,
}

impl Shared {
    /// Nothing is done yet, and so many devices have a barrier.
    pub fn new(options: &Options, barriers: usize, apart: Vec<Apart>) -> Shared {
        Shared {
            governor: Governor::new(options),
            barriers: Mutex::new(barriers),
            released: Condvar::new(),
            released_at: OnceLock::new(),
            closed: Mutex::new(false),
            closing: Condvar::new(),
            over: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            fetched: AtomicU64::new(0),
            works: OnceLock::new(),
            apart,
        }
    }

    /// How many barriers stand.
    pub fn standing(&self) -> usize {
        *self.barriers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the last barrier was released; `None` while one stands, and where there was none.
    pub fn released_at(&self) -> Option<Instant> {
        self.released_at.get().copied()
    }

    /// Waits until no barrier stands any more, so long at most.
    pub fn wait(&self, limit: Duration) {
        let barriers = self.barriers.lock().unwrap_or_else(PoisonError::into_inner);
        // A poisoned lock or the limit: either way the start goes on.
        let _ = self
            .released
            .wait_timeout_while(barriers, limit, |barriers| *barriers > 0);
    }

    /// All that was open is closed.
    pub fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.closing.notify_all();
    }

    /// Waits until all that was open is closed, so long at most.
    pub fn wait_closed(&self, limit: Duration) {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        // A poisoned lock or the limit: either way nobody waits for longer.
        let _ = self.closing.wait_timeout_while(closed, limit, |closed| !*closed);
    }

    /// Nothing more is asked for, here and by the processes that read remote file systems.
    pub fn stop(&self) {
        self.governor.stop_requests();
        self.apart.iter().for_each(Apart::stop);
    }

    /// So many barriers are released.
    pub fn release(&self, devices: usize) {
        let mut barriers = self.barriers.lock().unwrap_or_else(PoisonError::into_inner);
        *barriers = barriers.saturating_sub(devices);
        if *barriers == 0 {
            self.released_at.get_or_init(Instant::now);
        }
        self.released.notify_all();
    }
}
