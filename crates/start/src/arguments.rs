//! What a start is given: the paths that its arguments name.

use crate::keys::local::resolve;
use headstart_model::{FilePath, NamedFiles};
use headstart_system::mounts::MountTable;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// So many arguments are looked at, and so many bytes of all together: a shell's `*` in most directories. Of
/// more only the first are known.
const MOST: usize = 1024;
const MOST_BYTES: usize = 64 << 10;

/// An argument may hold so many paths, as of Java's `-cp a.jar:b.jar`.
const MOST_IN_ONE: usize = 64;

/// The arguments of a start. None where the key says all of them: of a service, of an operation, of a name
/// that somebody gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments {
    words: Vec<OsString>,
    /// From where relative paths lead.
    directory: Option<PathBuf>,
    /// Who may look up where links lead.
    user: u32,
    /// Whether there may be more of them.
    is_cut: bool,
}

impl Arguments {
    /// Those of a start of this user's in this directory, without the program's own name; of more than these
    /// if that is so.
    pub fn new(words: &[OsString], directory: Option<PathBuf>, user: u32, has_more: bool) -> Arguments {
        let mut bytes = 0;
        let fits = |word: &&OsString| {
            bytes += word.len() + 1;
            bytes <= MOST_BYTES
        };
        let kept: Vec<OsString> = words.iter().take(MOST).take_while(fits).cloned().collect();
        Arguments {
            is_cut: has_more || kept.len() < words.len(),
            words: kept,
            directory: directory.filter(|directory| directory.is_absolute()),
            user,
        }
    }

    /// What they name, by the paths that they have and by those that these lead to, on local file systems.
    /// Where not all of them are known, what lies beside what is named is named, too: they are mostly many
    /// files of few directories.
    pub fn named(&self, mounts: &MountTable) -> NamedFiles {
        let mut named: Vec<PathBuf> = Vec::new();
        for word in &self.words {
            for path in paths_in(word).into_iter().take(MOST_IN_ONE) {
                let whole = match &self.directory {
                    _ if path.is_absolute() => path,
                    Some(directory) => directory.join(path),
                    None => continue,
                };
                named.push(resolve(mounts, self.user, &whole));
                named.push(plain(&whole));
            }
        }
        if self.is_cut {
            let beside = named.iter().filter_map(|path| path.parent()).map(Path::to_owned);
            let beside: Vec<PathBuf> = beside.filter(|path| path != Path::new("/")).collect();
            named.extend(beside);
        }
        NamedFiles::new(
            named
                .iter()
                .map(|path| FilePath::from(path.as_os_str().as_bytes())),
        )
    }
}

/// A path without `.` and `..`, by its name.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(part) => plain.push(part),
            Component::ParentDir => drop(plain.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

/// What of an argument may be a path: all of it, what follows an option's letter or its `=`, an `@`,
/// `file://`, and parts between colons.
fn paths_in(word: &OsStr) -> Vec<PathBuf> {
    let bytes = word.as_bytes();
    let mut texts: Vec<&[u8]> = Vec::new();
    match bytes {
        [b'-', b'-', ..] | [b'-'] => {}
        [b'-', _, rest @ ..] => texts.push(rest),
        [b'@', rest @ ..] => texts.extend([bytes, rest]),
        _ => texts.push(bytes),
    }
    if let Some(at) = bytes.iter().position(|byte| *byte == b'=') {
        texts.push(&bytes[at + 1..]);
    }
    let mut paths = Vec::new();
    for text in texts {
        if let Some(rest) = text.strip_prefix(b"file://") {
            // A host may stand before the path.
            let from = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            paths.push(decoded(&rest[from..]));
            continue;
        }
        paths.push(text.to_vec());
        if text.contains(&b':') {
            paths.extend(text.split(|byte| *byte == b':').map(<[u8]>::to_vec));
        }
    }
    let paths = paths
        .into_iter()
        .filter(|path| !path.is_empty() && !path.contains(&0));
    paths
        .map(|path| PathBuf::from(OsString::from_vec(path)))
        .collect()
}

/// The text of a URI with `%20` and its kind as the bytes that they stand for.
fn decoded(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        let digit = |at: usize| behind.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &behind[2..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::named_files::Naming;

    fn paths(word: &str) -> Vec<String> {
        let paths = paths_in(OsStr::new(word)).into_iter();
        paths.map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn a_path_stands_alone_or_behind_an_option() {
        assert_eq!(paths("a/b"), ["a/b"]);
        assert_eq!(paths("--file=/x"), ["/x"]);
        assert_eq!(paths("if=big"), ["if=big", "big"]);
        assert_eq!(paths("-f/x"), ["/x"]);
        assert_eq!(paths("@list"), ["@list", "list"]);
        assert_eq!(paths("a.jar:/b.jar"), ["a.jar:/b.jar", "a.jar", "/b.jar"]);
        assert_eq!(paths("file:///a%20b/%zz"), ["/a b/%zz"]);
        assert_eq!(paths("file://host/a"), ["/a"]);
        for nothing in ["", "-", "--", "-x", "--file", "--file="] {
            assert_eq!(paths(nothing), Vec::<String>::new(), "{nothing:?}");
        }
    }

    #[test]
    fn relative_paths_and_links_name_what_they_lead_to() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let root = dir.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        std::fs::create_dir(at("d")).unwrap();
        std::fs::write(at("d/file"), "").unwrap();
        std::os::unix::fs::symlink("d", at("link")).unwrap();
        let mounts = MountTable::read().unwrap();
        let named = |words: &[&str], has_more| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            Arguments::new(&words, Some(root.clone()), 0, has_more).named(&mounts)
        };
        let how = |named: &NamedFiles, name: &str| named.names(at(name).as_os_str().as_bytes());
        for word in [
            "d/file",
            "./link/../d/file",
            "--in=link/file",
            at("link/file").to_str().unwrap(),
        ] {
            assert_eq!(how(&named(&[word], false), "d/file"), Naming::Itself, "{word}");
        }
        let by_directory = named(&["x", "link"], false);
        assert_eq!(how(&by_directory, "d/file"), Naming::Above);
        // As the program looks it up.
        assert_eq!(how(&by_directory, "link/file"), Naming::Above);
        assert_eq!(how(&named(&["d/other"], false), "d/file"), Naming::Not);
        assert_eq!(how(&named(&["d/other"], true), "d/file"), Naming::Above);
        assert!(named(&[], true).is_empty());
    }

    #[test]
    fn of_too_many_the_first_are_known_and_what_lies_beside_them() {
        let word = OsString::from("/d/".to_string() + &"x".repeat(100));
        for (count, is_cut) in [(600, false), (700, true), (2000, true)] {
            let arguments = Arguments::new(&vec![word.clone(); count], None, 0, false);
            assert_eq!(arguments.is_cut, is_cut, "{count}");
            assert!(arguments.words.len() <= 655);
        }
    }
}
