//! One start while it is recorded, and what is left of it then.

use crate::cpu::Cpu;
use crate::error::RecordError;
use crate::kernel::backend::Missed;
use crate::kernel::clock::monotonic_ns;
use crate::kernel::event::{Event, Exec};
use crate::options::Options;
use crate::quiet::{Progress, QuietRule};
use crate::trace::builder::{Builder, Ended};
use headstart_model::Trace;
use headstart_model::trace::{Backend, EndReason, Evidence};
use headstart_system::process::ProcessStat;
use std::time::{Duration, Instant};

/// A start is over when it has used no new page, hardly computed and waited for no device for so long, as
/// `headstart run` has it.
const QUIET: Duration = Duration::from_secs(2);

/// A start takes no longer, as `headstart run` has it. With half of that the end of a long start from a slow
/// server was never learned.
const LIMIT: Duration = Options::LIMIT;

/// Nor does a session: what its user starts after that is no part of it.
const LIMIT_OF_SESSION: Duration = Duration::from_secs(10);

/// Who executes more programs than so many, and hardly waits for devices for [`WORKS`], does not start: it
/// works, as a build does. To record that costs a build one tenth of its time. With a replay before it a
/// start need not wait while it lasts, so that is longer than [`QUIET`]; and as long without one, for the two
/// are compared.
const EXECUTIONS: u32 = 64;
const WORKS: Duration = Duration::from_secs(10);

/// The share of [`WORKS`] for which its threads wait then, one twentieth at most: a build waits for what it
/// writes, too, for one thirtieth.
const HARDLY: u32 = 20;

/// So many slots may belong to it, beside its own, where another start goes on with it: each has one until
/// all of it has ended.
const PARTS: usize = 8;

/// How often its processes' CPU time is looked up.
const LOOK_AT_CPU_EVERY: Duration = Duration::from_millis(200);

/// A start that is recorded.
pub(super) struct Recording {
    pub(super) number: u32,
    pub(super) pid: u32,
    pub(super) began_ns: u64,
    pub(super) builder: Builder,
    /// Further slots that belong to it, by the numbers that they were given with.
    pub(super) parts: Vec<u32>,
    pub(super) status: Option<i32>,
    /// How long after its last process has ended another may go on with it.
    pub(super) open_for: Duration,
    /// Whether it is a session.
    pub(super) is_session: bool,
    /// When a process of it ended last.
    pub(super) left_ns: u64,
    quiet: QuietRule,
    executions: u32,
    works: Works,
    pub(super) cpu: Cpu,
    pub(super) looked: Instant,
    pub(super) before: Before,
}

/// Since when a start has hardly waited for devices.
struct Works {
    since: Instant,
    /// How long its threads had waited by then, nanoseconds.
    blocked_ns: u64,
}

impl Works {
    fn new(now: Instant) -> Works {
        Works {
            since: now,
            blocked_ns: 0,
        }
    }

    /// Whether that is so for [`WORKS`], where its threads have waited for so long up to now.
    fn for_long(&mut self, now: Instant, blocked_ns: u64) -> bool {
        if Duration::from_nanos(blocked_ns.saturating_sub(self.blocked_ns)) > WORKS / HARDLY {
            (self.since, self.blocked_ns) = (now, blocked_ns);
        }
        now.duration_since(self.since) >= WORKS
    }
}

/// What the counters that all starts share were at its beginning: of what could not be sent, and of what no
/// program saw.
#[derive(Clone, Copy, Default)]
pub(super) struct Before {
    pub(super) not_sent: Missed,
    pub(super) not_run: Missed,
}

/// A start that was recorded.
pub struct Recorded {
    /// The number it had.
    pub number: u32,
    /// How it ended.
    pub reason: EndReason,
    /// How long it took, from its execution on.
    pub took: Duration,
    /// How long its threads waited for block devices, nanoseconds.
    pub blocked_ns: u64,
    /// The CPU time of its processes, nanoseconds, as far as it was seen.
    pub cpu_ns: u64,
    /// Pages it used.
    pub pages: u64,
    /// About how much memory it takes, bytes.
    pub bytes: usize,
    /// Those of its processes that still live.
    pub living: Vec<u32>,
    /// A user whose processes have executed something in it: a person, if there was one; else the one with
    /// the highest number. 0 for one that was not begun by an execution.
    pub user: u32,
    pub(super) builder: Builder,
    pub(super) ended: Ended,
}

impl Recorded {
    /// Its trace. Takes some time: every file is looked for.
    pub fn trace(self) -> Result<Trace, RecordError> {
        let cpu_ns = Some(self.cpu_ns).filter(|ns| *ns > 0);
        self.builder.finish(self.reason, self.ended).map(|mut trace| {
            trace.end.cpu_ns = cpu_ns;
            trace
        })
    }
}

impl Recording {
    pub(super) fn start(
        number: u32,
        pid: u32,
        began_ns: u64,
        options: &Options,
        before: Before,
        evidence: Evidence,
    ) -> Result<Recording, RecordError> {
        let mut builder = Builder::new(options, Backend::Bpf, evidence, monotonic_ns())?;
        builder.set_began(began_ns);
        builder.add_process(pid, began_ns);
        Ok(Recording {
            number,
            pid,
            began_ns,
            builder,
            parts: Vec::new(),
            status: None,
            open_for: Duration::ZERO,
            is_session: false,
            left_ns: 0,
            quiet: QuietRule::new(Some(QUIET)),
            executions: 0,
            works: Works::new(Instant::now()),
            cpu: Cpu::of_processes(),
            looked: Instant::now(),
            before,
        })
    }

