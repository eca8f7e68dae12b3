//! A tree of files, some with names that break what is read carelessly, and a profile that needs most of
//! them.

use headstart_model::profile::{Entry, Version, WeightedRange};
use headstart_model::{FilePath, testing};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// In order of first use; by name it is another one.
pub const USED: [&[u8]; 16] = [
    b"z",
    b"[glob] *?{a,b}\\",
    b"brace{a,b}\\",
    b"a[1-3]",
    b"# no comment",
    b" leading",
    b"trailing ",
    "unicode\u{2003}".as_bytes(),
    b"two\nlines",
    b"return\r",
    b"quo\"te\\",
    b"control\x01\x1b",
    b"caf\xe9",
    "\u{202e}txt.exe".as_bytes(),
    b"<script>&amp;",
    b"a",
];

/// Two of them would match a pattern that is not escaped.
pub const UNUSED: [&str; 5] = ["0", "a1", "a2", "brace", "zz"];

/// Bytes of each file: several spans of SOCI.
pub const BYTES: usize = 300_000;

/// Pages of each that are needed, in their order: the first use of a file is that of its last page.
pub const NEEDED: [(u64, u32); 3] = [(70, 2), (0, 1), (10, 20)];

/// A directory with `tree` and `profile`.
pub struct Image(TempDir);

impl Image {
    pub fn new() -> Image {
        let image = Image(tempfile::tempdir().unwrap());
        std::fs::create_dir(image.path("tree")).unwrap();
        let names = USED.into_iter().chain(UNUSED.map(str::as_bytes));
        for (index, name) in names.enumerate() {
            let file = image.path("tree").join(OsStr::from_bytes(name));
            std::fs::write(file, noise(index)).unwrap();
        }
        let mut entries: Vec<Entry> = USED.iter().enumerate().map(entry).collect();
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        let profile = testing::profile(entries).to_bytes().unwrap();
        std::fs::write(image.path("profile"), profile).unwrap();
        image
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes the list for a consumer, and returns its path.
    pub fn export(&self, consumer: &str, images: &[&Path]) -> PathBuf {
        let binary = std::env::var_os("HEADSTART_BIN").expect("HEADSTART_BIN: call tests/consumers/run");
        let mut command = Command::new(binary);
        command.args([
            "export", "profile", "--root", "/image", "--for", consumer, "-o", "list",
        ]);
        for image in images {
            command.arg("--image").arg(image);
        }
        let ran = command.current_dir(self.0.path()).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{consumer}: {said}");
        self.path("list")
    }
}

fn entry((index, name): (usize, &&[u8])) -> Entry {
    let version = Version {
        size: BYTES as u64,
        ..testing::VERSION
    };
    let path = FilePath::from([b"/image/", *name].concat());
    let time = 10 * index as u64;
    let ranges = NEEDED
        .iter()
        .zip(time..)
        .map(|((start, pages), first_use_ns)| WeightedRange {
            start: *start,
            pages: *pages,
            first_use_ns,
            ..testing::range(0, 1, 1.0)
        });
    let mut ranges: Vec<WeightedRange> = ranges.collect();
    ranges.sort_by_key(|range| range.start);
    Entry {
        ranges,
        ..Entry::whole(path, version, 4096, time)
    }
}

/// Bytes that no program can compress, another sequence for each seed.
pub fn noise(seed: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ ((seed as u64 + 1) << 32);
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..BYTES).map(next).collect()
}
