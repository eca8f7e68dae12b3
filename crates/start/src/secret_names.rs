//! What builds before this one kept of names that are encrypted on disk (decision 27) goes once: a key in
//! whose state such a name stands is forgotten, and learned anew.

use headstart_model::key::MAX_KEY;
use headstart_store::{Change, KeyDir, Store, StoreError, read_bounded, write_whole};
use headstart_system::mounts::MountTable;
use headstart_system::open::pin;
use headstart_system::secrets::Secrets;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How far it came: one of the first two and the key that was looked at last, or one of the others alone.
const FILE: &str = "secret-names";
const BEHIND: u8 = b'>';
const BEHIND_UNKNOWN: u8 = b'!';
const DONE: u8 = b'+';
/// All was looked at, and some lay in directories of people, or on volumes of theirs, that are not there now.
const UNKNOWN: u8 = b'?';
/// Where the homes and volumes of people are.
const OF_PEOPLE: [&str; 5] = ["/home/", "/var/home/", "/mnt/", "/media/", "/run/media/"];

/// Looks at what is kept for so long, and goes on from there the next time. With `again` also at what could
/// not be told before.
pub fn forget_secret_names(store: &Store, within: Duration, again: bool) -> Result<(), StoreError> {
    let mounts = || MountTable::read().unwrap_or_default();
    let mut secrets = Secrets::new();
    let mut is_secret = |path: &[u8]| secrets.is_secret(Some(&mounts), path);
    forget(store, within, again, &mut is_secret)
}

/// Whether some names could not be told, as their directories are not there.
pub fn are_some_unknown(store: &Store) -> bool {
    let known = read_bounded(&store.root().join(FILE), MAX_KEY as u64 + 1);
    known.ok().flatten().is_some_and(|text| text == [UNKNOWN])
}

fn forget(
    store: &Store,
    within: Duration,
    again: bool,
    is_secret: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<(), StoreError> {
    let until = Instant::now() + within;
    let path = store.root().join(FILE);
    let known = read_bounded(&path, MAX_KEY as u64 + 1)
        .ok()
        .flatten()
        .unwrap_or_default();
    let behind = match known.split_first() {
        Some((&DONE, _)) => return Ok(()),
        Some((&UNKNOWN, _)) if !again => return Ok(()),
        Some((&(BEHIND | BEHIND_UNKNOWN), behind)) => behind,
        _ => b"",
    };
    if !store.root().is_dir() {
        return Ok(());
    }
    let keys = store.keys()?;
    let mut gone = GoneVolumes {
        any: known.first() == Some(&BEHIND_UNKNOWN),
        ..GoneVolumes::default()
    };
    // Some are looked at in any case, or where each takes long it would never end.
    for (looked, key) in keys
        .iter()
        .filter(|key| key.as_str().as_bytes() > behind)
        .enumerate()
    {
        if looked > 0 && Instant::now() >= until {
            return Ok(());
        }
        let kept = store.key(key);
        if kept.newer().is_none() && names_one(&kept, is_secret, &mut gone) {
            let is_enabled = kept.is_enabled();
            // Somebody writes there: the next time.
            if !kept.forget_unless_locked()? {
                return Ok(());
            }
            // What somebody has said of it stays said; the key itself is what was named then.
            if !is_enabled {
                kept.lock()?.change(&DISABLED)?;
            }
        }
        let how = if gone.any { BEHIND_UNKNOWN } else { BEHIND };
        write_whole(&path, &[&[how], key.as_str().as_bytes()].concat())?;
    }
    write_whole(&path, &[if gone.any { UNKNOWN } else { DONE }])
}

/// What somebody may have said of a key.
const DISABLED: Change<'static> = Change {
    plan: None,
    turns: None,
    bypass: None,
    enabled: Some(false),
};

/// Whether a secret name stands in what is kept of a key.
fn names_one(kept: &KeyDir, is_secret: &mut dyn FnMut(&[u8]) -> bool, gone: &mut GoneVolumes) -> bool {
    let mut is_one = |path: &[u8]| {
        gone.check(path);
        is_secret(path)
    };
    let text = kept.key().of_all().as_bytes();
    // A script's key names its interpreter first.
    let words = text.split(|byte| *byte == b' ').chain([text]);
    if words
        .into_iter()
        .any(|word| word.starts_with(b"/") && is_one(word))
        || kept.names().iter().any(|name| is_one(name.as_bytes()))
    {
        return true;
    }
    let profile = kept.profile().or_tell(|_| {});
    let mut entries = profile.iter().flat_map(|profile| &profile.entries);
    if entries.any(|entry| is_one(entry.path.as_bytes())) {
        return true;
    }
    if let Some(plan) = kept.plan().or_tell(|_| {}) {
        if let Ok(plan) = plan.plan() {
            if (0..plan.file_count()).any(|file| plan.path(file).is_some_and(&mut is_one)) {
                return true;
            }
        }
    }
    kept.traces().iter().any(|path| {
        let Some(trace) = kept.trace(path).or_tell(|_| {}) else {
            return false;
        };
        trace.files.iter().any(|file| is_one(file.path.as_bytes()))
            || trace.lookups.iter().any(|lookup| is_one(lookup.path.as_bytes()))
            || trace
                .processes
                .iter()
                .any(|process| is_one(process.executable.as_bytes()))
            || trace
                .meta
                .command
                .iter()
                .any(|word| word.starts_with('/') && is_one(word.as_bytes()))
    })
}

