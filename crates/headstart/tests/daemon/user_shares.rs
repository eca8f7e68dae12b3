//! What one user cannot take from others: slots, time to learn, and room on the disk.

use crate::common::{Case, eventually, finish, is_root, spawn_written};
use crate::harness::*;
use crate::users::theirs;
use headstart_model::Key;
use headstart_model::outcome::Mode;
use headstart_store::Store;
use headstart_system::testing::Process;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[test]
fn who_takes_all_there_is_keeps_no_other_user_from_anything() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one"]);
    let point = fs.mount_point();
    let_all_into(&point);
    let daemon = Daemon::start(&case);
    start_until_kept(&case, &fs, "one");
    // More programs than can be recorded at a time, each of them for two seconds.
    let programs: Vec<_> = (0..60).map(|n| point.join(format!("program-{n}"))).collect();
    for program in &programs {
        fs::copy("/bin/sleep", program).unwrap();
    }
    let sleeping = |program: &std::path::PathBuf| {
        let mut command = Command::new(program);
        command.arg("1000");
        Process(by_nobody(command).spawn().unwrap())
    };
    evict(&files(&fs, "one"));
    let crowd = programs.iter().map(sleeping).collect::<Vec<_>>();
    // `finish` bounds how long these may take.
    assert_eq!(finish(command(&fs, "one"), b"").code(), 0);
    let mut many = Command::new("sh");
    many.args(["-c", "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done"]);
    assert_eq!(finish(many, b"").code(), 0);
    drop(crowd);
    let one = key(&fs, "one");
    eventually("the start beside the crowd is kept", || {
        outcomes(&case, &one).len() == 2
    });
    assert_eq!(outcomes(&case, &one)[1].mode, Mode::Replay);
    let said = daemon.stop();
    assert!(!said.contains("for too many at once: 0,"), "{said}");
}

/// So many programs of a user's that live for longer than their starts are recorded.
fn slow(
    fs: &headstart_system::testing::LoopFs,
    count: usize,
    run_as: impl Fn(usize, Command) -> Command,
) -> Vec<Process> {
    let point = fs.mount_point();
    let sleeping = |n| {
        let program = point.join(format!("slow-{n}"));
        fs::copy("/bin/sleep", &program).unwrap();
        let mut command = Command::new(program);
        command.arg("1000");
        Process(spawn_written(&mut run_as(n, command)))
    };
    (0..count).map(sleeping).collect()
}

/// Another user's new programs are learned beside them.
#[track_caller]
fn anothers_are_learned(case: &Case, fs: &headstart_system::testing::LoopFs, names: &[&str]) {
    use std::os::unix::process::CommandExt;
    for name in names {
        let mut command = command(fs, name);
        command.uid(4711).gid(4711).current_dir("/");
        evict(&files(fs, name));
        run(command);
    }
    for name in names {
        let theirs = Key::new(format!("{} of user 4711", key(fs, name))).unwrap();
        kept(case, &theirs, 1);
    }
}

#[test]
fn who_starts_many_new_programs_keeps_no_other_users_from_being_learned() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let names = ["a", "b", "c"];
    let fs = disk(&names);
    let_all_into(&fs.mount_point());
    let daemon = Daemon::start(&case);
    let _crowd = slow(&fs, 40, |_, command| by_nobody(command));
    anothers_are_learned(&case, &fs, &names);
    daemon.stop();
}

#[test]
fn ids_in_a_users_namespace_have_that_users_share_together() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let names = ["a", "b", "c"];
    let fs = disk(&names);
    let_all_into(&fs.mount_point());
    // As newuidmap(1) does it for nobody, with ids of its own.
    let mut space = Command::new("unshare");
    space.args(["-U", "sleep", "1000"]);
    let space = Process(by_nobody(space).spawn().unwrap());
    let pid = space.id();
    eventually("the namespace is there", || {
        let namespace_of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).unwrap();
        namespace_of(&pid.to_string()) != namespace_of("self")
    });
    for map in ["uid_map", "gid_map"] {
        fs::write(format!("/proc/{pid}/{map}"), "0 100000 16").unwrap();
    }
    let daemon = Daemon::start(&case);
    let crowd = slow(&fs, 40, |n, command| {
        let mut inside = Command::new("nsenter");
        inside.args([
            &format!("--user=/proc/{pid}/ns/user"),
            "--setuid",
            &(n % 16).to_string(),
            "--setgid",
            "0",
        ]);
        inside.arg(command.get_program()).args(command.get_args());
        inside
    });
    anothers_are_learned(&case, &fs, &names);
    drop((crowd, space));
    daemon.stop();
}

/// The bytes of all files below a directory.
fn bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(facts) if facts.is_dir() => bytes(&entry.path()),
        facts => facts.map_or(0, |facts| facts.len()),
    };
    entries.map(size).sum()
}

#[test]
fn what_is_kept_of_a_users_programs_does_not_fill_the_disk() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one", "two"]);
    let_all_into(&fs.mount_point());
    let daemon = Daemon::start(&case);
    // As many starts as it takes: what each leaves is as large as it may be.
    let store = Store::new(case.state());
    for number in 0..70 {
        let kept = store.key(&Key::new(format!("operation {number} of user {NOBODY}")).unwrap());
        let lock = kept.lock().unwrap();
        lock.add_user(NOBODY, number).unwrap();
        fs::write(kept.path().join(format!("{number:020}.trace")), vec![7; 1 << 20]).unwrap();
    }
    assert!(bytes(&case.state()) > 64 << 20);
    // On a busy machine one start may not be noticed.
    let start = |name: &str| {
        evict(&files(&fs, name));
        run(theirs(&fs, name));
        std::thread::sleep(Duration::from_secs(1));
    };
    // It is tidied when nothing was finished for some seconds.
    eventually("what is kept is within its bounds", || {
        start("one");
        (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(100));
            bytes(&case.state()) <= 64 << 20
        })
    });
    // What was learned last is worth as little, and is there still or again.
    let two = key_of_nobody(&fs, "two");
    eventually("another start is kept", || {
        start("two");
        finished(&case, &two) > 0
    });
    assert!(bytes(&case.state()) <= 64 << 20);
    daemon.stop();
}
