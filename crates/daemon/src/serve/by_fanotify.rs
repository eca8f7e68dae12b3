//! Where BPF is not: fanotify(7) tells that somebody executes a file. What is known of the program is read
//! ahead, if it is cold; nothing is recorded, so nothing is learned but by `headstart run`.
//!
//! The kernel tells of all file systems, and of each file once: what is no known program's is to be left from
//! then on, until another program is known. So a build is hardly told of, and what is executed a thousand
//! times a second is told of once.

use super::judge::Judge;
use super::process::{Facts, Process, is_started_by, shares_mounts};
use super::state::{State, Task};
use super::{Noticing, Options};
use crate::key::told_by_proc;
use anyhow::{Context as _, Result};
use headstart_model::Key;
use headstart_start::Arguments;
use headstart_start::notes::log;
use headstart_store::KnownKeys;
use headstart_system::executed::{ExecEvent, Executed, Opened};
use headstart_system::mounts::{Followed, MountTable};
use headstart_system::open::pin;
use headstart_system::process::ProcessStat;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// It is looked whether other programs are known so often at most, and at least: nothing is told of those
/// that are left.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(10);

/// How often it is looked whether a process has become what it executes.
const BECOMES_EVERY: Duration = Duration::from_micros(500);

/// A process that executes the program that it is already, and whose stack is where it was, has become it
/// after this time: its stack is elsewhere each time but where addresses are not random.
const SURELY: Duration = Duration::from_millis(3);

/// One that has not become what it executes within this time does not, or its disk is too slow for anybody.
const BECOMES_WITHIN: Duration = Duration::from_secs(5);

/// So many are looked at at a time.
const BEGINNING: usize = 256;

/// So many files are left; with more it begins anew.
const LEFT: usize = 4096;

/// So many known programs beside a file that has several names are looked at for whether it is one of them.
const NAMES: usize = 64;

/// So many events are taken before it looks at all else again.
const AT_A_TIME: usize = 256;

/// What fanotify tells, and what is done for it.
pub(super) struct ByFanotify {
    executed: Executed,
    mounts: Followed,
    /// Tells when that is to be looked at: the kernel tells each descriptor of a change once.
    mounted: File,
    judge: Judge,
    known: KnownPrograms,
    beginning: Vec<Beginning>,
    left: usize,
    /// Whether there may be more to take.
    more: bool,
}

/// A process that executes known programs, and is none of them yet.
struct Beginning {
    pid: u32,
    since: Instant,
    /// When it is looked at next: the longer it takes, the less often.
    next: Instant,
    /// What it executes, in the order in which it was opened: the program, or a script and its interpreter.
    files: Vec<Inode>,
    before: Executing,
}

/// A file: its file system's number, as stat(2) has it, and its own.
type Inode = (u64, u64);

/// What a process executed when it was looked at.
#[derive(Clone, Copy, Default)]
struct Executing {
    /// The place of its program among these files, if it was one of them.
    place: Option<usize>,
    /// Where its stack began; 0 as long as it has none.
    stack: u64,
}

/// How far a process has got.
enum ExecProgress {
    Gone,
    Executes,
    /// It executes the file at this place. Unless `surely`, it may have done so before.
    Became {
        place: usize,
        surely: bool,
    },
}

impl Beginning {
    fn check(&self) -> ExecProgress {
        let Some(now) = program_of(self.pid, &self.files) else {
            return ExecProgress::Gone;
        };
        let Some(place) = now.place.filter(|_| now.stack != 0) else {
            return ExecProgress::Executes;
        };
        let before = self.before;
        let surely = before.place.is_none() || now.stack != before.stack || self.since.elapsed() >= SURELY;
        ExecProgress::Became { place, surely }
    }

    /// It was the file at this place, and what was opened before that: whether it executes another one now.
    fn executes_more(&mut self, place: usize) -> bool {
        self.files.drain(..=place);
        self.before = program_of(self.pid, &self.files).unwrap_or_default();
        !self.files.is_empty()
    }
}

