//! What is kept of one key.

use crate::file::{self, write_whole};
use crate::layout::size_of_start;
use crate::{Limits, StoreError};
use headstart_model::format::{Container, FormatError, Kind, MAX_FILE};
use headstart_model::plan::PlanFile;
use headstart_model::sort::Sort;
use headstart_model::{Key, Outcome, Profile, Trace};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Whoever writes there is done within this time: what is learned takes tens of milliseconds, of a boot
/// seconds on a slow processor.
const LOCKED_WITHIN: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// What is kept of one key. Reading needs no lock; writing goes through [`KeyDir::lock`].
#[derive(Clone, Debug)]
pub struct KeyDir {
    path: PathBuf,
    key: Key,
}

/// Something read.
#[derive(Debug, PartialEq)]
pub enum Loaded<T> {
    /// It is there.
    Some(T),
    /// Nothing is there.
    None,
    /// It was there and could not be read: why, and what was done about it. To be told to the user, and
    /// otherwise treated as nothing.
    Damaged(String),
}

impl<T> Loaded<T> {
    /// The value if there is one; what is wrong goes to `tell`.
    pub fn or_tell(self, tell: impl FnOnce(String)) -> Option<T> {
        match self {
            Loaded::Some(value) => Some(value),
            Loaded::None => None,
            Loaded::Damaged(message) => {
                tell(message);
                None
            }
        }
    }
}

/// So many damaged traces are kept for whoever wants to know why, and as many outcomes.
const DAMAGED: usize = 2;

/// The file that says of a program that it only executes others.
const LAUNCHER: &str = "launcher";

impl KeyDir {
    pub(crate) fn new(path: PathBuf, key: Key) -> KeyDir {
        KeyDir { path, key }
    }

    /// Whose it is.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether anything is kept of the key.
    pub fn exists(&self) -> bool {
        self.path.join("key").exists()
    }

    /// Whether it is a program that only executes others, which its arguments name: what is known of those
    /// has keys of their own.
    pub fn is_launcher(&self) -> bool {
        self.path.join(LAUNCHER).exists()
    }

    /// Why what is kept is to be left as it is: a newer headstart has written the profile or the plan, and
    /// still wants them.
    pub fn newer(&self) -> Option<String> {
        let path_of = |name: &str, kind| {
            let path = self.path.join(name);
            let head = file::read_head(&path, 64).ok().flatten()?;
            match Container::new(kind, &head) {
                Err(e @ FormatError::Version { .. }) => Some(format!("{}: {e}", path.display())),
                _ => None,
            }
        };
        path_of("profile", Kind::Profile).or_else(|| path_of("plan", Kind::Plan))
    }

    /// Fails where a link stands in the place of the directory: in the root of an image, or a user's state,
    /// it could lead anywhere.
    fn check_directory(&self) -> Result<(), StoreError> {
        match std::fs::symlink_metadata(&self.path) {
            Ok(facts) if !facts.is_dir() => Err(StoreError::NoDirectory(self.path.clone())),
            _ => Ok(()),
        }
    }

    fn load<T>(&self, path: &Path, decode: impl FnOnce(Vec<u8>) -> Result<T, FormatError>) -> Loaded<T> {
        let read = self
            .check_directory()
            .and_then(|()| file::read_open(path, MAX_FILE));
        let (bytes, file) = match read {
            Ok(Some(read)) => read,
            Ok(None) => return Loaded::None,
            // It would be told again and again.
            Err(StoreError::NotRegular(_) | StoreError::TooLarge { .. }) => {
                let fate = match file::move_unread_aside(path) {
                    Ok(aside) => format!("moved to {}", aside.display()),
                    Err(e) => format!("and it cannot be moved aside: {e}"),
                };
                return Loaded::Damaged(format!("{} is no file of headstart's; {fate}", path.display()));
            }
            Err(e) => return Loaded::Damaged(e.to_string()),
        };
        match decode(bytes) {
            Ok(value) => Loaded::Some(value),
            // Written by an older headstart: the next start makes another, and nothing reads this one any
            // more.
            Err(FormatError::Old { .. }) => {
                let _ = std::fs::remove_file(path);
                Loaded::None
            }
            // Written by a newer headstart: that one still wants it.
            Err(e @ FormatError::Version { .. }) => Loaded::Damaged(format!("{}: {e}", path.display())),
            Err(e) => {
                let fate = match file::move_aside(path, &file) {
                    Ok(Some(aside)) => format!("moved to {}", aside.display()),
                    Ok(None) => "it has been replaced meanwhile".into(),
                    Err(e) => format!("and it cannot be moved aside: {e}"),
                };
                Loaded::Damaged(format!("{}: {e}; {fate}", path.display()))
            }
        }
    }

