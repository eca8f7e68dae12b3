//! Look-ups and opens of a lane through io_uring, for devices that serve more at once than a lane has threads. A thread
//! can ask for the data of several files without waiting, but only a ring lets it wait for several look-ups.
//!
//! Whatever a ring did not come to is left as it was, and done by the lane's threads.

use crate::ahead;
use crate::file::{Files, looked_up};
use crate::governor::Governor;
use crate::item::{Item, Prepared};
use crate::lane::{Lane, Worker};
use headstart_model::plan::RequestKind;
use headstart_system::mounts::MountTable;
use headstart_system::pins::Pins;

/// Serves the look-ups of a lane. Directories to be listed are left to its threads.
pub fn look_up(pins: &mut Pins, lane: &Lane, worker: &Worker<'_>, mounts: &MountTable) {
    let stat = |item: &&Item| item.request.kind == RequestKind::Stat && item.prepared.get().is_none();
    let items = lane.items.iter().filter(stat).collect();
    let inode = |file| worker.files.inode(file);
    let mut items = ahead::look_ups::<&Item>(items, inode, pins.in_flight()).into_iter();
    let next = || {
        let item = items.next().filter(|_| worker.governor.go_on())?;
        Some(((item, worker.now()), worker.files.path(item.request.file)?))
    };
    // A ring that fails leaves the rest to the lane's threads.
    let _ = pins.each(mounts, next, |(item, at_ns), pinned| {
        let found = looked_up(pinned).map(|()| Prepared::nothing(at_ns));
        worker.done(item, true);
        let _ = item.prepared.set(found);
    });
}

/// Opens the files that a lane reads data of.
pub fn open(pins: &mut Pins, lane: &Lane, files: &Files<'_>, governor: &Governor, mounts: &MountTable) {
    let order = ahead::opens(lane, files, pins.in_flight());
    let mut vacant = order.into_iter().filter(|file| files.vacant(*file));
    let next = || {
        let file = vacant.next().filter(|_| governor.go_on())?;
        Some((file, files.path(file)?))
    };
    // As above.
    let _ = pins.each(mounts, next, |file, pinned| files.offer(file, pinned));
}
