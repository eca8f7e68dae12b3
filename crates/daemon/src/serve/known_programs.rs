//! What is done once for known programs when the machine has come to rest, so that the first start of each is
//! noticed and answered at once.
//!
//! Before the kernel tells of a cold start, that start has read the way to its program: links, directories,
//! an inode, the first page of the file, and the last one of its data. The daemon then has to read what is
//! kept of it. On a disk that are some ten reads, each of which waits for the one before; they are few pages,
//! and here they are read while nobody waits.

use crate::key::{mounts, resolve};
use headstart_model::sort::Sort;
use headstart_model::trace::LookupKind;
use headstart_model::{FilePath, Key, Trace};
use headstart_record::{Executable, Role};
use headstart_store::{KeyDir, Rank, Store};
use headstart_system::files::Type;
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, Opened, open_checked};
use headstart_system::program::{HEADERS, Program};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::{Duration, Instant};

/// So many known programs are told of (`known`, watch.h).
pub(super) const MOST: usize = 4096;

/// And so many of one user, who is not root.
pub(super) const MOST_OF_A_USER: usize = 512;

/// Of so many keys, those that were used last, what their starts wait for first is read, if that takes no
/// longer than this: plans of 64 MiB in all at most, as much as is kept.
const MOST_READ: usize = 256;
const MOST_READ_OF_A_USER: usize = 64;
const READ_WITHIN: Duration = Duration::from_secs(60);

/// What is found of known programs by then is all that is told: a read that stands back for a device that is
/// busy all the time takes seconds.
const FOUND_WITHIN: Duration = Duration::from_secs(180);

/// Of a start so many look-ups are seen through for names of its programs, from its beginning on. A wrapper
/// in the shell's language has executed its program by then.
const LOOKED_UP: usize = 256;
/// A key has so many such names at most: those of a wrapper, of what it executes, and of what executes it.
const NAMES: usize = 8;

/// The executables of known programs: what the key says, or what is given the rest of it. Of those whose
/// starts are read ahead, what comes before that is in memory then. Those found so far, as soon as the daemon
/// is `ending`.
pub(super) fn programs(store: &Store, ending: impl Fn() -> bool) -> Vec<(Executable, Role)> {
    let mut keys = known_keys(store);
    keys.sort_small_by_cached_key(|key| Reverse(store.key(key).last_used_and_size().0));
    let begun = Instant::now();
    let (mut known, mut of_users, mut read) = (HashMap::new(), HashMap::new(), 0);
    for key in &keys {
        let theirs: &mut usize = of_users.entry(key.user()).or_default();
        *theirs += 1;
        let has_share = |most| key.user().is_none() || *theirs <= most;
        if !has_share(MOST_OF_A_USER) {
            continue;
        }
        // The mounts for each anew: none is kept from being unmounted for longer.
        let (false, false, Ok(mounts)) = (ending(), begun.elapsed() > FOUND_WITHIN, mounts()) else {
            break;
        };
        // To look whether it is there reads it.
        let may_be_read = read < MOST_READ && has_share(MOST_READ_OF_A_USER);
        read += usize::from(may_be_read);
        let is_replayed = |kept: KeyDir| kept.is_replayed() || kept.imported().is_some();
        let is_read = may_be_read && begun.elapsed() < READ_WITHIN && is_replayed(store.key(key));
        if is_read {
            // To look a name up reads all links and directories on the way to the program.
            for name in store.key(key).names() {
                let path = resolve(&mounts, key.user().unwrap_or(0), name.as_path());
                if let Ok(file) = open_checked(&mounts, &path, &expected(key)) {
                    read_as_executed(&file);
                }
            }
        }
        for (file, role) in files_of(key, &mounts) {
            if is_read && file.stat.kind == Type::File {
                read_as_executed(&file);
            }
            let inode = (file.stat.major, file.stat.minor, file.stat.inode);
            let (true, Some(role)) = (known.len() < MOST || known.contains_key(&inode), role) else {
                continue;
            };
            let (_, found) = known
                .entry(inode)
                .or_insert((Executable::from_opened(&file), role));
            // What is a program by itself and an interpreter, too: of what it is given not all is known.
            if role == Role::Interpreter {
                *found = role;
            }
        }
    }
    known.into_values().collect()
}

/// The keys that have a start's plan of their own, or one of others.
fn known_keys(store: &Store) -> Vec<Key> {
    let ranks = Rank::ALL.map(|rank| store.imports(rank));
    let all = std::iter::once(store).chain(&ranks);
    let keys: BTreeSet<Key> = all.flat_map(|store| store.keys().unwrap_or_default()).collect();
    keys.into_iter().collect()
}

