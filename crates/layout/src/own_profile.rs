//! What headstart itself reads before it can read anything ahead: it is placed before all else.

use headstart_model::profile::{Entry, Policy, Version};
use headstart_model::{FilePath, Key, Profile};
use headstart_store::KeyDir;
use headstart_system::open::{Expect, open_checked};
use headstart_system::{files, mounts::MountTable, own_program};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// What stands in the place of process 1, and the program, by their names in a build directory and where
/// packages install them.
const PROGRAMS: [&str; 2] = ["headstart-init", "headstart"];
const INSTALLED: [&str; 2] = ["/usr/sbin/headstart-init", "/usr/bin/headstart"];
/// Files of a key in its own directory, which a start reads where what it needs first is not in one file, in
/// the order in which it does: whether it is bypassed, what it needs, where that is.
const OF_A_KEY: [&str; 3] = ["bypass", "profile", "plan"];

/// All that starts of these keys read of headstart, as a profile that needs each file whole. `None` if none
/// of it is there.
pub(crate) fn profile(keys: &[KeyDir], page: u32) -> Option<Profile> {
    let program = own_program::path();
    let beside = program.as_deref().and_then(Path::parent);
    let directory = beside.filter(|path| path.join(PROGRAMS[1]).is_file());
    let programs = match directory {
        Some(directory) => PROGRAMS.map(|name| directory.join(name)),
        None => INSTALLED.map(PathBuf::from),
    };
    let kept = keys.iter().flat_map(of_key);
    of_files(&programs.into_iter().chain(kept).collect::<Vec<_>>(), page)
}

/// What is kept of a key, in the order in which a start reads it.
fn of_key(key: &KeyDir) -> impl Iterator<Item = PathBuf> {
    let own = OF_A_KEY.map(|name| key.path().join(name));
    key.start_path().into_iter().chain(key.guard_path()).chain(own)
}

fn of_files(paths: &[PathBuf], page: u32) -> Option<Profile> {
    let mounts = MountTable::read().ok()?;
    let mut profile = Profile::new(Key::new("headstart").ok()?, page, Policy::Decay);
    for (number, path) in paths.iter().enumerate() {
        let path = path.canonicalize().unwrap_or_else(|_| path.clone());
        let Ok(opened) = open_checked(&mounts, &path, &Expect::default()) else {
            continue;
        };
        let (stat, generation) = (opened.stat, files::generation(opened.fd.as_fd()));
        if stat.kind != files::Type::File || stat.size == 0 {
            continue;
        }
        let version = Version {
            size: stat.size,
            mtime_ns: stat.mtime_ns,
            generation,
        };
        (profile.entries).push(Entry::whole(
            FilePath::from(path.as_path()),
            version,
            page,
            number as u64,
        ));
    }
    (!profile.entries.is_empty()).then_some(profile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_store::Store;

    #[test]
    fn of_headstart_its_programs_come_first_and_then_what_it_keeps() {
        let state = tempfile::tempdir_in("/var/tmp").unwrap();
        let key = Store::new(state.path()).key(&Key::new("boot").unwrap());
        std::fs::create_dir_all(key.path()).unwrap();
        let programs = ["init", "headstart"].map(|name| key.path().join(name));
        let paths: Vec<PathBuf> = programs.into_iter().chain(of_key(&key)).collect();
        std::fs::create_dir(state.path().join("starts")).unwrap();
        for path in &paths {
            std::fs::write(path, [7; 5000]).unwrap();
        }
        // Not bypassed, and no boot has failed.
        std::fs::write(&paths[3], "").unwrap();
        std::fs::remove_file(&paths[4]).unwrap();
        let profile = of_files(&paths, 4096).unwrap();
        let names: Vec<_> = profile
            .entries
            .iter()
            .map(|entry| entry.path.as_path().file_name().unwrap())
            .collect();
        let start = key.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(names, ["init", "headstart", start, "profile", "plan"]);
        assert!(
            profile
                .entries
                .windows(2)
                .all(|two| two[0].first_use_ns < two[1].first_use_ns)
        );
        assert!(profile.entries.iter().all(|entry| entry.ranges[0].pages == 2));
        assert!(of_files(&[key.path().join("nothing")], 4096).is_none());
    }
}
