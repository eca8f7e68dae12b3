//! Which of what a run used its arguments have named: files that are that run's own, and not the program's.

use crate::LearnOptions;
use crate::run::PathUse;
use headstart_model::named_files::{NamedFiles, Naming};
use headstart_model::{FilePath, Trace};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The paths of those. What a process executed, and what the key names, is of every start of it. Below a
/// directory that is named, as `/`, the program's own libraries may lie, which it maps.
pub(crate) fn named(
    used: &BTreeMap<FilePath, PathUse>,
    trace: &Trace,
    options: &LearnOptions,
) -> BTreeSet<FilePath> {
    if options.named.is_empty() {
        return BTreeSet::new();
    }
    let executed: HashSet<&FilePath> = trace
        .processes
        .iter()
        .map(|process| &process.executable)
        .collect();
    let mapped = trace.mappings.iter();
    let mapped = mapped.filter_map(|mapping| trace.files.get(mapping.file as usize));
    let mapped: HashSet<&FilePath> = mapped.map(|file| &file.path).collect();
    let is_in_key = |path: &FilePath| {
        let text = path.as_bytes();
        let key = options.key.as_str().as_bytes();
        let is_end = |byte: Option<&u8>| byte.is_none_or(|byte| *byte == b' ');
        let mut parts = key.windows(text.len().max(1)).enumerate();
        parts.any(|(at, part)| {
            part == text
                && is_end(at.checked_sub(1).and_then(|at| key.get(at)))
                && is_end(key.get(at + text.len()))
        })
    };
    let is_named = |(path, used): &(&FilePath, &PathUse)| {
        let names = [Some(*path), used.overlay.as_ref()];
        let how = |named: &NamedFiles, wanted| {
            let mut names = names.iter().flatten();
            names.any(|name| named.names(name.as_bytes()) == wanted)
        };
        let is_named = how(&options.named, Naming::Itself)
            || how(&options.named, Naming::Above) && !mapped.contains(path);
        is_named && !names.iter().flatten().any(|name| executed.contains(*name)) && !is_in_key(path)
    };
    used.iter()
        .filter(is_named)
        .map(|(path, _)| path.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::learn;
    use crate::tests::options;
    use headstart_model::profile::Policy;
    use headstart_model::trace::{Lookup, LookupKind, Mapping};
    use headstart_model::{FilePath, Key, NamedFiles, PageRange, Profile, Trace, testing};

    /// A start of a program that looks these up and maps the last one, which is a file.
    fn trace(looked_up: &[&str], mapped: &str) -> Trace {
        let mut trace = testing::trace();
        trace.processes[0].executable = "/usr/bin/cat".into();
        let opened = |path: &&str| Lookup {
            kind: LookupKind::Open,
            ..testing::lookup(0, path)
        };
        trace.lookups = looked_up.iter().map(opened).collect();
        trace.files = vec![testing::file(mapped)];
        trace.mappings = vec![Mapping {
            file: 0,
            pages: PageRange::new(0, 4),
        }];
        trace
    }

    /// What is learned of starts that looked these up with these arguments.
    fn after(starts: &[(&[&str], &[&str])]) -> Profile {
        let mut profile = None;
        for (looked_up, arguments) in starts {
            let mut options = options(Policy::Decay);
            options.key = Key::new("/usr/bin/cat /srv/script").unwrap();
            options.named = NamedFiles::new(arguments.iter().map(|path| FilePath::from(*path)));
            let trace = trace(looked_up, "/usr/lib/libc.so");
            profile = Some(learn(profile, &[trace], &options).unwrap());
        }
        profile.unwrap()
    }

    fn only_named(profile: &Profile) -> Vec<String> {
        let entries = profile.entries.iter();
        let only = entries.filter(|entry| profile.is_only_named(entry));
        only.map(|entry| entry.path.to_string()).collect()
    }

    #[test]
    fn what_is_named_is_for_those_that_name_it_until_most_others_use_it_too() {
        let big: (&[&str], &[&str]) = (&["/big", "/usr/lib/libc.so"], &["/big"]);
        assert_eq!(only_named(&after(&[big])), ["/big"]);
        assert_eq!(only_named(&after(&[big, big, big])), ["/big"]);
        let other: (&[&str], &[&str]) = (&["/usr/lib/libc.so"], &["/small"]);
        assert_eq!(only_named(&after(&[big, big, other])), ["/big"]);
        let too: (&[&str], &[&str]) = (&["/big", "/usr/lib/libc.so"], &["/small"]);
        assert_eq!(only_named(&after(&[big, big, too])), Vec::<String>::new());
        assert_eq!(only_named(&after(&[too, too, big])), Vec::<String>::new());
        assert_eq!(only_named(&after(&[too, other, other, big])), ["/big"]);
        let kept = after(&[big, other, other, other, other, other, other, other]);
        assert!(kept.named.is_empty() && kept.entries.iter().all(|entry| entry.path != "/big".into()));
    }

    #[test]
    fn what_lies_below_a_named_directory_is_named_but_for_what_is_the_programs_own() {
        let used: &[&str] = &[
            "/usr/bin/cat",
            "/srv/script",
            "/usr/lib/libc.so",
            "/usr/share/x",
            "/usr",
        ];
        assert_eq!(only_named(&after(&[(used, &["/usr"])])), ["/usr", "/usr/share/x"]);
        let by_itself = after(&[(used, &["/usr/lib/libc.so", "/srv/script", "/usr/bin/cat"])]);
        assert_eq!(only_named(&by_itself), ["/usr/lib/libc.so"]);
        assert_eq!(only_named(&after(&[(used, &[])])), Vec::<String>::new());
    }
}
