//! What is learned of starts, and what is done for the next one.

use crate::common::{Case, binary, eventually, is_root, signal};
use crate::harness::*;
use headstart_model::outcome::Mode;
use headstart_model::{FilePath, Key};
use headstart_store::Store;
use headstart_system::mounts::MountTable;
use headstart_system::open::find_cached;
use headstart_system::testing::{LoopFs, undisturbed};
use serde_json::json;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[test]
fn the_second_slow_start_is_read_ahead_and_another_instance_is_not() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one", "other"]);
    let daemon = Daemon::start(&case);
    let one = key(&fs, "one");
    assert!(command(&fs, "one").status().unwrap().success());
    let first = &kept(&case, &one, 1)[0];
    assert_eq!((first.mode, first.status), (Mode::Record, Some(0)));
    assert_eq!(first.not_learned, None);
    fs.remount_cold().unwrap();
    assert!(command(&fs, "one").status().unwrap().success());
    let second = &kept(&case, &one, 2)[1];
    assert_eq!(second.mode, Mode::Replay);
    let sum = |pages: fn(&headstart_model::outcome::StageOutcome) -> u64| {
        second.stages.iter().map(pages).sum::<u64>()
    };
    let pages = 20 * 256;
    assert!(sum(|s| s.issued_pages) >= pages, "{second:?}");
    // On so fast a disk some are used before they have come.
    assert!(
        sum(|s| s.used_pages) + sum(|s| s.late_pages) >= pages * 95 / 100,
        "{second:?}"
    );
    assert!(sum(|s| s.missed_pages) <= pages / 20, "{second:?}");
    // One that goes on running, and another instance that would have to read all of it again.
    fs.remount_cold().unwrap();
    let mut runs = command(&fs, "one")
        .arg("-")
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(kept(&case, &one, 3)[2].mode, Mode::Replay);
    evict(&files(&fs, "one"));
    assert!(command(&fs, "one").status().unwrap().success());
    // What is finished is finished in its turn.
    assert!(command(&fs, "other").status().unwrap().success());
    kept(&case, &key(&fs, "other"), 1);
    assert_eq!(
        outcomes(&case, &one).len(),
        3,
        "of the other instance nothing is kept"
    );
    drop(runs.stdin.take());
    assert!(runs.wait().unwrap().success());
    let said = daemon.stop();
    assert!(!said.contains("of programs that ran already: 0;"), "{said}");
}

/// Before the kernel tells of an execution it has read the links that lead to the program, and nobody can
/// read them ahead then.
#[test]
fn the_links_by_which_a_program_is_called_are_read_at_rest() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one", "other"]);
    let at = |fs: &LoopFs, name: &str| fs.mount_point().join(name);
    symlink(at(&fs, "second"), at(&fs, "first")).unwrap();
    symlink("one", at(&fs, "second")).unwrap();
    symlink("one", at(&fs, "another")).unwrap();
    fs::write(at(&fs, "script"), "#!/bin/sh\ncat \"$@\"\n").unwrap();
    fs::set_permissions(at(&fs, "script"), Permissions::from_mode(0o755)).unwrap();
    symlink("script", at(&fs, "third")).unwrap();
    let daemon = Daemon::start(&case);
    let shell = fs::canonicalize("/bin/sh").unwrap();
    let script = format!("{} {}", shell.display(), at(&fs, "script").display());
    let names = ["first", "third"];
    let keys = [key(&fs, "one"), Key::new(script).unwrap()];
    for ((name, key), of) in names.into_iter().zip(&keys).zip(["one", "other"]) {
        let mut called = Command::new(at(&fs, name));
        called.args(files(&fs, of)).stdout(Stdio::null());
        run(called);
        kept(&case, key, 1);
        let name = FilePath::from(&*at(&fs, name));
        eventually("the name is kept", || {
            Store::new(case.state()).key(key).names().contains(&name)
        });
    }
    daemon.stop();
    fs.remount_cold().unwrap();
    let is_there = |name: &str| find_cached(&MountTable::read().unwrap(), &at(&fs, name)).is_ok();
    let names = ["first", "second", "third", "another"];
    assert_eq!(names.map(is_there), [false; 4]);
    let _daemon = Daemon::start(&case);
    eventually("the links are looked up", || {
        is_there("first") && is_there("second") && is_there("third")
    });
    assert!(!is_there("another"), "nobody has called it so");
}

