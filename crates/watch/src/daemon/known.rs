//! What is done once for known programs when the machine has come to rest, so that the first start of each is noticed and answered at once.
//!
//! Before the kernel tells of a cold start, that start has read the way to its program: directories, an inode, the first page of the file. The daemon
//! then has to read what is kept of it. On a disk that are some ten reads, each of which waits for the one before; they are few pages, and here they are
//! read while nobody waits.

use headstart_model::Key;
use headstart_record::{Executable, Role};
use headstart_store::Store;
use headstart_system::files::Type;
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, Opened, open_checked};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// So many known programs are told of (`known`, watch.h).
const MOST: usize = 4096;

/// Of so many keys, those that were used last, what their starts wait for first is read, if that takes no longer than this: plans of 64 MiB in all at
/// most, as much as is kept.
const MOST_READ: usize = 256;
const READ_WITHIN: Duration = Duration::from_secs(60);

/// The executables of known programs: what the key says, or what is given the rest of it. Of those whose starts are read ahead, what comes before that is
/// in memory then.
pub(super) fn programs(store: &Store) -> Vec<(Executable, Role)> {
    let Ok(mounts) = MountTable::read() else {
        return Vec::new();
    };
    let mut keys = store.keys().unwrap_or_default();
    keys.sort_by_cached_key(|key| Reverse(store.key(key).last_used_and_size().0));
    let until = Instant::now() + READ_WITHIN;
    let mut known = HashMap::new();
    for (turn, key) in keys.iter().enumerate() {
        // To look whether it is there reads it.
        let is_read = turn < MOST_READ && Instant::now() < until && store.key(key).start().is_some();
        for (file, role) in files_of(key, &mounts) {
            if is_read && file.stat.kind == Type::File {
                // As much as the kernel reads to execute it. What cannot be read now nobody will have waited for.
                let _ = rustix::io::pread(&file.fd, &mut [0; 256], 0);
            }
            let inode = (file.stat.major, file.stat.minor, file.stat.inode);
            let (true, Some(role)) = (known.len() < MOST || known.contains_key(&inode), role) else {
                continue;
            };
            let (_, found) = known.entry(inode).or_insert((Executable::of(&file), role));
            // What is a program by itself and an interpreter, too: of what it is given not all is known.
            if role == Role::Interpreter {
                *found = role;
            }
        }
    }
    known.into_values().collect()
}

/// The files that are executed when a start of this key begins, as far as the key tells: the program, or what is given the rest of it, and a script.
/// What a script is executed by says the script itself.
fn files_of(key: &Key, mounts: &MountTable) -> Vec<(Opened, Option<Role>)> {
    let key = key.of_all();
    if !key.starts_with('/') {
        return Vec::new();
    }
    // A file system of another machine may never answer, wherever a link leads that somebody has put in a program's place.
    let open = |path: &str| open_checked(mounts, Path::new(path), &Expect::default()).ok();
    if let Some(program) = open(key) {
        return vec![(program, Some(Role::Program))];
    }
    let mut words = key.split(' ');
    let interpreter = words
        .next()
        .and_then(open)
        .map(|file| (file, Some(Role::Interpreter)));
    let script = words.find(|word| word.starts_with('/')).and_then(open);
    interpreter
        .into_iter()
        .chain(script.map(|file| (file, None)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::plan::PlanDraft;
    use headstart_system::residency::{advise_dontneed, resident_pages};
    use std::fs::File;

    const PAGES: usize = 1024;

    #[test]
    fn what_a_start_waits_for_first_is_read_and_no_more() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = |name: &str| {
            let path = dir.path().join(name);
            let bytes = vec![1; PAGES * rustix::param::page_size()];
            std::fs::write(&path, bytes).unwrap();
            File::open(&path).unwrap().sync_all().unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (program, interpreter) = (at("a program"), at("interpreter"));
        let (script, other, bypassed) = (at("a.py"), at("b.py"), at("bypassed"));
        let store = Store::new(dir.path().join("state"));
        let replayed = [program.clone(), format!("{interpreter} {script} of user 1000")];
        let known = [
            format!("{interpreter} {other}"),
            interpreter.clone(),
            bypassed.clone(),
            "postgresql.service".into(),
            "/not/there -x".into(),
        ];
        for text in replayed.iter().chain(&known) {
            let key = Key::new(text.as_str()).unwrap();
            let lock = store.key(&key).lock().unwrap();
            lock.save_plan(&PlanDraft::new(key, 4096)).unwrap();
            if replayed.contains(text) {
                lock.save_start().unwrap();
            }
        }
        let all = [&program, &interpreter, &script, &other, &bypassed];
        let pages = |path: &str| resident_pages(File::open(path).unwrap(), 0, u64::MAX).unwrap() as usize;
        let starts: Vec<String> = std::fs::read_dir(dir.path().join("state/starts"))
            .unwrap()
            .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(starts.len(), replayed.len());
        for path in all.into_iter().chain(&starts) {
            let file = File::open(path).unwrap();
            file.sync_all().unwrap();
            advise_dontneed(&file, 0, 0).unwrap();
            assert_eq!(pages(path), 0, "{path}");
        }
        let mut found = programs(&store);
        for path in [&program, &interpreter, &script] {
            assert!(
                (1..PAGES / 4).contains(&pages(path)),
                "{path}: {} pages",
                pages(path)
            );
        }
        assert!(starts.iter().all(|path| pages(path) > 0));
        assert_eq!(
            (pages(&other), pages(&bypassed)),
            (0, 0),
            "nothing is read ahead for these"
        );
        let mounts = MountTable::read().unwrap();
        let of =
            |path: &str| Executable::of(&open_checked(&mounts, Path::new(path), &Expect::default()).unwrap());
        let mut expected = [
            (of(&program), Role::Program),
            (of(&interpreter), Role::Interpreter),
            (of(&bypassed), Role::Program),
        ];
        found.sort_by_key(|(program, _)| format!("{program:?}"));
        expected.sort_by_key(|(program, _)| format!("{program:?}"));
        assert_eq!(found, expected);
    }
}
