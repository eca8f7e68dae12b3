//! Many starts at a time, noticed as they begin: BPF programs that are attached once see every execution, and
//! who is asked for each says whether it is recorded.
//!
//! A start is a process that executes something, and what it forks, until all of them have ended, little
//! happens any more, or a limit. An execution inside a start belongs to it; after its end it begins another.
//! A session takes all that is executed in a user's control groups, too.
//! Up to 32 are recorded at a time. What is not worth it costs next to nothing: a [`Standing`] keeps the
//! kernel from telling of it at all.

mod recording;
mod starts;

use crate::error::RecordError;
use crate::kernel::bpf::watched::{BY_ARGUMENTS, Control, KNOWN, Later, Programs, SLOTS, slot_of};
use crate::kernel::clock::monotonic_ns;
use crate::options::Options;
use crate::trace::builder::Ended;
use crate::trace::mounts::Mounts;
use headstart_model::trace::EndReason;
use headstart_model::users::is_ordinary;
use headstart_system::files::generation;
use headstart_system::open::Opened;
pub use recording::Recorded;
use recording::{Before, Recording};
use starts::Starts;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often what is recorded is taken over: the ring holds 16,000 events.
const DRAIN_EVERY: Duration = Duration::from_millis(10);

/// How soon a slot whose start has ended may be given to another.
const FREE_AFTER: Duration = Duration::from_millis(2);

/// While no more slots than so many wait for that, nothing is done for it alone: that would be one wake-up
/// more for each start that is ignored.
const RESTING: usize = 2;

/// The most memory that one start's recording takes, bytes: LibreOffice's takes 4 MiB. A start that would
/// take more ends there.
const BYTES: usize = 24 << 20;

/// The most that all of them take together.
const ALL_BYTES: usize = 64 << 20;

/// Programs of which nothing is known whose starts are told: so many at once, and so many a second; of one
/// user half as many (`TURNS_OF_A_USER`, watch.h). A storm of new programs is no reason to work for nothing.
const UNKNOWN: u32 = 64;

/// What is attached only while something is recorded stays so long without.
const STAY: Duration = Duration::from_secs(2);

/// What a standing is about: an executable as long as the kernel has its inode, or what an interpreter is
/// given to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    standing: u64,
    /// The same, of one user's starts of it: `of_user` of watch.h.
    ignored: u64,
    /// Its executable, where that is all it is.
    file: Option<Executable>,
}

impl Program {
    /// Its executable, where that is all it is.
    pub fn executable(&self) -> Option<Executable> {
        self.file
    }
}

/// An executable, whether or not the kernel has to read it anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Executable(u64);

impl Executable {
    /// Identifies an open file: `file_hash` of watch.h.
    pub fn from_opened(file: &Opened) -> Executable {
        // MKDEV, include/linux/kdev_t.h.
        let device = u64::from(file.stat.major) << 20 | u64::from(file.stat.minor);
        let generation = u64::from(generation(file.fd.as_fd()));
        Executable(mix(file.stat.inode ^ generation << 32 ^ device << 20))
    }
}

/// The same of watch.h.
fn mix(mut h: u64) -> u64 {
    h ^= h >> 32;
    h = h.wrapping_mul(0x94d0_49bb_1331_11eb);
    h ^ h >> 29
}

/// What an executable has to do with a known program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is one.
    Program,
    /// It is given one to run: a start of what it is given may be that of a known one, until it has been
    /// seen.
    Interpreter,
}

/// What is known of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its starts are told, whatever else goes on; also those of an executable that the kernel has to read
    /// anew.
    Known,
    /// This user's starts of it are not told until then, nanoseconds of CLOCK_MONOTONIC; or until a process
    /// of it had 1 MiB read from a device.
    IgnoredUntil(u64),
    /// It runs what it is given: each of that is a program, and has standings of its own.
    ByArguments,
}

/// A start that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noticed {
    /// Its number, as long as it is recorded.
    pub number: u32,
    /// Its process, as this process's /proc calls it.
    pub pid: u32,
    /// The real user of that process when it executed this, or whoever had made its user namespace: `whose`
    /// of common.h. By now it may be another.
    pub user: u32,
    /// The number of the start that is recorded and that its process was part of until it executed this in
    /// another control group; 0 if of none.
    pub before: u32,
    /// The process that had forked it, as this process's /proc calls that; 0 if none of those.
    pub parent: u32,
    /// When it began, nanoseconds of CLOCK_MONOTONIC.
    pub time_ns: u64,
    /// What a standing about it is about.
    pub program: Program,
    /// Its executable, which is the same but for interpreters.
    pub executable: Program,
    /// Where the executable is; `None` where no mount shows it.
    pub path: Option<Vec<u8>>,
    /// What it was executed with: its name first, a NUL behind each, of all 8 KiB at most. Nothing where it
    /// could not be read.
    pub arguments: Vec<u8>,
}