/// Which of these programs a process is, and where its stack begins; `None` if it has ended.
///
/// The kernel makes it the program first, then its stack, and tells where its arguments are last: what it
/// reads of the program in between comes from a cold disk. Until then it has no stack here, for what it
/// starts cannot be told. Where another thread than the first has executed it, it is no program for a moment.
fn program_of(pid: u32, files: &[Inode]) -> Option<Executing> {
    let stat = ProcessStat::for_process(pid)?;
    let stack = if stat.arguments_end <= stat.arguments {
        0
    } else {
        stat.stack
    };
    // What the kernel knows of it has to do: a server of the program's file system may never answer.
    let program = format!("/proc/{pid}/exe");
    let Ok(program) = statx(CWD, program, AtFlags::STATX_DONT_SYNC, StatxFlags::INO) else {
        return Some(Executing::default());
    };
    let device = makedev(program.stx_dev_major, program.stx_dev_minor);
    let is_it = |file: &Inode| *file == (device, program.stx_ino);
    let place = files.iter().position(is_it);
    Some(Executing { place, stack })
}

/// Programs of which something is kept.
#[derive(Default)]
struct KnownPrograms {
    keys: KnownKeys,
    /// The files that are executed when they start, and some that are not.
    programs: HashSet<Vec<u8>>,
    /// When the directory of them was changed last, if they are all known that it had then; and when it was
    /// looked at.
    changed: Option<Option<SystemTime>>,
    looked: Option<Instant>,
}

impl KnownPrograms {
    /// Whether a file is a known program by another name, one of some in the same directory.
    fn knows_as_another(&self, mounts: &MountTable, opened: &Opened, path: &[u8]) -> bool {
        let directory = |path: &[u8]| {
            path.iter()
                .rposition(|byte| *byte == b'/')
                .map(|at| path[..at].to_vec())
        };
        let Some(inode) = opened.inode().ok() else {
            return false;
        };
        let beside = self
            .programs
            .iter()
            .filter(|program| directory(program) == directory(path));
        let is_it = |program: &Vec<u8>| {
            // What is mounted there by now may never answer.
            let pinned = pin(mounts, Path::new(OsStr::from_bytes(program)));
            pinned.is_ok_and(|(_, stat)| (makedev(stat.major, stat.minor), stat.inode) == inode)
        };
        beside.take(NAMES).any(is_it)
    }

    /// Whether they are others than before.
    fn refresh(&mut self, judge: &Judge, now: Instant) -> bool {
        if self.looked.is_some_and(|at| now.duration_since(at) < LOOK_EVERY) {
            return false;
        }
        self.looked = Some(now);
        let changed = judge.store.keys_changed();
        if self.changed == Some(changed) {
            return false;
        }
        // One that came a moment ago may not be whole, and another of the same moment would not be seen.
        let age = |at: SystemTime| at.elapsed().unwrap_or_else(|ahead| ahead.duration());
        let is_settled = |at| age(at) > LOOK_EVERY;
        let listed = judge.store.look_for_keys(&mut self.keys);
        self.changed = (self.keys.is_whole() && changed.is_none_or(is_settled)).then_some(changed);
        if let Err(error) = listed {
            log(&error.to_string());
            return false;
        }
        self.programs = self.keys.behind(None).flat_map(programs_of).collect();
        true
    }
}

/// The paths that may be meant by a key's first words: a path may hold blanks.
fn programs_of(key: &Key) -> Vec<Vec<u8>> {
    let text = key.as_str();
    let ends = text.match_indices(' ').map(|(at, _)| at).chain([text.len()]);
    match text.starts_with('/') {
        true => ends.take(8).map(|end| text.as_bytes()[..end].to_vec()).collect(),
        false => Vec::new(),
    }
}

/// Has the kernel tell of nothing yet.
pub(super) fn listen() -> Result<Executed> {
    Executed::new().context("fanotify(7) needs CAP_SYS_ADMIN and Linux 5.0")
}

impl ByFanotify {
    pub(super) fn start(executed: Executed, options: Options, state: Arc<State>) -> Result<ByFanotify> {
        let unread = "cannot read what is mounted";
        let noticing = ByFanotify {
            executed,
            mounted: File::open("/proc/self/mountinfo").context(unread)?,
            mounts: Followed::read().context(unread)?,
            judge: Judge::new(options, state, false),
            known: KnownPrograms::default(),
            beginning: Vec::new(),
            left: 0,
            more: false,
        };
        noticing.look_at_mounts()?;
        Ok(noticing)
    }

