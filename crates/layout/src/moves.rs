//! Which bytes of a file move where: pieces that lie in one piece before and after, for the kernel moves one extent a call.

use headstart_model::PageRange;
use headstart_model::machine::Extent;

/// One extent, or the part of it that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// Offset in the file.
    pub start: u64,
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
        let found = extents.iter().find(|extent| {
            extent.logical <= self.start
                && self.start < extent.logical + extent.length
                && extent.physical + (self.start - extent.logical) == self.physical
        });
        found.map_or(0, |extent| {
            (extent.logical + extent.length - self.start).min(self.length)
        })
    }
}

/// The moves of a file's `ranges` to the donor's offset `from` and after it, by the extents of a file of `size` bytes and those of the donor,
/// its `room`. A page that lies in two extents stays, as do holes; what is behind them keeps its place in the order.
pub(crate) fn moves(
    ranges: &[PageRange],
    size: u64,
    extents: &[Extent],
    room: &[Extent],
    from: u64,
    page: u64,
) -> Vec<Move> {
    let end_of_file = size.next_multiple_of(page);
    let mut moves = Vec::new();
    let mut base = from;
    for range in ranges {
        for extent in extents {
            let extent_end = extent.logical.saturating_add(extent.length);
            // The last block of a file may end before its last page does.
            let end = if extent_end >= size {
                end_of_file
            } else {
                extent_end / page * page
            };
            let part = PageRange {
                start: range.start.max(extent.logical.next_multiple_of(page)),
                end: range.end.min(end),
            };
            if part.start >= part.end {
                continue;
            }
            let to = base + (part.start - range.start);
            for piece in room {
                let start = to.max(piece.logical);
                let end = (to + part.pages()).min(piece.logical + piece.length);
                // Pieces of the room begin and end anywhere in a page where blocks are smaller.
                let (start, end) = (start.next_multiple_of(page), end / page * page);
                if start < end {
                    let in_file = part.start + (start - to);
                    let length = (end - start).min(extent_end.saturating_sub(in_file));
                    if length > 0 {
                        moves.push(Move {
                            start: in_file,
                            to: start,
                            length,
                            physical: piece.physical + (start - piece.logical),
                        });
                    }
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

    /// Start, offset in the donor, and length of each move, KiB.
    fn of(ranges: &[PageRange], size: u64, extents: &[Extent], room: &[Extent], from: u64) -> Vec<[u64; 3]> {
        let moves = moves(ranges, size, extents, room, from, PAGE);
        for one in &moves {
            let piece = room
                .iter()
                .find(|piece| piece.logical <= one.to && one.to < piece.logical + piece.length);
            let piece = piece.expect("it goes to where there is room");
            assert!(one.to + one.length <= piece.logical + piece.length.next_multiple_of(PAGE));
            assert_eq!(one.physical, piece.physical + (one.to - piece.logical));
        }
        moves
            .iter()
            .map(|one| [one.start / K, one.to / K, one.length / K])
            .collect()
    }

    #[test]
    fn a_file_in_one_piece_is_one_move() {
        let room = [extent(0, 500 * K, 100 * K)];
        let extents = [extent(0, 9 * K, 40 * K)];
        assert_eq!(of(&[range(0, 40 * K)], 40 * K, &extents, &room, 0), [[0, 0, 40]]);
        // Behind what was moved before it.
        assert_eq!(
            of(&[range(0, 40 * K)], 40 * K, &extents, &room, 20 * K),
            [[0, 20, 40]]
        );
        // Some of it, one range behind the other.
        let two = [range(4 * K, 8 * K), range(20 * K, 32 * K)];
        assert_eq!(
            of(&two, 40 * K, &extents, &room, 20 * K),
            [[4, 20, 4], [20, 24, 12]]
        );
    }

    #[test]
    fn what_is_behind_a_hole_keeps_its_place() {
        let room = [extent(0, 500 * K, 100 * K)];
        let extents = [extent(0, 9 * K, 8 * K), extent(16 * K, 60 * K, 8 * K)];
        assert_eq!(
            of(&[range(0, 24 * K)], 24 * K, &extents, &room, 0),
            [[0, 0, 8], [16, 16, 8]]
        );
    }

    #[test]
    fn a_page_in_two_extents_stays() {
        // Blocks of 1 KiB: the second page begins in one extent and ends in the next.
        let room = [extent(0, 500 * K, 100 * K)];
        let extents = [extent(0, 9 * K, 5 * K), extent(5 * K, 60 * K, 11 * K)];
        assert_eq!(
            of(&[range(0, 16 * K)], 16 * K, &extents, &room, 0),
            [[0, 0, 4], [8, 8, 8]]
        );
    }

    #[test]
    fn a_page_for_which_the_room_is_in_two_pieces_stays() {
        let room = [extent(0, 500 * K, 6 * K), extent(6 * K, 700 * K, 50 * K)];
        let extents = [extent(0, 9 * K, 16 * K)];
        assert_eq!(
            of(&[range(0, 16 * K)], 16 * K, &extents, &room, 0),
            [[0, 0, 4], [8, 8, 8]]
        );
        // And there is no more than there is.
        let room = [extent(0, 500 * K, 10 * K)];
        assert_eq!(of(&[range(0, 16 * K)], 16 * K, &extents, &room, 0), [[0, 0, 8]]);
    }

    #[test]
    fn the_last_page_moves_with_the_blocks_that_it_has() {
        let room = [extent(0, 500 * K, 100 * K)];
        let extents = [extent(0, 9 * K, 5 * K)];
        assert_eq!(
            of(&[range(0, 8 * K)], 5 * K - 100, &extents, &room, 0),
            [[0, 0, 5]]
        );
    }

    #[test]
    fn as_much_is_done_as_lies_where_it_was_to() {
        let one = Move {
            start: 4 * K,
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
