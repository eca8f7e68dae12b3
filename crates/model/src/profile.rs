//! What a key needs: by path, never by block address, so that a profile can serve another machine.

use crate::{FilePath, Key, PageRange, PageSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// What a key needs, learned from its last runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Whose needs.
    pub key: Key,
    /// Bytes of a page.
    pub page_size: u32,
    /// Number of runs learned from.
    pub runs: u32,
    /// Sum of the runs' votes after their decay: the weight a page seen in every run has before normalising.
    pub mass: f64,
    /// CPU time of a start, the mean of the last runs: what remains of it when no read has to be waited for.
    /// `None` where no run told.
    pub cpu_ns: Option<u64>,
    /// How long the start took whose times the entries have: the fastest of late, which waited least for
    /// reads.
    pub timeline_ns: u64,
    /// How much of that its threads, added up, waited for block devices, not more than all of it. So much
    /// sooner it may need what it needs where nothing has to be waited for. Without a record of it, what it
    /// took beyond its CPU time.
    pub waited_ns: u64,
    /// When it last learned, nanoseconds since 1970.
    pub updated_unix_ns: u64,
    /// Number of runs when it last learned from one that told of nearly each mapped page whether it was
    /// touched, or was to; 0 where it never did.
    pub exact_at: u32,
    /// How runs are merged, and so which weights count.
    pub policy: Policy,
    /// Names of the stages, in order; entries refer to them by index.
    pub stages: Vec<String>,
    /// Entries, ordered by path, each path once.
    pub entries: Vec<Entry>,
    /// Of entries that arguments have named, by path: the share of the votes of runs that have used and named
    /// them, 0 to 1.
    pub named: BTreeMap<FilePath, f32>,
}

/// With less than this share of the votes there are no runs to speak of.
const HARDLY_ANY: f32 = 0.06;

impl Profile {
    /// One that has learned nothing yet.
    pub fn new(key: Key, page_size: u32, policy: Policy) -> Profile {
        Profile {
            key,
            page_size,
            runs: 0,
            mass: 0.0,
            cpu_ns: None,
            timeline_ns: 0,
            waited_ns: 0,
            updated_unix_ns: 0,
            exact_at: 0,
            policy,
            stages: vec!["start".into()],
            entries: Vec::new(),
            named: BTreeMap::new(),
        }
    }

    /// Whether an entry is only for starts whose arguments name it: of the runs that did not name it most
    /// have not used it, or there was none.
    pub fn is_only_named(&self, entry: &Entry) -> bool {
        let Some(named) = self.named.get(&entry.path) else {
            return false;
        };
        let others = 1.0 - named;
        others < HARDLY_ANY || entry.weight - named < MAJORITY * others
    }
}

/// One path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Absolute path.
    pub path: FilePath,
    /// The same file through an overlay, where there is one; tried when `path` leads nowhere.
    pub overlay: Option<FilePath>,
    /// What of it is needed besides its pages.
    pub need: Need,
    /// Share of the votes it had, 0 to 1.
    pub weight: f32,
    /// When it is first needed.
    pub first_use_ns: u64,
    /// Index into [`Profile::stages`].
    pub stage: u16,
    /// The file whose pages are meant; `None` where only the path is needed.
    pub version: Option<Version>,
    /// Its pages, ascending and disjoint.
    pub ranges: Vec<WeightedRange>,
    /// Of a file that was seen to change in place (a log, a database): its last [`TAIL_PAGES`] pages once
    /// more, counted from its end, where 0 is the last page. `None` for other files.
    pub tail: Option<Vec<WeightedRange>>,
    /// Which of its pages were touched, as far as runs told of this version of the file; `None` where none
    /// did.
    pub touches: Option<Touches>,
}

/// Which pages of the windows that the kernel may map at once were touched, as far as that could be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Touches {
    /// Touched or read in some run.
    pub touched: PageSet,
    /// Not touched in one run that could tell, nor in any other.
    pub once: PageSet,
    /// Not touched in two runs or more that could tell, nor in any other: they are not needed.
    pub unused: PageSet,
}

