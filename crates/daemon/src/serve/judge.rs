//! What is done for a start: whose it is, and what is known of it.

use super::Options;
use super::exact::{Budget, Exact};
use super::gains::{is_installed_by_one, is_installer, is_of_a_package};
use super::logins::{group_of_login, is_session};
use super::process::{Facts, Process, ProcessChanged};
use super::running::Running;
use super::state::State;
use super::users::{key_of_user, reader_of};
use crate::key;
use headstart_model::Key;
use headstart_model::outcome::Mode;
use headstart_record::{Answer, Noticed, Program, Standing, monotonic_ns};
use headstart_replay::{Life, Sample};
use headstart_start::decide::Decision;
use headstart_start::keys;
use headstart_start::notes::log;
use headstart_start::{Arguments, Start, StartRequest, now_unix_ns};
use headstart_store::Store;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A program that was not worth it is not looked at for so long, unless it has much to read before.
pub(super) const IGNORED: Duration = Duration::from_secs(3600);

/// A known program that is started again within this time after it was warm is warm: nobody looks.
pub(super) const WARM: Duration = Duration::from_secs(5);

/// Where the kernel itself can tell whether it still is, it is asked to for so long.
pub(super) const WARM_BY_KERNEL: Duration = Duration::from_secs(3600);

/// The same for a program that had ended before it was looked at.
const GONE: Duration = Duration::from_secs(1);

/// What process 1 executes for a service while that starts, or so soon after the last process of it has
/// ended, belongs to the same start: `ExecStart=` after `ExecStartPre=`. It has to hear of the end, and to
/// fork. A service that has failed is begun anew later, by default after 100 ms.
const NEXT_OF_SERVICE: Duration = Duration::from_millis(50);

/// So many starts are read ahead at a time, those included whose start is over and whose reads never end.
/// Each has some threads of its own, and a device that serves more serves none well.
const REPLAYS: usize = 8;

/// And so many of one user, who is not root: the others are left to other users.
const REPLAYS_OF_A_USER: usize = 6;

/// What is known of the machine's programs, and of their starts.
pub(super) struct Judge {
    /// The path of this program.
    pub(super) own: Option<Vec<u8>>,
    pub(super) store: Store,
    pub(super) control_every: u32,
    pub(super) fixed_rate: bool,
    pub(super) least_wait: Duration,
    pub(super) state: Arc<State>,
    /// Starts that are recorded, by number.
    pub(super) active: HashMap<u32, Active>,
    pub(super) running: Running,
    /// What was found out while the watch was busy, and is to be told it.
    pub(super) standings: Vec<(Program, Standing)>,
    /// Programs whose start was warm, and by what the kernel can tell whether the next is.
    pub(super) warm: Vec<(Program, Sample)>,
    /// Replays that go on, as far as was looked, and whose starts they are for.
    replays: Vec<(u32, Life)>,
    pub(super) exact: Budget,
}

/// Whose start it is.
pub(super) struct StartOwner {
    pub(super) key: Key,
    /// The arguments that the key says nothing of.
    pub(super) rest: Vec<OsString>,
    pub(super) arguments: Arguments,
    pub(super) uid: u32,
    /// What standings about it are about, where that is known.
    pub(super) program: Option<Program>,
    /// The control group, of a service's.
    pub(super) service: Option<String>,
}

/// Why a start is ignored.
pub(super) enum IgnoreReason {
    /// All that it reads is in memory, by what that can be told of the next one, too ([`Start::in_memory`]).
    InMemory(Sample),
    /// The same, and what the next one reads depends on what that is given.
    AsGiven,
    /// For another reason.
    Alone,
}

/// A start that is recorded.
pub(super) struct Active {
    pub(super) key: Key,
    /// The arguments that the key says nothing of.
    pub(super) rest: Vec<OsString>,
    pub(super) arguments: Arguments,
    pub(super) uid: u32,
    /// What standings about it are about; `None` where that is not known, and of an operation.
    pub(super) program: Option<Program>,
    /// The control group of the service that it is.
    pub(super) service: Option<String>,
    /// The operation that it is.
    pub(super) operation: Option<u64>,
    pub(super) start: Start,
    pub(super) origin_unix_ns: u64,
    /// While it is recorded the kernel maps nothing around a fault.
    pub(super) exact: Option<Exact>,
}

