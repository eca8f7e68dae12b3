//! The order of look-ups and opens where they have to read, and the opening of files before their data is
//! asked for.
//!
//! Where: on file systems whose metadata cannot be read through the block device, or may not be. Neighbouring
//! inodes are read together (XFS: 64 of them), so whoever looks up neighbours at once waits for one and the
//! same read. They are taken far apart instead: 2,000 cold files on XFS at 16 reads in parallel took 1.23
//! times the ideal without such a pass, 1.11 with it; only to look them up took 441 ms by path, 92 ms far
//! apart.
//!
//! SquashFS is the other way round ([`Order::Together`]): it keeps eight blocks of metadata in memory, so
//! paths that share one are taken one after the other, those of data files among them, and no pass opens
//! these.

use crate::file::Files;
use crate::governor::Governor;
use crate::queue::Queue;
use crate::request::RequestState;
use crate::threads::together;
use headstart_model::plan::{Plan, PlanDevice, RequestKind};
use headstart_model::sort::Sort;
use std::borrow::Borrow;
use std::sync::atomic::{AtomicUsize, Ordering};

/// In which order paths are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Neighbours far apart, in so many parts.
    Apart(u32),
    /// Neighbours one after the other.
    Together,
}

impl Order {
    /// That of a device with so many look-ups in flight.
    pub fn of(device: &PlanDevice, in_flight: u32) -> Order {
        match device.compression {
            Some(_) => Order::Together,
            None => Order::Apart(in_flight),
        }
    }

    fn parts(self) -> usize {
        match self {
            Order::Apart(in_flight) => in_flight as usize,
            Order::Together => 1,
        }
    }
}

/// Opens the files that a queue reads data of. What cannot be opened, and why, is found out by their
/// requests.
pub fn open(queue: &Queue, files: &Files<'_>, threads: u32, governor: &Governor) {
    let order = opens(queue, files, threads);
    let next = AtomicUsize::new(0);
    together(u64::from(threads).min(order.len() as u64), || {
        while governor.go_on() {
            match order.get(next.fetch_add(1, Ordering::Relaxed)) {
                Some(file) => drop(files.get(*file)),
                None => break,
            }
        }
    });
}

/// The files that a queue reads data of, neighbours far apart.
pub fn opens(queue: &Queue, files: &Files<'_>, in_flight: u32) -> Vec<u32> {
    let data = queue.requests.iter().map(|state| &state.request);
    let data = data.filter(|request| request.kind == RequestKind::Data);
    let mut by_inode: Vec<(u64, u32)> = data.map(|r| (files.inode(r.file), r.file)).collect();
    by_inode.sort_small();
    by_inode.dedup();
    let order = spread_apart(by_inode, in_flight as usize).into_iter();
    order.map(|(_, file)| file).collect()
}

/// Look-ups stage by stage, inside a stage by their inodes' numbers where neighbours are taken apart. Names
/// that are missing have none, and are as many as others: one after the other they go by path.
pub fn look_ups<T: Borrow<RequestState>>(mut requests: Vec<T>, plan: Plan<'_>, order: Order) -> Vec<T> {
    let stage = |state: &T| state.borrow().request.stage;
    let file = |state: &T| state.borrow().request.file as usize;
    let inode = |state: &T| plan.file(file(state)).map_or(0, |file| file.inode);
    match order {
        Order::Apart(_) => requests.sort_small_by_cached_key(|state| (stage(state), inode(state))),
        Order::Together => requests.sort_small_by_key(|state| (stage(state), plan.path(file(state)))),
    }
    let mut ordered = Vec::with_capacity(requests.len());
    while let Some(first) = requests.first().map(stage) {
        let later = requests.split_off(requests.partition_point(|state| stage(state) == first));
        ordered.extend(spread_apart(
            std::mem::replace(&mut requests, later),
            order.parts(),
        ));
    }
    ordered
}

/// Neighbours far apart, so that as many as are in flight each wait for a read of their own. With more parts
/// than that neighbours would meet again.
fn spread_apart<T>(sorted: Vec<T>, parts: usize) -> Vec<T> {
    let total = sorted.len();
    let mut sorted: Vec<Option<T>> = sorted.into_iter().map(Some).collect();
    let turn = |turn| sorted.get_mut(spread(turn, total, parts))?.take();
    (0..total).filter_map(turn).collect()
}

/// Where the `turn`th of `total` lies if `parts` equal parts are walked through side by side.
fn spread(turn: usize, total: usize, parts: usize) -> usize {
    let parts = parts.clamp(1, total.max(1));
    // The first `longer` parts have one more than the others.
    let (length, longer) = (total / parts, total % parts);
    let (part, step) = if turn < length * parts {
        (turn % parts, turn / parts)
    } else {
        (turn - length * parts, length)
    };
    part * length + part.min(longer) + step
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::Key;
    use headstart_model::machine::{Compression, DeviceClass};
    use headstart_model::plan::{PlanDraft, PlanFileEntry, Request};
    use headstart_system::device::default_cost;

    #[test]
    fn where_few_blocks_of_metadata_are_kept_paths_go_one_after_the_other() {
        let mut draft = PlanDraft::new(Key::new("k").unwrap(), 4096);
        let cost = default_cost(DeviceClass::Flash);
        draft.devices.push(PlanDevice::new("/".into(), cost));
        // A name that is missing has no number.
        for (path, inode) in [("/b/2", 1), ("/a/1", 9), ("/b/1", 2), ("/a/none", 0), ("/a/2", 8)] {
            draft.files.push(PlanFileEntry {
                path: path.into(),
                device: 0,
                inode,
                generation: 0,
                size: 0,
                mtime_ns: 0,
            });
        }
        let state = |file| RequestState::new(file, Request::new(RequestKind::Stat, file, 0));
        let order = |device: &PlanDevice| -> Vec<u32> {
            let file = draft.to_file().unwrap();
            let requests = (0..5).map(state).collect();
            let ordered = look_ups::<RequestState>(requests, file.plan().unwrap(), Order::of(device, 2));
            ordered.iter().map(|state| state.request.file).collect()
        };
        assert_eq!(order(&draft.devices[0]), [3, 4, 0, 1, 2]);
        let compressed = PlanDevice {
            compression: Compression::of_blocks(128 << 10),
            ..draft.devices[0].clone()
        };
        assert_eq!(order(&compressed), [1, 4, 3, 2, 0]);
    }

    #[test]
    fn every_one_has_its_turn_and_neighbours_are_apart() {
        for (total, parts) in [(1, 1), (7, 3), (100, 16), (5, 20), (64, 8)] {
            let order: Vec<usize> = (0..total).map(|turn| spread(turn, total, parts)).collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..total), "{total} in {parts}: {order:?}");
        }
        assert_eq!(
            (0..7).map(|t| spread(t, 7, 3)).collect::<Vec<_>>(),
            [0, 3, 5, 1, 4, 6, 2]
        );
        assert!(
            (0..9).all(|t| spread(t, 9, 1) == t),
            "a disk walks by inode number"
        );
    }
}
