//! The state of a key: all that is decided by before a start of it, read and written as one.
//!
//! It lies in files of the key's directory: `plan`, `turns`, `bypass`, `disabled`. On a cold disk each file
//! costs two reads that wait for one another, its inode and its data, and each directory on the way to it two
//! more. So the state of a key whose starts are replayed is also in one file, in a directory for all keys
//! that is looked up while headstart itself is read (`headstart_system::own_program`): the plan and the
//! turns, for its being there says that the key is enabled and not bypassed. It may be that of the start
//! before, should headstart be killed amid a change, but it never outlasts what forbids it. The boot-failure
//! guard lies beside it.

use crate::file::{self, read_bounded};
use crate::layout::path_of_start;
use crate::{Bypass, KeyDir, KeyLock, Loaded, StoreError};
use headstart_model::format::MAX_FILE;
use headstart_model::plan::PlanFile;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::PathBuf;

const TURNS: &str = "turns";

/// What follows the plan in the one file: this, the replays since the last control run, how many starts there
/// are for one, the machine, how long a start waited for devices, four bytes that are 0 or 1, how many
/// replays go unrecorded, and how many starts used much that is not planned.
const MAGIC: &[u8; 6] = b"START5";
/// Numbers of four bytes.
const NUMBERS: usize = 4;
/// Bytes behind the plan.
pub const TAIL: usize = MAGIC.len() + 4 * NUMBERS + 7;

/// Where a key stands between control runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    /// Replays since the last control run.
    pub replays_since_control: u32,
    /// One cold start in so many is a control run, by what earlier starts have shown; 0: as configured.
    #[serde(default)]
    pub control_every: u32,
    /// The kernel and the devices of the plan, as a hash, when that was found; 0: unknown.
    #[serde(default)]
    pub machine: u32,
    /// Starts with a replay look slower than those without: every other start is a control run.
    #[serde(default)]
    pub in_doubt: bool,
    /// The next start with a replay, or warm one, is to be recorded while the kernel maps nothing around a
    /// fault.
    #[serde(default)]
    pub exact_due: bool,
    /// So many starts with a replay go unrecorded before one is recorded.
    #[serde(default)]
    pub record_in: u8,
    /// The next control run is recorded, whatever `record_in` says: the last one was not.
    #[serde(default)]
    pub control_is_recorded: bool,
    /// The longest that a recorded start without a replay waited for devices, milliseconds: what its plan
    /// costs at least, whatever its devices are guessed to cost.
    #[serde(default)]
    pub waited_ms: u32,
    /// How many recorded starts in a row have used much that no plan asks for: that the plan is in memory
    /// says little then.
    #[serde(default)]
    pub unplanned: u8,
    /// What was imported of others' starts was read in vain: it is ignored until a start has taught.
    #[serde(default)]
    pub ignores_imports: bool,
    /// A hole that was bridged could not be read: no more are.
    #[serde(default)]
    pub bridges_nothing: bool,
    /// So many cold starts are a replay and a control in turns, because somebody measures them.
    #[serde(default)]
    pub alternate: u8,
}

/// The state of a key, as it is before a start.
pub struct State {
    kept: KeyDir,
    /// The plan, where it comes with the rest.
    plan: Option<PlanFile>,
    /// Whether anything is done for its starts: nobody has disabled it, or all that its starts are among.
    pub is_served: bool,
    /// Its bypass, if its starts are bypassed.
    pub bypass: Option<Bypass>,
    /// Where it stands between control runs.
    pub turns: Turns,
}

impl State {
    /// What is kept of its key.
    pub(crate) fn key_dir(&self) -> &KeyDir {
        &self.kept
    }

    /// The plan. Read now, where the state is not in one file: a start that is bypassed needs none.
    pub fn plan(&mut self) -> Loaded<PlanFile> {
        match self.plan.take() {
            Some(plan) => Loaded::Some(plan),
            None => self.kept.plan(),
        }
    }
}

/// What changes of a key's state; the rest stays.
#[derive(Clone, Copy, Default)]
pub struct Change<'a> {
    /// The plan.
    pub plan: Option<&'a PlanFile>,
    /// Where it stands between control runs.
    pub turns: Option<Turns>,
    /// Its starts are bypassed, or `None`: not any more.
    pub bypass: Option<Option<&'a Bypass>>,
    /// Whether anything is done for its starts.
    pub enabled: Option<bool>,
}

impl KeyDir {
    /// Its state: of one file where that says all, else of the files of its directory. What cannot be read is
    /// as nothing.
    pub fn state(&self) -> State {
        let kept = self.clone();
        match self.in_one_file() {
            Some((plan, turns)) => State {
                plan: Some(plan),
                is_served: true,
                bypass: None,
                turns,
                kept,
            },
            None => State {
                plan: None,
                is_served: self.is_served(),
                bypass: self.bypass(),
                turns: self.turns(),
                kept,
            },
        }
    }

