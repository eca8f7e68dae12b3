//! Programs whose files lie on a remote file system: FUSE of root's, whose server is slow, or answers no
//! more. No thread of the daemon waits for it.

use crate::common::{Case, eventually, needs, signal};
use crate::harness::*;
use headstart_model::Key;
use headstart_model::outcome::{Mode, Outcome, StageOutcome};
use headstart_system::testing::LoopFs;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What is there: a program, and so many files of 64 KiB.
const FILES: usize = 40;

/// A file system whose server a test makes slow or silent: the one of the kernels' tests.
struct SlowFiles {
    server: PathBuf,
    source: PathBuf,
    point: PathBuf,
    control: PathBuf,
}

impl SlowFiles {
    fn new(case: &Case) -> SlowFiles {
        let slow = SlowFiles {
            server: case.path("slow-files"),
            source: case.path("source"),
            point: case.path("net"),
            control: case.path("server"),
        };
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/kernels/slow-files.c");
        let mut compiler = Command::new("cc");
        run({
            compiler
                .args(["-O1", "-pthread", "-o"])
                .arg(&slow.server)
                .arg(text);
            compiler
        });
        fs::create_dir(&slow.source).unwrap();
        fs::create_dir(&slow.point).unwrap();
        fs::copy("/bin/cat", slow.source.join("one")).unwrap();
        for file in 0..FILES {
            fs::write(slow.source.join(format!("one-{file:02}")), vec![7; 64 << 10]).unwrap();
        }
        slow.mount(2);
        slow
    }

    /// Each answer takes so long, milliseconds; or there are no answers.
    fn answers(&self, after_ms: u32, at_all: bool) {
        let numbers = format!("{} 0 {}\n", after_ms * 1000, u8::from(!at_all));
        // In one step, so that the server reads no half of it.
        let new = self.control.with_extension("new");
        fs::write(&new, numbers).unwrap();
        fs::rename(new, &self.control).unwrap();
    }

    /// A start of the program there, of which nothing is in memory.
    fn start(&self) {
        self.mount_anew(5);
        let mut command = Command::new(self.point.join("one"));
        command.args(self.files()).stdout(Stdio::null());
        run(command);
    }

    /// Mounted anew: nothing of it is in memory.
    fn mount(&self, after_ms: u32) {
        self.answers(0, true);
        // What it was asked for before is another's.
        let _ = fs::remove_file(self.control.with_extension("log"));
        let mut server = Command::new(&self.server);
        server
            .args([&self.source, &self.point, &self.control])
            .arg("0")
            .stdout(Stdio::null());
        run(server);
        self.answers(after_ms, true);
    }

    fn mount_anew(&self, after_ms: u32) {
        self.unmount();
        self.mount(after_ms);
    }

    fn unmount(&self) {
        let mut unmount = Command::new("umount");
        unmount.arg("-l").arg(&self.point).stderr(Stdio::null());
        // Whatever a test found, nothing stays mounted.
        let _ = unmount.status();
    }

    fn files(&self) -> Vec<PathBuf> {
        let file = |file| self.point.join(format!("one-{file:02}"));
        (0..FILES).map(file).collect()
    }
}

impl Drop for SlowFiles {
    fn drop(&mut self) {
        self.answers(0, true);
        self.unmount();
    }
}

