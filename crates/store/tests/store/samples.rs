//! One of each kind of file, and a state directory to keep them in.

use headstart_model::outcome::Mode;
use headstart_model::plan::PlanDraft;
use headstart_model::profile::{Entry, Need, Policy};
use headstart_model::{Key, Outcome, Profile, Trace, testing};
use headstart_store::Store;

pub fn key() -> Key {
    Key::new("/usr/bin/program --with /a/script").unwrap()
}

pub fn profile(runs: u32, entries: usize) -> Profile {
    Profile {
        runs,
        updated_unix_ns: u64::from(runs),
        entries: (0..entries)
            .map(|i| Entry {
                need: Need::Stat,
                first_use_ns: u64::from(runs),
                version: None,
                ..testing::entry(&format!("/file/{i:06}"))
            })
            .collect(),
        ..Profile::new(key(), 4096, Policy::Decay)
    }
}

pub fn plan() -> PlanDraft {
    PlanDraft::new(key(), 4096)
}

pub fn outcome(at: u64) -> Outcome {
    Outcome {
        started_unix_ns: at,
        elapsed_ns: 1,
        status: Some(0),
        ..Outcome::new(key(), Mode::Record)
    }
}

pub fn trace(at: u64, command: usize) -> Trace {
    // Words that do not compress away.
    let word = |i: usize| format!("{:x}", (i as u64 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut trace = testing::trace();
    trace.meta.started_unix_ns = at;
    trace.meta.command = (0..command).map(word).collect();
    trace
}

pub fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().join("state"));
    (dir, store)
}
