//! Where BPF is not: fanotify tells of starts, and what `headstart run` has learned is read ahead.

use crate::common::{Case, eventually, is_root};
use crate::harness::*;
use headstart_start::bypass;
use headstart_store::{Bypass, Change, Store};
use headstart_system::testing::{LoopFs, Process};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn noticing(case: &Case) -> Daemon {
    let command = Command::new(crate::common::binary());
    Daemon::start_by(case, command, &["--no-control", "--notice", "fanotify"])
}

/// `headstart run` of a program with its files, which are cold.
fn learn(case: &Case, fs: &LoopFs, name: &str) {
    evict(&files(fs, name));
    let learned = command(fs, name);
    let mut words = vec!["run", "--wait", "--"];
    words.push(learned.get_program().to_str().unwrap());
    words.extend(learned.get_args().map(|word| word.to_str().unwrap()));
    let ran = case.headstart(&words);
    assert_eq!(ran.code(), 0, "{}", ran.err);
    assert!(Store::new(case.state()).key(&key(fs, name)).exists());
}

/// Begins a start that reads nothing by itself, as long as it lives.
fn start(mut command: Command) -> Process {
    let (input, output) = (Stdio::piped(), Stdio::null());
    Process(command.stdin(input).stdout(output).spawn().unwrap())
}

/// Starts this until all but what the kernel takes from memory of its own accord is read ahead of these
/// files: amid what other tests execute the kernel may not have told of one start.
#[track_caller]
fn is_read_ahead(files: &[PathBuf], pages: u64, command: impl Fn() -> Command) {
    eventually("what is known is read ahead", || {
        evict(files);
        let _start = start(command());
        (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            resident(files) >= pages - pages / 100
        })
    });
}

/// A start that names its files, and reads none of them before its standard input ends.
fn waiting(fs: &LoopFs, name: &str) -> Command {
    let mut command = Command::new(fs.mount_point().join(name));
    command.arg("-").args(files(fs, name));
    command
}

const PAGES: u64 = 20 * 256;

/// What it said last of its replays.
#[track_caller]
fn replays(said: &str) -> u64 {
    count(said, "with a replay: ")
}

/// And of the starts that it ignored.
#[track_caller]
fn bypassed(said: &str) -> u64 {
    count(said, "bypassed: ")
}

#[track_caller]
fn count(said: &str, what: &str) -> u64 {
    let (_, behind) = said.split_once(what).expect(said);
    behind.split_once(',').unwrap().0.parse().unwrap()
}

#[test]
fn what_run_has_learned_is_read_ahead_and_nothing_else_is_kept() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let daemon = noticing(&case);
    // Both mounted, and learned, while it runs; the program was executed before it was known.
    let mut fs = disk(&["one", "two"]);
    run(command(&fs, "one"));
    learn(&case, &fs, "one");
    fs.remount_cold().unwrap();
    assert_eq!(resident(&files(&fs, "one")), 0);
    // Of others it is told once: it has had time to learn of this one then.
    is_read_ahead(&files(&fs, "one"), PAGES, || waiting(&fs, "one"));
    // Another instance of what runs is not read ahead for.
    evict(&files(&fs, "one"));
    let runs = start(waiting(&fs, "one"));
    eventually("it is read ahead", || {
        resident(&files(&fs, "one")) >= PAGES - PAGES / 100
    });
    // What is left of it may be under way, and would come after what is evicted.
    std::thread::sleep(std::time::Duration::from_millis(200));
    evict(&files(&fs, "one"));
    let second = start(waiting(&fs, "one"));
    run(command(&fs, "two"));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(resident(&files(&fs, "one")), 0);
    drop((runs, second));
    assert_eq!(
        outcomes(&case, &key(&fs, "one")).len(),
        1,
        "of what run has done alone"
    );
    assert!(!Store::new(case.state()).key(&key(&fs, "two")).exists());
    let said = daemon.stop();
    assert!(
        said.contains("fanotify") && said.contains("starts recorded: 0"),
        "{said}"
    );
    assert!(!said.contains("of programs that ran already: 0;"), "{said}");
}

#[test]
fn a_program_is_told_of_also_if_it_was_executed_by_another_name() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let another = fs.mount_point().join("another");
    fs::hard_link(fs.mount_point().join("one"), &another).unwrap();
    learn(&case, &fs, "one");
    let daemon = noticing(&case);
    // It knows all that there is when it looks a second later: then it tells the kernel to tell of nothing
    // anew.
    std::thread::sleep(std::time::Duration::from_secs(2));
    run(Command::new("true"));
    let mut by_another = Command::new(&another);
    by_another.args(command(&fs, "one").get_args());
    by_another.stdout(std::process::Stdio::null());
    run(by_another);
    is_read_ahead(&files(&fs, "one"), PAGES, || waiting(&fs, "one"));
    daemon.stop();
}

