//! A daemon that is killed, stopped or replaced, and a state directory that fails: programs start as if it
//! were not there.

use crate::common::{Case, binary, eventually, finish, is_root, signal};
use crate::harness::*;
use headstart_model::Key;
use headstart_model::outcome::Mode;
use headstart_store::Store;
use headstart_system::testing::{LoopFs, Mounted, Spec};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a start prints, which has to be what is in its files.
#[track_caller]
fn prints_its_files(child: Child) {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    assert_eq!(output.stdout.len(), 20 << 20);
    assert!(output.stdout.iter().all(|byte| *byte == 0));
}

fn printing(fs: &LoopFs) -> Child {
    command(fs, "one").stdout(Stdio::piped()).spawn().unwrap()
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
    for _ in 0..rounds(8, 200) {
        let mut daemon = Daemon::start(&case);
        evict(&files(&fs, "one"));
        let child = printing(&fs);
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_micros((chance >> 33) % 300_000));
        daemon.child.kill().unwrap();
        prints_its_files(child);
        daemon.child.wait().unwrap();
        is_whole(&case);
    }
    let before = finished(&case, &one);
    let daemon = Daemon::start(&case);
    for turn in 1..=2 {
        evict(&files(&fs, "one"));
        prints_its_files(printing(&fs));
        eventually("it is finished", || finished(&case, &one) == before + turn);
    }
    assert_eq!(outcomes(&case, &one).last().unwrap().mode, Mode::Replay);
    daemon.stop();
    nothing_half_written(&case, &one);
}

#[track_caller]
fn nothing_half_written(case: &Case, key: &Key) {
    let kept = fs::read_dir(Store::new(case.state()).key(key).path()).unwrap();
    for entry in kept {
        let name = entry.unwrap().file_name();
        let name = name.to_string_lossy();
        assert!(
            !name.starts_with(".tmp-") && !name.ends_with(".damaged"),
            "{name}"
        );
    }
}

#[test]
fn a_daemon_is_upgraded_while_programs_start() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let newer = case.path("headstart-newer");
    fs::copy(binary(), &newer).unwrap();
    let done = AtomicBool::new(false);
    let starts = std::thread::scope(|scope| {
        let starting = scope.spawn(|| {
            let mut starts = 0;
            while !done.load(Ordering::Relaxed) {
                evict(&files(&fs, "one"));
                prints_its_files(printing(&fs));
                starts += 1;
            }
            starts
        });
        for turn in 0..rounds(6, 40) {
            let of_turn = match turn % 2 {
                0 => Command::new(binary()),
                _ => Command::new(&newer),
            };
            let daemon = Daemon::start_by(&case, of_turn, &["--no-control"]);
            std::thread::sleep(Duration::from_millis(200));
            daemon.stop();
        }
        done.store(true, Ordering::Relaxed);
        starting.join().unwrap()
    });
    assert!(starts > 0);
    is_whole(&case);
    let daemon = Daemon::start(&case);
    let last = start_until_kept(&case, &fs, "one");
    assert_eq!(last.not_learned, None);
    daemon.stop();
    nothing_half_written(&case, &key(&fs, "one"));
}

