//! `headstart daemon`, on private file systems that are cold when they are to be. Needs root, loop devices, and Linux 6.12 with BPF.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Case, binary, can_record, eventually, finish, is_root, signal};
use headstart_model::outcome::{Mode, Outcome};
use headstart_model::{Key, Trace};
use headstart_store::Store;
use headstart_system::residency::resident_pages;
use headstart_system::testing::{LoopFs, Mounted, Spec, can_mount};
use serde_json::{Value, json};
use std::fs::{self, File};
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

/// No user that anybody has files of.
const NOBODY: u32 = 65534;

/// A daemon that notices starts.
struct Daemon {
    _alone: MutexGuard<'static, ()>,
    child: Child,
}

impl Daemon {
    /// Learns what waits for a millisecond, and replays all cold starts.
    fn start(case: &Case) -> Daemon {
        Daemon::start_by(case, Command::new(binary()), &["--no-control"])
    }

    /// The same, listening at a socket of this test's.
    fn start_with_control(case: &Case) -> (Daemon, UnixStream) {
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

    fn start_by(case: &Case, mut command: Command, words: &[&str]) -> Daemon {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = case.path("notify");
        let _ = fs::remove_file(&socket);
        let manager = UnixDatagram::bind(&socket).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        if words.contains(&"--no-control") {
            command.stdin(Stdio::null());
        }
        // Not through env(1), whose number this would be.
        let child = command
            .args(["daemon", "--least-wait", "1", "--control-every", "0"])
            .args(words)
            .env("HEADSTART_STATE", case.state())
            .env("NOTIFY_SOCKET", &socket)
            .env("WATCHDOG_USEC", "1000000")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let daemon = Daemon { _alone: alone, child };
        let mut heard = [0; 256];
        let length = manager.recv(&mut heard).unwrap();
        assert!(heard[..length].starts_with(b"READY=1"), "{heard:?}");
        let length = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"WATCHDOG=1");
        daemon
    }

    /// Ends it, which must go well; gives what it said.
    fn stop(mut self) -> String {
        assert!(self.child.try_wait().unwrap().is_none(), "it has ended by itself");
        signal(self.child.id(), 15);
        let mut said = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{said}");
        said
    }

