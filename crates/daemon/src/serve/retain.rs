//! What is kept of programs stays within its bounds: what has gained least goes first.

use headstart_learn::verdict::{compare, saved_ns};
use headstart_model::sort::Sort;
use headstart_store::{KeyDir, Store, StoreError};
use std::collections::HashMap;
use std::time::SystemTime;

/// All that is kept of programs, bytes: 64 MiB, less what some starts add until it is looked at again. A
/// program has some hundred KiB, most of it traces.
pub(super) const MOST_BYTES: u64 = 56 << 20;

/// The key that is no program's.
const BOOT: &str = "boot";

/// What is kept of one program.
struct KeptProgram {
    dir: KeyDir,
    used: SystemTime,
    size: u64,
}

/// What is kept of all programs, bytes: in all, and by user; `None` is the system.
#[derive(Default)]
struct Sizes {
    total: u64,
    of_users: HashMap<Option<u32>, u64>,
}

impl Sizes {
    fn add(&mut self, kept: &KeptProgram) {
        self.total += kept.size;
        *self.of_users.entry(kept.dir.key().user()).or_default() += kept.size;
    }

    fn remove(&mut self, kept: &mut KeptProgram, bytes: u64) {
        kept.size = kept.size.saturating_sub(bytes);
        self.total = self.total.saturating_sub(bytes);
        if let Some(all) = self.of_users.get_mut(&kept.dir.key().user()) {
            *all = all.saturating_sub(bytes);
        }
    }

    /// Whether it is of one who has more than a share of so many bytes: half of that is the system's, the
    /// other half that of all users together, who share it alike.
    fn is_of_one_with_more(&self, kept: &KeptProgram, most: u64) -> bool {
        let user = kept.dir.key().user();
        let users = self.of_users.keys().flatten().count().max(1) as u64;
        let share = match user {
            None => most / 2,
            Some(_) => most / 2 / users,
        };
        self.of_users.get(&user).is_some_and(|all| *all > share)
    }
}