    fn look_at_mounts(&self) -> Result<()> {
        let told = self.executed.mark_all(&self.mounts.table());
        told.context("the kernel does not tell what is executed (fanotify(7))")?;
        Ok(())
    }

    /// What is executed on what is told of.
    fn take(&mut self) -> Result<()> {
        self.more = true;
        for _ in 0..AT_A_TIME {
            match self.executed.next().context("fanotify(7)")? {
                Some(ExecEvent::Opened(opened)) => self.opened(&opened),
                // Those that were not told of go on as if nobody were here.
                Some(ExecEvent::Missed) => {}
                None => {
                    self.more = false;
                    break;
                }
            }
        }
        Ok(())
    }

    fn opened(&mut self, opened: &Opened) {
        let path = opened.path().unwrap_or_default();
        if !self.known.programs.contains(&path) {
            if self.left >= LEFT {
                self.leave_none();
            }
            // It is the file that is left. Where that is refused it is told of each time.
            let is_known =
                opened.has_names() && self.known.knows_as_another(&self.mounts.table(), opened, &path);
            if !is_known && self.executed.leave(opened).is_ok() {
                self.left += 1;
            }
            return;
        }
        let Ok(inode) = opened.inode() else { return };
        if let Some(beginning) = self.beginning.iter_mut().find(|one| one.pid == opened.pid) {
            if beginning.files.last() != Some(&inode) && beginning.files.len() < 8 {
                beginning.files.push(inode);
            }
            (beginning.since, beginning.next) = (Instant::now(), Instant::now());
            return;
        }
        if opened.pid == 0 || self.beginning.len() >= BEGINNING {
            return;
        }
        let files = vec![inode];
        if let Some(before) = program_of(opened.pid, &files) {
            self.beginning.push(Beginning {
                pid: opened.pid,
                since: Instant::now(),
                next: Instant::now(),
                files,
                before,
            });
        }
    }

    fn leave_none(&mut self) {
        if let Err(error) = self.executed.leave_none() {
            log(&format!("fanotify(7): {error}"));
        }
        self.left = 0;
    }

    /// Reads ahead for those that have become what they execute.
    fn replay_executed(&mut self) {
        let judge = &mut self.judge;
        let now = Instant::now();
        self.beginning.retain_mut(|one| {
            if one.next > now {
                return true;
            }
            let age = now.duration_since(one.since);
            one.next = now + (age / 4).max(BECOMES_EVERY);
            match one.check() {
                ExecProgress::Gone => false,
                ExecProgress::Executes => age < BECOMES_WITHIN,
                ExecProgress::Became { place, surely } => match replay_if_known(judge, one, surely) {
                    true => one.executes_more(place),
                    false => age < BECOMES_WITHIN,
                },
            }
        });
    }

    fn until_next_look(&self) -> Duration {
        let next = self.beginning.iter().map(|one| one.next).min();
        let wait = next.map_or(LOOK_AT_LEAST_EVERY, |next| {
            next.saturating_duration_since(Instant::now())
        });
        wait.max(BECOMES_EVERY)
    }

    fn do_as_asked(&mut self) {
        for asked in self.judge.state.take_tasks() {
            if let Task::Begin {
                operation, key, uid, ..
            } = asked
            {
                self.judge
                    .read_ahead(key, uid, &Arguments::default(), Instant::now());
                // It is not recorded, so there is nothing to end.
                self.judge.state.operation_is_over(operation);
            }
        }
    }
}

