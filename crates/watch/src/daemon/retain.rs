//! What is kept of programs stays within its bounds: what has gained least goes first.

use super::users::user_of;
use headstart_learn::verdict::compare;
use headstart_store::{KeyDir, Store, StoreError};
use std::collections::HashMap;
use std::time::SystemTime;

/// All that is kept of programs, bytes: 64 MiB, less what some starts add until it is looked at again. A program has some hundred KiB,
/// most of it traces.
pub(super) const MOST_BYTES: u64 = 56 << 20;

/// The key that is no program's.
const BOOT: &str = "boot";

/// A user's programs, other than root's, that have more than this share of it go before all others' do: nobody drives out what others have.
const SHARE_OF_A_USER: u64 = 2;

/// Removes traces, then whole keys, of those programs first whose replays have gained least, until the rest has at most
/// `most` bytes. What somebody writes just now stays.
pub(super) fn within(store: &Store, most: u64) -> Result<(), StoreError> {
    let mut total = 0;
    let mut all: Vec<(KeyDir, SystemTime, u64)> = Vec::new();
    let mut of_users: HashMap<String, u64> = HashMap::new();
    for key in store.keys()? {
        if key.as_str() != BOOT {
            let kept = store.key(&key);
            let (used, size) = kept.last_used_and_size();
            total += size;
            if let Some(user) = user_of(&key) {
                *of_users.entry(user.to_owned()).or_default() += size;
            }
            all.push((kept, used, size));
        }
    }
    if total <= most {
        return Ok(());
    }
    let has_its_share = |kept: &KeyDir| {
        let theirs = user_of(kept.key()).and_then(|user| of_users.get(user));
        theirs.is_none_or(|size| *size <= most / SHARE_OF_A_USER)
    };
    all.sort_by_cached_key(|(kept, used, _)| (has_its_share(kept), gained_ns(kept), *used));
    for (kept, _, size) in &mut all {
        if total <= most {
            return Ok(());
        }
        let Some(lock) = kept.try_lock()? else { continue };
        let removed = lock.remove_traces();
        *size = size.saturating_sub(removed);
        total = total.saturating_sub(removed);
    }
    for (kept, _, size) in &all {
        if total <= most {
            return Ok(());
        }
        // What somebody has disabled stays so.
        if kept.is_enabled() && kept.forget_unless_locked()? {
            total = total.saturating_sub(*size);
        }
    }
    Ok(())
}

/// What replays of a program have saved so far, nanoseconds, as far as its outcomes are kept.
fn gained_ns(kept: &KeyDir) -> u64 {
    let comparison = compare(&kept.outcomes(|_| {}));
    let each = u64::try_from(comparison.gain_ns.unwrap_or(0)).unwrap_or(0);
    each.saturating_mul(comparison.with.starts as u64)
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
        let much = ["a", "b", "c", "d"].map(|name| format!("/{name} of user 1000"));
        for name in &much {
            add(&store, name, 500);
        }
        add(&store, "/a of user 1001", 20);
        add(&store, "/root's", 0);
        let left = || -> Vec<String> { store.keys().unwrap().iter().map(|k| k.to_string()).collect() };
        let size: u64 = store
            .keys()
            .unwrap()
            .iter()
            .map(|key| store.key(key).last_used_and_size().1)
            .sum();
        within(&store, size - 1).unwrap();
        assert_eq!(left().len(), 5);
        assert!(
            ["/a of user 1001", "/root's"]
                .iter()
                .all(|name| left().iter().any(|key| key == name))
        );
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
            let of = |name: &str| store.key(&Key::new(name).unwrap()).last_used_and_size().1;
            of("much") + of("little") + of("none")
        };
        within(&store, size).unwrap();
        assert_eq!(names().len(), 4, "it fits");
        within(&store, size - 1).unwrap();
        assert_eq!(names(), ["boot", "little", "much"]);
        within(&store, 1).unwrap();
        assert_eq!(names(), ["boot"]);
    }
}
