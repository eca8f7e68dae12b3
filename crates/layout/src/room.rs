//! The room that files are moved to. No kind of file system lets one say where room is to be; so more is
//! taken than is needed, the best of it is kept, and the rest given back. No knob of the file system is
//! changed (decision 15).

use crate::moving::donor::Donor;
use crate::moving::volume::Volume;
use crate::pace::Halt;
use headstart_model::machine::Extent;
use std::io;

/// So often room is taken: as much as is needed, as much again, then twice and four times as much.
const TIMES: [u64; 4] = [1, 1, 2, 4];
/// Bytes that are written before it is looked whether that is to go on.
const WRITTEN_AT_ONCE: u64 = 4 << 20;

/// A run of free bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Offset in the order.
    pub from: u64,
    /// Which donor has it.
    pub donor: usize,
    /// Offset in the donor.
    pub at: u64,
    /// Where it is on the device.
    pub physical: u64,
    /// Bytes, whole pages.
    pub length: u64,
}

impl Piece {
    /// The offset in the order behind it.
    pub fn end(&self) -> u64 {
        self.from + self.length
    }
}

/// Writes so many bytes somewhere on the volume, and gives them back: so much room there is below, for what
/// the file system notes of itself while files move.
pub(crate) fn probe(volume: &Volume, bytes: u64) -> Result<(), Halt> {
    if bytes == 0 {
        return Ok(());
    }
    let donor = volume.donor(bytes)?;
    let written = donor.write(0, bytes);
    let places = donor.places();
    donor.discard(volume);
    drop(donor);
    give_back(volume, &places);
    written.map_err(|error| no_space_below(&error).into())
}

/// What was free room of the file system is free again, and is not kept below.
fn give_back(volume: &Volume, places: &[Extent]) {
    if volume.sync().is_ok() {
        volume.trim(places);
    }
}

fn no_space_below(error: &io::Error) -> anyhow::Error {
    anyhow::anyhow!("its room cannot be written, as where what it lies on is full: {error}")
}

/// Free room that was taken, more than is needed.
pub(crate) struct Free {
    donors: Vec<Donor>,
    /// By address.
    pieces: Vec<Piece>,
}

impl Free {
    /// Takes room for `need` bytes, whole pages, and more of it, `most` bytes in all, until `is_good` says
    /// that the best of it is.
    pub fn take(
        volume: &Volume,
        need: u64,
        most: u64,
        page: u64,
        is_good: &dyn Fn(&Free) -> bool,
    ) -> io::Result<Free> {
        let mut free = Free {
            donors: Vec::new(),
            pieces: Vec::new(),
        };
        let mut left = most;
        for times in TIMES {
            let bytes = need.saturating_mul(times).min(left) / page * page;
            // A last small piece of what is free is what others would take next.
            if bytes < need / 4 || bytes == 0 {
                break;
            }
            left -= bytes;
            match volume.donor(bytes) {
                Ok(donor) => {
                    free.pieces.extend(pieces(&donor, free.donors.len(), page));
                    free.donors.push(donor);
                }
                // Others write, too.
                Err(_) if !free.pieces.is_empty() => break,
                Err(error) => return Err(error),
            }
            free.pieces.sort_unstable_by_key(|piece| piece.physical);
            if is_good(&free) {
                break;
            }
        }
        Ok(free)
    }

    /// The best room in it for `need` bytes, whole pages, as places in the order; empty if there is too
    /// little: with blocks smaller than a page what was taken may have too few whole pages. `time` says how
    /// long reading takes from pieces of it by the cost model.
    pub fn best(&self, need: u64, page: u64, time: &dyn Fn(&[Extent]) -> u64) -> Vec<Piece> {
        choose(&self.pieces, need, page, time)
    }

    /// Keeps these pieces, and gives back the rest.
    pub fn keep(self, volume: &Volume, pieces: Vec<Piece>) -> io::Result<Room> {
        let room = Room {
            donors: self.donors,
            pieces,
        };
        room.done(volume, &self.pieces)
    }
}

/// Room for an order.
pub(crate) struct Room {
    pub donors: Vec<Donor>,
    /// One behind the other in the order; by address, or where donors are filled in order by donor and
    /// offset.
    pub pieces: Vec<Piece>,
}

