//! What a command is beside headstart: as if it were not there.

use crate::common::{
    Case, GIVE_UP, Holding, can_record, children, eventually, finish, for_anybody, process_state, signal,
    start, workers,
};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

#[test]
fn exit_statuses_are_passed_on() {
    let case = Case::new();
    for status in [0, 1, 2, 7, 126, 255] {
        assert_eq!(
            case.run("k", &["sh", "-c", &format!("exit {status}")]).code(),
            status
        );
    }
    let recorded = case.headstart(&["run", "--", "sh", "-c", "exit 9"]);
    assert_eq!(
        (recorded.code(), recorded.out.as_str()),
        (9, ""),
        "also without --wait"
    );
}

#[test]
fn death_by_a_signal_is_passed_on() {
    let case = Case::new();
    for number in [15, 9, 1, 10, 34] {
        let ran = case.run("k", &["sh", "-c", &format!("kill -{number} $$")]);
        assert_eq!(ran.raw & 0x7f, number, "{}", ran.err);
    }
}

#[test]
fn a_command_that_cannot_be_started_is_told_as_shells_do() {
    let case = Case::new();
    let missing = case.run("k", &["no-such-program"]);
    assert_eq!(missing.code(), 127);
    assert!(
        missing.err.contains("no-such-program") && missing.err.lines().count() == 1,
        "{}",
        missing.err
    );
    let file = case.write("plain", "text");
    assert_eq!(case.run("k", &[file.to_str().unwrap()]).code(), 126);
    assert_eq!(
        case.json(&["status", "--json"]),
        serde_json::json!([]),
        "nothing is remembered of it"
    );
}

#[test]
fn input_and_output_are_untouched() {
    let case = Case::new();
    let bytes: Vec<u8> = (0..200_000u32).map(|i| (i * 7 % 251) as u8).collect();
    case.write("expected", &bytes);
    let command = case.command(&[
        "run",
        "--wait",
        "--",
        "sh",
        "-c",
        "cat > got; echo out; echo err >&2",
    ]);
    let ran = finish(command, &bytes);
    assert_eq!(std::fs::read(case.path("got")).unwrap(), bytes);
    assert_eq!(ran.out, "out\n");
    assert!(
        ran.err.ends_with("err\n") && ran.err.lines().count() <= 2,
        "{}",
        ran.err
    );
}

/// What a process can find out about how it was started.
const DESCRIBE: &str = r#"
    grep -E '^(Sig(Blk|Ign|Cgt)|ShdPnd|Umask|Groups|Cap|NoNewPrivs|Seccomp|Uid|Gid)' /proc/self/status
    cut -d' ' -f5,6,7 /proc/self/stat
    ls /proc/self/fd
    for fd in 0 1 2; do test -e /proc/self/fd/$fd && readlink /proc/self/fd/$fd || echo closed; done
    ulimit -a; pwd; env | grep -v '^_=' | sort; cat /proc/self/oom_score_adj; nice
"#;

#[test]
fn the_command_finds_everything_as_it_would_without() {
    let case = Case::new();
    case.write("describe", DESCRIBE);
    for before in [
        ":",
        "trap '' HUP PIPE USR1",
        "trap '' CHLD INT",
        "exec 0<&-",
        "exec 0<&- 2>&-",
        "exec 5</dev/null; exec 7>spare",
        "umask 027; ulimit -n 99; cd /",
    ] {
        let home = case.path("");
        let script = format!(
            "{before}; sh {0}/describe > {0}/a; $H run --name k -- sh {0}/describe > {0}/b",
            home.to_str().unwrap().trim_end_matches('/')
        );
        let ran = case.script(&script);
        assert_eq!(ran.code(), 0, "{before}: {}", ran.err);
        let read = |name: &str| {
            std::fs::read_to_string(case.path(name))
                .unwrap()
                .replace("/b\n", "/a\n")
        };
        assert_eq!(read("a"), read("b"), "after {before}");
    }
}

#[test]
fn the_caller_waits_for_nothing_of_the_worker() {
    let case = Case::new();
    assert_eq!(case.run("k", &["true"]).code(), 0);
    // While the key is locked the worker cannot come to its end. A pipe it kept would make the reader wait
    // for it.
    let script = "exec 9>>$(echo state/keys/*/lock); flock 9
        { $H run --control-every 0 --name k -- sh -c 'echo 1; echo 2 >&2; echo 3 >&3' 3>&1 2>&1 | cat; } 2>&1";
    let ran = case.script(&format!("timeout 20 sh -c {}", quoted(script)));
    assert_eq!((ran.code(), ran.out.as_str()), (0, "1\n2\n3\n"), "{}", ran.err);
    eventually("the worker goes on when it can", || {
        case.json(&["status", "k", "--json"])["outcomes"]
            .as_array()
            .unwrap()
            .len()
            == 2
    });
}