/// Reads ahead for a process, if something is known of it; false if it is not certain yet what it executes.
fn replay_if_known(judge: &mut Judge, one: &Beginning, surely: bool) -> bool {
    let Ok(path) = std::fs::read_link(format!("/proc/{}/exe", one.pid)) else {
        return true;
    };
    let path = told_by_proc(path).0.into_os_string().into_vec();
    let Ok(mut process) = Process::read(one.pid, &path, Facts::default()) else {
        // What it was executed with could not be read now, or it executes something else by now.
        return ProcessStat::for_process(one.pid).is_none();
    };
    process.is_service_if(|_| false);
    let Some(key) = process.key() else { return surely };
    if !surely && !process.is_plain(&key) {
        return false;
    }
    let Some(key) = judge.known_key(key, process.uid) else {
        return surely;
    };
    // What it starts, of a program that turned out to be a launcher.
    let launched = process
        .start_keys(&judge.store)
        .filter(|_| judge.store.key(&key).is_launcher());
    let key = launched.map_or(key, |(_, whose)| whose.key);
    // What `headstart run` has started it reads ahead for itself.
    if !shares_mounts(one.pid) || judge.own.as_ref().is_some_and(|own| is_started_by(one.pid, own)) {
        return true;
    }
    judge.read_ahead(key.clone(), process.uid, &process.arguments(), one.since);
    // It runs from now on, and another instance of it will find in memory what it needs.
    if !judge.running.runs(&key) {
        judge.running.add(&key, &[one.pid]);
    }
    true
}

impl Noticing for ByFanotify {
    fn wait_on(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.executed.as_fd(), self.mounted.as_fd()]
    }

    fn wait_at_most(&self) -> Option<Duration> {
        let mounted = self.mounts.waits_for();
        let next = match self.beginning.is_empty() {
            _ if self.more => Duration::ZERO,
            true => LOOK_AT_LEAST_EVERY,
            false => self.until_next_look(),
        };
        Some(mounted.map_or(next, |mounted| mounted.max(BECOMES_EVERY).min(next)))
    }

    fn work(&mut self) -> Result<()> {
        if self.mounts.refresh_in_time() {
            // It is looked again when more is mounted.
            if let Err(error) = self.look_at_mounts() {
                log(&format!("{error:#}"));
            }
        }
        if self.known.refresh(&self.judge, Instant::now()) {
            self.leave_none();
        }
        // Those that are over have nobody wait for anything.
        self.judge.active.retain(|_, active| active.replays());
        self.take()?;
        self.replay_executed();
        self.do_as_asked();
        Ok(())
    }

    fn end(self: Box<Self>) {
        log(&self.judge.end().counts().to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_file_that_is_executed_is_among_the_first_words_of_a_key() {
        let programs_in = |text: &str| -> Vec<String> {
            let programs = programs_of(&Key::new(text).unwrap());
            programs
                .into_iter()
                .map(|path| String::from_utf8(path).unwrap())
                .collect()
        };
        assert_eq!(programs_in("/usr/bin/x"), ["/usr/bin/x"]);
        assert_eq!(
            programs_in("/usr/bin/python3 /srv/x of user 7")[0],
            "/usr/bin/python3"
        );
        assert!(programs_in("/opt/my app/x y").contains(&"/opt/my app/x".to_string()));
        assert!(programs_in("postgresql.service").is_empty());
    }

    #[test]
    fn a_process_that_ends_or_does_not_execute_is_told_from_one_that_does() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let program = std::fs::metadata(format!("/proc/{}/exe", child.id())).unwrap();
        let mut one = Beginning {
            pid: child.id(),
            since: Instant::now(),
            next: Instant::now(),
            files: vec![(program.dev(), program.ino())],
            before: Executing::default(),
        };
        // Who has started it is told of it before its stack is made.
        while program_of(one.pid, &one.files).is_some_and(|now| now.stack == 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(matches!(
            one.check(),
            ExecProgress::Became {
                place: 0,
                surely: true
            }
        ));
        // As if it had been so when it was looked at first.
        one.before = program_of(one.pid, &one.files).unwrap();
        one.since = Instant::now();
        let soon = one.check();
        assert!(
            matches!(
                soon,
                ExecProgress::Became {
                    place: 0,
                    surely: false
                }
            ) || one.since.elapsed() >= SURELY
        );
        // What was opened behind it is executed next, and nothing else.
        one.files.push((0, 0));
        assert!(one.executes_more(0) && one.files == [(0, 0)]);
        assert!(matches!(one.check(), ExecProgress::Executes));
        assert!(!one.executes_more(0));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(one.check(), ExecProgress::Gone));
    }
}
