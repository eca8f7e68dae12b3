//! What a user who is not root cannot do by way of the daemon.

use crate::common::{Case, eventually, is_root};
use crate::harness::*;
use headstart_model::Key;
use headstart_model::outcome::Mode;
use headstart_store::Store;
use headstart_system::testing::{LoopFs, undisturbed};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A start of a program by nobody, from the second of its files on.
pub fn theirs(fs: &LoopFs, name: &str) -> Command {
    let mut command = Command::new(fs.mount_point().join(name));
    command.args(&files(fs, name)[1..]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    by_nobody(command)
}

/// The same, which reads a file as well that its arguments do not name: that is read ahead for later starts,
/// too.
fn theirs_with(fs: &LoopFs, name: &str, input: &Path) -> Command {
    let mut command = theirs(fs, name);
    command.arg("-").stdin(File::open(input).unwrap());
    command
}

/// Two cold starts by nobody, which read this file as well.
fn learned_twice(case: &Case, fs: &mut LoopFs, input: &Path) {
    for turn in 1..=2 {
        fs.remount_cold().unwrap();
        run(theirs_with(fs, "one", input));
        kept(case, &key_of_nobody(fs, "one"), turn);
    }
}

/// Another cold start by nobody, of so many, which is read ahead, this file among what is read or not.
///
/// A replay ends with its start, and this one lasts until the replay has read all that it reads: the program
/// waits for its input before it reads any file.
#[track_caller]
fn is_replayed(case: &Case, fs: &mut LoopFs, starts: usize, file: &Path, is_read: bool) {
    fs.remount_cold().unwrap();
    let mut command = Command::new(fs.mount_point().join("one"));
    command.arg("-").args(&files(fs, "one")[1..]);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let held = Held::start(by_nobody(command));
    for other in &files(fs, "one")[1..] {
        held.is_read_ahead(other);
    }
    if is_read {
        held.is_read_ahead(file);
    } else {
        // It would be read beside the others, or right after them.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(resident(&[file.to_owned()]), 0);
    }
    held.ends();
    let kept = kept(case, &key_of_nobody(fs, "one"), starts);
    assert_eq!(kept[starts - 1].mode, Mode::Replay);
}

#[test]
fn what_root_reads_is_not_read_for_another_user() {
    undisturbed(|| {
        if !can_watch() || !is_root() {
            return;
        }
        let case = Case::new();
        let mut fs = disk(&["one"]);
        let private = fs.mount_point().join("one-00");
        fs::set_permissions(&private, PermissionsExt::from_mode(0o600)).unwrap();
        let_all_into(&fs.mount_point());
        let daemon = Daemon::start(&case);
        let one = key(&fs, "one");
        run(command(&fs, "one"));
        kept(&case, &one, 1);
        fs.remount_cold().unwrap();
        run(theirs(&fs, "one"));
        let of_nobody = key_of_nobody(&fs, "one");
        assert_eq!(kept(&case, &of_nobody, 1)[0].mode, Mode::Record);
        assert_eq!(resident(&[private]), 0);
        let users = Store::new(case.state()).key(&of_nobody).users();
        assert_eq!((users.len(), users[0].uid), (1, NOBODY));
        daemon.stop();
    });
}

#[test]
fn what_a_user_may_not_read_any_more_is_not_read_for_that_user() {
    undisturbed(|| {
        if !can_watch() || !is_root() {
            return;
        }
        let case = Case::new();
        let mut fs = disk(&["one"]);
        let_all_into(&fs.mount_point());
        let daemon = Daemon::start(&case);
        let paths = files(&fs, "one");
        let owned = |by: u32| {
            fs::set_permissions(&paths[0], PermissionsExt::from_mode(0o600)).unwrap();
            chown(&paths[0], Some(by), None).unwrap();
        };
        learned_twice(&case, &mut fs, &paths[0]);
        // What is the user's own is read, whoever else may.
        owned(NOBODY);
        is_replayed(&case, &mut fs, 3, &paths[0], true);
        // The same file, which is another's by now.
        owned(0);
        is_replayed(&case, &mut fs, 4, &paths[0], false);
        daemon.stop();
    });
}

#[test]
fn what_lies_where_a_user_may_not_go_any_more_is_not_read_for_that_user() {
    undisturbed(|| {
        if !can_watch() || !is_root() {
            return;
        }
        let case = Case::new();
        let mut fs = disk(&["one"]);
        let_all_into(&fs.mount_point());
        let another = fs.mount_point().join("another");
        let public = another.join("public");
        fs::create_dir(&another).unwrap();
        fs::copy(&files(&fs, "one")[0], &public).unwrap();
        let let_in = |mode| fs::set_permissions(&another, PermissionsExt::from_mode(mode)).unwrap();
        let_in(0o755);
        let daemon = Daemon::start(&case);
        learned_twice(&case, &mut fs, &public);
        is_replayed(&case, &mut fs, 3, &public, true);
        let_in(0o700);
        is_replayed(&case, &mut fs, 4, &public, false);
        daemon.stop();
    });
}

#[test]
fn what_a_program_with_the_setuid_bit_reads_is_not_learned_for_root_nor_read_for_its_user() {
    undisturbed(|| {
        if !can_watch() || !is_root() {
            return;
        }
        let case = Case::new();
        let mut fs = disk(&["one"]);
        let_all_into(&fs.mount_point());
        let private = files(&fs, "one").swap_remove(0);
        fs::set_permissions(&private, PermissionsExt::from_mode(0o600)).unwrap();
        fs::set_permissions(fs.mount_point().join("one"), PermissionsExt::from_mode(0o4755)).unwrap();
        let daemon = Daemon::start(&case);
        learned_twice(&case, &mut fs, &private);
        assert!(
            resident(std::slice::from_ref(&private)) > 0,
            "it has root's rights"
        );
        is_replayed(&case, &mut fs, 3, &private, false);
        assert_eq!(finished(&case, &key(&fs, "one")), 0);
        daemon.stop();
    });
}

#[test]
fn a_start_of_roots_in_which_a_person_executes_something_teaches_nothing() {
    if !can_watch() || !is_root() {
        return;
    }
    let case = Case::new();
    let mut fs = disk(&["one"]);
    fs::copy("/usr/bin/setpriv", fs.mount_point().join("one")).unwrap();
    let_all_into(&fs.mount_point());
    let daemon = Daemon::start(&case);
    let paths = files(&fs, "one");
    let one = key(&fs, "one");
    let mut start_as = |user: &str, files: &[std::path::PathBuf]| {
        fs.remount_cold().unwrap();
        let mut command = Command::new(fs.mount_point().join("one"));
        command
            .args(["--reuid", user, "--clear-groups", "--", "cat"])
            .args(files);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        run(command);
    };
    start_as("1000", &paths[..10]);
    // It only executes what its arguments name, so its starts are told apart by all that it is given, once
    // that is known.
    let kept = || -> Vec<Key> {
        let keys = Store::new(case.state()).keys().unwrap();
        let of_one = keys
            .into_iter()
            .filter(|key| key.as_str().starts_with(one.as_str()));
        of_one.filter(|key| finished(&case, key) > 0).collect()
    };
    // Finished in their turn: so the first is over when the second is. Too much that is new elsewhere on the
    // machine, and one is not noticed.
    eventually("a start of root's alone is kept", || {
        start_as("0", &paths[10..]);
        (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !kept().is_empty()
        })
    });
    let kept = kept();
    assert_eq!(kept.len(), 1, "{kept:?}");
    let trace = last_trace(&case, &kept[0]);
    let has = |path: &Path| trace.files.iter().any(|file| file.path.as_path() == path);
    assert!(has(&paths[10]) && !has(&paths[0]));
    daemon.stop();
}

