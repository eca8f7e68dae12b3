//! What the state directory knows of programs, whether the daemon runs or not.

use crate::service::{App, Pays, ServiceError};
use headstart_learn::verdict::{Verdict, compare, saved_ns};
use headstart_model::Key;
use headstart_model::key::BOOTS;
use headstart_model::outcome::Mode;
use headstart_store::{Change, KeyDir, KnownKeys, Store, StoreError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long who asks waits for who learns.
const PATIENCE: Duration = Duration::from_secs(1);

/// The programs of a state directory.
#[derive(Debug)]
pub struct Apps {
    store: Store,
    /// Its keys when they were last listed: a list comes in many pages.
    known: Mutex<KnownKeys>,
}

impl Apps {
    /// The programs of a state directory.
    pub fn new(store: Store) -> Apps {
        Apps {
            store,
            known: Mutex::default(),
        }
    }

    /// As [`crate::service::Service::apps`].
    pub fn list(
        &self,
        user: Option<u32>,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<App>, ServiceError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        self.store.look_for_keys(&mut known).map_err(failed)?;
        let may_be_told =
            |key: &&Key| key.as_str() != BOOTS && user.is_none_or(|uid| may_be_of_user(key, uid));
        let of_key = |key: &Key| {
            let kept = self.store.key(key);
            match user {
                None => Some(app(&kept)),
                Some(uid) => app_of_user(&kept, uid),
            }
        };
        Ok(known
            .behind(after)
            .filter(may_be_told)
            .filter_map(of_key)
            .take(most)
            .collect())
    }

    /// As [`crate::service::Service::app`].
    pub fn app(&self, key: &Key) -> Result<App, ServiceError> {
        let kept = self.program(key)?;
        match kept.exists() {
            true => Ok(app(&kept)),
            false => Err(ServiceError::UnknownKey(key.to_string())),
        }
    }

    /// As [`crate::service::Service::set_enabled`].
    pub fn set_enabled(&self, key: &Key, on: bool) -> Result<(), ServiceError> {
        let kept = self.program(key)?;
        // Of a key of which nothing is kept, everything is done already.
        if on && !kept.exists() {
            return Ok(());
        }
        soon(key, || match kept.make_and_try_lock()? {
            Some(lock) => {
                let enabled = Change {
                    enabled: Some(on),
                    ..Change::default()
                };
                lock.change(&enabled).map(Some)
            }
            None => Ok(None),
        })?;
        let keys = self.store.keys().map_err(failed)?;
        let among = keys.iter().map(|other| self.store.key(other));
        // What is learned from now does so itself.
        for other in among.filter(|other| other.is_among(key)) {
            if let Some(lock) = other.try_lock().map_err(failed)? {
                lock.change(&Change::default()).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// As [`crate::service::Service::forget`].
    pub fn forget(&self, key: &Key) -> Result<(), ServiceError> {
        let kept = self.program(key)?;
        if !kept.exists() {
            return Err(ServiceError::UnknownKey(key.to_string()));
        }
        soon(key, || Ok(kept.forget_unless_locked()?.then_some(())))
    }

    fn program(&self, key: &Key) -> Result<KeyDir, ServiceError> {
        match key.as_str() {
            BOOTS => Err(ServiceError::Failed(
                "boots are no program: use `headstart boot`".into(),
            )),
            _ => Ok(self.store.key(key)),
        }
    }
}

/// Tries something until it can be done, for a moment: who learns from a start may take minutes on a device
/// that is busy, and all who ask wait meanwhile.
fn soon<T>(key: &Key, mut attempt: impl FnMut() -> Result<Option<T>, StoreError>) -> Result<T, ServiceError> {
    let since = Instant::now();
    loop {
        match attempt().map_err(failed)? {
            Some(done) => return Ok(done),
            None if since.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(10)),
            None => {
                return Err(ServiceError::Failed(format!(
                    "a start of {key} is being learned from: ask again in a moment"
                )));
            }
        }
    }
}

fn failed(error: StoreError) -> ServiceError {
    ServiceError::Failed(error.to_string())
}

/// All that is known of a key.
pub fn app(kept: &KeyDir) -> App {
    // What is damaged is moved aside, and `status` tells of it.
    let outcomes = kept.outcomes(drop);
    let comparison = compare(&outcomes);
    App {
        key: kept.key().to_string(),
        enabled: kept.is_served(),
        starts: outcomes.len() as u64,
        replays: outcomes
            .iter()
            .filter(|outcome| outcome.mode == Mode::Replay)
            .count() as u64,
        seconds_saved: saved_ns(&outcomes, &comparison).map(|ns| ns as f64 / 1e9),
        last_start_unix_ns: outcomes.last().map(|outcome| outcome.started_unix_ns),
        verdict: Some(match comparison.verdict {
            Verdict::TooFew => Pays::TooFew,
            Verdict::NoDifference => Pays::NoDifference,
            Verdict::Faster => Pays::Faster,
            Verdict::Slower => Pays::Slower,
        }),
        bypassed: kept.bypass().map(|bypass| bypass.why),
    }
}

/// Whether a user may have started a key, by its text: one's own keys name the user, and what is not in a
/// directory is a service. So who asks does not have what is kept of all others' programs read.
fn may_be_of_user(key: &Key, uid: u32) -> bool {
    !key.as_str().starts_with('/') || key.user() == Some(uid)
}

/// What a user may know of a key; nothing if the user has not started it.
fn app_of_user(kept: &KeyDir, uid: u32) -> Option<App> {
    let own = kept.users().into_iter().find(|one| one.uid == uid)?;
    Some(App {
        key: kept.key().to_string(),
        enabled: kept.is_served(),
        starts: own.starts,
        last_start_unix_ns: Some(own.last_unix_ns),
        ..App::default()
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use headstart_model::Outcome;
    use headstart_model::outcome::{Resident, StageOutcome};
    use headstart_model::plan::PlanDraft;

    /// A state directory with cold starts of one program: seconds they took, with a replay or without.
    pub fn with_starts(starts: &[(Mode, u64)]) -> (tempfile::TempDir, Store, Key) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let key = Key::new("/usr/bin/x").unwrap();
        for (at, (mode, seconds)) in starts.iter().enumerate() {
            add_start(&store.key(&key), at as u64 + 1, *mode, *seconds);
        }
        (dir, store, key)
    }

    pub fn add_start(kept: &KeyDir, at: u64, mode: Mode, seconds: u64) {
        let outcome = Outcome {
            started_unix_ns: at,
            elapsed_ns: seconds * 1_000_000_000,
            status: Some(0),
            resident_before: Some(Resident {
                sampled_pages: 100,
                resident_pages: 0,
            }),
            stages: vec![StageOutcome {
                wasted_pages: 3,
                ..StageOutcome::default()
            }],
            ..Outcome::new(kept.key().clone(), mode)
        };
        kept.lock().unwrap().add_outcome(&outcome).unwrap();
    }

    #[test]
    fn nobody_waits_for_long_for_who_learns_from_a_start() {
        let (_dir, store, key) = with_starts(&[(Mode::Record, 9)]);
        let apps = Apps::new(store.clone());
        let lock = store.key(&key).lock().unwrap();
        for answer in [apps.set_enabled(&key, false), apps.forget(&key)] {
            assert!(
                matches!(&answer, Err(ServiceError::Failed(why)) if why.contains("ask again")),
                "{answer:?}"
            );
        }
        assert!(store.key(&key).is_enabled());
        drop(lock);
        // The first start of another, of which nothing is kept yet.
        let first = Key::new("/usr/bin/first").unwrap();
        let lock = store.key(&first).lock().unwrap();
        let answer = apps.set_enabled(&first, false);
        assert!(
            matches!(&answer, Err(ServiceError::Failed(why)) if why.contains("ask again")),
            "{answer:?}"
        );
        drop(lock);
        apps.set_enabled(&key, false).unwrap();
        assert!(!store.key(&key).is_enabled());
        apps.forget(&key).unwrap();
        assert_eq!(apps.forget(&key), Err(ServiceError::UnknownKey(key.to_string())));
    }

    #[test]
    fn who_disables_a_suite_has_no_part_of_it_read_ahead() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let part = store.key(&Key::new("/usr/bin/suite --writer").unwrap());
        let lock = part.lock().unwrap();
        let plan = PlanDraft::new(part.key().clone(), 4096).to_file().unwrap();
        lock.change(&Change {
            plan: Some(&plan),
            ..Change::default()
        })
        .unwrap();
        drop(lock);
        assert!(part.is_replayed());
        let apps = Apps::new(store.clone());
        apps.set_enabled(&Key::new("/usr/bin/suite").unwrap(), false)
            .unwrap();
        assert!(!part.is_replayed() && !apps.app(part.key()).unwrap().enabled);
    }

    #[test]
    fn what_is_known_of_a_program_is_told() {
        use Mode::{Control, Record, Replay};
        let (_dir, store, key) = with_starts(&[
            (Record, 9),
            (Replay, 2),
            (Control, 10),
            (Replay, 3),
            (Control, 10),
        ]);
        let apps = Apps::new(store.clone());
        let app = apps.app(&key).unwrap();
        assert_eq!((app.starts, app.replays, app.last_start_unix_ns), (5, 2, Some(5)));
        assert_eq!(app.seconds_saved, None, "as `status` says: too few are known");
        assert_eq!((app.enabled, app.verdict), (true, Some(Pays::TooFew)));
        assert_eq!(apps.list(None, None, 9).unwrap(), [app]);
        for turn in 0..12 {
            let (mode, seconds) = if turn % 2 == 0 { (Replay, 3) } else { (Control, 10) };
            add_start(&store.key(&key), 6 + turn, mode, seconds);
        }
        let app = apps.app(&key).unwrap();
        assert_eq!(app.verdict, Some(Pays::Faster));
        assert_eq!(app.seconds_saved, Some(8.0 + 7.0 * 7.0));
        apps.set_enabled(&key, false).unwrap();
        assert!(!apps.app(&key).unwrap().enabled);
        apps.forget(&key).unwrap();
        assert_eq!(apps.list(None, None, 9).unwrap(), []);
        let unknown = ServiceError::UnknownKey(key.to_string());
        assert_eq!(apps.app(&key), Err(unknown.clone()));
        assert_eq!(apps.forget(&key), Err(unknown));
    }

    #[test]
    fn a_user_is_told_of_own_starts_only() {
        let (_dir, store, _) = with_starts(&[(Mode::Record, 9), (Mode::Replay, 2)]);
        let apps = Apps::new(store.clone());
        let key = Key::new("/usr/bin/x of user 1000").unwrap();
        add_start(&store.key(&key), 1, Mode::Record, 9);
        store.key(&key).lock().unwrap().add_user(1000, 7).unwrap();
        assert_eq!(apps.list(Some(1001), None, 9).unwrap(), []);
        let own = App {
            key: key.to_string(),
            enabled: true,
            starts: 1,
            last_start_unix_ns: Some(7),
            ..App::default()
        };
        assert_eq!(apps.list(Some(1000), None, 9).unwrap(), [own]);
    }

    #[test]
    fn programs_come_page_by_page_and_boots_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        for name in ["boot", "a", "c", "b"] {
            let key = store.key(&Key::new(name).unwrap());
            add_start(&key, 1, Mode::Record, 1);
        }
        let apps = Apps::new(store);
        let page = |after, most| -> Vec<String> {
            let page = apps.list(None, after, most).unwrap();
            page.into_iter().map(|app| app.key).collect()
        };
        assert_eq!(page(None, 2), ["a", "b"]);
        assert_eq!(page(Some("b"), 2), ["c"]);
        let boot = Key::new("boot").unwrap();
        assert!(matches!(
            apps.set_enabled(&boot, false),
            Err(ServiceError::Failed(_))
        ));
        assert!(matches!(apps.forget(&boot), Err(ServiceError::Failed(_))));
    }
}