    /// Its profile.
    pub fn profile(&self) -> Loaded<Profile> {
        self.load(&self.path.join("profile"), |bytes| Profile::from_bytes(&bytes))
    }

    /// Its plan, checked.
    pub fn plan(&self) -> Loaded<PlanFile> {
        self.load(&self.path.join("plan"), |bytes| {
            let file = PlanFile::new(bytes);
            file.plan()?;
            Ok(file)
        })
    }

    /// Its traces, oldest first.
    pub fn traces(&self) -> Vec<PathBuf> {
        self.numbered("trace")
    }

    /// A trace of [`KeyDir::traces`].
    pub fn trace(&self, path: &Path) -> Loaded<Trace> {
        self.load(path, |bytes| Trace::from_bytes(&bytes))
    }

    /// Its outcomes, oldest first; those that cannot be read are moved aside and told.
    pub fn outcomes(&self, mut tell: impl FnMut(String)) -> Vec<Outcome> {
        self.numbered("outcome")
            .iter()
            .filter_map(|path| {
                self.load(path, |bytes| Outcome::from_bytes(&bytes))
                    .or_tell(&mut tell)
            })
            .collect()
    }

    /// Files named by a number, oldest first: the time when the start began, or one more than the last one's,
    /// should the clock have gone back since.
    fn numbered(&self, extension: &str) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(&self.path) else {
            return Vec::new();
        };
        let mut files: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                let name = path.file_name().and_then(OsStr::to_str);
                let stem = name.and_then(|name| name.strip_suffix(extension)?.strip_suffix('.'));
                stem.is_some_and(|stem| stem.bytes().all(|byte| byte.is_ascii_digit()))
            })
            .collect();
        // Twenty digits each, so that the order of names is that of numbers.
        files.sort_small();
        files
    }

    /// The name of one more file: no file that is there comes behind it, whatever the clock says.
    fn next_name(&self, extension: &str, started_unix_ns: u64) -> String {
        let number = |path: &PathBuf| path.file_stem()?.to_str()?.parse::<u64>().ok();
        let last = self.numbered(extension).iter().rev().find_map(number);
        let number = last.map_or(started_unix_ns, |last| {
            started_unix_ns.max(last.saturating_add(1))
        });
        format!("{number:020}.{extension}")
    }

    /// When it was last written, and how many bytes of the file system it takes: a small file takes a whole
    /// block.
    pub fn last_used_and_size(&self) -> (SystemTime, u64) {
        let mut used = SystemTime::UNIX_EPOCH;
        let mut size = file::taken_by(&self.path);
        for entry in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            if let Ok(facts) = entry.metadata() {
                size += file::taken(&facts);
                used = used.max(facts.modified().unwrap_or(used));
            }
        }
        (used, size + size_of_start(&self.path))
    }

    /// Makes the directory if need be and waits until nobody else writes there.
    pub fn lock(&self) -> Result<KeyLock, StoreError> {
        loop {
            file::make_directory(&self.path)?;
            if let Some(lock) = self.lock_existing(true)? {
                return Ok(lock);
            }
        }
    }

    /// Like [`KeyDir::lock`], but `None` if nothing is there, such as of a key that was forgotten meanwhile.
    pub fn lock_kept(&self) -> Result<Option<KeyLock>, StoreError> {
        let lock = self.lock_existing(true)?;
        Ok(lock.filter(|_| self.exists()))
    }

    /// Like [`KeyDir::lock`], but `None` if somebody else holds it or nothing is there.
    pub fn try_lock(&self) -> Result<Option<KeyLock>, StoreError> {
        self.lock_existing(false)
    }

    /// The same, but makes what is not there.
    pub fn make_and_try_lock(&self) -> Result<Option<KeyLock>, StoreError> {
        file::make_directory(&self.path)?;
        self.try_lock()
    }

    /// If it `waits`, until nobody else holds it, [`LOCKED_WITHIN`] at most.
    fn lock_existing(&self, waits: bool) -> Result<Option<KeyLock>, StoreError> {
        self.check_directory()?;
        let path = self.path.join("lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => File::from(fd),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(e) => return Err(StoreError::io("open", &path, e)),
        };
        let (until, mut pause) = (Instant::now() + LOCKED_WITHIN, Duration::from_micros(200));
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::WOULDBLOCK) if !waits => return Ok(None),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < until => {
                    std::thread::sleep(pause);
                    pause = (2 * pause).min(LONGEST_PAUSE);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(StoreError::Locked(path)),
                Err(e) => return Err(StoreError::io("lock", &path, e)),
            }
        }
        // Whoever held it may have forgotten the key: then this lock is of a file that is no more.
        let held = file.metadata().map_err(|e| StoreError::io("look at", &path, e))?;
        match std::fs::symlink_metadata(&path) {
            Ok(now) if (now.dev(), now.ino()) == (held.dev(), held.ino()) => {}
            _ => return Ok(None),
        }
        file::remove_leftovers(&self.path);
        Ok(Some(KeyLock {
            dir: self.clone(),
            _file: file,
        }))
    }

    /// Forgets the key: waits until nobody writes, then removes everything. False if nothing was there.
    pub fn forget(&self) -> Result<bool, StoreError> {
        match self.lock_existing(true)? {
            Some(lock) => lock.forget().map(|()| true),
            None => Ok(false),
        }
    }

    /// Forgets the key unless somebody writes there.
    pub fn forget_unless_locked(&self) -> Result<bool, StoreError> {
        match self.try_lock()? {
            Some(lock) => lock.forget().map(|()| true),
            None => Ok(false),
        }
    }
}

