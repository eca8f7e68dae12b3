//! What is kept of boots besides what every key has: the boot-failure guard, against a replay that keeps the
//! machine from booting, and what the last boot had to say.
//!
//! The guard is a file that a boot leaves armed when it has come to its end. Who reads ahead or records
//! disarms it, for good, before that: if the boot then does not come to its end, the next one finds it
//! disarmed and is not served; once that has come to its end it leaves another. It counts those that failed,
//! one served boot after another. It is a block that is written over where it is (`in_place.rs`): to remove a
//! file instead took four reads and two flushes of the journal, 80 ms of a boot from a 7200 rpm disk. It lies
//! beside what is needed first of boots ([`KeyDir::start_path`]), so the way to it has been read.
//!
//! The first byte says whether it is armed, the second counts, and all others repeat the first. A disk writes
//! a sector of 512 bytes or more whole or not at all, but not a block: one whose bytes do not agree was torn,
//! and counts as not armed.

use crate::file;
use crate::in_place::{BLOCK, write_over};
use crate::layout::GUARD_ENDING;
use crate::{KeyDir, KeyLock, StoreError};
use rustix::fs::{CWD, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const ARMED: u8 = b'1';
const DISARMED: u8 = b'0';
/// Its second byte where no served boot has failed; the next one tells of one. Until November 2026 it was as
/// the first.
const NONE_FAILED: u8 = b'a';
/// So many served boots that failed one after another are enough.
const MOST_FAILED: u8 = 3;
const LAST: &str = "last.json";
/// More than a boot has to say.
const MAX_LAST: u64 = 1 << 20;

/// What a boot finds of its guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It is this boot's now: until it has come to its end.
    Taken,
    /// The last boot that took it did not come to its end.
    Failed,
    /// Nor did the served ones before that. It stays so until boots are forgotten.
    GivenUp,
}

/// The state of a guard.
#[derive(Clone, Copy)]
struct GuardState {
    is_armed: bool,
    /// How many served boots have failed, one after another.
    failed: u8,
}

impl GuardState {
    fn block(self) -> [u8; BLOCK] {
        let state = if self.is_armed { ARMED } else { DISARMED };
        let mut block = [state; BLOCK];
        block[1] = NONE_FAILED + self.failed.min(MOST_FAILED);
        block
    }

    /// Reads a guard. One that is not whole counts as not armed.
    fn read(guard: &File) -> io::Result<GuardState> {
        let mut block = [DISARMED; BLOCK];
        let is_whole = guard.read_at(&mut block, 0)? == block.len() && is_whole(guard)?;
        let [state, failed, rest @ ..] = block;
        let failed = failed
            .checked_sub(NONE_FAILED)
            .filter(|failed| *failed <= MOST_FAILED);
        Ok(GuardState {
            is_armed: is_whole && state == ARMED && rest.iter().all(|byte| *byte == ARMED),
            failed: failed.unwrap_or(0),
        })
    }

    fn has_given_up(self) -> bool {
        self.failed >= MOST_FAILED
    }
}

impl KeyDir {
    /// Where the guard is.
    pub fn guard_path(&self) -> Option<PathBuf> {
        let mut path = self.start_path()?.into_os_string();
        path.push(GUARD_ENDING);
        Some(path.into())
    }

    /// What the guard says; `None` where there is none, or it cannot be read.
    fn says(&self) -> Option<GuardState> {
        GuardState::read(&File::open(self.guard_path()?).ok()?).ok()
    }

    /// Whether the last start came to its end, so that the next may be served.
    pub fn is_armed(&self) -> bool {
        self.says()
            .is_some_and(|says| says.is_armed && !says.has_given_up())
    }

    /// Whether so many failed one after another that none is served any more.
    pub fn has_given_up(&self) -> bool {
        self.says().is_some_and(GuardState::has_given_up)
    }

    /// Takes the guard for good, and waits until that will survive a power cut. The first start makes it;
    /// `None` where there is no directory for all that is kept, which may be mounted later: what would be
    /// made there would lie beneath. `device` opens the block device that it lies on, to be read; it is asked
    /// only where the guard is written over. Without a device that takes longer, no more.
    pub fn disarm(&self, device: impl FnOnce() -> Option<File>) -> Result<Option<Guard>, StoreError> {
        let Some(path) = self.guard_path() else {
            return Ok(None);
        };
        let disarm = || -> io::Result<Option<Guard>> {
            let Some(guard) = open(&path)? else {
                return Ok(None);
            };
            let says = GuardState::read(&guard)?;
            Ok(Some(match says.is_armed {
                _ if says.has_given_up() => Guard::GivenUp,
                false => Guard::Failed,
                true => {
                    let taken = GuardState {
                        is_armed: false,
                        ..says
                    };
                    write_over(&guard, &taken.block(), device().as_ref())?;
                    Guard::Taken
                }
            }))
        };
        match disarm().map_err(|error| StoreError::io("disarm", &path, error))? {
            Some(found) => Ok(Some(found)),
            None if !self.path().ancestors().nth(2).is_some_and(Path::exists) => Ok(None),
            None => {
                let says = GuardState {
                    is_armed: false,
                    failed: 0,
                };
                self.lock()?.make_guard(&path, says)?;
                Ok(Some(Guard::Taken))
            }
        }
    }

    /// What the last boot had to say, as JSON.
    pub fn last_boot_report(&self) -> Result<Option<Vec<u8>>, StoreError> {
        file::read_bounded(&self.path().join(LAST), MAX_LAST)
    }
}