#[test]
fn a_start_is_read_ahead_though_the_one_a_moment_before_was_warm() {
    if !can_watch() {
        return;
    }
    undisturbed(|| {
        let case = Case::new();
        let fs = disk(&["one"]);
        let words = ["--no-control", "--control-every", "1000000"];
        let daemon = Daemon::start_by(&case, Command::new(binary()), &words);
        let one = key(&fs, "one");
        run(command(&fs, "one"));
        assert_eq!(kept(&case, &one, 1)[0].mode, Mode::Record);
        // It waits for the end of its input, so that it is there when it is looked at.
        let mut warm = command(&fs, "one")
            .arg("-")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(500));
        drop(warm.stdin.take());
        assert!(warm.wait().unwrap().success());
        evict(&files(&fs, "one"));
        run(command(&fs, "one"));
        assert_eq!(kept(&case, &one, 2)[1].mode, Mode::Replay);
        let said = daemon.stop();
        // Others of the machine may be among them.
        assert!(
            said.contains("bypassed: ") && !said.contains("bypassed: 0,"),
            "the warm one: {said}"
        );
    });
}

#[test]
fn a_program_that_does_not_wait_is_not_learned() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    // The kernel may take a page of one from memory, but not of each.
    let warm = ["one", "two", "three"];
    let fs = disk(&["one", "two", "three", "other"]);
    let start = |name: &str| run(command(&fs, name));
    // Other tests' daemons go first, for so long that what was read before would be out of memory again.
    let daemon = Daemon::start(&case);
    for _ in 0..3 {
        for name in warm {
            for path in files(&fs, name).iter().chain([&fs.mount_point().join(name)]) {
                fs::read(path).unwrap();
            }
            start(name);
        }
    }
    // One that has to read, so that what ended before has been judged.
    evict(&files(&fs, "other"));
    start("other");
    kept(&case, &key(&fs, "other"), 1);
    let is_learned = |name: &&str| Store::new(case.state()).key(&key(&fs, name)).exists();
    let learned: Vec<&str> = warm.into_iter().filter(is_learned).collect();
    assert!(learned.len() < warm.len(), "{learned:?}");
    daemon.stop();
}

#[test]
fn an_operation_is_learned_and_read_ahead_like_a_start() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let disk = disk(&["one"]);
    let (daemon, mut control) = Daemon::start_with_control(&case);
    let key = Key::new("operation load of user 0").unwrap();
    for (turn, mode) in [Mode::Record, Mode::Replay].into_iter().enumerate() {
        evict(&files(&disk, "one"));
        let begun = call(&mut control, "BeginOperation", json!({ "name": "load" }));
        // It is begun soon.
        std::thread::sleep(Duration::from_millis(300));
        for file in files(&disk, "one") {
            assert_eq!(fs::read(file).unwrap().len(), 1 << 20);
        }
        call(&mut control, "EndOperation", json!({ "id": begun["id"] }));
        let last = &kept(&case, &key, turn + 1)[turn];
        assert_eq!((last.mode, &last.not_learned), (mode, &None));
    }
    let trace = last_trace(&case, &key);
    let pages: u64 = trace.uses.iter().map(|one| u64::from(one.pages)).sum();
    assert!(pages >= 20 * 256, "{pages}");
    daemon.stop();
}

#[test]
fn a_start_in_another_mount_namespace_is_left_alone_and_why_is_said_once() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["inside"]);
    let inside = command(&fs, "inside");
    // It is there before the daemon, so that what it executes is part of no start that has begun here.
    let mut container = Command::new("unshare")
        .args(["--mount", "sh", "-c", "while read -r _; do \"$@\"; done", "sh"])
        .arg(inside.get_program())
        .args(inside.get_args())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut starts = container.stdin.take().unwrap();
    let daemon = Daemon::start(&case);
    for _ in 0..2 {
        evict(&files(&fs, "inside"));
        writeln!(starts).unwrap();
        std::thread::sleep(Duration::from_secs(1));
    }
    drop(starts);
    assert!(container.wait().unwrap().success());
    assert!(outcomes(&case, &key(&fs, "inside")).is_empty());
    let said = daemon.stop();
    assert_eq!(said.matches("another mount namespace (").count(), 1, "{said}");
    let left_out = said
        .rsplit("in another mount namespace: ")
        .next()
        .and_then(|rest| rest.trim().parse::<u64>().ok());
    assert!(left_out >= Some(2), "{said}");
}

