//! One boot, from the first instant to what was learned from it.

mod finish;

use super::checked::make_root_writable;
use super::cmdline::{Wish, wish};
use super::config::{self, Config};
use super::early::Waiting;
use super::end::{End, Why};
use super::hold::Held;
use super::last::{Last, Place};
use super::marks::{monotonic_ns, own_begin_ns};
use super::memory::Need;
use super::recording::Recording;
use super::replays::Replays;
use super::{RUN, boot_id, decision, key};
use anyhow::{Context, Result};
use headstart_model::Key;
use headstart_model::outcome::Mode;
use headstart_model::plan::PlanFile;
use headstart_record::{Options, RecordError, Recorder};
use headstart_session::decide::Decision;
use headstart_session::now_unix_ns;
use headstart_session::{Notes, plan_of};
use headstart_store::{KeyDir, Store, StoreError};
use headstart_system::launch::Signals;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often the process looks around while it records: a mount is noticed at once, the end need not be.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How often it is looked whether who is held for the replay of a disk may go on.
const HOLD_LOOK_EVERY: Duration = Duration::from_millis(10);

/// What `trace_instance=` on the kernel command line must name, to have the boot recorded from the kernel's start on.
const EARLY_INSTANCE: &str = "headstart";

/// Serves this boot, from `place` on. Returns when all is learned, or at once if another process serves it already.
pub fn run(store: &Store, place: Place, waiting: Waiting) -> Result<()> {
    let (origin, origin_unix_ns) = (Instant::now(), now_unix_ns());
    let mut notes = Notes::default();
    let wish = wish(place, &mut |line| notes.tell(line));
    if wish == Wish::Off {
        waiting.let_go();
        return Ok(());
    }
    let Some(_only) = only_one()? else {
        waiting.let_go();
        return Ok(());
    };
    // Before any thread begins.
    let signals = Signals::take().context("cannot read signals")?;
    let config = config::read(Path::new(config::FILE), &mut |line| notes.tell(line));
    let key = key()?;
    let last = Last {
        boot_id: boot_id(),
        began_unix_ns: origin_unix_ns,
        from: place,
        ..Last::default()
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
        unknown_in: None,
        replays: None,
        plan: None,
        need: Need::default(),
        held: Held::new(waiting, origin),
        own_begin_ns: match place {
            // It has read itself while it waited there.
            Place::Initramfs => None,
            Place::Init | Place::Unit => own_begin_ns(),
        }
        .unwrap_or_else(monotonic_ns),
        free_ns: 0,
    };
    // Attaching the recorder takes the processor, reading the plan the disk.
    let attach = std::thread::spawn(|| Recorder::start(&options()));
    boot.begin();
    let mut recording = Recording::new(attach.join().unwrap_or(Err(RecordError::ThreadGone)));
    boot.tell_of(&recording);
    boot.free_ns = monotonic_ns();
    let mut end = End::new(origin);
    let why = boot.watch(&mut recording, &mut end);
    boot.finish(recording.into_inner(), why, &end);
    boot.arm(why.is_none(), &mut end);
    boot.last.keep_in_run();
    boot.keep_last();
    Ok(())
}

