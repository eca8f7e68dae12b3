//! Profiles that packages bring: those of a directory, and of no other.

use super::LeftOut;
use super::import::{Importer, Report};
use anyhow::{Context, Result, bail};
use headstart_model::format::MAX_FILE;
use headstart_model::human::printable;
use headstart_model::{Key, Profile, ProfileSet};
use headstart_store::{Rank, Store};
use rustix::fs::{CWD, Mode, OFlags};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where packages put their profiles.
pub const DIRECTORY: &str = "/usr/lib/headstart/profiles";

/// How their names end.
const ENDING: &str = "profile";

/// So many files count, the first by name: as much as a state directory keeps of them.
const MOST_FILES: usize = 64;
/// So many names are looked at.
const MOST_NAMES: usize = 10_000;

/// Imports all that packages bring now, and forgets what they brought before. What is wrong with a file is
/// told, and the others are imported.
pub fn import(store: &Store, directory: &Path, tell: &mut dyn FnMut(String)) -> Result<Report> {
    let importer = Importer {
        store,
        rank: Rank::Packaged,
        // A package manager waits, and others with it.
        measures: false,
    };
    let mut report = Report::default();
    let mut brought: BTreeSet<Key> = BTreeSet::new();
    for path in files(directory, tell)? {
        let set = match read(&path) {
            Ok(set) => set,
            Err(error) => {
                tell(format!("{error:#}"));
                continue;
            }
        };
        let origin = printable(&path.display().to_string());
        let is_first = |profile: &Profile| !brought.contains(&profile.key);
        let (first, others) = split(set, is_first);
        brought.extend(first.profiles().iter().map(|profile| profile.key.clone()));
        let again = others.into_iter();
        report
            .left_out
            .extend(again.map(|key| LeftOut::new(key, format!("a file before {origin} has it"))));
        importer.import(first, &origin, &mut report, tell)?;
    }
    let imports = store.imports(Rank::Packaged);
    for key in imports.keys()? {
        let is_kept = report.imported.iter().any(|it| it.key == key.as_str());
        if !is_kept {
            imports.key(&key).forget()?;
        }
    }
    Ok(report)
}

/// The profiles that are wanted, with the packages of all, and the keys of the others.
fn split(set: ProfileSet, is_wanted: impl Fn(&Profile) -> bool) -> (ProfileSet, Vec<Key>) {
    let mut wanted = ProfileSet::default();
    wanted.packages.clone_from(&set.packages);
    wanted.owners.clone_from(&set.owners);
    let mut others = Vec::new();
    for profile in set.into_profiles() {
        let key = profile.key.clone();
        // There was room for all of them.
        if !is_wanted(&profile) || wanted.add(profile).is_err() {
            others.push(key);
        }
    }
    (wanted, others)
}

/// The files of the directory, by name; none where that of packages is not there.
fn files(directory: &Path, tell: &mut dyn FnMut(String)) -> Result<Vec<PathBuf>> {
    let facts = match std::fs::symlink_metadata(directory) {
        // Where no package brings a profile it need not be there; another one was named.
        Err(error) if error.kind() == ErrorKind::NotFound && directory == Path::new(DIRECTORY) => {
            return Ok(Vec::new());
        }
        facts => facts.with_context(|| directory.display().to_string())?,
    };
    if !facts.is_dir() {
        bail!("{} is no directory", directory.display());
    }
    is_of_root(directory, &facts)?;
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .take(MOST_NAMES)
        .map(|entry| entry.path())
        .filter(|path| path.extension() == Some(OsStr::new(ENDING)))
        .collect();
    files.sort_unstable();
    if files.len() > MOST_FILES {
        let left_out = files.len() - MOST_FILES;
        tell(format!(
            "{} has {left_out} files more than the {MOST_FILES} that are imported: put profiles of several keys into one file",
            directory.display()
        ));
        files.truncate(MOST_FILES);
    }
    Ok(files)
}

/// Reads a file of the directory, which is root's alone.
fn read(path: &Path) -> Result<ProfileSet> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let name = || path.display().to_string();
    let file = File::from(rustix::fs::openat(CWD, path, flags, Mode::empty()).with_context(name)?);
    let facts = file.metadata().with_context(name)?;
    if !facts.is_file() {
        bail!("{} is no regular file", path.display());
    }
    is_of_root(path, &facts)?;
    if facts.len() > MAX_FILE {
        bail!(
            "{} has {} bytes, {MAX_FILE} are allowed",
            path.display(),
            facts.len()
        );
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .with_context(name)?;
    ProfileSet::from_bytes(&bytes).with_context(name)
}

