//! Which bytes of a file move where: pieces that lie in one piece before and after, for the kernel moves one
//! extent a call.

use crate::room::Piece;
use headstart_model::machine::Extent;
use headstart_model::{PageRange, PageSet};

/// No more is moved by one call: who executes the file, or writes it, waits for its end.
const MOST_AT_ONCE: u64 = 4 << 20;

/// One extent, or the part of it that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// Offset in the file.
    pub start: u64,
    /// Which donor takes it.
    pub donor: usize,
    /// Offset in the donor.
    pub to: u64,
    /// Bytes.
    pub length: u64,
    /// Where it lies on the device then.
    pub physical: u64,
}

impl Move {
    /// So many bytes of it, from its start on, lie where it takes them, by the extents of the file.
    pub fn done(&self, extents: &[Extent]) -> u64 {
        let extent = extents.iter().find(|extent| {
            extent.logical <= self.start
                && self.start < extent.logical + extent.length
                && extent.physical + (self.start - extent.logical) == self.physical
        });
        extent.map_or(0, |extent| {
            (extent.logical + extent.length - self.start).min(self.length)
        })
    }
}

/// The extents of a file, which are in order, that have a part of a range.
fn of_range<'a>(extents: &'a [Extent], range: &PageRange) -> impl Iterator<Item = &'a Extent> {
    let first = extents.partition_point(|extent| extent.logical.saturating_add(extent.length) <= range.start);
    let end = range.end;
    extents[first..]
        .iter()
        .take_while(move |extent| extent.logical < end)
}

/// What of these ranges of a file of `size` bytes can be moved, by its extents: not the holes, and no page
/// that lies in two of them.
pub(crate) fn movable(ranges: &[PageRange], size: u64, extents: &[Extent], page: u64) -> Vec<PageRange> {
    let end_of_file = size.next_multiple_of(page);
    let mut parts = Vec::new();
    for range in ranges {
        for extent in of_range(extents, range) {
            let extent_end = extent.logical.saturating_add(extent.length);
            // The last block of a file may end before its last page does.
            let end = if extent_end >= size {
                end_of_file
            } else {
                extent_end / page * page
            };
            let start = range.start.max(extent.logical.next_multiple_of(page));
            let end = range.end.min(end);
            if start < end {
                parts.push(PageRange { start, end });
            }
        }
    }
    parts.into_iter().collect::<PageSet>().ranges().to_vec()
}

