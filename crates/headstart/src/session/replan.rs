//! When a new plan takes the place of the old one.

use super::helper::Notes;
use anyhow::Result;
use headstart_model::Profile;
use headstart_model::plan::{PlanDraft, Request, RequestKind};
use headstart_model::profile::Entry;
use headstart_store::KeyLock;

/// Keeps the new plan, unless the old one knew files that now are all out of reach: the command may have unmounted them
/// at its end.
pub fn save(lock: &KeyLock, profile: &Profile, planned: &PlanDraft, notes: &mut Notes) -> Result<()> {
    if wants_data(profile) && !has_data(planned.requests.iter().copied()) && had_data(lock, notes) {
        let key = &profile.key;
        notes.tell(format!(
            "{key}: none of its files can be reached now that it has ended: the plan stays as it was"
        ));
        return Ok(());
    }
    Ok(lock.save_plan(planned)?)
}

/// Whether there are pages that a plan should read.
fn wants_data(profile: &Profile) -> bool {
    let threshold = profile.policy.threshold();
    let wanted = |entry: &Entry| entry.ranges.iter().any(|range| range.weight >= threshold);
    profile.entries.iter().any(wanted)
}

fn has_data(mut requests: impl Iterator<Item = Request>) -> bool {
    requests.any(|request| request.kind == RequestKind::Data)
}

/// Whether the plan that is kept reads files.
fn had_data(lock: &KeyLock, notes: &mut Notes) -> bool {
    lock.dir()
        .plan()
        .or_tell(|line| notes.tell(line))
        .is_some_and(|file| file.plan().is_ok_and(|plan| has_data(plan.requests())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::Key;
    use headstart_model::PageRange;
    use headstart_model::machine::{Cost, DeviceClass};
    use headstart_model::plan::{PlanDevice, PlanFileEntry};
    use headstart_model::profile::{Need, Policy, Version, WeightedRange};
    use headstart_store::Store;

    fn profile(key: &Key, range: PageRange) -> Profile {
        Profile {
            key: key.clone(),
            page_size: 4096,
            runs: 1,
            mass: 1.0,
            cpu_ns: None,
            timeline_ns: 1,
            updated_unix_ns: 0,
            policy: Policy::Decay,
            stages: vec!["start".into()],
            entries: vec![Entry {
                path: "/f".into(),
                overlay: None,
                need: Need::Open,
                weight: 1.0,
                first_use_ns: 0,
                stage: 0,
                version: Some(Version {
                    size: 1 << 20,
                    mtime_ns: 0,
                    generation: 0,
                }),
                ranges: vec![WeightedRange {
                    start: range.start,
                    pages: range.pages() as u32,
                    weight: 1.0,
                    first_use_ns: 0,
                    stage: 0,
                }],
            }],
        }
    }

    fn planned(key: &Key, kinds: &[RequestKind]) -> PlanDraft {
        let request = |kind: &RequestKind| Request {
            kind: *kind,
            stage: 0,
            device: 0,
            file: 0,
            offset: 0,
            length: if *kind == RequestKind::Data { 4096 } else { 0 },
            bridged: 0,
            deadline_us: 0,
        };
        PlanDraft {
            key: key.clone(),
            page_size: 4096,
            created_unix_ns: 0,
            budget: 1 << 30,
            cut: kinds.len() as u32,
            stages: vec!["start".into()],
            devices: vec![PlanDevice {
                mount_point: "/".into(),
                uuid: [0; 16],
                cost: Cost {
                    class: DeviceClass::Flash,
                    bandwidth: 1e9,
                    latency: 1e-4,
                    depth: 8,
                },
                request_limit: 131_072,
                hold: 0,
            }],
            files: vec![PlanFileEntry {
                path: "/f".into(),
                device: 0,
                inode: 1,
                generation: 0,
                size: 1 << 20,
                mtime_ns: 0,
            }],
            requests: kinds.iter().map(request).collect(),
        }
    }

    #[test]
    fn files_that_are_all_gone_do_not_empty_a_plan() {
        let dir = tempfile::tempdir().unwrap();
        let (store, key) = (Store::new(dir.path()), Key::new("k").unwrap());
        let lock = store.key(&key).lock().unwrap();
        let profile = profile(&key, PageRange::new(0, 4));
        let mut notes = Notes::default();
        let mut planning = |kinds: &[RequestKind]| {
            save(&lock, &profile, &planned(&key, kinds), &mut notes).unwrap();
            let kept = lock.dir().plan().or_tell(|line| panic!("{line}")).unwrap();
            kept.plan().unwrap().request_count()
        };
        assert_eq!(planning(&[RequestKind::Stat]), 1, "there was none before");
        assert_eq!(planning(&[RequestKind::Stat, RequestKind::Data]), 2);
        assert_eq!(planning(&[RequestKind::Stat]), 2, "the plan stays");
        assert_eq!(planning(&[RequestKind::Data]), 1, "a file is there");
        assert!(notes.take().contains("the plan stays as it was"));
    }
}
