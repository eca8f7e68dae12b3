//! Launchers that nobody has heard of: recognised by what their start did.

use super::interpreters::Interpreter;
use super::{Names, StartKey, base_name, code_text};
use headstart_model::trace::File;
use headstart_model::{Key, Trace};
use headstart_store::{Store, StoreError};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A launcher executes the other program within this time of its own beginning, nanoseconds. Some ms of a
/// processor; from a cold disk its own file and its libraries take longer.
const WITHIN_NS: u64 = 2_000_000_000;

/// And has used so many pages by then at most: its own, and those of a C library and a shell.
const MOST_PAGES: u64 = 2048;

/// Whose start it is of a program that turned out to be a launcher before: its key is the program and all
/// that it is given. The same as before where it is none, or is given nothing.
pub fn as_launcher(store: &Store, whose: StartKey) -> StartKey {
    let kept = store.key(&whose.key);
    // Who disables a launcher disables what it starts.
    let is_one = !whose.rest.is_empty() && kept.is_launcher() && kept.is_served();
    match is_one.then(|| with_arguments(&whose.key, &whose.rest)).flatten() {
        Some(key) => StartKey {
            key,
            rest: Vec::new(),
        },
        None => whose,
    }
}

/// Whose start it was, if its program turned out to be a launcher, which is noted; what was learned of the
/// program before was of anybody's starts, and is dropped.
pub fn turned_out(
    store: &Store,
    whose: &StartKey,
    names: &dyn Names,
    trace: &Trace,
) -> Result<Option<Key>, StoreError> {
    if !seen_through(&whose.key, &whose.rest, names, trace) {
        return Ok(None);
    }
    let kept = store.key(&whose.key);
    if !kept.is_launcher() {
        kept.lock()?.becomes_launcher()?;
    }
    Ok(with_arguments(&whose.key, &whose.rest))
}

fn with_arguments(program: &Key, arguments: &[OsString]) -> Option<Key> {
    let key = Key::new(with_text(program.of_all(), arguments)).ok()?;
    match program.user() {
        Some(user) => key.of_user(user).ok(),
        None => Some(key),
    }
}

/// A program and all that it is given, as they are or as a hash.
pub(super) fn with_text(program: &str, arguments: &[OsString]) -> String {
    let words: Vec<&[u8]> = arguments.iter().map(|word| word.as_bytes()).collect();
    format!("{program} {}", code_text(OsStr::from_bytes(&words.join(&b' '))))
}

/// Whether a start was of a program that only executes another, which its arguments name: in its own place,
/// or in the only process that it began. `rest` is what the program was given, as [`StartKey::rest`] has it.
fn seen_through(program: &Key, rest: &[OsString], names: &dyn Names, trace: &Trace) -> bool {
    // Of a name that somebody gave nothing is known.
    let Some(own) = program.of_all().strip_prefix('/') else {
        return false;
    };
    let own = own.split(' ').next().unwrap_or_default();
    let Some(first) = trace.processes.first() else {
        return false;
    };
    let is_own = |path: &Path| path.as_os_str().as_bytes().strip_prefix(b"/") == Some(own.as_bytes());
    let in_its_place = first.executable.as_path();
    let mut children = trace.processes.iter().filter(|one| one.parent == Some(0));
    let executed = match (is_own(in_its_place), children.next(), children.next()) {
        (false, ..) => in_its_place,
        (true, Some(child), None) => child.executable.as_path(),
        _ => return false,
    };
    if is_own(executed)
        || !rest
            .iter()
            .any(|word| names_program(word, names, executed, trace))
    {
        return false;
    }
    // Where none of its pages was seen to be used, nobody knows when it began.
    let is_its_file = |file: u32| {
        let file = trace.files.get(file as usize);
        file.is_some_and(|file| is_path(file, executed))
    };
    let Some(begun) = trace.uses.iter().position(|one| is_its_file(one.file)) else {
        return false;
    };
    let (before, then) = trace.uses.split_at(begun);
    let pages: u64 = before.iter().map(|one| u64::from(one.pages)).sum();
    let begun_ns = then.first().map_or(u64::MAX, |one| one.time_ns);
    pages <= MOST_PAGES && begun_ns.saturating_sub(first.start_ns) <= WITHIN_NS
}

/// Where programs are looked for that are called by a name alone: whoever started it may have had another
/// PATH.
const PLACES: [&str; 7] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/usr/games",
];

/// Whether an argument is the name of this program, or of a script that it interprets.
fn names_program(word: &OsStr, names: &dyn Names, executable: &Path, trace: &Trace) -> bool {
    let bytes = word.as_bytes();
    if bytes.is_empty() || bytes.starts_with(b"-") {
        return false;
    }
    // A script was read, too.
    let interprets = Interpreter::named(&base_name(executable.as_os_str())).is_some();
    let is_it = |path: &Path| {
        let real = names.real(path);
        real.is_some_and(|real| {
            real == executable || interprets && trace.files.iter().any(|file| is_path(file, &real))
        })
    };
    match bytes.contains(&b'/') {
        true => is_it(Path::new(word)),
        false => {
            executable.file_name() == Some(word)
                || PLACES.iter().any(|place| is_it(&Path::new(place).join(word)))
        }
    }
}

