//! When a boot has ended: systemd has started all it was to start, a session has begun where there is a login screen,
//! and then it is quiet; after 120 s in any case. While all wait for a replay nothing runs yet: that time does not count, nor does any in which
//! nothing is read or computed, for then somebody is waited for: a passphrase, or a login.
//!
//! One that is shut down before has ended in good order, too, if it was up: some never come to an empty job queue, and some power the machine off
//! by themselves.

use crate::fit;
use crate::manager::Manager;
use crate::sessions::sessions;
use crate::this_boot::RUN;
use crate::{marks, stages};
use headstart_record::Progress;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest a boot is recorded in which something happens.
pub const LIMIT: Duration = Duration::from_secs(120);
/// The longest in all. Who comes later than that to type a passphrase has one boot that teaches less.
pub const LONGEST: Duration = Duration::from_secs(3600);
/// systemd is asked this often whether it has finished.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// And this often what it knows of one that has not.
const KNOW_EVERY: Duration = Duration::from_secs(5);
/// Quiet for so long: services that start one another pause for a second or two.
const QUIET: Duration = Duration::from_secs(3);
/// No quiet: more CPU than this share of one processor, or more new pages than these, 256 KiB of 4 KiB pages. A running
/// machine never stands quite still.
const LITTLE_CPU: f64 = 0.10;
const FEW_PAGES: u64 = 64;
/// There as long as systemd is process 1 (sd_booted(3)).
const SYSTEMD: &str = "/run/systemd/system";

/// Why a boot has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was up, and quiet.
    Quiet,
    /// The limit.
    Limit,
}

/// What systemd has told of a boot.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// When process 1 began, nanoseconds of CLOCK_MONOTONIC.
    pub began_ns: u64,
    /// When each stage began ([`stages::stages`]).
    pub stages: Vec<(u64, String)>,
}

/// Watches for the end.
pub struct End {
    begun: Instant,
    asked: Option<Instant>,
    looked: Option<Instant>,
    /// When systemd had finished, nanoseconds of CLOCK_MONOTONIC.
    finished_ns: Option<u64>,
    screen: bool,
    up: bool,
    /// Whether services could begin, as `basic.target` says.
    has_basics: bool,
    /// What systemd told lately, for when it is gone, and when.
    told: Option<(Instant, Told)>,
    /// Whether it went to a shell for somebody to mend it.
    has_failed: bool,
    /// Whether it is being shut down, or this process was told to end.
    is_shut_down: bool,
    /// Whether systemd, which goes on, or somebody else told it.
    is_stopped_alone: bool,
    /// How long nothing was read or computed, as far as that is known.
    waited: Duration,
    /// The same by the time that systemd had finished or, if later, a session had begun.
    waited_till_up: Option<Duration>,
    /// Since when there was little, and what there was by then.
    since: Option<(Instant, Progress)>,
}

impl End {
    /// Begins to watch a boot of which this process saw the first instant.
    pub fn new(begun: Instant) -> End {
        End {
            begun,
            asked: None,
            looked: None,
            finished_ns: None,
            screen: false,
            up: false,
            has_basics: false,
            told: None,
            has_failed: false,
            is_shut_down: false,
            is_stopped_alone: false,
            waited: Duration::ZERO,
            waited_till_up: None,
            since: None,
        }
    }

    /// All that is to be watched has waited until now.
    pub fn begins(&mut self, now: Instant) {
        self.begun = now;
    }

    /// How long it has been watched.
    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// When systemd had finished, as far as is known.
    pub fn finished_ns(&self) -> Option<u64> {
        self.finished_ns
    }

    /// How long nothing was read or computed until systemd had finished or, if later, a session had begun: somebody was waited for.
    pub fn waited(&self) -> Duration {
        self.waited_till_up.unwrap_or_default()
    }

    /// Whether it is being shut down, or this process was told to end.
    pub fn is_shut_down(&self) -> bool {
        self.is_shut_down
    }

    /// What systemd told before it was shut down.
    pub fn told(&self) -> Option<&Told> {
        self.told.as_ref().map(|(_, told)| told)
    }

    /// Whether this was a boot to its end, which came by a shutdown, and not only this process that was told to end.
    pub fn is_whole(&self) -> bool {
        self.is_shut_down && !self.is_stopped_alone && self.is_good()
    }