/// How far from a file's end pages are counted from there: what a start reads of the end of a file that grows
/// (the last lines of a log, the newest records) is 256 KiB at most, and a user's file gains no more by
/// growing.
pub const TAIL_PAGES: u64 = 64;

/// Which file was at a path when its pages were learned, and as of when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Size in bytes.
    pub size: u64,
    /// Modification time, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Inode generation, 0 where unknown.
    pub generation: u32,
}

impl Version {
    /// Whether both are of one file, which may have grown or been written in between. Without generations
    /// only a file that did not change is known to be the same.
    pub fn same_file(&self, other: &Version) -> bool {
        self == other || (self.generation == other.generation && self.generation != 0)
    }
}

/// What is needed of a path besides its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Need {
    /// It is looked up and was not there: the directory must be known.
    Missing,
    /// Its inode.
    Stat,
    /// What it holds: all entries of a directory; where a symbolic link points, which is not followed.
    List,
    /// It is opened.
    Open,
}

/// Pages with a common weight and time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WeightedRange {
    /// First page.
    pub start: u64,
    /// Number of pages.
    pub pages: u32,
    /// Share of the votes, 0 to 1.
    pub weight: f32,
    /// When they are first needed.
    pub first_use_ns: u64,
    /// Index into [`Profile::stages`].
    pub stage: u16,
}

impl WeightedRange {
    /// The pages without their weight.
    pub fn range(&self) -> PageRange {
        PageRange::new(self.start, u64::from(self.pages))
    }
}

/// How runs are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// Votes that lose half their weight in [`HALF_LIFE_RUNS`] runs; a majority is needed.
    Decay,
    /// Every page of any run.
    Union,
    /// The pages of every run.
    Intersection,
    /// The pages of at least `k` of the last `n` runs.
    KOfN {
        /// Votes needed.
        k: u16,
        /// Runs that vote.
        n: u16,
    },
    /// As [`Policy::Decay`], but [`MINORITY`] is enough: a boot has time to read what one boot in three
    /// needs.
    Boot,
}

/// Runs after which a vote counts half. Three: with it a single odd run among three or more neither adds nor
/// removes, and a change that stays wins after three runs.
pub const HALF_LIFE_RUNS: f64 = 3.0;

/// The least weight of what a plan takes up from a profile learned by decay.
pub const MAJORITY: f32 = 0.5;

/// The least weight of what a boot's plan takes up. With the half-life of three runs two boots with something
/// new reach 0.37 and one alone 0.21; six without something old leave 0.25: what is new is followed within
/// two boots, what is gone is forgotten within six, and a single odd boot changes nothing.
pub const MINORITY: f32 = 0.3;

impl Policy {
    /// The least weight of what a plan takes up.
    pub fn threshold(&self) -> f32 {
        match self {
            Policy::Decay => MAJORITY,
            Policy::Boot => MINORITY,
            Policy::Union => 0.0,
            Policy::Intersection => 1.0,
            // Half a vote of slack: weights are rounded.
            Policy::KOfN { k, n } => (f32::from(*k) - 0.5) / f32::from((*n).max(1)),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Decay => f.write_str("decay"),
            Policy::Boot => f.write_str("boot"),
            Policy::Union => f.write_str("union"),
            Policy::Intersection => f.write_str("intersection"),
            Policy::KOfN { k, n } => write!(f, "{k}/{n}"),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        let bad = || {
            format!(
                "{text:?} is no policy: use decay, boot, union, intersection or K/N with 1 <= K <= N, such as 2/3"
            )
        };
        match text {
            "decay" => Ok(Policy::Decay),
            "boot" => Ok(Policy::Boot),
            "union" => Ok(Policy::Union),
            "intersection" => Ok(Policy::Intersection),
            _ => {
                let (k, n) = text.split_once('/').ok_or_else(bad)?;
                let (k, n): (u16, u16) = (k.parse().map_err(|_| bad())?, n.parse().map_err(|_| bad())?);
                if k == 0 || k > n {
                    Err(bad())
                } else {
                    Ok(Policy::KOfN { k, n })
                }
            }
        }
    }
}

impl Entry {
    /// All of a file, as it is in this version, for who opens and reads it `first_use_ns` after the start's
    /// first instant.
    pub fn whole(path: FilePath, version: Version, page_size: u32, first_use_ns: u64) -> Entry {
        let pages = version.size.div_ceil(u64::from(page_size));
        Entry {
            path,
            overlay: None,
            need: Need::Open,
            weight: 1.0,
            first_use_ns,
            stage: 0,
            version: Some(version),
            ranges: vec![WeightedRange {
                start: 0,
                pages: u32::try_from(pages).unwrap_or(u32::MAX),
                weight: 1.0,
                first_use_ns,
                stage: 0,
            }],
            tail: None,
            touches: None,
        }
    }

