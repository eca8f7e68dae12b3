//! One boot, from the first instant to what was learned from it.

use crate::boot::{Boot, StateId};
use crate::boot_report::{BootReport, WayIn};
use crate::boot_signs::BootSigns;
use crate::cmdline::{self, Wish, wish};
use crate::decision;
use crate::end_of_boot::{self, End, Why};
use crate::guard::longest_wait;
use crate::install;
use crate::manager::Manager;
use crate::marks::{monotonic_ns, own_begin_ns};
use crate::memory::Need;
use crate::own_cpu_time::OwnCpuTime;
use crate::persistence::Persistence;
use crate::recording::Recording;
use crate::replays::Replays;
use crate::runtime_unit;
use crate::this_boot::{RUN, boot_id, key, make_run};
use crate::units::NAME;
use crate::wait::how_long::Barrier;
use crate::wait::who::Waiters;
use anyhow::{Context, Result};
use headstart_record::{Options, RecordError, Recorder, Unrecorded};
use headstart_start::config;
use headstart_start::decide::Decision;
use headstart_start::finish::NICE;
use headstart_start::{Notes, Reads, Start, now_unix_ns};
use headstart_store::{Store, Turns};
use headstart_system::fault_around::NoFaultAround;
use headstart_system::launch::Signals;
use headstart_system::limits;
use headstart_system::priority::set_nice_of_session;
use headstart_system::thread;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How often the process looks around while it records: a mount is noticed at once, the end need not be.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The same when somebody is waited for.
const LOOK_LATE_EVERY: Duration = Duration::from_secs(1);
/// Attaching has a deadline of its own (120 s), which this is not before.
const ATTACHES_WITHIN: Duration = Duration::from_secs(130);
/// How often it is looked whether who waits for the replay of a disk may go on.
const BARRIER_LOOK_EVERY: Duration = Duration::from_millis(10);

/// What `trace_instance=` on the kernel command line must name, to have the boot recorded from the kernel's
/// start on.
const EARLY_INSTANCE: &str = "headstart";

