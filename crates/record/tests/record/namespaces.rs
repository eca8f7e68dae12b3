//! Recordings in pid namespaces of their own, as containers have them.

use crate::support::*;
use headstart_model::trace::{EndReason, Trace, UseKind};
use headstart_record::{BackendChoice, Options, RecordError, Recorder};
use headstart_system::testing::Scratch;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Not a test of its own: what the tests have this binary do in a container. It reads from TRACE_IN what to
/// run, and leaves the trace there.
#[test]
#[ignore = "not a test of its own, but what one executes"]
fn inside() {
    let dir = PathBuf::from(std::env::var_os("TRACE_IN").unwrap());
    let script = std::fs::read_to_string(dir.join("script")).unwrap();
    match std::env::var("SCOPE").as_deref() {
        Ok("tree") => {
            let trace = record_beside(&tree(), &script, || {});
            std::fs::write(dir.join("trace"), trace.to_bytes().unwrap()).unwrap();
        }
        Ok("system") => {
            let mut tell = std::io::stderr();
            let mut excluded = Command::new("sh")
                // Itself: what it begins is not left out.
                .args(["-c", "read go; read line < excluded; :"])
                .current_dir(&dir)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let options = Options {
                backend: BackendChoice::Bpf,
                exclude_pids: vec![excluded.id()],
                ..Options::system()
            };
            let recorder = Recorder::start(&options).unwrap();
            writeln!(tell, "recording").unwrap();
            std::io::stdin().read_line(&mut String::new()).unwrap();
            run("sh", &["-c", &script]);
            excluded.stdin.take().unwrap().write_all(b"\n").unwrap();
            excluded.wait().unwrap();
            let trace = recorder.finish(EndReason::Exit(0)).unwrap();
            std::fs::write(dir.join("trace"), trace.to_bytes().unwrap()).unwrap();
        }
        Ok("tracefs") => {
            let options = Options {
                backend: BackendChoice::Tracefs,
                ..Options::system()
            };
            let why = Recorder::start(&options).err().unwrap().to_string();
            std::fs::write(dir.join("trace"), why).unwrap();
        }
        other => panic!("{other:?}"),
    }
}

/// This binary in a container, which `words` make; what it left.
fn contained(dir: &Path, words: &[&str], scope: &str, script: &str, meanwhile: impl FnOnce()) -> Vec<u8> {
    std::fs::write(dir.join("script"), script).unwrap();
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .arg(std::env::current_exe().unwrap())
        .args(["namespaces::inside", "--exact", "--ignored", "--nocapture"])
        .env("TRACE_IN", dir)
        .env("SCOPE", scope)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut lines = Vec::new();
    if scope == "system" {
        for line in said.by_ref() {
            lines.push(line.unwrap());
            if lines.last().is_some_and(|line| line == "recording") {
                break;
            }
        }
    }
    meanwhile();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    lines.extend(said.map(Result::unwrap));
    assert!(child.wait().unwrap().success(), "{words:?}: {}", lines.join("\n"));
    std::fs::read(dir.join("trace")).unwrap()
}

fn read(bytes: &[u8]) -> Trace {
    Trace::from_bytes(bytes).unwrap()
}

/// Where nspawn and podman differ from one another they do not for a recorder: namespaces of all kinds, once
/// or twice.
const CONTAINERS: &[&[&str]] = &[
    &["unshare", "--pid", "--fork", "--mount-proc"],
    &[
        "unshare",
        "--pid",
        "--fork",
        "--mount",
        "--uts",
        "--ipc",
        "--net",
        "--cgroup",
        "--mount-proc",
    ],
    &[
        "unshare",
        "--pid",
        "--fork",
        "--mount-proc",
        "unshare",
        "--pid",
        "--fork",
        "--mount-proc",
    ],
    // /proc is the host's, or that of the container around.
    &["unshare", "--pid", "--fork"],
    &[
        "unshare",
        "--pid",
        "--fork",
        "--mount-proc",
        "unshare",
        "--pid",
        "--fork",
    ],
];