    /// The pages with at least the given weight, counted from the beginning, without those that are known not
    /// to be needed.
    pub fn pages(&self, threshold: f32) -> PageSet {
        let voted = self.voted(threshold);
        match &self.touches {
            Some(touches) => voted.difference(&touches.unused),
            None => voted,
        }
    }

    /// The pages with at least the given weight, counted from the beginning, with all that the kernel may map
    /// with a touched one.
    #[inline(never)]
    pub fn voted(&self, threshold: f32) -> PageSet {
        self.ranges
            .iter()
            .filter(|r| r.weight >= threshold)
            .map(WeightedRange::range)
            .collect()
    }

    /// All ranges: those counted from the beginning, and those counted from the end.
    pub fn all_ranges(&self) -> impl Iterator<Item = &WeightedRange> {
        self.ranges.iter().chain(self.tail.iter().flatten())
    }

    /// [`Entry::all_ranges`], to change them.
    pub fn all_ranges_mut(&mut self) -> impl Iterator<Item = &mut WeightedRange> {
        self.ranges.iter_mut().chain(self.tail.iter_mut().flatten())
    }

    /// The pages with at least the given weight that are counted from the end, where a file of so many pages
    /// has them.
    pub fn last_pages(&self, threshold: f32, end: u64) -> PageSet {
        self.tail
            .iter()
            .flatten()
            .filter(|r| r.weight >= threshold)
            .map(|r| from_end(r.range(), end))
            .filter(|r| r.start < r.end)
            .collect()
    }
}

/// Pages counted from the end of a file of `end` pages as pages counted from its beginning, and the other way
/// round. What lies before the beginning is left out, and so may be all.
pub fn from_end(pages: PageRange, end: u64) -> PageRange {
    PageRange {
        start: end.saturating_sub(pages.end),
        end: end.saturating_sub(pages.start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_read_and_print() {
        for text in ["decay", "boot", "union", "intersection", "2/3"] {
            assert_eq!(
                text.parse::<Policy>().map(|p| p.to_string()),
                Ok(text.to_string())
            );
        }
        for text in ["", "0/3", "4/3", "x/y", "majority", "70000/70001"] {
            assert!(text.parse::<Policy>().is_err_and(|e| e.contains("2/3")), "{text}");
        }
    }

    #[test]
    fn pages_from_the_end_are_where_the_file_has_its_end() {
        let range = |start, end| PageRange { start, end };
        assert_eq!(from_end(range(0, 1), 10), range(9, 10));
        assert_eq!(from_end(range(2, 5), 10), range(5, 8));
        assert_eq!(from_end(range(8, 12), 10), range(0, 2));
        assert_eq!(from_end(range(10, 12), 10), range(0, 0));
        assert_eq!(from_end(from_end(range(3, 7), 9), 9), range(3, 7));
    }

    #[test]
    fn a_file_that_grew_is_the_same_and_one_of_another_generation_is_not() {
        let version = |size, mtime_ns, generation| Version {
            size,
            mtime_ns,
            generation,
        };
        assert!(version(1, 2, 3).same_file(&version(4, 5, 3)));
        assert!(!version(1, 2, 3).same_file(&version(1, 2, 4)));
        assert!(version(1, 2, 0).same_file(&version(1, 2, 0)));
        assert!(!version(1, 2, 0).same_file(&version(4, 2, 0)), "unknown");
    }
}
