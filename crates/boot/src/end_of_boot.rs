//! When a boot has ended: systemd has started all it was to start, a session has begun where there is a login
//! screen, and then it is quiet; after 120 s in any case. Where the daemon runs, a login at the screen is a
//! start of the daemon's, and the boot is up with the screen. While all wait for a replay nothing runs yet:
//! that time does not count, nor does any in which nothing is read or computed, for then somebody is waited
//! for: a passphrase, or a login.
//!
//! One that is shut down before has ended in good order, too, if it was up: some never come to an empty job
//! queue, and some power the machine off by themselves.
//!
//! Where systemd refuses to answer, as where SELinux enforces a policy without rules for headstart, it is
//! asked once and no more: each question would be a line in the audit log. Then a boot has come as far when
//! users may log in ([`crate::boot_signs`]).

use crate::boot_signs::BootSigns;
use crate::manager::Manager;
use crate::ordinary_boot;
use crate::this_boot::RUN;
use crate::{marks, stages};
use headstart_record::Progress;
use headstart_system::sessions::{Sessions, sessions};
use std::io;
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
/// No quiet: more CPU than this share of one processor, or more new pages than these, 256 KiB of 4 KiB pages.
/// A running machine never stands quite still.
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
pub struct SystemdReport {
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
    /// Whether the daemon runs.
    has_daemon: bool,
    /// When the login screen's session began, nanoseconds of CLOCK_MONOTONIC: it ends when somebody has
    /// logged in, and logind forgets it.
    greeter_ns: Option<u64>,
    up: bool,
    /// Whether services could begin, as `basic.target` says.
    has_basics: bool,
    /// What systemd told lately, for when it is gone, and when.
    told: Option<(Instant, SystemdReport)>,
    /// Whether it went to a shell for somebody to mend it.
    has_failed: bool,
    /// Whether it is being shut down, or this process was told to end.
    is_shut_down: bool,
    /// Whether systemd, which goes on, or somebody else told it.
    is_stopped_alone: bool,
    /// Why systemd answers nothing, if it refuses to.
    refused: Option<String>,
    /// The signs of the last look, where it does.
    signs: Option<BootSigns>,
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
            has_daemon: false,
            greeter_ns: None,
            up: false,
            has_basics: false,
            told: None,
            has_failed: false,
            is_shut_down: false,
            is_stopped_alone: false,
            refused: None,
            signs: None,
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

    /// How long nothing was read or computed until systemd had finished or, if later, a session had begun:
    /// somebody was waited for.
    pub fn waited(&self) -> Duration {
        self.waited_till_up.unwrap_or_default()
    }

    /// The sessions of this boot, and when the first began that is no part of it, nanoseconds of
    /// CLOCK_MONOTONIC: where the daemon runs, a user's that began at a login screen.
    pub fn sessions(&self) -> (Sessions, Option<u64>) {
        self.of_boot(sessions())
    }

    fn of_boot(&self, all: Sessions) -> (Sessions, Option<u64>) {
        let greeter_ns = self.greeter_ns.or(all.greeter_ns);
        let is_apart = |at: &u64| self.has_daemon && greeter_ns.is_some_and(|screen_ns| *at > screen_ns);
        let login_ns = all.user_ns.filter(is_apart);
        let user_ns = all.user_ns.filter(|_| login_ns.is_none());
        (Sessions { greeter_ns, user_ns }, login_ns)
    }

    fn look_for_greeter(&mut self) {
        self.greeter_ns = self.greeter_ns.or(sessions().greeter_ns);
    }

    /// Whether the session has begun that the boot of a machine with a login screen waits for.
    fn has_session(&mut self) -> bool {
        self.look_for_greeter();
        self.sessions().0.user_ns.is_some() || self.has_daemon && self.greeter_ns.is_some()
    }

    /// Whether it is being shut down, or this process was told to end.
    pub fn is_shut_down(&self) -> bool {
        self.is_shut_down
    }

    /// What systemd reported before it was shut down.
    pub fn before_shutdown(&self) -> Option<&SystemdReport> {
        self.told.as_ref().map(|(_, told)| told)
    }

    /// Whether this was a boot to its end, which came by a shutdown, and not only this process that was told
    /// to end.
    pub fn is_whole(&self) -> bool {
        self.is_shut_down && !self.is_stopped_alone && self.is_good()
    }

    /// Why systemd answers nothing, if it refuses to.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// A connection to systemd, unless it refuses to answer.
    pub fn manager(&self) -> io::Result<Manager> {
        match &self.refused {
            Some(why) => Err(io::Error::new(io::ErrorKind::PermissionDenied, why.clone())),
            None => Manager::connect(),
        }
    }

