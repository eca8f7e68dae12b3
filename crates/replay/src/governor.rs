//! Whether the replay may go on: not when asked to stop, when memory runs short, or when others wait for
//! memory.
//!
//! The threads ask between requests; one of them looks at `/proc` every [`INTERVAL`].

use crate::options::Options;
use headstart_system::memory::{Resource, memory, pages_scanned, pressure};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time between two looks at memory: a look costs about 0.1 ms, and a fast disk fills 100 MB in between.
const INTERVAL: Duration = Duration::from_millis(50);
/// Pressure is judged over at least this time: the kernel adds up stalls every few milliseconds.
const PRESSURE_WINDOW: Duration = Duration::from_millis(200);

/// Decides whether requests may still be issued.
pub struct Governor {
    begun: Instant,
    stop_below: u64,
    stop_pressure: f64,
    stop_at_reclaim: bool,
    stopped: OnceLock<String>,
    asked: AtomicBool,
    /// When to look next, nanoseconds since `begun`.
    next_look: AtomicU64,
    /// Bytes that may still be read.
    allowance: AtomicU64,
    first: OnceLock<First>,
    /// Memory stalls until the last judgement, microseconds, and when that was, nanoseconds since `begun`.
    stalls: AtomicU64,
    judged: AtomicU64,
}

/// What was found before the first request.
struct First {
    available: u64,
    /// Memory stalls since boot, microseconds; `None` without PSI.
    stalls_us: Option<u64>,
    /// Pages that the kernel had looked at to free some.
    scanned: Option<u64>,
    at: Instant,
}

impl Governor {
    /// A governor that has not looked yet.
    pub fn new(options: &Options) -> Governor {
        Governor {
            begun: Instant::now(),
            stop_below: options.stop_below,
            stop_pressure: options.stop_pressure,
            stop_at_reclaim: options.stop_at_reclaim,
            stopped: OnceLock::new(),
            asked: AtomicBool::new(false),
            next_look: AtomicU64::new(0),
            allowance: AtomicU64::new(u64::MAX),
            first: OnceLock::new(),
            stalls: AtomicU64::new(0),
            judged: AtomicU64::new(0),
        }
    }

    /// Checks the memory before the first request. The replay may read what is available then, less the
    /// floor.
    pub fn start(&self) {
        let available = memory().map_or(0, |m| m.available);
        let pressure = pressure(Resource::Memory);
        if available < self.stop_below {
            self.too_little(available);
        } else if let Some(now) = pressure.filter(|p| p.some_10 > self.stop_pressure) {
            self.stop(format!(
                "tasks waited for memory {:.0} % of the last 10 s",
                now.some_10
            ));
        }
        self.allowance
            .store(available.saturating_sub(self.stop_below), Ordering::Relaxed);
        let stalls_us = pressure.map(|p| p.some_total_us);
        self.stalls.store(stalls_us.unwrap_or(0), Ordering::Relaxed);
        self.judged.store(self.elapsed(), Ordering::Relaxed);
        self.next_look
            .store(self.elapsed() + INTERVAL.as_nanos() as u64, Ordering::Relaxed);
        // Set once: there is one caller.
        let _ = self.first.set(First {
            available,
            stalls_us,
            scanned: pages_scanned().filter(|_| self.stop_at_reclaim),
            at: Instant::now(),
        });
    }

