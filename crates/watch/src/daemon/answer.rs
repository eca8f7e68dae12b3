//! The thread that answers: what is done for each start, as it begins.

use super::Options;
use super::finish::{Ended, Finisher};
use super::hold::{Asked as AboutToStart, Guard};
use super::process::{Process, tree_of};
use super::running::Running;
use super::state::{Asked, State};
use anyhow::Result;
use headstart_model::Key;
use headstart_model::outcome::{Mode, Resident};
use headstart_model::plan::PlanFile;
use headstart_model::trace::EndReason;
use headstart_record::{Answer, Noticed, Program, Recorded, Standing, Watch};
use headstart_replay::Replay;
use headstart_session::decide::Decision;
use headstart_session::notes::log;
use headstart_session::{Prepared, Purpose, now_unix_ns, prepare, waits_on_one_head};
use headstart_store::Store;
use headstart_system::fault_around::NoFaultAround;
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A program that was not worth it is not looked at for so long, unless it has much to read before.
const IGNORED: Duration = Duration::from_secs(3600);

/// A known program that is started again within this time after it was warm is warm: nobody looks.
const WARM: Duration = Duration::from_secs(5);

/// The same for a program that had ended before it was looked at.
const GONE: Duration = Duration::from_secs(1);

/// So many starts are read ahead at a time. Each has some threads of its own, and a device that serves more serves none well.
const REPLAYS: usize = 8;

/// And so many of one user, who is not root: the others are left to other users.
const REPLAYS_OF_A_USER: usize = 6;

/// No start is recorded for longer than that.
const EXACT: Duration = Duration::from_secs(35);

/// How often it is looked whether one that is held has waited long enough.
const LOOK_AT_HELD_EVERY: Duration = Duration::from_millis(2);

/// One that was held is noticed within this time after it began to wait, or it was no start.
const NOTICED: Duration = Duration::from_secs(5);

/// What is known of the machine's programs, and what is done for those that start.
pub(super) struct Answering {
    pub(super) watch: Watch,
    judge: Judge,
    finisher: Finisher,
    /// Who holds starts, where they are held.
    guard: Option<Guard>,
}

struct Judge {
    /// The path of this program.
    own: Option<Vec<u8>>,
    store: Store,
    control_every: u32,
    least_wait: Duration,
    state: Arc<State>,
    /// Starts that are recorded, by number.
    active: HashMap<u32, Active>,
    /// Starts that were held and have not been noticed yet.
    held: Vec<Held>,
    running: Running,
    /// What was found out while the watch was busy, and is to be told it.
    standings: Vec<(Program, Standing)>,
}

/// Whose start it is.
struct Whose {
    key: Key,
    uid: u32,
    /// What standings about it are about, where that is known.
    program: Option<Program>,
}

/// A start that is recorded.
struct Active {
    key: Key,
    uid: u32,
    /// What standings about it are about; `None` where that is not known, and of an operation.
    program: Option<Program>,
    /// The operation that it is.
    operation: Option<u64>,
    mode: Mode,
    resident: Option<Resident>,
    warm: bool,
    replaying: Option<(Replay, PlanFile)>,
    origin_unix_ns: u64,
    /// While it is recorded the kernel maps nothing around a fault.
    exact: Option<NoFaultAround>,
    /// How long it was held before it began.
    held: Duration,
}

/// A start that is about to begin.
struct Held {
    pid: u32,
    since: Instant,
    /// By what number the guard has it, while it waits.
    waits: Option<u64>,
    active: Active,
}

impl Answering {
    pub(super) fn new(
        watch: Watch,
        guard: Option<Guard>,
        options: Options,
        state: Arc<State>,
        finisher: Finisher,
    ) -> Answering {
        Answering {
            watch,
            finisher,
            guard,
            judge: Judge {
                own: std::env::current_exe()
                    .ok()
                    .map(|path| path.into_os_string().into_vec()),
                store: options.store,
                control_every: options.control_every,
                least_wait: options.least_wait,
                state,
                active: HashMap::new(),
                held: Vec::new(),
                running: Running::default(),
                standings: Vec::new(),
            },
        }
    }

    /// How soon there is something to do even if nothing happens.
    pub(super) fn wait_at_most(&self) -> Option<Duration> {
        let waits = self.judge.held.iter().any(|held| held.waits.is_some());
        let look = waits.then_some(LOOK_AT_HELD_EVERY);
        self.watch.wait_at_most().into_iter().chain(look).min()
    }

    /// Who holds starts, where they are held.
    pub(super) fn guard(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }

