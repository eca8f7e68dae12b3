//! What lies in its order already, and stays there: what an earlier time moved, also one that was stopped
//! half-way, need not be moved again because a few files have changed since.

use crate::order::{Item, Order, judge};
use headstart_model::machine::Machine;

/// Neighbours in the order that are neighbours on the device stay if they have so many bytes: a run of them
/// is read in some 20 ms, in which a head jumps twice.
const LEAST: u64 = 2 << 20;
/// Neighbours have fewer bytes than this between them: where blocks are smaller than pages a file may end
/// within one.
const NEAR: u64 = 4096;
/// They stay if reading takes no longer than this, times as long as if all were moved.
const MOST_LONGER: f64 = 1.1;

/// Takes from the items of an order those that may stay. It is judged then.
pub(crate) fn settle(order: &mut Order, machine: &Machine) {
    judge(order, machine);
    let unsettled = order.clone();
    let settled = settled(&order.items);
    if !settled.contains(&true) {
        return;
    }
    let mut stays = settled.into_iter();
    let (stay, items) = std::mem::take(&mut order.items)
        .into_iter()
        .partition(|_| stays.next() == Some(true));
    (order.settled, order.items) = (stay, items);
    judge(order, machine);
    if order.after.time_ns as f64 > MOST_LONGER * unsettled.after.time_ns as f64 {
        *order = unsettled;
    }
}

/// Of each item whether it belongs to a run that is long enough.
fn settled(items: &[Item]) -> Vec<bool> {
    let mut settled = vec![false; items.len()];
    let (mut first, mut bytes, mut end) = (0, 0, None::<u64>);
    for (index, item) in items.iter().enumerate() {
        let place = place(item);
        let follows = place
            .zip(end)
            .is_some_and(|((start, _), end)| start >= end && start - end < NEAR);
        if !follows {
            mark(&mut settled[first..index], bytes);
            (first, bytes) = (index, 0);
        }
        bytes += place.map_or(0, |(start, end)| end - start);
        end = place.map(|(_, end)| end);
    }
    mark(&mut settled[first..], bytes);
    settled
}

fn mark(run: &mut [bool], bytes: u64) {
    if bytes >= LEAST {
        run.fill(true);
    }
}

/// Where all that would be moved of a file lies, if that is in one piece.
fn place(item: &Item) -> Option<(u64, u64)> {
    let mut place: Option<(u64, u64)> = None;
    for range in &item.ranges {
        for part in crate::predict::on_device(&item.facts.extents, range.start, range.pages()) {
            place = match place {
                None => Some((part.start, part.end)),
                Some((start, end)) if end == part.start => Some((start, part.end)),
                Some(_) => return None,
            };
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{facts, machine, whole};
    use headstart_model::machine::DeviceClass;

    const M: u64 = 1 << 19;

    /// An order of files of half a megabyte that lie at these half megabytes.
    fn order(at: &[u64]) -> Order {
        let files = at.iter().enumerate();
        let items = files.map(|(i, at)| {
            let path = format!("/{i}");
            whole(facts(&path, i as u64 + 1, M, &[(0, at * M, M)]))
        });
        Order::new(0, items.collect())
    }

    fn stays(at: &[u64]) -> Vec<usize> {
        let mut order = order(at);
        settle(&mut order, &machine(vec![], DeviceClass::Disk, "ext4"));
        assert_eq!(order.items.len() + order.settled.len(), at.len());
        order
            .settled
            .iter()
            .map(|item| item.facts.inode as usize - 1)
            .collect()
    }

    #[test]
    fn what_lies_in_order_stays_and_what_was_scattered_since_is_moved() {
        let mut at: Vec<u64> = (1000..1100).collect();
        at[40] = 5000;
        let expected: Vec<usize> = (0..100).filter(|i| *i != 40).collect();
        assert_eq!(stays(&at), expected);
        // All in order: nothing is moved.
        at[40] = 1040;
        assert_eq!(stays(&at).len(), 100);
    }

    #[test]
    fn what_lies_in_no_order_is_moved_and_so_is_what_lies_in_many_pieces() {
        let apart: Vec<u64> = (0..100).map(|i| 100 * i).collect();
        assert!(stays(&apart).is_empty());
        let backwards: Vec<u64> = (0..100).map(|i| 1000 - i).collect();
        assert!(stays(&backwards).is_empty());
        // Runs of five, each far from the next: a jump for each would take longer than to move all.
        let fives: Vec<u64> = (0..100).map(|i| i / 5 * 500 + i % 5).collect();
        assert!(stays(&fives).is_empty());
    }

    #[test]
    fn what_stays_and_what_is_moved_are_two_places() {
        let mut at: Vec<u64> = (1000..1100).collect();
        at[40] = 5000;
        let mut order = order(&at);
        settle(&mut order, &machine(vec![], DeviceClass::Disk, "ext4"));
        // The files around the one that went are read over it.
        assert_eq!((order.before.jumps, order.after.jumps), (1, 1));
        assert_eq!(order.bytes(), M);
    }
}
