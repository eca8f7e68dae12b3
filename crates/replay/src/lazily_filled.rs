//! Granules of a lazily filled volume are fetched before anything in them is asked for.
//!
//! Threads of their own read a page of each through the block device, past the page cache, in the plan's
//! order and as many at once as the volume fetches. Requests wait for the granules that they and all before
//! them need, so that none waits at the device, where it would keep the start's own reads from their turn. It
//! is a help and no more: where a read does not come back, or the volume turns out to be filled, nobody waits
//! any more, and requests fetch what they need by themselves.

use crate::device::MAX_THREADS;
use crate::governor::Governor;
use crate::threads::behind;
use headstart_model::plan::{Fill, PlanDevice};
use headstart_system::device::DeviceFacts;
use headstart_system::direct::{Aligned, BLOCK, Direct};
use headstart_system::files::{Type, stat};
use headstart_system::mounts::MountTable;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// A fetch took place where a read took this share of one at least.
const FETCHED: f64 = 0.25;
/// So many reads in a row without a fetch, and the volume is filled, as far as this start is concerned. They
/// take some 10 ms.
const FILLED: u32 = 32;
/// So long a request waits for its granule while none arrives: sixty times what a fetch takes.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often one that waits asks whether the replay goes on.
const LOOK: Duration = Duration::from_millis(50);

/// A volume that is filled.
pub struct Filling<'a> {
    fill: &'a Fill,
    volume: Direct,
    /// Bytes of the volume.
    size: u64,
    /// The next touch.
    next: AtomicUsize,
    progress: Mutex<Progress>,
    more: Condvar,
    /// Nothing is fetched any more, and nobody waits.
    over: AtomicBool,
}

struct Progress {
    /// Which touches are over.
    done: Vec<bool>,
    /// How many of them are over without a gap.
    until: usize,
    /// Reads in a row that found their granule there.
    quick: u32,
}