fn quoted(script: &str) -> String {
    format!("'{}'", script.replace('\'', "'\\''"))
}

#[test]
fn what_the_command_closes_is_closed() {
    let case = Case::new();
    assert_eq!(case.run("k", &["true"]).code(), 0);
    let script = "$H run --control-every 0 --name k -- sh -c 'exec >&- 7>&-; until [ -e go ]; do sleep 0.05; done' 7>&1 |
            { cat; touch ended; } &
        n=200; until [ -e ended ] || [ $n = 0 ]; do sleep 0.05; n=$((n-1)); done
        [ -e ended ] || echo held; touch go; wait";
    let ran = case.script(script);
    assert_eq!((ran.code(), ran.out.as_str()), (0, ""), "{}", ran.err);
}

#[test]
fn the_end_of_a_terminal_reaches_the_command() {
    let case = Case::new();
    let script = r#"env --default-signal=HUP script -qc "exec $H run --name k -- sh -c 'echo \$\$ >pid; exec sleep 1000'" /dev/null >/dev/null </dev/null &
        until [ -s pid ]; do sleep 0.05; done
        kill -KILL $!
        n=200; while kill -0 $(cat pid) 2>/dev/null && [ $n != 0 ]; do sleep 0.05; n=$((n-1)); done
        ! kill -KILL $(cat pid) 2>/dev/null || echo lives"#;
    let ran = case.script(script);
    assert_eq!((ran.code(), ran.out.as_str()), (0, ""), "{}", ran.err);
}

#[test]
fn who_is_known_by_its_number_keeps_it() {
    let case = Case::new();
    for words in [
        "LISTEN_PID",
        "WATCHDOG_PID",
        "NOTIFY_SOCKET=/nowhere SYSTEMD_EXEC_PID",
    ] {
        let name = words.rsplit(' ').next().unwrap();
        let script = format!(
            "sh -c {}",
            quoted(&format!(
                r#"{words}=$$ exec $H run --name k -- sh -c 'test ${name} = $$ && echo its own'"#
            ))
        );
        let ran = case.script(&script);
        assert_eq!((ran.code(), ran.out.as_str()), (0, "its own\n"), "{}", ran.err);
        assert!(
            ran.err.lines().count() == 1 && ran.err.contains("daemon"),
            "{}",
            ran.err
        );
    }
}

