//! headstart-profiles(5).

use super::values::Values;
use super::{Container, FormatError, Kind, Writer};
use crate::limits::{self, bounded};
use crate::profile::{Entry, Need, Policy, TAIL_PAGES, Touches, WeightedRange};
use crate::profile_set::{Owner, Package, of_size};
use crate::{FilePath, Key, PageRange, PageSet, Profile, ProfileSet};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A file as profiles refer to it: its path, the same through an overlay, its size where pages of it are
/// known.
type Row<'a> = (&'a FilePath, Option<&'a FilePath>, Option<u64>);

fn row(entry: &Entry) -> Row<'_> {
    let size = entry.version.map(|version| version.size);
    (&entry.path, entry.overlay.as_ref(), size)
}

impl ProfileSet {
    /// The profiles as a file.
    ///
    /// # Errors
    /// What a reader would refuse.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        let checked = self.check().and_then(|()| {
            let mut all = self.profiles().iter();
            all.try_for_each(Profile::check)
        });
        checked.map_err(|what| FormatError::TooLarge {
            kind: Kind::ProfileSet.name(),
            what,
        })?;
        self.written()
    }

    /// The file, unchecked.
    pub(crate) fn written(&self) -> Result<Vec<u8>, FormatError> {
        let entries = self.profiles().iter().flat_map(|profile| &profile.entries);
        let rows: BTreeSet<Row<'_>> = entries.map(row).collect();
        let package = |path: &FilePath, size: Option<u64>| {
            let owner = self.owners.get(path)?;
            (size == Some(owner.size)).then_some(owner.package)
        };
        let files: Vec<_> = rows
            .iter()
            .map(|(path, overlay, size)| (path, overlay, size, package(path, *size)))
            .collect();
        let index: BTreeMap<Row<'_>, u32> = rows.iter().copied().zip(0..).collect();
        let mut file = Writer::new(Kind::ProfileSet);
        file.value(b"PKGS", &self.packages, limits::PKGS)?;
        file.value(b"FILE", &files, limits::SET_FILE)?;
        let profiles: Vec<_> = self
            .profiles()
            .iter()
            .map(|profile| written(profile, &index))
            .collect();
        file.value(b"KEYS", &profiles, limits::KEYS)?;
        file.finish()
    }

    /// Reads profiles that have travelled.
    ///
    /// # Errors
    /// What is damaged, or more than may be.
    pub fn from_bytes(bytes: &[u8]) -> Result<ProfileSet, FormatError> {
        let file = Container::new(Kind::ProfileSet, bytes)?;
        let packages: Vec<Package> = file.values(b"PKGS", limits::PKGS, |values| {
            values.list("packages", limits::PACKAGES)
        })?;
        let files = file.values(b"FILE", limits::SET_FILE, read_files)?;
        let profiles = file.values(b"KEYS", limits::KEYS, |values| read_profiles(values, &files))?;
        let mut set = ProfileSet::default();
        set.packages = packages;
        set.owners = owners(files, &profiles).map_err(|what| file.damaged(what))?;
        set.take(profiles).map_err(|what| file.damaged(what))?;
        Ok(set)
    }
}

/// The packages of files. Each of these is a profile's: what nothing refers to would be lost when the
/// profiles are written again.
fn owners(files: Vec<File>, profiles: &[Profile]) -> Result<BTreeMap<FilePath, Owner>, String> {
    let entries = profiles.iter().flat_map(|profile| &profile.entries);
    let used: HashSet<Row<'_>> = entries.map(row).collect();
    let mut owners = BTreeMap::new();
    for file in files {
        if !used.contains(&(&file.path, file.overlay.as_ref(), file.size)) {
            return Err(format!("no profile has {:?}", file.path));
        }
        match (file.size, file.package) {
            (Some(size), Some(package)) => drop(owners.insert(file.path, Owner { size, package })),
            (None, Some(_)) => return Err(format!("{:?} is of a package, and no file", file.path)),
            (_, None) => {}
        }
    }
    Ok(owners)
}

/// What KEYS has of a profile.
fn written(profile: &Profile, index: &BTreeMap<Row<'_>, u32>) -> impl Serialize {
    let head = (
        profile.key.clone(),
        profile.page_size,
        profile.runs,
        profile.mass,
        profile.cpu_ns,
        profile.timeline_ns,
        profile.waited_ns,
        profile.policy,
    );
    let entry = |entry: &Entry| {
        let touches = entry.touches.as_ref();
        let sets =
            touches.map(|sets| [&sets.touched, &sets.once, &sets.unused].map(|set| set.ranges().to_vec()));
        (
            index.get(&row(entry)).copied().unwrap_or(u32::MAX),
            entry.need,
            entry.weight,
            entry.first_use_ns,
            entry.stage,
            profile.named.get(&entry.path).copied(),
            entry.ranges.clone(),
            entry.tail.clone(),
            sets,
        )
    };
    let entries: Vec<_> = profile.entries.iter().map(entry).collect();
    (head, profile.stages.clone(), entries)
}