    /// Its number, and those of the slots that belong to it.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.parts.iter().copied().chain([self.number])
    }

    /// Whether this is its number, or that of a part of it.
    pub(super) fn has(&self, number: u32) -> bool {
        number != 0 && self.numbers().any(|one| one == number)
    }

    /// One of its processes did something.
    pub(super) fn push(&mut self, event: Event) {
        self.executions += u32::from(matches!(event, Event::Exec(_)));
        self.builder.push(event);
    }

    /// A process of it has ended with this status, or is of another start from now on.
    pub(super) fn is_left_by(&mut self, pid: u32, status: i32, time_ns: u64) {
        if pid == self.pid {
            self.status = Some(status);
        }
        self.left_ns = time_ns;
        self.push(Event::Exit { time_ns, pid });
    }

    /// Whether what is executed at this time may go on with it, by no process of it.
    pub(super) fn may_go_on(&self, time_ns: u64) -> bool {
        let in_time = self.left_ns.saturating_add(self.open_for.as_nanos() as u64) >= time_ns;
        self.parts.len() < PARTS && (in_time || self.builder.living().next().is_some())
    }

    /// A process goes on with it. Where the one that began it has ended, it is of this one that the status is
    /// asked.
    pub(super) fn has_another(&mut self, pid: u32, time_ns: u64) {
        self.builder.add_process(pid, time_ns);
        if self.status.is_some() {
            (self.pid, self.status) = (pid, None);
        }
    }

    /// A further slot belongs to it, that was given with this number for what was executed.
    pub(super) fn continue_with(&mut self, number: u32, exec: Exec) {
        self.parts.push(number);
        self.push(Event::Exec(exec));
    }

    /// Since when nothing of it has run, if it was kept open for what might follow.
    pub(super) fn left_alone_ns(&self) -> Option<u64> {
        let is_left = !self.open_for.is_zero() && self.builder.living().next().is_none();
        is_left.then_some(self.left_ns)
    }

    /// Whether it has come to its end. `blocked_ns` says how long its threads have waited for devices up to
    /// now.
    pub(super) fn has_ended(
        &mut self,
        now: Instant,
        blocked_ns: impl FnOnce(&Recording) -> u64,
    ) -> Option<EndReason> {
        if let (Some(status), None) = (self.status, self.builder.living().next()) {
            let open_until = self.left_ns.saturating_add(self.open_for.as_nanos() as u64);
            return (monotonic_ns() >= open_until).then_some(EndReason::Exit(status));
        }
        let limit = match self.is_session {
            true => LIMIT_OF_SESSION,
            false => LIMIT,
        };
        if monotonic_ns().saturating_sub(self.began_ns) >= limit.as_nanos() as u64 {
            return Some(EndReason::Limit);
        }
        let waits = || ProcessStat::any_is_blocked(self.builder.living());
        if now.duration_since(self.looked) >= LOOK_AT_CPU_EVERY {
            self.looked = now;
            self.cpu.sample(self.builder.living());
            if self.executions > EXECUTIONS {
                let blocked_ns = blocked_ns(self);
                if self.works.for_long(now, blocked_ns) && !waits() {
                    return Some(EndReason::Quiet);
                }
            }
        }
        let progress = Progress {
            pages: self.builder.pages(),
            cpu_seconds: self.cpu.seconds(),
        };
        self.quiet
            .is_quiet(&progress, now, waits)
            .then_some(EndReason::Quiet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_recorded_as_long_as_by_headstart_run_and_a_session_is_not() {
        let ended = |seconds: u64, is_session| {
            let began_ns = monotonic_ns().saturating_sub(seconds * 1_000_000_000);
            let options = Options::tree(Vec::new());
            let pid = std::process::id();
            let mut recording =
                Recording::start(1, pid, began_ns, &options, Before::default(), Evidence::Uses).unwrap();
            recording.is_session = is_session;
            recording.has_ended(Instant::now(), |_| 0)
        };
        assert_eq!(ended(59, false), None);
        assert!(matches!(ended(60, false), Some(EndReason::Limit)));
        assert_eq!(ended(9, true), None);
        assert!(matches!(ended(10, true), Some(EndReason::Limit)));
    }

    #[test]
    fn who_hardly_waits_for_ten_seconds_works() {
        let begun = Instant::now();
        // For so many thousandths of its time it waits; after how many seconds it works.
        let after = |thousandths: u64| {
            let mut works = Works::new(begun);
            let mut ticks = 0..150;
            let tick = ticks.find(|tick| {
                works.for_long(
                    begun + Duration::from_millis(200 * tick),
                    tick * 200_000 * thousandths,
                )
            });
            tick.map(|tick| tick as f64 / 5.0)
        };
        assert_eq!(after(0), Some(10.0));
        assert_eq!(after(33), Some(10.0), "a build");
        assert_eq!(after(60), None);
        assert_eq!(after(300), None);
        // From when on that is so.
        let mut works = Works::new(begun);
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert!(!works.for_long(at(5), 3_000_000_000));
        assert!(!works.for_long(at(14), 3_000_000_000));
        assert!(works.for_long(at(15), 3_400_000_000));
    }
}
