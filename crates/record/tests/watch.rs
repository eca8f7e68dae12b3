//! Many starts at a time, noticed as they begin. These need root and Linux 6.12 with BTF.

#![allow(clippy::unwrap_used)] // Helpers of tests may fail as tests do.

mod support;

use headstart_model::trace::{EndReason, Trace};
use headstart_record::{Answer, Executable, Noticed, Recorded, Standing, Watch};
use headstart_system::testing::ControlGroup;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use support::*;

/// One test at a time: each sees what the others start, and there are only so many slots and turns.
static ALONE: Mutex<()> = Mutex::new(());

/// A watch that records what is executed below a directory, and what has come to its end.
struct Watched {
    _alone: MutexGuard<'static, ()>,
    watch: Watch,
    dir: PathBuf,
    noticed: Vec<Noticed>,
    ended: Vec<Recorded>,
}

impl Watched {
    fn below(dir: &Path) -> Watched {
        Watched {
            _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
            watch: Watch::start().unwrap(),
            dir: dir.to_owned(),
            noticed: Vec::new(),
            ended: Vec::new(),
        }
    }

    fn drain(&mut self) {
        let (dir, noticed) = (self.dir.as_os_str().as_bytes(), &mut self.noticed);
        let mut others = Vec::new();
        let ended = self.watch.drain(&mut |start| {
            if !start.path.as_ref().is_some_and(|path| path.starts_with(dir)) {
                others.push(start.program);
                return Answer::Leave;
            }
            noticed.push(start.clone());
            Answer::Record {
                command: vec![],
                replayed: false,
                open_for: Duration::ZERO,
            }
        });
        self.ended.extend(ended.unwrap());
        // What else goes on on this machine is to leave room.
        for program in others {
            let forever = Standing::IgnoredUntil(u64::MAX);
            self.watch.set_standing(program, forever).unwrap();
        }
    }

