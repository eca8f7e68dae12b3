//! When a new plan takes the place of the old one.

use crate::notes::Notes;
use anyhow::Result;
use headstart_model::plan::{PlanDraft, PlanFile, Request, RequestKind};
use headstart_model::profile::Entry;
use headstart_model::{FilePath, Profile};
use std::collections::{BTreeMap, HashSet};

/// The new plan as it is kept, unless files that the `old` one reads are out of reach now because nothing is
/// mounted where they were: the command may have unmounted them at its end, or whoever started it has. A
/// mount that is gone for good keeps it as long as the profile wants what was there: each start that does
/// without it makes that less.
pub fn replacing(
    old: Option<&PlanFile>,
    profile: &Profile,
    planned: &PlanDraft,
    notes: &mut Notes,
) -> Result<Option<PlanFile>> {
    let wanted = wanted(profile);
    let old = old.filter(|_| !wanted.is_empty());
    let old = old.and_then(|file| {
        Some(Data::from_plan(
            &file.plan().ok()?.to_draft().ok()?,
            Some(&wanted),
        ))
    });
    if let Some(why) = old.and_then(|old| out_of_reach(&old, &Data::from_plan(planned, None))) {
        notes.add(format!("{}: {why}: the plan stays as it was", profile.key));
        return Ok(None);
    }
    Ok(Some(planned.to_file()?))
}

/// The files of which a plan should read pages.
fn wanted(profile: &Profile) -> HashSet<&FilePath> {
    let threshold = profile.policy.threshold();
    let is_wanted = |entry: &&Entry| entry.all_ranges().any(|range| range.weight >= threshold);
    let entries = profile.entries.iter().filter(is_wanted);
    entries
        .flat_map(|entry| [Some(&entry.path), entry.overlay.as_ref()])
        .flatten()
        .collect()
}

/// The bytes that a plan reads, by the mount point they lie behind.
struct Data(BTreeMap<FilePath, u64>);

impl Data {
    /// The data of all files, or of the `wanted` ones.
    fn from_plan(plan: &PlanDraft, wanted: Option<&HashSet<&FilePath>>) -> Data {
        let path = |request: &Request| plan.files.get(request.file as usize).map(|file| &file.path);
        let is_wanted =
            |request: &Request| wanted.is_none_or(|all| path(request).is_some_and(|path| all.contains(path)));
        let mut bytes = BTreeMap::new();
        let data = plan
            .requests
            .iter()
            .filter(|request| request.kind == RequestKind::Data);
        for request in data.filter(|request| is_wanted(request)) {
            if let Some(device) = plan.devices.get(usize::from(request.device)) {
                *bytes.entry(device.mount_point.clone()).or_default() += request.length;
            }
        }
        Data(bytes)
    }

    fn bytes(&self) -> u64 {
        self.0.values().sum()
    }
}

/// Why the new plan is not to take the place of the old one.
fn out_of_reach(old: &Data, new: &Data) -> Option<String> {
    if old.bytes() > 0 && new.bytes() == 0 {
        return Some("none of the files that it reads can be reached".into());
    }
    let (gone, bytes) = old
        .0
        .iter()
        .filter(|(mount, _)| !new.0.contains_key(*mount))
        .max_by_key(|(_, bytes)| **bytes)?;
    let mostly = *bytes > new.bytes();
    mostly.then(|| format!("nothing that it reads at {gone} can be reached"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::testing;

    fn profile() -> Profile {
        testing::profile(vec![Entry {
            ranges: vec![testing::range(0, 4, 1.0)],
            ..testing::entry("/f")
        }])
    }

    fn planned(kinds: &[RequestKind]) -> PlanDraft {
        let length = |kind| if kind == RequestKind::Data { 4096 } else { 0 };
        let request = |kind: &RequestKind| Request::new(*kind, 0, length(*kind));
        let requests = kinds.iter().map(request).collect();
        testing::draft(testing::FLASH, vec![testing::planned("/f")], requests)
    }

    #[test]
    fn files_that_are_all_gone_do_not_empty_a_plan() {
        let profile = profile();
        let (mut notes, mut kept) = (Notes::default(), None);
        let mut planning = |kinds: &[RequestKind]| {
            let new = replacing(kept.as_ref(), &profile, &planned(kinds), &mut notes).unwrap();
            kept = new.or(kept.take());
            kept.as_ref().unwrap().plan().unwrap().request_count()
        };
        assert_eq!(planning(&[RequestKind::Stat]), 1, "there was none before");
        assert_eq!(planning(&[RequestKind::Stat, RequestKind::Data]), 2);
        assert_eq!(planning(&[RequestKind::Stat]), 2, "the plan stays");
        assert_eq!(planning(&[RequestKind::Data]), 1, "a file is there");
        assert!(notes.take().contains("the plan stays as it was"));
    }

    #[test]
    fn a_plan_does_not_outlast_what_the_profile_wants_of_it() {
        let mut profile = profile();
        profile.entries.push(Entry {
            path: "/g".into(),
            ..profile.entries[0].clone()
        });
        let (mut notes, mut kept) = (Notes::default(), None);
        let mut planning = |profile: &Profile, kinds: &[RequestKind]| {
            let new = replacing(kept.as_ref(), profile, &planned(kinds), &mut notes).unwrap();
            kept = new.or(kept.take());
            kept.as_ref().unwrap().plan().unwrap().request_count()
        };
        assert_eq!(planning(&profile, &[RequestKind::Data, RequestKind::Stat]), 2);
        assert_eq!(planning(&profile, &[RequestKind::Stat]), 2);
        profile.entries[0].ranges[0].weight = 0.01;
        assert_eq!(
            planning(&profile, &[RequestKind::Stat]),
            1,
            "it wants something else"
        );
    }

    #[test]
    fn what_is_not_mounted_any_more_does_not_leave_the_little_that_is() {
        let data = |parts: &[(&str, u64)]| {
            Data(
                parts
                    .iter()
                    .map(|(mount, bytes)| ((*mount).into(), *bytes))
                    .collect(),
            )
        };
        let old = data(&[("/", 1 << 20), ("/image", 9 << 20)]);
        let why = out_of_reach(&old, &data(&[("/", 1 << 20)])).unwrap();
        assert!(why.contains("/image"), "{why}");
        assert_eq!(
            out_of_reach(&old, &data(&[("/", 1 << 20), ("/image", 4096)])),
            None,
            "it is there"
        );
        assert_eq!(
            out_of_reach(&old, &data(&[("/", 10 << 20)])),
            None,
            "it reads more elsewhere"
        );
        assert_eq!(
            out_of_reach(&data(&[("/", 1 << 20)]), &data(&[("/", 4096)])),
            None
        );
        assert_eq!(out_of_reach(&data(&[]), &data(&[])), None);
    }
}
