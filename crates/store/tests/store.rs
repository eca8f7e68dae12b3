//! What the state directory promises.
#![allow(clippy::unwrap_used)]

use headstart_model::outcome::Mode;
use headstart_model::plan::PlanDraft;
use headstart_model::profile::{Entry, Need, Policy};
use headstart_model::trace::{Backend, End, EndReason, Evidence, Lost, Meta, Scope};
use headstart_model::{Key, Outcome, Profile, Trace};
use headstart_store::{Limits, Loaded, Store, Turns};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, SystemTime};

fn key() -> Key {
    Key::new("/usr/bin/program --with /a/script").unwrap()
}

fn profile(runs: u32, entries: usize) -> Profile {
    Profile {
        runs,
        updated_unix_ns: u64::from(runs),
        entries: (0..entries)
            .map(|i| Entry {
                path: format!("/file/{i:06}").as_str().into(),
                overlay: None,
                need: Need::Stat,
                weight: 1.0,
                first_use_ns: u64::from(runs),
                stage: 0,
                version: None,
                ranges: Vec::new(),
                tail: None,
                touches: None,
            })
            .collect(),
        ..Profile::new(key(), 4096, Policy::Decay)
    }
}

fn plan() -> PlanDraft {
    PlanDraft::new(key(), 4096)
}

fn outcome(at: u64) -> Outcome {
    Outcome {
        started_unix_ns: at,
        elapsed_ns: 1,
        status: Some(0),
        ..Outcome::new(key(), Mode::Record)
    }
}

