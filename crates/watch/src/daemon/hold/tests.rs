//! The guard, with a test in the place of the daemon: whatever becomes of either, who waits goes on.

use super::guard::serve;
use super::word::{Word, hear, say};
use super::{Inode, inode_of};
use headstart_system::files;
use headstart_system::process::ProcessStat;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// To wait is to wait for ever.
const GENEROUS: Duration = Duration::from_secs(30);

#[test]
#[ignore = "run by other tests in a process of its own"]
fn in_a_child() {
    let daemon = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    std::process::exit(serve(UnixStream::from(daemon), 0));
}

/// A guard of its own, and a program that it is asked about.
struct Case {
    _dir: tempfile::TempDir,
    program: PathBuf,
    inode: Inode,
    guard: Child,
    daemon: Option<UnixStream>,
}

impl Case {
    fn new() -> Case {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let program = dir.path().join("program");
        std::fs::copy("/bin/true", &program).unwrap();
        let (daemon, theirs) = UnixStream::pair().unwrap();
        let guard = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "daemon::hold::tests::in_a_child", "--ignored"])
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let file = File::open(&program).unwrap();
        say(&daemon, Word::AskAbout, Some(file.as_fd())).unwrap();
        let case = Case {
            _dir: dir,
            inode: inode_of(&files::stat(file.as_fd()).unwrap()),
            program,
            guard,
            daemon: Some(daemon),
        };
        // Until it is asked about.
        loop {
            let begun = case.begin();
            match case.asked_before(&begun) {
                Some((id, _)) => {
                    case.say(Word::LetGo(id));
                    ends(begun);
                    return case;
                }
                None => ends(begun),
            }
        }
    }

    fn say(&self, word: Word) {
        say(self.daemon.as_ref().unwrap(), word, None).unwrap();
    }

    /// Somebody executes it.
    fn begin(&self) -> JoinHandle<ExitStatus> {
        let mut command = Command::new(&self.program);
        std::thread::spawn(move || command.status().unwrap())
    }

    /// Who the guard asks about, unless this has ended before.
    fn asked_before(&self, begun: &JoinHandle<ExitStatus>) -> Option<(u64, u32)> {
        loop {
            let ended = begun.is_finished();
            match hear(self.daemon.as_ref().unwrap()).unwrap() {
                Some((Word::Asked { id, pid, inode }, _)) => {
                    assert_eq!(inode, self.inode);
                    return Some((id, pid));
                }
                Some((other, _)) => panic!("{other:?}"),
                None if ended => return None,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Somebody who waits, and by what number.
    fn waiting(&self) -> (JoinHandle<ExitStatus>, u64) {
        let begun = self.begin();
        let (id, pid) = self.asked_before(&begun).expect("it is asked about");
        assert!(ProcessStat::of(pid).is_some() && !begun.is_finished());
        (begun, id)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.guard), signal).unwrap();
    }

    fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        let path = format!("/proc/{}/stat", self.guard.id());
        let is_stopped = || std::fs::read_to_string(&path).unwrap().contains(") T ");
        while !is_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// How the guard ended.
    fn end(mut self) -> ExitStatus {
        let status = self.guard.wait().unwrap();
        // Nobody is asked any more.
        assert!(Command::new(&self.program).status().unwrap().success());
        status
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

#[track_caller]
fn ends(begun: JoinHandle<ExitStatus>) {
    let until = Instant::now() + GENEROUS;
    while !begun.is_finished() {
        assert!(Instant::now() < until, "it waits for ever");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(begun.join().unwrap().success());
}

#[test]
fn who_waits_goes_on_when_the_daemon_says_so_or_says_nothing() {
    let case = Case::new();
    for word in [Word::LetGo, Word::Leave] {
        let (begun, id) = case.waiting();
        case.say(Word::Hold(id));
        case.say(word(id));
        ends(begun);
    }
    // What was left alone last is asked about again.
    std::thread::sleep(Duration::from_millis(200));
    let (begun, id) = case.waiting();
    case.say(Word::Hold(id));
    ends(begun);
    let (begun, id) = case.waiting();
    ends(begun);
    // It does not answer, and is not asked any more until it does.
    let begun = case.begin();
    assert_eq!(case.asked_before(&begun), None);
    ends(begun);
    case.say(Word::LetGo(id));
    let answers = (0..1000).any(|_| {
        let begun = case.begin();
        let asked = case.asked_before(&begun);
        if let Some((id, _)) = asked {
            case.say(Word::LetGo(id));
        }
        ends(begun);
        asked.is_some()
    });
    assert!(answers);
}

#[test]
fn an_execution_waits_for_one_of_its_files_alone() {
    let case = Case::new();
    let path = case.program.with_file_name("script");
    std::fs::write(&path, format!("#!{}\n", case.program.display())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let file = File::open(&path).unwrap();
    let script = inode_of(&files::stat(file.as_fd()).unwrap());
    let daemon = case.daemon.as_ref().unwrap();
    say(daemon, Word::AskAbout, Some(file.as_fd())).unwrap();
    let asked = |answer: fn(u64) -> Word| {
        let mut command = Command::new(&path);
        let begun = std::thread::spawn(move || command.status().unwrap());
        let mut asked = Vec::new();
        loop {
            let ended = begun.is_finished();
            match hear(daemon).unwrap() {
                Some((Word::Asked { id, inode, .. }, _)) => {
                    asked.push(inode);
                    case.say(answer(id));
                }
                Some((other, _)) => panic!("{other:?}"),
                None if ended => break,
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        ends(begun);
        asked
    };
    assert!((0..1000).any(|_| asked(Word::LetGo) == [script, case.inode]));
    assert_eq!(asked(Word::Hold), [script]);
}

#[test]
fn who_waits_goes_on_when_the_daemon_ends() {
    for held in [false, true] {
        let mut case = Case::new();
        let (begun, id) = case.waiting();
        if held {
            case.say(Word::Hold(id));
        }
        case.daemon = None;
        ends(begun);
        assert_eq!(case.end().code(), Some(0));
    }
}

#[test]
fn who_waits_goes_on_when_the_guard_is_killed_or_stopped() {
    let killed = rustix::process::Signal::KILL.as_raw();
    for way in ["killed", "stopped", "stopped before", "both"] {
        let mut case = Case::new();
        let begun = match way {
            "stopped before" => {
                case.stop();
                case.begin()
            }
            _ => {
                let (begun, id) = case.waiting();
                case.say(Word::Hold(id));
                begun
            }
        };
        match way {
            "killed" => case.signal(rustix::process::Signal::KILL),
            "stopped" => case.stop(),
            "both" => {
                case.stop();
                case.daemon = None;
            }
            _ => {}
        }
        ends(begun);
        // By the kernel's timer, where nobody else has done it.
        assert_eq!(case.end().signal(), Some(killed), "{way}");
    }
}

#[test]
fn who_comes_when_many_wait_does_not_wait() {
    let case = Case::new();
    // Not if the first had waited long enough before the last came.
    let beside = (0..20).any(|_| {
        let waiting: Vec<_> = (0..8).map(|_| case.waiting()).collect();
        for (_, id) in &waiting {
            case.say(Word::Hold(*id));
        }
        let another = case.begin();
        let asked = case.asked_before(&another);
        if let Some((id, _)) = asked {
            case.say(Word::LetGo(id));
        }
        ends(another);
        for (begun, id) in waiting {
            case.say(Word::LetGo(id));
            ends(begun);
        }
        asked.is_none()
    });
    assert!(beside);
}