#[test]
fn a_state_directory_that_is_full_or_read_only_keeps_nothing_and_harms_nobody() {
    if !can_watch() {
        return;
    }
    let fs = disk(&["one"]);
    for options in ["size=64k,mode=755", "ro,size=64k,mode=755"] {
        let case = Case::new();
        let mounted = Mounted::new(&["-t", "tmpfs", "-o", options, "none"], &case.state()).unwrap();
        if !options.starts_with("ro") {
            // As far as it goes.
            let _ = fs::write(case.state().join("full"), vec![0; 64 << 10]);
        }
        let daemon = Daemon::start(&case);
        for _ in 0..3 {
            evict(&files(&fs, "one"));
            prints_its_files(printing(&fs));
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
fn a_state_directory_that_becomes_full_or_read_only_serves_as_it_is() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let one = key(&fs, "one");
    let small = Spec {
        size: 16 << 20,
        ..Spec::new("ext4")
    };
    let state = LoopFs::create(&small, |_| Ok(())).unwrap();
    fs::create_dir(case.state()).unwrap();
    let state_point = state.mount_point();
    let point = state_point.to_str().unwrap();
    let _bound = Mounted::new(&["--bind", point], &case.state()).unwrap();
    let daemon = Daemon::start(&case);
    start_until_kept(&case, &fs, "one");
    let full = case.state().join("full");
    let fill = || {
        let mut file = File::create(&full).unwrap();
        // The last blocks, too: a page at a time.
        for size in [1 << 20, 4096] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
        file.sync_all().ok();
    };
    // Not while somebody writes there, as the daemon does of any start on a busy machine.
    let remount = |how: &str| {
        eventually(how, || {
            let mut mount = Command::new("mount");
            mount.args(["-o", how]).arg(point).stderr(Stdio::null());
            mount.status().unwrap().success()
        });
    };
    for way in ["full", "ro"] {
        // Whatever the daemon removes meanwhile makes room again, and is filled, too.
        eventually("nothing more is kept", || {
            match way {
                "full" => fill(),
                _ => remount("remount,ro"),
            }
            let before = outcomes(&case, &one);
            evict(&files(&fs, "one"));
            prints_its_files(printing(&fs));
            // Read ahead by what is known, though nothing more is kept of it.
            std::thread::sleep(Duration::from_millis(500));
            is_whole(&case);
            outcomes(&case, &one) == before
        });
        match way {
            "full" => fs::remove_file(&full).unwrap(),
            _ => remount("remount,rw"),
        }
        assert_eq!(start_until_kept(&case, &fs, "one").mode, Mode::Replay, "{way}");
    }
    let said = daemon.stop();
    assert!(
        !said.contains("panicked") && !said.contains("not kept: 0;"),
        "{said}"
    );
    nothing_half_written(&case, &one);
}

#[test]
fn a_clock_that_was_ahead_leaves_nothing_behind_that_does_not_serve() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one", "two"]);
    let one = key(&fs, "one");
    let ahead = SystemTime::now() + Duration::from_secs(10 * 365 * 24 * 3600);
    // Files of programs are dated as wrongly.
    for file in files(&fs, "one") {
        File::open(file).unwrap().set_modified(ahead).unwrap();
    }
    let daemon = Daemon::start(&case);
    run(command(&fs, "one"));
    kept(&case, &one, 1);
    daemon.stop();
    // All that it left, dated and numbered so.
    let number = ahead.duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let directory = Store::new(case.state()).key(&one).path().to_owned();
    for entry in fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        File::open(&path).unwrap().set_modified(ahead).unwrap();
        let extension = path
            .extension()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if extension == "trace" || extension == "outcome" {
            fs::rename(&path, directory.join(format!("{number:020}.{extension}"))).unwrap();
        }
    }
    let daemon = Daemon::start(&case);
    for turn in 2..=4 {
        fs.remount_cold().unwrap();
        run(command(&fs, "one"));
        let outcomes = kept(&case, &one, turn);
        let last = outcomes.last().unwrap();
        assert_eq!((last.mode, &last.not_learned), (Mode::Replay, &None));
        assert!(
            outcomes
                .windows(2)
                .all(|two| two[0].started_unix_ns < two[1].started_unix_ns)
        );
    }
    // Another program has its turn as ever.
    run(command(&fs, "two"));
    kept(&case, &key(&fs, "two"), 1);
    is_whole(&case);
    daemon.stop();
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
fn a_machine_that_stood_still_amid_a_start_goes_on_where_it_was() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let one = key(&fs, "one");
    let daemon = Daemon::start(&case);
    start_until_kept(&case, &fs, "one");
    for turn in 0..rounds(2, 20) {
        evict(&files(&fs, "one"));
        let mut command = command(&fs, "one");
        let before = finished(&case, &one);
        let mut child = command.arg("-").stdin(Stdio::piped()).spawn().unwrap();
        // As a virtual machine is suspended: all of them at once, wherever they are. The clock goes on
        // without them.
        std::thread::sleep(Duration::from_millis(turn * 5));
        let pids = [daemon.child.id(), child.id()];
        pids.iter().for_each(|pid| signal(*pid, 19));
        std::thread::sleep(Duration::from_secs(3));
        pids.iter().for_each(|pid| signal(*pid, 18));
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        is_whole(&case);
        // It may have looked as if it had fallen quiet.
        eventually("the start is finished", || finished(&case, &one) > before);
    }
    assert_eq!(start_until_kept(&case, &fs, "one").mode, Mode::Replay);
    daemon.stop();
    nothing_half_written(&case, &one);
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
