//! Moving out of the room of an earlier time what no start wants any more.

use crate::moves::movable;
use crate::moving::volume::{Volume, may_be_executed, runs};
use crate::order::{Item, Order};
use crate::placed_files::{Placed, PlacedFile, inside};
use headstart_model::machine::{Extent, FileFacts, PathKind};
use headstart_model::{PageRange, PageSet};
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, open_checked};
use std::fs::File;
use std::os::fd::AsFd;

/// What is in the way, in no order, and the files of it that stay, for they cannot be moved now.
pub(crate) fn in_the_way(
    placed: &Placed,
    order: &Order,
    volume: &Volume,
    mounts: &MountTable,
    page: u64,
) -> (Order, Vec<PlacedFile>) {
    let (mut items, mut stays) = (Vec::new(), Vec::new());
    let areas = placed.areas();
    for (file, wanted) in placed.others(order) {
        if wanted {
            stays.push(file.clone());
            continue;
        }
        match check_file(file, &areas, order.device, volume, mounts, page) {
            Eviction::Gone => {}
            Eviction::Stays => stays.push(file.clone()),
            Eviction::Out(item) => items.push(*item),
        }
    }
    (Order::new(order.device, items), stays)
}

/// Of these files those that lie in the room still.
pub(crate) fn still_placed(files: &Order, placed: &Placed, mounts: &MountTable) -> Vec<PlacedFile> {
    let areas = placed.areas();
    let is_there = |item: &&Item| {
        let expect = Expect {
            inode: Some(item.facts.inode),
            ..Expect::default()
        };
        open_checked(mounts, item.facts.path.as_path(), &expect).is_ok_and(|opened| {
            let extents = headstart_system::extents::extents(opened.fd.as_fd());
            extents.is_ok_and(|extents| !inside(&areas, &extents).is_empty())
        })
    };
    let still = files.items.iter().filter(is_there);
    still.map(PlacedFile::from).collect()
}

enum Eviction {
    /// It is not there any more, or nothing of it in the room.
    Gone,
    /// It cannot be moved, or not now.
    Stays,
    Out(Box<Item>),
}

fn check_file(
    file: &PlacedFile,
    areas: &PageSet,
    device: u32,
    volume: &Volume,
    mounts: &MountTable,
    page: u64,
) -> Eviction {
    let path = file.path.as_path();
    let expect = Expect {
        inode: Some(file.inode),
        generation: (file.generation != 0).then_some(file.generation),
        ..Expect::default()
    };
    let Ok(opened) = open_checked(mounts, path, &expect) else {
        return Eviction::Gone;
    };
    let (stat, opened) = (opened.stat, File::from(opened.fd));
    let extents = headstart_system::extents::extents(&opened).unwrap_or_default();
    let inside = inside(areas, &extents);
    if inside.is_empty() {
        return Eviction::Gone;
    }
    let ranges = movable(&whole_pages(&inside, page), stat.size, &extents, page);
    let may_move = volume.why_immovable(path, &opened).is_ok_and(|why| why.is_none());
    let in_use = || may_be_executed(path, stat.mode) && runs(&opened).unwrap_or(true);
    if ranges.is_empty() || !may_move || in_use() {
        return Eviction::Stays;
    }
    Eviction::Out(Box::new(item(file, device, &stat, extents, ranges)))
}

fn whole_pages(ranges: &[PageRange], page: u64) -> Vec<PageRange> {
    let whole = ranges.iter().map(|range| PageRange {
        start: range.start / page * page,
        end: range.end.next_multiple_of(page),
    });
    whole.collect()
}

fn item(
    file: &PlacedFile,
    device: u32,
    stat: &headstart_system::files::Stat,
    extents: Vec<Extent>,
    ranges: Vec<PageRange>,
) -> Item {
    Item {
        facts: FileFacts {
            path: file.path.clone(),
            found: PathKind::File,
            device: Some(device),
            inode: file.inode,
            generation: file.generation,
            size: stat.size,
            mtime_ns: stat.mtime_ns,
            owner: stat.owner,
            others_may_write: stat.others_may_write(),
            extents,
            metadata: Vec::new(),
        },
        ranges,
        needed: [].into_iter().collect(),
        own: false,
    }
}
