//! A directory, a state directory and the command: what every whole-program test begins with.

#![allow(dead_code, unused_imports, clippy::unwrap_used)] // Each test program uses its part.

use headstart_system::testing::Process;
pub use headstart_system::testing::{is_root, needs};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than any step takes on a slow machine under load.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A directory of its own for one test.
pub struct Case {
    dir: tempfile::TempDir,
}

/// What a command left.
pub struct Ran {
    /// Its status as wait(2) gives it.
    pub raw: i32,
    pub out: String,
    pub err: String,
    pub took: Duration,
}

impl Case {
    pub fn new() -> Case {
        Case {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// Writes a file that may be executed.
    pub fn program(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.write(name, bytes);
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, executable).unwrap();
        path
    }

    /// headstart with this test's state directory, in this test's directory.
    pub fn command(&self, words: &[&str]) -> Command {
        // Started behind a shell's `&` or by nohup, tests inherit ignored signals, and headstart honours what
        // it inherits.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=HUP,INT,QUIT,TERM")
            .arg(binary())
            .args(words)
            .current_dir(self.dir.path())
            .env("HEADSTART_STATE", self.state())
            .env("HEADSTART_EVEN_WARM", "1");
        command.env_remove("HEADSTART_SYNC").stdin(Stdio::null());
        command
    }

    /// Runs headstart to its end.
    pub fn headstart(&self, words: &[&str]) -> Ran {
        finish(self.command(words), b"")
    }

    /// Runs headstart, which must succeed, and reads the document it prints.
    pub fn json(&self, words: &[&str]) -> Value {
        self.json_and_status(words, 0)
    }

    /// The same of what ends with this status.
    pub fn json_and_status(&self, words: &[&str], status: i32) -> Value {
        let ran = self.headstart(words);
        assert_eq!(ran.code(), status, "{words:?}: {}", ran.err);
        serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{words:?}: {e}: {}", ran.out))
    }

    /// Runs a shell script in which `$H` is headstart.
    pub fn script(&self, script: &str) -> Ran {
        let mut command = Command::new("sh");
        command
            .args(["-c", script])
            .current_dir(self.dir.path())
            .env("HEADSTART_STATE", self.state())
            .env("HEADSTART_EVEN_WARM", "1");
        command.env("H", binary()).stdin(Stdio::null());
        finish(command, b"")
    }

    /// Puts a file out of memory.
    pub fn evict(&self, name: &str) {
        headstart_system::testing::evict(&self.path(name)).unwrap();
    }

    /// Runs headstart until it has ended for good: the next start finds what this one left. Also warm starts
    /// are replayed.
    pub fn run(&self, name: &str, command: &[&str]) -> Ran {
        self.headstart(&run_words(&["--wait"], "0", name, command))
    }
}

impl Case {
    /// The processes that have this test's state directory: headstart's, and commands that it has started.
    pub fn processes(&self) -> Vec<u32> {
        let state = format!("HEADSTART_STATE={}", self.state().display()).into_bytes();
        let is_ours = |pid: &std::ffi::OsStr| {
            let environment = std::fs::read(Path::new("/proc").join(pid).join("environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == state)
        };
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.map(|entry| entry.file_name())
            .filter(|pid| is_ours(pid))
            .filter_map(|pid| pid.to_str()?.parse().ok())
            .collect()
    }
}

impl Drop for Case {
    /// Waits for helpers that go on in the background: they would make anew what is removed under them.
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(10);
        while !self.processes().is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Ran {
    /// The exit status; panics if a signal killed it.
    #[track_caller]
    pub fn code(&self) -> i32 {
        assert_eq!(
            self.raw & 0x7f,
            0,
            "killed by signal {}: {}",
            self.raw & 0x7f,
            self.err
        );
        self.raw >> 8
    }

    /// It could not, and said why in one line that has these words.
    #[track_caller]
    pub fn refused(&self, words: &[&str]) {
        assert_eq!(self.code(), 1, "{}{}", self.out, self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("headstart: "), "{}", self.err);
        for word in words {
            assert!(self.err.contains(word), "{:?} lacks {word:?}", self.err);
        }
    }
}

/// The words of `headstart run` with options: by a key, with one cold start in `every` a control.
pub fn run_words<'a>(
    options: &[&'a str],
    every: &'a str,
    name: &'a str,
    command: &[&'a str],
) -> Vec<&'a str> {
    let key = ["--control-every", every, "--name", name, "--"];
    [&["run"], options, &key, command].concat()
}

pub fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_headstart"))
}

/// Copies the programs of the package into a directory, as a build has them.
pub fn copy_programs(directory: &Path) {
    for name in ["headstart", "headstart-inspect", "headstart-layout"] {
        std::fs::copy(binary().with_file_name(name), directory.join(name)).unwrap();
    }
}

/// Lets any user run headstart in the directory of the case, by the name `./headstart`.
pub fn for_anybody(case: &Case) {
    std::fs::set_permissions(case.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    copy_programs(&case.path(""));
}

/// Runs the command behind it as a user without any right.
pub const GIVE_UP: &str =
    "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all";

/// Runs a command to its end with this input; kills it if it takes too long.
pub fn finish(mut command: Command, input: &[u8]) -> Ran {
    if !input.is_empty() {
        command.stdin(Stdio::piped());
    }
    let begun = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let writer = child.stdin.take().map(|mut stdin| {
        let input = input.to_vec();
        // Who does not read all of it closes the pipe.
        std::thread::spawn(move || drop(stdin.write_all(&input)))
    });
    let pid = child.id();
    let (done, is_done) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || {
        let output: Output = child.wait_with_output().unwrap();
        done.send(()).ok();
        output
    });
    if is_done.recv_timeout(TIMEOUT).is_err() {
        signal(pid, 9);
        panic!("{command:?} took longer than {TIMEOUT:?}");
    }
    let output = waiting.join().unwrap();
    if let Some(writer) = writer {
        writer.join().unwrap();
    }
    Ran {
        raw: output.status.into_raw(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        took: begun.elapsed(),
    }
}

/// Sends a signal to one process.
pub fn signal(pid: u32, number: i32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    let signal = rustix::process::Signal::from_named_raw(number).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// The state letter of a process in /proc; `None` if it is gone.
pub fn process_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 2..].chars().next()
}

/// Waits until something holds.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a program that was written just now. Another thread's child may still have it open for writing,
/// which it inherited, until it executes something itself.
pub fn spawn_written(command: &mut Command) -> Child {
    let until = Instant::now() + TIMEOUT;
    loop {
        match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                assert!(Instant::now() < until, "{command:?}: {error}");
                std::thread::sleep(Duration::from_millis(5));
            }
            spawned => return spawned.unwrap(),
        }
    }
}

/// Starts a command whose output is read line by line.
pub fn start(mut command: Command) -> (Child, std::io::Lines<BufReader<std::process::ChildStdout>>) {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

/// Whether anything can record here: root on a kernel with BPF or tracefs.
#[track_caller]
pub fn can_record() -> bool {
    let ran = Case::new().headstart(&["record", "-o", "t.trace", "--", "true"]);
    needs(
        &format!("something that can record: {}", ran.err),
        ran.code() == 0,
    )
}

/// The children of a process that are headstart too.
pub fn workers(pid: u32) -> Vec<u32> {
    children(pid)
        .into_iter()
        // A child that is held is headstart by name as well, but has not a session of its own.
        .filter(|child| session(*child) == Some(*child))
        .collect()
}

/// The children of a process of one thread.
pub fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|c| c.parse().ok()).collect()
}

