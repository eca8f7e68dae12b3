//! The threads of a replay: one per device, which brings its own.

use crate::device::{Device, Shape, most_open};
use crate::file::{Files, descriptors};
use crate::item::{Item, Reason};
use crate::lane::{Lane, Worker, stand_back};
use crate::{Options, Shared, ahead, report, ring};
use headstart_model::machine::DeviceClass;
use headstart_model::outcome::{ReplayReport, Skipped};
use headstart_model::plan::{Plan, PlanDevice, PlanFile, RequestKind};
use headstart_system::door::Door;
use headstart_system::mounts::MountTable;
use headstart_system::pins::Pins;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

/// The requests of one device, by pass.
struct Work {
    planned: PlanDevice,
    passes: Passes<Lane>,
    /// How many of the data's requests the start is held for: what was planned behind them may go before them where
    /// files are opened by path after all.
    held_data: usize,
}

/// What the passes of a device do, one after the other.
#[derive(Default)]
struct Passes<T> {
    metadata: T,
    look_ups: T,
    data: T,
}

/// Replays a plan, to its end or until stopped. Runs on a thread of its own.
pub fn run(file: &PlanFile, options: &Options, shared: &Shared) -> ReplayReport {
    // Whatever happens here, nobody waits for it any more afterwards.
    let _all = Hold::new(shared, usize::MAX);
    // Checked by the caller; what it was it still is.
    let Ok(plan) = file.plan() else {
        return ReplayReport::default();
    };
    let mut skipped = Skipped::default();
    let mounts = MountTable::read().unwrap_or_default();
    let doors = doors(plan, &mounts);
    let works = share_out(plan, &doors, options, &mut skipped);
    let in_use = works.iter().map(|w| most_open(&w.planned, options)).sum();
    let files = Files::new(plan, &mounts, &doors, in_use);
    shared.governor.begin();
    let serve = |work: &Work| serve(work, &files, &mounts, options, shared);
    let devices = side_by_side(&works, &serve);
    let replay_ns = options.origin.elapsed().as_nanos() as u64;
    let memory_pressure = shared.governor.memory_pressure();
    let mut issued = Vec::new();
    for (work, device) in works.iter().zip(&devices) {
        let Passes {
            metadata,
            look_ups,
            data,
        } = &work.passes;
        for item in [metadata, look_ups, data]
            .into_iter()
            .flat_map(|lane| &lane.items)
        {
            let became = match device {
                Some(device) => report::issued(item, device, &files),
                // Its thread failed by a mistake of its own.
                None => Err(Reason::Failed),
            };
            match became {
                Ok(one) => issued.push(one),
                Err(reason) => reason.count(&mut skipped),
            }
        }
    }
    issued.sort_by_key(|i| (i.issued_ns, i.request));
    ReplayReport {
        replay_ns,
        issued,
        skipped,
        memory_available: shared.governor.memory_available(),
        memory_pressure,
        stopped: shared.governor.stopped().map(str::to_string),
    }
}

/// Does something for each at the same time, for the first one on the calling thread. `None` where that panicked or no
/// thread could be had.
fn side_by_side<W: Sync, T: Send>(works: &[W], serve: &(impl Fn(&W) -> T + Sync)) -> Vec<Option<T>> {
    std::thread::scope(|scope| {
        let spawn = |work| {
            let thread = std::thread::Builder::new().name("headstart".into());
            thread.spawn_scoped(scope, move || serve(work))
        };
        let threads: Vec<_> = works.iter().skip(1).map(spawn).collect();
        // Nothing that it leaves half done is used: `None` stands for all of it.
        let first = works
            .first()
            .map(|work| catch_unwind(AssertUnwindSafe(|| serve(work))).ok());
        let others = threads
            .into_iter()
            .map(|thread| thread.ok().and_then(|thread| thread.join().ok()));
        first.into_iter().chain(others).collect()
    })
}

/// A part in holding the start; given up once, when dropped at the latest.
struct Hold<'a> {
    shared: &'a Shared,
    devices: usize,
    gone: AtomicBool,
}