    /// Answers what has begun, and has finished what has ended.
    pub(super) fn work(&mut self) -> Result<()> {
        self.hold();
        let judge = &mut self.judge;
        let ended = self.watch.drain(&mut |start| judge.answer(start))?;
        for recorded in ended {
            self.ended(recorded);
        }
        // What could not be recorded, for want of memory or descriptors, is over.
        let watch = &self.watch;
        self.judge.active.retain(|number, _| watch.is_recorded(*number));
        for (program, standing) in std::mem::take(&mut self.judge.standings) {
            if let Err(error) = self.watch.set_standing(program, standing) {
                log(&error.to_string());
            }
        }
        for asked in self.judge.state.asked() {
            if let Err(error) = self.do_as_asked(asked) {
                log(&error.to_string());
            }
        }
        self.judge.state.set_counts(self.watch.counts());
        Ok(())
    }

    /// Holds who is about to start a program that is to be held, and lets go who has waited long enough.
    fn hold(&mut self) {
        let to_ask_about = self.judge.state.to_ask_about();
        let Some(guard) = &mut self.guard else { return };
        for file in to_ask_about {
            guard.ask_about(file);
        }
        while let Some(asked) = guard.next() {
            match self.judge.about_to_start(&asked) {
                true => guard.hold(asked.id),
                false => guard.leave(asked.id),
            }
        }
        self.judge.held.retain_mut(|held| {
            if !held.active.replays_before_it() {
                if let Some(id) = held.waits.take() {
                    guard.let_go(id);
                }
            }
            // Else its replay goes on by itself.
            held.since.elapsed() < NOTICED
        });
        if guard.is_gone() {
            self.guard = None;
        }
    }

    /// Begins or ends an operation.
    fn do_as_asked(&mut self, asked: Asked) -> Result<()> {
        let (operation, key, uid, pid) = match asked {
            Asked::Begin {
                operation,
                key,
                uid,
                pid,
            } => (operation, key, uid, pid),
            Asked::End(operation) => {
                let is_it = |(_, active): &(&u32, &Active)| active.operation == Some(operation);
                let number = self.judge.active.iter().find(is_it).map(|(number, _)| *number);
                let recorded = number.map(|number| self.watch.end(number, EndReason::Exit(0)));
                if let Some(recorded) = recorded.transpose()?.flatten() {
                    self.ended(recorded);
                }
                return Ok(());
            }
        };
        let Some(mut active) = self.judge.decide(key, uid, Instant::now()) else {
            self.judge.state.operation_is_over(operation);
            return Ok(());
        };
        active.operation = Some(operation);
        let replayed = active.replaying.is_some();
        let processes = tree_of(pid);
        match self.watch.begin(&processes, active.command(), replayed) {
            Ok(Some(number)) => drop(self.judge.active.insert(number, active)),
            result => {
                self.judge.state.operation_is_over(operation);
                result?;
            }
        }
        Ok(())
    }

    fn ended(&mut self, recorded: Recorded) {
        let Some(active) = self.judge.active.remove(&recorded.number) else {
            return;
        };
        match active.operation {
            Some(operation) => self.judge.state.operation_is_over(operation),
            None => self.judge.running.add(&active.key, &recorded.living),
        }
        let waited = Duration::from_nanos(recorded.blocked_ns);
        // Whatever has a plan has been worth it.
        if active.mode == Mode::Record && waited < self.judge.least_wait {
            self.judge.ignore(active.program, IGNORED);
            return;
        }
        let known = active.program.map(|program| (program, Standing::Known));
        self.judge.standings.extend(known);
        let status = match recorded.reason {
            EndReason::Exit(status) => Some(status),
            _ => None,
        };
        let exact = active.exact.is_some();
        drop(active.exact);
        self.finisher.finish(Ended {
            exact,
            key: active.key,
            uid: active.uid,
            mode: active.mode,
            resident: active.resident,
            warm: active.warm,
            replaying: active.replaying,
            origin_unix_ns: active.origin_unix_ns,
            // Whoever started it has waited for both.
            ended: status.map(|status| (Some(status), active.held + recorded.took)),
            recorded,
        });
    }

    /// Nothing is recorded any more, nor finished but what is being finished.
    pub(super) fn end(self) {
        // Nobody waits for what comes now.
        drop(self.guard);
        for active in self.judge.active.into_values() {
            if let Some((replay, _)) = active.replaying {
                replay.stop();
            }
        }
        drop(self.watch);
        self.finisher.end();
        log(&self.judge.state.counts().to_string());
    }
}