/// What is done about a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is not recorded.
    Leave,
    /// The same, and what the process starts is not told of either.
    LeaveTree,
    /// It is recorded.
    Record {
        /// The command, for the trace's description.
        command: Vec<String>,
        /// Whether a replay runs beside it, for the trace's description.
        replayed: bool,
        /// How long after the last of its processes has ended another start may go on with it.
        open_for: Duration,
        /// The number of a control group, its directory's inode, where it is a session: all that is executed
        /// in that group and below it belongs to it, and it takes ten seconds at most. As long as others have
        /// taken all places there are for such starts it is not recorded.
        group: Option<u64>,
    },
    /// It goes on with the start that has this number, and is recorded as part of it. It is ignored where
    /// that start is over, or has gone on eight times.
    GoesOn(u32),
}

/// How many starts were not told of, since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Because as many as there is room for were recorded.
    pub without_slot: u32,
    /// Because too many of unknown programs came at once.
    pub without_turn: u32,
    /// In a mount namespace that is neither this process's nor that of process 1.
    pub foreign: u32,
}

/// Of several users in a start the one counts that comes last: as watch.h has it.
fn rank(uid: &u32) -> (bool, u32) {
    (is_ordinary(*uid), *uid)
}

/// Notices starts and records many at a time. One thread does all of it: [`Watch::wait_on`] tells it when to
/// [drain](Watch::drain).
pub struct Watch {
    programs: Programs,
    control: Arc<Control>,
    later: Later,
    ring: OwnedFd,
    starts: Starts,
    before: Before,
    /// Whether all that was sent has been taken over. What was still being written wakes nobody when it is.
    whole: bool,
    /// Slots whose start has ended, since when.
    resting: Vec<(usize, Instant)>,
    /// When unknown programs were last given turns.
    given: Instant,
    /// Since when nothing is recorded, while more than need be is attached.
    idle: Option<Instant>,
}

impl Watch {
    /// Attaches. Errors name what is missing: BPF as for a recording, and that pages used can be told, by the
    /// events of Linux 6.12 or by functions that are traced.
    pub fn start() -> Result<Watch, RecordError> {
        let (programs, control, later) = Programs::start()?;
        control.add_unknown(UNKNOWN, UNKNOWN);
        Ok(Watch {
            ring: programs.ring_fd()?,
            starts: Starts {
                control: Arc::clone(&control),
                evidence: programs.evidence,
                mounts: Mounts::read()?,
                slots: std::array::from_fn(|_| None),
                part_of: std::array::from_fn(|slot| slot),
                left: Vec::new(),
                ours: Vec::new(),
                began: Vec::new(),
            },
            programs,
            control,
            later,
            before: Before::default(),
            whole: true,
            resting: Vec::new(),
            given: Instant::now(),
            idle: None,
        })
    }

