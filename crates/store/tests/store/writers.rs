//! Who writes at the same time, without room, or is killed meanwhile.

use crate::samples::{key, profile, store};
use headstart_model::Profile;
use headstart_store::{Loaded, Store};
use std::time::Duration;

#[test]
fn writers_exclude_one_another_and_survive_a_forget() {
    let (_dir, store) = store();
    let held = store.key(&key()).lock().unwrap();
    held.save_profile(&profile(1, 1)).unwrap();
    assert!(store.key(&key()).try_lock().unwrap().is_none());
    let waiting = std::thread::spawn({
        let store = store.clone();
        move || {
            let lock = store.key(&key()).lock().unwrap();
            lock.save_profile(&profile(2, 1)).unwrap();
        }
    });
    let forgetting = std::thread::spawn({
        let store = store.clone();
        move || store.key(&key()).forget().unwrap()
    });
    std::thread::sleep(Duration::from_millis(50));
    drop(held);
    waiting.join().unwrap();
    forgetting.join().unwrap();
    // Whichever came first: all of it or nothing is there, and it can be written.
    let lock = store.key(&key()).lock().unwrap();
    assert!(matches!(
        lock.dir().profile(),
        Loaded::None | Loaded::Some(Profile { runs: 2, .. })
    ));
    lock.save_profile(&profile(3, 1)).unwrap();
    assert_eq!(store.keys().unwrap(), [key()]);
}

#[test]
fn a_full_disk_leaves_the_old_file() {
    let (_dir, store) = store();
    let lock = store.key(&key()).lock().unwrap();
    lock.save_profile(&profile(1, 10)).unwrap();
    // A limit on the size of files stands in for the full disk: the kernel refuses the write just the same.
    let status = std::process::Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "writers::writer_of_one_large_trace", "--ignored"])
        .env("STORE_TEST_STATE", store.root())
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    drop(lock);
    assert!(status.success());
    let kept = store.key(&key());
    assert_eq!(kept.profile(), Loaded::Some(profile(1, 10)));
    let names: Vec<_> = std::fs::read_dir(kept.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 3, "no temporary file is left: {names:?}");
}

/// Run by the test above in a process that may not write large files.
#[test]
#[ignore = "a part of a_full_disk_leaves_the_old_file"]
fn writer_of_one_large_trace() {
    let path = std::path::PathBuf::from(std::env::var_os("STORE_TEST_STATE").unwrap());
    let dir = Store::new(path).key(&key()).path().to_owned();
    let error = headstart_store::write_whole(&dir.join("profile"), &[7; 1 << 20]).unwrap_err();
    assert!(error.to_string().contains("write"), "{error}");
}

/// Run by the test below until it is killed.
#[test]
#[ignore = "a part of a_killed_writer_leaves_the_old_or_the_new_file"]
fn writer_until_killed() {
    let store = Store::new(std::path::PathBuf::from(
        std::env::var_os("STORE_TEST_STATE").unwrap(),
    ));
    for runs in 1.. {
        let lock = store.key(&key()).lock().unwrap();
        // The file's size says which it is: half an old and half a new one would show.
        lock.save_profile(&profile(runs, 100 + runs as usize % 50))
            .unwrap();
    }
}

#[test]
fn a_killed_writer_leaves_the_old_or_the_new_file() {
    let (_dir, store) = store();
    let kept = store.key(&key());
    let mut last = 0;
    let mut delay = 1u64;
    for _ in 0..40 {
        let mut writer = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writers::writer_until_killed", "--ignored"])
            .env("STORE_TEST_STATE", store.root())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Spread over moments without a clock's regularity.
        delay = delay * 29 % 37;
        let until = std::time::Instant::now() + Duration::from_millis(10 + delay);
        while std::time::Instant::now() < until {
            whole(&kept.profile());
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        if let Some(runs) = whole(&kept.profile()) {
            last = runs.max(last);
        }
    }
    assert!(last > 1, "the writer wrote");
    drop(kept.lock().unwrap());
    let names: Vec<_> = std::fs::read_dir(kept.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 3, "the next writer cleans up: {names:?}");
}

fn whole(loaded: &Loaded<Profile>) -> Option<u32> {
    match loaded {
        Loaded::Some(found) => {
            assert_eq!(*found, profile(found.runs, 100 + found.runs as usize % 50));
            Some(found.runs)
        }
        Loaded::None => None,
        Loaded::Damaged(message) => panic!("{message}"),
    }
}
