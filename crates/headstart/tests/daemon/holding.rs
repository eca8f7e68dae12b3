//! Starts that are held on one head, and that nobody waits for a daemon that cannot hold them or does not let them go.

use crate::common::{Case, binary, children, eventually, finish, is_root, process_state, signal};
use crate::harness::*;
use headstart_model::machine::{Cost, DeviceClass};
use headstart_model::outcome::Mode;
use headstart_model::path::FilePath;
use headstart_store::{DeviceCost, Store};
use headstart_system::device::DeviceFacts;
use headstart_system::mounts::MountTable;
use headstart_system::snapshot::device_at;
use headstart_system::testing::LoopFs;
use std::io::ErrorKind;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nobody delays an execution for longer, whatever has become of the daemon.
const MOST_HELD: Duration = Duration::from_secs(2);

/// A start that nobody delays takes a tenth of a second on an ordinary machine, and less than this on the busiest.
const COLD_START: Duration = Duration::from_secs(8);

/// What is taken for a disk with one head, by what was measured of it.
fn one_head(case: &Case, names: &[&str]) -> LoopFs {
    let fs = disk(names);
    let point = FilePath::from(fs.mount_point().to_str().unwrap());
    let uuid = device_at(&point, &Default::default()).unwrap().unwrap().uuid;
    let mounts = MountTable::read().unwrap();
    let mount = &mounts.all()[mounts.index_of(point.as_bytes()).unwrap()];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let measured = DeviceCost {
        cost: Cost {
            class: DeviceClass::Disk,
            // So slow that every start is overtaken.
            bandwidth: 1e6,
            latency: 1e-2,
            depth: 1,
        },
        first_touch: None,
        device: DeviceFacts::of_mount(mount).unwrap().identity(),
        measured_unix_ns: now.as_nanos() as u64,
    };
    let store = Store::new(case.state());
    store.make().unwrap();
    store.save_device_cost(&uuid, &measured).unwrap();
    fs
}

fn holding(case: &Case) -> Daemon {
    Daemon::start_by(case, Command::new(binary()), &["--no-control", "--hold"])
}

/// A daemon that holds a program, which has started once before.
fn holding_one(case: &Case) -> (LoopFs, Daemon) {
    let fs = one_head(case, &["one"]);
    let daemon = Daemon::start(case);
    start_until_kept(case, &fs, "one");
    daemon.stop();
    (fs, holding(case))
}

fn held(said: &str) -> u64 {
    let after = said.split(", held: ").nth(1).unwrap_or_else(|| panic!("{said}"));
    after.split(';').next().unwrap().parse().unwrap()
}

/// The guard: the daemon's child begins it, and begins it anew.
fn guard(daemon: &Daemon) -> u32 {
    let only = |pid: u32| {
        let mut all = Vec::new();
        eventually("it has one child", || {
            all = children(pid);
            all.len() == 1
        });
        all[0]
    };
    only(only(daemon.child.id()))
}

fn is_gone(pid: u32) -> bool {
    matches!(process_state(pid), None | Some('Z'))
}

#[test]
fn a_cold_start_on_one_head_is_held_and_a_warm_one_is_not() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let (fs, daemon) = holding_one(&case);
    let last = start_until_kept(&case, &fs, "one");
    assert_eq!((last.mode, last.not_learned), (Mode::Replay, None));
    // Warm, by root and by somebody of whose starts nothing is known, over and over.
    let_all_into(&fs.mount_point());
    for _ in 0..20 {
        run(command(&fs, "one"));
        run(by_nobody(command(&fs, "one")));
    }
    let guard = guard(&daemon);
    let said = daemon.stop();
    // The cold one; of the 40 warm ones a few at most, if something had left memory.
    assert!((1..=10).contains(&held(&said)), "{said}");
    eventually("the guard ends with the daemon", || {
        process_state(guard).is_none()
    });
    run(command(&fs, "one"));
}

