//! What was placed where, kept in the state directory: what no start wants any more is moved out of the way
//! of what starts want, so that the room is free in one piece for the next time.

use crate::order::{Item, Order};
use crate::room::Room;
use anyhow::Result;
use headstart_model::machine::Extent;
use headstart_model::{FilePath, PageRange, PageSet};
use headstart_store::{Store, read_bounded, write_whole};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::PathBuf;

/// The most bytes of the file.
const MOST: u64 = 32 << 20;
/// So many file systems are told of, and of each so many files and so many pieces of room.
const MOST_VOLUMES: usize = 32;
const MOST_FILES: usize = 100_000;
const MOST_AREAS: usize = 10_000;
/// So many bytes of paths, with what else is kept of each file: what is kept of all file systems can be read
/// again.
const MOST_BYTES_OF_FILES: usize = 8 << 20;
const OF_A_FILE: usize = 64;

/// What was placed on one file system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Placed {
    mount_point: String,
    /// Bytes of the device, from and to.
    areas: Vec<[u64; 2]>,
    files: Vec<PlacedFile>,
}

/// A file that was placed there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlacedFile {
    pub path: FilePath,
    pub inode: u64,
    pub generation: u32,
}

impl From<&Item> for PlacedFile {
    fn from(item: &Item) -> PlacedFile {
        PlacedFile {
            path: item.facts.path.clone(),
            inode: item.facts.inode,
            generation: item.facts.generation,
        }
    }
}

/// What was placed on the file system mounted there; nothing where nothing is known.
pub(crate) fn placed(store: &Store, mount_point: &str) -> Placed {
    let volumes = read(store);
    let placed = volumes
        .into_iter()
        .find(|placed| placed.mount_point == mount_point);
    placed.unwrap_or_else(|| Placed {
        mount_point: mount_point.to_owned(),
        ..Placed::default()
    })
}

impl Placed {
    /// The files that this order does not place, with whether it is for starts that need them: those stay
    /// this time only.
    pub fn others(&self, order: &Order) -> Vec<(&PlacedFile, bool)> {
        let now: HashSet<u64> = placed_by(order).map(|item| item.facts.inode).collect();
        self.files
            .iter()
            .filter(|file| !now.contains(&file.inode))
            .map(|file| (file, order.wanted.contains(&file.inode)))
            .collect()
    }

    /// [`Placed::others`], wanted or not.
    pub fn stay(&self, order: &Order) -> Vec<PlacedFile> {
        let others = self.others(order).into_iter();
        others.map(|(file, _)| file.clone()).collect()
    }

    /// Where the room of then is.
    pub fn areas(&self) -> PageSet {
        let areas = self.areas.iter().filter(|[start, end]| start < end);
        areas
            .map(|[start, end]| PageRange {
                start: *start,
                end: *end,
            })
            .collect()
    }

    /// What is placed there now, by an order that was followed: what it places, and what is left of the rest.
    /// Where files stayed in the room of then, that still counts.
    pub fn followed(&self, order: &Order, room: &Room, left: Vec<PlacedFile>) -> Placed {
        let stays = !order.settled.is_empty() || !left.is_empty();
        let new = room.pieces.iter().map(|piece| PageRange {
            start: piece.physical,
            end: piece.physical + piece.length,
        });
        let new: PageSet = new.collect();
        let areas = if stays {
            new.union(&self.areas())
        } else {
            new.clone()
        };
        // Where it is more than is kept, what lies in the room of an earlier time is not known to be in the
        // way.
        let areas = if areas.ranges().len() > MOST_AREAS {
            new
        } else {
            areas
        };
        let areas = areas.ranges().iter().take(MOST_AREAS);
        let files = placed_by(order).map(PlacedFile::from);
        let mut bytes = 0;
        let fits = |file: &PlacedFile| {
            bytes += file.path.as_bytes().len() + OF_A_FILE;
            bytes <= MOST_BYTES_OF_FILES
        };
        Placed {
            mount_point: self.mount_point.clone(),
            areas: areas.map(|range| [range.start, range.end]).collect(),
            files: files.chain(left).take(MOST_FILES).take_while(fits).collect(),
        }
    }

    /// Keeps it.
    pub fn keep(self, store: &Store) -> Result<()> {
        let mut volumes = read(store);
        volumes.retain(|placed| placed.mount_point != self.mount_point);
        volumes.insert(0, self);
        volumes.truncate(MOST_VOLUMES);
        Ok(write_whole(&path(store), &serde_json::to_vec(&volumes)?)?)
    }
}