    /// Where it stands between control runs; at the beginning if that is unknown.
    pub fn turns(&self) -> Turns {
        read_bounded(&self.path().join(TURNS), 4096)
            .ok()
            .flatten()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    /// Where the one file is.
    pub fn start_path(&self) -> Option<PathBuf> {
        path_of_start(self.path())
    }

    /// Whether its state is in one file: its starts are replayed. That is looked for by reading it.
    pub fn is_replayed(&self) -> bool {
        self.in_one_file().is_some()
    }

    fn in_one_file(&self) -> Option<(PlanFile, Turns)> {
        let bytes = read_bounded(&self.start_path()?, MAX_FILE + TAIL as u64);
        from_bytes(bytes.ok()??)
    }
}

impl KeyLock {
    /// Changes the state, in one transaction: what forbids a replay is true before anything says so, and the
    /// one file is written last, of all that is kept then. Writes also what it can after something could not
    /// be written; the error is that of the first.
    pub fn change(&self, change: &Change<'_>) -> Result<(), StoreError> {
        if change.enabled == Some(false) || matches!(change.bypass, Some(Some(_))) {
            self.drop_start()?;
        }
        let turns = change.turns.filter(|turns| *turns != self.dir().turns());
        let written = [
            change.plan.map(|plan| self.write("plan", plan.bytes())),
            turns.map(|turns| self.write_turns(&turns)),
            change.bypass.map(|bypass| self.write_bypass(bypass)),
            change.enabled.map(|on| self.write_enabled(on)),
        ];
        let failed = written.into_iter().flatten().find_map(Result::err);
        let in_one_file = self.write_in_one_file();
        failed.map_or(in_one_file, Err)
    }

    fn write_turns(&self, turns: &Turns) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(turns).map_err(|e| {
            StoreError::io("encode", &self.dir().path().join(TURNS), std::io::Error::other(e))
        })?;
        self.write(TURNS, &bytes)
    }

    /// Writes the one file, of what is kept now; removes it where the next start has nothing to replay.
    fn write_in_one_file(&self) -> Result<(), StoreError> {
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
        let made = path.parent().map_or(Ok(()), file::make_directory);
        made.and_then(|()| file::write_whole(&path, &to_bytes(&plan, dir.turns())))
    }

    /// Removes the one file, before what it says is true no more.
    pub(crate) fn drop_start(&self) -> Result<(), StoreError> {
        remove(self.dir().start_path())
    }

    /// Removes it and the boot-failure guard.
    pub(crate) fn drop_all_needed_first(&self) -> Result<(), StoreError> {
        self.drop_start()?;
        remove(self.dir().guard_path())
    }
}

fn to_bytes(plan: &PlanFile, turns: Turns) -> Vec<u8> {
    let Turns {
        replays_since_control,
        control_every,
        machine,
        in_doubt,
        exact_due,
        record_in,
        waited_ms,
        unplanned,
        bridges_nothing,
        alternate,
        control_is_recorded,
        // Where there is a plan, nobody asks for another.
        ignores_imports: _,
    } = turns;
    let mut bytes = plan.bytes().to_vec();
    bytes.extend_from_slice(MAGIC);
    let numbers: [u32; NUMBERS] = [replays_since_control, control_every, machine, waited_ms];
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    let flags = [in_doubt, exact_due, bridges_nothing, control_is_recorded];
    bytes.extend(flags.map(u8::from));
    bytes.extend_from_slice(&[record_in, unplanned, alternate]);
    bytes
}