fn session(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(3)?.parse().ok()
}

/// A headstart whose worker is stopped, so that its command waits at the barrier until the worker may go on.
pub struct Holding {
    pub headstart: Child,
    pub worker: u32,
    pub command: u32,
}

impl Holding {
    /// Starts headstart with these words, and stops its worker before it is ready.
    pub fn start(case: &Case, words: &[&str]) -> Holding {
        // Whoever is on time only once in a while still comes to it.
        for _ in 0..200 {
            let (mut headstart, _) = start(case.command(words));
            let pid = headstart.id();
            while headstart.try_wait().unwrap().is_none() {
                let (workers, children) = (workers(pid), children(pid));
                let command = children.into_iter().find(|child| !workers.contains(child));
                if let (Some(worker), Some(command)) = (workers.first().copied(), command) {
                    signal(worker, 19);
                    eventually("the worker stops", || process_state(worker) == Some('T'));
                    let holding = Holding {
                        headstart,
                        worker,
                        command,
                    };
                    // What it wrote before it was stopped is read in no time.
                    std::thread::sleep(Duration::from_millis(100));
                    match std::fs::read_link(format!("/proc/{command}/exe")) {
                        Ok(exe) if std::fs::canonicalize(binary()).is_ok_and(|own| own == exe) => {
                            return holding;
                        }
                        _ => break,
                    }
                }
            }
        }
        panic!("the worker was always ready sooner than it could be stopped");
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        // Whatever a test found, nothing of it stays; the worker is gone if it went on already.
        if process_state(self.worker) == Some('T') {
            signal(self.worker, 18);
        }
        let _ = self.headstart.kill();
        let _ = self.headstart.wait();
    }
}

/// No user that anybody has files of.
pub const NOBODY: u32 = 65534;

/// A process of [`NOBODY`]'s that has leased a file of that user's, and gives it up for nobody.
pub fn lease(path: &Path) -> Process {
    let lease = "import fcntl, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
fcntl.fcntl(0, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('leased', flush=True)
time.sleep(1000)
";
    let mut python = Command::new("python3");
    python
        .args(["-c", lease])
        .stdin(std::fs::File::open(path).unwrap())
        .stdout(Stdio::piped());
    python.uid(NOBODY).gid(NOBODY).current_dir("/");
    let mut process = Process(python.spawn().unwrap());
    let mut line = String::new();
    let output = process.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    assert_eq!(line, "leased\n");
    process
}