/// Removes traces, then whole keys, of those programs first whose replays have gained least, until the rest
/// has at most `most` bytes: of the programs of those who have more than their share, so that nobody drives
/// out what others have. What somebody writes just now stays.
pub(super) fn trim_to(store: &Store, most: u64) -> Result<(), StoreError> {
    let mut sizes = Sizes::default();
    let mut programs = Vec::new();
    for key in store.keys()? {
        if key.as_str() != BOOT {
            let dir = store.key(&key);
            let (used, size) = dir.last_used_and_size();
            let kept = KeptProgram { dir, used, size };
            sizes.add(&kept);
            programs.push(kept);
        }
    }
    if sizes.total <= most {
        return Ok(());
    }
    programs.sort_small_by_cached_key(|kept| (gained_ns(&kept.dir), kept.used));
    // One that cannot be removed does not keep the others.
    let mut failed = None;
    for of_all in [false, true] {
        let is_one = |sizes: &Sizes, kept: &KeptProgram| of_all || sizes.is_of_one_with_more(kept, most);
        for kept in &mut programs {
            if sizes.total <= most {
                return Ok(());
            }
            if is_one(&sizes, kept) {
                match kept.dir.try_lock() {
                    Ok(Some(lock)) => sizes.remove(kept, lock.remove_traces()),
                    Ok(None) => {}
                    Err(error) => failed = Some(error),
                }
            }
        }
        for kept in &mut programs {
            if sizes.total <= most {
                return Ok(());
            }
            // What somebody has disabled stays so.
            if is_one(&sizes, kept) && kept.dir.is_enabled() {
                let size = kept.size;
                match kept.dir.forget_unless_locked() {
                    Ok(true) => sizes.remove(kept, size),
                    Ok(false) => {}
                    Err(error) => failed = Some(error),
                }
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// What replays of a program have saved so far, nanoseconds, as far as its outcomes are kept and as it is
/// told everywhere; 0 where no difference is shown.
fn gained_ns(kept: &KeyDir) -> u64 {
    let outcomes = kept.outcomes(|_| {});
    let saved = saved_ns(&outcomes, &compare(&outcomes));
    u64::try_from(saved.unwrap_or(0)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::Key;
    use headstart_model::outcome::{Mode, Outcome, Resident};

    /// A key with outcomes of which each replay saves so many milliseconds.
    fn add(store: &Store, name: &str, saves_ms: u64) {
        let key = Key::new(name).unwrap();
        let lock = store.key(&key).lock().unwrap();
        for turn in 0..20 {
            let replayed = turn % 2 == 0;
            let mode = if replayed { Mode::Replay } else { Mode::Control };
            lock.add_outcome(&Outcome {
                started_unix_ns: turn,
                elapsed_ns: (1000 - if replayed { saves_ms } else { 0 }) * 1_000_000 + turn,
                status: Some(0),
                resident_before: Some(Resident {
                    sampled_pages: 100,
                    resident_pages: 0,
                }),
                ..Outcome::new(key.clone(), mode)
            })
            .unwrap();
        }
    }

    #[test]
    fn a_user_with_more_than_a_share_drives_out_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        for name in ["a", "b", "c", "d", "e", "f", "g"] {
            add(&store, &format!("/{name} of user 1000"), 500);
        }
        add(&store, "/a of user 1001", 20);
        add(&store, "/a", 0);
        let left = || -> Vec<String> { store.keys().unwrap().iter().map(|k| k.to_string()).collect() };
        let count = |end: &str| left().iter().filter(|key| key.ends_with(end)).count();
        let size_of = |key: &Key| store.key(key).last_used_and_size().1;
        let size: u64 = store.keys().unwrap().iter().map(size_of).sum();
        trim_to(&store, size - 1).unwrap();
        assert_eq!([count(" 1000"), count(" 1001"), count("/a")], [6, 1, 1]);
        // Four and a half of the nine, though that user's have gained most.
        trim_to(&store, size / 2).unwrap();
        assert_eq!([count(" 1000"), count(" 1001"), count("/a")], [2, 1, 1]);
    }

    #[test]
    fn one_that_cannot_be_removed_does_not_keep_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        for (name, saves) in [("least", 0), ("little", 20), ("much", 500)] {
            add(&store, name, saves);
        }
        let size_of = |name: &str| store.key(&Key::new(name).unwrap()).last_used_and_size().1;
        let lock = store.key(&Key::new("least").unwrap()).path().join("lock");
        std::fs::remove_file(&lock).unwrap();
        std::fs::create_dir(&lock).unwrap();
        let most = size_of("least") + size_of("much");
        let told = trim_to(&store, most).map_err(|error| error.to_string());
        let left: Vec<String> = store.keys().unwrap().iter().map(|k| k.to_string()).collect();
        assert_eq!(left, ["least", "much"]);
        // What could be removed is enough, so nothing has to be told.
        assert_eq!(told, Ok(()));
        let told = trim_to(&store, 1).map_err(|error| error.to_string());
        assert!(told.as_ref().is_err_and(|why| why.contains("lock")), "{told:?}");
        assert_eq!(store.keys().unwrap(), [Key::new("least").unwrap()]);
    }

    #[test]
    fn the_program_that_gained_least_goes_first_and_the_boot_never() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        for (name, saves) in [("much", 500), ("boot", 0), ("little", 20), ("none", 0)] {
            add(&store, name, saves);
        }
        let names = || -> Vec<String> { store.keys().unwrap().iter().map(|k| k.to_string()).collect() };
        let size: u64 = {
            let size_of_key = |name: &str| store.key(&Key::new(name).unwrap()).last_used_and_size().1;
            size_of_key("much") + size_of_key("little") + size_of_key("none")
        };
        trim_to(&store, size).unwrap();
        assert_eq!(names().len(), 4, "it fits");
        trim_to(&store, size - 1).unwrap();
        assert_eq!(names(), ["boot", "little", "much"]);
        trim_to(&store, 1).unwrap();
        assert_eq!(names(), ["boot"]);
    }
}