    /// Its private memory, KiB.
    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        line.unwrap().trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn can_watch() -> bool {
    can_mount() && can_record()
}

/// A file system with a program `NAME` for each name, and twenty files of 1 MiB for each.
fn disk(names: &[&str]) -> LoopFs {
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

fn files(fs: &LoopFs, name: &str) -> Vec<PathBuf> {
    let at = fs.mount_point();
    (0..20).map(|file| at.join(format!("{name}-{file:02}"))).collect()
}

fn command(fs: &LoopFs, name: &str) -> Command {
    let mut command = Command::new(fs.mount_point().join(name));
    command
        .args(files(fs, name))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

fn evict(paths: &[PathBuf]) {
    for path in paths {
        let file = File::open(path).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
}

fn key(fs: &LoopFs, name: &str) -> Key {
    Key::new(fs.mount_point().join(name).to_string_lossy()).unwrap()
}

fn outcomes(case: &Case, key: &Key) -> Vec<Outcome> {
    Store::new(case.state())
        .key(key)
        .outcomes(|line| panic!("{line}"))
}

/// How many starts are finished: who started it is noted last, when the next plan is there.
fn finished(case: &Case, key: &Key) -> u64 {
    let users = Store::new(case.state()).key(key).users();
    users.iter().map(|user| user.starts).sum()
}

/// Waits until so many starts are finished, and gives them.
#[track_caller]
fn kept(case: &Case, key: &Key, count: usize) -> Vec<Outcome> {
    eventually(&format!("{count} starts of {key} are finished"), || {
        finished(case, key) >= count as u64
    });
    let all = outcomes(case, key);
    assert_eq!(all.len(), count);
    all
}

fn last_trace(case: &Case, key: &Key) -> Trace {
    let kept = Store::new(case.state()).key(key);
    let path = kept.traces().pop().unwrap();
    kept.trace(&path).or_tell(|line| panic!("{line}")).unwrap()
}

#[test]
fn the_second_slow_start_is_read_ahead_and_another_instance_is_not() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one", "other"]);
    let daemon = Daemon::start(&case);
    let one = key(&fs, "one");
    assert!(command(&fs, "one").status().unwrap().success());
    let first = &kept(&case, &one, 1)[0];
    assert_eq!((first.mode, first.status), (Mode::Record, Some(0)));
    assert_eq!(first.not_learned, None);
    fs.remount_cold().unwrap();
    assert!(command(&fs, "one").status().unwrap().success());
    let second = &kept(&case, &one, 2)[1];
    assert_eq!(second.mode, Mode::Replay);
    let sum = |pages: fn(&headstart_model::outcome::StageOutcome) -> u64| {
        second.stages.iter().map(pages).sum::<u64>()
    };
    let all = 20 * 256;
    assert!(sum(|s| s.issued_pages) >= all, "{second:?}");
    // On so fast a disk some are used before they have come.
    assert!(
        sum(|s| s.used_pages) + sum(|s| s.late_pages) >= all * 95 / 100,
        "{second:?}"
    );
    assert!(sum(|s| s.missed_pages) <= all / 20, "{second:?}");
    // One that goes on running, and another instance that would have to read all of it again.
    fs.remount_cold().unwrap();
    let mut runs = command(&fs, "one")
        .arg("-")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(kept(&case, &one, 3)[2].mode, Mode::Replay);
    evict(&files(&fs, "one"));
    assert!(command(&fs, "one").status().unwrap().success());
    // What is finished is finished in its turn.
    assert!(command(&fs, "other").status().unwrap().success());
    kept(&case, &key(&fs, "other"), 1);
    assert_eq!(
        outcomes(&case, &one).len(),
        3,
        "of the other instance nothing is kept"
    );
    drop(runs.stdin.take());
    assert!(runs.wait().unwrap().success());
    let said = daemon.stop();
    assert!(!said.contains("of programs that ran already: 0;"), "{said}");
}

#[test]
fn a_program_that_does_not_wait_is_not_learned() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one", "other"]);
    assert!(command(&fs, "one").status().unwrap().success());
    let daemon = Daemon::start(&case);
    for _ in 0..3 {
        assert!(command(&fs, "one").status().unwrap().success());
    }
    // One that has to read, so that what ended before has been judged.
    evict(&files(&fs, "other"));
    assert!(command(&fs, "other").status().unwrap().success());
    kept(&case, &key(&fs, "other"), 1);
    assert!(!Store::new(case.state()).key(&key(&fs, "one")).exists());
    daemon.stop();
}

#[test]
fn programs_that_start_together_are_told_apart() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one", "two"]);
    let daemon = Daemon::start(&case);
    for round in 1..=5 {
        fs.remount_cold().unwrap();
        let children = ["one", "two"].map(|name| command(&fs, name).spawn().unwrap());
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        for (name, foreign) in [("one", "two"), ("two", "one")] {
            let key = key(&fs, name);
            kept(&case, &key, round);
            let trace = last_trace(&case, &key);
            let of = |name: &str| {
                let prefix = fs.mount_point().join(name).to_string_lossy().into_owned();
                let its = |file: u32| trace.files[file as usize].path.to_string().starts_with(&prefix);
                let pages = trace.uses.iter().filter(|one| its(one.file));
                pages.map(|one| u64::from(one.pages)).sum::<u64>()
            };
            assert!(of(name) >= 20 * 256);
            assert_eq!(of(foreign), 0);
        }
    }
    daemon.stop();
}

/// Calls a method, which must go well, and gives what it returns.
fn call(stream: &mut UnixStream, method: &str, parameters: Value) -> Value {
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

#[test]
fn an_operation_is_learned_and_read_ahead_like_a_start() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let disk = disk(&["one"]);
    let (daemon, mut control) = Daemon::start_with_control(&case);
    let key = Key::new("operation load of user 0").unwrap();
    for (turn, mode) in [Mode::Record, Mode::Replay].into_iter().enumerate() {
        evict(&files(&disk, "one"));
        let begun = call(&mut control, "BeginOperation", json!({ "name": "load" }));
        // It is begun soon.
        std::thread::sleep(Duration::from_millis(300));
        for file in files(&disk, "one") {
            assert_eq!(fs::read(file).unwrap().len(), 1 << 20);
        }
        call(&mut control, "EndOperation", json!({ "id": begun["id"] }));
        let last = &kept(&case, &key, turn + 1)[turn];
        assert_eq!((last.mode, &last.not_learned), (mode, &None));
    }
    let trace = last_trace(&case, &key);
    let pages: u64 = trace.uses.iter().map(|one| u64::from(one.pages)).sum();
    assert!(pages >= 20 * 256, "{pages}");
    daemon.stop();
}

#[test]
fn what_root_reads_is_not_read_for_another_user() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one"]);
    let point = fs.mount_point();
    let private = point.join("one-00");
    fs::set_permissions(&private, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    // The user has to get there.
    for directory in point
        .ancestors()
        .skip(1)
        .take_while(|path| *path != Path::new("/"))
    {
        let mode = fs::metadata(directory).unwrap().permissions();
        let open = std::os::unix::fs::PermissionsExt::mode(&mode) | 0o711;
        let _ = fs::set_permissions(directory, std::os::unix::fs::PermissionsExt::from_mode(open));
    }
    let daemon = Daemon::start(&case);
    let one = key(&fs, "one");
    assert!(command(&fs, "one").status().unwrap().success());
    kept(&case, &one, 1);
    fs.remount_cold().unwrap();
    let mut theirs = Command::new(point.join("one"));
    theirs.args(&files(&fs, "one")[1..]).uid(NOBODY).gid(NOBODY);
    assert!(
        theirs
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    let of_nobody = Key::new(format!("{one} of user {NOBODY}")).unwrap();
    assert_eq!(kept(&case, &of_nobody, 1)[0].mode, Mode::Record);
    let file = File::open(&private).unwrap();
    assert_eq!(resident_pages(&file, 0, 1 << 20).unwrap(), 0);
    let users = Store::new(case.state()).key(&of_nobody).users();
    assert_eq!((users.len(), users[0].uid), (1, NOBODY));
    daemon.stop();
}

#[test]
fn a_storm_of_executions_leaves_it_as_it_was() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let daemon = Daemon::start(&case);
    // Programs without a name in any directory, and many that have one.
    let memory = rustix::fs::memfd_create("program", rustix::fs::MemfdFlags::empty()).unwrap();
    File::from(memory.try_clone().unwrap())
        .write_all(&fs::read("/bin/true").unwrap())
        .unwrap();
    let path = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        std::os::fd::AsRawFd::as_raw_fd(&memory)
    );
    for _ in 0..100 {
        assert!(Command::new(&path).status().unwrap().success());
    }
    let programs = case.path("programs");
    fs::create_dir(&programs).unwrap();
    let script = "i=0; while [ $i -lt 300 ]; do cp /bin/true $1/$i; $1/$i; $1/$i; rm $1/$i; i=$((i+1)); done; \
                  while [ $i -lt 2000 ]; do /bin/true; i=$((i+1)); done";
    let mut storms: Vec<Child> = (0..4)
        .map(|turn| {
            let own = programs.join(turn.to_string());
            fs::create_dir(&own).unwrap();
            Command::new("sh")
                .args(["-c", script, "storm"])
                .arg(&own)
                .spawn()
                .unwrap()
        })
        .collect();
    for storm in &mut storms {
        assert!(storm.wait().unwrap().success());
    }
    assert!(daemon.memory() < 64 << 10, "{} KiB", daemon.memory());
    // Slots and turns are there again.
    let one = key(&fs, "one");
    eventually("a start is recorded again", || {
        evict(&files(&fs, "one"));
        assert!(command(&fs, "one").status().unwrap().success());
        std::thread::sleep(Duration::from_millis(100));
        !outcomes(&case, &one).is_empty()
    });
    daemon.stop();
}

