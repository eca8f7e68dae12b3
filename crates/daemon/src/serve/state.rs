//! What all threads of the daemon share: what was counted, which operations are under way; and what is done
//! for those who ask by the socket.

use super::rouse;
use crate::apps::Apps;
use crate::control::process::has_ended;
use crate::key::of_operation;
use crate::service::{App, Peer, Reading, Service, ServiceError};
use headstart_model::{Key, NamedFiles};
use headstart_record::{Counts as NotTold, Executable, Program, Role};
use headstart_replay::{Forks, Replay, Taken};
use headstart_start::plan_of;
use headstart_store::Store;
use headstart_system::process::ProcessStat;
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So many programs are read ahead at a time because somebody asked for it.
const MOST_READING: usize = 4;

/// So many operations are under way at a time, and so many of one user: there are 32 slots for all that is
/// recorded.
const MOST_OPERATIONS: usize = 8;
const MOST_OF_A_USER: usize = 2;

/// So many of a user are known, and of all, with those of which nothing is recorded any more and whose
/// process has not ended them: the oldest of those is forgotten first.
const MOST_KNOWN_OF_A_USER: usize = 16;
const MOST_KNOWN: usize = 1024;

/// What was done since the daemon began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Starts that were recorded.
    pub recorded: u64,
    /// Of these, those with a replay.
    pub replayed: u64,
    /// Of these, those that were to be read ahead for and were not, as too many others were.
    pub declined: u64,
    /// Starts of known programs that found in memory what they read, or whose replays do not pay.
    pub bypassed: u64,
    /// Starts of programs that ran already.
    pub running: u64,
    /// Starts of which it was kept how they went.
    pub finished: u64,
    /// Starts of which it could not be kept.
    pub unfinished: u64,
    /// Starts that the kernel did not tell of.
    pub not_told: NotTold,
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let NotTold {
            without_slot,
            without_turn,
            foreign,
        } = self.not_told;
        write!(
            f,
            "starts recorded: {}, with a replay: {}, declined: {}; bypassed: {}, of programs that ran already: {}; kept: {}, not kept: {}; \
             left out, for too many at once: {without_slot}, of too many new programs: {without_turn}, in another mount \
             namespace: {foreign}",
            self.recorded,
            self.replayed,
            self.declined,
            self.bypassed,
            self.running,
            self.finished,
            self.unfinished
        )
    }
}

/// An operation that was begun.
struct Operation {
    uid: u32,
    pid: u32,
    /// When its process began, clock ticks: a number may be another's by now.
    began: u64,
    /// Nothing of it is recorded any more, or ever was; it can still be ended.
    over: bool,
}

impl Operation {
    fn lives(&self) -> bool {
        ProcessStat::for_process(self.pid).is_some_and(|stat| stat.start_ticks == self.began)
    }
}

/// What the thread that answers is asked to do.
pub(super) enum Task {
    /// To begin an operation.
    Begin {
        operation: u64,
        key: Key,
        uid: u32,
        pid: u32,
        /// When its process began, clock ticks.
        began: u64,
    },
    /// To end it.
    End(u64),
}

/// What the threads share.
pub(super) struct State {
    store: Store,
    apps: Apps,
    wake: Arc<OwnedFd>,
    /// Who forks the processes that read remote file systems.
    forks: Forks,
    /// What replays may fill together.
    taken: Arc<Taken>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    counts: Counts,
    reading: Vec<Replay>,
    asked: Vec<Task>,
    to_know: Vec<(Executable, Role)>,
    to_ignore: Vec<(Program, Duration)>,
    /// By their numbers.
    operations: HashMap<u64, Operation>,
    last_operation: u64,
}

impl Inner {
    /// Makes room for one more than so many of these, if there are as many: the oldest go of which nothing is
    /// recorded any more.
    fn forget_operations(&mut self, most: usize, of_these: impl Fn(&Operation) -> bool) {
        let these = self
            .operations
            .iter()
            .filter(|(_, operation)| of_these(operation));
        let mut over: Vec<u64> = Vec::new();
        let mut count = 0;
        for (number, operation) in these {
            count += 1;
            over.extend(operation.over.then_some(*number));
        }
        over.sort_unstable();
        for number in over.iter().take((count + 1usize).saturating_sub(most)) {
            self.operations.remove(number);
        }
    }
}