    fn elapsed(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// No request is issued from now on. The first reason is kept.
    pub fn stop(&self, why: impl Into<String>) {
        let _ = self.stopped.set(why.into());
    }

    fn too_little(&self, available: u64) {
        self.stop(format!(
            "{} MiB of memory are available, {} are to be left to others",
            available >> 20,
            self.stop_below >> 20
        ));
    }

    /// Why it stopped.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// No request is issued from now on, for the start is over, and somebody may wait for all to be closed.
    pub fn stop_requests(&self) {
        self.stop("it was asked to stop");
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has asked for the end.
    pub fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether the next request may be issued.
    pub fn go_on(&self) -> bool {
        if self.stopped.get().is_some() {
            return false;
        }
        let (now, due) = (self.elapsed(), self.next_look.load(Ordering::Relaxed));
        let next = now + INTERVAL.as_nanos() as u64;
        if now >= due
            && self
                .next_look
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.check(now);
        }
        self.stopped.get().is_none()
    }

    fn check(&self, now: u64) {
        if let Some(memory) = memory().ok().filter(|memory| memory.available < self.stop_below) {
            self.too_little(memory.available);
        }
        let before = self.first.get().and_then(|first| first.scanned);
        if before.is_some_and(|before| pages_scanned().is_some_and(|now| now > before)) {
            self.stop("the kernel began to reclaim memory");
        }
        let window = now.saturating_sub(self.judged.load(Ordering::Relaxed));
        if window < PRESSURE_WINDOW.as_nanos() as u64 {
            return;
        }
        if let Some(pressure) = pressure(Resource::Memory) {
            self.judged.store(now, Ordering::Relaxed);
            let before = self.stalls.swap(pressure.some_total_us, Ordering::Relaxed);
            let share = pressure.some_total_us.saturating_sub(before) as f64 * 1000.0 / window as f64 * 100.0;
            if share > self.stop_pressure {
                self.stop(format!("tasks waited for memory {share:.0} % of the time"));
            }
        }
    }

    /// Takes `bytes` from what may be read in all; `false` when that much is not left.
    pub fn allow(&self, bytes: u64) -> bool {
        self.allowance
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(bytes)
            })
            .is_ok()
    }

    /// Memory available before the first request, bytes.
    pub fn memory_available(&self) -> u64 {
        self.first.get().map_or(0, |f| f.available)
    }

    /// Share of time since then in which some task waited for memory, percent; `None` without PSI.
    pub fn memory_pressure(&self) -> Option<f32> {
        let first = self.first.get()?;
        let stalls = pressure(Resource::Memory)?
            .some_total_us
            .saturating_sub(first.stalls_us?);
        let elapsed = first.at.elapsed().as_micros().max(1);
        Some((stalls as f64 * 100.0 / elapsed as f64).min(100.0) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn governor(stop_below: u64) -> Governor {
        let options = Options {
            stop_below,
            // Other work on the machine must not decide this test.
            stop_pressure: 1e9,
            ..Options::new(Instant::now())
        };
        let governor = Governor::new(&options);
        governor.start();
        governor
    }

    #[test]
    fn it_goes_on_until_it_is_stopped_and_keeps_the_first_reason() {
        let governor = governor(0);
        assert!(governor.go_on() && governor.stopped().is_none());
        governor.stop("one");
        governor.stop("two");
        assert!(!governor.go_on());
        assert_eq!(governor.stopped(), Some("one"));
    }

    #[test]
    fn it_does_not_begin_on_too_little_memory() {
        let governor = governor(u64::MAX);
        assert!(!governor.go_on());
        assert!(
            governor
                .stopped()
                .unwrap()
                .contains("MiB of memory are available")
        );
        assert!(governor.memory_available() > 0);
    }

    #[test]
    fn it_looks_again_while_running() {
        let mut governor = governor(0);
        governor.stop_below = u64::MAX;
        assert!(governor.go_on(), "no look is due yet");
        std::thread::sleep(INTERVAL);
        assert!(!governor.go_on());
    }

    #[test]
    fn it_stops_when_the_kernel_reclaims() {
        let options = Options {
            stop_below: 0,
            stop_pressure: 1e9,
            stop_at_reclaim: true,
            ..Options::new(Instant::now())
        };
        let governor = Governor::new(&options);
        let _ = governor.first.set(First {
            available: 1,
            stalls_us: None,
            // One page less than now.
            scanned: pages_scanned().map(|now| now.saturating_sub(1)),
            at: Instant::now(),
        });
        let scanned = pages_scanned().is_some_and(|pages| pages > 0);
        governor.check(1);
        assert_eq!(governor.stopped().is_some(), scanned);
    }

    #[test]
    fn no_more_is_read_than_was_available() {
        let governor = governor(0);
        let available = governor.memory_available();
        assert!(governor.allow(available / 2));
        assert!(!governor.allow(available));
        assert!(governor.allow(available / 4));
    }
}