#[test]
fn a_daemon_killed_at_any_moment_leaves_its_state_whole() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let one = key(&fs, "one");
    let mut chance = 4711u64;
    for _ in 0..12 {
        let mut daemon = Daemon::start(&case);
        evict(&files(&fs, "one"));
        let mut child = command(&fs, "one").spawn().unwrap();
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_micros((chance >> 33) % 300_000));
        daemon.child.kill().unwrap();
        assert!(child.wait().unwrap().success());
        daemon.child.wait().unwrap();
        // Complains of whatever is not whole.
        let status = case.headstart(&["status", "--json"]);
        assert_eq!((status.code(), &*status.err), (0, ""));
    }
    let before = finished(&case, &one);
    let daemon = Daemon::start(&case);
    for turn in 1..=2 {
        evict(&files(&fs, "one"));
        assert!(command(&fs, "one").status().unwrap().success());
        eventually("it is finished", || finished(&case, &one) == before + turn);
    }
    assert_eq!(outcomes(&case, &one).last().unwrap().mode, Mode::Replay);
    daemon.stop();
    let leftovers = fs::read_dir(Store::new(case.state()).key(&one).path()).unwrap();
    for entry in leftovers {
        let name = entry.unwrap().file_name();
        assert!(!name.to_string_lossy().starts_with(".tmp-"), "{name:?}");
    }
}