#[test]
fn a_command_in_a_container_is_recorded_as_outside() {
    if !can_record() {
        return;
    }
    let (mounted, disk) = with_disk("ext4");
    for name in ["mine", "others"] {
        std::fs::write(disk.join(name), vec![1; 3 * 4096]).unwrap();
    }
    let (mine, others) = (disk.join("mine"), disk.join("others"));
    let script = format!("sh -c 'cat {}; :'; sleep 0.1", mine.display());
    for words in CONTAINERS {
        let beside = || {
            run("cat", &[others.to_str().unwrap()]);
        };
        let trace = read(&contained(mounted.beside(), words, "tree", &script, beside));
        assert_eq!(trace.unfit(), None, "{words:?}");
        assert_eq!(pages(&trace, &mine, &[UseKind::Read]).len(), 3, "{words:?}");
        assert!(file(&trace, &others).is_none(), "{words:?}");
        // The numbers are those of its /proc, where what processes run is found.
        let process = |name: &str| {
            let runs = |p: &headstart_model::trace::Process| p.executable.to_string().ends_with(name);
            trace.processes.iter().position(runs)
        };
        let cat = process("/cat").unwrap_or_else(|| panic!("{words:?}: {:?}", trace.processes));
        let index = file(&trace, &mine).unwrap().0;
        let by = trace.uses.iter().find(|u| u.file as usize == index).unwrap();
        assert_eq!(by.process as usize, cat, "{words:?}");
        assert_eq!(trace.processes[0].parent, None);
        let inner = trace.processes[cat].parent.unwrap() as usize;
        assert_eq!(trace.processes[inner].parent, Some(0), "{words:?}");
        let pids: std::collections::BTreeSet<u32> = trace.processes.iter().map(|p| p.pid).collect();
        assert_eq!(
            pids.len(),
            trace.processes.len(),
            "each process once: {words:?}: {:?}",
            trace.processes
        );
        assert!(!pids.contains(&0));
    }
}

#[test]
fn everybody_in_a_container_are_its_own_without_whom_is_left_out() {
    if !can_record() {
        return;
    }
    let (mounted, disk) = with_disk("ext4");
    for path in [
        disk.join("mine"),
        disk.join("others"),
        mounted.beside().join("excluded"),
    ] {
        std::fs::write(path, vec![1; 3 * 4096]).unwrap();
    }
    let (mine, others) = (disk.join("mine"), disk.join("others"));
    for words in &CONTAINERS[..3] {
        let beside = || {
            run("cat", &[others.to_str().unwrap()]);
        };
        let trace = read(&contained(
            mounted.beside(),
            words,
            "system",
            &format!("cat {}", mine.display()),
            beside,
        ));
        assert_eq!(pages(&trace, &mine, &[UseKind::Read]).len(), 3, "{words:?}");
        assert!(file(&trace, &others).is_none(), "{words:?}: the host's");
        let is_excluded = |path: &Path| path.ends_with("excluded");
        assert!(
            !trace.files.iter().any(|f| is_excluded(f.path.as_path())),
            "{words:?}"
        );
        assert!(
            !trace.lookups.iter().any(|l| is_excluded(l.path.as_path())),
            "{words:?}"
        );
    }
}

#[test]
fn tracefs_refuses_a_container_and_says_why() {
    if !can_record() {
        return;
    }
    let dir = Scratch::new().unwrap();
    for words in [CONTAINERS[0], CONTAINERS[3]] {
        let why = String::from_utf8(contained(dir.path(), words, "tracefs", "", || {})).unwrap();
        assert!(
            why.contains("initial pid namespace") && why.contains("--backend bpf"),
            "{why}"
        );
    }
}

#[test]
fn a_process_that_is_not_there_is_an_error_that_names_it() {
    if !can_record() {
        return;
    }
    let mut recorder = Recorder::start(&tree()).unwrap();
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let refused = recorder.add_root(pid);
    assert!(
        matches!(refused, Err(RecordError::NoProcess { pid: of }) if of == pid),
        "{refused:?}"
    );
    recorder.add_root(std::process::id()).unwrap();
    recorder.finish(EndReason::Exit(0)).unwrap();
}
