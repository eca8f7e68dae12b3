//! The threads of a replay: one per device, which brings its own.

use crate::device::{Device, Shape, most_open};
use crate::file::{Files, descriptors};
use crate::item::{Item, Reason};
use crate::lane::{Lane, Worker, stand_back};
use crate::{Options, Shared, ahead, report, ring};
use headstart_model::outcome::{ReplayReport, Skipped};
use headstart_model::plan::{Plan, PlanDevice, PlanFile, RequestKind};
use headstart_system::mounts::MountTable;
use headstart_system::pins::Pins;
use std::sync::atomic::{AtomicBool, Ordering};

/// The requests of one device, by pass.
struct Work {
    planned: PlanDevice,
    passes: Passes<Lane>,
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
    stand_back();
    // Checked by the caller; what it was it still is.
    let Ok(plan) = file.plan() else {
        shared.release(usize::MAX);
        return ReplayReport::default();
    };
    let mut skipped = Skipped::default();
    let works = share_out(plan, options, &mut skipped);
    let mounts = MountTable::read().unwrap_or_default();
    let in_use = works.iter().map(|w| most_open(&w.planned, options)).sum();
    let files = Files::new(plan, &mounts, in_use);
    shared.governor.begin();
    let devices: Vec<Device> = std::thread::scope(|scope| {
        let serve = |work| serve(work, &files, &mounts, options, shared);
        let threads: Vec<_> = works
            .iter()
            .skip(1)
            .map(|work| {
                scope.spawn(move || {
                    stand_back();
                    serve(work)
                })
            })
            .collect();
        let first = works.first().map(serve);
        let others = threads.into_iter().filter_map(|thread| thread.join().ok());
        first.into_iter().chain(others).collect()
    });
    shared.release(usize::MAX);
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
            match report::issued(item, device, &files) {
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

/// The plan's requests by device and pass; those beyond the budget are only counted.
fn share_out(plan: Plan<'_>, options: &Options, skipped: &mut Skipped) -> Vec<Work> {
    let mut lanes: Vec<Passes<Vec<Item>>> = Vec::new();
    lanes.resize_with(plan.device_count(), Passes::default);
    for (index, request) in plan.requests().enumerate() {
        if index >= plan.cut() {
            Reason::OverBudget.count(skipped);
        } else if let Some(passes) = lanes.get_mut(usize::from(request.device)) {
            let lane = match request.kind {
                RequestKind::Metadata => &mut passes.metadata,
                RequestKind::Stat | RequestKind::List => &mut passes.look_ups,
                RequestKind::Data => &mut passes.data,
            };
            lane.push(Item::new(index as u32, request));
        }
    }
    let work = |(index, items): (usize, Passes<Vec<Item>>)| {
        let empty = items.metadata.is_empty() && items.look_ups.is_empty() && items.data.is_empty();
        let planned = plan.device(index).filter(|_| !empty)?;
        let shape = Shape::new(planned.cost.class, planned.cost.depth, options.depth, 0, 1);
        let inode = |file| plan.file(file as usize).map_or(0, |file| file.inode);
        let look_ups = ahead::look_ups(items.look_ups, inode, shape.threads);
        let passes = Passes {
            metadata: Lane::new(items.metadata),
            look_ups: Lane::new(look_ups),
            data: Lane::new(items.data),
        };
        Some(Work { planned, passes })
    };
    lanes.into_iter().enumerate().filter_map(work).collect()
}

fn serve(work: &Work, files: &Files<'_>, mounts: &MountTable, options: &Options, shared: &Shared) -> Device {
    let metadata = !work.passes.metadata.items.is_empty();
    let device = Device::look(&work.planned, mounts, options, metadata);
    let worker = Worker {
        device: &device,
        files,
        governor: &shared.governor,
        origin: options.origin,
    };
    // The start is let go once, when the requests that it is held for are done.
    let hold = work.planned.hold as usize;
    let before = work.passes.metadata.items.len() + work.passes.look_ups.items.len();
    let gone = AtomicBool::new(hold == 0);
    let let_go = || {
        if !gone.swap(true, Ordering::Relaxed) {
            shared.release(1);
        }
    };
    worker.serve(&work.passes.metadata, &|_| ());
    let mut pins = pins(work, &device, options);
    if let Some(pins) = &mut pins {
        ring::look_up(pins, &work.passes.look_ups, &worker, mounts);
    }
    worker.serve(&work.passes.look_ups, &|_| ());
    if hold <= before {
        let_go();
    }
    if device.block.is_err() {
        let (data, threads) = (&work.passes.data, device.shape.threads);
        match &mut pins {
            Some(pins) => ring::open(pins, data, files, &shared.governor, mounts),
            None => ahead::open(data, files, threads, &shared.governor),
        }
    }
    worker.serve(&work.passes.data, &|taken| {
        if before + taken >= hold {
            let_go();
        }
    });
    let_go();
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