impl Judge {
    fn answer(&mut self, start: &Noticed) -> Answer {
        if start.path.is_some() && start.path == self.own {
            // Another headstart than this one, such as a newer one: what it starts it sees to itself.
            return Answer::LeaveTree;
        }
        let Some(Whose { key, uid, program }) = self.whose(start) else {
            return Answer::Leave;
        };
        let began = instant_of(start.time_ns);
        let held = self.was_held(start.pid, &key, began);
        let Some(mut active) = held.or_else(|| self.decide(key, uid, began)) else {
            self.ignore(program, WARM);
            return Answer::Leave;
        };
        active.program = program;
        let answer = Answer::Record {
            command: active.command(),
            replayed: active.replaying.is_some(),
        };
        self.active.insert(start.number, active);
        answer
    }

    /// What is done for a start, begun; `None` if that is nothing.
    fn decide(&mut self, key: Key, uid: u32, origin: Instant) -> Option<Active> {
        if self.is_under_way(&key) {
            self.state.count(|counts| counts.running += 1);
            return None;
        }
        let prepared = match self.store.key(&key).exists() {
            true => self.prepare(&key),
            false => Prepared::new(Decision::Record),
        };
        if let Decision::Bypass(_) = prepared.decision {
            self.state.count(|counts| counts.bypassed += 1);
            return None;
        }
        let active = self.active_of(key, uid, &prepared, origin);
        self.count(&active);
        Some(active)
    }

    /// Whether a start of it has begun, or it runs.
    fn is_under_way(&mut self, key: &Key) -> bool {
        self.active.values().any(|active| active.key == *key)
            || self.held.iter().any(|held| held.active.key == *key)
            || self.running.runs(key)
    }

    fn count(&self, active: &Active) {
        self.state.count(|counts| {
            counts.recorded += 1;
            counts.replayed += u64::from(active.mode == Mode::Replay);
            counts.held += u64::from(active.held > Duration::ZERO);
        });
    }

    fn active_of(&self, key: Key, uid: u32, prepared: &Prepared, origin: Instant) -> Active {
        let (mode, replaying) = self.begin((&key, uid), prepared, origin);
        Active {
            key,
            uid,
            program: None,
            operation: None,
            mode,
            resident: prepared.resident,
            warm: prepared.warm,
            replaying,
            // What was mapped by now with others stays unknown.
            exact: prepared.exact.then(|| NoFaultAround::begin(EXACT).ok()).flatten(),
            origin_unix_ns: now_unix_ns().saturating_sub(origin.elapsed().as_nanos() as u64),
            held: Duration::ZERO,
        }
    }

    /// Begins to read ahead for who is about to start; whether it is to wait.
    fn about_to_start(&mut self, asked: &AboutToStart) -> bool {
        let origin = Instant::now();
        let whose = Process::before(asked.pid, &asked.program)
            .into_iter()
            .filter_map(|process| Some((key_of_user(process.key()?, process.uid)?, process.uid)));
        let known = whose.into_iter().find(|(key, _)| self.store.key(key).exists());
        let Some((key, uid)) = known.filter(|(key, _)| !self.is_under_way(key)) else {
            return false;
        };
        let prepared = self.prepare(&key);
        let is_one_head = |plan: &PlanFile| waits_on_one_head(&self.store, plan);
        if prepared.decision != Decision::Replay || !prepared.plan.as_ref().is_some_and(is_one_head) {
            return false;
        }
        let active = self.active_of(key, uid, &prepared, origin);
        if !active.replays_before_it() {
            return false;
        }
        self.held.push(Held {
            pid: asked.pid,
            since: origin,
            waits: Some(asked.id),
            active,
        });
        true
    }

    /// The start that this process was held for, begun now.
    fn was_held(&mut self, pid: u32, key: &Key, began: Instant) -> Option<Active> {
        let is_it = |held: &Held| held.pid == pid && held.active.key == *key;
        let at = self.held.iter().position(is_it)?;
        let held = self.held.swap_remove(at);
        let active = Active {
            held: began.saturating_duration_since(held.since),
            ..held.active
        };
        self.count(&active);
        Some(active)
    }

    /// Whose start it is; `None` if nothing is to be done for it.
    fn whose(&mut self, start: &Noticed) -> Option<Whose> {
        let Some(path) = &start.path else {
            // On a file system that this process does not see.
            self.ignore(Some(start.program), IGNORED);
            return None;
        };
        let Some(process) = Process::of(start.pid, path) else {
            // One that has ended already has not waited for long. Of those that follow at once nobody needs to be told.
            self.ignore(Some(start.program), GONE);
            return None;
        };
        let key = process.key();
        let mut program = Some(start.program);
        if start.program == start.executable && !key.as_ref().is_some_and(|key| process.is_plain(key)) {
            self.standings.push((start.executable, Standing::ByArguments));
            // What this execution is given to do the kernel has not told.
            program = None;
        }
        let Some(key) = key.filter(|key| self.store.key(key).is_enabled()) else {
            self.ignore(program, IGNORED);
            return None;
        };
        let uid = process.uid;
        let key = key_of_user(key, uid)?;
        Some(Whose { key, uid, program })
    }