impl<'a> Filling<'a> {
    /// Opens the device that is mounted where the plan says; `None` where there is none.
    pub fn open(fill: &'a Fill, planned: &PlanDevice, mounts: &MountTable) -> Option<Filling<'a>> {
        let mount = mounts
            .lookup(planned.mount_point.as_bytes())
            .filter(|m| m.mount_point == planned.mount_point && mounts.is_local(m))?;
        let facts = DeviceFacts::of_mount(mount)?;
        let volume = Direct::open(facts.node.as_ref()?).ok()?;
        let node = stat(volume.fd()).ok()?;
        let same = node.kind == Type::Special && node.rdev == (facts.major, facts.minor);
        same.then(|| Filling::new(fill, volume, facts.size))
    }

    fn new(fill: &'a Fill, volume: Direct, size: u64) -> Filling<'a> {
        Filling {
            fill,
            volume,
            size,
            next: AtomicUsize::new(0),
            progress: Mutex::new(Progress {
                done: vec![false; fill.touches.len()],
                until: 0,
                quick: 0,
            }),
            more: Condvar::new(),
            over: AtomicBool::new(false),
        }
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to fetch, on threads that end with the last granule, or with [`Filling::end`]. `fetched` counts
    /// granules that had to be fetched.
    pub fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        governor: &'scope Governor,
        fetched: &'scope AtomicU64,
    ) {
        let depth = self.fill.first_touch.depth;
        let threads = depth.saturating_add(depth / 2).min(MAX_THREADS);
        let useful = self.fill.touches.len().min(threads as usize);
        let begun = (0..useful).filter(|_| behind(scope, move || self.fetch(governor, fetched)).is_ok());
        if begun.count() == 0 {
            self.end();
        }
    }

    /// Fetches nothing more; nobody waits.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        // Under the lock: who has looked and is about to wait is told, too.
        let _progress = self.progress();
        self.more.notify_all();
    }

    fn fetch(&self, governor: &Governor, fetched: &AtomicU64) {
        let slow = self.fill.first_touch.latency * FETCHED;
        let mut buffer = Aligned::new(BLOCK as usize);
        while !self.over.load(Ordering::Acquire) {
            if !governor.go_on() {
                self.end();
                break;
            }
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(touch) = self.fill.touches.get(number) else {
                break;
            };
            let begun = Instant::now();
            // Whatever it says, who needs something of the granule will be told.
            let _ = (touch.offset < self.size).then(|| self.volume.read(touch.offset, &mut buffer));
            let quick = begun.elapsed().as_secs_f64() < slow;
            fetched.fetch_add(u64::from(!quick), Ordering::Relaxed);
            if self.arrived(number, quick) {
                self.end();
            }
        }
    }

    /// A granule is there; whether all seem to be.
    fn arrived(&self, number: usize, quick: bool) -> bool {
        let mut progress = self.progress();
        if let Some(done) = progress.done.get_mut(number) {
            *done = true;
        }
        while progress.done.get(progress.until) == Some(&true) {
            progress.until += 1;
        }
        progress.quick = if quick { progress.quick + 1 } else { 0 };
        self.more.notify_all();
        progress.quick >= FILLED
    }

    /// Whether the granules that the requests up to this one need are there, or nobody waits for them.
    pub fn is_ready(&self, request: u32) -> bool {
        self.over.load(Ordering::Acquire) || self.reaches(&self.progress(), request)
    }

    fn reaches(&self, progress: &Progress, request: u32) -> bool {
        let next = self.fill.touches.get(progress.until);
        next.is_none_or(|touch| touch.request > request)
    }

    /// Waits until they are, or the replay is to stop.
    pub fn wait(&self, request: u32, governor: &Governor) {
        let mut progress = self.progress();
        let (mut last, mut since) = (progress.until, Instant::now());
        while !self.over.load(Ordering::Acquire) && !self.reaches(&progress, request) {
            (progress, _) = self
                .more
                .wait_timeout(progress, LOOK)
                .unwrap_or_else(PoisonError::into_inner);
            if progress.until != last {
                (last, since) = (progress.until, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                self.over.store(true, Ordering::Release);
                self.more.notify_all();
            }
            if !governor.go_on() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use headstart_model::machine::FirstTouch;
    use headstart_model::plan::Touch;

    const GRANULE: u64 = 64 << 10;

    fn fill(touches: &[(u64, u32)], latency: f64) -> Fill {
        Fill {
            device: 0,
            first_touch: FirstTouch {
                granule: GRANULE,
                latency,
                depth: 2,
            },
            touches: touches
                .iter()
                .map(|(granule, request)| Touch {
                    offset: granule * GRANULE,
                    request: *request,
                })
                .collect(),
        }
    }

    /// A file in the place of a volume.
    fn volume(granules: u64) -> (tempfile::NamedTempFile, Direct, u64) {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        file.as_file().set_len(granules * GRANULE).unwrap();
        let volume = Direct::open(file.path()).unwrap();
        (file, volume, granules * GRANULE)
    }

    fn governor() -> Governor {
        Governor::new(&Options {
            stop_below: 0,
            stop_pressure: 1e9,
            ..Options::new(Instant::now())
        })
    }

    #[test]
    fn a_request_waits_for_its_granules_and_those_before() {
        let fill = fill(&[(4, 0), (9, 0), (2, 3), (7, 5)], 1e-9);
        let (_file, device, size) = volume(10);
        let filling = Filling::new(&fill, device, size);
        let ready = || [0, 2, 3, 4, 5, 9].map(|request| filling.is_ready(request));
        assert_eq!(ready(), [false; 6]);
        filling.arrived(1, false);
        assert_eq!(ready(), [false; 6], "the first is still on its way");
        filling.arrived(0, false);
        assert_eq!(ready(), [true, true, false, false, false, false]);
        filling.arrived(2, false);
        assert_eq!(ready(), [true, true, true, true, false, false]);
        filling.arrived(3, false);
        assert_eq!(ready(), [true; 6]);
    }

    #[test]
    fn all_granules_are_fetched_and_none_beyond_the_end() {
        // Of one that lies beyond the end nothing is read, and nobody waits for it.
        let fill = fill(&[(0, 0), (3, 1), (1 << 30, 2), (5, 3)], 1e-12);
        let (_file, device, size) = volume(6);
        let filling = Filling::new(&fill, device, size);
        let (governor, fetched) = (governor(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            filling.start(scope, &governor, &fetched);
            filling.wait(3, &governor);
        });
        assert!(filling.is_ready(u32::MAX));
        assert_eq!(
            fetched.into_inner(),
            4,
            "by the time that a fetch is said to take here"
        );
        assert!(!filling.over.load(Ordering::Acquire));
    }

    #[test]
    fn of_a_volume_that_is_filled_few_granules_are_read() {
        let touches: Vec<(u64, u32)> = (0..5000).map(|n| (n % 10, n as u32)).collect();
        let fill = fill(&touches, 1e6);
        let (_file, device, size) = volume(10);
        let filling = Filling::new(&fill, device, size);
        let (governor, fetched) = (governor(), AtomicU64::new(0));
        std::thread::scope(|scope| filling.start(scope, &governor, &fetched));
        assert!(filling.is_ready(u32::MAX));
        assert_eq!(fetched.into_inner(), 0);
        let read = filling.next.into_inner();
        assert!((FILLED as usize..FILLED as usize + 5).contains(&read), "{read}");
    }

    #[test]
    fn a_replay_that_is_stopped_keeps_nobody_waiting() {
        let touches: Vec<(u64, u32)> = (0..100).map(|n| (n % 10, n as u32)).collect();
        let fill = fill(&touches, 1e-12);
        let (_file, device, size) = volume(10);
        let filling = Filling::new(&fill, device, size);
        let (governor, fetched) = (governor(), AtomicU64::new(0));
        governor.stop("it was asked to stop");
        filling.wait(99, &governor);
        std::thread::scope(|scope| filling.start(scope, &governor, &fetched));
        assert!(filling.is_ready(99));
        assert_eq!(filling.next.into_inner(), 0);
    }

    #[test]
    fn a_volume_that_does_not_answer_is_not_waited_for() {
        let fill = fill(&[(0, 0)], 1.0);
        let (_file, device, size) = volume(1);
        let filling = Filling::new(&fill, device, size);
        // Nobody fetches.
        filling.wait(0, &governor());
        assert!(filling.is_ready(0), "given up for all");
    }
}
