//! Whether a start has fallen quiet: no page used for the first time, little CPU spent, and nobody waits for
//! a device.

use crate::cpu::Cpu;
use headstart_model::trace::Scope;
use headstart_system::process::ProcessStat;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// More CPU than this share of one processor is no quiet. An idle desktop program wakes for a few per cent;
/// one that still starts computes all the time.
pub const LITTLE_CPU: f64 = 0.10;

/// How often CPU time is looked up: /proc counts it in ticks of 10 ms, and reading it costs some microseconds
/// a process.
const LOOK_AT_CPU_EVERY: Duration = Duration::from_millis(200);

/// What happened so far in a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Pages used for the first time so far.
    pub pages: u64,
    /// CPU time spent so far by the recorded processes that still live and their waited-for children,
    /// seconds. In scope system by all of the machine but the excluded processes.
    pub cpu_seconds: f64,
}

/// What the draining thread tells the handle.
#[derive(Default)]
pub(crate) struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    pages: u64,
    /// The recorded processes that live; none in scope system.
    living: Vec<u32>,
    cpu: Cpu,
    looked: Option<Instant>,
    began_ns: u64,
    early: Option<Result<u64, String>>,
}

impl State {
    /// Samples the CPU time if that is due.
    fn sample_cpu(&mut self, living: impl Iterator<Item = u32>) {
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK_AT_CPU_EVERY) {
            self.looked = Some(Instant::now());
            self.cpu.sample(living);
        }
    }
}

impl Shared {
    /// The recording begins, or began, at this time of CLOCK_MONOTONIC.
    pub(crate) fn set_began(&self, began_ns: u64) {
        self.lock().began_ns = began_ns;
    }

    pub(crate) fn began_ns(&self) -> u64 {
        self.lock().began_ns
    }

    /// What became of the kernel command line's trace instance.
    pub(crate) fn set_early(&self, early: Result<u64, String>) {
        self.lock().early = Some(early);
    }

    pub(crate) fn early(&self) -> Option<Result<u64, String>> {
        self.lock().early.clone()
    }

    /// Sets whose CPU time counts.
    pub(crate) fn set_scope(&self, scope: Scope, mut excluded: Vec<u32>) {
        excluded.push(std::process::id());
        self.lock().cpu = match scope {
            Scope::Tree => Cpu::of_processes(),
            Scope::System => Cpu::of_everybody(excluded),
        };
    }

    /// After a drain: the number of pages used so far, and the recorded processes that live.
    pub(crate) fn update(&self, pages: u64, living: impl Iterator<Item = u32>) {
        let mut state = self.lock();
        state.pages = pages;
        if !state.cpu.is_everybodys() {
            let living: Vec<u32> = living.collect();
            state.sample_cpu(living.iter().copied());
            state.living = living;
        }
    }

    /// Whether one of the recorded processes waits for a device; never in scope system.
    pub(crate) fn waits(&self) -> bool {
        let living = self.lock().living.clone();
        ProcessStat::any_is_blocked(living.into_iter())
    }