fn trace(at: u64, command: usize) -> Trace {
    // Words that do not compress away.
    let word = |i: usize| format!("{:x}", (i as u64 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Trace {
        meta: Meta {
            started_unix_ns: at,
            kernel: "6.18".into(),
            page_size: 4096,
            backend: Backend::Bpf,
            evidence: Evidence::Uses,
            scope: Scope::Tree,
            command: (0..command).map(word).collect(),
            recorder: "test".into(),
            replayed: false,
        },
        end: End {
            reason: EndReason::Exit(0),
            elapsed_ns: 1,
            cpu_ns: None,
            events: 0,
            blocked_ns: None,
        },
        lost: Lost::default(),
        processes: Vec::new(),
        filesystems: Vec::new(),
        files: Vec::new(),
        mappings: Vec::new(),
        uses: Vec::new(),
        lookups: Vec::new(),
        metadata: Vec::new(),
        marks: Vec::new(),
        activity: None,
        ahead: None,
    }
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().join("state"));
    (dir, store)
}

#[test]
fn reading_what_is_not_there_makes_nothing() {
    let (_dir, store) = store();
    let kept = store.key(&key());
    assert_eq!(store.keys().unwrap(), []);
    assert!(!kept.exists());
    assert_eq!(kept.profile(), Loaded::None);
    assert_eq!(kept.turns(), Turns::default());
    assert!(kept.try_lock().unwrap().is_none());
    assert!(!kept.forget().unwrap());
    assert!(!store.root().exists());
}

#[test]
fn what_is_saved_is_found_again_by_its_key_only() {
    let (_dir, store) = store();
    let lock = store.key(&key()).lock().unwrap();
    lock.save_profile(&profile(3, 2)).unwrap();
    lock.save_plan(&plan()).unwrap();
    lock.save_turns(&Turns {
        replays_since_control: 4,
        in_doubt: true,
        exact_due: true,
        record_in: 3,
    })
    .unwrap();
    lock.add_trace(&trace(5, 0)).unwrap();
    lock.add_outcome(&outcome(5)).unwrap();
    drop(lock);
    assert_eq!(store.keys().unwrap(), [key()]);
    let kept = store.key(&key());
    assert_eq!(kept.profile(), Loaded::Some(profile(3, 2)));
    assert!(matches!(kept.plan(), Loaded::Some(file) if file.plan().unwrap().to_draft().unwrap() == plan()));
    assert_eq!(kept.turns().replays_since_control, 4);
    assert_eq!(kept.outcomes(|m| panic!("{m}")), [outcome(5)]);
    assert_eq!(
        kept.traces()
            .iter()
            .map(|path| kept.trace(path))
            .collect::<Vec<_>>(),
        [Loaded::Some(trace(5, 0))]
    );
    let other = store.key(&Key::new("/usr/bin/program --with /b/script").unwrap());
    assert_eq!(other.profile(), Loaded::None);
    assert!(kept.forget().unwrap());
    assert_eq!(store.keys().unwrap(), []);
    assert_eq!(std::fs::read_dir(store.root().join("keys")).unwrap().count(), 0);
}

#[test]
fn everything_is_private() {
    let (_dir, store) = store();
    let lock = store.key(&key()).lock().unwrap();
    lock.save_profile(&profile(1, 1)).unwrap();
    store.log().line("a line").unwrap();
    let mut waiting = vec![store.root().to_owned()];
    let mut seen = 0;
    while let Some(path) = waiting.pop() {
        let facts = std::fs::metadata(&path).unwrap();
        let mode = if facts.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(facts.permissions().mode() & 0o777, mode, "{}", path.display());
        if facts.is_dir() {
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        seen += 1;
    }
    assert_eq!(
        seen, 7,
        "root, log, keys, the key's directory with key, profile and lock"
    );
}

#[test]
fn a_damaged_file_is_moved_aside_and_told_once() {
    let (_dir, store) = store();
    let lock = store.key(&key()).lock().unwrap();
    lock.save_profile(&profile(1, 1)).unwrap();
    let kept = lock.dir();
    let path = kept.path().join("profile");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    bytes[40] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let Loaded::Damaged(message) = kept.profile() else {
        panic!("it was read")
    };
    assert!(
        message.contains("profile") && message.contains("moved to"),
        "{message}"
    );
    assert!(kept.path().join("profile.damaged").exists());
    assert_eq!(kept.profile(), Loaded::None);
}

#[test]
fn a_file_of_a_newer_version_stays() {
    let (_dir, store) = store();
    let lock = store.key(&key()).lock().unwrap();
    lock.save_profile(&profile(1, 1)).unwrap();
    let path = lock.dir().path().join("profile");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8] = 2;
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(lock.dir().profile(), Loaded::Damaged(m) if m.contains("newer headstart")));
    assert!(path.exists());
    assert!(
        lock.dir()
            .newer()
            .is_some_and(|why| why.contains("newer headstart"))
    );
    lock.save_profile(&profile(1, 1)).unwrap();
    assert_eq!(lock.dir().newer(), None);
    std::fs::write(lock.dir().path().join("plan"), b"HSPLAN\0\0\xff\xff").unwrap();
    assert_eq!(lock.dir().newer(), None, "a header that is cut says nothing");
    let mut cut = b"HSPLAN\0\0\xff\xff".to_vec();
    cut.resize(40, 0);
    std::fs::write(lock.dir().path().join("plan"), cut).unwrap();
    assert!(lock.dir().newer().is_some_and(|why| why.contains("plan")));
}

#[test]
fn old_traces_and_outcomes_go_first() {
    let (_dir, store) = store();
    let limits = Limits {
        traces: 2,
        outcomes: 3,
        ageless_traces: 0,
        ageless_outcomes: 0,
        ..Limits::default()
    };
    let lock = store.key(&key()).lock().unwrap();
    for at in 1..=5 {
        lock.add_trace(&trace(at, 0)).unwrap();
        lock.add_outcome(&outcome(at)).unwrap();
    }
    lock.trim(&limits, SystemTime::now(), None);
    let kept = lock.dir();
    let times: Vec<u64> = kept
        .outcomes(|m| panic!("{m}"))
        .iter()
        .map(|o| o.started_unix_ns)
        .collect();
    assert_eq!(times, [3, 4, 5]);
    assert_eq!(kept.traces().len(), 2);
    assert!(kept.traces()[1].ends_with("00000000000000000005.trace"));
    lock.trim(
        &limits,
        SystemTime::now() + limits.age + Duration::from_secs(9),
        None,
    );
    assert_eq!(
        (kept.traces().len(), kept.outcomes(|m| panic!("{m}")).len()),
        (0, 0)
    );
}