/// The right to write what is kept of a key; given back when dropped.
#[derive(Debug)]
pub struct KeyLock {
    dir: KeyDir,
    _file: File,
}

impl KeyLock {
    /// What it is the right to write.
    pub fn dir(&self) -> &KeyDir {
        &self.dir
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.name()?;
        write_whole(&self.dir.path.join(name), bytes)
    }

    /// Writes the key's text, which comes first and lasts: a directory without it would belong to nobody.
    pub(crate) fn name(&self) -> Result<(), StoreError> {
        match self.dir.exists() {
            true => Ok(()),
            false => write_whole(&self.dir.path.join("key"), self.dir.key.as_str().as_bytes()),
        }
    }

    /// Replaces the profile.
    pub fn save_profile(&self, profile: &Profile) -> Result<(), StoreError> {
        self.write("profile", &profile.to_bytes()?)
    }

    /// Notes that the program only executes others, and drops what was learned as if it were one.
    pub fn becomes_launcher(&self) -> Result<(), StoreError> {
        self.write(LAUNCHER, b"")?;
        self.drop_start()?;
        for name in ["plan", "profile", "turns"] {
            self.remove(name)?;
        }
        self.write_bypass(None)?;
        self.remove_traces();
        for outcome in self.dir.numbered("outcome") {
            // One that stays is trimmed with time.
            let _ = std::fs::remove_file(outcome);
        }
        Ok(())
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, name: &str) -> Result<(), StoreError> {
        let path = self.dir.path.join(name);
        match std::fs::remove_file(&path) {
            Ok(()) => file::sync_directory(&self.dir.path),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(StoreError::io("remove", &path, e)),
        }
    }

