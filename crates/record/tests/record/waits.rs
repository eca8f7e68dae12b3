//! Whose waiting for block devices counts as time blocked.

use crate::support::*;
use headstart_model::trace::EndReason;
use headstart_record::{BackendChoice, Options, Recorder};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Not a test of its own: process 1 of a container, which records all of it, tells so, waits for a line, runs
/// the script `INSIDE` if that is not empty, and tells for how long processes were blocked.
#[test]
#[ignore = "not a test of its own, but what one executes"]
fn recorder() {
    let inside = std::env::var("INSIDE").unwrap();
    // Unlike what is printed, what is written is not kept by the harness of tests.
    let mut tell = std::io::stderr();
    let recorder = Recorder::start(&Options {
        backend: BackendChoice::Bpf,
        ..Options::system()
    });
    let recorder = recorder.unwrap();
    writeln!(tell, "recording").unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
    if !inside.is_empty() {
        run("sh", &["-c", &inside]);
    }
    let trace = recorder.finish(EndReason::Exit(0)).unwrap();
    writeln!(tell, "{}", trace.end.blocked_ns.unwrap()).unwrap();
}

/// For how many nanoseconds a recorder in a container sees processes blocked while `outside` runs beside the
/// container, then the script `inside` in it.
fn blocked(outside: &[&str], inside: &str) -> u64 {
    let mut container = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args(["waits::recorder", "--exact", "--ignored"])
        .env("INSIDE", inside)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(container.stderr.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "recording");
    run(outside[0], &outside[1..]);
    container.stdin.take().unwrap().write_all(b"\n").unwrap();
    let blocked = said.next().unwrap().unwrap();
    assert!(container.wait().unwrap().success());
    blocked.parse().unwrap_or_else(|_| panic!("{blocked}"))
}

#[test]
fn in_a_container_only_its_own_processes_are_blocked() {
    if !can_record() {
        return;
    }
    let (mounted, _) = with_disk("ext4");
    let device = node(&mounted);
    let read = format!("dd if={device} of=/dev/null iflag=direct bs=4k count=2000 status=none");
    assert!(blocked(&["true"], &read) > 0, "its own");
    assert_eq!(blocked(&["sh", "-c", &read], ""), 0, "the host's");
    let other = ["unshare", "--pid", "--fork", "sh", "-c", &read];
    assert_eq!(blocked(&other, ""), 0, "another container's");
}

#[test]
fn kernel_threads_are_not_blocked() {
    if !can_record() {
        return;
    }
    let (mounted, disk) = with_disk("ext4");
    let device = node(&mounted);
    let name = format!("jbd2/{}-8\n", device.trim_start_matches("/dev/"));
    let mut processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
    let is_journal = |comm: std::io::Result<String>| comm.is_ok_and(|comm| comm == name);
    let journal = processes
        .find(|process| is_journal(fs::read_to_string(process.path().join("comm"))))
        .expect("the thread of the disk's journal, which only the initial pid namespace shows");
    let pid = journal.file_name().into_string().unwrap().parse().unwrap();
    let mut recorder = Recorder::start(&tree()).unwrap();
    recorder.add_root(pid).unwrap();
    for number in 0..20 {
        let file = fs::File::create(disk.join(number.to_string())).unwrap();
        // Waits for the journal's thread, which waits for the disk.
        file.sync_all().unwrap();
    }
    let trace = recorder.finish(EndReason::Exit(0)).unwrap();
    assert_eq!(trace.end.blocked_ns, Some(0));
}