/// The moves of a file's `ranges`, which are [`movable`], by its extents, to the room from the order's offset
/// `from` on.
pub(crate) fn moves(ranges: &[PageRange], extents: &[Extent], room: &[Piece], from: u64) -> Vec<Move> {
    let mut moves = Vec::new();
    let mut base = from;
    for range in ranges {
        for extent in of_range(extents, range) {
            let extent_end = extent.logical.saturating_add(extent.length);
            let (start, end) = (range.start.max(extent.logical), range.end.min(extent_end));
            if start >= end {
                continue;
            }
            let (from, to) = (base + (start - range.start), base + (end - range.start));
            let first = room.partition_point(|piece| piece.end() <= from);
            for piece in room[first..].iter().take_while(|piece| piece.from < to) {
                let (mut from, to) = (from.max(piece.from), to.min(piece.end()));
                while from < to {
                    let length = (to - from).min(MOST_AT_ONCE);
                    moves.push(Move {
                        start: range.start + (from - base),
                        donor: piece.donor,
                        to: piece.at + (from - piece.from),
                        length,
                        physical: piece.physical + (from - piece.from),
                    });
                    from += length;
                }
            }
        }
        base += range.pages();
    }
    moves
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u64 = 1024;
    const PAGE: u64 = 4 * K;

    fn extent(logical: u64, physical: u64, length: u64) -> Extent {
        Extent {
            logical,
            physical,
            length,
        }
    }

    fn range(start: u64, end: u64) -> PageRange {
        PageRange { start, end }
    }

    /// A piece of the room, KiB: offset in the order, donor, offset in it, byte of the device, length.
    fn piece([from, donor, at, physical, length]: [u64; 5]) -> Piece {
        Piece {
            from: from * K,
            donor: donor as usize,
            at: at * K,
            physical: physical * K,
            length: length * K,
        }
    }

    /// Start, donor, offset in the donor, and length of each move of what can be moved, KiB.
    fn moves_of(
        ranges: &[PageRange],
        size: u64,
        extents: &[Extent],
        room: &[Piece],
        from: u64,
    ) -> Vec<[u64; 4]> {
        let moves = moves(&movable(ranges, size, extents, PAGE), extents, room, from);
        for part in &moves {
            let piece = room.iter().find(|piece| {
                piece.donor == part.donor && piece.at <= part.to && part.to < piece.at + piece.length
            });
            let piece = piece.expect("it goes to where there is room");
            assert!(part.to + part.length <= piece.at + piece.length);
            assert_eq!(part.physical, piece.physical + (part.to - piece.at));
        }
        moves
            .iter()
            .map(|part| [part.start / K, part.donor as u64, part.to / K, part.length / K])
            .collect()
    }

    #[test]
    fn a_file_in_one_piece_is_one_move() {
        let room = [piece([0, 0, 0, 500, 100])];
        let extents = [extent(0, 9 * K, 40 * K)];
        assert_eq!(
            moves_of(&[range(0, 40 * K)], 40 * K, &extents, &room, 0),
            [[0, 0, 0, 40]]
        );
        // Behind what was moved before it.
        assert_eq!(
            moves_of(&[range(0, 40 * K)], 40 * K, &extents, &room, 20 * K),
            [[0, 0, 20, 40]]
        );
        // Some of it, one range behind the other.
        let two = [range(4 * K, 8 * K), range(20 * K, 32 * K)];
        assert_eq!(
            moves_of(&two, 40 * K, &extents, &room, 20 * K),
            [[4, 0, 20, 4], [20, 0, 24, 12]]
        );
    }

    #[test]
    fn a_large_piece_is_several_moves_one_behind_the_other() {
        let room = [piece([0, 0, 0, 500, 10 << 10])];
        let extents = [extent(0, 9 * K, 10 << 20)];
        let moves = moves_of(&[range(0, 10 << 20)], 10 << 20, &extents, &room, 0);
        assert_eq!(
            moves,
            [[0, 0, 0, 4096], [4096, 0, 4096, 4096], [8192, 0, 8192, 2048]]
        );
    }

    #[test]
    fn a_hole_takes_no_room() {
        let room = [piece([0, 0, 0, 500, 100])];
        let extents = [extent(0, 9 * K, 8 * K), extent(16 * K, 60 * K, 8 * K)];
        assert_eq!(
            moves_of(&[range(0, 24 * K)], 24 * K, &extents, &room, 0),
            [[0, 0, 0, 8], [16, 0, 8, 8]]
        );
    }

    #[test]
    fn a_page_in_two_extents_stays() {
        // Blocks of 1 KiB: the second page begins in one extent and ends in the next.
        let room = [piece([0, 0, 0, 500, 100])];
        let extents = [extent(0, 9 * K, 5 * K), extent(5 * K, 60 * K, 11 * K)];
        assert_eq!(
            moves_of(&[range(0, 16 * K)], 16 * K, &extents, &room, 0),
            [[0, 0, 0, 4], [8, 0, 4, 8]]
        );
    }

    #[test]
    fn a_file_goes_on_in_the_next_piece_of_the_room() {
        let room = [piece([0, 1, 64, 500, 8]), piece([8, 0, 12, 700, 40])];
        let extents = [extent(0, 9 * K, 16 * K)];
        assert_eq!(
            moves_of(&[range(0, 16 * K)], 16 * K, &extents, &room, 0),
            [[0, 1, 64, 8], [8, 0, 12, 8]]
        );
        assert_eq!(
            moves_of(&[range(0, 16 * K)], 16 * K, &extents, &room, 4 * K),
            [[0, 1, 68, 4], [4, 0, 12, 12]]
        );
    }

    #[test]
    fn the_last_page_moves_with_the_blocks_that_it_has() {
        let room = [piece([0, 0, 0, 500, 100])];
        let extents = [extent(0, 9 * K, 5 * K)];
        assert_eq!(
            moves_of(&[range(0, 8 * K)], 5 * K - 100, &extents, &room, 0),
            [[0, 0, 0, 5]]
        );
    }

    #[test]
    fn as_much_is_done_as_lies_where_it_was_to() {
        let one = Move {
            start: 4 * K,
            donor: 0,
            to: 0,
            length: 12 * K,
            physical: 500 * K,
        };
        assert_eq!(one.done(&[extent(0, 9 * K, 16 * K)]), 0);
        // The first two pages of it.
        let part = [
            extent(0, 9 * K, 4 * K),
            extent(4 * K, 500 * K, 8 * K),
            extent(12 * K, 21 * K, 4 * K),
        ];
        assert_eq!(one.done(&part), 8 * K);
        // What lies before it may by chance have been there already.
        assert_eq!(one.done(&[extent(0, 496 * K, 40 * K)]), 12 * K);
        assert_eq!(one.done(&[extent(20 * K, 500 * K, 8 * K)]), 0);
    }
}