#[test]
fn what_is_warm_or_bypassed_is_left_alone() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    learn(&case, &fs, "one");
    // Nothing is recorded, so there is no control run, though every other start would be one.
    let noticing = || {
        let words = ["--no-control", "--notice", "fanotify", "--control-every", "2"];
        Daemon::start_by(&case, Command::new(crate::common::binary()), &words)
    };
    let start = || {
        let start = start(waiting(&fs, "one"));
        std::thread::sleep(std::time::Duration::from_millis(200));
        drop(start);
    };
    let daemon = noticing();
    for _ in 0..5 {
        run(command(&fs, "one"));
        start();
    }
    let said = daemon.stop();
    assert_eq!(replays(&said), 0, "{said}");
    assert!(bypassed(&said) >= 5, "{said}");

    let kept = Store::new(case.state()).key(&key(&fs, "one"));
    let bypass = Bypass {
        every: 1,
        kernel: bypass::kernel(),
        machine: bypass::machine(),
        replay: true,
        why: "no gain".into(),
    };
    let is_bypassed = Change {
        bypass: Some(Some(&bypass)),
        ..Change::default()
    };
    kept.lock().unwrap().change(&is_bypassed).unwrap();
    let daemon = noticing();
    for _ in 0..5 {
        evict(&files(&fs, "one"));
        start();
    }
    let said = daemon.stop();
    assert_eq!(replays(&said), 0, "{said}");
    assert!(bypassed(&said) >= 1, "{said}");
    assert_eq!(resident(&files(&fs, "one")), 0);

    let not_bypassed = Change {
        bypass: Some(None),
        ..Change::default()
    };
    kept.lock().unwrap().change(&not_bypassed).unwrap();
    let daemon = noticing();
    for _ in 0..3 {
        is_read_ahead(&files(&fs, "one"), PAGES, || waiting(&fs, "one"));
    }
    assert!(replays(&daemon.stop()) >= 3);
}

#[test]
fn a_script_is_known_by_its_own_name_however_it_is_started() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let script = fs.mount_point().join("script");
    // It waits in the shell: one that becomes another program at once may have done so before anybody looks.
    let text = "#!/bin/sh\n[ -z \"$1\" ] || { read -r _; exit; }\ncat \"${0%/*}\"/one-* >/dev/null\n";
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    let ran = case.headstart(&["run", "--wait", "--", script.to_str().unwrap()]);
    assert_eq!(ran.code(), 0, "{}", ran.err);
    let daemon = noticing(&case);
    for by_shell in [false, true] {
        is_read_ahead(&files(&fs, "one"), PAGES, || {
            let mut command = Command::new(match by_shell {
                true => "/bin/sh".as_ref(),
                false => script.as_path(),
            });
            command.args(by_shell.then_some(&script)).arg("waits");
            command
        });
    }
    let said = daemon.stop();
    assert!(replays(&said) >= 2, "{said}");
}

#[test]
fn what_run_starts_is_not_read_ahead_for_twice() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one"]);
    learn(&case, &fs, "one");
    let daemon = noticing(&case);
    for _ in 0..3 {
        fs.remount_cold().unwrap();
        learn(&case, &fs, "one");
    }
    let said = daemon.stop();
    assert_eq!(replays(&said), 0, "{said}");
}

#[test]
fn what_is_closed_to_a_user_is_not_read_ahead_for_that_user() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one"]);
    let paths = files(&fs, "one");
    learn(&case, &fs, "one");
    let (closed, open) = paths.split_at(10);
    for file in closed {
        fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
    }
    let_all_into(&fs.mount_point());
    fs.remount_cold().unwrap();
    let daemon = noticing(&case);
    is_read_ahead(open, PAGES / 2, || by_nobody(waiting(&fs, "one")));
    assert!(replays(&daemon.stop()) >= 1);
    assert_eq!(resident(closed), 0);
}

#[test]
fn a_storm_of_executions_is_hardly_told_of_and_none_that_is_known_is_missed() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    learn(&case, &fs, "one");
    let daemon = noticing(&case);
    let programs: Vec<_> = (0..64).map(|n| case.path(&format!("program-{n}"))).collect();
    for program in &programs {
        fs::copy("/bin/true", program).unwrap();
    }
    let turns = rounds(3, 50);
    for _ in 0..turns {
        evict(&files(&fs, "one"));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for program in programs.iter().cycle().take(1000) {
                        assert!(Command::new(program).status().unwrap().success());
                    }
                });
            }
            let _start = start(waiting(&fs, "one"));
            eventually("it is read ahead amid the storm", || {
                resident(&files(&fs, "one")) >= PAGES - PAGES / 100
            });
        });
    }
    assert!(daemon.memory() < 64 << 10, "{} KiB", daemon.memory());
    let said = daemon.stop();
    assert_eq!(replays(&said), turns, "{said}");
}
