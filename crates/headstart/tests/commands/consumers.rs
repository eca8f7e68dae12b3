//! Lists for other programs, read by those that Debian has, and places on a device, read on the device.
//! tests/consumers reads the others by their consumers' code.

mod device;

use crate::common::Case;
use headstart_model::FilePath;
use headstart_model::profile::{Entry, Version};
use headstart_model::testing;
use headstart_system::testing::{LoopFs, Spec, can_mount};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

/// In order of first use; by name it is another one.
const USED: [&[u8]; 10] = [
    b"z",
    b"d/#no comment",
    b"back\\slash",
    b"[glob] *",
    b"#1 5",
    b"\"quoted\"",
    b" space",
    b"d/caf\xe9",
    b"-1",
    b"a",
];
const UNUSED: [&str; 3] = ["0", "d/0", "zz"];
const BYTES: usize = 5000;

/// Bytes that no program can compress, another sequence for each seed, so that they are found in an image.
fn noise(seed: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ ((seed as u64 + 1) << 32);
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..BYTES).map(next).collect()
}

/// A tree with all the files, and a profile that needs those used, and one that is not there.
fn prepare(case: &Case) {
    std::fs::create_dir_all(case.path("tree/d")).unwrap();
    let names = USED.into_iter().chain(UNUSED.map(str::as_bytes));
    for (index, name) in names.enumerate() {
        let path = case.path("tree").join(OsStr::from_bytes(name));
        std::fs::write(path, noise(index)).unwrap();
    }
    let version = Version {
        size: BYTES as u64,
        ..testing::VERSION
    };
    let used = USED.into_iter().chain([&b"gone"[..]]).enumerate();
    let mut entries: Vec<Entry> = used
        .map(|(index, name)| {
            let path = FilePath::from([b"/image/", name].concat());
            Entry::whole(path, version, 4096, index as u64)
        })
        .collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    case.write("profile", testing::profile(entries).to_bytes().unwrap());
}

/// Whether the files lie in the image in the order of their first use, and before those that are not used.
fn check(image: &Path) {
    let bytes = std::fs::read(image).unwrap();
    let offset = |index: usize| {
        let begin = &noise(index)[..64];
        let at = bytes.windows(begin.len()).position(|window| window == begin);
        at.unwrap_or_else(|| panic!("file {index} is not in {}", image.display()))
    };
    let used: Vec<usize> = (0..USED.len()).map(offset).collect();
    assert!(used.is_sorted(), "{}: {used:?}", image.display());
    let first_unused = (USED.len()..USED.len() + UNUSED.len()).map(offset).min();
    assert!(first_unused > used.last().copied(), "{}", image.display());
}

#[test]
fn image_builders_put_data_in_the_order_of_first_use() {
    let case = Case::new();
    prepare(&case);
    // mkfs.erofs of Debian 12 reads no tar: the order is that of the tar's members.
    for (format, words) in [
        (
            "squashfs",
            &[
                "mksquashfs",
                "tree",
                "image",
                "-noappend",
                "-no-progress",
                "-sort",
                "list",
            ][..],
        ),
        (
            "gensquashfs",
            &[
                "gensquashfs",
                "--pack-dir",
                "tree",
                "--sort-file",
                "list",
                "image",
            ],
        ),
        (
            "iso",
            &[
                "xorrisofs",
                "-R",
                "-o",
                "image",
                "--sort-weight-list",
                "list",
                "tree",
            ],
        ),
        (
            "erofs-tar",
            // As the guide has it.
            &[
                "sh",
                "-c",
                "(cat list; cd tree && find . -print0) | perl -0ne 'print unless $seen{$_}++' |
                tar -C tree --null --no-recursion --files-from=- -cf image",
            ],
        ),
    ] {
        let ran = case.headstart(&[
            "export", "profile", "--for", format, "--root", "/image", "--tree", "tree", "-o", "list",
        ]);
        assert_eq!((ran.code(), &*ran.out), (0, ""), "{format}: {}", ran.err);
        assert!(
            ran.err
                .contains("no regular file in --tree: 1, first /image/gone"),
            "{}",
            ran.err
        );
        assert_eq!(
            ran.err.contains("--sort=none"),
            format == "erofs-tar",
            "{}",
            ran.err
        );
        let _ = std::fs::remove_file(case.path("image"));
        let made = Command::new(words[0])
            .args(&words[1..])
            .current_dir(case.path("."))
            .output()
            .unwrap_or_else(|error| panic!("{}: {error}: `make deps-test` installs it", words[0]));
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "{format}: {said}");
        assert!(
            !said.contains("no match") && !said.contains("Cannot"),
            "{format}: {said}"
        );
        check(&case.path("image"));
    }
}

/// mkfs.erofs puts files into the order of their paths, unless it is told otherwise and does not compress.
#[test]
fn an_erofs_that_has_lost_the_order_is_refused() {
    if !can_mount() {
        return;
    }
    let names = ["a", "b/one", "c"];
    let fill = |root: &Path| -> std::io::Result<()> {
        std::fs::create_dir(root.join("b"))?;
        // Whole blocks: a tail lies beside its inode.
        let mut write = names.iter().enumerate();
        write.try_for_each(|(index, name)| std::fs::write(root.join(name), &noise(index).repeat(5)[..20480]))
    };
    for compression in [&[][..], &["-zlz4hc"]] {
        let case = Case::new();
        let fs = LoopFs::create(&Spec::new("erofs").mkfs(compression), fill).unwrap();
        let tree = fs.mount_point();
        let export = |order: &[&str]| {
            let version = Version {
                size: 20480,
                ..testing::VERSION
            };
            let entry = |(index, name): (usize, &&str)| {
                Entry::whole(
                    FilePath::from(format!("/image/{name}").as_str()),
                    version,
                    4096,
                    index as u64,
                )
            };
            let mut entries: Vec<Entry> = order.iter().enumerate().map(entry).collect();
            entries.sort_by(|a, b| a.path.cmp(&b.path));
            case.write("profile", testing::profile(entries).to_bytes().unwrap());
            let words = [
                "export",
                "profile",
                "--for",
                "erofs-tar",
                "--root",
                "/image",
                "-o",
                "list",
                "--tree",
            ];
            case.headstart(&[&words[..], &[tree.to_str().unwrap()]].concat())
        };
        let kept = export(&names);
        assert_eq!(kept.code(), 0, "{}", kept.err);
        std::fs::remove_file(case.path("list")).unwrap();
        let lost = export(&["c", "a", "b/one"]);
        lost.refused(&[
            "/a is used after",
            "/c and lies before it",
            "order of their paths",
        ]);
        assert!(!case.path("list").exists());
    }
}

#[test]
fn a_profile_of_another_place_gives_no_list() {
    let case = Case::new();
    prepare(&case);
    let ran = case.headstart(&[
        "export", "profile", "--for", "squashfs", "--root", "/other", "-o", "list",
    ]);
    ran.refused(&["profile", "--root", "/other", "not below --root: 11"]);
    assert!(!case.path("list").exists());
}