/// Holds the lock of the one process that serves a boot; `None` if another one does. What the initramfs started is
/// still at it when sysinit starts another.
fn only_one() -> Result<Option<File>> {
    let directory = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(RUN);
    directory.with_context(|| format!("cannot create {RUN}"))?;
    let path = Path::new(RUN).join("boot.lock");
    let mut options = File::options();
    // Who may open it may lock it, and a boot would go without headstart.
    let file = options.create(true).append(true).mode(0o600).open(&path);
    let file = file.with_context(|| format!("cannot open {}", path.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// Everybody but this process, until it says that it is enough.
fn options() -> Options {
    Options {
        limit: super::end::LIMIT,
        early_instance: Some(EARLY_INSTANCE.into()),
        ..Options::system()
    }
}

struct Boot<'a> {
    store: &'a Store,
    kept: KeyDir,
    key: Key,
    origin: Instant,
    origin_unix_ns: u64,
    config: Config,
    signals: Signals,
    /// Its poll tells of mounts.
    mounts: File,
    notes: Notes,
    last: Last,
    wish: Wish,
    /// Where nothing was found of earlier boots: what holds it may not be mounted yet.
    unknown_in: Option<StateId>,
    replays: Option<Replays>,
    /// A plan whose replay waits until the guard can be taken.
    plan: Option<PlanFile>,
    need: Need,
    held: Held,
    /// When headstart began to be read and to do something, nanoseconds of CLOCK_MONOTONIC.
    own_begin_ns: u64,
    /// When nobody had to wait for anything but the replay any more, nanoseconds of CLOCK_MONOTONIC.
    free_ns: u64,
}

impl Boot<'_> {
    /// Decides what is done for this boot, and begins to read ahead.
    fn begin(&mut self) {
        let plan = plan_of(&self.kept, &mut |line| self.notes.tell(line));
        let decision = decision::of_boot(&self.kept, self.wish, &self.config, plan.is_some());
        // A replay says so when it begins.
        self.last.mode = Some(match &decision {
            Decision::Replay => Mode::Record,
            other => other.mode(),
        });
        match plan {
            None => {
                self.unknown_in = Some(StateId::of(self.store));
                self.not_replayed("nothing was known of what a boot needs".into());
            }
            Some(_) if self.wish == Wish::Record => {
                self.not_replayed("the kernel command line says headstart=record".into());
            }
            Some(_) if decision != Decision::Replay => {
                let why = self.kept.bypass().map(|bypass| bypass.why);
                self.not_replayed(why.map_or_else(
                    || "it was this boot's turn to go without, to compare with".into(),
                    |why| format!("boots are bypassed, and this one was to re-evaluate that: {why}"),
                ));
            }
            Some(plan) => {
                self.plan = Some(plan);
                if self.held.holds_process_1() {
                    match make_root_writable() {
                        Ok(made) => self.last.made_writable = made,
                        Err(error) => self.notes.tell(format!("{error:#}")),
                    }
                }
                self.take_guard();
            }
        }
    }

    /// Looks again where nothing was found: a separate /var may have been mounted.
    fn look_again(&mut self) {
        if self
            .unknown_in
            .as_ref()
            .is_some_and(|before| *before != StateId::of(self.store))
        {
            self.unknown_in = None;
            self.begin();
        }
    }

    fn not_replayed(&mut self, why: String) {
        self.plan = None;
        self.last.not_replayed = Some(why);
    }

    /// Takes the guard and begins the replay. On a file system that is not writable yet, as a root may be before systemd
    /// remounts it, both wait: a replay without a guard could keep the machine from booting for ever.
    fn take_guard(&mut self) {
        match self.kept.disarm() {
            Ok(true) => {
                let Some(plan) = self.plan.take() else { return };
                match Replays::start(plan, self.origin) {
                    Ok(replays) => {
                        self.replays = Some(replays);
                        self.held.replay_begins(Instant::now());
                        self.last.mode = Some(Mode::Replay);
                        self.last.not_replayed = None;
                    }
                    Err(error) => self.not_replayed(format!("the replay could not begin: {error:#}")),
                }
            }
            Ok(false) => self.not_replayed(
                "the last boot that was read ahead did not come to its end, so this one was not".into(),
            ),
            Err(error) if read_only(&error) => {
                self.held.hold_later(Path::new(RUN));
                self.last.not_replayed = Some(format!(
                    "the guard against failing boots cannot be taken: {error}"
                ));
            }
            Err(error) => {
                self.not_replayed(format!(
                    "the guard against failing boots cannot be taken: {error}"
                ));
            }
        }
    }

    /// Notes what records, and keeps what is known so far.
    fn tell_of(&mut self, recording: &Recording) {
        match recording.get() {
            Ok(recorder) => {
                let (backend, evidence) = (recorder.backend(), recorder.evidence());
                self.last.recorder = Some(format!("{backend:?}, {evidence:?}").to_lowercase());
            }
            Err(_) if recording.waits() => {}
            Err(error) => self.notes.tell(format!("not recording: {error}")),
        }
        self.last.notes = self.notes.all().to_vec();
        self.last.keep_in_run();
    }

    /// Notes what came of a trace instance of the kernel command line.
    fn tell_of_early(&mut self, early: Result<u64, String>) {
        match early {
            Ok(events) => {
                if let Some(recorder) = &mut self.last.recorder {
                    *recorder += &format!(", and {events} events of trace_instance={EARLY_INSTANCE}");
                }
            }
            Err(why) => self.notes.tell(format!(
                "trace_instance={EARLY_INSTANCE} on the kernel command line was not used: {why}"
            )),
        }
    }

    /// Waits for the boot's end; `None` if this process is told to end before.
    fn watch(&mut self, recording: &mut Recording, end: &mut End) -> Option<Why> {
        loop {
            let would_be_caught_up_with = self.replays.as_ref().filter(|replays| replays.hold());
            let held = self.held.look(
                would_be_caught_up_with.map(Replays::over),
                self.plan.is_some(),
                Instant::now(),
            );
            let most = if held { HOLD_LOOK_EVERY } else { LOOK_EVERY };
            if held {
                end.held(Instant::now());
            }
            self.pause(most, recording.waits());
            if self.told_to_end() {
                return None;
            }
            if recording.look(&options()) {
                self.tell_of(recording);
            }
            self.look_again();
            if self.plan.is_some() {
                self.take_guard();
                // What was said before is true no more.
                if self.plan.is_none() {
                    self.last.keep_in_run();
                }
            }
            if let Some(Err(error)) = self.replays.as_mut().map(Replays::look) {
                self.notes
                    .tell(format!("what was mounted is not read ahead: {error:#}"));
            }
            if !self.held.holds_from_the_first() {
                self.need.look();
            }
            let activity = recording.get().ok().map(Recorder::activity);
            // A replay that goes on is no reason to wait: what it has left nobody needed.
            if let Some(why) = end.ended(activity.as_ref()) {
                return Some(why);
            }
        }
    }

    /// Waits for a while, a signal or a mount.
    fn pause(&self, most: Duration, for_mounts: bool) {
        let timeout = Timespec {
            tv_sec: most.as_secs() as i64,
            tv_nsec: most.subsec_nanos().into(),
        };
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let for_mounts = for_mounts || self.plan.is_some() || self.unknown_in.is_some();
        if for_mounts || self.replays.as_ref().is_some_and(|replays| !replays.are_over()) {
            fds.push(PollFd::new(&self.mounts, PollFlags::PRI));
        }
        // Whatever it says, the caller looks for itself.
        let _ = poll(&mut fds, Some(&timeout));
    }

    fn told_to_end(&mut self) -> bool {
        let mut told = false;
        while let Ok(Some(received)) = self.signals.next() {
            let ends = [
                rustix::process::Signal::TERM,
                rustix::process::Signal::INT,
                rustix::process::Signal::HUP,
            ];
            told |= ends.iter().any(|signal| signal.as_raw() == received.signal);
        }
        told
    }
}

/// What the path of the state leads to: another one once something has been mounted there.
#[derive(PartialEq, Eq)]
struct StateId(Option<(u64, u64)>);

impl StateId {
    fn of(store: &Store) -> StateId {
        let facts = store
            .root()
            .ancestors()
            .find_map(|path| std::fs::metadata(path).ok());
        StateId(facts.map(|facts| (facts.dev(), facts.ino())))
    }
}

/// Whether the state's file system may become writable yet.
fn read_only(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { source, .. } if source.kind() == ErrorKind::ReadOnlyFilesystem)
}