#[test]
fn a_state_directory_that_is_full_or_read_only_keeps_nothing_and_harms_nobody() {
    if !can_watch() {
        return;
    }
    let fs = disk(&["one"]);
    for options in ["size=64k", "ro,size=64k"] {
        let case = Case::new();
        let mounted = Mounted::new(&["-t", "tmpfs", "-o", options, "none"], &case.state()).unwrap();
        if !options.starts_with("ro") {
            // As far as it goes.
            let _ = fs::write(case.state().join("full"), vec![0; 64 << 10]);
        }
        let daemon = Daemon::start(&case);
        for _ in 0..3 {
            evict(&files(&fs, "one"));
            assert!(command(&fs, "one").status().unwrap().success());
        }
        // What has ended by now is finished, or tried, before the daemon ends; the others wait in vain.
        std::thread::sleep(Duration::from_millis(500));
        let said = daemon.stop();
        assert!(said.contains("cannot") && !said.contains("panicked"), "{said}");
        assert!(!said.contains("not kept: 0;"), "{said}");
        assert!(outcomes(&case, &key(&fs, "one")).is_empty());
        drop(mounted);
    }
}

#[test]
fn a_daemon_that_is_stopped_delays_no_execution() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let daemon = Daemon::start(&case);
    evict(&files(&fs, "one"));
    assert!(command(&fs, "one").status().unwrap().success());
    kept(&case, &key(&fs, "one"), 1);
    signal(daemon.child.id(), 19);
    // More than there are slots; `finish` bounds how long this may take.
    let mut many = Command::new("sh");
    many.args(["-c", "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done"]);
    assert_eq!(finish(many, b"").code(), 0);
    evict(&files(&fs, "one"));
    assert_eq!(finish(command(&fs, "one"), b"").code(), 0);
    signal(daemon.child.id(), 18);
    daemon.stop();
}

#[test]
fn without_the_right_to_it_says_why_in_one_line() {
    if !is_root() {
        return;
    }
    // The binary may lie where others cannot go.
    let case = Case::new();
    let copy = Path::new("/var/tmp").join(format!("headstart-test-{}", std::process::id()));
    fs::copy(binary(), &copy).unwrap();
    let mut command = Command::new(&copy);
    command.args(["daemon", "--no-control"]).uid(NOBODY).gid(NOBODY);
    command.env("HEADSTART_STATE", "/nowhere").current_dir("/");
    let ran = finish(command, b"");
    fs::remove_file(&copy).unwrap();
    ran.refused(&["CAP_BPF"]);
    drop(case);
}
