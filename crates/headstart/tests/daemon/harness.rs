//! The daemon that tests start, and programs for it to notice.

use crate::common::{Case, binary, can_record, eventually, signal};
use headstart_model::outcome::Outcome;
use headstart_model::{Key, Trace};
use headstart_store::Store;
use headstart_system::testing::{LoopFs, Spec, can_mount};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One daemon at a time: each sees what all tests start.
static ALONE: Mutex<()> = Mutex::new(());

pub use crate::common::NOBODY;
pub use headstart_system::testing::let_all_into;

/// A daemon that notices starts.
pub struct Daemon {
    _alone: MutexGuard<'static, ()>,
    pub child: Child,
}

impl Daemon {
    /// Learns what waits for a millisecond, and replays all cold starts.
    pub fn start(case: &Case) -> Daemon {
        Daemon::start_by(case, Command::new(binary()), &["--no-control"])
    }

    /// The same, listening at a socket of this test's.
    pub fn start_with_control(case: &Case) -> (Daemon, UnixStream) {
        let path = case.path("control");
        let listener = UnixListener::bind(&path).unwrap();
        // As a service manager hands it over: descriptor 3, by the number of the process that is to have it.
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\" 3<&0 0</dev/null",
            "sh",
        ]);
        shell.arg(binary());
        shell.stdin(OwnedFd::from(listener));
        let daemon = Daemon::start_by(case, shell, &[]);
        (daemon, UnixStream::connect(&path).unwrap())
    }

    pub fn start_by(case: &Case, mut command: Command, words: &[&str]) -> Daemon {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = case.path("notify");
        let _ = fs::remove_file(&socket);
        let manager = UnixDatagram::bind(&socket).unwrap();
        manager.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        if words.contains(&"--no-control") {
            command.stdin(Stdio::null());
        }
        let replays_all = (!words.contains(&"--control-every")).then_some(["--control-every", "0"]);
        // Not through env(1), whose number this would be.
        let child = command
            .args(["daemon", "--least-wait", "1"])
            .args(replays_all.iter().flatten())
            .args(words)
            .env("HEADSTART_STATE", case.state())
            .env("HEADSTART_EVEN_WARM", "1")
            .env("NOTIFY_SOCKET", &socket)
            .env("WATCHDOG_USEC", "1000000")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut daemon = Daemon { _alone: alone, child };
        let mut hears = |word: &[u8]| {
            let mut heard = [0; 256];
            let mut length = None;
            eventually("the daemon says something", || {
                length = manager.recv(&mut heard).ok();
                length.is_some() || daemon.child.try_wait().unwrap().is_some()
            });
            let heard = &heard[..length.expect("the daemon ended at once")];
            assert!(heard.starts_with(word), "{heard:?}");
        };
        hears(b"READY=1");
        hears(b"WATCHDOG=1");
        daemon
    }

    /// Ends it, which must go well; gives what it said.
    pub fn stop(mut self) -> String {
        assert!(self.child.try_wait().unwrap().is_none(), "it has ended by itself");
        signal(self.child.id(), 15);
        let said = self.said();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{said}");
        said
    }

    /// What it has said, when it has ended.
    fn said(&mut self) -> String {
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        said
    }

    /// Its private memory, KiB.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        line.unwrap().trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let has_failed = std::thread::panicking() && self.child.stderr.is_some();
        if has_failed && matches!(self.child.try_wait(), Ok(None)) {
            // What it says at its end tells what became of the starts.
            signal(self.child.id(), 15);
            std::thread::sleep(Duration::from_secs(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if has_failed {
            eprintln!("the daemon has said: {}", self.said());
        }
    }
}

pub fn can_watch() -> bool {
    can_mount() && can_record()
}

/// What a test does more of where all tests are run, however long they take (`make test-all`): so many, else
/// so few.
pub fn rounds(few: u64, many: u64) -> u64 {
    match std::env::var_os("HEADSTART_TESTS_LONG") {
        Some(_) => many,
        None => few,
    }
}

/// The same command, by a user whom nothing belongs to.
pub fn by_nobody(mut command: Command) -> Command {
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    command
}

/// The key of a program's starts by that user.
pub fn key_of_nobody(fs: &LoopFs, name: &str) -> Key {
    Key::new(format!("{} of user {NOBODY}", key(fs, name))).unwrap()
}

/// Runs a command, which must go well.
#[track_caller]
pub fn run(mut command: Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

/// A start that reads its input and so lasts until that ends: its replay, which ends with it, is not cut
/// short.
pub struct Held(Child);

impl Held {
    /// Its standard input is to be a pipe.
    pub fn start(mut command: Command) -> Held {
        Held(command.spawn().unwrap())
    }

    /// Waits until a file of 1 MiB is read ahead. The machine may take pages back meanwhile: each counts that
    /// was in memory at any time, and four may have gone before anybody saw them.
    #[track_caller]
    pub fn is_read_ahead(&self, path: &Path) {
        let mut seen = BTreeSet::new();
        eventually(&format!("{} is read ahead", path.display()), || {
            let there = headstart_system::testing::resident(path).unwrap();
            seen.extend(there.into_iter().flat_map(|(start, end)| start..end));
            seen.len() >= 252
        });
    }

    /// Ends its input; it must go well.
    #[track_caller]
    pub fn ends(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

/// Pages of these files that are in memory.
pub fn resident(paths: &[PathBuf]) -> u64 {
    let ranges = paths
        .iter()
        .flat_map(|path| headstart_system::testing::resident(path).unwrap());
    ranges.map(|(start, end)| end - start).sum()
}

/// The state directory is whole: `status` complains of whatever is not.
#[track_caller]
pub fn is_whole(case: &Case) {
    let status = case.headstart(&["status", "--json"]);
    assert_eq!((status.code(), &*status.err), (0, ""));
}

/// Starts a program, which is cold, until one more start of it is kept: too much that is new elsewhere on the
/// machine, and one is not noticed.
#[track_caller]
pub fn start_until_kept(case: &Case, fs: &LoopFs, name: &str) -> Outcome {
    let key = key(fs, name);
    let before = finished(case, &key);
    eventually(&format!("a start of {key} is kept"), || {
        evict(&files(fs, name));
        run(command(fs, name));
        // One that was noticed is finished by then, but on the slowest of machines.
        (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            finished(case, &key) > before
        })
    });
    outcomes(case, &key).pop().unwrap()
}

/// A file system with a program `NAME` for each name, and twenty files of 1 MiB for each.
pub fn disk(names: &[&str]) -> LoopFs {
    let spec = Spec {
        direct_io: true,
        ..Spec::new("ext4")
    };
    LoopFs::create(&spec, |root| {
        for (turn, name) in names.iter().enumerate() {
            fs::copy("/bin/cat", root.join(name))?;
            for file in 0..20 {
                fs::write(root.join(format!("{name}-{file:02}")), vec![turn as u8; 1 << 20])?;
            }
        }
        Ok(())
    })
    .unwrap()
}

pub fn files(fs: &LoopFs, name: &str) -> Vec<PathBuf> {
    let at = fs.mount_point();
    (0..20).map(|file| at.join(format!("{name}-{file:02}"))).collect()
}

pub fn command(fs: &LoopFs, name: &str) -> Command {
    let mut command = Command::new(fs.mount_point().join(name));
    command
        .args(files(fs, name))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

pub fn evict(paths: &[PathBuf]) {
    for path in paths {
        headstart_system::testing::evict(path).unwrap();
    }
}

pub fn key(fs: &LoopFs, name: &str) -> Key {
    Key::new(fs.mount_point().join(name).to_string_lossy()).unwrap()
}

pub fn outcomes(case: &Case, key: &Key) -> Vec<Outcome> {
    Store::new(case.state())
        .key(key)
        .outcomes(|line| panic!("{line}"))
}

/// How many starts are finished: who started it is noted last, when the next plan is there.
pub fn finished(case: &Case, key: &Key) -> u64 {
    let users = Store::new(case.state()).key(key).users();
    users.iter().map(|user| user.starts).sum()
}

/// Waits until so many starts are finished, and gives them.
#[track_caller]
pub fn kept(case: &Case, key: &Key, count: usize) -> Vec<Outcome> {
    eventually(&format!("{count} starts of {key} are finished"), || {
        finished(case, key) >= count as u64
    });
    let kept = outcomes(case, key);
    assert_eq!(kept.len(), count);
    kept
}

pub fn last_trace(case: &Case, key: &Key) -> Trace {
    let kept = Store::new(case.state()).key(key);
    let path = kept.traces().pop().unwrap();
    kept.trace(&path).or_tell(|line| panic!("{line}")).unwrap()
}

/// Calls a method, which must go well, and gives what it returns.
pub fn call(stream: &mut UnixStream, method: &str, parameters: Value) -> Value {
    let call = json!({ "method": format!("headstart.Control.{method}"), "parameters": parameters });
    stream.write_all(format!("{call}\0").as_bytes()).unwrap();
    let mut reply = Vec::new();
    let mut byte = [0];
    while reply.last() != Some(&0) {
        stream.read_exact(&mut byte).unwrap();
        reply.push(byte[0]);
    }
    reply.pop();
    let reply: Value = serde_json::from_slice(&reply).unwrap();
    assert!(reply.get("error").is_none(), "{reply}");
    reply["parameters"].clone()
}