impl Judge {
    pub(super) fn new(options: Options, state: Arc<State>) -> Judge {
        Judge {
            own: std::env::current_exe()
                .ok()
                .map(|path| path.into_os_string().into_vec()),
            store: options.store,
            control_every: options.control_every,
            fixed_rate: options.fixed_rate,
            least_wait: options.least_wait,
            state,
            active: HashMap::new(),
            running: Running::default(),
            standings: Vec::new(),
            warm: Vec::new(),
            replays: Vec::new(),
            exact: Budget::default(),
        }
    }

    /// Nothing more is read ahead.
    pub(super) fn end(self) -> Arc<State> {
        for active in self.active.into_values() {
            if let Some(replay) = active.start.replay() {
                replay.stop();
            }
        }
        self.state
    }

    pub(super) fn answer(&mut self, start: &Noticed) -> Answer {
        if start.path.is_some() && start.path == self.own {
            // Another headstart than this one, such as a newer one: what it starts it sees to itself.
            return Answer::LeaveTree;
        }
        if start.path.as_deref().is_some_and(is_installer) {
            return Answer::LeaveTree;
        }
        if let Some(number) = self.container_of(start) {
            return Answer::GoesOn(number);
        }
        let Some(StartOwner {
            key,
            rest,
            arguments,
            uid,
            program,
            service,
        }) = self.owner_of(start)
        else {
            return Answer::Leave;
        };
        if is_of_a_package(key.as_str()) {
            return Answer::Leave;
        }
        // One that began to install before this process did.
        if service.is_none() && !self.store.key(&key).exists() && is_installed_by_one(start.pid) {
            return Answer::Leave;
        }
        let is_same = |active: &Active| active.key == key && active.service == service;
        let mut active = self.active.iter();
        if let Some((number, _)) = active.find(|(_, active)| service.is_some() && is_same(active)) {
            return Answer::GoesOn(*number);
        }
        let group = match is_session(&key).then(|| group_of_login(uid)) {
            Some(None) => return Answer::Leave,
            group => group.flatten(),
        };
        let began = instant_of(start.time_ns);
        let mut active = match (self.decide(key, (uid, start.pid), &arguments, began), program) {
            (Ok(active), _) => active,
            (Err(IgnoreReason::InMemory(in_memory)), Some(program)) => {
                self.warm.push((program, in_memory));
                return Answer::Leave;
            }
            // The next may be given something else.
            (Err(IgnoreReason::AsGiven), _) => return Answer::Leave,
            (Err(_), program) => {
                self.ignore(program, WARM);
                return Answer::Leave;
            }
        };
        active.program = program;
        active.rest = rest;
        active.arguments = arguments;
        active.service = service;
        let answer = Answer::Record {
            command: active.command(),
            replayed: active.start.replay().is_some(),
            open_for: match active.service {
                Some(_) => NEXT_OF_SERVICE,
                None => Duration::ZERO,
            },
            group,
        };
        self.active.insert(start.number, active);
        answer
    }

    /// Begins what is done for a start of a user's, which begins with this process, or says why the start is
    /// ignored.
    pub(super) fn decide(
        &mut self,
        key: Key,
        (uid, process): (u32, u32),
        arguments: &Arguments,
        origin: Instant,
    ) -> Result<Active, IgnoreReason> {
        if self.is_under_way(&key) {
            self.state.count(|counts| counts.running += 1);
            return Err(IgnoreReason::Alone);
        }
        let kept = self.store.key(&key);
        let mut start = match kept.exists() || kept.imported().is_some() {
            true => self.decide_known(&key, arguments),
            false => Start::new(Decision::Record),
        };
        if start.bypass().is_some() {
            self.state.count(|counts| counts.bypassed += 1);
            return Err(match start.in_memory() {
                Some(in_memory) => IgnoreReason::InMemory(in_memory),
                None if start.is_warm_as_given() => IgnoreReason::AsGiven,
                None => IgnoreReason::Alone,
            });
        }
        self.start_replay(&key, (uid, process), &mut start, origin);
        // A declined start needs no exact recording.
        let exact = (start.is_to_be_exact())
            .then(|| self.exact.start(Instant::now()))
            .flatten();
        self.count(&start);
        Ok(Active {
            exact,
            ..Active::new(key, uid, start, origin)
        })
    }

