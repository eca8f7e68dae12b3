//! Profiles that travel: those of several keys in one file, made on one machine for others.
//!
//! Nothing in it is of one machine only. Modification times, generations and times of learning stay behind; a
//! file is known by its path, its size, and the package that it came with. By these three, profiles of
//! several machines can be joined: what has all of them alike has the same content.

use crate::limits::{self, bounded};
use crate::profile::{Entry, Version};
use crate::{FilePath, Profile};
use serde::Serialize;
use std::collections::BTreeMap;

/// A package, as it was installed where the profiles were made.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, serde::Deserialize)]
pub struct Package {
    /// Its name, without an architecture.
    pub name: String,
    /// Its version, as the package manager writes it.
    pub version: String,
}

/// Profiles of several keys, made to travel.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProfileSet {
    /// The packages that files came with, as [`ProfileSet::owners`] counts them.
    pub packages: Vec<Package>,
    /// Which package a path came with, as an index into [`ProfileSet::packages`]. It is of the file with the
    /// size that is said here: another one at the path may be another package's.
    pub owners: BTreeMap<FilePath, Owner>,
    /// The profiles, in the order of their keys, each key once.
    profiles: Vec<Profile>,
}

/// The package of a file of this size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// Bytes of the file.
    pub size: u64,
    /// Index into [`ProfileSet::packages`].
    pub package: u32,
}

/// What all profiles of a set take together, for its limits.
#[derive(Default)]
struct Taken {
    entries: usize,
    bytes: usize,
    ranges: usize,
    tails: usize,
    touches: usize,
}

impl Taken {
    fn add(&mut self, profile: &Profile) -> Result<(), String> {
        for entry in &profile.entries {
            self.entries += 1;
            self.bytes += crate::format::path_bytes(entry);
            self.ranges += entry.ranges.len();
            self.tails += entry.tail.as_ref().map_or(0, Vec::len);
            self.touches += entry.touches.as_ref().map_or(0, crate::format::ranges_of);
        }
        bounded("entries", self.entries, limits::SET_ENTRIES)?;
        bounded("bytes of paths", self.bytes, limits::SET_ENTRY_BYTES)?;
        bounded("ranges", self.ranges, limits::RANGES)?;
        bounded("ranges from the end", self.tails, limits::TAIL_RANGES)?;
        bounded("ranges of touches", self.touches, limits::TOUCH_RANGES)
    }
}

impl ProfileSet {
    /// The profiles, in the order of their keys.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// The same, to be used up.
    pub fn into_profiles(self) -> Vec<Profile> {
        self.profiles
    }

    /// Adds what may travel of a profile. Refuses one whose key is there already, and one for which the file
    /// has no room beside the others.
    ///
    /// # Errors
    /// What there is too much of.
    pub fn add(&mut self, mut profile: Profile) -> Result<(), String> {
        let at = match self.find(&profile) {
            Ok(_) => return Err(format!("the key {} is there twice", profile.key)),
            Err(at) => at,
        };
        bounded("profiles", self.profiles.len() + 1, limits::PROFILES)?;
        leave_behind(&mut profile);
        let mut taken = Taken::default();
        for profile in self.profiles.iter().chain([&profile]) {
            taken.add(profile)?;
        }
        self.profiles.insert(at, profile);
        Ok(())
    }

    /// Takes all profiles of a file, as they are.
    pub(crate) fn take(&mut self, profiles: Vec<Profile>) -> Result<(), String> {
        self.profiles = profiles;
        self.check()
    }

