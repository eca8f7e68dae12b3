//! Which pages of the files have been used already.

use crate::limits::CHUNKS;
use headstart_model::trace::UseKind;
use std::collections::HashMap;

/// Pages that have been used, apart by how sure that is.
#[derive(Default)]
pub(super) struct PageSets {
    /// By file and number of the 64-page chunk: the pages used somehow, and those used exactly. One table for
    /// all files: an attacker's thousands of files of one page each take no more room than one file.
    chunks: HashMap<(u32, u64), Chunk>,
}

#[derive(Clone, Copy, Default)]
struct Chunk {
    any: u64,
    exact: u64,
}

/// What a use brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Added {
    /// Pages that were not used before.
    pub first_uses: u64,
    /// Whether all of it could be noted; else there is no more room ([`CHUNKS`]).
    pub whole: bool,
}

impl PageSets {
    /// How many parts of files are told apart so far; there are [`CHUNKS`] at most.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Notes a use of pages `start..=last` of a file and calls `fresh(start, pages)` for each run of them for
    /// which it says something new: the page was not used before, or this use is exact and none before was.
    pub(super) fn add(
        &mut self,
        file: u32,
        kind: UseKind,
        start: u64,
        last: u64,
        mut fresh: impl FnMut(u64, u32),
    ) -> Added {
        let exact = matches!(kind, UseKind::Read | UseKind::Fault);
        let mut run: Option<(u64, u32)> = None;
        let mut added = Added {
            first_uses: 0,
            whole: true,
        };
        for chunk in start / 64..=last / 64 {
            let from = if chunk == start / 64 { start % 64 } else { 0 };
            let to = if chunk == last / 64 { last % 64 } else { 63 };
            let asked = (u64::MAX >> (63 - (to - from))) << from;
            if self.chunks.len() >= CHUNKS && !self.chunks.contains_key(&(file, chunk)) {
                added.whole = false;
                break;
            }
            let entry = self.chunks.entry((file, chunk)).or_default();
            let mut new = asked & if exact { !entry.exact } else { !entry.any };
            added.first_uses += u64::from((asked & !entry.any).count_ones());
            entry.any |= asked;
            if exact {
                entry.exact |= asked;
            }
            while new != 0 {
                let bit = new.trailing_zeros();
                let length = (!(new >> bit)).trailing_zeros().min(64 - bit);
                new &= !((u64::MAX >> (64 - length)) << bit);
                let page = chunk * 64 + u64::from(bit);
                run = match run {
                    Some((begun, pages)) if begun + u64::from(pages) == page => Some((begun, pages + length)),
                    Some((begun, pages)) => {
                        fresh(begun, pages);
                        Some((page, length))
                    }
                    None => Some((page, length)),
                };
            }
        }
        if let Some((begun, pages)) = run {
            fresh(begun, pages);
        }
        added
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(sets: &mut PageSets, kind: UseKind, start: u64, last: u64) -> (Vec<(u64, u32)>, u64) {
        let mut runs = Vec::new();
        let added = sets.add(7, kind, start, last, |start, pages| runs.push((start, pages)));
        assert!(added.whole);
        (runs, added.first_uses)
    }

    #[test]
    fn only_what_is_new_is_told() {
        let mut sets = PageSets::default();
        assert_eq!(add(&mut sets, UseKind::Map, 48, 63), (vec![(48, 16)], 16));
        assert_eq!(add(&mut sets, UseKind::Map, 48, 63), (vec![], 0));
        assert_eq!(
            add(&mut sets, UseKind::Fault, 50, 50),
            (vec![(50, 1)], 0),
            "an exact use says more than a map"
        );
        assert_eq!(add(&mut sets, UseKind::Read, 49, 51), (vec![(49, 1), (51, 1)], 0));
        assert_eq!(
            add(&mut sets, UseKind::Map, 60, 200),
            (vec![(64, 137)], 137),
            "one run over chunks"
        );
        assert_eq!(add(&mut sets, UseKind::Read, 0, 0), (vec![(0, 1)], 1));
        let another = sets.add(8, UseKind::Read, 0, 0, |_, _| {});
        assert_eq!(another.first_uses, 1, "another file's page");
    }

    #[test]
    fn it_agrees_with_a_naive_set() {
        use std::collections::HashSet;
        let (mut any, mut exact) = (HashSet::new(), HashSet::new());
        let mut sets = PageSets::default();
        // A fixed sequence of a simple generator: the same ranges on every run.
        let mut state = 1u64;
        for _ in 0..2000 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let (start, pages) = ((state >> 33) % 500, 1 + (state >> 45) % 150);
            let kind = if state >> 60 < 8 {
                UseKind::Read
            } else {
                UseKind::Map
            };
            let known = if kind == UseKind::Read { &exact } else { &any };
            let wanted: Vec<u64> = (start..start + pages).filter(|p| !known.contains(p)).collect();
            let first = (start..start + pages).filter(|p| !any.contains(p)).count() as u64;
            let (runs, got_first) = add(&mut sets, kind, start, start + pages - 1);
            let got: Vec<u64> = runs.iter().flat_map(|(s, n)| *s..*s + u64::from(*n)).collect();
            assert_eq!((got, got_first), (wanted, first));
            any.extend(start..start + pages);
            if kind == UseKind::Read {
                exact.extend(start..start + pages);
            }
        }
    }

    #[test]
    fn a_file_of_any_size_takes_a_bounded_number_of_chunks() {
        let mut sets = PageSets::default();
        let all = CHUNKS as u64 * 64;
        assert!(sets.add(0, UseKind::Read, 0, all - 1, |_, _| {}).whole);
        let more = sets.add(0, UseKind::Read, all - 1, all, |_, _| {});
        assert_eq!((more.whole, more.first_uses), (false, 0));
        assert_eq!(sets.chunks.len(), CHUNKS);
    }
}