/// What of a file with these extents lies in this room, by offset in the file.
pub(crate) fn inside(areas: &PageSet, extents: &[Extent]) -> Vec<PageRange> {
    let areas = areas.ranges();
    let mut inside = Vec::new();
    for extent in extents {
        let end = extent.physical.saturating_add(extent.length);
        let first = areas.partition_point(|area| area.end <= extent.physical);
        for area in areas[first..].iter().take_while(|area| area.start < end) {
            let (from, to) = (area.start.max(extent.physical), area.end.min(end));
            inside.push(PageRange {
                start: extent.logical + (from - extent.physical),
                end: extent.logical + (to - extent.physical),
            });
        }
    }
    inside
}

/// Whether a place is in this room, or a part of it.
pub(crate) fn is_in(areas: &PageSet, start: u64, length: u64) -> bool {
    let ranges = areas.ranges();
    let first = ranges.partition_point(|range| range.end <= start);
    ranges
        .get(first)
        .is_some_and(|range| range.start < start.saturating_add(length))
}

fn placed_by(order: &Order) -> impl Iterator<Item = &Item> {
    order.items.iter().chain(&order.settled)
}

/// What cannot be read is not known: files stay in the way then, and nothing else.
fn read(store: &Store) -> Vec<Placed> {
    let bytes = read_bounded(&path(store), MOST).ok().flatten();
    bytes
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

fn path(store: &Store) -> PathBuf {
    store.root().join("layout.placed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::Piece;
    use crate::testing::{facts, whole};

    fn item(inode: u64) -> Item {
        whole(facts(
            &format!("/{inode}"),
            inode,
            4096,
            &[(0, inode << 20, 4096)],
        ))
    }

    fn room(at: u64) -> Room {
        Room {
            donors: Vec::new(),
            pieces: vec![Piece {
                from: 0,
                donor: 0,
                at: 0,
                physical: at,
                length: 8192,
            }],
        }
    }

    #[test]
    fn what_is_not_wanted_any_more_is_known_by_its_inode() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::new(state.path());
        assert_eq!(placed(&store, "/").others(&Order::new(0, vec![])), Vec::new());
        let first = Order::new(0, vec![item(1), item(2), item(3)]);
        let kept = placed(&store, "/").followed(&first, &room(1 << 30), vec![]);
        kept.clone().keep(&store).unwrap();
        assert_eq!(placed(&store, "/"), kept);
        assert_eq!(placed(&store, "/other").files, []);
        let mut second = Order::new(0, vec![item(2)]);
        second.settled.push(item(3));
        let others = |order: &Order| -> Vec<(u64, bool)> {
            let others = kept.others(order).into_iter();
            others.map(|(file, wanted)| (file.inode, wanted)).collect()
        };
        assert_eq!(others(&second), [(1, false)]);
        // One that is needed and stays this time.
        second.wanted.insert(1);
        assert_eq!(others(&second), [(1, true)]);
        // The room of the first time counts as long as something stays there.
        let followed = kept.followed(&second, &room(1 << 31), vec![]);
        assert_eq!(followed.areas.len(), 2);
        // Rooms that touch are one.
        let beside = kept.followed(&second, &room((1 << 30) + 8192), vec![]);
        assert_eq!(beside.areas, [[1 << 30, (1 << 30) + 16384]]);
        second.settled.clear();
        assert_eq!(kept.followed(&second, &room(1 << 31), vec![]).areas.len(), 1);
    }

    #[test]
    fn of_a_file_only_what_lies_in_the_room_is_in_the_way() {
        let order = Order::new(0, vec![item(1)]);
        let placed = Placed::default().followed(&order, &room(100 << 20), vec![]);
        let extents = facts("/f", 1, 16384, &[(0, 7, 4096), (4096, (100 << 20) + 4096, 12288)]).extents;
        let inside = inside(&placed.areas(), &extents);
        assert_eq!(
            inside,
            [PageRange {
                start: 4096,
                end: 8192
            }]
        );
        let is_in = |start, length| is_in(&placed.areas(), start, length);
        assert!(is_in((100 << 20) + 8191, 1) && is_in(0, 1 << 30));
        assert!(!is_in((100 << 20) + 8192, 4096) && !is_in(0, 100 << 20));
    }
}
