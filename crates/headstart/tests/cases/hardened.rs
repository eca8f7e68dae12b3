//! What a sandbox forbids headstart costs the command nothing.

use crate::common::{Case, Ran, finish, is_root};
use std::process::{Command, Stdio};

/// Runs its arguments under a filter that kills whoever makes one of the system calls whose numbers its first
/// argument lists (seccomp(2): load the number; for each: equal, kill the process; else allow).
pub(crate) const FILTER: &str = "
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
calls = [int(word) for word in sys.argv[1].split(',')]
code = struct.pack('HBBI', 0x20, 0, 0, 0)
for call in calls:
    code += struct.pack('HBBI', 0x15, 0, 1, call) + struct.pack('HBBI', 0x06, 0, 0, 0x80000000)
code += struct.pack('HBBI', 0x06, 0, 0, 0x7fff0000)
room = ctypes.create_string_buffer(code)
program = struct.pack('HxxxxxxQ', len(code) // 8, ctypes.addressof(room))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0
os.execvp(sys.argv[2], sys.argv[2:])
";

/// What each shell calls to run a program, though not for a line that it does by itself: fork, and to wait
/// for it.
const OF_SHELLS: [i64; 2] = [libc::SYS_clone, libc::SYS_wait4];

/// The numbers of the system calls to try, by strace(1): those that headstart makes for a command it does not
/// know, and for one that it has a plan of. Where all tests are run however long they take: all numbers that
/// a kernel of today has.
fn calls_to_try() -> Vec<i64> {
    let mut calls = std::collections::BTreeSet::new();
    if std::env::var_os("HEADSTART_TESTS_LONG").is_some() {
        calls.extend(0..470);
    } else {
        let case = Case::new();
        let made = case.path("made");
        for _ in 0..3 {
            let mut traced = Command::new("strace");
            traced
                .args(["-f", "-n", "-o"])
                .arg(&made)
                .args(with_headstart(&COMMAND))
                .env("HEADSTART_STATE", case.state())
                .env("HEADSTART_EVEN_WARM", "1")
                .stdin(Stdio::null());
            assert_eq!(finish(traced, b"").code(), 7);
            // PID [NUMBER] NAME(...
            let text = std::fs::read_to_string(&made).unwrap();
            let numbers = text
                .lines()
                .filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0));
            calls.extend(numbers.filter_map(|number| number.trim().parse::<i64>().ok()));
        }
        // Of a replay, and of a recording.
        let of_recordings = crate::common::can_record().then_some(libc::SYS_bpf);
        for call in [libc::SYS_mincore, libc::SYS_openat2]
            .into_iter()
            .chain(of_recordings)
        {
            assert!(calls.contains(&call), "{calls:?} lacks {call}");
        }
    }
    calls.retain(|call| !OF_SHELLS.contains(call));
    calls.into_iter().collect()
}

/// headstart's arguments, and a command's of known output and status.
fn under(case: &Case, calls: &str, words: &[&str]) -> Ran {
    by(case, FILTER, calls, words)
}

/// The same, under a filter of another kind.
fn by(case: &Case, filter: &str, calls: &str, words: &[&str]) -> Ran {
    let mut command = Command::new("/usr/bin/python3");
    command
        .args(["-c", filter, calls])
        .args(words)
        .current_dir(case.path("."))
        .env("HEADSTART_STATE", case.state())
        .stdin(Stdio::null());
    finish(command, b"")
}

/// A filter that refuses calls with an error.
pub(crate) fn refusing(error: i32) -> String {
    FILTER.replace("0x80000000", &format!("{:#x}", 0x50000 | error))
}

const COMMAND: [&str; 3] = ["sh", "-c", "echo out; exit 7"];

fn with_headstart<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let own = crate::common::binary().to_str().unwrap();
    let mut command = vec![own, "run", "--wait", "--control-every", "0", "--name", "k", "--"];
    command.extend(words);
    command
}

