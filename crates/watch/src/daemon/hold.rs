//! Holding: on one head a start that runs beside its own replay delays both, so it waits until it will not catch up (decision 2).
//!
//! The kernel is asked to ask before such a program is executed. It is answered by a process of its own, the [`guard`], which goes by
//! deadlines of its own; here is what the daemon knows of it. It is begun, and begun anew, by its [`parent`].

mod file;
mod guard;
mod parent;
#[cfg(test)]
mod tests;
mod word;

pub(super) use file::ToAskAbout;

use super::shares::Shares;
use headstart_model::Key;
use headstart_session::notes::log;
use headstart_session::{plan_of, waits_on_one_head};
use headstart_store::Store;
use headstart_system::files::Stat;
use headstart_system::launch::background;
use headstart_system::limits::give_up_administration;
use headstart_system::mounts::MountTable;
use std::cmp::Reverse;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use word::{Word, hear, say};

/// So many files are asked about at a time, and so many for the keys of one user, who is not root.
const MOST: usize = 128;
const MOST_OF_A_USER: usize = MOST / 4;

/// What a file is known by: the number of its file system, and its own.
type Inode = (u64, u64);

/// Whether nobody but the system may lease a file: its owner may (`F_SETLEASE`, fcntl(2)), and the guard opens whatever it is asked about, so that it would wait for
/// that user, and with it all who are held.
fn is_leased_by_nobody_else(stat: &Stat) -> bool {
    stat.owner == 0 || stat.owner == rustix::process::geteuid().as_raw()
}

fn inode_of(stat: &Stat) -> Inode {
    (u64::from(stat.major) << 32 | u64::from(stat.minor), stat.inode)
}

/// The guard, as the daemon sees it.
pub(super) struct Guard {
    stream: UnixStream,
    /// By the file that is executed, where that is, and what starts then. If the number is another file's by now, the kernel has forgotten what was deleted.
    programs: Shares<Inode, (PathBuf, PathBuf)>,
    /// Whether it has begun anew since that was asked.
    anew: bool,
    /// Whether it was said that the kernel does not ask.
    told: bool,
    gone: bool,
}

/// Somebody who is about to execute a file of a known program, and waits.
pub(super) struct Asked {
    pub(super) id: u64,
    pub(super) pid: u32,
    pub(super) program: PathBuf,
}

impl Guard {
    /// Forks it: before this process has a second thread.
    pub(super) fn start() -> io::Result<Guard> {
        // What it panics of is said where everything is.
        let log = || io::stderr().as_fd().try_clone_to_owned().ok().map(File::from);
        let stream = background(log, parent::serve)?;
        // The guard alone needs it.
        give_up_administration()?;
        Ok(Guard {
            stream,
            programs: Shares::new(MOST, MOST_OF_A_USER),
            anew: false,
            told: false,
            gone: false,
        })
    }

    /// Becomes readable when there is something to hear.
    pub(super) fn wait_on(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether it has ended, and nobody is held any more.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// The next who waits; `None` if there is nobody now.
    pub(super) fn next(&mut self) -> Option<Asked> {
        loop {
            let word = match hear(&self.stream) {
                Ok(heard) => heard?.0,
                Err(_) => {
                    self.gone = true;
                    if !self.told {
                        log("the process that holds starts has ended: none is held any more");
                    }
                    return None;
                }
            };
            match word {
                Word::Asked { id, pid, inode } => match self.programs.get(inode) {
                    Some((_, program)) => {
                        let program = program.clone();
                        return Some(Asked { id, pid, program });
                    }
                    None => self.leave(id),
                },
                Word::Anew => {
                    log("the process that holds starts was killed, and has begun anew");
                    self.programs = Shares::new(MOST, MOST_OF_A_USER);
                    self.anew = true;
                }
                Word::Refused(errno) if !self.told => {
                    self.told = true;
                    let error = io::Error::from_raw_os_error(errno);
                    log(&format!(
                        "starts on disks with one head are not held: fanotify(7) needs CAP_SYS_ADMIN and a kernel with permission \
                         events: {error} (see `hold` in headstart.toml(5))"
                    ));
                }
                _ => {}
            }
        }
    }

    /// From now on it waits who starts this program.
    pub(super) fn ask_about(&mut self, it: ToAskAbout) {
        let gone = self
            .programs
            .add(it.inode, it.user, (it.path.clone(), it.program.clone()));
        for (_, (path, _)) in gone {
            // One that is gone from there the kernel asks about as long as somebody has it, and nobody waits for the answer.
            let gone = MountTable::read()
                .ok()
                .and_then(|mounts| file::open(&mounts, &path));
            if let Some(gone) = gone {
                self.say(Word::AskNoMore, Some(gone.fd.as_fd()));
            }
        }
        self.say(Word::AskAbout, Some(it.file.as_fd()));
    }

    /// Whether it has begun anew since this was asked last: nobody waits any more, and it asks about nothing.
    pub(super) fn has_begun_anew(&mut self) -> bool {
        std::mem::take(&mut self.anew)
    }

    pub(super) fn hold(&self, id: u64) {
        self.say(Word::Hold(id), None);
    }

    pub(super) fn let_go(&self, id: u64) {
        self.say(Word::LetGo(id), None);
    }

    pub(super) fn leave(&self, id: u64) {
        self.say(Word::Leave(id), None);
    }

    fn say(&self, word: Word, file: Option<BorrowedFd<'_>>) {
        // Who does not hear it goes by deadlines.
        let _ = say(&self.stream, word, file);
    }
}

/// What is executed when a program starts that is to be held: `None` if it is not, or cannot be.
pub(super) fn of_key(store: &Store, key: &Key) -> Option<ToAskAbout> {
    let kept = store.key(key);
    // What is wrong with it the start is told.
    let plan = plan_of(&kept, &mut |_| {})?;
    if !kept.is_served() || !waits_on_one_head(store, &plan) {
        return None;
    }
    file::of_key(key, &MountTable::read().ok()?)
}

/// The same of all that are known, what was used last first; as far as that is found out in this time.
pub(super) fn of_all(store: &Store, within: Duration) -> Vec<ToAskAbout> {
    let until = Instant::now() + within;
    let mut keys = store.keys().unwrap_or_default();
    keys.sort_by_cached_key(|key| Reverse(store.key(key).last_used_and_size().0));
    let in_time = keys.iter().take_while(|_| Instant::now() < until);
    in_time.filter_map(|key| of_key(store, key)).take(MOST).collect()
}