/// Whether names lay where people's volumes are, and nothing is there now.
#[derive(Default)]
struct GoneVolumes {
    there: HashSet<PathBuf>,
    any: bool,
}

/// So many directories are remembered to be there.
const MOST: usize = 10_000;

impl GoneVolumes {
    fn check(&mut self, path: &[u8]) {
        let home = OF_PEOPLE.iter().find(|home| path.starts_with(home.as_bytes()));
        let Some(home) = home.filter(|_| !self.any && self.there.len() < MOST) else {
            return;
        };
        // What is locked or unmounted takes its first directory along, or leaves it empty.
        let slashes = (home.len()..path.len()).filter(|at| path[*at] == b'/');
        let Some(end) = slashes.take(2).last() else { return };
        let directory = Path::new(OsStr::from_bytes(&path[..end]));
        if self.there.contains(directory) {
            return;
        }
        // Nobody is waited for who may not answer: what is on no local file system is not there.
        self.any = pin(&MountTable::read().unwrap_or_default(), directory).is_err();
        self.there.insert(directory.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::outcome::Mode;
    use headstart_model::profile::Policy;
    use headstart_model::testing::entry;
    use headstart_model::{Key, Outcome, Profile};

    const LONG: Duration = Duration::from_secs(600);

    fn add(store: &Store, name: &str, path: &str) -> Key {
        let key = Key::new(name).unwrap();
        let lock = store.key(&key).lock().unwrap();
        lock.add_outcome(&Outcome::new(key.clone(), Mode::Record))
            .unwrap();
        let profile = Profile {
            entries: vec![entry(path)],
            ..Profile::new(key.clone(), 4096, Policy::Decay)
        };
        lock.save_profile(&profile).unwrap();
        key
    }

    fn is_secret(path: &[u8]) -> bool {
        path.starts_with(b"/secret/")
    }

    fn names(store: &Store) -> Vec<String> {
        store.keys().unwrap().iter().map(Key::to_string).collect()
    }

    #[test]
    fn what_names_a_secret_is_forgotten_once_and_the_rest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        add(&store, "/usr/bin/cat", "/secret/letter");
        add(&store, "/usr/bin/python3 /secret/diary.py", "/usr/lib/x");
        add(&store, "/usr/bin/vim", "/usr/share/vim");
        let off = add(&store, "/usr/bin/off", "/secret/letter");
        store.key(&off).lock().unwrap().change(&DISABLED).unwrap();
        forget(&store, LONG, false, &mut is_secret).unwrap();
        assert!(
            !names(&store)
                .iter()
                .any(|name| name.contains("secret") || name.ends_with("cat"))
        );
        assert!(
            store
                .key(&Key::new("/usr/bin/vim").unwrap())
                .profile()
                .or_tell(|_| {})
                .is_some()
        );
        assert!(!store.key(&off).is_enabled(), "it stays disabled");
        assert!(store.key(&off).profile().or_tell(|_| {}).is_none());
        assert!(!are_some_unknown(&store));
        let mut asked = false;
        forget(&store, LONG, true, &mut |_| std::mem::replace(&mut asked, true)).unwrap();
        assert!(!asked, "it is looked at once");
    }

    #[test]
    fn it_goes_on_where_it_was_ended() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        for name in ["/a", "/b", "/c"] {
            add(&store, name, "/secret/letter");
        }
        for left in [2, 1, 0] {
            forget(&store, Duration::ZERO, false, &mut is_secret).unwrap();
            assert_eq!(names(&store).len(), left);
        }
    }

    #[test]
    fn names_on_a_volume_that_is_not_there_are_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        add(&store, "/a", "/media/headstart-no-such-volume/letter");
        forget(&store, LONG, false, &mut |_| false).unwrap();
        assert!(are_some_unknown(&store));
        // Once it is there.
        forget(&store, LONG, false, &mut |_| true).unwrap();
        assert_eq!(names(&store).len(), 1, "a learn does not look again");
        forget(&store, LONG, true, &mut |_| true).unwrap();
        assert!(names(&store).is_empty() && !are_some_unknown(&store));
    }
}