impl KeyLock {
    /// The start came to its end: the next may be served. One that had [taken](Guard::Taken) the guard did
    /// not fail, whatever those before it did; of another's a disarmed guard tells that it failed. A guard
    /// that is there is written over: on a full disk there is no room for another, and what is known is
    /// replayed all the same. Nobody waits for this, so it takes the longer way, which is right wherever the
    /// file was moved to a moment ago.
    pub fn arm(&self, had_taken: bool) -> Result<(), StoreError> {
        let Some(path) = self.dir().guard_path() else {
            return Ok(());
        };
        let before = self.dir().says();
        let failed = before.filter(|_| !had_taken);
        let says = GuardState {
            is_armed: true,
            failed: failed.map_or(0, |says| says.failed + u8::from(!says.is_armed)),
        };
        let rearm = || -> io::Result<bool> {
            match open(&path)? {
                Some(guard) if is_whole(&guard)? => write_over(&guard, &says.block(), None).map(|()| true),
                _ => Ok(false),
            }
        };
        match rearm() {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => self.make_guard(&path, says),
        }
    }

    fn make_guard(&self, path: &Path, says: GuardState) -> Result<(), StoreError> {
        self.name()?;
        path.parent().map_or(Ok(()), file::make_directory)?;
        file::write_whole(path, &says.block())
    }

    /// Keeps what the boot had to say, as JSON.
    pub fn save_last(&self, json: &[u8]) -> Result<(), StoreError> {
        self.write(LAST, json)
    }
}

/// A guard, to be written over; `None` if there is none.
fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(guard) => Ok(Some(File::from(guard))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_whole(guard: &File) -> io::Result<bool> {
    let facts = guard.metadata()?;
    Ok(facts.is_file() && facts.len() == BLOCK as u64)
}

#[cfg(test)]
mod tests {
    use super::Guard;
    use crate::Store;
    use headstart_model::Key;
    use std::os::unix::fs::MetadataExt;

    /// What a disk writes whole or not at all, bytes.
    const SECTOR: usize = 512;

    #[test]
    fn the_boot_failure_guard_is_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let boot = Store::new(dir.path()).key(&Key::new("boot").unwrap());
        assert!(!boot.is_armed());
        std::fs::remove_dir(dir.path()).unwrap();
        assert_eq!(
            boot.disarm(|| None).unwrap(),
            None,
            "what holds it is not mounted"
        );
        std::fs::create_dir(dir.path()).unwrap();
        assert_eq!(boot.disarm(|| None).unwrap(), Some(Guard::Taken), "the first one");
        assert_eq!(boot.disarm(|| None).unwrap(), Some(Guard::Failed));
        boot.lock().unwrap().arm(false).unwrap();
        assert!(boot.is_armed());
        assert_eq!(boot.disarm(|| None).unwrap(), Some(Guard::Taken));
        assert!(!boot.is_armed() && boot.disarm(|| None).unwrap() == Some(Guard::Failed));
        // One that is there is written over: another would need room on the disk.
        let guard = boot.guard_path().unwrap();
        let inode = || std::fs::metadata(&guard).unwrap().ino();
        let before = inode();
        boot.lock().unwrap().arm(true).unwrap();
        assert!(boot.is_armed() && inode() == before);
        std::fs::write(&guard, "1").unwrap();
        assert!(
            !boot.is_armed() && boot.disarm(|| None).unwrap() == Some(Guard::Failed),
            "cut off"
        );
        boot.lock().unwrap().arm(true).unwrap();
        assert!(boot.is_armed(), "one that is cut off is made anew");
        let whole = std::fs::read(&guard).unwrap();
        for sector in 0..whole.len() / SECTOR {
            let mut torn = whole.clone();
            torn[sector * SECTOR..][..SECTOR].fill(super::DISARMED);
            std::fs::write(&guard, torn).unwrap();
            assert!(!boot.is_armed(), "sector {sector} is of another write");
        }
        boot.lock().unwrap().arm(true).unwrap();
        assert!(boot.is_armed() && std::fs::read(&guard).unwrap() == whole);
        assert_eq!(boot.last_boot_report().unwrap(), None);
        boot.lock().unwrap().save_last(b"{}").unwrap();
        assert_eq!(boot.last_boot_report().unwrap().unwrap(), b"{}");
    }

    #[test]
    fn boots_that_fail_one_after_another_are_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let boot = store.key(&Key::new("boot").unwrap());
        // As it was left until November 2026: of its second byte nothing is read.
        for former in ["1", "0"] {
            boot.lock().unwrap().arm(true).unwrap();
            std::fs::write(boot.guard_path().unwrap(), former.repeat(super::BLOCK)).unwrap();
            assert!(boot.is_armed() == (former == "1") && !boot.has_given_up());
        }
        // A served boot fails, the next is left alone and comes to its end. Then one is served, and comes to
        // its end as well.
        let fails = || {
            assert_eq!(boot.disarm(|| None).unwrap(), Some(Guard::Taken));
            assert_eq!(boot.disarm(|| None).unwrap(), Some(Guard::Failed));
            // That one fails as well: it was not served.
            assert_eq!(boot.disarm(|| None).unwrap(), Some(Guard::Failed));
            boot.lock().unwrap().arm(false).unwrap();
        };
        boot.lock().unwrap().arm(true).unwrap();
        (0..2).for_each(|_| fails());
        assert_eq!(boot.disarm(|| None).unwrap(), Some(Guard::Taken));
        boot.lock().unwrap().arm(true).unwrap();
        (0..2).for_each(|_| fails());
        assert!(boot.is_armed() && !boot.has_given_up());
        fails();
        for _ in 0..2 {
            assert!(!boot.is_armed() && boot.has_given_up());
            assert_eq!(boot.disarm(|| None).unwrap(), Some(Guard::GivenUp));
            boot.lock().unwrap().arm(false).unwrap();
        }
        assert!(boot.forget().unwrap());
        assert_eq!(boot.disarm(|| None).unwrap(), Some(Guard::Taken));
    }
}
