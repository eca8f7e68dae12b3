//! A watch of what is executed below a directory, and programs to execute there.

use headstart_model::trace::Trace;
use headstart_record::{Answer, Executable, Noticed, Recorded, Role, Standing, Watch};
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, open_checked};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One test at a time: each sees what the others start, and there are only so many slots and turns.
static ALONE: Mutex<()> = Mutex::new(());

/// A watch that records what is executed below a directory, and what has come to its end.
pub struct Watched {
    _alone: MutexGuard<'static, ()>,
    pub watch: Watch,
    dir: PathBuf,
    pub noticed: Vec<Noticed>,
    pub ended: Vec<Recorded>,
    /// How many starts of other programs were noticed.
    pub others: usize,
    /// A program whose start is a session, and the number of the control group that has it.
    pub session: Option<(PathBuf, u64)>,
}

impl Watched {
    pub fn below(dir: &Path) -> Watched {
        Watched {
            _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
            watch: Watch::start().unwrap(),
            dir: dir.to_owned(),
            noticed: Vec::new(),
            ended: Vec::new(),
            others: 0,
            session: None,
        }
    }

    /// The same, of programs that are known: what else begins on this machine, of which nothing is known,
    /// leaves them slots and takes no turns of theirs.
    pub fn known_below(dir: &Path) -> Watched {
        let watched = Watched::below(dir);
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let facts = entry.metadata().unwrap();
            if facts.is_file() && facts.permissions().mode() & 0o111 != 0 {
                watched.know(&entry.path(), Role::Program);
            }
        }
        watched
    }

    pub fn know(&self, program: &Path, role: Role) {
        let opened = open_checked(&MountTable::read().unwrap(), program, &Expect::default()).unwrap();
        self.watch.know(Executable::from_opened(&opened), role).unwrap();
    }

    pub fn drain(&mut self) {
        let (dir, noticed) = (self.dir.as_os_str().as_bytes(), &mut self.noticed);
        let session = self.session.clone();
        let mut others = Vec::new();
        let ended = self.watch.drain(&mut |start| {
            if !start.path.as_ref().is_some_and(|path| path.starts_with(dir)) {
                others.push(start.program);
                return Answer::Leave;
            }
            noticed.push(start.clone());
            let is_its = |(program, _): &&(PathBuf, u64)| {
                start.path.as_deref() == Some(program.as_os_str().as_bytes())
            };
            let session = session.as_ref().filter(is_its);
            Answer::Record {
                command: vec![],
                replayed: false,
                open_for: Duration::ZERO,
                group: session.map(|(_, group)| *group),
            }
        });
        self.ended.extend(ended.unwrap());
        self.others += others.len();
        // What else goes on on this machine is to leave room.
        for program in others {
            let forever = Standing::IgnoredUntil(u64::MAX);
            self.watch.set_standing(program, forever).unwrap();
        }
    }

    /// Drains until so many starts have come to their end.
    pub fn until_ended(&mut self, count: usize) {
        let begun = Instant::now();
        while self.ended.len() < count {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{} of {} noticed ended; {:?}",
                self.ended.len(),
                self.noticed.len(),
                self.watch.counts()
            );
            self.drain();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Drains for so long.
    pub fn for_a_while(&mut self) {
        for _ in 0..50 {
            self.drain();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn traces(&mut self) -> Vec<Trace> {
        self.ended.drain(..).map(|ended| ended.trace().unwrap()).collect()
    }
}

pub fn program(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    fs::copy("/bin/cat", &path).unwrap();
    path
}

pub fn file(dir: &Path, name: &str, pages: usize) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, vec![1; pages * 4096]).unwrap();
    path
}

pub fn start(program: &Path, arguments: &[&Path]) -> std::process::Child {
    Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Pages of each file of a trace, by name.
pub fn pages(trace: &Trace) -> Vec<(String, u64)> {
    let mut pages: Vec<(String, u64)> = trace
        .files
        .iter()
        .map(|file| (file.path.to_string(), 0))
        .collect();
    for one in &trace.uses {
        pages[one.file as usize].1 += u64::from(one.pages);
    }
    pages
}

pub fn of_file(trace: &Trace, path: &Path) -> u64 {
    let path = path.to_string_lossy();
    pages(trace)
        .iter()
        .filter(|(name, _)| *name == path)
        .map(|(_, pages)| pages)
        .sum()
}

/// A shell with a script that reads a line before it goes on.
pub fn waiting(shell: &Path, script: &str) -> Child {
    Command::new(shell)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Gives it the line; it must end well.
pub fn go_on(mut child: Child) {
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
}