/// Refuses what others than root may have written.
fn is_of_root(path: &Path, facts: &Metadata) -> Result<()> {
    if facts.uid() != 0 || facts.mode() & 0o022 != 0 {
        bail!(
            "{} is ignored: it belongs to user {} with mode {:03o}, and has to be root's with 644 or less",
            path.display(),
            facts.uid(),
            facts.mode() & 0o777
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::profile::Entry;
    use headstart_model::testing;
    use headstart_system::testing::{is_root, needs};
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A file of profiles of these keys, each of which reads `data`.
    fn bring(dir: &Path, name: &str, keys: &[&str]) -> PathBuf {
        let data = dir.join("data");
        std::fs::write(&data, vec![1; 1 << 18]).unwrap();
        let mut set = ProfileSet::default();
        for key in keys {
            let entry = Entry {
                version: Some(headstart_model::profile_set::of_size(1 << 18)),
                ranges: vec![testing::range(0, 4, 1.0)],
                ..testing::entry(data.to_str().unwrap())
            };
            set.add(Profile {
                key: testing::key(key),
                page_size: rustix::param::page_size() as u32,
                ..testing::profile(vec![entry])
            })
            .unwrap();
        }
        let path = dir.join("profiles").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, set.to_bytes().unwrap()).unwrap();
        path
    }

    fn known(store: &Store) -> Vec<(String, String)> {
        super::super::import::origins(store, Rank::Packaged)
            .into_iter()
            .map(|(key, from)| (key, from.rsplit('/').next().unwrap().to_owned()))
            .collect()
    }

    fn is(of: &[(&str, &str)]) -> Vec<(String, String)> {
        of.iter()
            .map(|(key, from)| ((*key).into(), (*from).into()))
            .collect()
    }

    #[test]
    fn what_a_package_brings_goes_with_it() {
        if !needs("root", is_root()) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("state"));
        let directory = dir.path().join("profiles");
        let mut no_word = |line: String| panic!("{line}");
        bring(dir.path(), "a.profile", &["/x", "/y"]);
        let second = bring(dir.path(), "b.profile", &["/y", "/z"]);
        bring(dir.path(), "c.other", &["/none"]);
        let report = import(&store, &directory, &mut no_word).unwrap();
        assert_eq!(report.left_out.len(), 1, "{report:?}");
        assert_eq!(
            known(&store),
            is(&[("/x", "a.profile"), ("/y", "a.profile"), ("/z", "b.profile")])
        );
        std::fs::remove_file(directory.join("a.profile")).unwrap();
        import(&store, &directory, &mut no_word).unwrap();
        assert_eq!(known(&store), is(&[("/y", "b.profile"), ("/z", "b.profile")]));
        // Of a directory that was named and is not there nothing is forgotten.
        let named = dir.path().join("nowhere");
        let error = format!("{:#}", import(&store, &named, &mut no_word).unwrap_err());
        assert!(error.contains("nowhere"), "{error}");
        assert_eq!(known(&store).len(), 2);
        std::fs::remove_file(second).unwrap();
        import(&store, &directory, &mut no_word).unwrap();
        assert!(known(&store).is_empty());
    }

    #[test]
    fn what_others_may_have_written_is_ignored() {
        if !needs("root", is_root()) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().join("state"));
        let directory = dir.path().join("profiles");
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(&bring(dir.path(), "writable.profile", &["/a"]), 0o664);
        std::os::unix::fs::chown(bring(dir.path(), "theirs.profile", &["/b"]), Some(1000), None).unwrap();
        let elsewhere = bring(dir.path(), "elsewhere", &["/c"]);
        symlink(elsewhere, directory.join("link.profile")).unwrap();
        let fifo = directory.join("fifo.profile");
        rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        std::fs::write(directory.join("damaged.profile"), b"HSPROSET").unwrap();
        let large = File::create(directory.join("large.profile")).unwrap();
        large.set_len(MAX_FILE + 1).unwrap();
        bring(dir.path(), "sound.profile", &["/d"]);
        let mut lines = Vec::new();
        import(&store, &directory, &mut |line| lines.push(line)).unwrap();
        assert_eq!(known(&store), is(&[("/d", "sound.profile")]));
        assert_eq!(lines.len(), 6, "{lines:?}");
        mode(&directory, 0o777);
        let refused = import(&store, &directory, &mut |_| {}).unwrap_err().to_string();
        assert!(refused.contains("mode 777"), "{refused}");
    }
}
