//! The threads of a replay: one per device, which brings its own.

use crate::ahead::{self, Order};
use crate::device::{Device, Shape};
use crate::file::{Files, descriptors, descriptors_in_use};
use crate::lazily_filled::Filling;
use crate::options::Options;
use crate::queue::Queue;
use crate::request::{Reason, RequestState};
use crate::shared::Shared;
use crate::threads::{self, end_before_others, give_way};
use crate::work::{Passes, Work};
use crate::worker::Worker;
use crate::{report, ring};
use headstart_model::machine::DeviceClass;
use headstart_model::outcome::{ReplayReport, Skipped};
use headstart_model::plan::{Plan, PlanDevice, PlanFile, RequestKind};
use headstart_model::sort::Sort;
use headstart_model::trace::WRITTEN_ONCE;
use headstart_system::device::{DeviceFacts, optical_cost};
use headstart_system::handle_opener::HandleOpener;
use headstart_system::mounts::{Mount, MountTable};
use headstart_system::path_resolver::PathResolver;
use headstart_system::priority;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Devices that are served at once, each with up to 32 threads: more than a machine has disks that a start
/// reads from. What a plan says of further ones waits for its turn.
const MAX_DEVICES: usize = 8;

/// Replays a plan, to its end or until stopped. Runs on a thread of its own.
pub fn run(file: &PlanFile, options: &Options, shared: &Shared) -> ReplayReport {
    // Whatever happens here, nobody waits for it any more afterwards.
    let _all = Barrier::new(shared, usize::MAX);
    // Checked by the caller; what it was it still is.
    let Ok(plan) = file.plan() else {
        return ReplayReport::default();
    };
    let mut skipped = Skipped::default();
    let mounts = MountTable::read().unwrap_or_default();
    let openers = openers(plan, &mounts);
    let works = shared
        .works
        .get_or_init(|| share_out(plan, &openers, &mounts, options, &mut skipped));
    let each = descriptors_in_use() / works.len().clamp(1, MAX_DEVICES);
    let most_open = |shape: Shape| shape.most_open(shape.each_open(each));
    let mut in_use: Vec<usize> = works
        .iter()
        .flat_map(|work| {
            Device::planned(&work.planned, options)
                .map(most_open)
                .into_iter()
                .max()
        })
        .collect();
    in_use.sort_small_by(|a, b| b.cmp(a));
    let in_use = in_use.iter().take(MAX_DEVICES).sum();
    let files = Files::new(plan, &mounts, &openers, in_use, options.reader);
    shared.governor.start();
    let serve = |work: &Work| serve(work, &files, &mounts, options, shared, each);
    let devices = side_by_side(works, &serve);
    let replay_ns = options.origin.elapsed().as_nanos() as u64;
    let memory_pressure = shared.governor.memory_pressure();
    let mut issued = Vec::new();
    let mut broken_bridges = 0;
    // What is still on its way when the end was asked for looks as what never came, and all has to be closed
    // soon.
    let patience = |broken: u64| match broken {
        _ if shared.governor.was_asked() => None,
        0 => Some(report::ON_THE_WAY),
        _ => Some(Duration::ZERO),
    };
    for (work, device) in works.iter().zip(&devices) {
        for state in work.requests() {
            let became = match device {
                Some(_) if report::is_broken_bridge(state, &files, patience(broken_bridges)) => {
                    broken_bridges += 1;
                    Err(Reason::Failed)
                }
                Some(device) => report::issued(state, device, &files),
                // Its thread failed by a mistake of its own.
                None => Err(Reason::Failed),
            };
            match became {
                Ok(one) => issued.push(one),
                Err(reason) => reason.count(&mut skipped),
            }
        }
    }
    issued.sort_small_by_key(|i| (i.issued_ns, i.request));
    ReplayReport {
        replay_ns,
        issued,
        skipped,
        memory_available: shared.governor.memory_available(),
        memory_pressure,
        memory_needed: shared.governor.memory_needed(),
        decisions: shared.governor.decisions(),
        stopped: shared.governor.stopped().map(str::to_string),
        fetched: shared.fetched.load(Ordering::Relaxed),
        broken_bridges,
        unanswered: Vec::new(),
    }
}