/// Reads what the kernel reads of a file before it tells of its execution: the beginning, and of a program
/// the page in which its data ends. What cannot be read now nobody will have waited for.
fn read_as_executed(file: &Opened) {
    let mut beginning = [0; HEADERS];
    let length = rustix::io::pread(&file.fd, &mut beginning, 0).unwrap_or(0);
    if let Some(program) = Program::parse(&beginning[..length]) {
        let _ = rustix::io::pread(&file.fd, &mut [0; 1], program.data_end.saturating_sub(1));
    }
}

/// By what names a start called programs of its own, where these are not the paths that they have: links lead
/// from one to the other. Those known `before` stay as long as there is room.
pub(super) fn names_of(key: &Key, trace: &Trace, before: Vec<FilePath>) -> Vec<FilePath> {
    let Ok(mounts) = mounts() else {
        return before;
    };
    let is_program = |path: &FilePath| trace.processes.iter().any(|one| one.executable == *path);
    // What the key says besides, an interpreter's script. A process in a chroot has named it from there, and
    // links are not followed in its key.
    let is_said = |path: &FilePath| {
        let mut words = key.of_all().split(' ').filter(|word| word.starts_with('/'));
        words.any(|word| path.as_bytes().ends_with(word.as_bytes()))
    };
    let is_name = |name: &FilePath| {
        let file = FilePath::from(&*resolve(&mounts, key.user().unwrap_or(0), name.as_path()));
        file != *name && (is_program(&file) || is_said(&file) || is_said(name))
    };
    let looked_up = trace.lookups.iter();
    let opened = looked_up.filter(|one| one.found && one.kind == LookupKind::Open);
    let opened = opened.take(LOOKED_UP).map(|one| &one.path);
    let mut names = Vec::new();
    for name in opened.filter(|name| is_name(name)).chain(&before) {
        if names.len() < NAMES && !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// What a file has to be that is read for a key, and whose name is up to its user: one that this user may
/// read.
fn expected(key: &Key) -> Expect {
    Expect {
        reader: key.user(),
        ..Expect::default()
    }
}

/// The files that are executed when a start of this key begins, as far as the key tells: the program, or what
/// is given the rest of it, and a script. What a script is executed by says the script itself.
fn files_of(key: &Key, mounts: &MountTable) -> Vec<(Opened, Option<Role>)> {
    let text = key.of_all();
    if !text.starts_with('/') {
        return Vec::new();
    }
    // A file system of another machine may never answer, wherever a link leads that somebody has put in a
    // program's place.
    let open = |path: &str| open_checked(mounts, Path::new(path), &Expect::default()).ok();
    if let Some(program) = open(text) {
        return vec![(program, Some(Role::Program))];
    }
    let mut words = text.split(' ');
    let interpreter = words
        .next()
        .and_then(open)
        .map(|file| (file, Some(Role::Interpreter)));
    let script = words.find(|word| word.starts_with('/'));
    let script = script.and_then(|path| open_checked(mounts, Path::new(path), &expected(key)).ok());
    interpreter
        .into_iter()
        .chain(script.map(|file| (file, None)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::plan::PlanDraft;
    use headstart_model::testing;
    use headstart_model::trace::Lookup;
    use headstart_store::Change;
    use headstart_system::residency::{advise_dontneed, resident_pages};
    use std::fs::{File, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    const PAGES: usize = 1024;
    const PAGE: usize = 4096;
    /// In which page the data of a program ends.
    const DATA_END: usize = 600;

    #[test]
    fn names_are_those_that_lead_to_programs_and_scripts() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        for name in ["program", "script", "library"] {
            std::fs::write(at(name), "").unwrap();
        }
        let link = |name: &str, to: &str| symlink(to, at(name)).unwrap();
        link("called", "program");
        link("started", "script");
        link("library.so", "library");
        link("nowhere", "gone");
        let mut trace = testing::trace();
        trace.processes[0].executable = at("program").as_str().into();
        let names = ["program", "called", "started", "library.so", "nowhere", "called"];
        trace.lookups = names
            .map(|name| Lookup {
                time_ns: 0,
                process: 0,
                path: at(name).as_str().into(),
                kind: LookupKind::Open,
                found: true,
            })
            .to_vec();
        let names_for = |key: String, trace: &Trace, before: &[FilePath]| -> Vec<String> {
            let names = names_of(&Key::new(key).unwrap(), trace, before.to_vec());
            names.iter().map(ToString::to_string).collect()
        };
        let scripted = format!("{} {}", at("program"), at("script"));
        assert_eq!(names_for(at("program"), &trace, &[]), [at("called")]);
        assert_eq!(names_for(scripted, &trace, &[]), [at("called"), at("started")]);
        // A process in a chroot has named its script from there.
        let inside = format!("{} /started of user 1000", at("program"));
        assert_eq!(names_for(inside, &trace, &[]), [at("called"), at("started")]);
        // What was known before comes behind, and there are eight at most.
        let before: Vec<FilePath> = (0..20).map(|n| format!("/{n}").as_str().into()).collect();
        let names = names_for(at("program"), &trace, &before);
        assert_eq!(
            (names.len(), &*names[0], &*names[7]),
            (NAMES, &*at("called"), "/6")
        );
        assert_eq!(
            names_for(at("program"), &trace, &[at("called").as_str().into()]).len(),
            1
        );
        trace.lookups.truncate(1);
        assert!(names_for(at("program"), &trace, &[]).is_empty());
    }

    #[test]
    fn a_users_script_is_read_if_that_user_may_read_it() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, "").unwrap();
        let key = Key::new(format!("/bin/sh {}", script.display())).unwrap();
        let readable = |key: &Key| {
            let files = files_of(key, &MountTable::read().unwrap());
            files.iter().filter(|(_, role)| role.is_none()).count()
        };
        for (mode, others) in [(0o600, 0), (0o644, 1)] {
            std::fs::set_permissions(&script, Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                (readable(&key), readable(&key.of_user(1000).unwrap())),
                (1, others)
            );
        }
    }

    #[test]
    fn what_a_start_waits_for_first_is_read_and_no_more() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let at = |name: &str| {
            let path = dir.path().join(name);
            let mut bytes = vec![1; PAGES * PAGE];
            if name == "a program" {
                // Of its headers what matters: a segment that can be written and ends amid a page.
                let number = |length: usize, number: usize| number.to_le_bytes()[..length].to_vec();
                let header = [
                    b"\x7fELF\x02\x01".to_vec(),
                    vec![0; 18],
                    number(8, 64),
                    number(8, 64),
                    vec![0; 14],
                    number(2, 56),
                    number(2, 1),
                ];
                let segment = [
                    number(4, 1),
                    number(4, 7),
                    number(8, 0),
                    number(8, 0),
                    number(8, 0),
                    number(8, DATA_END * PAGE + 5),
                ];
                let header = [header.concat(), vec![0; 6], segment.concat()].concat();
                bytes[..header.len()].copy_from_slice(&header);
            }
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
            let plan = PlanDraft::new(key, 4096).to_file().unwrap();
            let keeps = Change {
                plan: Some(&plan),
                ..Change::default()
            };
            lock.change(&keeps).unwrap();
            if !replayed.contains(text) {
                std::fs::remove_file(lock.dir().start_path().unwrap()).unwrap();
            }
        }
        let files = [&program, &interpreter, &script, &other, &bypassed];
        let pages = |path: &str| resident_pages(File::open(path).unwrap(), 0, u64::MAX).unwrap() as usize;
        let starts: Vec<String> = std::fs::read_dir(dir.path().join("state/starts"))
            .unwrap()
            .map(|entry| entry.unwrap().path().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(starts.len(), replayed.len());
        for path in files.into_iter().chain(&starts) {
            let file = File::open(path).unwrap();
            file.sync_all().unwrap();
            advise_dontneed(&file, 0, 0).unwrap();
            assert_eq!(pages(path), 0, "{path}");
        }
        assert!(programs(&store, || true).is_empty());
        assert!(files.into_iter().all(|path| pages(path) == 0), "it is ending");
        let mut opened = programs(&store, || false);
        for path in [&program, &interpreter, &script] {
            assert!(
                (1..PAGES / 4).contains(&pages(path)),
                "{path}: {} pages",
                pages(path)
            );
        }
        let end = |path: &str| {
            let file = File::open(path).unwrap();
            resident_pages(&file, (DATA_END * PAGE) as u64, PAGE as u64).unwrap()
        };
        assert_eq!((end(&program), end(&interpreter)), (1, 0));
        assert!(starts.iter().all(|path| pages(path) > 0));
        assert_eq!(
            (pages(&other), pages(&bypassed)),
            (0, 0),
            "nothing is read ahead for these"
        );
        let mounts = MountTable::read().unwrap();
        let executable = |path: &str| {
            Executable::from_opened(&open_checked(&mounts, Path::new(path), &Expect::default()).unwrap())
        };
        let mut expected = [
            (executable(&program), Role::Program),
            (executable(&interpreter), Role::Interpreter),
            (executable(&bypassed), Role::Program),
        ];
        opened.sort_by_key(|(program, _)| format!("{program:?}"));
        expected.sort_by_key(|(program, _)| format!("{program:?}"));
        assert_eq!(opened, expected);
    }
}