    /// Whether a start of it has begun, or it runs.
    pub(super) fn is_under_way(&mut self, key: &Key) -> bool {
        self.active.values().any(|active| active.key == *key) || self.running.runs(key)
    }

    fn count(&self, start: &Start) {
        self.state.count(|counts| {
            counts.recorded += 1;
            counts.replayed += u64::from(start.mode() == Mode::Replay);
            counts.declined += u64::from(start.mode() == Mode::Declined);
        });
    }

    /// The start of a container that this one is part of: engines make each container in a control group of
    /// its own, by programs that they execute there.
    fn container_of(&self, start: &Noticed) -> Option<u32> {
        let path = Path::new(OsStr::from_bytes(start.path.as_deref()?));
        let active = self.active.get(&start.before)?;
        let is_one = active.service.is_some() || keys::is_container(&active.key);
        (is_one && keys::is_runtime(path)).then_some(start.before)
    }

    /// The owner of a start; `None` if nothing is to be done for it.
    fn owner_of(&mut self, start: &Noticed) -> Option<StartOwner> {
        let Some(path) = &start.path else {
            // On a file system that this process does not see.
            self.ignore(Some(start.program), IGNORED);
            return None;
        };
        let facts = Facts {
            parent_and_user: Some((start.parent, start.user)),
            // Where the kernel could not read them, they are looked for.
            arguments: Some(&*start.arguments).filter(|line| !line.is_empty()),
        };
        let mut process = match Process::read(start.pid, path, facts) {
            Ok(process) => process,
            Err(missed) => {
                // One that has ended already has not waited for long. Of those that follow at once nobody
                // needs to be told.
                self.ignore(
                    Some(start.program).filter(|_| missed == ProcessChanged::Gone),
                    GONE,
                );
                return None;
            }
        };
        let active = &self.active;
        process.is_service_if(|service| active.values().any(|one| one.service.as_deref() == Some(service)));
        let keys = process.start_keys(&self.store);
        let plain = keys.as_ref().map(|(plain, _)| plain);
        // What a launcher is given to start the kernel does not tell apart.
        let is_launcher = |(plain, whose): &(Key, keys::StartKey)| {
            key_of_user(plain.clone(), process.uid).is_some_and(|plain| plain != whose.key)
        };
        let by_executable = start.program == start.executable;
        let is_told = !keys.as_ref().is_some_and(is_launcher)
            && match by_executable {
                true => plain.is_some_and(|key| process.is_plain(key)),
                false => process.is_told_apart(plain),
            };
        if by_executable && !is_told {
            self.standings.push((start.executable, Standing::ByArguments));
        }
        // Else it is that of others, too.
        let program = Some(start.program).filter(|_| is_told);
        let Some((_, keys::StartKey { key, rest })) = keys else {
            self.ignore(program, IGNORED);
            return None;
        };
        let uid = process.uid;
        if !self.store.key(&key).is_served() {
            // Not for long: it may be enabled again.
            self.ignore(program, WARM);
            return None;
        }
        Some(StartOwner {
            key,
            rest,
            arguments: process.arguments(),
            uid,
            program,
            service: process.service().map(str::to_owned),
        })
    }

    /// What is decided for a start of a known key.
    fn decide_known(&mut self, key: &Key, arguments: &Arguments) -> Start {
        let asked = StartRequest {
            store: self.store.clone(),
            key: key.clone(),
            arguments: arguments.clone(),
            control_every: self.control_every,
            fixed_rate: self.fixed_rate,
        };
        let start = Start::decide(&asked, &mut key::mounts);
        for line in &start.lines {
            log(&format!("{key}: {line}"));
        }
        start
    }