/// Serves this boot, from `place` on. Returns when all is learned, or at once, with `false`, if nothing is to
/// be done or another process serves it already. `began_ns` is when whoever waits began to wait, nanoseconds
/// of CLOCK_MONOTONIC, where that is known: the replay's times count from there.
pub fn run(store: &Store, place: WayIn, waiters: Waiters, began_ns: Option<u64>) -> Result<bool> {
    let now = Instant::now();
    let since = began_ns.map(|began_ns| Duration::from_nanos(monotonic_ns().saturating_sub(began_ns)));
    let since = since.unwrap_or_default();
    let origin = now.checked_sub(since).unwrap_or(now);
    let origin_unix_ns = now_unix_ns().saturating_sub((now - origin).as_nanos() as u64);
    let mut notes = Notes::default();
    let wish = wish(place, &mut |line| notes.add(line));
    if wish == Wish::Off || cmdline::is_after_crash() {
        waiters.release();
        return Ok(false);
    }
    let Some(_only) = only_one(Path::new(RUN))? else {
        waiters.release();
        return Ok(false);
    };
    // systemd starts what sysinit wants with whatever it starts later, too, where boots were enabled amid one
    // that was not served.
    if is_unit() && is_over() {
        waiters.release();
        return Ok(false);
    }
    let config = config::read(Path::new(config::FILE), &mut |line| notes.add(line));
    let key = key()?;
    if decision::is_in_vain(store, &store.key(&key), wish, &config) {
        waiters.release();
        return Ok(false);
    }
    // As long as systemd has not read its units.
    runtime_unit::leave_word(Path::new("/"), place, store.root());
    // The unit does so too; before process 1 nobody else would.
    if let Err(error) = limits::bound_memory(limits::MEMORY) {
        notes.add(format!("the memory of this process is not bounded: {error}"));
    }
    // Nor would this be said, as the unit says it: others come first when memory runs out.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    // Before any thread begins.
    let signals = Signals::block().context("cannot read signals")?;
    let last = BootReport {
        boot_id: boot_id(),
        began_unix_ns: origin_unix_ns,
        from: place,
        ..BootReport::default()
    };
    let mut boot = Boot {
        store,
        kept: store.key(&key),
        key,
        origin,
        origin_unix_ns,
        config,
        signals,
        mounts: File::open("/proc/self/mountinfo").context("cannot watch /proc/self/mountinfo")?,
        notes,
        last,
        wish,
        state: StateId::read(store),
        lasts: Persistence::for_store(store),
        was_mounted: false,
        guard: None,
        armed: None,
        start: Start::new(Decision::Record),
        need: Need::default(),
        barrier: Barrier::new(waiters, now),
        own_begin_ns: match place {
            // It has read itself while it waited there.
            WayIn::Initramfs => None,
            WayIn::Init | WayIn::Generator | WayIn::Unit => began_ns.or_else(own_begin_ns),
        }
        .unwrap_or_else(monotonic_ns),
        free_ns: 0,
        spent: OwnCpuTime::default(),
    };
    let mut recording = boot.begin_and_attach();
    boot.tell_of(&recording);
    boot.free_ns = monotonic_ns();
    let mut end = End::new(now);
    let exact = boot.map_nothing_around_faults();
    let was_exact = exact.is_some();
    let why = boot.watch(&mut recording, &mut end);
    // It is over by itself after so long.
    let was_exact = was_exact && end.age() < end_of_boot::LIMIT;
    drop(exact);
    boot.spent_so_far();
    boot.tell_of_early(&recording);
    if StateId::read(store) != boot.state {
        // It would lie beneath, and be taken for what is known at the next boot.
        boot.notes.add(format!(
            "{} is not mounted any more: nothing is kept of this boot",
            store.root().display()
        ));
        return Ok(true);
    }
    // Whoever has logged in by now is not to wait for what is learned.
    let _ = set_nice_of_session(NICE);
    let is_kept = boot.finish(recording.into_inner(), was_exact, why, &end);
    boot.spent.until_now(|spent| &mut spent.finish_ns);
    boot.last.spent = Some(boot.spent);
    boot.wait_for_the_end(&mut end);
    // Where it could not be before, as on a root that was read-only still.
    boot.armed = boot.armed.take().filter(Result::is_ok);
    boot.arm_at_the_end(&end);
    if let Some(Err(error)) = boot.armed.take() {
        boot.last
            .notes
            .push(format!("the next boot is not read ahead: {error}"));
    }
    boot.last.armed = boot.kept.is_armed();
    // Whoever did that means all ways in. Where nothing can be removed now, the next boot tries again.
    if install::is_switched_off(None) && install::disable(None).is_ok() {
        boot.last.notes.push(format!(
            "{NAME} is disabled or masked, so boots are switched off from the next one on"
        ));
    }
    boot.last.keep_in_run();
    if boot.lasts != Persistence::Frozen {
        boot.keep_last(!is_kept);
    }
    Ok(true)
}

/// Whether systemd has started this process, and waits to hear of it (sd_notify(3)).
fn is_unit() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Whether systemd has finished this boot, or, where it refuses to tell, somebody can log in.
fn is_over() -> bool {
    match Manager::connect().and_then(|mut manager| manager.finished_ns()) {
        Ok(at) => at.is_some(),
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied && BootSigns::of_now().is_open(),
    }
}