/// The rights that the package's unit leaves the daemon, as setpriv(1) has them.
fn rights_of_the_unit() -> String {
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/systemd/headstartd.service"
    );
    let unit = fs::read_to_string(unit).unwrap();
    let set = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet=CAP_"))
        .unwrap();
    format!("-all,+{}", set.to_lowercase().replace(" cap_", ",+"))
}

#[test]
fn with_the_rights_of_its_unit_it_reads_files_that_are_not_roots() {
    undisturbed(|| {
        if !can_watch() || !is_root() {
            return;
        }
        let case = Case::new();
        let mut fs = disk(&["one"]);
        let paths = files(&fs, "one");
        for file in &paths {
            fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
            chown(file, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let accessed = fs::metadata(&paths[0]).unwrap().accessed().unwrap();
        let mut limited = Command::new("setpriv");
        limited
            .args(["--bounding-set", &rights_of_the_unit()])
            .arg(binary());
        let daemon = Daemon::start_by(&case, limited, &["--no-control"]);
        let one = key(&fs, "one");
        // Its arguments do not name the first of its files: that is read ahead for all its starts.
        let mut with_all = Command::new(fs.mount_point().join("one"));
        with_all.args(&paths[1..]).arg("-").stdout(Stdio::null());
        with_all.stdin(fs::File::open(&paths[0]).unwrap());
        run(with_all);
        kept(&case, &one, 1);
        let read = fs::metadata(&paths[0]).unwrap().accessed().unwrap();
        assert!(read > accessed, "the start has read it");
        fs.remount_cold().unwrap();
        let mut without_it = Command::new(fs.mount_point().join("one"));
        without_it.args(&paths[1..]).arg("-").stdout(Stdio::null());
        without_it.stdin(Stdio::piped());
        let held = Held::start(without_it);
        held.is_read_ahead(&paths[0]);
        held.ends();
        assert_eq!(kept(&case, &one, 2)[1].mode, Mode::Replay);
        assert_eq!(fs::metadata(&paths[0]).unwrap().accessed().unwrap(), read);
        daemon.stop();
    });
}

#[test]
fn two_starts_at_the_same_time_are_both_read_ahead() {
    undisturbed(|| {
        if !can_watch() {
            return;
        }
        let case = Case::new();
        let names = ["one", "two"];
        let mut fs = disk(&names);
        let daemon = Daemon::start(&case);
        for name in names {
            run(command(&fs, name));
            kept(&case, &key(&fs, name), 1);
        }
        fs.remount_cold().unwrap();
        let waits = |name: &str| {
            let mut command = Command::new(fs.mount_point().join(name));
            command.arg("-").args(files(&fs, name));
            command.stdin(Stdio::piped()).stdout(Stdio::null());
            Held::start(command)
        };
        let held = names.map(waits);
        for (name, held) in names.iter().zip(&held) {
            files(&fs, name).iter().for_each(|file| held.is_read_ahead(file));
        }
        held.into_iter().for_each(Held::ends);
        for name in names {
            assert_eq!(kept(&case, &key(&fs, name), 2)[1].mode, Mode::Replay);
        }
        daemon.stop();
    });
}

/// A program that nobody knows, which executes what it is given in its own place, as many a launcher does.
fn unknown_wrapper(case: &Case) -> PathBuf {
    let wrapper = case.path("unheard-of");
    fs::copy("/usr/bin/setsid", &wrapper).unwrap();
    wrapper.canonicalize().unwrap()
}

/// The keys of a wrapper with what it starts.
fn keys_with_what_it_starts(case: &Case, wrapper: &Path) -> Vec<Key> {
    let mut keys = Store::new(case.state()).keys().unwrap();
    let begins = format!("{} ", wrapper.display());
    keys.retain(|key| key.as_str().starts_with(&begins));
    keys
}

/// Waits until a first start is kept by what the wrapper starts, and gives its key.
#[track_caller]
fn kept_with_what_it_starts(case: &Case, wrapper: &Path) -> Key {
    eventually("its start is kept by what it starts", || {
        let keys = keys_with_what_it_starts(case, wrapper);
        keys.iter().any(|key| finished(case, key) == 1)
    });
    keys_with_what_it_starts(case, wrapper).remove(0)
}

#[test]
fn what_an_unknown_wrapper_starts_is_in_its_key_and_the_next_start_is_read_ahead() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one"]);
    let wrapper = unknown_wrapper(&case);
    let start = || {
        let mut command = Command::new(&wrapper);
        command.arg("--wait").arg(fs.mount_point().join("one"));
        command.args(files(&fs, "one")).stdout(Stdio::null());
        command
    };
    let daemon = Daemon::start(&case);
    run(start());
    let key = kept_with_what_it_starts(&case, &wrapper);
    let command = start();
    fs.remount_cold().unwrap();
    run(command);
    assert_eq!(kept(&case, &key, 2)[1].mode, Mode::Replay);
    assert_eq!(keys_with_what_it_starts(&case, &wrapper), [key]);
    let own = Key::new(wrapper.to_string_lossy()).unwrap();
    assert!(outcomes(&case, &own).is_empty());
    daemon.stop();
}

#[test]
fn a_wrapper_that_is_answered_when_it_has_executed_what_it_starts_is_read_ahead() {
    undisturbed(|| {
        if !can_watch() {
            return;
        }
        let case = Case::new();
        let mut fs = disk(&["one"]);
        let wrapper = unknown_wrapper(&case);
        let one = fs.mount_point().join("one");
        let start = || {
            let mut command = Command::new(&wrapper);
            // It reads what it is told before it reads its files.
            command.arg("--wait").arg(&one).arg("-").args(files(&fs, "one"));
            command.stdin(Stdio::piped()).stdout(Stdio::null());
            command
        };
        let ends = |mut started: Child| {
            drop(started.stdin.take());
            assert!(started.wait().unwrap().success());
        };
        let daemon = Daemon::start(&case);
        ends(start().spawn().unwrap());
        let key = kept_with_what_it_starts(&case, &wrapper);
        let mut command = start();
        fs.remount_cold().unwrap();
        signal(daemon.child.id(), 19);
        let started = command.spawn().unwrap();
        let executes = format!("/proc/{}/exe", started.id());
        eventually("what it starts is executed", || {
            fs::read_link(&executes).is_ok_and(|path| path == one)
        });
        signal(daemon.child.id(), 18);
        eventually("what it will read is in memory", || {
            resident(&files(&fs, "one")) == 20 * 256
        });
        ends(started);
        assert_eq!(kept(&case, &key, 2)[1].mode, Mode::Replay);
        daemon.stop();
    });
}

#[test]
fn what_cannot_gain_is_not_kept() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one", "two"]);
    // What dpkg(1) does for a package's script, and a program that reads nothing but itself.
    let installer = case.path("dpkg");
    fs::copy("/bin/dash", &installer).unwrap();
    let daemon = Daemon::start(&case);
    let mut install = Command::new(&installer);
    install.args(["-c", "\"$@\"; true", "sh"]);
    install
        .arg(fs.mount_point().join("one"))
        .args(files(&fs, "one"))
        .stdout(Stdio::null());
    run(install);
    fs.remount_cold().unwrap();
    let mut little = Command::new(fs.mount_point().join("one"));
    little.stdin(Stdio::null());
    run(little);
    // What is finished is finished in its turn.
    run(command(&fs, "two"));
    kept(&case, &key(&fs, "two"), 1);
    assert!(!Store::new(case.state()).key(&key(&fs, "one")).exists());
    daemon.stop();
}

/// Its cold starts are to be without headstart, and the daemon would read ahead for them.
#[test]
fn the_daemon_ignores_what_a_benchmark_starts() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one"]);
    let daemon = Daemon::start(&case);
    let one = key(&fs, "one");
    for count in 1..=2 {
        fs.remount_cold().unwrap();
        run(command(&fs, "one"));
        kept(&case, &one, count);
    }
    let mut bench = case.command(&["bench", "--yes", "--rounds", "4", "--json", "--"]);
    bench.arg(fs.mount_point().join("one")).args(files(&fs, "one"));
    let ran = bench.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(report["cold"].as_array().unwrap().len(), 4);
    // One that it notices comes behind those that it ignored.
    fs.remount_cold().unwrap();
    run(command(&fs, "one"));
    assert_eq!(kept(&case, &one, 3)[2].mode, Mode::Replay);
    daemon.stop();
}
