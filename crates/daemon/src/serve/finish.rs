//! The thread that finishes starts: one after the other, after everybody else, and not while the machine
//! boots.

use super::gains::needs_little;
use super::judge::{IGNORED, WARM};
use super::notify::Manager;
use super::remote::{DeadMounts, has_read_nothing};
use super::state::State;
use super::{BOOT, Options, known_programs, retain};
use crate::key::{mounts, turned_out};
use crate::metrics::Metrics;
use anyhow::{Context as _, Result};
use headstart_model::NamedFiles;
use headstart_model::outcome::Mode;
use headstart_record::{Program, Recorded};
use headstart_start::deadline::{self, Deadline};
use headstart_start::finish::{Finished, Rules, at_low_priority, work};
use headstart_start::keys::StartKey;
use headstart_start::{Arguments, Notes, Start};
use headstart_store::{Limits, Store, kind_of};
use headstart_system::files::is_locked;
use headstart_system::limits::give_back_memory;
use headstart_system::thread::{self, StartedThread};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant, SystemTime};

/// So many starts wait to be finished. A finish takes some tenths of a second; what comes faster teaches
/// nothing. Those of a boot wait for its end: they are at most as many as its services.
const QUEUE: usize = 64;

/// So much memory, bytes, take those that wait together.
const BYTES: usize = 48 << 20;

/// The state directory is tidied when nothing was finished for so long, and this often while something is:
/// all keys are looked at.
pub(super) const QUIET: Duration = Duration::from_secs(5);
const TIDY_EVERY: Duration = Duration::from_secs(60);

/// No boot is waited for longer: it is recorded for 120 s, and finished.
const LONGEST_BOOT: Duration = Duration::from_secs(300);

/// How often it is looked whether the boot is over.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// It is tidied at once when it has grown by so much, bytes: with [`retain::MOST_BYTES`] that makes 64 MiB.
const GROWN: u64 = (64 << 20) - retain::MOST_BYTES;

/// A start that has ended.
pub(super) struct Ended {
    pub(super) whose: StartKey,
    /// What it was given.
    pub(super) arguments: Arguments,
    /// Whose start it was.
    pub(super) uid: u32,
    /// What standings about it are about, where that is known.
    pub(super) program: Option<Program>,
    pub(super) start: Start,
    /// Whether the kernel mapped nothing around a fault meanwhile.
    pub(super) exact: bool,
    pub(super) origin_unix_ns: u64,
    /// The status, and how long it took, if its processes have ended.
    pub(super) ended: Option<(Option<i32>, Duration)>,
    pub(super) recorded: Recorded,
}

/// The thread, and the way to it.
pub(super) struct Finisher {
    queue: SyncSender<Box<Ended>>,
    thread: StartedThread,
    shared: Arc<Shared>,
}

struct Shared {
    state: Arc<State>,
    /// What those that wait take, bytes.
    bytes: AtomicUsize,
    /// Nothing more is finished.
    ending: AtomicBool,
}

impl Finisher {
    pub(super) fn start(options: &Options, state: Arc<State>) -> Result<Finisher> {
        let (queue, ended) = sync_channel(QUEUE);
        let shared = Arc::new(Shared {
            state,
            bytes: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
        });
        let finishing = Finishing {
            store: options.store.clone(),
            control_every: options.control_every,
            exact_pages: options.exact_pages,
            metrics: options.metrics.clone(),
            sums: Metrics::default(),
            failed: None,
            dead: DeadMounts::default(),
            shared: Arc::clone(&shared),
        };
        let serve = move || finishing.serve(&ended);
        let thread = thread::spawn("finish", Box::new(serve)).context(super::NO_THREAD)?;
        Ok(Finisher {
            queue,
            thread,
            shared,
        })
    }

    /// Finishes it in its turn; where too many wait it teaches nothing.
    pub(super) fn finish(&self, ended: Ended) {
        let bytes = ended.recorded.bytes;
        let fits = self.shared.bytes.load(Ordering::Relaxed) + bytes <= BYTES;
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        let refused = match fits.then(|| self.queue.try_send(Box::new(ended))) {
            Some(Ok(())) => {
                return;
            }
            Some(Err(TrySendError::Full(ended) | TrySendError::Disconnected(ended))) => Some(ended),
            None => None,
        };
        // Its replay goes on by itself, as does the start; what it was worth nobody will know.
        drop(refused);
        self.shared.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.shared.state.count(|counts| counts.unfinished += 1);
    }