/// What is known of a replay that is still on its way: of what has arrived it claims only what was there
/// before.
pub(crate) fn report_so_far(shared: &Shared) -> ReplayReport {
    let mut skipped = Skipped::default();
    let mut issued = Vec::new();
    let mut broken_bridges = 0;
    for state in shared.works.get().into_iter().flatten().flat_map(Work::requests) {
        match report::confirmed(state) {
            Ok(one) => issued.push(one),
            Err(reason) => {
                broken_bridges += u64::from(report::is_unanswered_bridge(state));
                reason.count(&mut skipped);
            }
        }
    }
    issued.sort_small_by_key(|i| (i.issued_ns, i.request));
    ReplayReport {
        replay_ns: issued.iter().map(|i| i.done_ns).max().unwrap_or(0),
        issued,
        skipped,
        memory_available: shared.governor.memory_available(),
        memory_pressure: shared.governor.memory_pressure(),
        memory_needed: shared.governor.memory_needed(),
        decisions: shared.governor.decisions(),
        stopped: None,
        fetched: shared.fetched.load(Ordering::Relaxed),
        broken_bridges,
        unanswered: Vec::new(),
    }
}

/// Does something for each, for [`MAX_DEVICES`] at the same time, on the calling thread among others: a
/// thread that cannot be had is done without. `None` where it panicked.
fn side_by_side<W: Sync, T: Send + Sync>(works: &[W], serve: &(impl Fn(&W) -> T + Sync)) -> Vec<Option<T>> {
    let next = AtomicUsize::new(0);
    let done: Vec<OnceLock<T>> = works.iter().map(|_| OnceLock::new()).collect();
    let take_turns = || {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let (Some(work), Some(done)) = (works.get(turn), done.get(turn)) else {
                break;
            };
            // Nothing that it leaves half done is used: without a result all of it counts as failed.
            // In the programs that are installed a panic aborts (decision 34).
            if let Ok(result) = catch_unwind(AssertUnwindSafe(|| serve(work))) {
                let _ = done.set(result);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..works.len().min(MAX_DEVICES) {
            let thread = std::thread::Builder::new().name("headstart".into());
            let _ = thread.spawn_scoped(scope, || {
                take_turns();
                end_before_others();
            });
        }
        take_turns();
    });
    done.into_iter().map(OnceLock::into_inner).collect()
}

/// A part in holding the start; given up once, when dropped at the latest.
struct Barrier<'a> {
    shared: &'a Shared,
    devices: usize,
    gone: AtomicBool,
}