    /// What happened so far. Everybody's CPU time is looked up only when somebody asks so: in a container it
    /// is that of hundreds of processes.
    pub(crate) fn progress(&self) -> Progress {
        let mut state = self.lock();
        if state.cpu.is_everybodys() {
            state.sample_cpu(std::iter::empty());
        }
        Progress {
            pages: state.pages,
            cpu_seconds: state.cpu.seconds(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A thread that panicked while holding it left counters, which are whole at any moment.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// How far a machine has come of which nothing is recorded: what it has read from devices, and its CPU time
/// but that of this process.
pub struct Unrecorded(Cpu);

impl Unrecorded {
    /// Begins to count.
    pub fn start() -> Unrecorded {
        Unrecorded(Cpu::of_everybody(vec![std::process::id()]))
    }

    /// As far as it can be found out.
    pub fn progress(&mut self) -> Progress {
        self.0.sample(std::iter::empty());
        // In a container it is what all of the machine has read: there the CPU time alone tells, which
        // reading takes too.
        let said = match self.0.is_of_machine() {
            true => std::fs::read_to_string("/proc/vmstat").unwrap_or_default(),
            false => String::new(),
        };
        Progress {
            pages: read_kib(&said) / 4,
            cpu_seconds: self.0.seconds(),
        }
    }
}

/// What was read from devices, KiB, by `/proc/vmstat` (proc_vmstat(5)).
fn read_kib(vmstat: &str) -> u64 {
    let read = vmstat.lines().find_map(|line| line.strip_prefix("pgpgin "));
    read.and_then(|read| read.trim().parse().ok()).unwrap_or(0)
}

/// Decides whether it has been quiet for long enough.
pub(crate) struct QuietRule {
    long_enough: Option<Duration>,
    since: Option<(Instant, Progress)>,
}

impl QuietRule {
    /// A rule that waits for so long a quiet; never satisfied with `None`.
    pub(crate) fn new(long_enough: Option<Duration>) -> QuietRule {
        QuietRule {
            long_enough,
            since: None,
        }
    }

    /// Given what happened up to `now`: whether nothing much has for long enough. Where that is so it is
    /// asked whether somebody `waits` for a device: who does has not ended its start, however long that
    /// takes. One read of a start waits for seconds where a disk of one head is busy with the replay.
    pub(crate) fn is_quiet(
        &mut self,
        progress: &Progress,
        now: Instant,
        waits: impl FnOnce() -> bool,
    ) -> bool {
        let Some(long_enough) = self.long_enough else {
            return false;
        };
        if let Some((since, before)) = &self.since {
            let elapsed = now.duration_since(*since);
            let allowed = LITTLE_CPU * long_enough.as_secs_f64();
            if progress.pages == before.pages && progress.cpu_seconds - before.cpu_seconds <= allowed {
                if elapsed < long_enough {
                    return false;
                }
                if !waits() {
                    return true;
                }
            }
        }
        self.since = Some((now, progress.clone()));
        false
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_a_machine_has_read_is_known_without_a_recorder() {
        assert_eq!(super::read_kib("nr_free_pages 1\npgpgin 4096\npgpgout 7\n"), 4096);
        assert_eq!(super::read_kib(""), 0);
        let mut machine = super::Unrecorded::start();
        let before = machine.progress();
        assert!(before.cpu_seconds > 0.0, "{before:?}");
        assert!(machine.progress().pages >= before.pages);
    }

    use super::*;

    fn progress_at(pages: u64, cpu_seconds: f64) -> Progress {
        Progress { pages, cpu_seconds }
    }

    #[test]
    fn quiet_needs_neither_pages_nor_cpu_for_the_whole_time() {
        let mut rule = QuietRule::new(Some(Duration::from_secs(2)));
        let start = Instant::now();
        let mut after = |seconds, pages, cpu| {
            rule.is_quiet(
                &progress_at(pages, cpu),
                start + Duration::from_secs(seconds),
                || false,
            )
        };
        assert!(!after(0, 10, 0.0));
        assert!(!after(1, 10, 0.1));
        assert!(!after(2, 11, 0.1), "a new page is no quiet");
        assert!(!after(3, 11, 1.0), "much CPU is no quiet");
        assert!(!after(4, 11, 1.1));
        assert!(after(5, 11, 1.15));
    }

    #[test]
    fn who_waits_for_a_device_is_not_quiet_however_long() {
        let mut rule = QuietRule::new(Some(Duration::from_secs(2)));
        let start = Instant::now();
        let mut after = |seconds, waits| {
            rule.is_quiet(
                &progress_at(10, 0.0),
                start + Duration::from_secs(seconds),
                || waits,
            )
        };
        assert!(!after(0, true));
        assert!(!after(2, true));
        assert!(!after(9, true));
        assert!(!after(10, false), "it has been quiet for a second");
        assert!(after(11, false));
    }

    #[test]
    fn everybodys_cpu_is_looked_up_only_when_somebody_asks() {
        let shared = Shared::default();
        shared.set_scope(Scope::System, Vec::new());
        shared.update(7, std::iter::empty());
        assert!(shared.lock().looked.is_none());
        let progress = shared.progress();
        assert!(progress.pages == 7 && progress.cpu_seconds > 0.0, "{progress:?}");
    }

    #[test]
    fn no_rule_is_never_satisfied() {
        let mut rule = QuietRule::new(None);
        let start = Instant::now();
        assert!(!rule.is_quiet(&progress_at(0, 0.0), start, || false));
        assert!(!rule.is_quiet(&progress_at(0, 0.0), start + Duration::from_secs(100), || false));
    }
}
