//! Sets of pages as sorted ranges, and the algebra that learning and planning need.

use crate::sort::Sort;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Pages `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PageRange {
    /// First page.
    pub start: u64,
    /// The page after the last.
    pub end: u64,
}

impl PageRange {
    /// Pages `start` to `start + pages`, cut at the largest page number.
    pub fn new(start: u64, pages: u64) -> PageRange {
        PageRange {
            start,
            end: start.saturating_add(pages),
        }
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        self.end - self.start
    }
}

/// A set of pages: ranges in ascending order, none empty, none touching the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageSet {
    ranges: Vec<PageRange>,
}

/// A set of pages to which ranges are added one at a time, in any order, each as fast as the one before.
#[derive(Clone, Debug, Default)]
pub struct GrowingSet {
    /// The end of each range by its start; none empty, none touching the next.
    ends: BTreeMap<u64, u64>,
}

impl GrowingSet {
    /// Adds a range and returns the parts of it that were not yet in the set, ascending.
    pub fn insert(&mut self, range: PageRange) -> Vec<PageRange> {
        if range.start >= range.end {
            return Vec::new();
        }
        let mut merged = range;
        let mut fresh = Vec::new();
        // From the last to the first that overlap or touch it.
        let mut until = range.end;
        while let Some((&start, &end)) = self.ends.range(..=range.end).next_back() {
            if end < range.start {
                break;
            }
            if end < until {
                fresh.push(PageRange {
                    start: end,
                    end: until,
                });
            }
            until = until.min(start);
            merged.start = merged.start.min(start);
            merged.end = merged.end.max(end);
            self.ends.remove(&start);
        }
        if range.start < until {
            fresh.push(PageRange {
                start: range.start,
                end: until,
            });
        }
        fresh.reverse();
        self.ends.insert(merged.start, merged.end);
        fresh
    }

    /// Its pages.
    pub fn pages(&self) -> PageSet {
        let ranges = self.ends.iter();
        PageSet {
            ranges: ranges.map(|(&start, &end)| PageRange { start, end }).collect(),
        }
    }
}

impl FromIterator<PageRange> for PageSet {
    /// The union of ranges in any order; empty and inverted ones are ignored.
    fn from_iter<I: IntoIterator<Item = PageRange>>(ranges: I) -> PageSet {
        let mut sorted: Vec<PageRange> = ranges.into_iter().filter(|r| r.start < r.end).collect();
        sorted.sort_small();
        let mut set = PageSet::default();
        for range in sorted {
            set.append(range);
        }
        set
    }
}

impl PageSet {
    /// The set of no pages.
    pub fn new() -> PageSet {
        PageSet::default()
    }

    /// Its ranges, ascending.
    pub fn ranges(&self) -> &[PageRange] {
        &self.ranges
    }

    /// Number of pages.
    pub fn pages(&self) -> u64 {
        self.ranges.iter().map(PageRange::pages).sum()
    }

    /// Whether it has no page.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether `page` is in it.
    pub fn contains(&self, page: u64) -> bool {
        let after = self.ranges.partition_point(|r| r.start <= page);
        after > 0 && page < self.ranges[after - 1].end
    }

    /// Appends a range that does not begin before the last one.
    fn append(&mut self, range: PageRange) {
        match self.ranges.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => self.ranges.push(range),
        }
    }

    /// Pages of either set.
    #[inline(never)]
    pub fn union(&self, other: &PageSet) -> PageSet {
        at_least(&[self, other], 1)
    }

    /// Pages of both sets.
    #[inline(never)]
    pub fn intersection(&self, other: &PageSet) -> PageSet {
        at_least(&[self, other], 2)
    }

    /// Pages of this set that are not in `other`.
    #[inline(never)]
    pub fn difference(&self, other: &PageSet) -> PageSet {
        let mut result = PageSet::new();
        let mut cuts = other.ranges.iter().peekable();
        for range in &self.ranges {
            let mut from = range.start;
            while let Some(cut) = cuts.peek() {
                if cut.start >= range.end {
                    break;
                }
                if from < cut.start {
                    result.append(PageRange {
                        start: from,
                        end: cut.start,
                    });
                }
                from = from.max(cut.end);
                if cut.end > range.end {
                    break;
                }
                cuts.next();
            }
            if from < range.end {
                result.append(PageRange {
                    start: from,
                    end: range.end,
                });
            }
        }
        result
    }

    /// The set with every hole of at most `hole` pages filled.
    pub fn bridged(&self, hole: u64) -> PageSet {
        let mut result = PageSet::new();
        for range in &self.ranges {
            match result.ranges.last_mut() {
                Some(last) if range.start - last.end <= hole => last.end = range.end,
                _ => result.ranges.push(*range),
            }
        }
        result
    }
}

/// The pages that at least `k` of the sets hold: 1 is their union, `sets.len()` their intersection. None hold
/// for `k` of 0.
pub fn at_least(sets: &[&PageSet], k: usize) -> PageSet {
    let mut edges: Vec<(u64, bool)> =
        Vec::with_capacity(2 * sets.iter().map(|s| s.ranges.len()).sum::<usize>());
    for set in sets {
        for range in &set.ranges {
            edges.push((range.start, true));
            edges.push((range.end, false));
        }
    }
    // An end sorts before a start at the same page; `append` joins what touches.
    edges.sort_small();
    let mut result = PageSet::new();
    let (mut depth, mut since) = (0usize, 0);
    for (page, opens) in edges {
        let before = depth;
        depth = if opens { depth + 1 } else { depth - 1 };
        if k > 0 && before < k && depth >= k {
            since = page;
        } else if k > 0 && before >= k && depth < k && since < page {
            result.append(PageRange {
                start: since,
                end: page,
            });
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGES: u64 = 200;

    fn ranges() -> impl Strategy<Value = Vec<PageRange>> {
        prop::collection::vec((0..PAGES, 0..20u64), 0..20).prop_map(|v| {
            v.into_iter()
                .map(|(s, n)| PageRange {
                    start: s,
                    end: (s + n).min(PAGES),
                })
                .collect()
        })
    }

    fn bitmap(set: &PageSet) -> Vec<bool> {
        (0..PAGES)
            .map(|page| set.ranges.iter().any(|r| r.start <= page && page < r.end))
            .collect()
    }

    fn well_formed(set: &PageSet) -> bool {
        set.ranges.iter().all(|r| r.start < r.end) && set.ranges.windows(2).all(|w| w[0].end < w[1].start)
    }

    proptest! {
        #[test]
        fn algebra_agrees_with_bitmaps(a in ranges(), b in ranges(), c in ranges(), k in 0usize..5, hole in 0u64..8) {
            let naive = |ranges: &[PageRange]| -> Vec<bool> {
                (0..PAGES).map(|p| ranges.iter().any(|r| r.start <= p && p < r.end)).collect()
            };
            let (ma, mb, mc) = (naive(&a), naive(&b), naive(&c));
            let (a, b, c): (PageSet, PageSet, PageSet) =
                (a.into_iter().collect(), b.into_iter().collect(), c.into_iter().collect());
            prop_assert_eq!(bitmap(&a), ma.clone());
            let zip = |f: fn(bool, bool) -> bool| -> Vec<bool> {
                ma.iter().zip(&mb).map(|(x, y)| f(*x, *y)).collect()
            };
            prop_assert_eq!(bitmap(&a.union(&b)), zip(|x, y| x || y));
            prop_assert_eq!(bitmap(&a.intersection(&b)), zip(|x, y| x && y));
            prop_assert_eq!(bitmap(&a.difference(&b)), zip(|x, y| x && !y));
            let counted: Vec<bool> = (0..PAGES as usize)
                .map(|p| k > 0 && usize::from(ma[p]) + usize::from(mb[p]) + usize::from(mc[p]) >= k)
                .collect();
            let voted = at_least(&[&a, &b, &c], k);
            prop_assert_eq!(bitmap(&voted), counted);
            let total = ma.iter().filter(|x| **x).count();
            prop_assert_eq!(a.pages(), total as u64);
            for page in 0..PAGES {
                prop_assert_eq!(a.contains(page), ma[page as usize]);
            }
            let bridged = a.bridged(hole);
            let mut filled = ma.clone();
            let used: Vec<usize> = (0..PAGES as usize).filter(|p| ma[*p]).collect();
            for pair in used.windows(2) {
                if (pair[1] - pair[0] - 1) as u64 <= hole {
                    filled[pair[0]..pair[1]].fill(true);
                }
            }
            prop_assert_eq!(bitmap(&bridged), filled);
            for set in [&a, &voted, &bridged, &a.difference(&b)] {
                prop_assert!(well_formed(set), "{:?}", set);
            }
        }

        #[test]
        fn insert_reports_what_was_fresh(first in ranges(), range in (0..PAGES, 0..40u64)) {
            let before: PageSet = first.into_iter().collect();
            let added = PageRange { start: range.0, end: (range.0 + range.1).min(PAGES) };
            let mut set = GrowingSet::default();
            for range in before.ranges() {
                set.insert(*range);
            }
            let fresh: PageSet = set.insert(added).into_iter().collect();
            let only: PageSet = [added].into_iter().collect();
            prop_assert_eq!(fresh, only.difference(&before));
            let set = set.pages();
            prop_assert!(well_formed(&set));
            prop_assert_eq!(set, before.union(&only));
        }
    }
}
