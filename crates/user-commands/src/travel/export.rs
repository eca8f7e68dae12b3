//! What of this machine's profiles may travel.

use super::LeftOut;
use super::private::Private;
use headstart_model::profile_set::{Owner, Package};
use headstart_model::{FilePath, Key, ProfileSet, limits};
use headstart_start::keys::is_secret;
use headstart_store::{KeyDir, Store};
use headstart_system::mounts::MountTable;
use headstart_system::open::pin;
use headstart_system::packages;
use headstart_system::secrets::Secrets;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What an export made.
#[derive(Default)]
pub struct Exported {
    /// The profiles.
    pub set: ProfileSet,
    /// Keys that stay here.
    pub left_out: Vec<LeftOut>,
    /// Paths that stay here, of the keys that do not.
    pub paths_left_out: usize,
}

/// The options with which the text of a one-liner stands in a key (`crates/start/src/keys/interpreters.rs`).
const CODE: [&str; 2] = ["-c", "-e"];

/// Why a key stays here where nobody has named it: it is a person's, and not a program's.
fn why_not_of_all(key: &Key) -> Option<&'static str> {
    // Also what a container is given to do.
    let mut words = key.as_str().split(' ').skip(1);
    if words.any(|word| CODE.contains(&word)) {
        return Some("it is a one-liner: name it to have it exported");
    }
    let is_named = !key.as_str().starts_with('/') && key.user().is_some();
    is_named.then_some("it is an operation of a user's: name it to have it exported")
}

