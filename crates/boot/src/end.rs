//! When a boot has ended: systemd has started all it was to start, a session has begun where there is a login screen,
//! and then it is quiet; after 120 s in any case. While all wait for a replay nothing runs yet: that time does not count.

use crate::manager::Manager;
use crate::sessions::sessions;
use headstart_record::Progress;
use std::time::{Duration, Instant};

/// The longest a boot is recorded.
pub const LIMIT: Duration = Duration::from_secs(120);
/// systemd is asked this often whether it has finished.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Quiet for so long: services that start one another pause for a second or two.
const QUIET: Duration = Duration::from_secs(3);
/// No quiet: more CPU than this share of one processor, or more new pages than these, 256 KiB of 4 KiB pages. A running
/// machine never stands quite still.
const LITTLE_CPU: f64 = 0.10;
const FEW_PAGES: u64 = 64;

/// Why a boot has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was up, and quiet.
    Quiet,
    /// The limit.
    Limit,
}

/// Watches for the end.
pub struct End {
    begun: Instant,
    asked: Option<Instant>,
    /// When systemd had finished, nanoseconds of CLOCK_MONOTONIC.
    finished_ns: Option<u64>,
    screen: bool,
    up: bool,
    since: Option<(Instant, Progress)>,
}

impl End {
    /// Begins to watch a boot of which this process saw the first instant.
    pub fn new(begun: Instant) -> End {
        End {
            begun,
            asked: None,
            finished_ns: None,
            screen: false,
            up: false,
            since: None,
        }
    }

    /// All that is to be watched has waited until now.
    pub fn begins(&mut self, now: Instant) {
        self.begun = now;
    }

    /// When systemd had finished, as far as is known.
    pub fn finished_ns(&self) -> Option<u64> {
        self.finished_ns
    }

    /// Asks systemd, unless it was asked just now. As long as it does not listen, it has not finished.
    pub fn ask(&mut self) -> Option<u64> {
        let due = self.asked.is_none_or(|at| at.elapsed() >= ASK_EVERY);
        if self.finished_ns.is_none() && due {
            self.asked = Some(Instant::now());
            let Ok(mut manager) = Manager::connect() else {
                return None;
            };
            self.finished_ns = manager.finished_ns().ok().flatten();
            if self.finished_ns.is_some() {
                let screen = manager.active_ns("display-manager.service");
                self.screen = screen.is_ok_and(|at| at.is_some());
            }
        }
        self.finished_ns
    }

    /// Whether the boot has ended. What has happened so far is asked for only when it is up: to find that out takes processors.
    pub fn ended(&mut self, progress: impl FnOnce() -> Option<Progress>) -> Option<Why> {
        if self.begun.elapsed() >= LIMIT {
            return Some(Why::Limit);
        }
        self.up = self.up || (self.ask().is_some() && (!self.screen || sessions().user_ns.is_some()));
        if !self.up {
            return None;
        }
        match progress() {
            Some(progress) => self.quiet(&progress, Instant::now()).then_some(Why::Quiet),
            // Nothing records: there is nothing to wait for.
            None => Some(Why::Quiet),
        }
    }

    fn quiet(&mut self, progress: &Progress, now: Instant) -> bool {
        if let Some((since, before)) = &self.since {
            let pages = progress.pages.saturating_sub(before.pages);
            let cpu = progress.cpu_seconds - before.cpu_seconds;
            if pages <= FEW_PAGES && cpu <= LITTLE_CPU * QUIET.as_secs_f64() {
                return now.duration_since(*since) >= QUIET;
            }
        }
        self.since = Some((now, progress.clone()));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_pages_and_little_cpu_are_quiet() {
        let start = Instant::now();
        let mut end = End::new(start);
        let mut at = |seconds: u64, pages, cpu_seconds| {
            let progress = Progress { pages, cpu_seconds };
            end.quiet(&progress, start + Duration::from_secs(seconds))
        };
        assert!(!at(0, 1000, 1.0));
        assert!(!at(1, 1030, 1.1));
        assert!(!at(2, 1100, 1.1), "new pages");
        assert!(!at(4, 1101, 2.0), "CPU");
        assert!(!at(6, 1102, 2.1));
        assert!(at(7, 1103, 2.2));
    }

    #[test]
    fn a_boot_that_does_not_end_is_cut_off() {
        let now = Instant::now();
        let mut end = End::new(now.checked_sub(LIMIT).unwrap());
        assert_eq!(end.ended(|| None), Some(Why::Limit));
        end.begins(now);
        assert_ne!(end.ended(|| None), Some(Why::Limit), "it has just begun");
    }
}
