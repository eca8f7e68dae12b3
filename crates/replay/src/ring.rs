//! Look-ups and opens of a queue through io_uring, for devices that serve more at once than a queue has
//! threads. A thread can ask for the data of several files without waiting, but only a ring lets it wait for
//! several look-ups.
//!
//! Whatever a ring did not come to is left as it was, and done by the queue's threads.

use crate::ahead::{self, Order};
use crate::file::{Files, looked_up};
use crate::governor::Governor;
use crate::queue::Queue;
use crate::request::{Prepared, RequestState};
use crate::worker::Worker;
use headstart_model::plan::RequestKind;
use headstart_system::mounts::MountTable;
use headstart_system::path_resolver::PathResolver;

/// Serves the look-ups of a queue. Directories to be listed are left to its threads; and all look-ups for a
/// user, for they look before each directory whether the user may go on.
pub fn look_up(
    resolver: &mut PathResolver,
    queue: &Queue,
    order: Order,
    worker: &Worker<'_>,
    mounts: &MountTable,
) {
    if worker.files.has_reader() {
        return;
    }
    let stat =
        |state: &&RequestState| state.request.kind == RequestKind::Stat && state.prepared.get().is_none();
    let requests = queue.requests.iter().filter(stat).collect();
    let requests: Vec<&RequestState> = ahead::look_ups(requests, worker.files.plan(), order);
    let mut requests = requests.into_iter();
    let next = || {
        let state = requests.next().filter(|_| worker.governor.go_on())?;
        Some(((state, worker.now()), worker.files.path(state.request.file)?))
    };
    // A ring that fails leaves the rest to the queue's threads.
    let _ = resolver.resolve_each(mounts, next, |(state, at_ns), pinned| {
        let prepared = looked_up(pinned).map(|()| Prepared::nothing(at_ns));
        worker.looked_up(state, prepared.is_ok());
        let _ = state.prepared.set(prepared);
    });
}

/// Opens the files that a queue reads data of.
pub fn open(
    resolver: &mut PathResolver,
    queue: &Queue,
    files: &Files<'_>,
    governor: &Governor,
    mounts: &MountTable,
) {
    let order = ahead::opens(queue, files, resolver.in_flight());
    let mut vacant = order.into_iter().filter(|file| files.vacant(*file));
    let next = || {
        loop {
            let file = vacant.next().filter(|_| governor.go_on())?;
            // Where the reader may not go, opening says so.
            if let Some(path) = files.way(file) {
                return Some((file, path));
            }
        }
    };
    // As above.
    let _ = resolver.resolve_each(mounts, next, |file, pinned| files.offer(file, pinned));
}
