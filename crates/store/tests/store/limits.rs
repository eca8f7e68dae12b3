//! What goes first where there is too much.

use crate::samples::{key, outcome, profile, store, trace};
use headstart_model::Key;
use headstart_store::{Limits, Loaded, Store};
use std::fs::File;
use std::time::{Duration, SystemTime};

/// What a key keeps: the started times of its outcomes, the number of its traces.
fn kept(store: &Store) -> (Vec<u64>, usize) {
    let dir = store.key(&key());
    let outcomes = dir.outcomes(|m| panic!("{m}"));
    let times = outcomes.iter().map(|outcome| outcome.started_unix_ns);
    (times.collect(), dir.traces().len())
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

#[test]
fn a_clock_once_in_the_future_hides_nothing_that_comes_after() {
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
fn a_clock_now_in_the_future_takes_neither_the_newest_nor_all_keys() {
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
fn a_key_of_the_future_does_not_outlast_those_in_use() {
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
    let limits = Limits {
        total_bytes: store.key(&key()).last_used_and_size().1,
        ..Limits::default()
    };
    store.tidy(&limits, SystemTime::now()).unwrap();
    assert_eq!(store.keys().unwrap(), [key()]);
}

#[test]
fn a_key_that_cannot_be_removed_does_not_keep_the_others() {
    let (_dir, store) = store();
    let keys = ["broken", "old", "new"].map(|name| Key::new(name).unwrap());
    for (age, key) in keys.iter().rev().enumerate() {
        let lock = store.key(key).lock().unwrap();
        lock.save_profile(&profile(1, 1)).unwrap();
        let used = SystemTime::now() - Duration::from_secs(1000 * age as u64);
        for entry in std::fs::read_dir(lock.dir().path()).unwrap() {
            let file = File::options().write(true).open(entry.unwrap().path()).unwrap();
            file.set_modified(used).unwrap();
        }
    }
    let lock = store.key(&keys[0]).path().join("lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    std::fs::File::open(&lock)
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH)
        .unwrap();
    let aged = Limits {
        ageless_keys: 1,
        key_age: Duration::from_secs(500),
        ..Limits::default()
    };
    let told = store.tidy(&aged, SystemTime::now()).unwrap_err().to_string();
    assert!(told.contains("lock"), "{told}");
    let mut left = store.keys().unwrap();
    left.sort();
    assert_eq!(left, [keys[0].clone(), keys[2].clone()]);
    let none = Limits {
        total_bytes: 0,
        ..Limits::default()
    };
    assert!(store.tidy(&none, SystemTime::now()).is_err());
    assert_eq!(store.keys().unwrap(), [keys[0].clone()]);
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
    let traces = lock.dir().traces();
    let roomy = Limits {
        key_bytes: u64::MAX,
        ..limits
    };
    // Among the newest it leaves two others, among the oldest it stays.
    for witness in [&traces[4], &traces[2]] {
        lock.trim(&roomy, SystemTime::now(), Some(witness));
        assert!(witness.exists());
        assert_eq!(lock.dir().traces().len(), 3);
    }
    // Nor is it what goes for the key's size.
    lock.trim(&limits, SystemTime::now(), Some(&traces[2]));
    assert_eq!(lock.dir().traces(), [traces[2].clone()]);
    let later = SystemTime::now() + limits.age + Duration::from_secs(9);
    lock.trim(&limits, later, Some(&traces[2]));
    assert!(!traces[2].exists());
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
    let size: u64 = keys.iter().map(|key| store.key(key).last_used_and_size().1).sum();
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
    store.tidy(&with(size - 1), SystemTime::now()).unwrap();
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
