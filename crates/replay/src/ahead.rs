//! The order of look-ups and opens where they have to read, and the opening of files before their data is
//! asked for.
//!
//! Where: on file systems whose metadata cannot be read through the block device, or may not be. Neighbouring
//! inodes are read together (XFS: 64 of them), so whoever looks up neighbours at once waits for one and the
//! same read. They are taken far apart instead: 2,000 cold files on XFS at 16 reads in parallel took 1.23
//! times the ideal without such a pass, 1.11 with it; only to look them up took 441 ms by path, 92 ms far
//! apart.

use crate::file::Files;
use crate::governor::Governor;
use crate::queue::Queue;
use crate::request::RequestState;
use crate::threads::together;
use headstart_model::plan::RequestKind;
use std::borrow::Borrow;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    by_inode.sort_unstable();
    by_inode.dedup();
    let order = spread_apart(by_inode, in_flight).into_iter();
    order.map(|(_, file)| file).collect()
}

/// Look-ups stage by stage, inside a stage neighbours far apart; `inode` knows the number of a file of the
/// plan.
pub fn look_ups<T: Borrow<RequestState>>(
    mut requests: Vec<T>,
    inode: impl Fn(u32) -> u64,
    in_flight: u32,
) -> Vec<T> {
    let stage = |state: &T| state.borrow().request.stage;
    requests.sort_by_cached_key(|state| (stage(state), inode(state.borrow().request.file)));
    let mut ordered = Vec::with_capacity(requests.len());
    while let Some(first) = requests.first().map(stage) {
        let later = requests.split_off(requests.partition_point(|state| stage(state) == first));
        ordered.extend(spread_apart(std::mem::replace(&mut requests, later), in_flight));
    }
    ordered
}

/// Neighbours far apart, so that as many as are in flight each wait for a read of their own. With more parts
/// than that neighbours would meet again.
fn spread_apart<T>(sorted: Vec<T>, in_flight: u32) -> Vec<T> {
    let total = sorted.len();
    let mut sorted: Vec<Option<T>> = sorted.into_iter().map(Some).collect();
    let turn = |turn| sorted.get_mut(spread(turn, total, in_flight as usize))?.take();
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