    /// Whether it went to a shell for somebody to mend it.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether headstart has done no harm to it: systemd had finished; or it was up and is shut down in good order. Without systemd nobody tells of
    /// either, and a machine that has run for so long is up.
    pub fn is_good(&self) -> bool {
        self.finished_ns.is_some() || (self.is_shut_down && self.was_up()) || self.is_up_without_systemd()
    }

    /// Whether services could begin, or somebody has logged in, or it has run for as long as any boot takes.
    fn was_up(&self) -> bool {
        self.has_basics || self.age() >= LIMIT || sessions().user_ns.is_some()
    }

    fn is_up_without_systemd(&self) -> bool {
        self.age() >= LIMIT && !Path::new(SYSTEMD).exists()
    }

    /// Asks systemd, unless it was asked just now. As long as it does not listen, it has not finished.
    pub fn ask(&mut self) -> Option<u64> {
        let due = self.asked.is_none_or(|at| at.elapsed() >= ASK_EVERY);
        if self.finished_ns.is_none() && due {
            self.asked = Some(Instant::now());
            if let Ok(mut manager) = Manager::connect() {
                self.ask_it(&mut manager);
            }
        }
        self.finished_ns
    }

    /// Asks it by a connection that is there.
    pub fn ask_it(&mut self, manager: &mut Manager) {
        self.finished_ns = self.finished_ns.or_else(|| manager.finished_ns().ok().flatten());
        self.has_basics |= manager.active_ns("basic.target").is_ok_and(|at| at.is_some());
        self.has_failed |= fit::has_failed(manager);
        self.is_shut_down |= manager.is_stopping().unwrap_or(false);
        let is_due = self
            .told
            .as_ref()
            .is_none_or(|(at, _)| at.elapsed() >= KNOW_EVERY);
        if self.has_basics && self.finished_ns.is_none() && is_due {
            let stages = stages::stages(manager, None, sessions(), marks::read(Path::new(RUN)));
            if let (Ok(began_ns), Ok(stages)) = (manager.began_ns(), stages) {
                self.told = Some((Instant::now(), Told { began_ns, stages }));
            }
        }
        if self.finished_ns.is_some() {
            self.waited_till_up = Some(self.waited);
            let screen = manager.active_ns("display-manager.service");
            self.screen = screen.is_ok_and(|at| at.is_some());
        }
    }

    /// This process is told to end: asks systemd for the last time. Where that is gone the machine is about to be.
    pub fn is_told(&mut self) {
        if let Ok(mut manager) = Manager::connect() {
            self.ask_it(&mut manager);
            self.is_stopped_alone = !self.is_shut_down;
        }
        self.is_shut_down = true;
    }

    /// Whether the boot has ended. What has happened so far is asked for once in a while until it is up; then there is nothing to wait for if nothing
    /// records.
    pub fn ended(&mut self, is_recorded: bool, progress: impl FnOnce() -> Progress) -> Option<Why> {
        let now = Instant::now();
        let is_up = self.ask().is_some() && (!self.screen || sessions().user_ns.is_some());
        if is_up && !self.up {
            // Quiet is what comes after that.
            (self.up, self.since) = (true, None);
            self.waited_till_up = Some(self.waited);
        }
        let is_due = self.looked.is_none_or(|at| now - at >= ASK_EVERY);
        let is_quiet = if self.up || is_due {
            self.looked = Some(now);
            self.is_quiet(&progress(), now)
        } else {
            false
        };
        if self.is_too_long(now) {
            return Some(Why::Limit);
        }
        (self.up && (is_quiet || !is_recorded)).then_some(Why::Quiet)
    }

    /// Whether it takes as long as any boot is recorded.
    fn is_too_long(&self, now: Instant) -> bool {
        let age = now - self.begun;
        // What there was little of lately has yet to be counted.
        let lately = self
            .since
            .as_ref()
            .map_or(Duration::ZERO, |(since, _)| now - *since);
        age >= LONGEST || age.saturating_sub(self.waited + lately) >= LIMIT
    }

