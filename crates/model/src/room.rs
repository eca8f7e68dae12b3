//! How much memory a replay may fill: one rule, for plans, for boots and for the moment of a replay.
//!
//! A replay that fills memory makes the kernel reclaim what others use, or what the replay itself has just
//! read. So it leaves [`RESERVE`] in any case, and of what a running machine has available beyond that it
//! takes half: what a start reads it also works on, and its own memory comes from the same. Reasons:
//! `docs/decisions/0040-memory.md`.

/// Memory that is left to others, bytes: what a small program needs to start at all. With less available
/// only metadata is read, with less than half of it nothing.
pub const RESERVE: u64 = 64 << 20;
/// The share of the rest that a replay may fill on a machine that runs.
pub const SHARE: f64 = 0.5;
/// One part of so many of what is available beyond half the reserve may be filled with metadata.
const METADATA: u64 = 4;

/// How much a replay may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Nothing.
    Nothing,
    /// So many bytes, of metadata only: a few MiB of it spare more reads than any data of that size.
    Metadata(u64),
    /// So many bytes.
    All(u64),
}

impl Room {
    /// That of a machine or control group with `available` bytes, `reserve` of which are left to others, and
    /// `share` (0 to 1) of the rest may be filled.
    pub fn new(available: u64, reserve: u64, share: f64) -> Room {
        let half = reserve / 2;
        let metadata = (available.saturating_sub(half) / METADATA).min(half / METADATA);
        match available.checked_sub(reserve) {
            None if available < half => Room::Nothing,
            None => Room::Metadata(metadata),
            Some(rest) => Room::All(((rest as f64 * share) as u64).max(metadata)),
        }
    }

    /// How many bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Room::Nothing => 0,
            Room::Metadata(bytes) | Room::All(bytes) => bytes,
        }
    }

    /// The same, with so many bytes at most.
    pub fn at_most(self, most: u64) -> Room {
        match self {
            Room::Nothing => Room::Nothing,
            Room::Metadata(bytes) => Room::Metadata(bytes.min(most)),
            Room::All(bytes) => Room::All(bytes.min(most)),
        }
    }
}

/// What a program's next plan may fill: as much as a replay may now, and no more than leaves what its starts
/// `needed` for themselves, bytes, where that is known.
pub fn for_program(available: u64, needed: Option<u64>) -> u64 {
    let left = available.saturating_sub(needed.unwrap_or(0));
    let room = Room::new(left, RESERVE, 1.0).bytes();
    Room::new(available, RESERVE, SHARE).bytes().min(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn little_memory_has_room_for_metadata_and_less_for_nothing() {
        let room = |mib: u64| Room::new(mib * MIB, RESERVE, SHARE);
        assert_eq!((room(0), room(31)), (Room::Nothing, Room::Nothing));
        assert_eq!((room(32), room(40)), (Room::Metadata(0), Room::Metadata(2 * MIB)));
        assert_eq!((room(64), room(70)), (Room::All(8 * MIB), Room::All(8 * MIB)));
        assert_eq!(
            (room(96), room(1088)),
            (Room::All(16 * MIB), Room::All(512 * MIB))
        );
        assert_eq!(Room::new(100, 0, 1.0), Room::All(100));
        assert_eq!(
            Room::new(u64::MAX - 1, u64::MAX, SHARE).at_most(7),
            Room::Metadata(7)
        );
    }

    #[test]
    fn more_memory_never_has_less_room() {
        let bytes = |mib: u64| Room::new(mib * MIB, RESERVE, SHARE).bytes();
        assert!((0..2000).all(|mib| bytes(mib) <= bytes(mib + 1)));
        // The most that anybody else takes is 90 % of what is available.
        assert!((0..20_000).all(|mib| bytes(mib) <= mib * MIB / 2));
    }

    #[test]
    fn a_plan_leaves_what_its_starts_need() {
        assert_eq!(for_program(1088 * MIB, None), 512 * MIB);
        assert_eq!(for_program(1088 * MIB, Some(100 * MIB)), 512 * MIB);
        assert_eq!(for_program(1088 * MIB, Some(900 * MIB)), 124 * MIB);
        assert_eq!(for_program(1088 * MIB, Some(5000 * MIB)), 0);
    }
}