fn is_path(file: &File, path: &Path) -> bool {
    let overlay = file.overlay.as_ref();
    file.path.as_path() == path || overlay.is_some_and(|overlay| overlay.as_path() == path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::FilePath;
    use headstart_model::testing;
    use headstart_model::trace::{Process, Use};
    use std::path::PathBuf;

    /// Paths as they are.
    struct Plain;

    impl Names for Plain {
        fn real(&self, path: &Path) -> Option<PathBuf> {
            Some(path.to_owned())
        }

        fn is_there(&self, _: &Path) -> bool {
            true
        }

        fn is_registered(&self, _: &Path) -> bool {
            false
        }

        fn directory(&self) -> Option<PathBuf> {
            None
        }
    }

    /// A start whose processes have executed these last, all of them the first one's children; with so many
    /// pages, and so long after the beginning, the last file was used, which is what was executed.
    fn trace(executed: &[&str], files: &[&str], pages: u32, after_ns: u64) -> Trace {
        let mut trace = testing::trace();
        trace.processes = executed
            .iter()
            .enumerate()
            .map(|(at, path)| Process {
                pid: 10 + at as u32,
                parent: (at > 0).then_some(0),
                start_ns: 0,
                executable: FilePath::from(*path),
            })
            .collect();
        trace.files = files.iter().map(|path| testing::file(path)).collect();
        let one = |file: usize, time_ns, pages| Use {
            time_ns,
            ..testing::used(0, file as u32, 0, pages)
        };
        trace.uses = vec![one(0, 1, pages), one(files.len() - 1, after_ns, 1)];
        trace
    }

    fn is_launcher(rest: &[&str], trace: &Trace) -> bool {
        let rest: Vec<OsString> = rest.iter().map(OsString::from).collect();
        seen_through(
            &Key::new("/usr/bin/wrap of user 7").unwrap(),
            &rest,
            &Plain,
            trace,
        )
    }

    #[test]
    fn a_program_that_only_executes_what_its_arguments_name_is_a_launcher() {
        let (own, files) = ("/usr/bin/wrap", ["/usr/bin/wrap", "/usr/bin/cat"]);
        let in_its_place = trace(&["/usr/bin/cat"], &files, 100, 5_000_000);
        assert!(is_launcher(&["-x", "cat", "big"], &in_its_place));
        assert!(is_launcher(&["/usr/bin/cat"], &in_its_place));
        assert!(!is_launcher(&["big"], &in_its_place), "not named");
        let in_a_child = trace(&[own, "/usr/bin/cat"], &files, 100, 5_000_000);
        assert!(is_launcher(&["cat", "big"], &in_a_child));
        let in_two = trace(&[own, "/usr/bin/cat", "/usr/bin/cat"], &files, 100, 5_000_000);
        assert!(!is_launcher(&["cat", "big"], &in_two));
        let does_more = trace(&["/usr/bin/cat"], &files, MOST_PAGES as u32 + 1, 5_000_000);
        assert!(!is_launcher(&["cat"], &does_more));
        let late = trace(&["/usr/bin/cat"], &files, 100, WITHIN_NS + 1);
        assert!(!is_launcher(&["cat"], &late));
        let nothing = trace(&[own], &files, 100, 5);
        assert!(!is_launcher(&["cat"], &nothing));
        // A script is named, and its interpreter executed.
        let script = trace(
            &["/usr/bin/dash"],
            &["/usr/bin/wrap", "/srv/job", "/usr/bin/dash"],
            9,
            5,
        );
        assert!(is_launcher(&["/srv/job", "x"], &script) && !is_launcher(&["/srv/other"], &script));
        let by_name = Key::new("name").unwrap();
        assert!(!seen_through(&by_name, &["cat".into()], &Plain, &in_its_place));
    }

    #[test]
    fn what_it_starts_is_in_its_key_and_what_was_learned_of_all_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let whose = |rest: &str| StartKey {
            key: Key::new("/usr/bin/wrap of user 7").unwrap(),
            rest: rest.split(' ').map(OsString::from).collect(),
        };
        assert_eq!(as_launcher(&store, whose("cat big")), whose("cat big"));
        let start = trace(
            &["/usr/bin/cat"],
            &["/usr/bin/wrap", "/usr/bin/cat"],
            100,
            5_000_000,
        );
        let lock = store.key(&whose("").key).lock().unwrap();
        lock.add_trace(&start).unwrap();
        drop(lock);
        let key = turned_out(&store, &whose("cat big"), &Plain, &start)
            .unwrap()
            .unwrap();
        assert_eq!(key.as_str(), "/usr/bin/wrap cat big of user 7");
        assert_eq!(as_launcher(&store, whose("cat big")).key, key);
        assert_ne!(as_launcher(&store, whose("cat small")).key, key);
        assert!(store.key(&whose("").key).traces().is_empty());
        assert_eq!(turned_out(&store, &whose("x"), &Plain, &start).unwrap(), None);
    }
}
