//! Which Debian package a file came with, from dpkg's lists, and which version of it is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Where dpkg has the list of the files of each package.
pub const LISTS: &str = "/var/lib/dpkg/info";

/// Where dpkg says which version of each package is installed.
pub const STATUS: &str = "/var/lib/dpkg/status";

/// The most lists that are read: a Debian of everything has 60,000 packages.
const MOST_LISTS: usize = 100_000;

/// The most bytes of a list that are read: the largest of a desktop has 3 MB.
const MOST_BYTES: u64 = 16 << 20;

/// The most bytes of `status` that are read: of a desktop it has 5 MB.
const MOST_STATUS: u64 = 64 << 20;

/// The most bytes of a line: a path that cannot be longer.
const MOST_LINE: u64 = 4096;

/// The package of each of these paths that one owns, by the lists in `directory`; none where there are no
/// lists. Debian's lists name files of /usr as if they lay in the root where they once did.
pub fn owners(directory: &Path, paths: &BTreeSet<&[u8]>) -> BTreeMap<Vec<u8>, String> {
    let mut owners = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(directory) else {
        return owners;
    };
    for entry in entries.flatten().take(MOST_LISTS) {
        let name = entry.file_name();
        let name = Path::new(&name);
        if name.extension() != Some(OsStr::new("list")) || !entry.file_type().is_ok_and(|kind| kind.is_file())
        {
            continue;
        }
        let Some(stem) = name.file_stem().and_then(OsStr::to_str) else {
            continue;
        };
        // libc6:amd64
        let package = stem.split(':').next().unwrap_or(stem);
        let Ok(list) = File::open(entry.path()) else {
            continue;
        };
        let mut lines = BufReader::new(list.take(MOST_BYTES));
        let mut line = Vec::new();
        loop {
            line.clear();
            match lines.by_ref().take(MOST_LINE).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let path = line.strip_suffix(b"\n").unwrap_or(&line);
            let in_usr = [b"/usr", path].concat();
            // And somebody may have gone by a link of the root to what is listed in /usr.
            let linked = path.strip_prefix(b"/usr").filter(|rest| rest.starts_with(b"/"));
            for path in [Some(path), Some(&in_usr), linked].into_iter().flatten() {
                // Directories belong to many; the first is as good as another.
                if paths.contains(path) && !owners.contains_key(path) {
                    owners.insert(path.to_vec(), package.to_owned());
                }
            }
        }
    }
    owners
}

/// The versions of these packages that are installed, as dpkg's file `status` says; none where there is no
/// such file. Of a package of several architectures the last counts: all have one version.
pub fn versions(status: &Path, names: &BTreeSet<&str>) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    if names.is_empty() {
        return versions;
    }
    let Ok(file) = File::open(status) else {
        return versions;
    };
    let mut lines = BufReader::new(file.take(MOST_STATUS));
    let (mut line, mut package) = (Vec::new(), None);
    loop {
        line.clear();
        match lines.by_ref().take(MOST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return versions,
            Ok(_) => {}
        }
        let text = std::str::from_utf8(&line).unwrap_or_default().trim_end();
        if let Some(name) = text.strip_prefix("Package: ") {
            package = names.get(name).copied();
        } else if text.is_empty() {
            package = None;
        } else if let (Some(version), Some(package)) = (text.strip_prefix("Version: "), package) {
            versions.insert(package.to_owned(), version.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_have_the_version_that_is_installed() {
        let dir = tempfile::tempdir().unwrap();
        let status = dir.path().join("status");
        let text = "Package: a\nStatus: install ok installed\nVersion: 1:2.0-3\nDescription: x\n Version: no\n\n\
                    Package: b\nVersion: 7\n\nPackage: c\n\nVersion: 9\n";
        std::fs::write(&status, text).unwrap();
        let found = versions(&status, &["a", "c", "d"].into());
        assert_eq!(found, [("a".to_string(), "1:2.0-3".to_string())].into());
        assert!(versions(&dir.path().join("none"), &["a"].into()).is_empty());
    }

    #[test]
    fn files_have_the_package_that_lists_them() {
        let dir = tempfile::tempdir().unwrap();
        let lists = dir.path();
        std::fs::write(lists.join("libc6:amd64.list"), "/.\n/lib\n/lib/x/libc.so.6\n").unwrap();
        std::fs::write(lists.join("coreutils.list"), "/usr/bin/cat\n/usr/bin/dd").unwrap();
        std::fs::write(lists.join("coreutils.md5sums"), "/usr/bin/ls\n").unwrap();
        let mut hostile = vec![b'x'; 9000];
        hostile.extend(b"\n/usr/bin/ls\xff\n");
        std::fs::write(lists.join("hostile.list"), hostile).unwrap();
        std::os::unix::fs::symlink("/dev/zero", lists.join("zero.list")).unwrap();
        let wanted: [&[u8]; 5] = [
            b"/usr/lib/x/libc.so.6",
            b"/bin/dd",
            b"/usr/bin/cat",
            b"/usr/bin/ls",
            b"/usr/bin/ls\xff",
        ];
        let named = owners(lists, &wanted.into_iter().collect());
        let pairs: Vec<(&[u8], &str)> = named.iter().map(|(path, it)| (&path[..], &**it)).collect();
        let expected: [(&[u8], &str); 4] = [
            (b"/bin/dd", "coreutils"),
            (b"/usr/bin/cat", "coreutils"),
            (b"/usr/bin/ls\xff", "hostile"),
            (b"/usr/lib/x/libc.so.6", "libc6"),
        ];
        assert_eq!(pairs, expected);
        assert!(owners(&lists.join("none"), &wanted.into_iter().collect()).is_empty());
    }
}