    fn prepare(&self, key: &Key) -> Prepared {
        let prepared = prepare(&Purpose::Loop {
            store: self.store.clone(),
            key: key.clone(),
            control_every: self.control_every,
        });
        for line in &prepared.lines {
            log(&format!("{key}: {line}"));
        }
        prepared
    }

    /// Begins the replay, if that was decided.
    fn begin(
        &self,
        (key, uid): (&Key, u32),
        prepared: &Prepared,
        origin: Instant,
    ) -> (Mode, Option<(Replay, PlanFile)>) {
        let (Decision::Replay, Some(plan)) = (&prepared.decision, &prepared.plan) else {
            return (prepared.decision.mode(), None);
        };
        let held = self.held.iter().map(|held| &held.active);
        let all = self.active.values().chain(held);
        let replays: Vec<&Active> = all.filter(|active| active.replays()).collect();
        let theirs = replays.iter().filter(|active| active.uid == uid).count();
        if replays.len() >= REPLAYS || uid != 0 && theirs >= REPLAYS_OF_A_USER {
            return (Mode::Control, None);
        }
        // Its threads come before others until they have begun to read.
        let options = headstart_replay::Options {
            reader: reader_of(key, uid),
            ..headstart_replay::Options::new(origin)
        };
        match Replay::start(PlanFile(plan.0.clone()), options) {
            Ok(replay) => (Mode::Replay, Some((replay, PlanFile(plan.0.clone())))),
            Err(error) => {
                log(&format!("{key}: not replaying: {error}"));
                (Mode::Record, None)
            }
        }
    }

    fn ignore(&mut self, program: Option<Program>, how_long: Duration) {
        let until = monotonic_ns().saturating_add(how_long.as_nanos() as u64);
        let standing = |program| (program, Standing::IgnoredUntil(until));
        self.standings.extend(program.map(standing));
    }
}

impl Active {
    /// What the trace calls the command: arguments may hold secrets, and the key tells what of them matters.
    fn command(&self) -> Vec<String> {
        vec![self.key.to_string()]
    }

    /// Whether it is still too soon to begin.
    fn replays_before_it(&self) -> bool {
        self.replaying
            .as_ref()
            .is_some_and(|(replay, _)| replay.barrier_up())
    }

    fn replays(&self) -> bool {
        self.replaying
            .as_ref()
            .is_some_and(|(replay, _)| !replay.is_finished())
    }
}

/// The least user id that is a person's, and not the system's (decision 9).
const ORDINARY_USERS: u32 = 1000;

/// The key of a user's starts. What root's starts read is read ahead for root alone, and what a user's read for that user: so nobody
/// has a file read that is another's. A service of the system's is the same whoever it runs as; but an ordinary user's process may have
/// got into its control group, as a job of cron's has, and may have process 1 for a parent.
fn key_of_user(key: Key, uid: u32) -> Option<Key> {
    if uid == 0 || !key.as_str().starts_with('/') && uid < ORDINARY_USERS {
        return Some(key);
    }
    Key::new(format!("{key} of user {uid}")).ok()
}

/// Who has to be allowed to read what is read ahead for a start: its user, unless all that its key's starts read is the system's.
fn reader_of(key: &Key, uid: u32) -> Option<u32> {
    (uid != 0 && key.as_str().ends_with(&format!(" of user {uid}"))).then_some(uid)
}

/// Now, nanoseconds of CLOCK_MONOTONIC.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec as u64)
}

/// A time of CLOCK_MONOTONIC that has just passed.
fn instant_of(time_ns: u64) -> Instant {
    let ago = Duration::from_nanos(monotonic_ns().saturating_sub(time_ns));
    let now = Instant::now();
    now.checked_sub(ago).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_users_starts_are_that_users_and_read_what_that_user_may() {
        let of = |text: &str, uid| key_of_user(Key::new(text).unwrap(), uid).unwrap();
        for (text, uid, key, reader) in [
            ("/usr/bin/x", 0, "/usr/bin/x", None),
            ("/usr/bin/x", 1000, "/usr/bin/x of user 1000", Some(1000)),
            ("/usr/bin/x", 33, "/usr/bin/x of user 33", Some(33)),
            ("postgresql.service", 110, "postgresql.service", None),
            // A job that cron has started, and left behind.
            ("cron.service", 1000, "cron.service of user 1000", Some(1000)),
        ] {
            let found = of(text, uid);
            assert_eq!((found.as_str(), reader_of(&found, uid)), (key, reader));
        }
        let operation = crate::key::of_operation(1000, "load").unwrap();
        assert_eq!(reader_of(&operation, 1000), Some(1000));
    }
}