    /// Lets it come to the end of what it does now.
    pub(super) fn end(self) {
        self.shared.ending.store(true, Ordering::Relaxed);
        drop(self.queue);
        self.thread.wait(super::ENDS_WITHIN);
    }
}

/// The thread's own.
struct Finishing {
    store: Store,
    control_every: u32,
    exact_pages: bool,
    metrics: Option<PathBuf>,
    sums: Metrics,
    /// Why the last start could not be kept.
    failed: Option<String>,
    /// Remote file systems that have not answered.
    dead: DeadMounts,
    shared: Arc<Shared>,
}

impl Finishing {
    fn serve(mut self, queue: &Receiver<Box<Ended>>) {
        at_low_priority();
        // What this thread computes and reads is in the way of the boot, and of the first program after it: a
        // session's nice values count within that session (sched_autogroup, sched(7)), and not every disk
        // knows of idle reads. All of it can wait.
        wait_for_boot(Path::new(BOOT), &self.shared.ending);
        self.tidy();
        let mut tidied = Instant::now();
        let mut is_tidy = true;
        let mut grown = 0;
        let mut has_told = false;
        loop {
            let received = queue.recv_timeout(QUIET);
            let is_quiet = matches!(received, Err(RecvTimeoutError::Timeout));
            match received {
                Ok(ended) => {
                    self.shared
                        .bytes
                        .fetch_sub(ended.recorded.bytes, Ordering::Relaxed);
                    if self.shared.ending.load(Ordering::Relaxed) {
                        self.shared.state.count(|counts| counts.unfinished += 1);
                    } else {
                        let kept = self.store.key(&ended.whose.key);
                        let before = kept.last_used_and_size().1;
                        self.finish(*ended);
                        grown += kept.last_used_and_size().1.saturating_sub(before);
                        is_tidy = false;
                    }
                }
                // Not while the machine begins: each of them may have to be read from a disk.
                Err(RecvTimeoutError::Timeout) if !has_told => {
                    has_told = true;
                    let deadline = Deadline::arm(deadline::FINISH);
                    let known =
                        known_programs::programs(&self.store, || self.shared.ending.load(Ordering::Relaxed));
                    Manager::of_environment().notify_known(known.len());
                    self.shared.state.know(known);
                    drop(deadline);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let is_due = is_quiet || grown >= GROWN || tidied.elapsed() >= TIDY_EVERY;
            if !is_tidy && is_due {
                self.tidy();
                (tidied, is_tidy, grown) = (Instant::now(), true, 0);
            }
        }
    }

    fn finish(&mut self, ended: Ended) {
        let key = ended.whose.key.clone();
        // A file system that never answers: the service manager starts this process anew.
        let deadline = Deadline::arm(deadline::FINISH);
        let mut notes = Notes::default();
        let program = ended.program;
        let rules = Rules {
            tidies: false,
            ..Rules::of_programs(self.control_every, self.exact_pages)
        };
        match finish(&self.store, rules, ended, &mut self.dead, &mut notes) {
            Ok(Done::NotKept) => self.shared.state.ignore(program, IGNORED),
            Ok(done) => {
                if done == Done::InMemory {
                    self.shared.state.ignore(program, WARM);
                }
                self.shared.state.count(|counts| counts.finished += 1);
                self.failed = None;
            }
            Err(error) => {
                self.shared.state.count(|counts| counts.unfinished += 1);
                let why = format!("{error:#}");
                // A full disk is said once, and not at each start, whosever file it is.
                let kind = kind_of(&why);
                if self.failed.as_ref() != Some(&kind) {
                    notes.add(format!("{key}: {why}"));
                }
                self.failed = Some(kind);
            }
        }
        drop(deadline);
    }

    /// Keeps the state directory within its bounds, and tells those who watch machines.
    fn tidy(&mut self) {
        let mut notes = Notes::default();
        let tidied = self.store.tidy(&Limits::default(), SystemTime::now());
        let within = retain::trim_to(&self.store, retain::MOST_BYTES);
        for done in [tidied, within] {
            if let Err(error) = done {
                notes.add(error.to_string());
            }
        }
        if let Some(directory) = &self.metrics {
            if let Err(error) = self.sums.write(&self.store, directory) {
                notes.add(error.to_string());
            }
        }
        // Not after each start: it locks the memory of all threads, and on busy processors this one may wait
        // for its turn while the next start is to be answered.
        give_back_memory();
    }
}

/// Returns when the boot that has this lock is over, or nothing more is finished.
fn wait_for_boot(lock: &Path, ending: &AtomicBool) {
    let begun = Instant::now();
    while !ending.load(Ordering::Relaxed)
        && begun.elapsed() < LONGEST_BOOT
        && is_locked(lock).unwrap_or(false)
    {
        std::thread::sleep(LOOK_EVERY);
    }
}

/// What became of a start.
#[derive(PartialEq)]
enum Done {
    /// Nothing is kept of it, for it cannot gain.
    NotKept,
    /// It is kept.
    Kept,
    /// The same, and what it reads of remote file systems was in memory, which nobody could tell before, or
    /// is not to be had.
    InMemory,
}

fn finish(
    store: &Store,
    rules: Rules,
    ended: Ended,
    dead: &mut DeadMounts,
    notes: &mut Notes,
) -> Result<Done> {
    let over = ended.start.end(ended.ended.is_some(), ended.exact);
    let kept_as = match over.replayed.as_ref() {
        Some(it) if dead.note(&it.plan, &it.report, notes) && has_read_nothing(&it.report) => Done::InMemory,
        _ => Done::Kept,
    };
    let reason = ended.recorded.reason;
    let trace = ended.recorded.trace();
    let told = trace.as_ref().ok();
    let turned_out = told.map(|trace| turned_out(store, &ended.whose, ended.uid, trace));
    let key = turned_out.transpose()?.flatten().unwrap_or(ended.whose.key);
    let kept = store.key(&key);
    // What somebody has given a name for is a user's wish: an operation.
    let is_program = key.as_str().starts_with('/');
    if is_program && over.mode == Mode::Record && !kept.exists() && told.is_some_and(needs_little) {
        return Ok(Done::NotKept);
    }
    let names = told.map(|trace| known_programs::names_of(&key, trace, kept.names()));
    let finished = Finished {
        store,
        key: &key,
        origin_unix_ns: ended.origin_unix_ns,
        over,
        reason,
        recorded: Some(trace),
        ended: ended.ended,
        rules: Rules {
            named: mounts().map_or_else(|_| NamedFiles::default(), |mounts| ended.arguments.named(&mounts)),
            ..rules
        },
    };
    work(finished, notes)?;
    // Nothing, if it was forgotten meanwhile.
    let Some(lock) = kept.lock_kept()? else {
        return Ok(kept_as);
    };
    if let Some(names) = names {
        lock.save_names(&names)?;
    }
    lock.add_user(ended.uid, ended.origin_unix_ns)?;
    Ok(kept_as)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::sync::mpsc::channel;

    #[test]
    fn nothing_is_finished_while_a_boot_is_served_but_at_the_end() {
        // A tmpfs, as /run is.
        let lock = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        let waits = |ending: &Arc<AtomicBool>| {
            let (tell, told) = channel();
            let (path, ending) = (lock.path().to_owned(), Arc::clone(ending));
            std::thread::spawn(move || {
                wait_for_boot(&path, &ending);
                tell.send(())
            });
            told
        };
        let goes_on = Arc::new(AtomicBool::new(false));
        let long = Duration::from_secs(60);
        assert_eq!(waits(&goes_on).recv_timeout(long), Ok(()), "no boot is served");
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let (first, ending) = (waits(&goes_on), Arc::new(AtomicBool::new(false)));
        let second = waits(&ending);
        let still = Err(RecvTimeoutError::Timeout);
        assert_eq!(first.recv_timeout(2 * LOOK_EVERY), still);
        ending.store(true, Ordering::Relaxed);
        assert_eq!(second.recv_timeout(long), Ok(()), "the daemon ends");
        assert_eq!(first.recv_timeout(Duration::ZERO), still);
        flock(&lock, FlockOperation::Unlock).unwrap();
        assert_eq!(first.recv_timeout(long), Ok(()), "the boot is over");
    }
}