fn from_bytes(mut bytes: Vec<u8>) -> Option<(PlanFile, Turns)> {
    let tail = bytes.split_off(bytes.len().checked_sub(TAIL)?);
    let (numbers, flags) = tail.strip_prefix(MAGIC)?.split_at_checked(4 * NUMBERS)?;
    let mut numbers = numbers
        .chunks_exact(4)
        .map(|number| number.try_into().map(u32::from_le_bytes));
    let mut number = || numbers.next()?.ok();
    let &[
        in_doubt @ 0..=1,
        exact_due @ 0..=1,
        bridges_nothing @ 0..=1,
        control_is_recorded @ 0..=1,
        record_in,
        unplanned,
        alternate,
    ] = flags
    else {
        return None;
    };
    let plan = PlanFile::new(bytes);
    plan.plan().ok()?;
    Some((
        plan,
        Turns {
            replays_since_control: number()?,
            control_every: number()?,
            machine: number()?,
            waited_ms: number()?,
            in_doubt: in_doubt == 1,
            exact_due: exact_due == 1,
            record_in,
            unplanned,
            bridges_nothing: bridges_nothing == 1,
            control_is_recorded: control_is_recorded == 1,
            alternate,
            ignores_imports: false,
        },
    ))
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
    use crate::Store;
    use headstart_model::Key;
    use headstart_model::plan::PlanDraft;

    fn plan_of(key: &KeyDir) -> PlanFile {
        PlanDraft::new(key.key().clone(), 4096).to_file().unwrap()
    }

    fn keep_plan(lock: &KeyLock) {
        let plan = plan_of(lock.dir());
        lock.change(&Change {
            plan: Some(&plan),
            ..Change::default()
        })
        .unwrap();
    }

    #[test]
    fn the_one_file_is_what_is_kept_and_is_gone_before_anything_forbids_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let key = store.key(&Key::new("/usr/bin/x").unwrap());
        let lock = key.lock().unwrap();
        lock.change(&Change::default()).unwrap();
        assert!(!key.is_replayed(), "nothing is known of it");
        let turns = Turns {
            replays_since_control: 70_000,
            control_every: 80_000,
            machine: u32::MAX,
            in_doubt: false,
            exact_due: true,
            record_in: 9,
            control_is_recorded: true,
            waited_ms: 80_000,
            unplanned: 3,
            bridges_nothing: true,
            alternate: 17,
            ignores_imports: false,
        };
        let plan = plan_of(&key);
        let change = |change: Change<'_>| lock.change(&change).unwrap();
        change(Change {
            plan: Some(&plan),
            turns: Some(turns),
            ..Change::default()
        });
        let is_whole = || {
            assert!(key.is_replayed());
            let mut state = key.state();
            assert!(state.is_served && state.bypass.is_none() && state.turns == turns);
            let start_plan = state.plan().or_tell(|line| panic!("{line}")).unwrap();
            assert_eq!(start_plan.bytes(), plan.bytes());
            let kept = key.plan().or_tell(|line| panic!("{line}")).unwrap();
            assert_eq!((kept.bytes(), key.turns()), (plan.bytes(), turns));
        };
        is_whole();
        let bypass = Bypass::example();
        change(Change {
            bypass: Some(Some(&bypass)),
            ..Change::default()
        });
        assert!(!key.is_replayed(), "bypassed");
        change(Change::default());
        assert!(!key.is_replayed(), "still bypassed");
        assert_eq!((key.state().bypass, key.state().turns), (Some(bypass), turns));
        change(Change {
            bypass: Some(None),
            ..Change::default()
        });
        is_whole();
        let enabled = |on| Change {
            enabled: Some(on),
            ..Change::default()
        };
        change(enabled(false));
        assert!(!key.is_replayed() && !key.state().is_served, "disabled");
        change(enabled(true));
        is_whole();
        drop(lock);
        assert!(key.forget().unwrap() && !key.is_replayed(), "forgotten");
    }

    #[test]
    fn what_cannot_be_written_keeps_nothing_else_from_being_written() {
        let dir = tempfile::tempdir().unwrap();
        let key = Store::new(dir.path()).key(&Key::new("/usr/bin/x").unwrap());
        let lock = key.lock().unwrap();
        // Nothing can be renamed to it.
        std::fs::create_dir_all(key.path().join("plan/full")).unwrap();
        let turns = Turns {
            replays_since_control: 7,
            ..Turns::default()
        };
        let change = lock.change(&Change {
            plan: Some(&plan_of(&key)),
            turns: Some(turns),
            ..Change::default()
        });
        assert!(change.unwrap_err().to_string().contains("plan"));
        assert!(!key.is_replayed() && key.state().turns == turns);
    }

    #[test]
    fn what_is_cut_off_or_changed_is_as_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let key = Store::new(dir.path()).key(&Key::new("/usr/bin/x").unwrap());
        let lock = key.lock().unwrap();
        keep_plan(&lock);
        let plan = PlanDraft::new(key.key().clone(), 4096);
        let path = path_of_start(key.path()).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(!key.is_replayed(), "{length} of {} bytes", whole.len());
        }
        // But for the numbers.
        let flags = whole.len() - 7..whole.len() - 3;
        for at in (0..whole.len() - 7 - 4 * NUMBERS).chain(flags) {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            std::fs::write(&path, &changed).unwrap();
            // A byte between two sections says nothing.
            let as_before = |(file, turns): (PlanFile, Turns)| {
                file.plan().unwrap().to_draft().unwrap() == plan && turns == Turns::default()
            };
            assert!(
                key.in_one_file().is_none_or(as_before),
                "byte {at} of {}",
                whole.len()
            );
        }
    }

    #[test]
    fn what_belongs_to_no_key_is_removed_after_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let key = store.key(&Key::new("/usr/bin/x").unwrap());
        let lock = key.lock().unwrap();
        keep_plan(&lock);
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