impl State {
    pub(super) fn new(store: Store, wake: Arc<OwnedFd>, forks: Forks) -> State {
        State {
            apps: Apps::new(store.clone()),
            store,
            wake,
            forks,
            taken: Arc::default(),
            inner: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // What a thread that panicked left is whole at any moment.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These are executables of known programs.
    pub(super) fn know(&self, files: Vec<(Executable, Role)>) {
        self.lock().to_know.extend(files);
        rouse(&self.wake);
    }

    /// Those that were told since the last call.
    pub(super) fn to_know(&self) -> Vec<(Executable, Role)> {
        std::mem::take(&mut self.lock().to_know)
    }

    /// How a start that begins with this process is read ahead for. All replays share what memory has room
    /// for.
    pub(super) fn replay_options(&self, origin: Instant, process: Option<u32>) -> headstart_replay::Options {
        headstart_replay::Options {
            forks: self.forks.clone(),
            taken: Arc::clone(&self.taken),
            starter: process,
            ..headstart_replay::Options::new(origin)
        }
    }

    /// Starts of this program cannot gain for so long.
    pub(super) fn ignore(&self, program: Option<Program>, how_long: Duration) {
        self.lock()
            .to_ignore
            .extend(program.map(|program| (program, how_long)));
        rouse(&self.wake);
    }

    /// Those that were told since the last call.
    pub(super) fn to_ignore(&self) -> Vec<(Program, Duration)> {
        std::mem::take(&mut self.lock().to_ignore)
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.lock().counts);
    }

    pub(super) fn set_counts(&self, not_told: NotTold) {
        self.lock().counts.not_told = not_told;
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// What the thread that answers is to do.
    pub(super) fn take_tasks(&self) -> Vec<Task> {
        std::mem::take(&mut self.lock().asked)
    }

    /// An operation has come to its end, or could not be begun.
    pub(super) fn operation_is_over(&self, operation: u64) {
        if let Some(operation) = self.lock().operations.get_mut(&operation) {
            operation.over = true;
        }
    }
}

fn failed(error: impl std::fmt::Display) -> ServiceError {
    ServiceError::Failed(error.to_string())
}

impl Service for State {
    fn apps(&self, user: Option<u32>, after: Option<&str>, most: usize) -> Result<Vec<App>, ServiceError> {
        self.apps.list(user, after, most)
    }

    fn app(&self, key: &Key) -> Result<App, ServiceError> {
        self.apps.app(key)
    }

    fn set_enabled(&self, key: &Key, on: bool) -> Result<(), ServiceError> {
        self.apps.set_enabled(key, on)
    }

    fn forget(&self, key: &Key) -> Result<(), ServiceError> {
        self.apps.forget(key)
    }

    fn now(&self, key: &Key) -> Result<Reading, ServiceError> {
        let kept = self.store.key(key);
        let mut why = None;
        let Some(file) = plan_of(&kept, &mut |line| why = Some(line)) else {
            return Err(match why {
                Some(why) => ServiceError::Failed(why),
                None if !kept.exists() => ServiceError::UnknownKey(key.to_string()),
                None => failed(format_args!("there is no plan yet that reads anything for {key}")),
            });
        };
        // No start has named anything.
        let file = file
            .of_start(&NamedFiles::default())
            .map_err(failed)?
            .unwrap_or(file);
        let plan = file.plan().map_err(failed)?;
        let requests = plan.requests().take(plan.cut());
        let reading = requests.fold(Reading::default(), |sum, request| Reading {
            requests: sum.requests + 1,
            bytes: sum.bytes.saturating_add(request.length),
        });
        let mut inner = self.lock();
        inner.reading.retain(|replay| !replay.is_finished());
        if inner.reading.len() >= MOST_READING {
            return Err(failed(format_args!(
                "{MOST_READING} programs are being read ahead, which is the most: ask again when one is done"
            )));
        }
        let options = self.replay_options(Instant::now(), None);
        let replay = Replay::start(file, options).map_err(failed)?;
        inner.reading.push(replay);
        Ok(reading)
    }

    fn begin_operation(&self, peer: &Peer, name: &str) -> Result<u64, ServiceError> {
        let key = of_operation(peer.uid, name)
            .ok_or_else(|| failed(format_args!("{name:?} is no name for an operation")))?;
        let pid = u32::try_from(peer.pid).map_err(failed)?;
        let gone = || failed(format_args!("process {pid} has ended"));
        let began = ProcessStat::for_process(pid).ok_or_else(gone)?.start_ticks;
        // Had it ended before that was looked at, another may have been looked at.
        if peer.pidfd.as_ref().is_some_and(has_ended) {
            return Err(gone());
        }
        let mut inner = self.lock();
        inner.operations.retain(|_, operation| operation.lives());
        let under_way = inner.operations.values().filter(|operation| !operation.over);
        let (all, theirs) = under_way.fold((0, 0), |(all, theirs), operation| {
            (all + 1, theirs + usize::from(operation.uid == peer.uid))
        });
        // Those that are ended by now may wait to be begun still.
        let (all_wait, theirs_wait) = inner
            .asked
            .iter()
            .fold((0, 0), |(all, theirs), asked| match asked {
                Task::Begin { uid, .. } => (all + 1, theirs + usize::from(*uid == peer.uid)),
                Task::End(_) => (all, theirs),
            });
        if all.max(all_wait) >= MOST_OPERATIONS {
            return Err(ServiceError::TooMany(MOST_OPERATIONS));
        }
        if theirs.max(theirs_wait) >= MOST_OF_A_USER && !peer.is_root() {
            return Err(ServiceError::TooMany(MOST_OF_A_USER));
        }
        inner.forget_operations(MOST_KNOWN, |_| true);
        inner.forget_operations(MOST_KNOWN_OF_A_USER, |operation| operation.uid == peer.uid);
        inner.last_operation += 1;
        let operation = inner.last_operation;
        inner.operations.insert(
            operation,
            Operation {
                uid: peer.uid,
                pid,
                began,
                over: false,
            },
        );
        inner.asked.push(Task::Begin {
            operation,
            key,
            uid: peer.uid,
            pid,
            began,
        });
        drop(inner);
        rouse(&self.wake);
        Ok(operation)
    }

    fn end_operation(&self, peer: &Peer, id: u64) -> Result<(), ServiceError> {
        let mut inner = self.lock();
        let theirs = |operation: &Operation| operation.uid == peer.uid || peer.is_root();
        if !inner.operations.get(&id).is_some_and(theirs) {
            return Err(ServiceError::UnknownOperation(id));
        }
        inner.operations.remove(&id);
        inner.asked.push(Task::End(id));
        drop(inner);
        rouse(&self.wake);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};

    fn state() -> (tempfile::TempDir, State) {
        let dir = tempfile::tempdir().unwrap();
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let state = State::new(Store::new(dir.path()), wake, Forks::Nobody);
        (dir, state)
    }

    fn peer(uid: u32) -> Peer {
        Peer {
            uid,
            gid: uid,
            pid: std::process::id() as i32,
            pidfd: None,
        }
    }

    #[test]
    fn operations_are_few_and_ended_by_whom_they_are_of_or_by_root() {
        let (_dir, state) = state();
        let first = state.begin_operation(&peer(1000), "load").unwrap();
        let second = state.begin_operation(&peer(1000), "save").unwrap();
        assert_eq!(
            state.begin_operation(&peer(1000), "more"),
            Err(ServiceError::TooMany(MOST_OF_A_USER))
        );
        assert_eq!(
            state.end_operation(&peer(1001), first),
            Err(ServiceError::UnknownOperation(first))
        );
        state.end_operation(&peer(0), first).unwrap();
        assert_eq!(
            state.end_operation(&peer(1000), first),
            Err(ServiceError::UnknownOperation(first))
        );
        state.operation_is_over(second);
        state.end_operation(&peer(1000), second).unwrap();
        assert_eq!(state.take_tasks().len(), 4);
        let gone = Peer {
            pid: i32::MAX,
            ..peer(0)
        };
        assert!(state.begin_operation(&gone, "load").is_err());
        for _ in 0..MOST_OPERATIONS {
            state.begin_operation(&peer(0), "all").unwrap();
        }
        assert!(state.begin_operation(&peer(1), "x").is_err());
    }

    #[test]
    fn who_begins_and_ends_operations_all_the_time_has_few_of_them_wait() {
        let (_dir, state) = state();
        let mut begun = 0;
        for _ in 0..100 {
            if let Ok(operation) = state.begin_operation(&peer(1000), "load") {
                begun += 1;
                state.end_operation(&peer(1000), operation).unwrap();
            }
        }
        assert_eq!(
            (begun, state.take_tasks().len()),
            (MOST_OF_A_USER, 2 * MOST_OF_A_USER)
        );
        assert!(
            state.begin_operation(&peer(1000), "load").is_ok(),
            "those were handled"
        );
    }

    #[test]
    fn operations_that_are_over_keep_nobody_from_beginning_another() {
        let (_dir, state) = state();
        let mut last = 0;
        for _ in 0..MOST_KNOWN_OF_A_USER * 3 {
            last = state.begin_operation(&peer(1000), "load").unwrap();
            state.operation_is_over(last);
            state.take_tasks();
        }
        assert_eq!(state.lock().operations.len(), MOST_KNOWN_OF_A_USER);
        state.end_operation(&peer(1000), last).unwrap();
        assert!(state.begin_operation(&peer(0), "load").is_ok());
    }

    #[test]
    fn nothing_is_read_ahead_now_for_what_is_not_known() {
        let (_dir, state) = state();
        let key = Key::new("/usr/bin/x").unwrap();
        assert_eq!(state.now(&key), Err(ServiceError::UnknownKey(key.to_string())));
    }
}