impl<'a> Barrier<'a> {
    fn new(shared: &'a Shared, devices: usize) -> Barrier<'a> {
        Barrier {
            shared,
            devices,
            gone: AtomicBool::new(false),
        }
    }

    /// Whether it stood until now.
    fn release(&self) -> bool {
        let stood = !self.gone.swap(true, Ordering::Relaxed);
        if stood {
            self.shared.release(self.devices);
        }
        stood
    }
}

impl Drop for Barrier<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

/// For each disk a way to its files by handle, if the plan relies on that: it reads directories amid the
/// data.
fn openers(plan: Plan<'_>, mounts: &MountTable) -> Vec<Option<HandleOpener>> {
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
    let opener = |(index, amid): (usize, bool)| {
        let planned = plan.device(index).filter(|planned| amid && is_disk(planned))?;
        let mount = mounts.lookup(planned.mount_point.as_bytes())?;
        HandleOpener::new(mounts, mount).ok()
    };
    // Each has a descriptor: of more devices than a machine has, the first have to do.
    let mut left = MAX_DEVICES;
    let mut opener = |wanted| {
        left.checked_sub(1)?;
        let opener = opener(wanted)?;
        left -= 1;
        Some(opener)
    };
    amid.into_iter().enumerate().map(&mut opener).collect()
}

/// The plan's requests by device and pass; those beyond the budget are only counted.
///
/// What follows the first data in the plan stays behind it: it is what the start alone looks at. On a disk
/// directories are among it. So where a disk's files have to be opened by path after all (without one of
/// `openers`), all metadata goes first. Where no head moves, look-ups go on beside the data.
fn share_out(
    plan: Plan<'_>,
    openers: &[Option<HandleOpener>],
    mounts: &MountTable,
    options: &Options,
    skipped: &mut Skipped,
) -> Vec<Work> {
    let mut queues: Vec<Passes<Vec<RequestState>>> = Vec::new();
    queues.resize_with(plan.device_count(), Passes::default);
    // Of each device: its requests so far, and the data's among those before the barrier.
    let mut counts = vec![(0u32, 0usize); plan.device_count()];
    for (index, request) in plan.requests().enumerate() {
        let device = usize::from(request.device);
        if !options.devices.has(request.device) {
            continue;
        }
        if index >= plan.cut() {
            Reason::OverBudget.count(skipped);
        } else if let Some(passes) = queues.get_mut(device) {
            let hold = plan.device(device).map_or(0, |planned| planned.hold);
            let by_handle = || matches!(openers.get(device), Some(Some(_)));
            let disk = plan.device(device).is_some_and(|planned| is_disk(&planned));
            let sweep = !passes.data.is_empty() && (!disk || by_handle());
            let queue = match request.kind {
                RequestKind::Stat | RequestKind::List if sweep && !disk => &mut passes.beside,
                _ if sweep => &mut passes.data,
                RequestKind::Metadata => &mut passes.metadata,
                RequestKind::Stat | RequestKind::List => &mut passes.look_ups,
                RequestKind::Data => &mut passes.data,
            };
            queue.push(RequestState::new(index as u32, request));
            let (count, barrier_data) = &mut counts[device];
            *count += 1;
            if *count <= hold {
                *barrier_data = passes.data.len();
            }
        }
    }
    let mut fills: Vec<_> = plan.fills().collect();
    let mut work = |(index, requests): (usize, Passes<Vec<RequestState>>)| {
        let empty = requests.metadata.is_empty()
            && requests.look_ups.is_empty()
            && requests.data.is_empty()
            && requests.beside.is_empty();
        let planned = for_its_medium(plan.device(index).filter(|_| !empty)?, mounts);
        let [shape, _] = Device::planned(&planned, options);
        let order = Order::of(&planned, shape.threads);
        let look_ups = |requests| Queue::new(ahead::look_ups(requests, plan, order));
        let mut metadata = requests.metadata;
        if is_disk(&planned) {
            // As planned, unless some of it was to be read amid the data.
            metadata.sort_small_by_key(|state| state.request.offset);
        }
        let passes = Passes {
            metadata: Queue::new(metadata),
            look_ups: look_ups(requests.look_ups),
            data: Queue::new(requests.data),
            beside: look_ups(requests.beside),
        };
        Some(Work {
            planned,
            passes,
            fill: fills
                .iter()
                .position(|fill| usize::from(fill.device) == index)
                .map(|at| fills.swap_remove(at)),
            barrier_data: counts[index].1,
        })
    };
    queues.into_iter().enumerate().filter_map(&mut work).collect()
}

/// A planned device, as what it is on now is asked: the image of a live system may have been learned on a USB
/// stick and lie on an optical drive, whose one head must not go back and forth between requests.
fn for_its_medium(mut planned: PlanDevice, mounts: &MountTable) -> PlanDevice {
    // Of others nobody asks sysfs what they lie on: a start waits.
    let is_on_media = |mount: &&Mount| WRITTEN_ONCE.contains(&mount.fstype.as_str());
    let mount = mounts.lookup(planned.mount_point.as_bytes());
    let mount = mount.filter(|_| !is_disk(&planned)).filter(is_on_media);
    if mount
        .and_then(DeviceFacts::of_mount)
        .is_some_and(|facts| facts.is_optical())
    {
        planned.cost = optical_cost();
    }
    planned
}

fn is_disk(device: &PlanDevice) -> bool {
    device.cost.class == DeviceClass::Disk
}

/// Serves a device, on which `open` files may be open only because they are read from.
fn serve(
    work: &Work,
    files: &Files<'_>,
    mounts: &MountTable,
    options: &Options,
    shared: &Shared,
    open: usize,
) -> Device {
    let fill = work.fill.as_ref();
    let filling = fill.and_then(|fill| Filling::open(fill, &work.planned, mounts));
    std::thread::scope(|scope| {
        if let Some(filling) = &filling {
            filling.start(scope, &shared.governor, &shared.fetched);
        }
        let device = serve_passes(work, files, mounts, options, shared, open, filling.as_ref());
        // What was asked for is there.
        if let Some(filling) = &filling {
            filling.end();
        }
        device
    })
}

/// The passes of a device, one after the other but for the last two.
fn serve_passes(
    work: &Work,
    files: &Files<'_>,
    mounts: &MountTable,
    options: &Options,
    shared: &Shared,
    open: usize,
    filling: Option<&Filling<'_>>,
) -> Device {
    // The barrier is released once, when the requests before it are over, or none can be any more.
    let until = work.planned.hold as usize;
    let barrier = Barrier::new(shared, usize::from(until > 0));
    // While the start waits for it the replay gives way to nobody.
    let release = || {
        if barrier.release() {
            give_way();
        }
    };
    // Nor does it before its first request is over where the start is under way already: on busy processors
    // each turn that it waited for would be some milliseconds. The threads that help it give way from their
    // beginning.
    let this = std::thread::current().id();
    let behind = AtomicBool::new(false);
    let ahead = |over: usize| {
        if over > 0 && std::thread::current().id() == this && !behind.swap(true, Ordering::Relaxed) {
            match until {
                0 => give_way(),
                // What lasts for seconds is not to come before everybody.
                _ => drop(priority::leave_realtime()),
            }
        }
    };
    let begun = |queue: &Queue, over: usize| {
        if !queue.requests.is_empty() {
            ahead(over);
        }
    };
    if until == 0 {
        barrier.release();
    }
    let is_metadata = |state: &RequestState| state.request.kind == RequestKind::Metadata;
    let passes = [&work.passes.metadata, &work.passes.data];
    let metadata = passes.iter().any(|queue| queue.requests.iter().any(is_metadata));
    let device = Device::open(&work.planned, mounts, options, metadata);
    let worker = Worker {
        device: &device,
        files,
        governor: &shared.governor,
        over: &shared.over,
        arrived: &shared.arrived,
        origin: options.origin,
        io_uring: options.io_uring,
        filling,
        open,
    };
    worker.serve(&work.passes.metadata, &|over| begun(&work.passes.metadata, over));
    let mut resolver = resolver(work, &device, options);
    if let Some(resolver) = &mut resolver {
        let order = Order::of(&work.planned, resolver.in_flight());
        ring::look_up(resolver, &work.passes.look_ups, order, &worker, mounts);
    }
    worker.serve(&work.passes.look_ups, &|over| begun(&work.passes.look_ups, over));
    if work.barrier_data == 0 {
        release();
    }
    // Where files are compressed by blocks, all of them have been looked up.
    if device.block.is_err() && work.planned.compression.is_none() {
        let (data, threads) = (&work.passes.data, device.shape().threads);
        match &mut resolver {
            Some(resolver) => ring::open(resolver, data, files, &shared.governor, mounts),
            None => ahead::open(data, files, threads, &shared.governor),
        }
    }
    let beside = &work.passes.beside;
    let mut left = !beside.requests.is_empty();
    std::thread::scope(|scope| {
        let look_up = || {
            if let Some(mut resolver) = resolver {
                let order = Order::of(&work.planned, resolver.in_flight());
                ring::look_up(&mut resolver, beside, order, &worker, mounts);
            }
            worker.serve(beside, &|_| ());
        };
        left = left && threads::behind(scope, look_up).is_err();
        worker.serve(&work.passes.data, &|over| {
            begun(&work.passes.data, over);
            if over >= work.barrier_data {
                release();
            }
        });
    });
    // Without a thread for it.
    if left {
        worker.serve(beside, &|_| ());
    }
    device
}

/// A ring, where it helps: there is something to look up, and the device serves more at once than it has
/// threads. With as many threads as look-ups in flight it would only cost
/// (`docs/decisions/0001-io-uring-for-opens.md`).
fn resolver(work: &Work, device: &Device, options: &Options) -> Option<PathResolver> {
    let passes = [&work.passes.look_ups, &work.passes.beside];
    let look_ups = passes.iter().any(|queue| !queue.requests.is_empty()) || device.block.is_err();
    // Each takes a descriptor. Half of them are for files that are kept open, and a plan may have several
    // devices.
    let in_flight = device.shape().in_flight().min(descriptors() as u32 / 8);
    if !options.io_uring || !look_ups || in_flight <= device.shape().threads {
        return None;
    }
    // Where the kernel has none, or not for us, the threads do it.
    PathResolver::new(in_flight).ok()
}

#[cfg(test)]
mod tests;
