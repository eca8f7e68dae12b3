//! What ordinary users' files may take of a plan that serves everybody.
//!
//! A boot's recording sees what all users read. Whoever may log in, or leaves a job behind that runs at boot,
//! could fill the next boot's plan with files of his own, and each boot would read them before what the
//! machine needs. So what such files take is bounded, by file and in sum, and never more than a quarter of
//! the plan; what is needed first comes in first. The services' own files are not bounded: they are what a
//! server's boot is about, and a service that was taken over runs in each boot anyway. Reasons:
//! `docs/decisions/0009-files-of-ordinary-users.md`.

use crate::deadlines::Deadlines;
use crate::request::{by_path, facts_of};
use headstart_model::machine::{FileFacts, Machine, PathKind};
use headstart_model::profile::{Entry, Policy};
use headstart_model::sort::Sort;
use headstart_model::users::is_ordinary;
use headstart_model::{FilePath, Profile};
use std::collections::{HashMap, HashSet};

/// All of them together, bytes: a desktop session reads some tens of MiB below `/home`.
pub const SUM: u64 = 64 << 20;
/// One of them, bytes: of a browser's profile the largest file that a session's start reads whole is some
/// MiB.
pub const FILE: u64 = 16 << 20;
/// One part of so many of the plan, and of the memory that it may fill.
pub const SHARE: u64 = 4;
/// Paths: a session looks some thousands up, and on one head each may cost a jump.
pub const PATHS: usize = 4096;

/// The one key that is recorded with what all users do.
const BOOT: &str = "boot";

/// Whether a plan of this profile serves everybody.
pub(crate) fn serves_everybody(profile: &Profile) -> bool {
    profile.policy == Policy::Boot || profile.key.as_str() == BOOT
}

/// Whether what is in a file, or what is below a directory, is up to an ordinary user.
fn ordinary(facts: &FileFacts) -> bool {
    is_ordinary(facts.owner) || facts.others_may_write
}

/// Profile and machine without what exceeds the bounds; `None` if nothing does.
pub(crate) fn bounded(profile: &Profile, machine: &Machine, budget: u64) -> Option<(Profile, Machine)> {
    let page = u64::from(machine.page_size).max(1);
    let threshold = profile.policy.threshold();
    let by_path = by_path(machine);
    let deadlines = Deadlines::new(profile);
    // What of each file is planned.
    let mut data: HashMap<&FilePath, u64> = HashMap::new();
    for entry in profile.entries.iter().filter(|e| e.weight >= threshold) {
        if let Some(facts) = facts_of(&by_path, entry).filter(|f| f.found == PathKind::File) {
            let known = data.entry(&facts.path).or_default();
            *known = known.saturating_add(bytes(entry, threshold, page));
        }
    }
    let cost = |facts: &FileFacts| -> u64 {
        let metadata = facts.metadata.iter().map(|range| range.length);
        let metadata = metadata.fold(0u64, u64::saturating_add).max(page);
        metadata.saturating_add(data.get(&facts.path).copied().unwrap_or(0).min(facts.size))
    };
    let theirs = |facts: &&FileFacts| ordinary(owner_facts(facts, &by_path));
    let (users, others): (Vec<&FileFacts>, Vec<&FileFacts>) = machine.files.iter().partition(theirs);
    if users.is_empty() {
        return None;
    }
    // A quarter of the plan is a third of the rest of it.
    let rest: u64 = others.into_iter().map(cost).fold(0, u64::saturating_add);
    let mut left = SUM.min(rest / (SHARE - 1)).min(budget / SHARE);
    let mut in_order = users;
    in_order.sort_small_by_cached_key(|facts| deadlines.get(&facts.path));
    let mut dropped: HashSet<FilePath> = HashSet::new();
    let (mut kept, mut large) = (0, HashSet::new());
    for facts in in_order {
        let whole = cost(facts);
        let taken = whole.min(FILE);
        if kept >= PATHS || taken > left {
            dropped.insert(facts.path.clone());
            continue;
        }
        kept += 1;
        left -= taken;
        if whole > taken {
            large.insert(facts.path.clone());
        }
    }
    if dropped.is_empty() && large.is_empty() {
        return None;
    }
    let mut bounded = profile.clone();
    bounded.entries.retain_mut(|entry| {
        let Some(facts) = facts_of(&by_path, entry) else {
            return true;
        };
        if large.contains(&facts.path) {
            cut(entry, page);
        }
        !dropped.contains(&facts.path)
    });
    let mut machine = machine.clone();
    machine.files.retain(|facts| !dropped.contains(&facts.path));
    Some((bounded, machine))
}