/// The keys of which something was learned here, but for those that are a person's own.
pub fn all_keys(
    store: &Store,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<KeyDir>, headstart_store::StoreError> {
    let mut keys = store.keys()?;
    keys.retain(|key| {
        let why = why_not_of_all(key);
        left_out.extend(why.map(|why| LeftOut::new(key, why)));
        why.is_none()
    });
    Ok(keys.iter().map(|key| store.key(key)).collect())
}

/// Which of the keys stands for all that are the same but for their users: the one that is nobody's, else the
/// one of most starts. Those that learned last come first, for there may be no room for all. Profiles are
/// read one at a time, here and later: users may have made them large.
fn choose(kept: &[KeyDir], left_out: &mut Vec<LeftOut>, tell: &mut dyn FnMut(String)) -> Vec<(Key, KeyDir)> {
    let mut chosen: BTreeMap<Key, (bool, u32, u64, &KeyDir)> = BTreeMap::new();
    for dir in kept {
        let Some(profile) = dir.profile().or_tell(&mut *tell) else {
            left_out.push(LeftOut::new(dir.key(), "nothing was learned of it here"));
            continue;
        };
        let Ok(key) = Key::new(dir.key().of_all()) else {
            continue;
        };
        let own = (
            dir.key().user().is_none(),
            profile.runs,
            profile.updated_unix_ns,
            dir,
        );
        let is_better = |known: &(bool, u32, u64, &KeyDir)| (own.0, own.1) > (known.0, known.1);
        if chosen.get(&key).is_none_or(is_better) {
            chosen.insert(key, own);
        }
    }
    let mut chosen: Vec<_> = chosen.into_iter().collect();
    chosen.sort_by_key(|(_, (_, _, updated, _))| Reverse(*updated));
    let dirs = chosen.into_iter();
    dirs.map(|(key, (.., dir))| (key, dir.clone())).collect()
}

/// Exports what was learned of these keys. What names a user's starts names none of them.
pub fn export(kept: &[KeyDir], with_homes: bool, tell: &mut dyn FnMut(String)) -> Exported {
    let mut exported = Exported::default();
    let private = Private::new(with_homes);
    let mut secrets = Secrets::new();
    let mounts = || MountTable::read().unwrap_or_default();
    let mut stays = |path: &FilePath| {
        private.has_path(path.as_bytes()) || secrets.is_secret(Some(&mounts), path.as_bytes())
    };
    for (key, dir) in choose(kept, &mut exported.left_out, tell) {
        let Some(mut profile) = dir.profile().or_tell(&mut *tell) else {
            continue;
        };
        if private.has_key(key.as_str()) || is_secret(&key, &[]) {
            let why = "its name says what people have, or who they are";
            exported.left_out.push(LeftOut::new(key, why));
            continue;
        }
        let before = profile.entries.len();
        profile.entries.retain_mut(|entry| {
            entry.overlay = entry.overlay.take().filter(|overlay| !stays(overlay));
            !stays(&entry.path)
        });
        profile.named.retain(|path, _| !stays(path));
        let paths = before - profile.entries.len();
        profile.key = key.clone();
        match exported.set.add(profile) {
            Ok(()) => exported.paths_left_out += paths,
            Err(why) => {
                let why = format!("the file has no room for it: {why}");
                exported.left_out.push(LeftOut::new(key, why));
            }
        }
    }
    add_packages(&mut exported.set);
    exported
}

/// Adds the packages that files came with: those files that are now as they were learned.
fn add_packages(set: &mut ProfileSet) {
    let mut sizes: BTreeMap<&FilePath, u64> = BTreeMap::new();
    for entry in set.profiles().iter().flat_map(|profile| &profile.entries) {
        if let Some(version) = entry.version {
            sizes.insert(&entry.path, version.size);
        }
    }
    let paths: BTreeSet<&[u8]> = sizes.keys().map(|path| path.as_bytes()).collect();
    let owners = packages::owners(Path::new(packages::LISTS), &paths);
    let names: BTreeSet<&str> = owners.values().map(String::as_str).collect();
    let versions = packages::versions(Path::new(packages::STATUS), &names);
    let mounts = MountTable::read().unwrap_or_default();
    let mut index: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut listed, mut of_files) = (Vec::new(), BTreeMap::new());
    for (path, size) in sizes {
        let owner = owners.get(path.as_bytes());
        let Some((name, version)) = owner.and_then(|name| versions.get_key_value(name)) else {
            continue;
        };
        // An upgrade may have brought another file since.
        let is_now = pin(&mounts, path.as_path()).is_ok_and(|(_, stat)| stat.size == size);
        let fits = name.len().max(version.len()) <= limits::PACKAGE_TEXT;
        if !is_now || !fits {
            continue;
        }
        let package = *index.entry(name).or_insert_with(|| {
            listed.push(Package {
                name: name.clone(),
                version: version.clone(),
            });
            listed.len() as u32 - 1
        });
        of_files.insert(path.clone(), Owner { size, package });
    }
    // What has more packages than fit has none: files are joined by path and size then.
    if listed.len() <= limits::PACKAGES {
        (set.packages, set.owners) = (listed, of_files);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::{Profile, testing};

    fn learned(store: &Store, key: &str, runs: u32, paths: &[&str]) -> KeyDir {
        let key = Key::new(key).unwrap();
        let profile = Profile {
            key: key.clone(),
            runs,
            ..testing::profile(paths.iter().map(|path| testing::entry(path)).collect())
        };
        let kept = store.key(&key);
        kept.lock().unwrap().save_profile(&profile).unwrap();
        kept
    }

    fn paths(profile: &Profile) -> Vec<String> {
        let entries = profile.entries.iter();
        entries.map(|entry| entry.path.to_string()).collect()
    }

    #[test]
    fn home_paths_stay_and_so_do_keys_that_name_one() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        learned(
            &store,
            "/usr/bin/x",
            3,
            &["/etc/x", "/home/a/.x", "/root/.x", "/usr/bin/x"],
        );
        learned(&store, "/usr/bin/python3 /home/a/y.py", 3, &["/etc/x"]);
        learned(&store, "/bin/sh -c 'mail -p secret'", 3, &["/etc/x"]);
        learned(&store, "/usr/bin/podman debian sh -c x", 3, &["/etc/x"]);
        learned(&store, "operation load of user 1000", 3, &["/etc/x"]);
        let mut left = Vec::new();
        let kept = all_keys(&store, &mut left).unwrap();
        assert_eq!(left.len(), 3);
        let exported = export(&kept, false, &mut |line| panic!("{line}"));
        let [one] = exported.set.profiles() else {
            panic!("{:?}", exported.left_out)
        };
        assert_eq!(paths(one), ["/etc/x", "/usr/bin/x"]);
        assert_eq!((exported.paths_left_out, exported.left_out.len()), (2, 1));
        let exported = export(&kept, true, &mut |line| panic!("{line}"));
        assert_eq!(exported.set.profiles().len(), 2);
        assert_eq!(exported.set.profiles()[1].entries.len(), 4);
    }

    #[test]
    fn a_key_names_no_user_and_the_starts_of_all_go_first() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let kept = [
            learned(&store, "/a of user 1000", 3, &["/1000"]),
            learned(&store, "/a of user 1001", 9, &["/1001"]),
            learned(&store, "/b of user 1000", 9, &["/1000"]),
            learned(&store, "/b", 1, &["/all"]),
        ];
        let exported = export(&kept, false, &mut |line| panic!("{line}"));
        let found: Vec<(&str, Vec<String>)> = exported
            .set
            .profiles()
            .iter()
            .map(|one| (one.key.as_str(), paths(one)))
            .collect();
        assert_eq!(found, [("/a", vec!["/1001".into()]), ("/b", vec!["/all".into()])]);
    }
}