impl Room {
    /// Takes room wherever it is, but not where `taboo` says of a place and its length.
    pub fn elsewhere(
        volume: &Volume,
        need: u64,
        page: u64,
        taboo: &dyn Fn(u64, u64) -> bool,
    ) -> io::Result<Room> {
        // Beside what may be of no use, there is to be enough.
        let donor = volume.donor(need * 2)?;
        let mut free = pieces(&donor, 0, page);
        let pieces = free.clone();
        free.retain(|piece| !taboo(piece.physical, piece.length));
        free.sort_unstable_by_key(|piece| piece.physical);
        let room = Room {
            donors: vec![donor],
            pieces: fewest(&free, need).ok_or(io::ErrorKind::StorageFull)?,
        };
        room.done(volume, &pieces)
    }

    /// What was chosen of all that is `free`, to be filled as the volume wants it.
    fn done(mut self, volume: &Volume, free: &[Piece]) -> io::Result<Room> {
        self.give_back(free)?;
        if volume.fills_in_order() {
            self.pieces = by_donor(self.pieces);
        }
        Ok(self)
    }

    /// Has it written, as far as it was chosen and the volume lets it be written before; `tell` hears how
    /// many bytes more are, and may end it.
    pub fn write(&self, volume: &Volume, tell: &mut dyn FnMut(u64) -> Result<(), Halt>) -> Result<(), Halt> {
        // Elsewhere each move writes what it exchanges, and no more.
        if volume.fills_in_order() {
            return Ok(());
        }
        for piece in &self.pieces {
            let mut done = 0;
            while done < piece.length {
                let part = (piece.length - done).min(WRITTEN_AT_ONCE);
                let written = self.donors[piece.donor].write(piece.at + done, part);
                written.map_err(|error| no_space_below(&error))?;
                done += part;
                tell(part)?;
            }
        }
        Ok(())
    }

    /// Gives it back with nothing exchanged, where what lies below may be full.
    pub fn undo(self, volume: &Volume) {
        self.donors.iter().for_each(|donor| donor.discard(volume));
        self.end(volume);
    }

    /// Gives back all that it has by now, to what lies below as well.
    pub fn end(self, volume: &Volume) {
        let places: Vec<Extent> = self.donors.iter().flat_map(Donor::places).collect();
        drop(self);
        give_back(volume, &places);
    }

    /// Where it is, by offset in the order.
    pub fn extents(&self) -> Vec<Extent> {
        extents(&self.pieces)
    }

    /// Gives back what was not chosen.
    fn give_back(&self, free: &[Piece]) -> io::Result<()> {
        for (number, donor) in self.donors.iter().enumerate() {
            let mut chosen: Vec<_> = self
                .pieces
                .iter()
                .filter(|piece| piece.donor == number)
                .map(|piece| (piece.at, piece.at + piece.length))
                .collect();
            chosen.sort_unstable();
            let end = free.iter().filter(|piece| piece.donor == number);
            let end = end.map(|piece| piece.at + piece.length).max().unwrap_or(0);
            let mut from = 0;
            for (start, stop) in chosen.into_iter().chain([(end, end)]) {
                if from < start {
                    donor.release(from, start - from)?;
                }
                from = stop;
            }
        }
        Ok(())
    }
}

/// Pieces in the order of their offsets in the donors, one behind the other in the order of files.
fn by_donor(mut pieces: Vec<Piece>) -> Vec<Piece> {
    pieces.sort_unstable_by_key(|piece| (piece.donor, piece.at));
    let mut from = 0;
    for piece in &mut pieces {
        piece.from = from;
        from += piece.length;
    }
    pieces
}

/// Where pieces are, by offset in the order.
pub(crate) fn extents(pieces: &[Piece]) -> Vec<Extent> {
    let extent = |piece: &Piece| Extent {
        logical: piece.from,
        physical: piece.physical,
        length: piece.length,
    };
    pieces.iter().map(extent).collect()
}

/// The whole pages of a donor.
fn pieces(donor: &Donor, number: usize, page: u64) -> Vec<Piece> {
    let whole = |extent: &Extent| {
        let at = extent.logical.next_multiple_of(page);
        let end = (extent.logical + extent.length) / page * page;
        (at < end).then(|| Piece {
            from: 0,
            donor: number,
            at,
            physical: extent.physical + (at - extent.logical),
            length: end - at,
        })
    };
    donor.room().iter().filter_map(whole).collect()
}