/// The facts that say whose a path is: its own, or where nothing is there those of the directory it would be
/// in.
fn owner_facts<'a>(facts: &'a FileFacts, by_path: &HashMap<&FilePath, &'a FileFacts>) -> &'a FileFacts {
    let mut nearest = facts;
    while nearest.found == PathKind::Missing {
        let above = nearest.path.parent();
        match above.and_then(|path| by_path.get(&path).copied()) {
            Some(above) => nearest = above,
            None => break,
        }
    }
    nearest
}

/// The bytes that a plan would read of an entry.
fn bytes(entry: &Entry, threshold: f32, page: u64) -> u64 {
    let wanted = entry.all_ranges().filter(|range| range.weight >= threshold);
    let pages = wanted.map(|range| u64::from(range.pages));
    pages.fold(0u64, u64::saturating_add).saturating_mul(page)
}

/// Leaves of an entry the ranges that are needed first, [`FILE`] bytes in all, and none that are counted from
/// its end.
fn cut(entry: &mut Entry, page: u64) {
    entry.tail = None;
    let mut order: Vec<usize> = (0..entry.ranges.len()).collect();
    order.sort_small_by_key(|index| (entry.ranges[*index].first_use_ns, *index));
    let mut left = FILE / page;
    for index in order {
        let range = &mut entry.ranges[index];
        range.pages = range.pages.min(u32::try_from(left).unwrap_or(u32::MAX));
        left -= u64::from(range.pages);
    }
    entry.ranges.retain(|range| range.pages > 0);
}

#[cfg(test)]
mod tests {
    use crate::tests::{PAGE, entry, facts, flash, make, profile};
    use headstart_model::machine::{FileFacts, Machine, PathKind};
    use headstart_model::plan::{PlanDraft, RequestKind};
    use headstart_model::profile::{Entry, Policy};
    use headstart_model::{Key, Profile};

    const MIB: u64 = 1 << 20;

    fn file_of(owner: u32, path: &str, mib: u64) -> FileFacts {
        FileFacts {
            owner,
            size: mib * MIB,
            ..facts(path, &[], &[])
        }
    }

    fn whole(path: &str, mib: u64, ms: u64) -> Entry {
        let pages = u32::try_from(mib * MIB / PAGE).unwrap();
        let mut entry = entry(path, &[(0, pages, ms)]);
        if let Some(version) = &mut entry.version {
            version.size = mib * MIB;
        }
        entry
    }

    fn boot(entries: Vec<Entry>) -> Profile {
        Profile {
            key: Key::new("boot").unwrap(),
            policy: Policy::Boot,
            ..profile(entries)
        }
    }

    /// Bytes of data that are read of paths that begin so.
    fn read(draft: &PlanDraft, prefix: &str) -> u64 {
        let data = draft.requests.iter().take(draft.cut as usize);
        let data = data.filter(|r| r.kind == RequestKind::Data);
        let ours = data.filter(|r| draft.files[r.file as usize].path.to_string().starts_with(prefix));
        ours.map(|r| r.length).sum()
    }

    fn machine(files: Vec<FileFacts>) -> Machine {
        Machine {
            memory_available: 8 << 30,
            ..flash(files)
        }
    }

    #[test]
    fn a_users_large_file_does_not_fill_the_boots_plan() {
        let entries = vec![
            whole("/usr/lib/system", 200, 10),
            whole("/var/tmp/mine", 200, 0),
            whole("/srv/shared", 200, 1),
        ];
        let shared = FileFacts {
            others_may_write: true,
            ..file_of(0, "/srv/shared", 200)
        };
        let files = vec![
            file_of(0, "/usr/lib/system", 200),
            file_of(1000, "/var/tmp/mine", 200),
            shared,
        ];
        let machine = machine(files);
        let draft = make(&boot(entries.clone()), &machine);
        assert_eq!(read(&draft, "/usr/lib/system"), 200 * MIB);
        assert_eq!(read(&draft, "/var/tmp/mine"), super::FILE);
        assert_eq!(read(&draft, "/srv/shared"), super::FILE);
        // A program's plan holds what its own processes used.
        let program = make(&profile(entries), &machine);
        assert_eq!(read(&program, "/var/tmp/mine"), 200 * MIB);
    }

    #[test]
    fn all_users_files_together_are_bounded_too() {
        let path = |n: u64| format!("/home/u/{n}");
        let mut entries: Vec<Entry> = (0..100).map(|n| whole(&path(n), 2, n)).collect();
        entries.push(whole("/usr/lib/system", 300, 500));
        let mut files: Vec<FileFacts> = (0..100).map(|n| file_of(1000, &path(n), 2)).collect();
        files.push(file_of(0, "/usr/lib/system", 300));
        let draft = make(&boot(entries), &machine(files));
        let theirs = read(&draft, "/home");
        assert!(theirs <= super::SUM && theirs > super::SUM - 3 * MIB, "{theirs}");
        // What is needed first came in first.
        assert_eq!(read(&draft, "/home/u/0"), 2 * MIB);
        assert_eq!(read(&draft, "/home/u/99"), 0);
        assert_eq!(read(&draft, "/usr"), 300 * MIB);
    }

