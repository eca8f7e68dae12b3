//! How many starts there may be at a time.

use crate::harness::{Watched, file, program, start};
use crate::support::{can_record, with_disk};
use headstart_record::{Role, Standing};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program that is known, a file for it, and who watches both.
fn known(disk: &Path) -> (PathBuf, PathBuf, Watched) {
    let (one, a) = (program(disk, "one"), file(disk, "a", 4));
    let mut watched = Watched::below(disk);
    assert!(start(&one, &[&a]).wait().unwrap().success());
    watched.until_ended(1);
    let program = watched.noticed[0].program;
    watched.watch.set_standing(program, Standing::Known).unwrap();
    (one, a, watched)
}

#[test]
fn more_starts_than_there_are_slots_are_counted_and_all_slots_are_given_again() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let (one, a, mut watched) = known(&disk);
    for _ in 0..3 {
        watched.ended.clear();
        let before = watched.watch.counts().without_slot;
        // Nobody drains meanwhile.
        let children: Vec<_> = (0..50).map(|_| start(&one, &[&a])).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        // Others start programs, too.
        assert!(watched.watch.counts().without_slot - before >= 18);
        watched.until_ended(1);
        watched.for_a_while();
        assert!((1..=32).contains(&watched.ended.len()), "{}", watched.ended.len());
        assert_eq!(watched.watch.recorded(), 0);
    }
}

#[test]
fn a_known_program_that_was_never_seen_takes_no_turn() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let [known, interpreter, new, storm] =
        ["known", "interpreter", "new", "storm"].map(|name| program(&disk, name));
    let a = file(&disk, "a", 4);
    let mut watched = Watched::below(&disk);
    for (program, role) in [(&known, Role::Program), (&interpreter, Role::Interpreter)] {
        watched.know(program, role);
        // One that is known by itself remains so.
        watched.know(program, Role::Interpreter);
    }
    // Nobody drains meanwhile.
    for _ in 0..100 {
        assert!(start(&storm, &[&a]).wait().unwrap().success());
    }
    let run = |program: &Path| {
        let mut child = start(program, &[&a]);
        assert!(child.wait().unwrap().success());
        child.id()
    };
    let pids = [&new, &known, &interpreter].map(|program| run(program));
    watched.for_a_while();
    let noticed: Vec<u32> = watched.noticed.iter().map(|noticed| noticed.pid).collect();
    assert_eq!(
        pids.map(|pid| noticed.contains(&pid)),
        [false, true, true],
        "{} others",
        noticed.len()
    );
    assert!(watched.watch.counts().without_turn > 0);
    // But what it is given has no more turns than all that is new.
    let before = watched.watch.counts().without_turn;
    // Turns come with time, so a busy machine may need more than one burst to run out of them.
    for _ in 0..20 {
        let children: Vec<_> = (0..100).map(|_| start(&interpreter, &[&a])).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        if watched.watch.counts().without_turn > before {
            break;
        }
    }
    assert!(watched.watch.counts().without_turn > before);
}

#[test]
fn one_user_leaves_slots_to_the_others() {
    if !can_record() {
        return;
    }
    let (mounted, disk) = with_disk("ext4");
    for dir in [mounted.beside(), &*disk] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (one, a, mut watched) = known(&disk);
    let nobodys = || {
        Command::new(&one)
            .arg(&a)
            .stdout(Stdio::null())
            .uid(65534)
            .gid(65534)
            .spawn()
            .unwrap()
    };
    loop {
        watched.for_a_while();
        (watched.noticed, watched.others) = Default::default();
        // Nobody drains meanwhile.
        let children: Vec<_> = (0..50).map(|_| nobodys()).collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        let mut child = start(&one, &[&a]);
        assert!(child.wait().unwrap().success());
        watched.for_a_while();
        let pids: Vec<u32> = watched.noticed.iter().map(|noticed| noticed.pid).collect();
        assert!(pids.len() <= 25, "{}", pids.len());
        if pids.contains(&child.id()) {
            return;
        }
        // What else goes on on this machine had all that were left.
        assert!(
            watched.others >= 8,
            "{} others, {} of one user",
            watched.others,
            pids.len()
        );
    }
}
