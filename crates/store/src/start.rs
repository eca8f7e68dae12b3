//! What is needed first of a key whose starts are replayed, in one file in one piece: the plan, and where the key stands between control
//! runs.
//!
//! On a cold disk each file costs two reads that wait for one another, its inode and its data, and each directory on the way to it two
//! more. So all that is asked before a replay begins is here, in a directory for all keys that is looked up while headstart itself is read
//! (`headstart_system::own_program`), and this file's being there says the rest: the key is enabled and not bypassed. It is a copy: where
//! it is missing, the files of the key's own directory tell. It may be that of the start before, should headstart be killed before it has
//! written the next, but it never outlasts what forbids it.

use crate::file;
use crate::layout::path_of_start;
use crate::{KeyDir, KeyLock, StoreError, Turns};
use headstart_model::format::MAX_FILE;
use headstart_model::plan::PlanFile;
use std::io::ErrorKind;
use std::path::PathBuf;

/// What follows the plan: this, the replays since the last control run, how long a start waited for devices,
/// three bytes that are 0 or 1, how many replays go unrecorded, and how many starts used much that is not planned.
const MAGIC: &[u8; 6] = b"START3";
/// Bytes behind the plan.
pub const TAIL: usize = MAGIC.len() + 4 + 4 + 5;

/// What is needed first of a key whose starts are replayed.
pub struct Start {
    /// Its plan, checked.
    pub plan: PlanFile,
    /// Where it stands between control runs.
    pub turns: Turns,
}

impl Start {
    fn to_bytes(&self) -> Vec<u8> {
        let Turns {
            replays_since_control,
            in_doubt,
            exact_due,
            record_in,
            waited_ms,
            unplanned,
            bridges_nothing,
        } = self.turns;
        let mut bytes = self.plan.bytes().to_vec();
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&replays_since_control.to_le_bytes());
        bytes.extend_from_slice(&waited_ms.to_le_bytes());
        bytes.extend_from_slice(&[in_doubt.into(), exact_due.into(), bridges_nothing.into()]);
        bytes.extend_from_slice(&[record_in, unplanned]);
        bytes
    }

    fn from_bytes(mut bytes: Vec<u8>) -> Option<Start> {
        let tail = bytes.split_off(bytes.len().checked_sub(TAIL)?);
        let (number, rest) = tail.strip_prefix(MAGIC)?.split_first_chunk()?;
        let (waited_ms, flags) = rest.split_first_chunk()?;
        let &[
            in_doubt @ 0..=1,
            exact_due @ 0..=1,
            bridges_nothing @ 0..=1,
            record_in,
            unplanned,
        ] = flags
        else {
            return None;
        };
        let plan = PlanFile::new(bytes);
        plan.plan().ok()?;
        Some(Start {
            plan,
            turns: Turns {
                replays_since_control: u32::from_le_bytes(*number),
                in_doubt: in_doubt == 1,
                exact_due: exact_due == 1,
                record_in,
                waited_ms: u32::from_le_bytes(*waited_ms),
                unplanned,
                bridges_nothing: bridges_nothing == 1,
            },
        })
    }
}

impl KeyDir {
    /// Where what is needed first is, where it is in one file.
    pub fn start_path(&self) -> Option<PathBuf> {
        path_of_start(self.path())
    }

    /// What is needed first, if all of it is in one file. One that cannot be read is as none.
    pub fn start(&self) -> Option<Start> {
        let bytes = file::read_bounded(&self.start_path()?, MAX_FILE + TAIL as u64);
        Start::from_bytes(bytes.ok()??)
    }
}

impl KeyLock {
    /// Writes what the next start needs first, of what is kept now; removes it where that start has nothing to replay.
    pub fn save_start(&self) -> Result<(), StoreError> {
        let dir = self.dir();
        let Some(path) = dir.start_path() else {
            return Ok(());
        };
        let plan = match dir.is_served() && dir.bypass().is_none() {
            true => dir.plan().or_tell(drop),
            false => None,
        };
        let Some(plan) = plan else {
            return self.drop_start();
        };
        let turns = dir.turns();
        let made = path.parent().map_or(Ok(()), file::make_directory);
        made.and_then(|()| file::write_whole(&path, &Start { plan, turns }.to_bytes()))
    }

    /// Removes it, before what it says is true no more.
    pub(crate) fn drop_start(&self) -> Result<(), StoreError> {
        remove(self.dir().start_path())
    }

    /// Removes it and the boot-failure guard.
    pub(crate) fn drop_all_needed_first(&self) -> Result<(), StoreError> {
        self.drop_start()?;
        remove(self.dir().guard_path())
    }
}