    /// Becomes readable, edge by edge (`EPOLLET`), when a start has begun.
    pub fn wait_on(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// How soon to [drain](Watch::drain) even if no start begins; `None` where nothing is to be done until
    /// one does.
    pub fn wait_at_most(&self) -> Option<Duration> {
        if !self.whole || self.resting.len() > RESTING {
            Some(FREE_AFTER)
        } else if self.recorded() > 0 {
            Some(DRAIN_EVERY)
        } else if self.control.unknown_left() < UNKNOWN as i32 || self.idle.is_some() {
            Some(Duration::from_secs(1))
        } else {
            None
        }
    }

    /// Whether the start with this number is recorded still.
    pub fn is_recorded(&self, number: u32) -> bool {
        let recording = self.starts.slots[slot_of(number)].as_ref();
        recording.is_some_and(|recording| recording.number == number)
    }

    /// How many starts are recorded now.
    pub fn recorded(&self) -> usize {
        self.starts.slots.iter().flatten().count()
    }

    /// Takes over what was seen: asks `judge` about each start that has begun, and gives those that have
    /// ended.
    pub fn drain(&mut self, judge: &mut dyn FnMut(&Noticed) -> Answer) -> Result<Vec<Recorded>, RecordError> {
        let now = Instant::now();
        let rested = |since: Instant| now.duration_since(since) >= FREE_AFTER;
        self.starts.mounts.refresh_in_time();
        for recording in self.starts.slots.iter_mut().flatten() {
            recording.builder.refresh();
        }
        let (starts, before) = (&mut self.starts, self.before);
        self.whole = self
            .programs
            .drain(&mut |seen| starts.notice(seen, before, judge));
        // Nobody waits any more. What was not sent before a start began and was not known of yet counts as
        // lost by it. What no program saw does not: hours may have passed in which nobody asked.
        let began = std::mem::take(&mut self.starts.began);
        if !began.is_empty() {
            let now = self.missed()?;
            for slot in began {
                if let Some(recording) = &mut self.starts.slots[slot] {
                    recording.before.not_run = now.not_run;
                }
            }
        }
        // What was sent of them before their end has been seen by now, and went nowhere.
        for (slot, since) in std::mem::take(&mut self.resting) {
            if !rested(since) {
                self.resting.push((slot, since));
                continue;
            }
            // What a start waited that was not recorded is nobody's.
            self.programs.take_blocked_ns(slot)?;
            self.control.free(slot);
        }
        for slot in std::mem::take(&mut self.starts.left) {
            self.resting.push((slot, now));
        }
        for pid in std::mem::take(&mut self.starts.ours) {
            // One that has ended starts nothing any more.
            let _ = self.programs.list_as_ours(pid);
        }
        self.give_turns(now);
        let ended = self.take_ended(now)?;
        self.attach_as_needed(now);
        Ok(ended)
    }

    /// Records these processes, and what they fork, from now on, as a start of the first; gives its number.
    /// `None` if as many starts as there is room for are recorded. Numbers are those of this process's pid
    /// namespace.
    pub fn start_recording(
        &mut self,
        processes: &[u32],
        command: Vec<String>,
        replayed: bool,
    ) -> Result<Option<u32>, RecordError> {
        let Some(number) = self.control.take() else {
            return Ok(None);
        };
        let slot = slot_of(number);
        match self.record_processes(number, processes, command, replayed) {
            Ok(recording) => {
                self.starts.slots[slot] = Some(Box::new(recording));
                Ok(Some(number))
            }
            Err(error) => {
                self.control.end(number);
                self.resting.push((slot, Instant::now()));
                Err(error)
            }
        }
    }

    fn record_processes(
        &mut self,
        number: u32,
        processes: &[u32],
        command: Vec<String>,
        replayed: bool,
    ) -> Result<Recording, RecordError> {
        let (first, others) = processes.split_first().unwrap_or((&0, &[]));
        let options = Options {
            replayed,
            patience: Options::PATIENCE,
            ..Options::tree(command)
        };
        let before = self.missed()?;
        let pid = self.programs.list_as_of(*first, number)?;
        let mut recording = Recording::start(
            number,
            pid,
            monotonic_ns(),
            &options,
            before,
            self.programs.evidence,
        )?;
        for other in others {
            // Who has ended meanwhile reads nothing more.
            if let Ok(pid) = self.programs.list_as_of(*other, number) {
                recording.builder.add_process(pid, monotonic_ns());
            }
        }
        Ok(recording)
    }

    /// Keeps what is known of a program.
    pub fn set_standing(&self, program: Program, standing: Standing) -> Result<(), RecordError> {
        match standing {
            Standing::IgnoredUntil(ns) => self.programs.set_standing(program.ignored, ns),
            Standing::ByArguments => self.programs.set_standing(program.standing, BY_ARGUMENTS),
            Standing::Known => {
                self.programs.set_standing(program.standing, KNOWN)?;
                self.programs.forget_standing(program.ignored)?;
                self.programs.forget_warm(program.ignored)?;
                program.file.map_or(Ok(()), |file| self.know(file, Role::Program))
            }
        }
    }

    /// This user's starts of a program are not told for so long, but for one of eight, as long as the pages
    /// of these files and these names (whatever they name) are in memory as they are now; or until a process
    /// of it had 1 MiB read from a device. Of files the first five count, of names three. False if of a file
    /// nothing is in memory, or it cannot be told.
    pub fn leave_while_in_memory(
        &mut self,
        program: Program,
        how_long: Duration,
        files: &[OwnedFd],
        names: &[OwnedFd],
    ) -> Result<bool, RecordError> {
        let until = monotonic_ns().saturating_add(how_long.as_nanos() as u64);
        self.programs.keep_warm(program.ignored, until, files, names)
    }

    /// Its starts are those of a known program, though none of them was seen.
    pub fn know(&self, file: Executable, role: Role) -> Result<(), RecordError> {
        self.programs.know(file.0, role == Role::Interpreter)
    }

    /// Nothing is known any more of what it is.
    pub fn forget(&self, file: Executable) -> Result<(), RecordError> {
        self.programs.forget_known(file.0)
    }

    /// Starts that were not told of.
    pub fn counts(&self) -> Counts {
        let [without_slot, without_turn, foreign] = self.control.left_out();
        Counts {
            without_slot,
            without_turn,
            foreign,
        }
    }

    /// Ends the recording of a start; `None` if it has ended already.
    pub fn end(&mut self, number: u32, reason: EndReason) -> Result<Option<Recorded>, RecordError> {
        let slot = slot_of(number);
        let is_it = |recording: &Recording| recording.number == number;
        if !self.starts.slots[slot].as_deref().is_some_and(is_it) {
            return Ok(None);
        }
        self.finish(slot, reason)
    }

    /// What the counters that all starts share are now.
    fn missed(&mut self) -> Result<Before, RecordError> {
        let (not_sent, not_run) = self.programs.missed()?;
        self.before = Before { not_sent, not_run };
        Ok(self.before)
    }

    fn give_turns(&mut self, now: Instant) {
        let since = now.duration_since(self.given);
        let turns = (since.as_secs_f64() * f64::from(UNKNOWN)) as u32;
        if turns > 0 {
            self.given = now;
            self.control.add_unknown(turns, UNKNOWN);
        }
    }

    fn attach_as_needed(&mut self, now: Instant) {
        match (self.recorded(), self.idle) {
            (0, Some(since)) if now.duration_since(since) >= STAY => {
                self.idle = None;
                self.later.attach(false);
            }
            (0, _) => {}
            (_, None) => {
                self.idle = Some(now);
                self.later.attach(true);
            }
            (_, Some(_)) => self.idle = Some(now),
        }
    }

    /// The starts that have come to their end.
    fn take_ended(&mut self, now: Instant) -> Result<Vec<Recorded>, RecordError> {
        let mut total_bytes: usize = self
            .starts
            .slots
            .iter()
            .flatten()
            .map(|r| r.builder.bytes())
            .sum();
        // Where all have too much, the largest ends.
        let bytes_of = |slot: &usize| self.starts.slots[*slot].as_ref().map_or(0, |r| r.builder.bytes());
        let largest = (0..SLOTS).max_by_key(bytes_of);
        let mut ended = Vec::new();
        for slot in 0..SLOTS {
            let Some(recording) = &mut self.starts.slots[slot] else {
                continue;
            };
            let bytes = recording.builder.bytes();
            let programs = &self.programs;
            // Where it cannot be told it has not waited.
            let blocked_ns = |recording: &Recording| {
                let slots = recording.numbers().map(slot_of);
                slots.map(|slot| programs.blocked_ns(slot).unwrap_or(0)).sum()
            };
            let reason = match recording.has_ended(now, blocked_ns) {
                Some(reason) => reason,
                None if bytes > BYTES || total_bytes > ALL_BYTES && largest == Some(slot) => {
                    // Who floods the recorder is not to begin anew at once.
                    self.given = now + Duration::from_secs(1);
                    self.control.take_turns();
                    EndReason::Limit
                }
                None => continue,
            };
            total_bytes -= bytes;
            ended.extend(self.finish(slot, reason)?);
        }
        Ok(ended)
    }

    fn finish(&mut self, slot: usize, reason: EndReason) -> Result<Option<Recorded>, RecordError> {
        let Some(recording) = self.starts.slots[slot].take() else {
            return Ok(None);
        };
        let recording = *recording;
        self.control.end_session(recording.number);
        let (mut blocked_ns, mut user) = (0, 0);
        for number in recording.numbers() {
            let slot = slot_of(number);
            user = [user, self.control.user(slot)]
                .into_iter()
                .max_by_key(rank)
                .unwrap_or(user);
            self.control.end(number);
            self.starts.part_of[slot] = slot;
            self.resting.push((slot, Instant::now()));
            blocked_ns += self.programs.take_blocked_ns(slot)?;
        }
        let at_ns = recording.left_alone_ns().unwrap_or_else(monotonic_ns);
        let (now, before) = (self.missed()?, recording.before);
        let missed = (now.not_sent - before.not_sent) + (now.not_run - before.not_run);
        Ok(Some(Recorded {
            number: recording.number,
            reason,
            took: Duration::from_nanos(at_ns.saturating_sub(recording.began_ns)),
            blocked_ns,
            cpu_ns: (recording.cpu.seconds() * 1e9) as u64,
            pages: recording.builder.pages(),
            bytes: recording.builder.bytes(),
            living: recording.builder.living().collect(),
            user,
            ended: Ended {
                at_ns,
                blocked_ns: Some(blocked_ns),
                lost: missed.events + u64::from(self.programs.are_not_called()),
                unseen_uses: missed.unseen_uses,
                dropped: missed.lookups,
                unseen: 0,
            },
            builder: recording.builder,
        }))
    }
}
