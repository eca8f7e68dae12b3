//! A command near its own memory, task or resource limits ends as it does without headstart.

use crate::common::{Case, is_root};
use std::path::{Path, PathBuf};

#[test]
fn low_limits_change_nothing() {
    let case = Case::new();
    // Kilobytes, kilobytes, kilobytes, files, blocks, processes, kilobytes: as bash's ulimit counts.
    let limits = [
        "-d 1000",
        "-d 700",
        "-d 1500",
        "-d 3000",
        "-d 20000",
        "-v 30000",
        "-v 200000",
        "-s 64",
        "-s 200",
        "-n 4",
        "-n 8",
        "-n 20",
        "-f 0",
        "-f 1",
        "-l 0",
        "-c 0",
        "-i 0",
        "-u 1",
        "-t 5",
        "-d 2000 -v 40000 -s 128 -n 8 -f 1",
        "-d 1200 -n 5",
        "-v 40000 -n 6 -l 0",
    ];
    let mut failed = Vec::new();
    for limit in limits {
        let mut said = 0;
        for start in 0..3 {
            let run = |before: &str| {
                case.script(&format!(
                    "exec bash -c 'ulimit {limit} || exit 99; exec {before} sh -c \"echo out; exit 7\"'"
                ))
            };
            let (without, with) = (run(""), run("$H run --name k --"));
            if (without.raw, &without.out) != (with.raw, &with.out) {
                failed.push(format!(
                    "{limit} ({start}): {} not {}: {}",
                    with.raw, without.raw, with.err
                ));
            }
            said += with.err.lines().count() - without.err.lines().count().min(with.err.lines().count());
        }
        if said > 1 {
            failed.push(format!("{limit}: {said} lines"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn doctor_says_what_there_is_too_little_of() {
    let case = Case::new();
    let limits = |before: &str| {
        let doctor = case.script(&format!("{before} $H doctor --json"));
        let report: serde_json::Value = serde_json::from_str(&doctor.out).unwrap();
        report["limits"].clone()
    };
    assert_eq!(limits(""), serde_json::Value::Null);
    let little = limits("ulimit -v 900000;");
    assert_eq!(
        little,
        "the address space is limited to 921600000 bytes, and recording may take 1073741824"
    );
    let text = case.script("ulimit -v 900000; $H doctor").out;
    let words: Vec<&str> = text.split_whitespace().collect();
    let said = "limits `headstart run` bypasses starts here: the address space is limited";
    assert!(words.join(" ").contains(said), "{text}");
}

/// A control group of this controller's own, in the hierarchy that has it; gone with it.
struct Group(PathBuf);

impl Group {
    fn new(controller: &str, files: &[(&str, &str, u64)]) -> Group {
        let first = Path::new("/sys/fs/cgroup").join(controller);
        let (root, second) = match first.is_dir() {
            true => (first, false),
            false => (PathBuf::from("/sys/fs/cgroup"), true),
        };
        if second {
            let _ = std::fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        let group = Group(root.join(format!("headstart-test-{}-{controller}", std::process::id())));
        std::fs::create_dir_all(&group.0).unwrap();
        for (of_first, of_second, value) in files {
            let name = if second { of_second } else { of_first };
            // Swap may not be counted here.
            let written = std::fs::write(group.0.join(name), value.to_string());
            assert!(written.is_ok() || name.contains("sw"), "{name}: {written:?}");
        }
        group
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..500 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

fn within(case: &Case, group: &Group, before: &str, command: &str) -> (i32, String) {
    let ran = case.script(&format!(
        "echo 0 >{}/cgroup.procs && exec {before} {command}",
        group.0.display()
    ));
    (ran.raw, ran.err)
}

#[test]
fn each_task_that_a_command_may_begin_it_can_begin() {
    if !is_root() {
        return;
    }
    let case = Case::new();
    case.write(
        "f.py",
        "import os, sys, time\nfor i in range(int(sys.argv[1])):\n    if os.fork() == 0: time.sleep(.3); os._exit(0)\nfor i in range(int(sys.argv[1])): os.wait()\n",
    );
    // Nobody makes this call, but there is a filter.
    case.write("filter.py", crate::hardened::FILTER);
    let filtered = "/usr/bin/python3 filter.py 340";
    for (most, forks) in [
        (16, 12),
        (20, 16),
        (24, 20),
        (24, 23),
        (32, 28),
        (64, 63),
        (2, 1),
        (1, 0),
    ] {
        let group = Group::new("pids", &[("pids.max", "pids.max", most)]);
        let with = "$H run --name t --";
        let filtered_with = format!("{filtered} {with}");
        let ways = ["", with, with, filtered, &filtered_with, &filtered_with].map(String::from);
        // Where nothing shows the limit, or which group it is.
        let ways_hidden = ["/sys", "/proc"].into_iter().flat_map(|place| {
            let hidden = format!("unshare -m sh -c 'mount -t tmpfs t {place} && exec \"$@\"' sh");
            let with = format!("{hidden} {with}");
            [hidden, with.clone(), with]
        });
        // It takes a task itself, to mount.
        for before in ways.into_iter().chain(ways_hidden.filter(|_| most > 1)) {
            let command = format!("/usr/bin/python3 f.py {forks}");
            assert_eq!(
                within(&case, &group, &before, &command),
                (0, String::new()),
                "{most} {forks} {before}"
            );
        }
    }
}

#[test]
fn memory_that_is_enough_for_a_command_is_enough_with_headstart() {
    if !is_root() {
        return;
    }
    let case = Case::new();
    for megabytes in [64, 32, 24, 16] {
        let limit = megabytes << 20;
        let group = Group::new(
            "memory",
            &[
                ("memory.limit_in_bytes", "memory.max", limit),
                ("memory.memsw.limit_in_bytes", "memory.swap.max", limit),
            ],
        );
        let command = "/usr/bin/python3 -c 'x = bytearray(2 << 20)'";
        for before in ["", "$H run --wait --name m --", "$H run --wait --name m --"] {
            let (status, err) = within(&case, &group, before, command);
            assert_eq!((status, err.as_str()), (0, ""), "{megabytes} MiB {before}");
        }
    }
    // Copies of that many words alone would take it.
    case.write("words", "y\n".repeat(100_000));
    let group = Group::new("memory", &[("memory.limit_in_bytes", "memory.max", 8 << 20)]);
    let command = "/bin/sh -c 'echo $# >&2' sh";
    for before in ["", "$H run --wait --name w --", "$H run --wait --name w --"] {
        let xargs = format!("xargs -a words -x -n 100000 -s 1000000 {before}");
        assert_eq!(
            within(&case, &group, &xargs, command),
            (0, "100000\n".into()),
            "{before}"
        );
    }
}

#[test]
fn a_worker_is_the_first_to_go_when_memory_runs_out() {
    if !is_root() || !crate::common::can_record() {
        return;
    }
    let case = Case::new();
    let (mut headstart, mut lines) = crate::common::start(case.command(&[
        "run",
        "--name",
        "k",
        "--",
        "sh",
        "-c",
        "cat /proc/self/oom_score_adj; sleep 60",
    ]));
    let own = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    assert_eq!(
        lines.next().unwrap().unwrap(),
        own.trim(),
        "the command's is as it was"
    );
    let workers = crate::common::workers(headstart.id());
    assert_eq!(workers.len(), 1);
    let score = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", workers[0])).unwrap();
    crate::common::signal(headstart.id(), 15);
    headstart.wait().unwrap();
    assert_eq!(score.trim(), "1000");
}

#[test]
fn with_a_small_share_of_a_processor_a_command_has_all_of_it() {
    if !is_root() || !crate::common::can_record() {
        return;
    }
    let case = Case::new();
    let (first, second) = ("cpu.cfs_quota_us", "cpu.max");
    for (share, mode) in [(20_000, "bypass"), (90_000, "record")] {
        // Of a period of 100 ms.
        let group = Group::new("cpu", &[(first, second, share)]);
        let (ran, err) = within(
            &case,
            &group,
            "",
            &format!("$H run --wait --json=outcome --name k{share} -- sh -c 'exit 7'"),
        );
        assert_eq!(ran >> 8, 7, "{err}");
        let outcome: serde_json::Value =
            serde_json::from_slice(&std::fs::read(case.path("outcome")).unwrap()).unwrap();
        assert_eq!(outcome["mode"], mode, "{outcome}");
        if mode == "bypass" {
            let why = outcome["not_learned"].as_str().unwrap_or_default();
            assert!(why.contains("20 % of a processor"), "{outcome}");
        }
    }
}

#[test]
fn a_full_disk_is_told_of_at_one_start_of_many() {
    if !is_root() || !crate::common::can_record() {
        return;
    }
    let case = Case::new();
    let ran = case.script(
        "mkdir full; export H; unshare --mount --propagation private sh -c '
           mount -t tmpfs -o size=64k tmpfs full
           dd if=/dev/zero of=full/fill bs=4k count=12 2>/dev/null
           for i in 1 2 3 4; do $H --state full/state run --wait -- cat /etc/passwd >/dev/null; done'",
    );
    assert_eq!(ran.code(), 0, "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(ran.err.contains("; make room there"), "{}", ran.err);
    assert_eq!(ran.err.matches("os error 28").count(), 1, "{}", ran.err);
    assert!(!ran.err.contains(".tmp-"), "{}", ran.err);
}
