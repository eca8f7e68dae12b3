//! What is written is found again, by whom it may be, and what is damaged or of another version is told.

use crate::samples::{key, outcome, plan, profile, store, trace};
use headstart_model::Key;
use headstart_store::{Change, Loaded, Store, Turns};
use std::os::unix::fs::PermissionsExt;

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
    let turns = Turns {
        replays_since_control: 4,
        in_doubt: true,
        exact_due: true,
        record_in: 3,
        ..Turns::default()
    };
    lock.change(&Change {
        plan: Some(&plan().to_file().unwrap()),
        turns: Some(turns),
        ..Change::default()
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
fn everything_kept_is_private() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().join("state"));
    let lock = store.key(&key()).lock().unwrap();
    lock.save_profile(&profile(1, 1)).unwrap();
    lock.add_trace(&trace(1, 0)).unwrap();
    lock.add_outcome(&outcome(1)).unwrap();
    lock.arm(true).unwrap();
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
fn a_key_that_is_being_made_is_still_to_be_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path());
    let mut known = headstart_store::KnownKeys::default();
    let mut look = || {
        store.look_for_keys(&mut known).unwrap();
        (known.behind(None).count(), known.is_whole())
    };
    assert_eq!(look(), (0, true), "there is nothing at all");
    let lock = store.key(&Key::new("/usr/bin/x").unwrap()).lock().unwrap();
    assert_eq!(look(), (0, false));
    lock.change(&Change {
        turns: Some(Turns {
            replays_since_control: 1,
            ..Turns::default()
        }),
        ..Change::default()
    })
    .unwrap();
    assert_eq!(look(), (1, true));
}

#[test]
fn a_link_in_the_place_of_a_keys_directory_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().join("state"));
    let kept = store.key(&Key::new("k").unwrap());
    let elsewhere = dir.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("profile"), "somebody's").unwrap();
    std::fs::create_dir_all(kept.path().parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(&elsewhere, kept.path()).unwrap();
    let Loaded::Damaged(why) = kept.profile() else {
        panic!("it was read")
    };
    assert!(why.contains("is no directory"), "{why}");
    assert!(kept.lock().is_err() && kept.forget().is_err());
    assert_eq!(std::fs::read(elsewhere.join("profile")).unwrap(), b"somebody's");
    assert_eq!(
        std::fs::read_dir(&elsewhere).unwrap().count(),
        1,
        "nothing was made there"
    );
}

#[test]
fn what_is_no_file_is_moved_aside_once() {
    let dir = tempfile::tempdir().unwrap();
    let kept = Store::new(dir.path().join("state")).key(&Key::new("k").unwrap());
    drop(kept.lock().unwrap());
    std::fs::create_dir(kept.path().join("plan")).unwrap();
    let Loaded::Damaged(why) = kept.plan() else {
        panic!("it was read")
    };
    assert!(why.contains("plan.damaged"), "{why}");
    assert!(matches!(kept.plan(), Loaded::None));
}