    /// Whether there was little for so long. Until it is up that is counted, and then another such time begins.
    fn is_quiet(&mut self, progress: &Progress, now: Instant) -> bool {
        if let Some((since, before)) = &self.since {
            let pages = progress.pages.saturating_sub(before.pages);
            let cpu = progress.cpu_seconds - before.cpu_seconds;
            if pages <= FEW_PAGES && cpu <= LITTLE_CPU * QUIET.as_secs_f64() {
                let still = now - *since;
                if still < QUIET {
                    return false;
                }
                if !self.up {
                    self.waited += still;
                    self.since = Some((now, progress.clone()));
                }
                return true;
            }
        }
        self.since = Some((now, progress.clone()));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A boot that is watched, and a clock for it.
    struct Watched {
        end: End,
        start: Instant,
    }

    impl Watched {
        fn new() -> Watched {
            let start = Instant::now();
            Watched {
                end: End::new(start),
                start,
            }
        }

        /// Looks at it each second, while so much is read and computed each second; whether it was too long at some time.
        fn goes_on(&mut self, seconds: std::ops::Range<u64>, pages: u64, cpu: f64) -> bool {
            let mut before = self
                .end
                .since
                .take()
                .map_or(Progress::default(), |(_, before)| before);
            self.end.since = Some((self.start + Duration::from_secs(seconds.start), before.clone()));
            seconds.into_iter().any(|second| {
                before.pages += pages;
                before.cpu_seconds += cpu;
                let now = self.start + Duration::from_secs(second + 1);
                self.end.is_quiet(&before, now);
                self.end.is_too_long(now)
            })
        }
    }

    #[test]
    fn a_few_pages_and_little_cpu_are_quiet() {
        let start = Instant::now();
        let mut end = End {
            up: true,
            ..End::new(start)
        };
        let mut at = |seconds: u64, pages, cpu_seconds| {
            let progress = Progress { pages, cpu_seconds };
            end.is_quiet(&progress, start + Duration::from_secs(seconds))
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
        let busy = |pages, cpu| {
            let mut watched = Watched::new();
            assert!(!watched.goes_on(0..119, pages, cpu));
            watched.goes_on(119..121, pages, cpu)
        };
        assert!(busy(1000, 0.0) && busy(0, 0.5) && busy(40, 0.2));
        let now = Instant::now();
        let mut end = End::new(now);
        end.begins(now + Duration::from_secs(60));
        assert!(!end.is_too_long(now + LIMIT), "it began later");
    }

    #[test]
    fn while_somebody_is_waited_for_nothing_is_forgotten_and_not_for_ever() {
        let mut watched = Watched::new();
        // A minute of start, ten minutes until the passphrase is typed, and what comes behind it.
        assert!(!watched.goes_on(0..60, 1000, 0.9));
        assert!(!watched.goes_on(60..660, 1, 0.01));
        assert!(
            (590..=600).contains(&watched.end.waited.as_secs()),
            "{:?}",
            watched.end.waited
        );
        assert!(!watched.goes_on(660..715, 1000, 0.9));
        assert!(
            watched.goes_on(715..740, 1000, 0.9),
            "two minutes in which it did something"
        );
        let mut watched = Watched::new();
        assert!(!watched.goes_on(0..LONGEST.as_secs() - 1, 0, 0.0));
        assert!(watched.goes_on(LONGEST.as_secs() - 1..LONGEST.as_secs() + 1, 0, 0.0));
    }

    #[test]
    fn a_boot_is_good_that_was_up_and_is_shut_down_in_good_order() {
        let end = |has_basics, is_shut_down| End {
            has_basics,
            is_shut_down,
            ..End::new(Instant::now())
        };
        assert!(end(true, true).is_good() && end(true, true).is_whole());
        let stopped = End {
            is_stopped_alone: true,
            ..end(true, true)
        };
        assert!(stopped.is_good() && !stopped.is_whole(), "the boot goes on");
        assert!(!end(true, false).is_good(), "it may hang yet");
        assert!(
            !end(false, true).is_good() || sessions().user_ns.is_some(),
            "it was not up"
        );
        let mut late = end(false, true);
        late.begun = late.begun.checked_sub(LIMIT).unwrap();
        assert!(late.is_good());
        late.is_shut_down = false;
        assert_eq!(
            late.is_good(),
            !Path::new(SYSTEMD).exists(),
            "nobody tells without systemd"
        );
        let finished = End {
            finished_ns: Some(1),
            ..end(false, false)
        };
        assert!(finished.is_good());
    }
}