    /// Begins the replay, if that was decided and there is room for it.
    fn start_replay(&mut self, key: &Key, (uid, process): (u32, u32), start: &mut Start, origin: Instant) {
        if *start.decision() != Decision::Replay {
            return;
        }
        self.replays.retain(|(_, life)| life.is_running());
        if !has_room(self.replays.iter().map(|(user, _)| *user), uid) {
            return start.decline();
        }
        // Its threads come before others until they have begun to read.
        let options = headstart_replay::Options {
            reader: reader_of(key, uid),
            beside: true,
            ..self.state.replay_options(origin, Some(process))
        };
        if let Err(error) = start.start_replay(options) {
            log(&format!("{key}: not replaying: {error}"));
        }
        self.replays
            .extend(start.replay().map(|replay| (uid, replay.life())));
    }

    pub(super) fn ignore(&mut self, program: Option<Program>, how_long: Duration) {
        let until = monotonic_ns().saturating_add(how_long.as_nanos() as u64);
        let standing = |program| (program, Standing::IgnoredUntil(until));
        self.standings.extend(program.map(standing));
    }
}

impl Active {
    fn new(key: Key, uid: u32, start: Start, origin: Instant) -> Active {
        Active {
            key,
            rest: Vec::new(),
            arguments: Arguments::default(),
            uid,
            program: None,
            service: None,
            operation: None,
            start,
            origin_unix_ns: now_unix_ns().saturating_sub(origin.elapsed().as_nanos() as u64),
            exact: None,
        }
    }

    /// What the trace calls the command: arguments may hold secrets, and the key tells what of them matters.
    pub(super) fn command(&self) -> Vec<String> {
        vec![self.key.to_string()]
    }
}

/// Whether one more start of a user's is read ahead for, while it is done for these users'.
fn has_room(users: impl Iterator<Item = u32>, uid: u32) -> bool {
    let (all, theirs) = users.fold((0, 0), |(all, theirs), user| {
        (all + 1, theirs + usize::from(user == uid))
    });
    all < REPLAYS && (uid == 0 || theirs < REPLAYS_OF_A_USER)
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
    use headstart_model::plan::{Request, RequestKind};
    use headstart_model::testing;
    use headstart_replay::Forks;
    use headstart_store::Change;
    use rustix::event::{EventfdFlags, eventfd};

    #[test]
    fn few_starts_are_read_ahead_for_at_a_time_and_fewer_of_a_user() {
        let beside = |users: &[u32], uid| has_room(users.iter().copied(), uid);
        assert!(beside(&[0; 7], 0) && !beside(&[0; 8], 0));
        assert!(beside(&[7; 5], 7) && !beside(&[7; 6], 7) && beside(&[7; 6], 8));
    }

    /// A key with a plan that reads something and cannot be replayed: its pages have another size than this
    /// machine's.
    fn with_plan(store: &Store) -> Key {
        let key = Key::new("/usr/bin/x").unwrap();
        let request = Request::new(RequestKind::Data, 0, 1 << 16);
        let files = vec![testing::planned("/no-such-file")];
        let mut draft = testing::draft(testing::FLASH, files, vec![request]);
        draft.key = key.clone();
        draft.page_size = 16 * rustix::param::page_size() as u32;
        let lock = store.key(&key).lock().unwrap();
        lock.change(&Change {
            plan: Some(&draft.to_file().unwrap()),
            ..Change::default()
        })
        .unwrap();
        key
    }

    #[test]
    fn what_was_to_be_read_ahead_for_and_was_not_is_declined_and_no_control() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let key = with_plan(&store);
        let wake = Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let state = Arc::new(State::new(store.clone(), wake, Forks::Nobody));
        let options = Options {
            store,
            control_every: 10,
            fixed_rate: false,
            exact_pages: false,
            least_wait: Duration::ZERO,
            metrics: None,
            control: None,
            at_begin: |_| {},
        };
        let mut judge = Judge::new(options, state);
        let active = judge
            .decide(
                key,
                (0, std::process::id()),
                &Arguments::default(),
                Instant::now(),
            )
            .ok()
            .unwrap();
        assert_eq!(active.start.mode(), Mode::Declined);
        assert!(active.start.replay().is_none());
        let counts = judge.state.counts();
        assert_eq!((counts.recorded, counts.replayed, counts.declined), (1, 0, 1));
    }
}
