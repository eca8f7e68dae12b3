//! What becomes of profiles that others made: each is planned for this machine and kept below the key's own.

use super::LeftOut;
use anyhow::Result;
use headstart_inspect::plan::issued;
use headstart_learn::DEFAULT_EXCLUDE;
use headstart_model::machine::{FileFacts, Machine, PathKind};
use headstart_model::plan::RequestKind;
use headstart_model::profile::{Need, Policy, Version};
use headstart_model::profile_set::Package;
use headstart_model::{FilePath, Profile, ProfileSet};
use headstart_plan::{PlanOptions, plan};
use headstart_start::machine::{self, Costs, Measure};
use headstart_start::{keys, now_unix_ns};
use headstart_store::{Rank, Store};
use headstart_system::mounts::MountTable;
use headstart_system::packages;
use headstart_system::secrets::Secrets;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::time::SystemTime;

/// A key that was imported.
#[derive(Clone, Debug, Serialize)]
pub struct ImportedKey {
    /// The key.
    pub key: String,
    /// Paths known of it.
    pub paths: usize,
    /// Requests that its first start here issues.
    pub requests: usize,
    /// Data bytes they read.
    pub data_bytes: u64,
    /// Whether starts here have taught more, so that it serves only users of whose starts nothing is known.
    pub known_here: bool,
}

/// What came of an import.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// What was kept.
    pub imported: Vec<ImportedKey>,
    /// What was not.
    pub left_out: Vec<LeftOut>,
}

/// Where profiles are imported to.
pub struct Importer<'a> {
    /// The state directory.
    pub store: &'a Store,
    /// The rank that they get.
    pub rank: Rank,
    /// Whether devices of which nothing is known are measured, a second each.
    pub measures: bool,
}

impl Importer<'_> {
    /// Imports all profiles of a set that came from the file `origin`. An error is of what had to be kept.
    pub fn import(
        &self,
        set: ProfileSet,
        origin: &str,
        report: &mut Report,
        tell: &mut dyn FnMut(String),
    ) -> Result<()> {
        let others = packages_that_differ(&set, Path::new(packages::STATUS));
        for profile in set.into_profiles() {
            let key = profile.key.clone();
            match self.import_one(profile, &others, origin, tell)? {
                Ok(imported) => report.imported.push(imported),
                Err(why) => report.left_out.push(LeftOut::new(key, why)),
            }
        }
        self.store.tidy_imports(self.rank, SystemTime::now())?;
        Ok(())
    }

    /// Imports a profile, or says why it is of no use here.
    fn import_one(
        &self,
        mut profile: Profile,
        others: &BTreeSet<FilePath>,
        origin: &str,
        tell: &mut dyn FnMut(String),
    ) -> Result<Result<ImportedKey, String>> {
        let page_size = rustix::param::page_size();
        if profile.page_size as usize != page_size {
            let theirs = profile.page_size;
            return Ok(Err(format!(
                "it counts in pages of {theirs} bytes, and this machine's have {page_size}"
            )));
        }
        if profile.key.user().is_some() {
            return Ok(Err("it is of one user's starts".into()));
        }
        if keys::is_secret(&profile.key, &[]) {
            return Ok(Err("its name is encrypted here".into()));
        }
        make_local(&mut profile);
        let costs = Costs {
            measure: match self.measures {
                true => Measure::Unknown,
                false => Measure::Nothing,
            },
            ..Costs::new(self.store, None)
        };
        let facts = machine::snapshot(&profile, &costs, tell)?;
        leave_out_secrets(&mut profile, &facts);
        leave_out_missing(&mut profile, &facts);
        recognise(&mut profile, &facts, others);
        let draft = plan(&profile, &facts, &[], &PlanOptions::new(now_unix_ns()));
        drop(facts);
        let file = draft.to_file()?;
        drop(draft);
        let planned = file.plan()?;
        let data_bytes = issued(&planned, RequestKind::Data).1;
        if data_bytes == 0 {
            return Ok(Err("none of the files that it reads is here".into()));
        }
        let own = self.store.key(&profile.key);
        let imported = ImportedKey {
            key: profile.key.to_string(),
            paths: profile.entries.len(),
            requests: planned.cut(),
            data_bytes,
            known_here: own.plan().or_tell(|_| {}).is_some(),
        };
        let lock = self.store.imports(self.rank).key(&profile.key).lock()?;
        lock.save_import(&profile, &file, origin)?;
        Ok(Ok(imported))
    }
}

/// The files of a set that came with a package which has another version here.
fn packages_that_differ(set: &ProfileSet, status: &Path) -> BTreeSet<FilePath> {
    let names = set.packages.iter().map(|package| package.name.as_str());
    let here = packages::versions(status, &names.collect());
    let differs = |Package { name, version }: &Package| here.get(name).is_some_and(|here| here != version);
    let is_other: Vec<bool> = set.packages.iter().map(differs).collect();
    let owners = set.owners.iter();
    owners
        .filter(|(_, owner)| is_other.get(owner.package as usize) == Some(&true))
        .map(|(path, _)| path.clone())
        .collect()
}