#[test]
fn what_grew_since_is_read_ahead_no_further_than_it_was_used() {
    undisturbed(|| {
        if !can_watch() || !is_root() {
            return;
        }
        let case = Case::new();
        let mut fs = disk(&["one"]);
        fs::copy("/usr/bin/head", fs.mount_point().join("one")).unwrap();
        let paths = files(&fs, "one");
        for file in &paths {
            chown(file, Some(NOBODY), None).unwrap();
        }
        let_all_into(&fs.mount_point());
        let daemon = Daemon::start(&case);
        let of_nobody = key_of_nobody(&fs, "one");
        for turn in 1..=4 {
            fs.remount_cold().unwrap();
            if turn == 2 {
                for file in &paths {
                    let mut more = File::options().append(true).open(file).unwrap();
                    std::io::Write::write_all(&mut more, &vec![9; 9 << 20]).unwrap();
                }
                fs.remount_cold().unwrap();
            }
            let mut part = Command::new(fs.mount_point().join("one"));
            part.args(["-q", "-c", "65536"])
                .args(&paths)
                .stdout(Stdio::null());
            run(by_nobody(part));
            kept(&case, &of_nobody, turn);
        }
        let last = &outcomes(&case, &of_nobody)[3];
        assert_eq!(last.mode, Mode::Replay);
        // 200 MiB are there, and 16 pages of each file are used. The machine may take pages back before
        // anybody counts those in memory, so the replay's own count says that none is missing.
        let ahead: u64 = last.stages.iter().map(|stage| stage.arrived_pages).sum();
        assert!((20 * 16..20 * 256).contains(&ahead), "{ahead}");
        let pages = resident(&paths);
        assert!(pages < 20 * 256, "{pages}");
        daemon.stop();
    });
}
