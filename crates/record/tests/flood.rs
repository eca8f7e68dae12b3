//! A recording of everybody beside a user who floods it. A program of its own: the flood would have the
//! recorders of other tests lose events. Needs root and a kernel with BTF.

#![allow(clippy::unwrap_used)] // Tests fail by panicking, in their helpers too.

#[path = "record/support.rs"]
mod support;

use headstart_model::trace::EndReason;
use headstart_record::{BackendChoice, Options, Recorder};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::*;

/// Not a test of its own: records everybody, says so, waits for a line, and says what came of it.
#[test]
#[ignore = "not a test of its own, but what one executes"]
fn recorder() {
    // Unlike what is printed, what is written is not kept by the harness of tests.
    let mut tell = std::io::stderr();
    let recorder = Recorder::start(&Options {
        backend: BackendChoice::Bpf,
        ..Options::system()
    });
    let recorder = recorder.unwrap();
    writeln!(tell, "recording").unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let trace = recorder.finish(EndReason::Quiet).unwrap();
    let bytes = trace.to_bytes().unwrap().len();
    let used = trace
        .files
        .iter()
        .any(|file| file.path.to_string().ends_with("/needed"));
    let looked_up = trace
        .lookups
        .iter()
        .any(|one| one.path.to_string().ends_with("/looked-for"));
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    writeln!(
        tell,
        "{peak} {bytes} {} {} {used} {looked_up}",
        trace.lost.dropped,
        trace.unfit().is_some()
    )
    .unwrap();
}

/// Looks up paths of 4,000 bytes, each another, as fast as it can, as somebody who may do nothing.
fn flood(number: usize) -> Child {
    as_nobody(&format!(
        "import os\nn = 0\ntail = ('/' + 'x' * 199) * 19\nwhile True:\n try: os.stat('/{number}%0198d%s' % (n, tail))\n \
         except OSError: n += 1"
    ))
}

/// Reads pages of a file of 1 TiB without blocks, each another, as fast as it can, and gives their memory
/// back.
fn read_pages(path: &Path) -> Child {
    as_nobody(&format!(
        "import os\nf = os.open('{}', os.O_RDONLY)\nn = 0\nwhile True:\n os.pread(f, 1, n << 14)\n n += 1\n if n % 16384 == 0: \
         os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)",
        path.display()
    ))
}

fn as_nobody(script: &str) -> Child {
    Command::new("python3")
        .args(["-c", script])
        .uid(65534)
        .gid(65534)
        .spawn()
        .unwrap()
}

/// Set where the test runs in a container of its own.
const IN_CONTAINER: &str = "HEADSTART_TEST_IN_CONTAINER";

#[test]
fn a_flood_of_long_paths_and_of_pages_takes_less_than_256_mib_and_the_trace_teaches() {
    if !can_record() {
        return;
    }
    // In a container, so that everybody are those of this test, and root has its room to itself.
    if std::env::var_os(IN_CONTAINER).is_none() {
        let name = "a_flood_of_long_paths_and_of_pages_takes_less_than_256_mib_and_the_trace_teaches";
        let contained = Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc"])
            .arg(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(IN_CONTAINER, "1")
            .status();
        assert!(contained.unwrap().success());
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    std::fs::write(disk.join("needed"), "x").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["recorder", "--exact", "--ignored"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "recording");
    let sparse = disk.join("sparse");
    std::fs::File::create(&sparse).unwrap().set_len(1 << 40).unwrap();
    let mut floods = vec![flood(0), read_pages(&sparse)];
    // Some millions of look-ups, which took 600 MiB, and more pages than a trace has room for.
    std::thread::sleep(Duration::from_secs(4));
    let needed = disk.join("needed");
    let looked_for: &Path = &disk.join("looked-for");
    run(
        "sh",
        &[
            "-c",
            &format!("cat {}; test ! -e {}", needed.display(), looked_for.display()),
        ],
    );
    std::thread::sleep(Duration::from_secs(1));
    for flood in &mut floods {
        flood.kill().unwrap();
        flood.wait().unwrap();
    }
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let line = said.next().unwrap().unwrap();
    assert!(child.wait().unwrap().success());
    eprintln!("peak KiB, bytes, dropped, unfit, used, looked up: {line}");
    let words: Vec<&str> = line.split(' ').collect();
    let peak: u64 = words[0].parse().unwrap();
    let dropped: u64 = words[2].parse().unwrap();
    assert!(peak < 256 << 10, "{peak} KiB");
    // Ten times what there is room for; a machine that is busy makes fewer than one that is not.
    assert!(dropped > 10_000, "{dropped} look-ups are no flood");
    assert_eq!(
        words[3..],
        ["false", "true", "true"],
        "unfit, the file used, what root looked up"
    );
}
