//! Profiles that travel: what comes back, and what is refused.

use super::super::Kind;
use super::super::container::{Container, Writer};
use super::given::profile;
use crate::profile::{Entry, Policy};
use crate::profile_set::{Owner, Package};
use crate::testing::Forged;
use crate::{FilePath, Profile, ProfileSet, limits, testing};
use proptest::prelude::*;

fn entry(path: &str) -> Entry {
    Entry {
        ranges: vec![testing::range(0, 3, 1.0)],
        ..testing::entry(path)
    }
}

fn of(key: &str, entries: Vec<Entry>) -> Profile {
    Profile {
        key: testing::key(key),
        ..testing::profile(entries)
    }
}

/// A set with a file and a missing path for each key.
pub(super) fn set(keys: &[&str]) -> ProfileSet {
    let mut set = ProfileSet::default();
    for key in keys {
        let missing = Entry {
            version: None,
            ..testing::entry("/etc/ld.so.preload")
        };
        set.add(of(key, vec![missing, entry("/usr/lib/libc.so.6")]))
            .unwrap();
    }
    set.packages = vec![Package {
        name: "libc6".into(),
        version: "2.36-9+deb12u10".into(),
    }];
    let size = entry("/").version.unwrap().size;
    set.owners
        .insert("/usr/lib/libc.so.6".into(), Owner { size, package: 0 });
    set
}

fn refused(set: &ProfileSet) -> String {
    let written = set.to_bytes();
    assert!(written.is_err(), "it can be written");
    ProfileSet::from_bytes(&set.forged().unwrap())
        .unwrap_err()
        .to_string()
}

proptest! {
    #[test]
    fn profiles_that_travel_come_back(one in profile(), other in profile()) {
        let mut set = ProfileSet::default();
        set.add(one).unwrap();
        set.add(Profile { key: testing::key("boot"), ..other }).unwrap();
        prop_assert_eq!(ProfileSet::from_bytes(&set.to_bytes().unwrap()).unwrap(), set);
    }
}

#[test]
fn packages_come_back_with_the_files_they_are_of() {
    let set = set(&["/usr/bin/a", "boot"]);
    let read = ProfileSet::from_bytes(&set.to_bytes().unwrap()).unwrap();
    assert_eq!(read, set);
    let entries = &read.profiles()[1].entries;
    let packages: Vec<_> = entries.iter().map(|entry| read.package_of(entry)).collect();
    assert_eq!(packages, [None, Some(&set.packages[0])]);
}

#[test]
fn nothing_of_the_machine_is_in_the_file() {
    let time = 1_790_000_000_123_456_789i64;
    let mut own = of("/usr/bin/a", vec![entry("/usr/bin/a")]);
    own.updated_unix_ns = time as u64;
    let version = own.entries[0].version.as_mut().unwrap();
    (version.mtime_ns, version.generation) = (time, 0x7654_3210);
    let mut set = ProfileSet::default();
    set.add(own).unwrap();
    let bytes = set.to_bytes().unwrap();
    let file = Container::new(Kind::ProfileSet, &bytes).unwrap();
    let varints = [
        postcard::to_stdvec(&time).unwrap(),
        postcard::to_stdvec(&(time as u64)).unwrap(),
        postcard::to_stdvec(&0x7654_3210u32).unwrap(),
    ];
    for tag in file.tags() {
        let section = file.section(&tag, usize::MAX).unwrap();
        for varint in &varints {
            assert!(
                !section.windows(varint.len()).any(|part| part == varint),
                "{tag:?}"
            );
        }
    }
}

#[test]
fn paths_that_have_another_spelling_are_refused() {
    for (path, why) in [
        ("usr/bin/a", "not absolute"),
        ("/usr/../a", ". or .."),
        ("/usr//a", "empty component"),
        ("/usr/a/", "empty component"),
        ("/usr/\0a", "NUL"),
        ("", "not absolute"),
    ] {
        let bad = testing::profile_set(vec![of("k", vec![entry(path)])]);
        assert!(refused(&bad).contains(why), "{path:?}: {}", refused(&bad));
        let overlay = Entry {
            overlay: Some(FilePath::from(path)),
            ..entry("/f")
        };
        let bad = testing::profile_set(vec![of("k", vec![overlay])]);
        assert!(refused(&bad).contains(why), "an overlay {path:?}");
    }
    let long = format!("/{}", "x".repeat(limits::PATH));
    let bad = testing::profile_set(vec![of("k", vec![entry(&long)])]);
    assert!(refused(&bad).contains("4095 are allowed"));
}

#[test]
fn what_is_there_twice_or_out_of_order_is_refused() {
    let one = || of("k", vec![entry("/f")]);
    let twice = testing::profile_set(vec![one(), one()]);
    assert!(refused(&twice).contains("out of order"));
    let doubled = testing::profile_set(vec![of("k", vec![entry("/f"), entry("/f")])]);
    assert!(refused(&doubled).contains("out of order"));
    let backwards = testing::profile_set(vec![of("b", vec![]), of("a", vec![])]);
    assert!(refused(&backwards).contains("out of order"));
    let mut many: Vec<Profile> = (0..=limits::PROFILES)
        .map(|number| of(&format!("{number:04}"), vec![]))
        .collect();
    assert!(refused(&testing::profile_set(many.clone())).contains("more than 512 profiles"));
    many.pop();
    assert!(testing::profile_set(many).to_bytes().is_ok());
}