#[test]
#[cfg(target_arch = "x86_64")]
fn no_system_call_that_is_killed_for_costs_the_command_anything() {
    if !is_root() {
        return;
    }
    let calls = calls_to_try();
    let half = calls.len() / 2;
    std::thread::scope(|scope| {
        for (planned, calls) in [(false, &calls[..half]), (false, &calls[half..])]
            .into_iter()
            .chain([(true, &calls[..half]), (true, &calls[half..])])
        {
            scope.spawn(move || {
                let case = Case::new();
                if planned {
                    assert_eq!(case.run("k", &COMMAND).code(), 7);
                }
                for call in calls {
                    if !planned {
                        let _ = std::fs::remove_dir_all(case.state());
                    }
                    // Where it kills the command, too, there is nothing to compare.
                    if under(&case, &call.to_string(), &COMMAND).raw != 7 << 8 {
                        continue;
                    }
                    let ran = under(&case, &call.to_string(), &with_headstart(&COMMAND));
                    assert_eq!(
                        (ran.raw, ran.out.as_str()),
                        (7 << 8, "out\n"),
                        "call {call}: {}",
                        ran.err
                    );
                    assert!(ran.err.lines().count() <= 1, "call {call}: {}", ran.err);
                }
                let left: Vec<_> = std::fs::read_dir(case.path(".")).unwrap().flatten().collect();
                assert!(
                    left.iter().all(|entry| entry.file_name() == "state"),
                    "a core: {left:?}"
                );
            });
        }
    });
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_service_without_what_services_rarely_call_runs_and_says_one_line_once() {
    if !is_root() {
        return;
    }
    // What systemd 252 leaves out of @system-service, and does not call itself before the program.
    let out = [
        libc::SYS_mincore,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_open_by_handle_at,
        libc::SYS_name_to_handle_at,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_fanotify_init,
        libc::SYS_fanotify_mark,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_chroot,
        libc::SYS_pivot_root,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_userfaultfd,
        451,
    ];
    let list: Vec<String> = out.iter().map(i64::to_string).collect();
    for calls in [
        list.join(","),
        format!("{},{}", list.join(","), libc::SYS_openat2),
    ] {
        let case = Case::new();
        let mut said = 0;
        for start in 0..4 {
            let ran = under(&case, &calls, &with_headstart(&COMMAND));
            assert_eq!(
                (ran.raw, ran.out.as_str()),
                (7 << 8, "out\n"),
                "{start}: {}",
                ran.err
            );
            said += ran.err.lines().count();
        }
        assert!(said <= 1, "{said} lines");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn what_a_command_is_refused_or_asked_is_as_without_a_filter() {
    let case = Case::new();
    let own = crate::common::binary().to_str().unwrap();
    case.write("script", "echo a script without a first line; exit 5");
    let run = |words: &[&str]| under(&case, "27", words);
    use std::os::unix::fs::PermissionsExt;
    let script = case.path("script");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let usage = run(&[own, "run", "--control-every", "x", "--", "true"]);
    assert_eq!(usage.code(), 2, "{}", usage.err);
    assert!(usage.err.contains("--control-every"), "{}", usage.err);
    // Who is refused dup3 says it once, too.
    let words = [own, "run", "--control-every", "x", "--", "true"];
    let once = by(&case, &refusing(libc::EINVAL), "292", &words);
    assert_eq!((once.code(), &once.err), (2, &usage.err));
    // What a worker has for its log that cannot be put in the place of its standard error (dup2), and has
    // nothing that records, is not said there.
    let words = [own, "run", "--wait", "--name", "k", "--", "sh", "-c", "exit 3"];
    let by_worker = by(&case, &refusing(libc::EPERM), "33,165,321,428,430", &words);
    let lines: Vec<&str> = by_worker.err.lines().collect();
    assert_eq!((by_worker.code(), lines.len()), (3, 1), "{}", by_worker.err);
    assert!(lines[0].starts_with("headstart: not recording"), "{}", lines[0]);
    assert_eq!(run(&[own, "run", "--", "/no/such/program"]).code(), 127);
    assert_eq!(run(&[own, "run", "--", "/etc/passwd"]).code(), 126);
    // Where even the scout is killed (poll), the first instructions become the command.
    for calls in ["27", "7,271"] {
        let ran = under(
            &case,
            calls,
            &[own, "run", "--name", "k", "sh", "-c", "kill -TERM $$"],
        );
        assert_eq!(ran.raw & 0x7f, libc::SIGTERM, "{}", ran.err);
        let ran = under(
            &case,
            calls,
            &[own, "run", "--name=k", script.to_str().unwrap(), "x"],
        );
        assert_eq!(
            (ran.code(), ran.out.as_str()),
            (5, "a script without a first line\n"),
            "{}",
            ran.err
        );
    }
    assert_eq!(
        under(&case, "7,271", &[own, "run", "--", "no-such-program"]).code(),
        127
    );
    // As by the session, and by shells: a file where a directory is to be is something that cannot be
    // executed.
    for command in ["/etc/passwd", "/etc/passwd/x"] {
        let ended = [
            under(&case, "7,271", &[own, "run", "--", command]).code(),
            case.run("k", &[command]).code(),
        ];
        assert_eq!(ended, [126; 2], "{command}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_command_that_the_first_instructions_become_has_no_children() {
    let case = Case::new();
    let own = crate::common::binary().to_str().unwrap();
    let has_children = "import os\ntry: print(os.wait())\nexcept ChildProcessError: print('none')";
    let words = [own, "run", "--name", "k", "/usr/bin/python3", "-c", has_children];
    let ran = under(&case, "7,271", &words);
    assert_eq!((ran.code(), ran.out.as_str()), (0, "none\n"), "{}", ran.err);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn calls_that_are_refused_cost_the_command_nothing() {
    let case = Case::new();
    let own = crate::common::binary().to_str().unwrap();
    // exit_group: nobody ends as he was told. write, sendto: nobody is told to go on, or that he may. futex:
    // threads do not wait. fcntl, getrandom: the worker ends before it has its log. clone, wait4, prlimit64:
    // what the first instructions call themselves. rt_sigprocmask with timer_create: no process has a last
    // limit.
    let filter = refusing(libc::EOPNOTSUPP);
    for calls in [
        "1", "44", "72", "202", "231", "72,318", "7,231", "56", "61", "7,61", "302", "14,222",
    ] {
        let run = |words: &[&str]| by(&case, &filter, calls, words);
        let command = ["/bin/sh", "-c", "echo out >&2"];
        let without = run(&command);
        let begun = std::time::Instant::now();
        let with = run(&[&[own, "run", "--wait", "--name", "k", "--"][..], &command].concat());
        let is_own = |line: &&str| line.starts_with("headstart: ");
        let took = begun.elapsed();
        let (said, rest): (Vec<&str>, Vec<&str>) = with.err.lines().partition(is_own);
        assert_eq!(
            (with.raw, rest),
            (without.raw, without.err.lines().collect()),
            "{calls}"
        );
        assert!(said.len() <= 1, "{calls}: {said:?}");
        // What is closed stays closed, also where nothing can be said of a descriptor (fcntl).
        let closed = filter.replace("os.execvp", "os.close(0); os.execvp");
        let looks = ["/bin/sh", "-c", "[ -e /proc/self/fd/0 ]"];
        let without = by(&case, &closed, calls, &looks);
        let with = by(
            &case,
            &closed,
            calls,
            &[&[own, "run", "--name", "k", "--"][..], &looks].concat(),
        );
        assert_eq!(with.raw, without.raw, "{calls}: {} {}", with.err, without.err);
        // Nobody waits for who cannot answer.
        assert!(took < std::time::Duration::from_secs(8), "{calls}: {took:?}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_boot_is_not_rehearsed() {
    let case = Case::new();
    let own = crate::common::binary().to_str().unwrap();
    // clone: what a rehearsal begins with.
    let ran = under(&case, "56", &[own, "boot", "run", "--init", "99", "--began", "0"]);
    assert_eq!(ran.code(), 1, "{:x} {}", ran.raw, ran.err);
    assert!(ran.err.contains("--init"), "{}", ran.err);
}

#[test]
fn a_proc_of_processes_alone_is_enough_to_plan() {
    if !is_root() || !crate::common::can_record() {
        return;
    }
    let case = Case::new();
    let ran = case.script(
        "export H; unshare --mount --propagation private --pid --fork sh -c '
           mount -t proc -o subset=pid proc /proc
           for i in 1 2 3; do $H run --wait --control-every 0 --name sp -- sh -c \"cat /etc/passwd >/dev/null; echo in\"; done'",
    );
    assert_eq!(
        (ran.code(), ran.out.as_str(), ran.err.as_str()),
        (0, "in\nin\nin\n", "")
    );
    let plan = case.json(&["status", "sp", "--json"])["plan"]["requests"].as_u64();
    assert!(plan > Some(0), "{plan:?}");
}

/// The first process of a namespace, which all others become children of: runs a command under filters that
/// end a thread alone for one of the calls that its first argument lists, one after another, and waits for
/// the rest in the end.
const ALONE: &str = "
import os, subprocess, sys, time
for call in sys.argv[2].split(','):
    def run(words):
        ran = subprocess.run([sys.executable, '-c', sys.argv[1], call, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        return ran.returncode, ran.stdout, ran.stderr
    command = sys.argv[-3:]
    if run(command)[:2] != (7, 'out\\n'):
        continue
    status, out, err = run(sys.argv[3:])
    if (status, out) != (7, 'out\\n') or err.count('\\n') > 1 or 'please report' in err:
        print(call, status, out, err)
until = time.monotonic() + 150
while True:
    try:
        if os.waitpid(-1, os.WNOHANG)[0] == 0:
            if time.monotonic() > until:
                break
            time.sleep(0.05)
    except ChildProcessError:
        sys.exit(0)
for pid in filter(str.isdigit, os.listdir('/proc')):
    if pid != str(os.getpid()):
        print('left', pid, open(f'/proc/{pid}/cmdline').read().replace('\\0', ' '), open(f'/proc/{pid}/wchan').read())
";

#[test]
#[cfg(target_arch = "x86_64")]
fn no_process_is_left_where_a_filter_ends_threads_alone() {
    if !is_root() {
        return;
    }
    let filter = FILTER.replace("0x80000000", "0");
    let calls = calls_to_try();
    std::thread::scope(|scope| {
        for (planned, calls) in [false, true].into_iter().flat_map(|planned| {
            calls
                .chunks(calls.len().div_ceil(2))
                .map(move |calls| (planned, calls))
        }) {
            let filter = &filter;
            scope.spawn(move || {
                let case = Case::new();
                if planned {
                    assert_eq!(case.run("k", &COMMAND).code(), 7);
                }
                let calls: Vec<String> = calls.iter().map(i64::to_string).collect();
                let mut words = with_headstart(&COMMAND);
                // The worker goes on by itself, beside the next.
                words.retain(|word| *word != "--wait");
                let mut command = Command::new("unshare");
                let ran = command
                    .args([
                        "--mount-proc",
                        "--pid",
                        "--fork",
                        "/usr/bin/python3",
                        "-c",
                        ALONE,
                        filter,
                        &calls.join(","),
                    ])
                    .args(words)
                    .current_dir(case.path("."))
                    .env("HEADSTART_STATE", case.state())
                    .env("HEADSTART_EVEN_WARM", "1")
                    .stdin(Stdio::null())
                    .output()
                    .unwrap();
                let said = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                assert_eq!(
                    (ran.status.code(), &said),
                    (Some(0), &[String::new(), String::new()])
                );
            });
        }
    });
}

/// Runs headstart by a name of its own under a filter that refuses these calls, and gives what the kernel
/// logs of it.
#[test]
#[cfg(target_arch = "x86_64")]
fn where_the_runtime_cannot_begin_nothing_faults() {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let log = std::fs::File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/kmsg");
    if !is_root() {
        return;
    }
    let mut log = log.unwrap();
    let case = Case::new();
    let name = format!("hs-{}", std::process::id());
    let own = case.path(&name);
    std::fs::copy(crate::common::binary(), &own).unwrap();
    let filter = refusing(libc::ENOSYS);
    // What it does to signals and a look at descriptors; and how it ends itself then.
    for calls in ["13", "13,234", "7,234", "13,14,234", "7"] {
        let run = |words: &[&str]| by(&case, &filter, calls, &[&[own.to_str().unwrap()], words].concat());
        let ran = run(&["run", "--", "/bin/sh", "-c", "exit 7"]);
        assert_eq!((ran.raw, ran.err.as_str()), (7 << 8, ""), "{calls}");
        let ran = run(&["status"]);
        assert_eq!(ran.raw, 1 << 8, "{calls}: {}", ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{calls}: {}", ran.err);
    }
    let mut said = Vec::new();
    let mut record = [0; 8192];
    loop {
        match log.read(&mut record) {
            Ok(length) => said.push(String::from_utf8_lossy(&record[..length]).into_owned()),
            // What was overwritten meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(_) => break,
        }
    }
    said.retain(|line| line.contains(&name) && !line.contains("audit"));
    assert_eq!(said, Vec::<String>::new());
}

#[test]
fn with_descriptors_closed_and_nothing_to_take_their_place_the_command_runs_as_without() {
    if !is_root() {
        return;
    }
    let case = Case::new();
    let script = r#"
mount -t tmpfs t /dev || exit 99
"$H" status 2>&1 <&-; echo "status $?"
"$H" run 2>&1 <&-; echo "run $?"
"$H" run --name k -- sh -c 'exit 7' 1>&- 2>&-; echo "command $?"
"$H" run --name k --control-every x -- sh -c 'exit 7' <&-; echo "nothing asked of the command line $?"
"#;
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .env("H", crate::common::binary())
        .env("HEADSTART_STATE", case.state())
        .current_dir(case.path("."));
    let ran = finish(command, b"");
    let lines: Vec<&str> = ran.out.lines().collect();
    let why = "headstart: it cannot begin: a standard descriptor is closed";
    let (said, rest): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.starts_with(why));
    assert_eq!(said.len(), 2, "{}{}", ran.out, ran.err);
    assert_eq!(
        rest,
        [
            "status 1",
            "run 1",
            "command 7",
            "nothing asked of the command line 7"
        ],
        "{}",
        ran.err
    );
}