/// Of what is free, by address, `need` bytes that are read soonest: of pieces of a size or more, for every
/// size, those that are fewest, and nearest to each other. Empty if there is too little.
fn choose(free: &[Piece], need: u64, page: u64, time: &dyn Fn(&[Extent]) -> u64) -> Vec<Piece> {
    let largest = free.iter().map(|piece| piece.length).max().unwrap_or(0);
    let mut best: Option<((u64, usize), Vec<Piece>)> = None;
    let mut least = page;
    while least <= largest {
        let large: Vec<Piece> = free
            .iter()
            .filter(|piece| piece.length >= least)
            .copied()
            .collect();
        let Some(pieces) = fewest(&large, need) else { break };
        // Where all take as long, fewer pieces are better still.
        let cost = (time(&extents(&pieces)), pieces.len());
        if best.as_ref().is_none_or(|(other, _)| cost < *other) {
            best = Some((cost, pieces));
        }
        least *= 2;
    }
    best.map(|(_, pieces)| pieces).unwrap_or_default()
}

/// The fewest neighbours that have `need` bytes, and of as many those that are nearest to each other, as
/// places in the order.
fn fewest(free: &[Piece], need: u64) -> Option<Vec<Piece>> {
    if need == 0 {
        return None;
    }
    let (mut end, mut bytes) = (0, 0);
    let mut best: Option<(usize, u64, usize)> = None;
    for start in 0..free.len() {
        while bytes < need && end < free.len() {
            bytes += free[end].length;
            end += 1;
        }
        if bytes < need {
            break;
        }
        let span = free[end - 1].physical - free[start].physical;
        if best.is_none_or(|(count, other, _)| (end - start, span) < (count, other)) {
            best = Some((end - start, span, start));
        }
        bytes -= free[start].length;
    }
    let (count, _, start) = best?;
    let mut from = 0;
    let placed = free[start..start + count].iter().map(|piece| {
        let length = piece.length.min(need - from);
        let placed = Piece {
            from,
            length,
            ..*piece
        };
        from += length;
        placed
    });
    Some(placed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of these pages, at these pages of the device.
    fn free(pieces: &[(u64, u64)]) -> Vec<Piece> {
        let mut at = 0;
        let piece = |(physical, length): &(u64, u64)| {
            at += length;
            Piece {
                from: 0,
                donor: 0,
                at: at - length,
                physical: *physical,
                length: *length,
            }
        };
        pieces.iter().map(piece).collect()
    }

    fn chosen(pieces: &[(u64, u64)], need: u64) -> Vec<(u64, u64)> {
        // A jump takes as long as ten pages.
        let time = |room: &[Extent]| room.len() as u64 * 10 + need;
        let chosen = choose(&free(pieces), need, 1, &time);
        let mut from = 0;
        for piece in &chosen {
            assert_eq!(piece.from, from);
            from = piece.end();
        }
        assert!(chosen.is_empty() || from == need);
        chosen
            .iter()
            .map(|piece| (piece.physical, piece.length))
            .collect()
    }

    #[test]
    fn one_piece_that_is_large_enough_is_taken_before_all_others() {
        let pieces = [(0, 50), (100, 60), (200, 300), (600, 40)];
        assert_eq!(chosen(&pieces, 100), [(200, 100)]);
    }

    #[test]
    fn a_few_large_pieces_are_taken_with_small_ones_between_them_left_out() {
        let pieces = [(0, 70), (100, 1), (200, 2), (300, 1), (400, 70), (500, 3)];
        assert_eq!(chosen(&pieces, 120), [(0, 70), (400, 50)]);
    }

    #[test]
    fn of_as_many_pieces_the_nearest_are_taken() {
        let pieces = [(0, 50), (9000, 50), (9100, 50), (20000, 50)];
        assert_eq!(chosen(&pieces, 100), [(9000, 50), (9100, 50)]);
    }

    #[test]
    fn where_all_places_are_read_as_fast_fewer_pieces_are_taken() {
        let pieces = [(0, 60), (100, 1), (200, 60)];
        let chosen = choose(&free(&pieces), 120, 1, &|_| 7);
        assert_eq!(chosen.len(), 2);
    }

    #[test]
    fn a_donor_that_grows_is_filled_from_its_beginning() {
        let mut pieces = free(&[(9000, 50), (100, 30), (500, 20)]);
        pieces.sort_unstable_by_key(|piece| piece.physical);
        let filled: Vec<_> = by_donor(pieces)
            .iter()
            .map(|piece| (piece.from, piece.at, piece.physical))
            .collect();
        assert_eq!(filled, [(0, 0, 9000), (50, 50, 100), (80, 80, 500)]);
    }

    #[test]
    fn where_there_is_too_little_nothing_is_taken() {
        assert_eq!(chosen(&[(0, 50), (100, 49)], 100), []);
        assert_eq!(chosen(&[], 1), []);
        assert_eq!(choose(&free(&[(0, 50)]), 0, 1, &|_| 7), []);
    }
}