    /// Profiles as they are, whether they may be or not.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn unchecked(profiles: Vec<Profile>) -> ProfileSet {
        ProfileSet {
            profiles,
            ..ProfileSet::default()
        }
    }

    fn find(&self, profile: &Profile) -> Result<usize, usize> {
        self.profiles
            .binary_search_by(|other| other.key.cmp(&profile.key))
    }

    /// The package that the file of an entry came with, where that is known.
    pub fn package_of(&self, entry: &Entry) -> Option<&Package> {
        let owner = self.owners.get(&entry.path)?;
        let is_it = entry.version.is_some_and(|version| version.size == owner.size);
        self.packages.get(owner.package as usize).filter(|_| is_it)
    }

    /// Whether all limits are kept that are of several profiles together, and all indices lead somewhere.
    pub(crate) fn check(&self) -> Result<(), String> {
        bounded("profiles", self.profiles.len(), limits::PROFILES)?;
        bounded("packages", self.packages.len(), limits::PACKAGES)?;
        let is_text = |text: &String| {
            (1..=limits::PACKAGE_TEXT).contains(&text.len()) && !text.chars().any(char::is_control)
        };
        for Package { name, version } in &self.packages {
            if !is_text(name) || !is_text(version) {
                return Err("a package has no name or version, or one that is no text".into());
            }
        }
        let packages = self.packages.len();
        if self
            .owners
            .values()
            .any(|owner| owner.package as usize >= packages)
        {
            return Err("a file is of a package that is not listed".into());
        }
        let mut taken = Taken::default();
        for pair in self.profiles.windows(2) {
            if pair[0].key >= pair[1].key {
                return Err(format!("the key {} is out of order", pair[1].key));
            }
        }
        self.profiles.iter().try_for_each(|profile| taken.add(profile))
    }
}

/// Leaves behind what is of one machine only, or tells when somebody did something there.
fn leave_behind(profile: &mut Profile) {
    profile.updated_unix_ns = 0;
    profile.exact_at = 0;
    for entry in &mut profile.entries {
        entry.version = entry.version.map(|version| of_size(version.size));
    }
}

/// A file of which no more than its size is known.
pub fn of_size(size: u64) -> Version {
    Version {
        size,
        mtime_ns: 0,
        generation: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn profile(key: &str, paths: &[&str]) -> Profile {
        let entries = paths.iter().map(|path| Entry {
            ranges: vec![testing::range(0, 3, 1.0)],
            ..testing::entry(path)
        });
        Profile {
            key: testing::key(key),
            updated_unix_ns: 7,
            exact_at: 3,
            ..testing::profile(entries.collect())
        }
    }

    #[test]
    fn what_is_of_one_machine_stays_behind() {
        let mut set = ProfileSet::default();
        set.add(profile("b", &["/usr/bin/b"])).unwrap();
        set.add(profile("a", &["/usr/bin/a"])).unwrap();
        let keys: Vec<&str> = set.profiles().iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["a", "b"]);
        for one in set.profiles() {
            let version = one.entries[0].version.unwrap();
            assert_eq!((one.updated_unix_ns, one.exact_at), (0, 0));
            assert_eq!((version.mtime_ns, version.generation), (0, 0));
            assert_eq!(Some(version.size), testing::entry("/x").version.map(|it| it.size));
        }
        assert!(set.add(profile("a", &["/x"])).unwrap_err().contains("twice"));
    }

    #[test]
    fn all_together_have_a_limit() {
        let many: Vec<String> = (0..limits::SET_ENTRIES / 2)
            .map(|index| format!("/{index:06}"))
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let mut set = ProfileSet::default();
        set.add(profile("a", &many)).unwrap();
        set.add(profile("b", &many)).unwrap();
        let refused = set.add(profile("c", &["/x"])).unwrap_err();
        assert!(refused.contains("more than 32768 entries"), "{refused}");
        assert_eq!(set.profiles().len(), 2);
    }

    #[test]
    fn a_package_is_of_the_file_of_its_size_only() {
        let mut set = ProfileSet::default();
        set.add(profile("a", &["/usr/bin/a"])).unwrap();
        let package = Package {
            name: "a".into(),
            version: "1.0-2".into(),
        };
        set.packages.push(package.clone());
        let size = set.profiles()[0].entries[0].version.unwrap().size;
        let owner = Owner { size, package: 0 };
        set.owners.insert("/usr/bin/a".into(), owner);
        assert_eq!(set.package_of(&set.profiles()[0].entries[0]), Some(&package));
        set.owners.insert(
            "/usr/bin/a".into(),
            Owner {
                size: size + 1,
                ..owner
            },
        );
        assert_eq!(set.package_of(&set.profiles()[0].entries[0]), None);
    }
}