#[test]
fn signals_sent_to_headstart_alone_reach_the_command() {
    let case = Case::new();
    let script = "trap 'echo usr1' USR1; trap 'echo pipe' PIPE; trap 'echo term; exit 3' TERM; echo ready
        while :; do sleep 0.02; done";
    let (mut child, mut lines) = start(case.command(&["run", "--name", "k", "--", "bash", "-c", script]));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    for (number, said) in [(10, "usr1"), (13, "pipe"), (15, "term")] {
        signal(child.id(), number);
        assert_eq!(lines.next().unwrap().unwrap(), said);
    }
    assert_eq!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn a_killed_headstart_leaves_the_command_running() {
    let case = Case::new();
    let script = "echo $$; sleep 0.3; echo alive > late";
    let (mut child, mut lines) = start(case.command(&["run", "--name", "k", "--", "sh", "-c", script]));
    lines.next().unwrap().unwrap();
    signal(child.id(), 9);
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    eventually("the command ends its work", || case.path("late").exists());
}

#[test]
fn a_stopped_command_stops_headstart_and_both_go_on() {
    let case = Case::new();
    let script = "echo $$; sleep 0.2; echo end";
    let (mut child, mut lines) = start(case.command(&["run", "--name", "k", "--", "sh", "-c", script]));
    let pid: u32 = lines.next().unwrap().unwrap().parse().unwrap();
    signal(pid, 19);
    eventually("headstart stops", || process_state(child.id()) == Some('T'));
    assert_eq!(process_state(pid), Some('T'));
    signal(child.id(), 18);
    assert_eq!(lines.next().unwrap().unwrap(), "end");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Stops and continues a command's process group 400 times, with pauses of nothing to some ten microseconds
/// between the two, and prints how often it stayed stopped.
const STOPS: &str = "
import os, signal, subprocess, sys, time
started = subprocess.Popen(sys.argv[1:], preexec_fn=os.setpgrp)
state = lambda: open(f'/proc/{started.pid}/stat').read().rsplit(')', 1)[1].split()[0]
time.sleep(.3)
stayed = 0
for turn in range(400):
    os.killpg(started.pid, signal.SIGTSTP)
    until = time.monotonic() + (turn % 50) * 2e-6
    while turn % 2 and time.monotonic() < until: pass
    os.killpg(started.pid, signal.SIGCONT)
    time.sleep(.003)
    until = time.monotonic() + 1
    while state() == 'T' and time.monotonic() < until: time.sleep(.01)
    if state() == 'T':
        stayed += 1
        os.killpg(started.pid, signal.SIGCONT)
os.killpg(started.pid, signal.SIGKILL)
print(stayed)
";

#[test]
fn a_command_that_is_continued_at_once_does_not_stay_stopped() {
    let case = Case::new();
    case.write("stops.py", STOPS);
    let ran = case.script("python3 stops.py $H run --name k -- sleep 1000");
    assert_eq!(ran.out, "0\n", "{}", ran.err);
}

#[test]
fn a_command_that_is_held_can_be_interrupted() {
    let case = Case::new();
    let mut holding = Holding::start(&case, &["run", "--name", "k", "--", "sh", "-c", "exit 4"]);
    signal(holding.headstart.id(), 2);
    // When the wait is over the command runs, and its status is passed on.
    assert_eq!(holding.headstart.wait().unwrap().signal(), Some(2));
}

#[test]
fn a_command_that_is_held_can_be_stopped_and_goes_on() {
    let case = Case::new();
    let mut holding = Holding::start(&case, &["run", "--name", "k", "--", "sh", "-c", "exit 4"]);
    signal(holding.command, 19);
    eventually("headstart stops", || {
        process_state(holding.headstart.id()) == Some('T')
    });
    signal(holding.headstart.id(), 18);
    eventually("the command goes on", || {
        process_state(holding.command) == Some('S')
    });
    signal(holding.worker, 18);
    assert_eq!(holding.headstart.wait().unwrap().code(), Some(4));
}

#[test]
fn a_wait_for_the_learning_can_be_interrupted() {
    if !can_record() {
        return;
    }
    for number in [2, 15] {
        let case = Case::new();
        // Reads on after the first of its processes has ended: the helper goes on until they are quiet.
        let script = "while :; do cat /proc/self/stat >/dev/null; sleep 0.1; done & echo $!";
        let (mut child, mut lines) =
            start(case.command(&["run", "--wait", "--name", "k", "--", "sh", "-c", script]));
        let beside: u32 = lines.next().unwrap().unwrap().parse().unwrap();
        let helper = workers(child.id())[0];
        // Stopped, it cannot be done before the signal is there.
        signal(helper, 19);
        eventually("the command is waited for", || children(child.id()) == [helper]);
        std::thread::sleep(Duration::from_millis(50));
        signal(child.id(), number);
        // What it waits for is stopped: this ends by the signal or not at all.
        let mut status = None;
        eventually("the signal ends the wait", || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        assert_eq!(status.unwrap().signal(), Some(number), "{status:?}");
        signal(helper, 18);
        signal(beside, 9);
        eventually("the helper is done", || {
            process_state(helper).is_none_or(|state| state == 'Z')
        });
        let known = case.json(&["status", "k", "--json"]);
        assert_eq!(known["profile"]["runs"], 1, "it has learned by itself: {known}");
    }
}

#[test]
fn what_was_done_is_written_beside_the_output_of_the_command() {
    if !can_record() {
        return;
    }
    let case = Case::new();
    let command = ["--", "sh", "-c", "echo out; echo err >&2; exit 3"];
    let with = |words: &[&str]| case.headstart(&[words, &command].concat());
    let ran = with(&["run", "--json", "--name", "k"]);
    assert_eq!((ran.code(), ran.out.as_str()), (3, "out\n"), "{}", ran.err);
    let last = ran.err.lines().last().unwrap();
    let outcome: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(outcome["status"], 3 << 8);
    assert_eq!(outcome, case.json(&["status", "k", "--json"])["outcomes"][0]);

    let ran = with(&["record", "--json=done.json", "-o", "t.trace"]);
    assert_eq!((ran.code(), ran.err.as_str()), (3, "err\n"));
    let done: serde_json::Value =
        serde_json::from_slice(&std::fs::read(case.path("done.json")).unwrap()).unwrap();
    assert_eq!(
        done["file_bytes"],
        std::fs::metadata(case.path("t.trace")).unwrap().len()
    );
    assert!(done["uses"].as_u64().unwrap() > 0, "{done}");

    let ran = with(&["run", "--json=no/such/directory"]);
    assert_eq!(
        (ran.code(), ran.out.as_str()),
        (3, "out\n"),
        "the command runs all the same"
    );
    assert!(ran.err.contains("no/such/directory"), "{}", ran.err);
    with(&["record", "--json=no/such/directory", "-o", "t.trace"]).refused(&["no/such/directory"]);
}

#[test]
fn without_privilege_one_line_says_so_and_the_command_runs() {
    if !crate::common::is_root() {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let case = Case::new();
    for_anybody(&case);
    let state = case.path("nobody");
    let script = format!(
        "unset HEADSTART_STATE; export XDG_STATE_HOME={}; {GIVE_UP} ./headstart run --wait -- sh -c 'echo out; exit 7'",
        state.display()
    );
    std::fs::create_dir(&state).unwrap();
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o777)).unwrap();
    let ran = case.script(&script);
    assert_eq!((ran.code(), ran.out.as_str()), (7, "out\n"), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(
        ran.err.contains("CAP_") && ran.err.starts_with("headstart: not recording"),
        "{}",
        ran.err
    );
    assert!(
        state.join("headstart/keys").is_dir(),
        "what is known goes to the user's own state"
    );
    let refused = case.script(&format!(
        "{GIVE_UP} ./headstart record -o nobody/t -- sh -c 'echo started'"
    ));
    refused.refused(&["CAP_"]);
    assert_eq!(refused.out, "", "record does not start what it cannot record");
    let doctor = case.script(&format!(
        "unset HEADSTART_STATE; {GIVE_UP} ./headstart doctor --json"
    ));
    let report: serde_json::Value = serde_json::from_str(&doctor.out).unwrap();
    assert!(
        report["missing_capabilities"]
            .as_array()
            .unwrap()
            .iter()
            .any(|c| c == "CAP_BPF")
    );
}

/// What a python program prints that prepares this process as `prepare` says and becomes the command, without
/// headstart and with it.
fn prepared(case: &Case, prepare: &str, command: &str) -> [crate::common::Ran; 2] {
    case.write(
        "prepare.py",
        format!("import fcntl, os, signal, sys, ctypes\n{prepare}\nos.execvp(sys.argv[1], sys.argv[1:])\n"),
    );
    ["", "$H run --name k --"].map(|before| case.script(&format!("python3 prepare.py {before} {command}")))
}

#[test]
fn a_record_lock_is_held_until_the_command_ends() {
    let case = Case::new();
    case.write(
        "try.py",
        "import fcntl\ntry: fcntl.lockf(open('lock', 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB); print('free')\nexcept OSError: print('held')\n",
    );
    let lock = "f = os.open('lock', os.O_RDWR | os.O_CREAT)\nos.set_inheritable(f, True)\nfcntl.lockf(f, fcntl.LOCK_EX)";
    // Another process than the command asks.
    let [without, with] = prepared(&case, lock, "sh -c 'python3 try.py; exit 7'");
    assert_eq!((without.code(), without.out.as_str()), (7, "held\n"));
    assert_eq!((with.code(), with.out.as_str()), (7, "held\n"), "{}", with.err);
    // flock(2) is of the file: that needs no care, and headstart is there.
    case.write("try.py", "import fcntl\ntry: fcntl.flock(open('lock', 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB); print('free')\nexcept OSError: print('held')\n");
    let [without, with] = prepared(&case, &lock.replace("lockf", "flock"), "python3 try.py");
    assert_eq!((without.out.as_str(), with.out.as_str()), ("held\n", "held\n"));
}

#[test]
fn what_is_to_end_with_its_parent_does() {
    let case = Case::new();
    case.write(
        "parent.py",
        "import ctypes, subprocess, sys\n\
         subprocess.Popen(sys.argv[1:], preexec_fn=lambda: ctypes.CDLL(None).prctl(1, 15), stdout=subprocess.DEVNULL)\n\
         import time; time.sleep(.5)\n",
    );
    for before in ["", "$H run --name k --"] {
        let ran = case.script(&format!(
            "python3 parent.py {before} sh -c 'echo $$ >pid; exec sleep 1000'; cat pid"
        ));
        let pid: u32 = ran.out.trim().parse().unwrap_or_else(|_| panic!("{}", ran.err));
        eventually("the command ends as its parent did", || {
            process_state(pid).is_none()
        });
    }
}

#[test]
fn scheduling_that_a_fork_would_reset_is_kept() {
    let case = Case::new();
    // SCHED_OTHER with SCHED_RESET_ON_FORK, and a nice value below 0.
    let prepare = "os.setpriority(os.PRIO_PROCESS, 0, -5)\nos.sched_setscheduler(0, os.SCHED_RESET_ON_FORK, os.sched_param(0))";
    if !crate::common::is_root() {
        return;
    }
    let [without, with] = prepared(&case, prepare, "nice");
    assert_eq!(without.out, "-5\n");
    assert_eq!(with.out, "-5\n", "{}", with.err);
}