    /// Adds a trace.
    pub fn add_trace(&self, trace: &Trace) -> Result<(), StoreError> {
        let name = self.dir.next_name("trace", trace.meta.started_unix_ns);
        self.write(&name, &trace.to_bytes()?)
    }

    /// Adds an outcome. Returns the file's name.
    pub fn add_outcome(&self, outcome: &Outcome) -> Result<String, StoreError> {
        let name = self.dir.next_name("outcome", outcome.started_unix_ns);
        self.write(&name, &outcome.to_bytes()?)?;
        Ok(name)
    }

    /// Has an outcome that was added say something else; without room for that it is removed.
    pub fn correct_outcome(&self, name: &str, outcome: &Outcome) -> Result<(), StoreError> {
        let corrected = outcome
            .to_bytes()
            .map_err(StoreError::from)
            .and_then(|bytes| self.write(name, &bytes));
        corrected.or_else(|_| self.remove(name))
    }

    /// Removes what exceeds the limits on one key; the trace `keep` goes by its age only. What is of the
    /// future, by a clock that was wrong, is taken to be of now.
    pub fn trim(&self, limits: &Limits, now: SystemTime, keep: Option<&Path>) {
        // Whatever cannot be removed stays and is tried again after the next start.
        let old = |path: &&PathBuf| {
            let modified = std::fs::symlink_metadata(path).and_then(|m| m.modified());
            modified.is_ok_and(|m| now.duration_since(m).unwrap_or(Duration::ZERO) > limits.age)
        };
        let newest = |paths: Vec<PathBuf>, most: usize, ageless: usize| -> Vec<PathBuf> {
            let excess = paths.len().saturating_sub(most);
            let (gone, kept) = paths.split_at(excess);
            let may_age = kept.len().saturating_sub(ageless);
            let aged: Vec<PathBuf> = kept[..may_age].iter().filter(|path| old(path)).cloned().collect();
            let kept = kept.iter().filter(|path| !aged.contains(path)).cloned().collect();
            gone.iter()
                .chain(&aged)
                .for_each(|path| drop(std::fs::remove_file(path)));
            kept
        };
        let of_keep = |path: &PathBuf| Some(path.as_path()) == keep;
        let (witness, traces): (Vec<_>, Vec<_>) = self.dir.traces().into_iter().partition(of_keep);
        newest(witness, 1, 0);
        let traces = newest(traces, limits.traces, limits.ageless_traces);
        let outcomes = self.dir.numbered("outcome");
        newest(outcomes, limits.outcomes, limits.ageless_outcomes);
        for damaged in ["trace.damaged", "outcome.damaged"] {
            newest(self.dir.numbered(damaged), DAMAGED, 0);
        }
        let (_, mut size) = self.dir.last_used_and_size();
        for trace in traces {
            if size <= limits.key_bytes {
                return;
            }
            let taken = file::taken_by(&trace);
            if std::fs::remove_file(&trace).is_ok() {
                size = size.saturating_sub(taken);
            }
        }
    }

    /// Removes all traces and returns how many bytes that were.
    pub fn remove_traces(&self) -> u64 {
        let removed = |path: &PathBuf| {
            let taken = file::taken_by(path);
            if std::fs::remove_file(path).is_ok() {
                taken
            } else {
                0
            }
        };
        self.dir.traces().iter().map(removed).sum()
    }

    /// Removes everything. The directory is renamed first, so that no reader finds half of it.
    fn forget(self) -> Result<(), StoreError> {
        self.drop_all_needed_first()?;
        let path = &self.dir.path;
        let gone = path.with_file_name(file::temporary_name());
        // Of an earlier process of the same number that was killed here.
        let _ = std::fs::remove_dir_all(&gone);
        std::fs::rename(path, &gone).map_err(|e| StoreError::io("remove", path, e))?;
        std::fs::remove_dir_all(&gone).map_err(|e| StoreError::io("remove", &gone, e))
    }
}
