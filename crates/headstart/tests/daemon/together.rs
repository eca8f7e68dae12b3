//! Programs that start at the same time.

use crate::common::{Case, eventually};
use crate::harness::*;
use headstart_model::Key;
use headstart_model::outcome::Mode;
use headstart_model::profile::Entry;
use headstart_store::Store;
use headstart_system::testing::{LoopFs, undisturbed};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Pages of a profile whose paths begin like this, and those of all on the same file system.
fn pages(entries: &[Entry], disk: &str, prefix: &str) -> (u64, u64) {
    let is_on_disk = |entry: &&Entry| entry.path.to_string().starts_with(disk);
    let pages = |entry: &Entry| {
        entry
            .ranges
            .iter()
            .map(|range| u64::from(range.pages))
            .sum::<u64>()
    };
    let own = |entry: &&Entry| entry.path.to_string().starts_with(prefix);
    let on_disk = || entries.iter().filter(is_on_disk);
    (on_disk().filter(own).map(pages).sum(), on_disk().map(pages).sum())
}

/// A script's key names its interpreter, too.
fn key_of(fs: &LoopFs, name: &str) -> Key {
    match name.starts_with("script") {
        false => key(fs, name),
        true => {
            let shell = fs::canonicalize("/bin/sh").unwrap();
            Key::new(format!("{} {}", shell.display(), key(fs, name))).unwrap()
        }
    }
}

#[test]
fn each_of_two_programs_that_start_together_learns_its_own_pages() {
    if !can_watch() {
        return;
    }
    let case = Case::new();
    let fs = disk(&["one", "two", "script-a", "script-b"]);
    let point = fs.mount_point();
    // Two scripts, which start the same programs, twenty times each.
    for name in ["script-a", "script-b"] {
        let path = point.join(name);
        let text = format!(
            "#!/bin/sh\nfor file in {}-*; do /bin/cat $file; done\n",
            path.display()
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let daemon = Daemon::start(&case);
    for pair in [["one", "two"], ["script-a", "script-b"]] {
        for round in 1..=rounds(4, 20) {
            // On a busy machine a start may not be noticed, or not be finished.
            let is_kept = |name: &str| finished(&case, &key_of(&fs, name)) >= round;
            eventually("both starts are kept", || {
                for name in pair {
                    evict(&files(&fs, name));
                }
                let children = pair.map(|name| match name.starts_with("script") {
                    false => command(&fs, name).spawn().unwrap(),
                    true => Command::new(point.join(name))
                        .stdin(Stdio::null())
                        .stdout(Stdio::null())
                        .spawn()
                        .unwrap(),
                });
                for mut child in children {
                    assert!(child.wait().unwrap().success());
                }
                (0..1000).any(|_| {
                    std::thread::sleep(Duration::from_millis(10));
                    pair.iter().all(|name| is_kept(name))
                })
            });
        }
        for name in pair {
            let profile = Store::new(case.state()).key(&key_of(&fs, name)).profile();
            let profile = profile.or_tell(|line| panic!("{line}")).unwrap();
            let prefix = point.join(name).to_string_lossy().into_owned();
            let (own, all) = pages(&profile.entries, &point.to_string_lossy(), &prefix);
            assert!(own >= 20 * 256, "{name}: {own} of its own pages are known");
            assert!(own * 100 >= all * 98, "{name}: {own} of {all} pages are its own");
        }
    }
    daemon.stop();
}

#[test]
fn what_two_programs_need_that_start_together_is_read_once() {
    undisturbed(|| {
        if !can_watch() {
            return;
        }
        let case = Case::new();
        let mut fs = disk(&["one", "two"]);
        // Both read the files of the first.
        let start = |fs: &LoopFs, name: &str| {
            let mut command = Command::new(fs.mount_point().join(name));
            command
                .args(files(fs, "one"))
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            command.spawn().unwrap()
        };
        let daemon = Daemon::start(&case);
        for name in ["one", "two"] {
            eventually(&format!("a start of {name} is kept"), || {
                evict(&files(&fs, "one"));
                assert!(start(&fs, name).wait().unwrap().success());
                (0..1000).any(|_| {
                    std::thread::sleep(Duration::from_millis(10));
                    finished(&case, &key(&fs, name)) > 0
                })
            });
        }
        fs.remount_cold().unwrap();
        let before = fs.reads();
        let children = ["one", "two"].map(|name| start(&fs, name));
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        for name in ["one", "two"] {
            let last = kept(&case, &key(&fs, name), 2).pop().unwrap();
            assert_eq!(last.mode, Mode::Replay, "{name}");
        }
        let bytes = (fs.reads() - before).bytes;
        // Twenty files of 1 MiB, and two copies of a small program; each file is in two plans.
        assert!((20 << 20..22 << 20).contains(&bytes), "{bytes} bytes are read");
        daemon.stop();
    });
}