/// What a key keeps: the started times of its outcomes, the number of its traces.
fn kept(store: &Store) -> (Vec<u64>, usize) {
    let dir = store.key(&key());
    let outcomes = dir.outcomes(|m| panic!("{m}"));
    let times = outcomes.iter().map(|outcome| outcome.started_unix_ns);
    (times.collect(), dir.traces().len())
}

#[test]
fn audit_10_a_clock_once_in_the_future_hides_nothing_that_comes_after() {
    let (_dir, store) = store();
    let limits = Limits {
        traces: 3,
        outcomes: 3,
        ..Limits::default()
    };
    let lock = store.key(&key()).lock().unwrap();
    // Three starts in the year 2100, by their names and by the times of their files.
    let future = 4_102_444_800_000_000_000;
    for at in 0..3 {
        lock.add_trace(&trace(future + at, 0)).unwrap();
        lock.add_outcome(&outcome(future + at)).unwrap();
    }
    for entry in std::fs::read_dir(lock.dir().path()).unwrap() {
        let file = File::options().write(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_nanos(future))
            .unwrap();
    }
    // The clock is right again. What comes now is the newest, and pushes the others out one by one.
    for at in 1..=4 {
        lock.add_trace(&trace(at, 0)).unwrap();
        lock.add_outcome(&outcome(at)).unwrap();
        lock.trim(&limits, SystemTime::now(), None);
        let (times, traces) = kept(&store);
        assert_eq!((times.last(), traces), (Some(&at), 3), "{times:?}");
    }
    assert_eq!(kept(&store).0, [2, 3, 4]);
}

#[test]
fn audit_10_a_clock_now_in_the_future_takes_neither_the_newest_nor_all_keys() {
    let (_dir, store) = store();
    let limits = Limits::default();
    let lock = store.key(&key()).lock().unwrap();
    for at in 1..=5 {
        lock.add_trace(&trace(at, 0)).unwrap();
    }
    for at in 1..=20 {
        lock.add_outcome(&outcome(at)).unwrap();
    }
    let years = SystemTime::now() + 10 * limits.key_age;
    lock.trim(&limits, years, None);
    drop(lock);
    store.tidy(&limits, years).unwrap();
    let (times, traces) = kept(&store);
    assert_eq!((times, traces), ((11..=20).collect(), 2));
}

#[test]
fn audit_10_a_key_of_the_future_does_not_outlast_those_in_use() {
    let (_dir, store) = store();
    let old = Key::new("of the future").unwrap();
    for key in [&old, &key()] {
        let lock = store.key(key).lock().unwrap();
        lock.save_profile(&profile(1, 1)).unwrap();
    }
    for entry in std::fs::read_dir(store.key(&old).path()).unwrap() {
        let file = File::options().write(true).open(entry.unwrap().path()).unwrap();
        file.set_modified(SystemTime::now() + Duration::from_secs(1 << 30))
            .unwrap();
    }
    let size = std::fs::metadata(store.key(&key()).path().join("profile"))
        .unwrap()
        .len();
    let limits = Limits {
        total_bytes: size + 200,
        ..Limits::default()
    };
    store.tidy(&limits, SystemTime::now()).unwrap();
    assert_eq!(store.keys().unwrap(), [key()]);
}

#[test]
fn audit_12_everything_kept_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().join("state"));
    let lock = store.key(&key()).lock().unwrap();
    lock.save_profile(&profile(1, 1)).unwrap();
    lock.add_trace(&trace(1, 0)).unwrap();
    lock.add_outcome(&outcome(1)).unwrap();
    lock.arm().unwrap();
    lock.save_last(b"{}").unwrap();
    store.log().line("x").unwrap();
    let mut todo = vec![store.root().to_path_buf()];
    let mut seen = 0;
    while let Some(path) = todo.pop() {
        let facts = std::fs::symlink_metadata(&path).unwrap();
        let expected = if facts.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(facts.permissions().mode() & 0o777, expected, "{}", path.display());
        if facts.is_dir() {
            todo.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
        seen += 1;
    }
    assert!(seen >= 10, "{seen}");
}