/// Without what nothing is learned of here, and by the rules of this machine.
fn make_local(profile: &mut Profile) {
    profile.policy = match profile.key.as_str() {
        "boot" => Policy::Boot,
        _ => Policy::Decay,
    };
    retain(profile, &mut |path| {
        !DEFAULT_EXCLUDE.iter().any(|below| is_below(path, below))
    });
}

/// Without names that are encrypted here. What is not here says nothing of this machine.
fn leave_out_secrets(profile: &mut Profile, facts: &Machine) {
    let files = facts.files.iter().filter(|file| file.found != PathKind::Missing);
    let here: HashSet<&FilePath> = files.map(|file| &file.path).collect();
    let (mut secrets, mounts) = (Secrets::new(), || MountTable::read().unwrap_or_default());
    retain(profile, &mut |path| {
        !here.contains(path) || !secrets.is_secret(Some(&mounts), path.as_bytes())
    });
}

/// Without what the other machine has and this one has not: a start here does not look for it. What was
/// looked for in vain there is looked for here, too.
fn leave_out_missing(profile: &mut Profile, facts: &Machine) {
    let files = facts.files.iter().filter(|file| file.found == PathKind::Missing);
    let missing: HashSet<&FilePath> = files.map(|file| &file.path).collect();
    profile.entries.retain(|entry| {
        let mut names = [Some(&entry.path), entry.overlay.as_ref()].into_iter().flatten();
        entry.need == Need::Missing || names.any(|path| !missing.contains(path))
    });
    retain_names(profile);
}

/// Keeps what is at wanted paths. A live medium is mounted below /run, and what lies on it is found by its
/// other name.
fn retain(profile: &mut Profile, is_wanted: &mut dyn FnMut(&FilePath) -> bool) {
    profile.entries.retain_mut(|entry| {
        entry.overlay = entry.overlay.take().filter(&mut *is_wanted);
        is_wanted(&entry.path)
    });
    retain_names(profile);
}

/// Keeps what is named of the files that were kept.
fn retain_names(profile: &mut Profile) {
    let entries = &profile.entries;
    profile
        .named
        .retain(|path, _| entries.binary_search_by(|entry| entry.path.cmp(path)).is_ok());
}

