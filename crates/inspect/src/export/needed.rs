//! The files of an image that a profile needs, in the order of their first use.

use headstart_model::profile::{Entry, Need, from_end};
use headstart_model::{FilePath, PageRange, PageSet, Profile};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

/// What a list does not say: how many paths, why, and the first of them. Shown on one line.
#[derive(Debug, Default)]
pub struct Unsaid(Vec<(&'static str, usize, FilePath)>);

impl Unsaid {
    /// Whether the list says all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Counts no path of which this was said: the list says it after all.
    pub fn forget(&mut self, why: &str) {
        self.0.retain(|(known, ..)| *known != why);
    }

    /// Counts a path.
    pub fn add(&mut self, why: &'static str, path: &FilePath) {
        match self.0.iter_mut().find(|(known, ..)| *known == why) {
            Some((_, count, _)) => *count += 1,
            None => self.0.push((why, 1, path.clone())),
        }
    }
}

impl fmt::Display for Unsaid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (why, count, first)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "; " };
            write!(f, "{comma}{why}: {count}, first {first}")?;
        }
        Ok(())
    }
}

/// A file of which a plan of the profile reads pages.
#[derive(Debug)]
pub struct Used<'a> {
    /// Its name, relative to the image's root.
    pub name: &'a [u8],
    entry: &'a Entry,
    page_size: u64,
    threshold: f32,
}

/// Bytes of a file, and when they are first used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the file in [`Needed::files`].
    pub file: usize,
    /// Bytes of the file: not empty.
    pub bytes: Range<u64>,
    /// Nanoseconds after the start's first instant.
    pub first_use_ns: u64,
}

/// Why a path without needed pages is in no list of files.
pub const ONLY_METADATA: &str = "only metadata is used";

/// The needed files, in the order of their first use.
#[derive(Debug)]
pub struct Needed<'a> {
    /// The files, each name once.
    pub files: Vec<Used<'a>>,
    /// Names of which no pages are needed, and what is needed of them.
    pub metadata: Vec<(&'a [u8], Need)>,
    /// What is needed beside them.
    pub unsaid: Unsaid,
}

impl Used<'_> {
    /// The path it was learned by.
    pub fn path(&self) -> &FilePath {
        &self.entry.path
    }

    /// Its needed bytes: ascending, disjoint, and not beyond its end where its size is known.
    pub fn bytes(&self) -> Vec<Range<u64>> {
        self.in_bytes(self.pages().ranges().iter().copied()).collect()
    }

    /// Whether only some of its pages are needed.
    pub fn is_used_in_part(&self) -> bool {
        let used = self.entry.pages(self.threshold).pages();
        self.end_page().is_some_and(|pages| used < pages)
    }

    fn end_page(&self) -> Option<u64> {
        Some(self.entry.version?.size.div_ceil(self.page_size))
    }

    fn pages(&self) -> PageSet {
        let pages = self.entry.pages(self.threshold);
        match self.end_page() {
            Some(end) => pages.union(&self.entry.last_pages(self.threshold, end)),
            None => pages,
        }
    }

    fn in_bytes(&self, pages: impl Iterator<Item = PageRange>) -> impl Iterator<Item = Range<u64>> {
        let size = self.entry.version.map_or(u64::MAX, |version| version.size);
        let byte = move |page: u64| page.saturating_mul(self.page_size).min(size);
        let bytes = pages.map(move |range| byte(range.start)..byte(range.end));
        bytes.filter(|bytes| !bytes.is_empty())
    }

    /// Its ranges as they were learned, with the time of their first use.
    fn timed(&self) -> impl Iterator<Item = (u64, PageRange)> {
        let counts = |weight| weight >= self.threshold;
        let from_start = self.entry.ranges.iter().filter(move |range| counts(range.weight));
        let end = self.end_page();
        let tail = self.entry.tail.iter().flatten();
        let tail = tail.filter(move |range| counts(range.weight) && end.is_some());
        from_start
            .map(|range| (range.first_use_ns, range.range()))
            .chain(tail.map(move |range| (range.first_use_ns, from_end(range.range(), end.unwrap_or(0)))))
    }
}

impl<'a> Needed<'a> {
    /// The files of which a plan of this profile reads pages, by their names below `root`, the directory at
    /// which the image was mounted when the profile was learned. `is_in_image` tells of a name below the root
    /// whether the image will have this file.
    pub fn of(profile: &'a Profile, root: &FilePath, is_in_image: &dyn Fn(&[u8]) -> bool) -> Needed<'a> {
        let threshold = profile.policy.threshold();
        let mut entries: Vec<(u64, &Entry)> = profile
            .entries
            .iter()
            .filter(|entry| entry.weight >= threshold)
            .map(|entry| (first_use_ns(entry, threshold), entry))
            .collect();
        entries.sort_by_key(|(time, entry)| (*time, &entry.path));

        let mut needed = Needed {
            files: Vec::new(),
            metadata: Vec::new(),
            unsaid: Unsaid::default(),
        };
        let mut known = HashSet::new();
        for (_, entry) in entries {
            let name = below(entry, root);
            let why = match name {
                _ if entry.all_ranges().all(|range| range.weight < threshold) => {
                    needed.metadata.extend(name.map(|name| (name, entry.need)));
                    ONLY_METADATA
                }
                _ if profile.is_only_named(entry) => "used only if an argument names it",
                None => "not below --root",
                Some(name) if !is_in_image(name) => "no regular file in --tree",
                Some(name) => {
                    if known.insert(name) {
                        needed.files.push(Used {
                            name,
                            entry,
                            page_size: u64::from(profile.page_size).max(1),
                            threshold,
                        });
                    }
                    continue;
                }
            };
            needed.unsaid.add(why, &entry.path);
        }
        needed
    }

    /// The needed bytes of all files, in the order of their first use.
    pub fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (file, used) in self.files.iter().enumerate() {
            let pages = used.pages();
            for (first_use_ns, range) in used.timed() {
                let part = overlap(&pages, range);
                pieces.extend(used.in_bytes(part).map(|bytes| Piece {
                    file,
                    bytes,
                    first_use_ns,
                }));
            }
        }
        pieces.sort_by_key(|piece| (piece.first_use_ns, piece.file, piece.bytes.start));
        pieces
    }
}

/// What a set has of a range; a file has many of these.
fn overlap(set: &PageSet, range: PageRange) -> impl Iterator<Item = PageRange> {
    let first = set.ranges().partition_point(|it| it.end <= range.start);
    let rest = set.ranges()[first..].iter();
    rest.take_while(move |it| it.start < range.end)
        .map(move |it| PageRange {
            start: it.start.max(range.start),
            end: it.end.min(range.end),
        })
}

/// The entry's name below a directory. A path through an overlay comes first: the path within a layer is the
/// same.
fn below<'a>(entry: &'a Entry, root: &FilePath) -> Option<&'a [u8]> {
    let root = root.as_bytes().strip_suffix(b"/").unwrap_or(root.as_bytes());
    let paths = entry.overlay.iter().chain([&entry.path]);
    paths
        .filter_map(|path| path.as_bytes().strip_prefix(root)?.strip_prefix(b"/"))
        .find(|name| !name.is_empty())
}

fn first_use_ns(entry: &Entry, threshold: f32) -> u64 {
    let used = entry.all_ranges().filter(|range| range.weight >= threshold);
    used.map(|range| range.first_use_ns)
        .min()
        .unwrap_or(entry.first_use_ns)
}