#[test]
fn the_witness_takes_nobodys_place_and_goes_by_its_age() {
    let (_dir, store) = store();
    let limits = Limits {
        traces: 2,
        key_bytes: 0,
        ..Limits::default()
    };
    let lock = store.key(&key()).lock().unwrap();
    for at in 1..=5 {
        lock.add_trace(&trace(at, 0)).unwrap();
    }
    let all = lock.dir().traces();
    let roomy = Limits {
        key_bytes: u64::MAX,
        ..limits
    };
    // Among the newest it leaves two others, among the oldest it stays.
    for witness in [&all[4], &all[2]] {
        lock.trim(&roomy, SystemTime::now(), Some(witness));
        assert!(witness.exists());
        assert_eq!(lock.dir().traces().len(), 3);
    }
    // Nor is it what goes for the key's size.
    lock.trim(&limits, SystemTime::now(), Some(&all[2]));
    assert_eq!(lock.dir().traces(), [all[2].clone()]);
    let later = SystemTime::now() + limits.age + Duration::from_secs(9);
    lock.trim(&limits, later, Some(&all[2]));
    assert!(!all[2].exists());
}

#[test]
fn a_key_has_a_size_and_the_profile_is_not_what_goes() {
    let (_dir, store) = store();
    let lock = store.key(&key()).lock().unwrap();
    lock.save_profile(&profile(1, 1)).unwrap();
    for at in 1..=4 {
        lock.add_trace(&trace(at, 5000)).unwrap();
    }
    let one = std::fs::metadata(&lock.dir().traces()[0]).unwrap().len();
    assert!(one > 10_000);
    lock.trim(
        &Limits {
            key_bytes: 2 * one + one / 2,
            ..Limits::default()
        },
        SystemTime::now(),
        None,
    );
    assert_eq!(lock.dir().traces().len(), 2);
    assert!(matches!(lock.dir().profile(), Loaded::Some(_)));
}

#[test]
fn all_keys_together_have_a_size_and_an_age() {
    let (_dir, store) = store();
    let keys: Vec<Key> = ["a", "b", "c"]
        .into_iter()
        .map(|k| Key::new(k).unwrap())
        .collect();
    for (age, key) in keys.iter().rev().enumerate() {
        let lock = store.key(key).lock().unwrap();
        lock.add_trace(&trace(1, 5000)).unwrap();
        for entry in std::fs::read_dir(lock.dir().path()).unwrap() {
            let file = std::fs::File::options()
                .write(true)
                .open(entry.unwrap().path())
                .unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(1000 * age as u64))
                .unwrap();
        }
    }
    let one = std::fs::metadata(&store.key(&keys[0]).traces()[0]).unwrap().len();
    let with = |total_bytes| Limits {
        total_bytes,
        ..Limits::default()
    };
    // A child that another test just starts holds a copy of a lock until its exec, and what is held stays.
    let free = |key: &Key| store.key(key).try_lock().unwrap().is_some();
    let all_free = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        keys.iter().all(free)
    });
    assert!(all_free, "nobody holds a lock for long");
    store.tidy(&with(2 * one + one / 2), SystemTime::now()).unwrap();
    assert_eq!(store.keys().unwrap(), keys, "a trace is enough");
    assert_eq!(
        keys.iter()
            .map(|k| store.key(k).traces().len())
            .collect::<Vec<_>>(),
        [0, 1, 1],
        "the oldest key's"
    );
    // A child that another test just starts holds a copy of a lock until its exec, and what is held stays.
    let gone = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        store.tidy(&with(0), SystemTime::now()).unwrap();
        store.keys().unwrap().is_empty()
    });
    assert!(gone, "{:?}", store.keys());

    store
        .key(&keys[0])
        .lock()
        .unwrap()
        .add_trace(&trace(1, 0))
        .unwrap();
    let limits = Limits {
        ageless_keys: 0,
        ..Limits::default()
    };
    let held = store.key(&keys[0]).lock().unwrap();
    let later = SystemTime::now() + limits.key_age + Duration::from_secs(9);
    store.tidy(&limits, later).unwrap();
    assert_eq!(store.keys().unwrap().len(), 1, "held");
    drop(held);
    store.tidy(&limits, later).unwrap();
    assert_eq!(store.keys().unwrap().len(), 0);
}

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
        .args(["--exact", "writer_of_one_large_trace", "--ignored"])
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
            .args(["--exact", "writer_until_killed", "--ignored"])
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