/// Takes the lock of the one process that serves a boot; `None` if another one does. What the initramfs
/// started is still at it when sysinit starts another. Nobody but root can open it: who can, could take it.
fn only_one(run: &Path) -> Result<Option<File>> {
    make_run(run).with_context(|| format!("cannot create {}", run.display()))?;
    let path = run.join("boot.lock");
    let mut options = File::options();
    let file = options.create(true).append(true).mode(0o600).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Whether what this process computes is what others cannot.
pub fn has_one_processor() -> bool {
    headstart_system::process::processors() == Some(1)
}

/// Everybody but this process, until it says that it is enough.
fn options(activity: bool) -> Options {
    Options {
        activity,
        limit: end_of_boot::LONGEST,
        early_instance: Some(EARLY_INSTANCE.into()),
        ..Options::system()
    }
}

impl Boot<'_> {
    /// Begins to read ahead and attaches the recorder: at once where there are two processors, for beginning
    /// takes the disk, and attaching a processor. One processor begins with what keeps the disk busy
    /// meanwhile; nobody goes on before both. Before both comes the boot-failure guard: a kernel that cannot
    /// be traced would keep the machine from booting, too.
    ///
    /// A boot that is read ahead may not be in its turn to be recorded; one that is not is recorded in any
    /// case.
    fn begin_and_attach(&mut self) -> Recording {
        let options = options(self.config.boot.chart);
        let attach = move || Recorder::start(&options);
        let state = self.kept.state();
        let Turns {
            record_in, exact_due, ..
        } = state.turns;
        let is_wished = matches!(self.wish, Wish::On | Wish::Record)
            || self.config.boot.chart
            || cmdline::has_trace_instance(EARLY_INSTANCE);
        let in_turn = is_wished || record_in == 0 || exact_due;
        let one_processor = has_one_processor();
        self.decide(state);
        // What a boot of a live medium would teach is gone at the next.
        let is_recorded = (is_wished || self.lasts == Persistence::Longer) && !self.is_left_alone();
        let in_turn = in_turn && is_recorded;
        let beside = (in_turn && !one_processor).then(|| {
            let (tell, attached) = channel();
            let attach = attach.clone();
            // Who waits for it is gone only with the process.
            let attach = move || drop(tell.send(attach()));
            thread::spawn("attach", Box::new(attach)).map(|thread| (thread, attached))
        });
        self.replay();
        let recorder = match beside {
            Some(begun) => {
                let attached = begun.ok();
                let attached =
                    attached.and_then(|(thread, attached)| thread.answer(&attached, ATTACHES_WITHIN));
                Some(attached.unwrap_or(Err(RecordError::NoAnswer)))
            }
            None => {
                self.spent.until_now(|spent| &mut spent.begin_ns);
                (in_turn || !self.start.is_read_ahead() && is_recorded).then(attach)
            }
        };
        let attached = recorder.as_ref().and_then(|recorder| recorder.as_ref().ok());
        // What a try took that failed counts as what was spent meanwhile.
        self.spent.attach_ns = attached.map_or(0, Recorder::attach_cpu_ns);
        match one_processor {
            true => self.spent.until_now(|spent| &mut spent.replay_ns),
            false => self.spent.until_now(|spent| &mut spent.begin_ns),
        }
        Recording::new(recorder)
    }

    /// Notes what was spent until now: on a replay, should one go on.
    fn spent_so_far(&mut self) {
        let replays = self.start.replay().is_some_and(|replays| !replays.are_over());
        match replays {
            true => self.spent.until_now(|spent| &mut spent.replay_ns),
            false => self.spent.until_now(|spent| &mut spent.record_ns),
        }
    }

    /// Notes what records, and keeps what is known so far.
    fn tell_of(&mut self, recording: &Recording) {
        match (recording.get(), recording.error()) {
            (Some(recorder), _) => {
                let (backend, evidence) = (recorder.backend(), recorder.evidence());
                self.last.recorder = Some(format!("{backend:?}, {evidence:?}").to_lowercase());
                if let Some(why) = recorder.no_activity() {
                    self.notes
                        .add(format!("recording without what a chart needs: {why}"));
                }
            }
            (None, Some(error)) if !recording.waits() => {
                self.notes.add(format!("not recording: {error}"));
            }
            (None, _) => {}
        }
        self.last.notes = self.notes.all().to_vec();
        self.last.keep_in_run();
    }

    /// Where it is this boot's turn, for as long as a boot is recorded: before whoever waits for it goes on.
    fn map_nothing_around_faults(&self) -> Option<NoFaultAround> {
        let is_due = self.start.is_to_be_exact();
        // Where it cannot be, the boot is recorded as others are.
        is_due
            .then(|| NoFaultAround::start(end_of_boot::LIMIT).ok())
            .flatten()
    }

    /// Notes what came of a trace instance of the kernel command line.
    fn tell_of_early(&mut self, recording: &Recording) {
        match recording.get().and_then(Recorder::early) {
            None => {}
            Some(Ok(events)) => {
                if let Some(recorder) = &mut self.last.recorder {
                    *recorder += &format!(", and {events} events of trace_instance={EARLY_INSTANCE}");
                }
            }
            Some(Err(why)) => self.notes.add(format!(
                "trace_instance={EARLY_INSTANCE} on the kernel command line was not used: {why}"
            )),
        }
    }

    /// Waits for the boot's end; `None` if this process is told to end before.
    fn watch(&mut self, recording: &mut Recording, end: &mut End) -> Option<Why> {
        let mut unrecorded = Unrecorded::start();
        loop {
            let would_be_caught_up_with = self.start.replay().filter(|replays| replays.is_waited_for());
            if let Some(replays) = would_be_caught_up_with {
                if self.barrier.asks_how_long(Instant::now()) {
                    self.barrier.let_wait(longest_wait(self.store, &replays.plan()));
                }
            }
            let somebody_waits = self.barrier.poll(
                would_be_caught_up_with.map(Replays::arrived),
                self.start.is_to_begin(),
                Instant::now(),
            );
            if somebody_waits {
                end.begins(Instant::now());
            }
            let most = match somebody_waits {
                true => BARRIER_LOOK_EVERY,
                false if end.age() < end_of_boot::LIMIT => LOOK_EVERY,
                false => LOOK_LATE_EVERY,
            };
            let looks_in = self.start.replay().and_then(Replays::looks_in);
            let looks_in = looks_in.map_or(most, |looks_in| looks_in.max(BARRIER_LOOK_EVERY));
            self.pause(looks_in.min(most), recording.waits());
            if self.told_to_end() {
                end.is_told();
            }
            if end.is_shut_down() {
                self.arm_at_the_end(end);
                return None;
            }
            if recording.retry(&options(self.config.boot.chart)) {
                self.tell_of(recording);
            }
            self.spent_so_far();
            self.begin_where_mounted();
            if self.guard.is_none() {
                self.take_guard();
                self.replay();
                // What was said before is true no more.
                if self.guard.is_some() {
                    self.last.keep_in_run();
                }
            }
            if let Some(Err(error)) = self.start.replay_mut().map(Replays::start_mounted) {
                self.notes
                    .add(format!("what was mounted is not read ahead: {error:#}"));
            }
            if !self.barrier.is_closed() {
                self.need.sample();
            }
            // Once it is quiet a replay that goes on is no reason to wait: what it has left nobody needed.
            // Where nothing tells of that, as much as a session needs may be left.
            let goes_on = recording.get().is_none() && self.start.replay().is_some_and(Replays::go_on);
            let recorder = recording.get();
            let ended = end.check(recorder.is_some(), || {
                recorder.map_or_else(|| unrecorded.progress(), Recorder::progress)
            });
            // Not when all else is over: what is learned may fail, and what holds the state may be unmounted
            // before.
            self.arm_at_the_end(end);
            match ended {
                Some(Why::Quiet) if goes_on => {}
                Some(why) => return Some(why),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn nobody_but_its_owner_can_open_the_lock_of_a_boot_and_so_take_it() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("headstart");
        let only = only_one(&run).unwrap();
        assert!(
            only.is_some() && only_one(&run).unwrap().is_none(),
            "one at a time"
        );
        for (path, expected) in [(run.clone(), 0o700), (run.join("boot.lock"), 0o600)] {
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, expected, "{}", path.display());
        }
    }
}