/// A script on a local disk that reads the remote files if it is told to, and has the server fall silent
/// amid what is read ahead if it is told to. It takes so long that the daemon sees it.
fn script(fs: &LoopFs, slow: &SlowFiles) -> (PathBuf, Key) {
    let path = fs.mount_point().join("script");
    let text = format!(
        "#!/bin/sh\n[ -z \"$READS\" ] || cat {}/one-* >/dev/null\n\
         sleep 0.2\n[ -n \"$SILENCES\" ] || exit 0\n\
         n=0\nuntil grep -q ^read {1}.log || [ $n = 500 ]; do sleep 0.01; n=$((n + 1)); done\n\
         echo 0 0 1 >{1}\nsleep 0.1\n",
        slow.point.display(),
        slow.control.display()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    let shell = fs::canonicalize("/bin/sh").unwrap();
    let key = format!("{} {}", shell.display(), path.display());
    (path, Key::new(key).unwrap())
}

fn sum(outcome: &Outcome, pages: fn(&StageOutcome) -> u64) -> u64 {
    outcome.stages.iter().map(pages).sum()
}

fn can_mount_slowly() -> bool {
    can_watch() && needs("/dev/fuse", Path::new("/dev/fuse").exists())
}

#[test]
fn a_program_on_a_remote_file_system_is_learned_and_read_ahead() {
    if !can_mount_slowly() {
        return;
    }
    let case = Case::new();
    let slow = SlowFiles::new(&case);
    let key = Key::new(slow.point.join("one").to_string_lossy()).unwrap();
    let daemon = Daemon::start(&case);
    slow.start();
    assert_eq!(kept(&case, &key, 1)[0].mode, Mode::Record);
    for turn in 2..=3 {
        slow.start();
        let last = kept(&case, &key, turn).pop().unwrap();
        assert_eq!((last.mode, &last.not_learned), (Mode::Replay, &None));
        let pages = FILES as u64 * 16;
        assert!(sum(&last, |stage| stage.arrived_pages) >= pages, "{last:?}");
        assert!(sum(&last, |stage| stage.missed_pages) <= pages / 20, "{last:?}");
    }
    let said = daemon.stop();
    assert!(!said.contains("did not answer"), "{said}");
}

/// Has the daemon learn the script by a start that reads its files.
fn learn(case: &Case, path: &Path, key: &Key) {
    let mut start = Command::new(path);
    start.env("READS", "yes");
    run(start);
    assert_eq!(kept(case, key, 1)[0].not_learned, None);
}

/// Learns the script, and has the server fall silent by what `falls_silent` does with a start of it.
fn serves_on(falls_silent: impl Fn(&SlowFiles, Command)) {
    if !can_mount_slowly() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let slow = SlowFiles::new(&case);
    let (path, key) = script(&fs, &slow);
    let daemon = Daemon::start(&case);
    learn(&case, &path, &key);
    slow.mount_anew(100);
    falls_silent(&slow, Command::new(&path));
    // Another program is learned and read ahead as ever, and what cannot be read is given up.
    assert_eq!(start_until_kept(&case, &fs, "one").mode, Mode::Record);
    assert_eq!(start_until_kept(&case, &fs, "one").mode, Mode::Replay);
    let last = kept(&case, &key, 2).pop().unwrap();
    assert_eq!(last.mode, Mode::Replay);
    let begun = Instant::now();
    let said = daemon.stop();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let point = slow.point.display();
    assert!(
        said.contains(&format!("{point} did not answer")),
        "{said} {last:?}"
    );
    slow.answers(0, true);
    eventually("none of its processes is left", || case.processes().is_empty());
}

#[test]
fn a_server_that_falls_silent_amid_a_replay_keeps_nobody() {
    serves_on(|slow, start| {
        slow.answers(0, false);
        run(start);
    });
}

#[test]
fn a_server_that_falls_silent_before_a_finish_keeps_nobody() {
    serves_on(|_, mut start| {
        start.env("SILENCES", "yes");
        run(start);
    });
}

#[test]
fn a_daemon_ends_while_a_server_is_silent() {
    if !can_mount_slowly() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let slow = SlowFiles::new(&case);
    let (path, key) = script(&fs, &slow);
    let daemon = Daemon::start(&case);
    learn(&case, &path, &key);
    slow.mount_anew(0);
    slow.answers(0, false);
    run(Command::new(&path));
    // At once, whatever it does with that start now.
    let begun = Instant::now();
    daemon.stop();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    slow.answers(0, true);
    eventually("none of its processes is left", || case.processes().is_empty());
}

#[test]
fn the_process_that_forks_for_remote_files_is_replaced_when_it_is_killed() {
    if !can_mount_slowly() {
        return;
    }
    let case = Case::new();
    let slow = SlowFiles::new(&case);
    let key = Key::new(slow.point.join("one").to_string_lossy()).unwrap();
    let daemon = Daemon::start(&case);
    slow.start();
    assert_eq!(kept(&case, &key, 1)[0].mode, Mode::Record);
    let child_of = |parent: u32| {
        let text = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
        let children: Vec<u32> = text.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
        <[u32; 1]>::try_from(children).ok().map(|[child]| child)
    };
    let keeper = child_of(daemon.child.id()).unwrap();
    let forks = child_of(keeper).unwrap();
    signal(forks, 9);
    eventually("it is forked anew", || {
        child_of(keeper).is_some_and(|new| new != forks)
    });
    slow.start();
    let last = kept(&case, &key, 2).pop().unwrap();
    assert_eq!(last.mode, Mode::Replay);
    assert!(
        sum(&last, |stage| stage.arrived_pages) >= FILES as u64 * 16,
        "{last:?}"
    );
    daemon.stop();
}