    /// Drains until so many starts have come to their end.
    fn until_ended(&mut self, count: usize) {
        let begun = Instant::now();
        while self.ended.len() < count {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{} ended",
                self.ended.len()
            );
            self.drain();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Drains for so long.
    fn for_a_while(&mut self) {
        for _ in 0..50 {
            self.drain();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn traces(&mut self) -> Vec<Trace> {
        self.ended.drain(..).map(|ended| ended.trace().unwrap()).collect()
    }
}

fn program(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    fs::copy("/bin/cat", &path).unwrap();
    path
}

fn file(dir: &Path, name: &str, pages: usize) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, vec![1; pages * 4096]).unwrap();
    path
}

fn start(program: &Path, arguments: &[&Path]) -> std::process::Child {
    Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Pages of each file of a trace, by name.
fn pages(trace: &Trace) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = trace
        .files
        .iter()
        .map(|file| (file.path.to_string(), 0))
        .collect();
    for one in &trace.uses {
        all[one.file as usize].1 += u64::from(one.pages);
    }
    all
}

fn of_file(trace: &Trace, path: &Path) -> u64 {
    let path = path.to_string_lossy();
    pages(trace)
        .iter()
        .filter(|(name, _)| *name == path)
        .map(|(_, pages)| pages)
        .sum()
}

#[test]
fn a_start_is_recorded_from_its_first_instant_to_the_end_of_its_tree() {
    if !can_record() {
        return;
    }
    let (_lab, disk, _) = Lab::with_disk("ext4");
    let (shell, a, b) = (disk.join("sh"), file(&disk, "a", 40), file(&disk, "b", 7));
    fs::copy("/bin/sh", &shell).unwrap();
    let mut watched = Watched::below(&disk);
    let script = format!("/bin/cat {}; /bin/cat {}; exit 3", a.display(), b.display());
    let mut child = Command::new(&shell)
        .args(["-c", &script])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    watched.until_ended(1);
    let ended = &watched.ended[0];
    assert_eq!(ended.reason, EndReason::Exit(3 << 8));
    assert_eq!(watched.noticed.len(), 1, "what it executes is part of it");
    assert_eq!(watched.noticed[0].pid, child.id());
    let trace = watched.traces().remove(0);
    assert_eq!((of_file(&trace, &a), of_file(&trace, &b)), (40, 7));
    assert!(of_file(&trace, &shell) > 0);
    assert_eq!(trace.processes.len(), 3, "{:?}", trace.processes);
    assert_eq!(trace.lost.events, 0);
    let executables: Vec<String> = trace.processes.iter().map(|p| p.executable.to_string()).collect();
    assert_eq!(executables[0], shell.to_string_lossy());
    assert!(executables[1].ends_with("/cat"), "{executables:?}");
}

/// A shell with a script that reads a line before it goes on.
fn waiting(shell: &Path, script: &str) -> Child {
    Command::new(shell)
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Gives it the line; it must end well.
fn go_on(mut child: Child) {
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_is_executed_in_another_control_group_is_a_start_of_its_own() {
    if !can_record() {
        return;
    }
    let (_lab, disk, _) = Lab::with_disk("ext4");
    let (shell, one, two) = (disk.join("sh"), program(&disk, "one"), program(&disk, "two"));
    fs::copy("/bin/sh", &shell).unwrap();
    let (a, b, c) = (file(&disk, "a", 40), file(&disk, "b", 20), file(&disk, "c", 7));
    let mut watched = Watched::below(&disk);
    let group = ControlGroup::new("headstart-test").unwrap();
    // As `systemd-run --scope` does, and whoever logs somebody in.
    let script = format!(
        "cat {a}; read line; (echo 0 >{group}/cgroup.procs; exec {one} {b}); {two} {c}; exit 0",
        a = a.display(),
        b = b.display(),
        c = c.display(),
        one = one.display(),
        two = two.display(),
        group = group.path().display(),
    );
    let child = waiting(&shell, &script);
    watched.for_a_while();
    assert_eq!(watched.watch.recorded(), 1);
    go_on(child);
    watched.until_ended(2);
    let noticed: Vec<&Path> = watched
        .noticed
        .iter()
        .map(|noticed| Path::new(std::ffi::OsStr::from_bytes(noticed.path.as_ref().unwrap())))
        .collect();
    assert_eq!(noticed, [&*shell, &*one]);
    for trace in watched.traces() {
        let whose = trace.processes[0].executable.to_string();
        let seen = [&a, &b, &c].map(|path| of_file(&trace, path));
        match whose == one.to_string_lossy() {
            true => assert_eq!(seen, [0, 20, 0], "{whose}"),
            false => assert_eq!(seen, [40, 0, 7], "{whose}"),
        }
    }
}

#[test]
fn a_start_that_moves_itself_to_another_control_group_stays_one() {
    if !can_record() {
        return;
    }
    let (_lab, disk, _) = Lab::with_disk("ext4");
    let (shell, one) = (disk.join("sh"), program(&disk, "one"));
    fs::copy("/bin/sh", &shell).unwrap();
    let (a, b) = (file(&disk, "a", 40), file(&disk, "b", 20));
    let mut watched = Watched::below(&disk);
    let group = ControlGroup::new("headstart-test").unwrap();
    // As flatpak and snap do, and desktops with what they start.
    let script = format!(
        "cat {a}; read line; echo $$ >{group}/cgroup.procs; exec {one} {b}",
        a = a.display(),
        b = b.display(),
        one = one.display(),
        group = group.path().display(),
    );
    let child = waiting(&shell, &script);
    watched.for_a_while();
    go_on(child);
    watched.until_ended(1);
    assert_eq!(watched.noticed.len(), 1);
    assert_eq!(watched.ended[0].user, 0);
    let trace = watched.traces().remove(0);
    assert_eq!([&a, &b].map(|path| of_file(&trace, path)), [40, 20]);
}

#[test]
fn it_is_told_that_another_user_executed_something_in_a_start() {
    if !can_record() {
        return;
    }
    let (lab, disk, _) = Lab::with_disk("ext4");
    for dir in [&lab.dir, &disk] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (shell, one, a) = (disk.join("sh"), program(&disk, "one"), file(&disk, "a", 4));
    fs::copy("/bin/sh", &shell).unwrap();
    let mut watched = Watched::below(&disk);
    let (one, a) = (one.display(), a.display());
    // A person counts before nobody, whose number is higher.
    let by = |user: u32| format!("setpriv --reuid {user} --clear-groups {one} {a}");
    let script = format!("read line; {}; {}; {one} {a}", by(4321), by(65534));
    let child = waiting(&shell, &script);
    watched.for_a_while();
    go_on(child);
    watched.until_ended(1);
    assert_eq!((watched.noticed[0].user, watched.ended[0].user), (0, 4321));
    // Who begins a start is told as the kernel saw it.
    let mut own = Command::new(disk.join("one"));
    own.arg(disk.join("a"))
        .uid(4321)
        .gid(4321)
        .current_dir("/")
        .stdout(Stdio::null());
    assert!(own.status().unwrap().success());
    watched.until_ended(2);
    assert_eq!(watched.noticed[1].user, 4321);
}

#[test]
fn look_ups_and_the_time_blocked_are_those_of_the_start() {
    if !can_record() {
        return;
    }
    let (_lab, disk, _) = Lab::with_disk("ext4");
    let (shell, large) = (disk.join("sh"), file(&disk, "large", 2000));
    fs::copy("/bin/sh", &shell).unwrap();
    rustix::fs::sync();
    let mut watched = Watched::below(&disk);
    let missing = disk.join("missing");
    let run = |watched: &mut Watched, script: String| {
        let mut child = Command::new(&shell)
            .args(["-c", &script])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        watched.until_ended(1);
        child.wait().unwrap();
        let blocked_ns = watched.ended[0].blocked_ns;
        (watched.traces().remove(0), blocked_ns)
    };
    // What tells of look-ups is attached once the start is known of.
    let looks = format!("sleep 0.5; [ -e {} ]", missing.display());
    let (trace, _) = run(&mut watched, looks);
    let is_it = |path: &headstart_model::FilePath| path.as_bytes() == missing.as_os_str().as_bytes();
    let found = trace.lookups.iter().find(|lookup| is_it(&lookup.path));
    assert_eq!(found.map(|lookup| lookup.found), Some(false));
    let cold = fs::File::open(&large).unwrap();
    rustix::fs::fadvise(&cold, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    let (trace, waited) = run(&mut watched, format!("/bin/cat {}", large.display()));
    assert!(waited > 0);
    assert_eq!(trace.end.blocked_ns, Some(waited));
    let (_, again) = run(&mut watched, format!("/bin/cat {}", large.display()));
    assert!(again < waited, "{again} of {waited}: now it is in memory");
}

#[test]
fn a_process_that_runs_already_is_recorded_when_it_is_asked_for() {
    if !can_record() {
        return;
    }
    let (_lab, disk, _) = Lab::with_disk("ext4");
    let (before, after) = (file(&disk, "before", 9), file(&disk, "after", 9));
    let mut watched = Watched::below(&disk);
    // Not from below the directory, so that nobody records it by itself.
    let script = format!(
        "cat {} > /dev/null; echo; read go; cat {} > /dev/null; echo; read end",
        before.display(),
        after.display()
    );
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut tell = child.stdin.take().unwrap();
    said.next().unwrap().unwrap();
    watched.for_a_while();
    let number = watched
        .watch
        .begin(&[child.id()], vec![], false)
        .unwrap()
        .unwrap();
    tell.write_all(b"go\n").unwrap();
    said.next().unwrap().unwrap();
    watched.drain();
    assert!(watched.watch.is_recorded(number));
    let ended = watched.watch.end(number, EndReason::Exit(0)).unwrap().unwrap();
    assert_eq!(ended.living, [child.id()]);
    assert!(watched.watch.end(number, EndReason::Exit(0)).unwrap().is_none());
    drop(tell);
    child.wait().unwrap();
    let trace = ended.trace().unwrap();
    assert_eq!((of_file(&trace, &before), of_file(&trace, &after)), (0, 9));
    assert!(
        watched.watch.begin(&[u32::MAX >> 2], vec![], false).is_err(),
        "no such process"
    );
    watched.for_a_while();
    assert_eq!(watched.watch.recorded(), 0);
}

#[test]
fn programs_started_together_have_each_their_own_pages() {
    if !can_record() {
        return;
    }
    let (_lab, disk, _) = Lab::with_disk("ext4");
    let programs = [program(&disk, "one"), program(&disk, "two")];
    let files = [file(&disk, "a", 300), file(&disk, "b", 300)];
    let shared = file(&disk, "shared", 20);
    let mut watched = Watched::below(&disk);
    for _ in 0..20 {
        let children = [0, 1].map(|i| start(&programs[i], &[&files[i], &shared]));
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        watched.until_ended(2);
        for trace in watched.traces() {
            let own = usize::from(of_file(&trace, &files[1]) > 0);
            assert_eq!(of_file(&trace, &files[own]), 300);
            assert_eq!(of_file(&trace, &files[1 - own]), 0);
            assert_eq!(of_file(&trace, &programs[1 - own]), 0);
            assert_eq!(of_file(&trace, &shared), 20, "each start sees what it uses");
            assert_eq!(trace.lost.events, 0);
        }
    }
}

#[test]
fn a_program_that_is_ignored_is_told_of_again_when_it_had_much_to_read() {
    if !can_record() {
        return;
    }
    let (_lab, disk, _) = Lab::with_disk("ext4");
    let (one, small, large) = (program(&disk, "one"), file(&disk, "s", 4), file(&disk, "l", 600));
    rustix::fs::sync();
    let cold = |path: &Path| {
        let file = fs::File::open(path).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    };
    let mut watched = Watched::below(&disk);
    let run = |watched: &mut Watched, path: &Path| {
        assert!(start(&one, &[path]).wait().unwrap().success());
        watched.for_a_while();
        watched.noticed.len()
    };
    assert_eq!(run(&mut watched, &small), 1);
    let program = watched.noticed[0].program;
    let forever = Standing::IgnoredUntil(u64::MAX);
    watched.watch.set_standing(program, forever).unwrap();
    assert_eq!(run(&mut watched, &small), 1);
    assert_eq!(run(&mut watched, &large), 1, "in memory");
    cold(&large);
    assert_eq!(run(&mut watched, &large), 1, "only afterwards is it known");
    assert_eq!(run(&mut watched, &small), 2);
    watched.watch.set_standing(program, Standing::Known).unwrap();
    assert_eq!(run(&mut watched, &small), 3);
}

#[test]
fn an_interpreter_is_as_many_programs_as_it_is_given() {
    if !can_record() {
        return;
    }
    let (_lab, disk, _) = Lab::with_disk("ext4");
    let (one, a, b) = (program(&disk, "one"), file(&disk, "a", 4), file(&disk, "b", 4));
    let mut watched = Watched::below(&disk);
    let run = |watched: &mut Watched, directory: &str, arguments: &[&str]| {
        let mut command = Command::new(&one);
        command.args(arguments).current_dir(directory);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .stdin(Stdio::null());
        command.status().unwrap();
        watched.for_a_while();
        watched.noticed.len()
    };
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    assert_eq!(run(&mut watched, "/", &[a]), 1);
    let executable = watched.noticed[0].executable;
    assert_eq!(watched.noticed[0].program, executable, "not known to be one yet");
    watched
        .watch
        .set_standing(executable, Standing::ByArguments)
        .unwrap();
    let ignore = |watched: &Watched| {
        let last = watched.noticed.last().unwrap();
        assert_ne!(last.program, executable);
        let forever = Standing::IgnoredUntil(u64::MAX);
        watched.watch.set_standing(last.program, forever).unwrap();
    };
    assert_eq!(run(&mut watched, "/", &[a]), 2);
    ignore(&watched);
    assert_eq!(run(&mut watched, "/tmp", &[a, b]), 2, "what it is told besides");
    assert_eq!(run(&mut watched, "/", &[b]), 3, "another script");
    assert_eq!(run(&mut watched, "/", &["-c", "one"]), 4);
    ignore(&watched);
    assert_eq!(
        run(&mut watched, "/", &["-c", "another"]),
        4,
        "all one-liners are alike"
    );
    assert_eq!(run(&mut watched, "/", &["-m", "one"]), 5);
    ignore(&watched);
    assert_eq!(run(&mut watched, "/", &["-m", "another"]), 6);
    assert_eq!(run(&mut watched, "/usr", &["relative"]), 7);
    ignore(&watched);
    assert_eq!(run(&mut watched, "/var", &["relative"]), 8, "another file");
}

#[test]
fn what_is_in_no_directory_and_what_another_namespace_runs_is_nobodys_start() {
    if !can_record() {
        return;
    }
    let (_lab, disk, _) = Lab::with_disk("ext4");
    let one = program(&disk, "one");
    let mut watched = Watched::below(&disk);
    let deleted = fs::File::open(&one).unwrap();
    fs::remove_file(&one).unwrap();
    use std::os::fd::AsRawFd;
    let by_descriptor = format!("/proc/{}/fd/{}", std::process::id(), deleted.as_raw_fd());
    assert!(
        Command::new(&by_descriptor)
            .arg("/dev/null")
            .status()
            .unwrap()
            .success()
    );
    watched.for_a_while();
    assert_eq!(watched.noticed.len(), 0);
    let two = program(&disk, "two");
    let before = watched.watch.counts().foreign;
    // In one that was made by somebody whose start is not recorded, as is known by then.
    let waits = disk.join("waits");
    let script = format!(
        "unshare --mount sh -c 'echo >{}; read line; exec {} /dev/null'",
        waits.display(),
        two.display()
    );
    let child = waiting(Path::new("/bin/sh"), &script);
    while !waits.exists() {
        watched.drain();
    }
    watched.for_a_while();
    go_on(child);
    watched.for_a_while();
    assert_eq!(watched.noticed.len(), 0);
    assert!(watched.watch.counts().foreign > before);
}

#[test]
fn what_a_start_executes_in_a_namespace_of_its_own_is_part_of_it_however_late_it_is_answered() {
    if !can_record() {
        return;
    }
    let (_lab, disk, _) = Lab::with_disk("ext4");
    let (shell, one) = (disk.join("sh"), program(&disk, "one"));
    fs::copy("/bin/sh", &shell).unwrap();
    let (a, b) = (file(&disk, "a", 40), file(&disk, "b", 20));
    let mut watched = Watched::below(&disk);
    // As a service does that shuts itself in: nobody has been answered by then.
    let script = format!(
        "cat {a}; unshare --mount {one} {b}; exit 0",
        a = a.display(),
        b = b.display(),
        one = one.display()
    );
    let mut child = Command::new(&shell)
        .args(["-c", &script])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success());
    watched.until_ended(1);
    assert_eq!(watched.noticed.len(), 1);
    let arguments = [shell.as_os_str().as_bytes(), b"\0-c\0", script.as_bytes(), b"\0"].concat();
    assert_eq!(watched.noticed[0].arguments, arguments);
    let trace = watched.traces().remove(0);
    assert_eq!([&a, &b].map(|path| of_file(&trace, path)), [40, 20]);
    let executed = trace
        .processes
        .iter()
        .map(|process| process.executable.to_string());
    assert!(executed.collect::<Vec<_>>().contains(&one.display().to_string()));
}

#[test]
fn arguments_are_told_up_to_a_bound() {
    if !can_record() {
        return;
    }
    let (_lab, disk, _) = Lab::with_disk("ext4");
    let one = program(&disk, "one");
    let mut watched = Watched::below(&disk);
    let long = "x".repeat(100_000);
    let mut child = Command::new(&one)
        .arg0("another")
        .args(["--", "/dev/null", &long])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.wait().unwrap();
    watched.until_ended(1);
    let told = &watched.noticed[0].arguments;
    assert_eq!(told.len(), 8 << 10);
    assert!(told.starts_with(b"another\0--\0/dev/null\0xxx"));
}

#[test]
fn more_starts_than_there_are_slots_are_counted_and_all_slots_are_given_again() {
    if !can_record() {
        return;
    }
    let (_lab, disk, _) = Lab::with_disk("ext4");
    let (one, a) = (program(&disk, "one"), file(&disk, "a", 4));
    let mut watched = Watched::below(&disk);
    assert!(start(&one, &[&a]).wait().unwrap().success());
    watched.until_ended(1);
    let program = watched.noticed[0].program;
    watched.watch.set_standing(program, Standing::Known).unwrap();
    for _ in 0..3 {
        watched.ended.clear();
        let before = watched.watch.counts().without_slot;
        // Nobody drains meanwhile.
        let children: Vec<_> = (0..50).map(|_| start(&one, &[&a])).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        // Others start programs, too.
        assert!(watched.watch.counts().without_slot - before >= 18);
        watched.until_ended(1);
        watched.for_a_while();
        assert!((1..=32).contains(&watched.ended.len()), "{}", watched.ended.len());
        assert_eq!(watched.watch.recorded(), 0);
    }
}

#[test]
fn a_known_program_that_was_never_seen_takes_no_turn() {
    if !can_record() {
        return;
    }
    let (_lab, disk, _) = Lab::with_disk("ext4");
    let [known, new, storm] = ["known", "new", "storm"].map(|name| program(&disk, name));
    let a = file(&disk, "a", 4);
    let mut watched = Watched::below(&disk);
    watched.watch.know(Executable::of(&known).unwrap()).unwrap();
    // Nobody drains meanwhile.
    for _ in 0..100 {
        assert!(start(&storm, &[&a]).wait().unwrap().success());
    }
    let mut children = [start(&new, &[&a]), start(&known, &[&a])];
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    watched.for_a_while();
    let pids: Vec<u32> = watched.noticed.iter().map(|noticed| noticed.pid).collect();
    let noticed = children.map(|child| pids.contains(&child.id()));
    assert_eq!(noticed, [false, true], "{} others", pids.len());
    assert!(watched.watch.counts().without_turn > 0);
}

#[test]
fn one_user_leaves_slots_to_the_others() {
    if !can_record() {
        return;
    }
    let (lab, disk, _) = Lab::with_disk("ext4");
    for dir in [&lab.dir, &disk] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (one, a) = (program(&disk, "one"), file(&disk, "a", 4));
    let mut watched = Watched::below(&disk);
    assert!(start(&one, &[&a]).wait().unwrap().success());
    watched.until_ended(1);
    let program = watched.noticed[0].program;
    watched.watch.set_standing(program, Standing::Known).unwrap();
    (watched.noticed, watched.ended) = Default::default();
    // Nobody drains meanwhile.
    let nobodys = || {
        Command::new(&one)
            .arg(&a)
            .stdout(Stdio::null())
            .uid(65534)
            .gid(65534)
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..50).map(|_| nobodys()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let mut child = start(&one, &[&a]);
    assert!(child.wait().unwrap().success());
    watched.for_a_while();
    let pids: Vec<u32> = watched.noticed.iter().map(|noticed| noticed.pid).collect();
    assert!(pids.contains(&child.id()), "{} others", pids.len());
    assert!(pids.len() <= 25, "{}", pids.len());
}