    /// Whether it went to a shell for somebody to mend it.
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Whether headstart has done no harm to it: systemd had finished; or it was up and is shut down in good
    /// order. Without systemd nobody tells of either, and a machine that has run for so long is up.
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
    pub fn poll_finished_ns(&mut self) -> Option<u64> {
        let due = self.asked.is_none_or(|at| at.elapsed() >= ASK_EVERY);
        if self.finished_ns.is_none() && due {
            self.asked = Some(Instant::now());
            self.poll();
            self.look_for_greeter();
        }
        self.finished_ns
    }

    /// Asks systemd; where it refuses to answer, looks for signs.
    pub fn poll(&mut self) {
        match self.manager() {
            Ok(mut manager) => self.poll_manager(&mut manager),
            Err(error) => self.cannot_ask(&error),
        }
        if self.refused.is_some() {
            self.note_signs(BootSigns::of_now(), marks::monotonic_ns());
        }
    }

    /// Asks systemd by an open connection. It is not asked again once it has refused.
    pub fn poll_manager(&mut self, manager: &mut Manager) {
        if let Err(error) = self.try_to_ask(manager) {
            self.cannot_ask(&error);
        }
    }

    fn cannot_ask(&mut self, error: &io::Error) {
        if error.kind() == io::ErrorKind::PermissionDenied && self.refused.is_none() {
            self.refused = Some(error.to_string());
        }
    }

    fn try_to_ask(&mut self, manager: &mut Manager) -> io::Result<()> {
        let had_finished = self.finished_ns.is_some();
        self.finished_ns = match self.finished_ns {
            None => manager.finished_ns()?,
            at => at,
        };
        self.has_basics |= manager.active_ns("basic.target")?.is_some();
        self.has_failed |= ordinary_boot::has_failed(manager)?;
        self.is_shut_down |= manager.is_stopping()?;
        let is_due = self
            .told
            .as_ref()
            .is_none_or(|(at, _)| at.elapsed() >= KNOW_EVERY);
        let is_new = self.finished_ns.is_some() && !had_finished;
        if self.has_basics && (is_new || self.finished_ns.is_none() && is_due) {
            let (finished_ns, sessions) = (self.finished_ns, self.sessions().0);
            let stages = stages::stages(manager, finished_ns, sessions, marks::read(Path::new(RUN)))?;
            let began_ns = manager.began_ns()?;
            self.told = Some((Instant::now(), SystemdReport { began_ns, stages }));
        }
        if self.finished_ns.is_some() {
            self.waited_till_up = Some(self.waited);
            self.screen = manager.active_ns("display-manager.service")?.is_some();
            self.has_daemon = manager.active_ns("headstartd.service")?.is_some();
        }
        Ok(())
    }

    /// What signs of now tell. That users may not log in again once they could is a shutdown.
    fn note_signs(&mut self, signs: BootSigns, now_ns: u64) {
        let was_closed = self.signs.is_some_and(|before| before.is_closed);
        self.has_failed |= signs.mending;
        if signs.is_open() || (was_closed && !signs.is_closed) {
            self.has_basics = true;
            self.finished_ns = self.finished_ns.or(Some(now_ns));
            self.waited_till_up = Some(self.waited);
            self.screen = signs.screen;
        }
        self.is_shut_down |= self.finished_ns.is_some() && signs.is_closed;
        self.signs = Some(signs);
    }

    /// This process is told to end: asks systemd for the last time. Where that is gone the machine is about
    /// to be.
    pub fn is_told(&mut self) {
        let answer = self
            .manager()
            .and_then(|mut manager| self.try_to_ask(&mut manager));
        self.note_last_answer(answer);
        if self.refused.is_some() {
            let signs = BootSigns::of_now();
            self.note_signs(signs, marks::monotonic_ns());
            self.is_stopped_alone = !signs.is_closed;
        }
        self.is_shut_down = true;
    }

    /// Notes what systemd answered when it was asked for the last time. It takes connections for as long as
    /// its socket is there, and may be gone before it answers: then it does not go on.
    fn note_last_answer(&mut self, answer: io::Result<()>) {
        self.is_stopped_alone = answer.is_ok() && !self.is_shut_down;
        if let Err(error) = answer {
            self.cannot_ask(&error);
        }
    }

    /// Whether the boot has ended. What has happened so far is asked for once in a while until it is up; then
    /// there is nothing to wait for if nothing records.
    pub fn check(&mut self, is_recorded: bool, progress: impl FnOnce() -> Progress) -> Option<Why> {
        let now = Instant::now();
        let is_up = self.poll_finished_ns().is_some() && (!self.screen || self.has_session());
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

    /// Whether there was little for so long. Until it is up that is counted, and then another such time
    /// begins.
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
mod tests;