#[test]
fn a_daemon_or_a_guard_that_is_stopped_or_killed_lets_every_execution_go() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let (fs, mut daemon) = holding_one(&case);
    let starts = || {
        evict(&files(&fs, "one"));
        let begun = Instant::now();
        assert_eq!(finish(command(&fs, "one"), b"").code(), 0);
        let took = begun.elapsed();
        assert!(took < MOST_HELD + COLD_START, "{took:?}");
    };
    starts();
    signal(daemon.child.id(), 19);
    starts();
    // Both, and nobody is left but the kernel.
    let of_first = guard(&daemon);
    signal(of_first, 19);
    starts();
    eventually("the guard is ended", || is_gone(of_first));
    starts();
    signal(daemon.child.id(), 18);
    start_until_kept(&case, &fs, "one");
    // Another begins in its place, and is told again what it is to ask about.
    assert_ne!(guard(&daemon), of_first);
    start_until_kept(&case, &fs, "one");
    let said = daemon.stop();
    assert_eq!(said.matches("has begun anew").count(), 1, "{said}");
    for stopped in [false, true] {
        daemon = holding(&case);
        let guard = guard(&daemon);
        if stopped {
            signal(guard, 19);
        }
        daemon.child.kill().unwrap();
        daemon.child.wait().unwrap();
        starts();
        eventually("the guard ends", || is_gone(guard));
        drop(daemon);
    }
    is_whole(&case);
}

#[test]
fn who_was_held_and_never_began_is_forgotten_also_where_the_guard_has_ended() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let (fs, daemon) = holding_one(&case);
    evict(&files(&fs, "one"));
    // Longer than a word may be: the program is opened, which is what is asked about, and not executed.
    let failed = command(&fs, "one").arg("a".repeat(1 << 20)).spawn();
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::ArgumentListTooLong);
    let guard = guard(&daemon);
    signal(guard, 9);
    eventually("the guard is ended", || is_gone(guard));
    assert_eq!(start_until_kept(&case, &fs, "one").mode, Mode::Replay);
    daemon.stop();
}

#[test]
fn who_may_not_hold_starts_says_so_once_and_reads_ahead_all_the_same() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let (fs, daemon) = holding_one(&case);
    daemon.stop();
    let mut without = Command::new("setpriv");
    without.arg("--bounding-set=-sys_admin").arg(binary());
    let daemon = Daemon::start_by(&case, without, &["--no-control", "--hold"]);
    for _ in 0..2 {
        assert_eq!(start_until_kept(&case, &fs, "one").mode, Mode::Replay);
    }
    let said = daemon.stop();
    assert_eq!(said.matches("are not held").count(), 1, "{said}");
    assert!(said.contains("CAP_SYS_ADMIN") && held(&said) == 0, "{said}");
}

#[test]
fn who_executes_a_program_over_and_over_keeps_nobody_from_executing_it() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let (fs, daemon) = holding_one(&case);
    let_all_into(&fs.mount_point());
    let program = fs.mount_point().join("one");
    let storm = |_| {
        let mut storm = Command::new("sh");
        storm
            .args(["-c", "while :; do \"$0\" /dev/null; done"])
            .arg(&program);
        by_nobody(storm).spawn().unwrap()
    };
    let mut storms: Vec<_> = (0..3).map(storm).collect();
    for _ in 0..20 {
        evict(&files(&fs, "one"));
        assert_eq!(finish(command(&fs, "one"), b"").code(), 0);
    }
    for storm in &mut storms {
        assert!(storm.try_wait().unwrap().is_none(), "it could not execute it");
        storm.kill().unwrap();
        storm.wait().unwrap();
    }
    assert!(!daemon.stop().contains("that holds starts has ended"));
}

#[test]
fn a_users_own_program_is_not_held_so_that_no_lease_holds_up_the_guard() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let fs = one_head(&case, &["one", "two"]);
    let_all_into(&fs.mount_point());
    let daemon = Daemon::start(&case);
    start_until_kept(&case, &fs, "one");
    start_until_kept(&case, &fs, "two");
    daemon.stop();
    let program = fs.mount_point().join("one");
    std::os::unix::fs::chown(&program, Some(NOBODY), None).unwrap();
    let daemon = holding(&case);
    let before = guard(&daemon);
    let leased = crate::leased::Leased::new(&program);
    let mut waits = crate::leased::executes(&program);
    // Longer than the guard's switch would let it live.
    std::thread::sleep(MOST_HELD + Duration::from_millis(500));
    assert!(
        waits.try_wait().unwrap().is_none(),
        "nobody has waited for the lease"
    );
    assert_eq!(guard(&daemon), before);
    start_until_kept(&case, &fs, "two");
    drop(leased);
    assert!(waits.wait().unwrap().success());
    assert!(held(&daemon.stop()) >= 1);
}