impl<'a> Hold<'a> {
    fn new(shared: &'a Shared, devices: usize) -> Hold<'a> {
        Hold {
            shared,
            devices,
            gone: AtomicBool::new(false),
        }
    }

    /// Whether it held until now.
    fn let_go(&self) -> bool {
        let held = !self.gone.swap(true, Ordering::Relaxed);
        if held {
            self.shared.release(self.devices);
        }
        held
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// For each device a way to its files by handle, if the plan relies on that: it reads directories amid the data.
fn doors(plan: Plan<'_>, mounts: &MountTable) -> Vec<Option<Door>> {
    let mut data = vec![false; plan.device_count()];
    let mut amid = vec![false; plan.device_count()];
    for request in plan.requests().take(plan.cut()) {
        let device = usize::from(request.device);
        match request.kind {
            RequestKind::Data => data[device] = true,
            RequestKind::Metadata => amid[device] |= data[device],
            RequestKind::Stat | RequestKind::List => {}
        }
    }
    let door = |(index, amid): (usize, bool)| {
        let planned = plan.device(index).filter(|_| amid)?;
        let mount = mounts.lookup(planned.mount_point.as_bytes())?;
        Door::of(mounts, mount).ok()
    };
    amid.into_iter().enumerate().map(door).collect()
}

/// The plan's requests by device and pass; those beyond the budget are only counted.
///
/// Where files are opened by handle (`doors`), what follows the first data in the plan stays behind it: directories are
/// read as the head passes them, and look-ups find them there. Where they have to be opened by path after all, metadata
/// goes first.
fn share_out(plan: Plan<'_>, doors: &[Option<Door>], options: &Options, skipped: &mut Skipped) -> Vec<Work> {
    let mut lanes: Vec<Passes<Vec<Item>>> = Vec::new();
    lanes.resize_with(plan.device_count(), Passes::default);
    // Of each device: its requests so far, and the data's among those that the start is held for.
    let mut counts = vec![(0u32, 0usize); plan.device_count()];
    for (index, request) in plan.requests().enumerate() {
        let device = usize::from(request.device);
        if index >= plan.cut() {
            Reason::OverBudget.count(skipped);
        } else if let Some(passes) = lanes.get_mut(device) {
            let hold = plan.device(device).map_or(0, |planned| planned.hold);
            let sweep = !passes.data.is_empty() && matches!(doors.get(device), Some(Some(_)));
            let lane = match request.kind {
                _ if sweep => &mut passes.data,
                RequestKind::Metadata => &mut passes.metadata,
                RequestKind::Stat | RequestKind::List => &mut passes.look_ups,
                RequestKind::Data => &mut passes.data,
            };
            lane.push(Item::new(index as u32, request));
            let (count, held_data) = &mut counts[device];
            *count += 1;
            if *count <= hold {
                *held_data = passes.data.len();
            }
        }
    }
    let work = |(index, items): (usize, Passes<Vec<Item>>)| {
        let empty = items.metadata.is_empty() && items.look_ups.is_empty() && items.data.is_empty();
        let planned = plan.device(index).filter(|_| !empty)?;
        let shape = Shape::new(planned.cost.class, planned.cost.depth, options.depth, 0, 1);
        let inode = |file| plan.file(file as usize).map_or(0, |file| file.inode);
        let look_ups = ahead::look_ups(items.look_ups, inode, shape.threads);
        let mut metadata = items.metadata;
        if planned.cost.class == DeviceClass::Disk {
            // As planned, unless some of it was to be read amid the data.
            metadata.sort_by_key(|item| item.request.offset);
        }
        let passes = Passes {
            metadata: Lane::new(metadata),
            look_ups: Lane::new(look_ups),
            data: Lane::new(items.data),
        };
        Some(Work {
            planned,
            passes,
            held_data: counts[index].1,
        })
    };
    lanes.into_iter().enumerate().filter_map(work).collect()
}

fn serve(work: &Work, files: &Files<'_>, mounts: &MountTable, options: &Options, shared: &Shared) -> Device {
    // The start is let go once, when the requests that it is held for are over, or none can be any more.
    let until = work.planned.hold as usize;
    let hold = Hold::new(shared, usize::from(until > 0));
    // While the start waits for it the replay gives way to nobody.
    let let_go = || {
        if hold.let_go() {
            stand_back();
        }
    };
    if until == 0 {
        let_go();
    }
    let is_metadata = |item: &Item| item.request.kind == RequestKind::Metadata;
    let passes = [&work.passes.metadata, &work.passes.data];
    let metadata = passes.iter().any(|lane| lane.items.iter().any(is_metadata));
    let device = Device::look(&work.planned, mounts, options, metadata);
    let worker = Worker {
        device: &device,
        files,
        governor: &shared.governor,
        over: &shared.over,
        origin: options.origin,
    };
    worker.serve(&work.passes.metadata, &|_| ());
    let mut pins = pins(work, &device, options);
    if let Some(pins) = &mut pins {
        ring::look_up(pins, &work.passes.look_ups, &worker, mounts);
    }
    worker.serve(&work.passes.look_ups, &|_| ());
    if work.held_data == 0 {
        let_go();
    }
    if device.block.is_err() {
        let (data, threads) = (&work.passes.data, device.shape.threads);
        match &mut pins {
            Some(pins) => ring::open(pins, data, files, &shared.governor, mounts),
            None => ahead::open(data, files, threads, &shared.governor),
        }
    }
    worker.serve(&work.passes.data, &|over| {
        if over >= work.held_data {
            let_go();
        }
    });
    device
}

/// A ring, where it helps: there is something to look up, and the device serves more at once than it has threads. With
/// as many threads as look-ups in flight it would only cost (`docs/decisions/0001-io-uring-for-opens.md`).
fn pins(work: &Work, device: &Device, options: &Options) -> Option<Pins> {
    let look_ups = !work.passes.look_ups.items.is_empty() || device.block.is_err();
    // Each takes a descriptor. Half of them are for files that are kept open, and a plan may have several devices.
    let in_flight = device.shape.in_flight().min(descriptors() as u32 / 8);
    if !options.io_uring || !look_ups || in_flight <= device.shape.threads {
        return None;
    }
    // Where the kernel has none, or not for us, the threads do it.
    Pins::new(in_flight).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_device_that_panics_leaves_the_others_in_their_places_and_nobody_waits() {
        for bad in 0..3 {
            let options = Options::new(Instant::now());
            let shared = Shared::new(&options, 3);
            let serve = |device: &usize| {
                let _hold = Hold::new(&shared, 1);
                if *device == bad {
                    // A panic without its message among the tests' output.
                    std::panic::resume_unwind(Box::new(()));
                }
                *device
            };
            let done = side_by_side(&[0, 1, 2], &serve);
            let expected = [0, 1, 2].map(|device| Some(device).filter(|d| *d != bad));
            assert_eq!(done, expected);
            assert_eq!(shared.holding(), 0);
        }
    }
}