    #[test]
    fn users_have_a_quarter_of_the_plan_at_most() {
        let path = |n: u64| format!("/home/u/{n}");
        let mut entries: Vec<Entry> = (0..40).map(|n| whole(&path(n), 1, n)).collect();
        entries.push(whole("/usr/lib/system", 30, 500));
        let mut files: Vec<FileFacts> = (0..40).map(|n| file_of(1000, &path(n), 1)).collect();
        files.push(file_of(0, "/usr/lib/system", 30));
        let draft = make(&boot(entries.clone()), &machine(files.clone()));
        let (theirs, all) = (read(&draft, "/home"), read(&draft, "/"));
        assert!(theirs > 0 && theirs <= all / 4, "{theirs} of {all}");
        // And a quarter of the memory that there is for it.
        let small = Machine {
            memory_available: 80 * MIB,
            ..machine(files)
        };
        let draft = make(&boot(entries), &small);
        assert!(read(&draft, "/home") <= 2 * MIB);
    }

    #[test]
    fn a_users_many_names_are_bounded_present_and_missing() {
        let count = 3 * super::PATHS;
        let path = |n: usize| format!("/home/u/{n}");
        let mut entries: Vec<Entry> = (0..count).map(|n| entry(&path(n), &[])).collect();
        entries.push(whole("/usr/lib/system", 400, 500));
        let mut files: Vec<FileFacts> = (0..count)
            .map(|n| FileFacts {
                found: if n % 2 == 0 {
                    PathKind::Missing
                } else {
                    PathKind::File
                },
                // Of what is not there nobody is the owner, but of the directory it would be in.
                owner: if n % 2 == 0 { 0 } else { 1000 },
                device: (n % 2 == 1).then_some(0),
                ..file_of(0, &path(n), 0)
            })
            .collect();
        files.push(FileFacts {
            found: PathKind::Directory,
            ..file_of(1000, "/home/u", 0)
        });
        files.push(file_of(0, "/usr/lib/system", 400));
        let mut machine = machine(files);
        machine.devices[0].metadata_by_block = false;
        let draft = make(&boot(entries), &machine);
        let theirs = draft
            .files
            .iter()
            .filter(|f| f.path.to_string().starts_with("/home"));
        assert!((1..=super::PATHS).contains(&theirs.count()));
    }

    #[test]
    fn a_users_growing_files_stay_within_the_bounds() {
        // Each is known by its end only, and claims 256 KiB of it.
        let path = |n: u64| format!("/home/u/{n}");
        let growing = |n: u64| Entry {
            tail: Some(vec![headstart_model::testing::range(0, 64, 1.0)]),
            version: Some(headstart_model::testing::VERSION),
            ..entry(&path(n), &[])
        };
        let mut entries: Vec<Entry> = (0..1000).map(growing).collect();
        entries.push(whole("/usr/lib/system", 300, 500));
        // A large one, read whole and at its end.
        let mut large = whole("/home/u/large", 200, 0);
        large.tail = Some(vec![headstart_model::testing::range(0, 64, 1.0)]);
        entries.push(large);
        let mut files: Vec<FileFacts> = (0..1000)
            .map(|n| FileFacts {
                generation: headstart_model::testing::VERSION.generation,
                // Sparse, and larger than any device.
                size: 1 << 60,
                ..file_of(1000, &path(n), 2)
            })
            .collect();
        files.push(file_of(0, "/usr/lib/system", 300));
        files.push(file_of(1000, "/home/u/large", 200));
        let draft = make(&boot(entries), &machine(files));
        let theirs = read(&draft, "/home");
        assert!(
            theirs > super::SUM / 2 && theirs <= super::SUM,
            "{theirs} of {}",
            super::SUM
        );
        assert!(read(&draft, "/home/u/large") <= super::FILE);
        assert_eq!(read(&draft, "/usr/lib/system"), 300 * MIB);
    }

    #[test]
    fn services_and_small_sessions_are_as_they_were() {
        let entries = vec![
            whole("/var/lib/postgresql/base", 300, 1),
            whole("/home/u/.cache/session", 20, 2),
            whole("/usr/lib/system", 100, 3),
        ];
        let files = vec![
            file_of(113, "/var/lib/postgresql/base", 300),
            file_of(1000, "/home/u/.cache/session", 15),
            file_of(0, "/usr/lib/system", 100),
        ];
        let draft = make(&boot(entries), &machine(files));
        assert_eq!(read(&draft, "/var/lib"), 300 * MIB);
        assert_eq!(read(&draft, "/home"), 15 * MIB);
    }
}
