//! What starts on other machines have taught: profiles that somebody imported, or that packages brought, each
//! with the plan that was made of it here.
//!
//! `imported/` and `packaged/` are state directories of their own below the state directory. A start looks
//! there only where its key has no plan of its own, so nothing of it is ever mixed with what starts here have
//! taught; and a start of which nothing is known costs two names that are not there. Others' keys name no
//! user: what is imported serves all users' starts.

use crate::{KeyDir, KeyLock, Limits, Loaded, State, Store, StoreError};
use headstart_model::plan::PlanFile;
use headstart_model::{Key, Profile};
use std::path::Path;
use std::time::SystemTime;

/// Where a profile of others came from; the first goes before the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Somebody imported it.
    Imported,
    /// A package brought it.
    Packaged,
}

const PLAN: &str = "plan";
const ORIGIN: &str = "origin";

/// The longest name of a file that is kept as an origin, bytes (`PATH_MAX`, linux/limits.h).
const MOST_ORIGIN: usize = 4096;

/// What is kept of each rank, bytes: a profile and its plan have some 100 KiB, so these are hundreds. They
/// come beside what [`Limits`] leaves to starts here.
const MOST_BYTES: u64 = 32 << 20;

impl Rank {
    /// All of them, the one that goes first before the others.
    pub const ALL: [Rank; 2] = [Rank::Imported, Rank::Packaged];

    /// The name of its directory.
    pub(crate) fn directory(self) -> &'static str {
        match self {
            Rank::Imported => "imported",
            Rank::Packaged => "packaged",
        }
    }
}

impl Store {
    /// What is kept of others' starts.
    pub fn imports(&self, rank: Rank) -> Store {
        Store::new(self.root().join(rank.directory()))
    }

    /// Removes what exceeds the bound on a rank, what was imported first before the rest. It does not go by
    /// its age: a program may be started years after it was installed.
    pub fn tidy_imports(&self, rank: Rank, now: SystemTime) -> Result<(), StoreError> {
        let limits = Limits {
            total_bytes: MOST_BYTES,
            ageless_keys: usize::MAX,
            ..Limits::default()
        };
        self.imports(rank).tidy(&limits, now)
    }
}

impl KeyDir {
    /// Where others' starts of the same are, whether anything is kept of them or not.
    fn places(&self) -> impl Iterator<Item = (Rank, KeyDir)> + '_ {
        let root = self.path().parent().and_then(Path::parent);
        let key = Key::new(self.key().of_all()).ok();
        let store = root.map(Store::new).zip(key);
        let at = move |rank| {
            let (store, key) = store.as_ref()?;
            Some((rank, store.imports(rank).key(key)))
        };
        Rank::ALL.into_iter().filter_map(at)
    }

    /// What others' starts of the same have taught, of the rank that goes first; `None` where nothing was
    /// imported.
    pub fn imported(&self) -> Option<(Rank, KeyDir)> {
        let has_plan = |dir: &KeyDir| std::fs::symlink_metadata(dir.path().join(PLAN)).is_ok();
        self.places().find(|(_, dir)| has_plan(dir))
    }

    /// The file that it was imported from, as it was named then.
    pub fn origin(&self) -> Option<String> {
        let bytes = crate::read_bounded(&self.path().join(ORIGIN), MOST_ORIGIN as u64);
        String::from_utf8(bytes.ok()??).ok()
    }

    /// Forgets what was imported of it; whether there was anything.
    pub fn forget_imports(&self) -> Result<bool, StoreError> {
        let mut any = false;
        for (_, dir) in self.places() {
            any |= dir.forget()?;
        }
        Ok(any)
    }
}

impl KeyLock {
    /// Keeps a profile of others, the plan that was made of it here, and the file that it came from. The plan
    /// comes last: by it the rest is found.
    pub fn save_import(&self, profile: &Profile, plan: &PlanFile, origin: &str) -> Result<(), StoreError> {
        let mut end = origin.len().min(MOST_ORIGIN);
        while !origin.is_char_boundary(end) {
            end -= 1;
        }
        self.save_profile(profile)?;
        self.write(ORIGIN, &origin.as_bytes()[..end])?;
        self.write(PLAN, plan.bytes())
    }
}

impl State {
    /// The plan that others' starts have taught, for a start whose key has none of its own; nothing where
    /// that was read in vain once.
    pub fn imported_plan(&self) -> Loaded<PlanFile> {
        match self.key_dir().imported().filter(|_| !self.turns.ignores_imports) {
            Some((_, dir)) => dir.plan(),
            None => Loaded::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::profile::Policy;
    use headstart_model::testing;

    fn import(store: &Store, rank: Rank, key: &str, origin: &str) {
        let key = Key::new(key).unwrap();
        let profile = Profile::new(key.clone(), 4096, Policy::Decay);
        let mut draft = testing::draft(testing::FLASH, vec![testing::planned("/f")], Vec::new());
        draft.key = key.clone();
        let lock = store.imports(rank).key(&key).lock().unwrap();
        lock.save_import(&profile, &draft.to_file().unwrap(), origin)
            .unwrap();
    }

    #[test]
    fn what_somebody_imported_goes_before_what_a_package_brought() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let key = store.key(&Key::new("/usr/bin/x").unwrap());
        assert!(key.imported().is_none() && matches!(key.state().imported_plan(), Loaded::None));
        import(&store, Rank::Packaged, "/usr/bin/x", "/usr/lib/x.profile");
        let (rank, from) = key.imported().unwrap();
        assert_eq!(
            (rank, from.origin().unwrap().as_str()),
            (Rank::Packaged, "/usr/lib/x.profile")
        );
        import(&store, Rank::Imported, "/usr/bin/x", "x.profile");
        let (rank, from) = key.imported().unwrap();
        assert_eq!(
            (rank, from.origin().unwrap().as_str()),
            (Rank::Imported, "x.profile")
        );
        assert!(matches!(key.state().imported_plan(), Loaded::Some(_)));
        assert!(!key.exists(), "nothing of it is the key's own");
        assert_eq!(store.keys().unwrap(), []);
        assert!(key.forget_imports().unwrap() && key.imported().is_none());
        assert!(!key.forget_imports().unwrap());
    }

    #[test]
    fn what_is_imported_serves_all_users() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        import(&store, Rank::Imported, "/usr/bin/x", "x.profile");
        let of_user = Key::new("/usr/bin/x").unwrap().of_user(1000).unwrap();
        assert!(matches!(
            store.key(&of_user).state().imported_plan(),
            Loaded::Some(_)
        ));
        assert!(store.key(&Key::new("/usr/bin/y").unwrap()).imported().is_none());
    }

    #[test]
    fn what_was_read_in_vain_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        import(&store, Rank::Imported, "/usr/bin/x", "x.profile");
        let key = store.key(&Key::new("/usr/bin/x").unwrap());
        let turns = crate::Turns {
            ignores_imports: true,
            ..crate::Turns::default()
        };
        let change = crate::Change {
            turns: Some(turns),
            ..crate::Change::default()
        };
        key.lock().unwrap().change(&change).unwrap();
        assert!(matches!(key.state().imported_plan(), Loaded::None));
    }

    #[test]
    fn an_origin_is_cut_between_characters() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        import(&store, Rank::Imported, "/usr/bin/x", &"€".repeat(MOST_ORIGIN));
        let (_, from) = store.key(&Key::new("/usr/bin/x").unwrap()).imported().unwrap();
        assert_eq!(from.origin().unwrap().chars().count(), MOST_ORIGIN / 3);
    }
}