/// Removes a file, if it is there, for good.
fn remove(path: Option<PathBuf>) -> Result<(), StoreError> {
    let Some(path) = path else { return Ok(()) };
    match std::fs::remove_file(&path) {
        Ok(()) => path.parent().map_or(Ok(()), file::sync_directory),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StoreError::io("remove", &path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bypass, Store};
    use headstart_model::Key;
    use headstart_model::plan::PlanDraft;

    fn bypass() -> Bypass {
        Bypass {
            every: 10,
            kernel: "6.18.1".into(),
            machine: "4ed0".into(),
            replay: false,
            why: "nothing to gain".into(),
        }
    }

    #[test]
    fn a_start_is_what_is_kept_and_is_gone_before_anything_forbids_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let key = store.key(&Key::new("/usr/bin/x").unwrap());
        let lock = key.lock().unwrap();
        lock.save_start().unwrap();
        assert!(key.start().is_none(), "nothing is known of it");
        let turns = Turns {
            replays_since_control: 70_000,
            in_doubt: false,
            exact_due: true,
            record_in: 9,
            waited_ms: 80_000,
            unplanned: 3,
            bridges_nothing: true,
        };
        lock.save_plan(&PlanDraft::new(key.key().clone(), 4096)).unwrap();
        lock.save_turns(&turns).unwrap();
        assert!(key.start().is_none(), "nobody has written it");
        let kept = || {
            let plan = key.plan().or_tell(|line| panic!("{line}")).unwrap();
            (plan.bytes().to_vec(), key.turns())
        };
        let write = || {
            lock.save_start().unwrap();
            let start = key.start().unwrap();
            assert_eq!((start.plan.bytes().to_vec(), start.turns), kept());
        };
        write();
        lock.save_bypass(Some(&bypass())).unwrap();
        assert!(key.start().is_none(), "bypassed");
        lock.save_start().unwrap();
        assert!(key.start().is_none(), "still bypassed");
        lock.save_bypass(None).unwrap();
        write();
        lock.set_enabled(false).unwrap();
        assert!(key.start().is_none(), "disabled");
        lock.set_enabled(true).unwrap();
        write();
        drop(lock);
        assert!(key.forget().unwrap() && key.start().is_none(), "forgotten");
    }

    #[test]
    fn what_is_cut_off_or_changed_is_as_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let key = Store::new(dir.path()).key(&Key::new("/usr/bin/x").unwrap());
        let lock = key.lock().unwrap();
        let plan = PlanDraft::new(key.key().clone(), 4096);
        lock.save_plan(&plan).unwrap();
        lock.save_start().unwrap();
        let path = path_of_start(key.path()).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(key.start().is_none(), "{length} of {} bytes", whole.len());
        }
        // But for the numbers.
        let flags = whole.len() - 5..whole.len() - 2;
        for at in (0..whole.len() - 13).chain(flags) {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            std::fs::write(&path, &changed).unwrap();
            // A byte between two sections says nothing.
            let as_before = |start: Start| {
                start.plan.plan().unwrap().to_draft().unwrap() == plan && start.turns == Turns::default()
            };
            assert!(key.start().is_none_or(as_before), "byte {at} of {}", whole.len());
        }
    }

    #[test]
    fn what_belongs_to_no_key_is_removed_after_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let key = store.key(&Key::new("/usr/bin/x").unwrap());
        let lock = key.lock().unwrap();
        lock.save_plan(&PlanDraft::new(key.key().clone(), 4096)).unwrap();
        lock.save_start().unwrap();
        drop(lock);
        std::fs::remove_dir_all(key.path()).unwrap();
        let boot = store.key(&Key::new("boot").unwrap());
        boot.lock().unwrap().arm(true).unwrap();
        let path = path_of_start(key.path()).unwrap();
        let limits = crate::Limits::default();
        let now = std::time::SystemTime::now();
        store.tidy(&limits, now).unwrap();
        assert!(path.exists(), "somebody may be making the key");
        store.tidy(&limits, now + 2 * crate::store::STRAY_AGE).unwrap();
        assert!(!path.exists());
        assert!(boot.is_armed(), "the guard of a key that is there");
        assert!(boot.forget().unwrap() && !boot.guard_path().unwrap().exists());
    }

    #[test]
    fn what_has_another_name_or_lies_behind_a_link_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("state"));
        let (victim, root) = (dir.path().join("victim"), store.root());
        let stray = "0123456789abcdef--usr-bin-x";
        for directory in [
            victim.join(stray),
            root.join("keys/mine"),
            root.join("keys").join(stray),
        ] {
            std::fs::create_dir_all(directory).unwrap();
        }
        std::fs::write(root.join("keys/id_rsa"), "").unwrap();
        std::os::unix::fs::symlink(&victim, root.join("starts")).unwrap();
        let later = std::time::SystemTime::now() + 2 * crate::store::STRAY_AGE;
        store.tidy(&crate::Limits::default(), later).unwrap();
        assert!(victim.join(stray).exists());
        assert!(root.join("keys/mine").exists() && root.join("keys/id_rsa").exists());
        assert!(!root.join("keys").join(stray).exists());
    }
}
