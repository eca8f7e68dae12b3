//! Large pieces of files in parts, by when they are needed.
//!
//! A library of 65 MB lies in one piece, and a start needs a part of it at once and the rest over a second.
//! As one request all of it comes before what another file is needed for in between, and in the order of the
//! file. Where the order of reads costs nothing, each part has a need of its own; where requests cost, those
//! that lie together and are needed at nearly the same time become one again ([`crate::neighbours`]).

use crate::request::{Piece, first_use};
use headstart_model::profile::Entry;
use headstart_model::{PageRange, PageSet};

/// Bytes of a part. At 120 MB/s they take a millisecond, and of a request at a time many are in flight.
const PART: u64 = 128 << 10;
/// About as many parts are made of anything at most: the larger it is, the larger its parts.
const MOST: u64 = 4096;
/// What is needed within this time, microseconds, is needed at once. A profile does not tell finer times
/// apart.
pub(crate) const AT_ONCE_US: u32 = 10_000;
const AT_ONCE: u64 = AT_ONCE_US as u64 * 1000;

/// The bytes of a part of so many.
pub(crate) fn part(bytes: u64) -> u64 {
    PART.max(bytes / MOST)
}

/// The parts of a piece, in the file's order: of what is needed at once one. `wanted` are the pages that are
/// needed, in order; `unit` are the bytes of which no part is asked for.
pub(crate) fn parts(piece: Piece, wanted: &PageSet, entry: &Entry, page: u64, unit: u64) -> Vec<Piece> {
    let step = part(piece.end - piece.start).next_multiple_of(unit.max(1));
    let mut parts: Vec<Piece> = Vec::new();
    let mut need = None;
    let mut from = piece.start;
    while from < piece.end {
        let to = ((from / step + 1) * step).min(piece.end);
        let pages = PageRange {
            start: from / page,
            end: to.div_ceil(page),
        };
        let needed = pages_in(wanted, pages);
        let (first, stage) = first_use(entry, pages, None);
        let bridged = (pages.pages() - needed) * page;
        let joins = |(at, of): (u64, u16)| needed == 0 || (of == stage && at.abs_diff(first) <= AT_ONCE);
        match parts.last_mut() {
            Some(last) if need.is_some_and(joins) => {
                last.end = to;
                last.bridged += bridged;
            }
            _ => {
                need = Some((first, stage));
                parts.push(Piece {
                    start: from,
                    end: to,
                    physical: piece.physical.map(|at| at + (from - piece.start)),
                    bridged,
                });
            }
        }
        from = to;
    }
    parts
}

/// How many pages of the set lie in these.
pub(crate) fn pages_in(set: &PageSet, pages: PageRange) -> u64 {
    let ranges = set.ranges();
    let first = ranges.partition_point(|range| range.end <= pages.start);
    let within = ranges[first..].iter().take_while(|range| range.start < pages.end);
    within
        .map(|range| range.end.min(pages.end) - range.start.max(pages.start))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{PAGE, data, entry, facts, flash, make, profile};
    use headstart_model::machine::DeviceClass;
    use proptest::prelude::*;

    /// One that is needed at once, then after 300 ms, and one of which a page is needed in between.
    fn two_files() -> (Vec<Entry>, Vec<headstart_model::machine::FileFacts>) {
        let entries = vec![
            entry("/m/large", &[(0, 64, 0), (64, 64, 2), (128, 128, 300)]),
            entry("/m/small", &[(0, 1, 100)]),
        ];
        let files = vec![
            facts("/m/large", &[(0, 1000, 1000)], &[]),
            facts("/m/small", &[(0, 500, 1000)], &[]),
        ];
        (entries, files)
    }

    #[test]
    fn what_is_needed_later_of_a_file_comes_after_what_others_are_needed_for() {
        let (entries, files) = two_files();
        let draft = make(&profile(entries), &flash(files));
        let order = data(&draft);
        let row = |(path, start, pages): &(String, u64, u64)| (path.clone(), *start, *pages);
        assert_eq!(
            order.iter().map(row).collect::<Vec<_>>(),
            [
                ("/m/large".into(), 0, 128),
                ("/m/small".into(), 0, 1),
                ("/m/large".into(), 128, 128)
            ]
        );
    }

    #[test]
    fn a_disk_reads_it_in_one_piece() {
        let (entries, files) = two_files();
        let mut machine = flash(files);
        machine.devices[0].cost.class = DeviceClass::Disk;
        let order = data(&make(&profile(entries), &machine));
        assert_eq!(order.len(), 2, "{order:?}");
    }

    proptest! {
        #[test]
        fn parts_are_the_piece_and_keep_count_of_what_is_bridged(
            ranges in prop::collection::btree_map(0u64..400, 0u64..400, 1..40),
            cut in 0u64..PAGE,
        ) {
            // Every other one a hole.
            let starts: Vec<(u64, u64)> = ranges.into_iter().collect();
            let ranges: Vec<(u64, u32, u64)> = starts
                .windows(2)
                .step_by(2)
                .map(|two| (two[0].0, (two[1].0 - two[0].0) as u32, two[0].1))
                .collect();
            prop_assume!(!ranges.is_empty());
            let entry = entry("/m/a", &ranges);
            let wanted = entry.pages(0.5);
            let (first, last) = (wanted.ranges()[0].start, wanted.ranges().last().unwrap().end);
            let piece = |start, end, bridged| Piece { start, end, physical: Some(7 * PAGE + start), bridged };
            let bridged = (last - first - wanted.pages()) * PAGE;
            let parts = parts(piece(first * PAGE, last * PAGE - cut, bridged), &wanted, &entry, PAGE, PAGE);
            prop_assert_eq!(parts[0].start, first * PAGE);
            prop_assert_eq!(parts.last().unwrap().end, last * PAGE - cut);
            for two in parts.windows(2) {
                prop_assert_eq!(two[0].end, two[1].start);
                prop_assert_eq!(two[1].start % PART, 0);
            }
            for part in &parts {
                prop_assert_eq!(part.physical, Some(7 * PAGE + part.start));
            }
            prop_assert_eq!(parts.iter().map(|part| part.bridged).sum::<u64>(), bridged);
        }
    }
}