fn is_below(path: &FilePath, directory: &str) -> bool {
    let rest = path.as_bytes().strip_prefix(directory.as_bytes());
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// Makes files here those that were learned where they have the same size, and came with the same version of
/// their package as far as that is known. Others are planned as after an update.
fn recognise(profile: &mut Profile, facts: &Machine, others: &BTreeSet<FilePath>) {
    let files = facts.files.iter().filter(|file| file.found == PathKind::File);
    let here: HashMap<&FilePath, &FileFacts> = files.map(|file| (&file.path, file)).collect();
    for entry in &mut profile.entries {
        let names = [Some(&entry.path), entry.overlay.as_ref()];
        let found = names.into_iter().flatten().find_map(|path| here.get(path));
        let learned = entry.version.filter(|_| !others.contains(&entry.path));
        let same = learned
            .zip(found)
            .filter(|(learned, file)| learned.size == file.size);
        if let Some((_, file)) = same {
            entry.version = Some(Version {
                size: file.size,
                mtime_ns: file.mtime_ns,
                generation: file.generation,
            });
        }
    }
}

/// What came of an import, for people.
pub fn text(report: &Report) -> String {
    let imported = report.imported.iter().map(|it| {
        let then = match it.known_here {
            true => "starts here have taught more",
            false => "its first start is read ahead",
        };
        let size = headstart_inspect::human::bytes(it.data_bytes);
        let key = headstart_inspect::human::printable(&it.key);
        format!("{key}: {size} in {} requests; {then}\n", it.requests)
    });
    imported.chain(super::lines(&report.left_out)).collect()
}

/// The keys of what was imported, with the file that each came from.
pub fn origins(store: &Store, rank: Rank) -> BTreeMap<String, String> {
    let imports = store.imports(rank);
    let keys = imports.keys().unwrap_or_default();
    keys.iter()
        .filter_map(|key| Some((key.to_string(), imports.key(key).origin()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::profile::Entry;
    use headstart_model::profile_set::Owner;
    use headstart_model::testing;

    fn set(dir: &Path, key: &str) -> ProfileSet {
        let data = dir.join("data");
        std::fs::write(&data, vec![1; 4096 * 64]).unwrap();
        let entry = |path: &str, size| Entry {
            version: Some(headstart_model::profile_set::of_size(size)),
            ranges: vec![testing::range(0, 64, 0.7)],
            ..testing::entry(path)
        };
        let mut entries = vec![
            entry(data.to_str().unwrap(), 4096 * 64),
            entry("/proc/kcore", 1 << 40),
        ];
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let profile = Profile {
            key: testing::key(key),
            page_size: rustix::param::page_size() as u32,
            policy: Policy::Union,
            ..testing::profile(entries)
        };
        let mut set = ProfileSet::default();
        set.add(profile).unwrap();
        set
    }

    fn import(store: &Store, set: ProfileSet) -> Report {
        let importer = Importer {
            store,
            rank: Rank::Imported,
            measures: false,
        };
        let mut report = Report::default();
        importer
            .import(set, "x.profile", &mut report, &mut |_| {})
            .unwrap();
        report
    }

    #[test]
    fn what_is_here_is_planned_at_once_and_nothing_that_is_excluded() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("state"));
        let report = import(&store, set(dir.path(), "/usr/bin/x"));
        assert!(report.left_out.is_empty(), "{report:?}");
        let (rank, kept) = store.key(&testing::key("/usr/bin/x")).imported().unwrap();
        assert_eq!(rank, Rank::Imported);
        let profile = kept.profile().or_tell(|line| panic!("{line}")).unwrap();
        assert_eq!((profile.entries.len(), profile.policy), (1, Policy::Decay));
        assert_ne!(profile.entries[0].version.unwrap().mtime_ns, 0, "it is this file");
        assert_eq!(report.imported[0].data_bytes, 4096 * 64);
        let origins: Vec<_> = origins(&store, Rank::Imported).into_iter().collect();
        assert_eq!(origins, [("/usr/bin/x".to_string(), "x.profile".to_string())]);
    }

    #[test]
    fn what_is_not_here_is_not_looked_for_unless_it_was_missing_there() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("state"));
        let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        let mut profiles = set(dir.path(), "/usr/bin/x").into_profiles();
        let never = Entry {
            need: Need::Missing,
            version: None,
            ranges: vec![],
            ..testing::entry(&path("never"))
        };
        let gone = Entry {
            overlay: Some(path("nowhere").as_str().into()),
            ..testing::entry(&path("gone"))
        };
        let moved = Entry {
            overlay: Some(path("data").as_str().into()),
            ..testing::entry(&path("moved"))
        };
        profiles[0].entries.extend([never, gone, moved]);
        profiles[0].entries.sort_by(|a, b| a.path.cmp(&b.path));
        let report = import(&store, testing::profile_set(profiles));
        assert!(report.left_out.is_empty(), "{report:?}");
        let (_, kept) = store.key(&testing::key("/usr/bin/x")).imported().unwrap();
        let profile = kept.profile().or_tell(|line| panic!("{line}")).unwrap();
        let kept: Vec<String> = profile
            .entries
            .iter()
            .map(|entry| entry.path.to_string())
            .collect();
        assert_eq!(kept, ["data", "moved", "never"].map(path));
    }

    #[test]
    fn an_exclusion_is_a_directory_and_no_beginning_of_a_name() {
        for (path, is) in [
            ("/proc", true),
            ("/proc/1", true),
            ("/process", false),
            ("/x/proc", false),
        ] {
            assert_eq!(is_below(&path.into(), "/proc"), is, "{path}");
        }
    }

    #[test]
    fn another_file_is_planned_as_after_an_update() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("state"));
        let mut other = set(dir.path(), "/usr/bin/x");
        std::fs::write(dir.path().join("data"), vec![1; 4096 * 65]).unwrap();
        let report = import(&store, other.clone());
        let why = &report.left_out[0].why;
        assert!(why.contains("none of the files"), "no page is certain: {why}");
        let mut profiles = other.into_profiles();
        let data = profiles[0]
            .entries
            .iter_mut()
            .find(|it| it.path.to_string().ends_with("data"));
        data.unwrap().ranges[0].weight = 0.95;
        other = testing::profile_set(profiles);
        let report = import(&store, other);
        assert_eq!(report.imported[0].data_bytes, 4096 * 64);
    }

    #[test]
    fn a_file_of_another_version_of_its_package_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let status = dir.path().join("status");
        std::fs::write(&status, "Package: x\nVersion: 1.0-2\n\nPackage: y\nVersion: 7\n").unwrap();
        let mut set = set(dir.path(), "/usr/bin/x");
        for (name, version) in [("x", "1.0-1"), ("y", "7"), ("z", "1")] {
            set.packages.push(Package {
                name: name.into(),
                version: version.into(),
            });
            let package = set.packages.len() as u32 - 1;
            set.owners.insert(name.into(), Owner { size: 1, package });
        }
        let others = packages_that_differ(&set, &status);
        assert_eq!(others, [FilePath::from("x")].into());
    }

    #[test]
    fn what_serves_nobody_here_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("state"));
        let of = |change: &dyn Fn(&mut Profile)| {
            let mut profiles = set(dir.path(), "/usr/bin/x").into_profiles();
            change(&mut profiles[0]);
            import(&store, testing::profile_set(profiles)).left_out[0]
                .why
                .clone()
        };
        let why = of(&|profile| profile.page_size *= 4);
        assert!(why.contains("counts in pages"), "{why}");
        let why = of(&|profile| profile.key = testing::key("/usr/bin/x of user 7"));
        assert!(why.contains("one user's"), "{why}");
        let why = of(&|profile| profile.entries.clear());
        assert!(why.contains("none of the files"), "{why}");
        assert!(store.key(&testing::key("/usr/bin/x")).imported().is_none());
    }
}