#[test]
fn values_out_of_their_range_are_refused() {
    let changed = |change: &dyn Fn(&mut Profile)| {
        let mut one = of("k", vec![entry("/f")]);
        change(&mut one);
        refused(&testing::profile_set(vec![one]))
    };
    let said = changed(&|one| one.entries[0].weight = f32::NAN);
    assert!(said.contains("the weight or stage"), "{said}");
    let said = changed(&|one| one.entries[0].stage = 9);
    assert!(said.contains("the weight or stage"), "{said}");
    let said = changed(&|one| one.entries[0].ranges[0].start = u64::MAX);
    assert!(said.contains("the pages at"), "{said}");
    let said = changed(&|one| one.entries[0].version = None);
    assert!(said.contains("an unknown file"), "{said}");
    let said = changed(&|one| one.page_size = 5000);
    assert!(said.contains("pages of 5000 bytes"), "{said}");
    let said = changed(&|one| one.mass = f64::INFINITY);
    assert!(said.contains("votes that are no number"), "{said}");
}

#[test]
fn packages_that_are_no_text_or_not_there_are_refused() {
    let changed = |change: &dyn Fn(&mut ProfileSet)| {
        let mut bad = set(&["k"]);
        change(&mut bad);
        refused(&bad)
    };
    let said = changed(&|bad| bad.packages[0].version = String::new());
    assert!(said.contains("no name or version"), "{said}");
    let said = changed(&|bad| bad.packages[0].name = "a\u{1b}[2J".into());
    assert!(said.contains("no name or version"), "{said}");
    let said = changed(&|bad| bad.packages.clear());
    assert!(said.contains("not listed"), "{said}");
}

#[test]
fn a_file_that_no_profile_has_is_refused() {
    let bytes = set(&["k"]).to_bytes().unwrap();
    let file = Container::new(Kind::ProfileSet, &bytes).unwrap();
    let mut rows = file.section(b"FILE", usize::MAX).unwrap();
    rows[0] += 1;
    let more = (FilePath::from("/z"), None::<FilePath>, Some(7u64), None::<u32>);
    rows.extend(postcard::to_stdvec(&more).unwrap());
    let mut writer = Writer::new(Kind::ProfileSet);
    for tag in file.tags() {
        let own = file.section(&tag, usize::MAX).unwrap();
        writer.raw(&tag, if tag == *b"FILE" { &rows } else { &own });
    }
    let said = ProfileSet::from_bytes(&writer.finish().unwrap()).unwrap_err();
    assert!(said.to_string().contains("no profile has \"/z\""), "{said}");
}

/// Files that the Python program of `fleet/` has written, and reads.
fn of_fleet(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fleet/tests/data")
        .join(name)
}

/// The tests of `fleet/` read this file. After a change of the format, HEADSTART_TESTS_WRITE=1 writes it
/// anew.
#[test]
fn a_fleet_reads_what_is_written_here() {
    let (path, set) = (of_fleet("exported.profiles"), set(&["/usr/bin/x", "boot"]));
    if std::env::var_os("HEADSTART_TESTS_WRITE").is_some() {
        std::fs::write(&path, set.to_bytes().unwrap()).unwrap();
    }
    let kept = ProfileSet::from_bytes(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(kept, set);
}

/// The tests of `fleet/` compare this file with what `headstart-fleet merge` makes.
#[test]
fn what_a_fleet_has_merged_is_read_here() {
    let bytes = std::fs::read(of_fleet("merged.profiles")).unwrap();
    let merged = ProfileSet::from_bytes(&bytes).unwrap();
    let keys: Vec<&str> = merged.profiles().iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["/usr/bin/x", "boot"]);
    let [program, boot] = merged.profiles() else {
        panic!("{merged:?}")
    };
    assert_eq!((program.policy, boot.policy), (Policy::Decay, Policy::Boot));
    assert_eq!(
        (program.page_size, program.runs, &boot.stages[..]),
        (4096, 4, &["early".to_owned(), "late".into()][..])
    );
    assert_eq!(program.cpu_ns, Some(101_500_000));
    let libc = &program.entries[0];
    assert_eq!(libc.path, FilePath::from("/usr/lib/libc.so.6"));
    assert_eq!(merged.package_of(libc).unwrap().version, "2.36-9");
    let ranges: Vec<_> = libc
        .ranges
        .iter()
        .map(|it| (it.start, it.pages, it.weight))
        .collect();
    assert_eq!(ranges, [(0, 2, 1.0), (7, 3, 0.75)]);
    // It comes back as it is, so nothing in it is lost on the way.
    assert_eq!(
        ProfileSet::from_bytes(&merged.to_bytes().unwrap()).unwrap(),
        merged
    );
}