/// A row of FILE.
struct File {
    path: FilePath,
    overlay: Option<FilePath>,
    size: Option<u64>,
    package: Option<u32>,
}

fn read_files(values: &mut Values<'_>) -> Result<Vec<File>, String> {
    let count = values.count("files", limits::SET_ENTRIES)?;
    let mut files: Vec<File> = Vec::with_capacity(count);
    let mut bytes = 0;
    for _ in 0..count {
        let (path, overlay, size, package) = values.one()?;
        let file = File {
            path,
            overlay,
            size,
            package,
        };
        let order = |file: &File| (file.path.clone(), file.overlay.clone(), file.size);
        if files.last().is_some_and(|last| order(last) >= order(&file)) {
            return Err(format!("{:?} is out of order", file.path));
        }
        let overlay = file.overlay.as_ref().map_or(0, |path| path.as_bytes().len());
        bytes += file.path.as_bytes().len() + overlay;
        bounded("bytes of paths", bytes, limits::SET_ENTRY_BYTES)?;
        files.push(file);
    }
    Ok(files)
}

/// How many elements the lists of all profiles together may still have.
struct Left {
    entries: usize,
    ranges: usize,
    tails: usize,
    touches: usize,
}

fn read_profiles(values: &mut Values<'_>, files: &[File]) -> Result<Vec<Profile>, String> {
    let count = values.count("profiles", limits::PROFILES)?;
    let mut left = Left {
        entries: limits::SET_ENTRIES,
        ranges: limits::RANGES,
        tails: limits::TAIL_RANGES,
        touches: limits::TOUCH_RANGES,
    };
    let mut profiles = Vec::with_capacity(count);
    for _ in 0..count {
        let profile = read_profile(values, files, &mut left)?;
        profile
            .check()
            .map_err(|what| format!("the profile of {}: {what}", profile.key))?;
        profiles.push(profile);
    }
    Ok(profiles)
}

fn read_profile(values: &mut Values<'_>, files: &[File], left: &mut Left) -> Result<Profile, String> {
    let (key, page_size, runs, mass, cpu_ns, timeline_ns, waited_ns, policy): (
        Key,
        u32,
        u32,
        f64,
        Option<u64>,
        u64,
        u64,
        Policy,
    ) = values.one()?;
    let mut profile = Profile {
        runs,
        mass,
        cpu_ns,
        timeline_ns,
        waited_ns,
        stages: values.list("stages", limits::STAGES)?,
        ..Profile::new(key, page_size, policy)
    };
    let count = values.count("entries", left.entries)?;
    left.entries -= count;
    profile.entries.reserve_exact(count);
    for _ in 0..count {
        let (entry, named) = read_entry(values, files, left)?;
        if let Some(named) = named {
            profile.named.insert(entry.path.clone(), named);
        }
        profile.entries.push(entry);
    }
    Ok(profile)
}

/// An entry, and the share of the votes that have named it.
fn read_entry(
    values: &mut Values<'_>,
    files: &[File],
    left: &mut Left,
) -> Result<(Entry, Option<f32>), String> {
    let (file, need, weight, first_use_ns, stage, named): (u32, Need, f32, u64, u16, Option<f32>) =
        values.one()?;
    let file = files
        .get(file as usize)
        .ok_or_else(|| format!("there is no file {file}"))?;
    let ranges: Vec<WeightedRange> = values.list("ranges", left.ranges)?;
    left.ranges -= ranges.len();
    let tail = match values.one()? {
        false => None,
        true => {
            let tail: Vec<WeightedRange> =
                values.list("ranges from the end", left.tails.min(TAIL_PAGES as usize))?;
            left.tails -= tail.len();
            Some(tail)
        }
    };
    let touches = match values.one()? {
        false => None,
        true => Some(read_touches(values, left)?),
    };
    let entry = Entry {
        path: file.path.clone(),
        overlay: file.overlay.clone(),
        need,
        weight,
        first_use_ns,
        stage,
        version: file.size.map(of_size),
        ranges,
        tail,
        touches,
    };
    Ok((entry, named))
}

fn read_touches(values: &mut Values<'_>, left: &mut Left) -> Result<Touches, String> {
    let mut set = || -> Result<PageSet, String> {
        let ranges: Vec<PageRange> = values.list("ranges of touches", left.touches)?;
        left.touches -= ranges.len();
        Ok(ranges.into_iter().collect())
    };
    Ok(Touches {
        touched: set()?,
        once: set()?,
        unused: set()?,
    })
}
