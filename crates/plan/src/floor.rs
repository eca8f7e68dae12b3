//! The floor: the least time any order of reads could give a start on its devices.
//!
//! Whatever is read when, at each moment `t` of the start all that is used before `t` must have been read,
//! and what the start does after `t` is still to come. So no start ends before the device's best time for
//! what is used before `t`, plus what a warm start takes after `t`; the largest of these sums over all
//! moments is the floor.
//!
//! The best time is of the cost model ([`Cost`]) and takes the bytes where they lie: of one head the time of
//! a pass in address order, from the first of them on; elsewhere the larger of the time the bytes take and
//! the time the requests take, all of them asked for at once and joined over the holes that make that least.
//! Where a device is filled as it is read, it is no less than the fetches of all granules take.
//!
//! A start may have been held, and may have waited for its reads. So times count from its first use, a warm
//! start takes what is left without the time that its threads waited, and what was used at some time was used
//! by a warm start not later. A boot ends when the machine is up, though it is recorded until it is quiet.
//!
//! Only what was surely used counts: of pages that were mapped around a touched one nobody knows whether they
//! were, and of a large directory one block is read. So the floor may be too low, and is not too high.

use crate::data::pieces;
use crate::deadlines::Deadlines;
use crate::request::Piece;
use headstart_model::floor::{Above, Floor, Need};
use headstart_model::machine::{Cost, DeviceClass, FileFacts, Machine, PathKind};
use headstart_model::plan::{Plan, Request, RequestKind};
use headstart_model::sort::Sort;
use headstart_model::trace::{Scope, UseKind};
use headstart_model::{FilePath, Outcome, PageRange, PageSet, Profile, Trace};
use std::collections::{BTreeMap, HashMap};

/// The floor is looked for at so many moments, with as many needs between one and the next. Between two of
/// them it may be higher by what one step of the device takes, never lower.
const MOMENTS: usize = 128;

/// At each moment all needs before it are sorted once more (`PageSet::union`): so many at all of them
/// together. Of a start with more than 16,384 needs there are fewer moments.
const LOOKS: usize = 1 << 21;

/// A start that waited for block devices for a smaller share of its time was as good as warm.
const WARM: f64 = 0.01;

/// Bytes of a device, `[start, end)`.
type Bytes = PageRange;

/// The floor of the start that a trace tells of, on this machine, by its [`needs`].
pub fn floor(trace: &Trace, needed: &[Need], machine: &Machine) -> Floor {
    let (took_ns, warm_ns) = computing(trace);
    let mut best = Floor {
        floor_ns: warm_ns,
        warm_ns,
        waited: (took_ns - warm_ns) as f64 > WARM * took_ns as f64,
        ..Floor::default()
    };
    let mut so_far = BTreeMap::<u32, PageSet>::new();
    let mut from = 0;
    let moments = moments(needed.len());
    for number in 1..=moments {
        let to = needed.len() * number / moments;
        let Some(last) = to.checked_sub(1).and_then(|last| needed.get(last)) else {
            continue;
        };
        if to == from {
            continue;
        }
        for (device, new) in by_device(&needed[from..to]) {
            let known = so_far.entry(device).or_default();
            *known = known.union(&new);
        }
        from = to;
        let read_ns = best_time(&so_far, machine);
        let moment_ns = last.time_ns.min(warm_ns);
        let floor_ns = read_ns.saturating_add(warm_ns - moment_ns);
        if floor_ns > best.floor_ns {
            best = Floor {
                floor_ns,
                moment_ns,
                read_ns,
                ..best
            };
        }
        best.read_all_ns = read_ns;
    }
    best.bytes = so_far.values().map(PageSet::pages).sum();
    best
}

/// At how many moments the floor of a start with so many needs is looked for.
fn moments(needs: usize) -> usize {
    (LOOKS / needs.max(1)).clamp(1, MOMENTS)
}

/// What the start that a trace tells of surely uses while it counts, in the order of time; `profile` is what
/// was learned from that trace alone.
pub fn needs(trace: &Trace, profile: &Profile, machine: &Machine) -> Vec<Need> {
    let (took_ns, _) = computing(trace);
    let mut needed = needed(trace, profile, machine);
    if trace.up_ns().is_some() {
        needed.retain(|need| need.time_ns <= took_ns);
    }
    needed.sort_small_by_key(|need| need.time_ns);
    needed
}

/// Where the time of a start with a replay went beyond its floor; `None` for a start without. `plan` is what
/// was replayed.
pub fn above_floor(
    floor: &Floor,
    trace: &Trace,
    profile: &Profile,
    machine: &Machine,
    plan: &Plan<'_>,
    outcome: &Outcome,
) -> Option<Above> {
    let own_ns = outcome.first_request_ns?;
    let planned = planned(plan, machine);
    let used = by_device(&needed(trace, profile, machine));
    let nothing = PageSet::new();
    let devices = used.keys().chain(planned.keys());
    let rates = devices
        .map(|device| {
            let device_pages = |sets: &BTreeMap<u32, PageSet>| sets.get(device).unwrap_or(&nothing).clone();
            (*device, device_pages(&used).union(&device_pages(&planned)))
        })
        .collect();
    let left: f64 = used
        .iter()
        .filter_map(|(device, set)| {
            let cost = machine.devices.get(*device as usize)?.cost;
            let missing = set.difference(planned.get(device).unwrap_or(&nothing));
            let runs = missing.ranges().len() as f64;
            Some(runs * cost.latency + missing.pages() as f64 / cost.bandwidth)
        })
        .sum();
    let planned_ns = best_time(&planned, machine);
    let mut rest = outcome.elapsed_ns.saturating_sub(floor.floor_ns);
    let mut take = |part: u64| {
        let part = part.min(rest);
        rest -= part;
        part
    };
    let (own_ns, order_ns, over_read_ns, reads_left_ns) = (
        take(own_ns),
        take(
            outcome
                .replay_ns
                .saturating_sub(own_ns)
                .saturating_sub(planned_ns),
        ),
        take(best_time(&rates, machine).saturating_sub(best_time(&used, machine))),
        take((left * 1e9) as u64),
    );
    Some(Above {
        took_ns: outcome.elapsed_ns,
        own_ns,
        order_ns,
        over_read_ns,
        reads_left_ns,
        computing_ns: rest,
    })
}

/// How long the start took from its first use on, and how long it takes at least where it waits for nothing;
/// nanoseconds.
fn computing(trace: &Trace) -> (u64, u64) {
    let elapsed_ns = trace.end.elapsed_ns;
    let end_ns = trace.up_ns().unwrap_or_else(|| trace.over_ns());
    // Nor is what it waited for at a barrier.
    let took_ns = end_ns.saturating_sub(trace.began_ns());
    // What was computed until the machine was up nobody has asked by then. It does less when it is up, so
    // this is too little, if anything.
    let until_up = trace
        .up_ns()
        .map_or(1.0, |up_ns| up_ns as f64 / elapsed_ns.max(1) as f64);
    let cpu_ns = trace.end.cpu_ns.map(|ns| (ns as f64 * until_up) as u64);
    let warm_ns = match (trace.end.blocked_ns, cpu_ns) {
        // At a boot so many tasks wait at once that what they wait for, added up, is longer than the boot.
        (Some(blocked_ns), Some(cpu_ns)) if trace.meta.scope == Scope::System && blocked_ns > 0 => {
            cpu_ns.min(took_ns)
        }
        // Threads that wait at the same time count each, so it is less at most.
        (Some(blocked_ns), _) => took_ns.saturating_sub(blocked_ns),
        (None, Some(cpu_ns)) => cpu_ns.min(took_ns),
        (None, None) => took_ns,
    };
    (took_ns, warm_ns)
}

/// What the start surely used, where it lies.
fn needed(trace: &Trace, profile: &Profile, machine: &Machine) -> Vec<Need> {
    let page = u64::from(machine.page_size.max(1));
    let began_ns = trace.began_ns();
    let facts: HashMap<&FilePath, &FileFacts> = machine.files.iter().map(|f| (&f.path, f)).collect();
    let mut needed = Vec::new();
    // A trace may be of another machine, with other pages, and of anybody.
    let bytes = |pages: u64| pages.saturating_mul(u64::from(trace.meta.page_size));
    for used in trace.all_uses().filter(|used| is_sure(used.kind)) {
        let Some(file) = trace.files.get(used.file as usize) else {
            continue;
        };
        let Some(facts) = facts.get(&file.path).filter(|f| f.found == PathKind::File) else {
            continue;
        };
        let Some(device) = facts.device else { continue };
        // Of a window mapped around a fault one page was touched, nobody knows which.
        let pages = if used.kind == UseKind::Map { 1 } else { used.pages };
        let range = PageRange {
            start: bytes(used.start) / page,
            end: bytes(used.start.saturating_add(u64::from(pages))).div_ceil(page),
        };
        for piece in pieces(&PageSet::from_iter([range]), facts, page, 0) {
            // What lies nobody knows where is left out: the floor is not too high for it.
            let Some(at) = piece.physical else { continue };
            needed.push(Need {
                time_ns: used.time_ns.saturating_sub(began_ns),
                device,
                start: at,
                end: at + (piece.end - piece.start),
            });
        }
    }
    let deadlines = Deadlines::new(profile);
    for facts in &machine.files {
        let Some(device) = facts.device else { continue };
        let ranges = facts.metadata.iter().map(|range| {
            let length = match facts.found {
                PathKind::Directory => range.length.min(page),
                _ => range.length,
            };
            (range.start, range.start.saturating_add(length))
        });
        // Of a directory the inode and one block.
        let most = if facts.found == PathKind::Directory {
            2
        } else {
            usize::MAX
        };
        needed.extend(ranges.take(most).map(|(start, end)| Need {
            time_ns: u64::from(deadlines.get(&facts.path)) * 1000,
            device,
            start,
            end,
        }));
    }
    needed.retain(|need| need.start < need.end);
    needed
}

fn by_device(needed: &[Need]) -> BTreeMap<u32, PageSet> {
    let bytes = |need: &Need| PageRange {
        start: need.start,
        end: need.end,
    };
    sets(needed.iter().map(|need| (need.device, bytes(need))))
}

fn sets(ranges: impl Iterator<Item = (u32, Bytes)>) -> BTreeMap<u32, PageSet> {
    let mut of_device = BTreeMap::<u32, Vec<Bytes>>::new();
    for (device, bytes) in ranges {
        of_device.entry(device).or_default().push(bytes);
    }
    let sets = of_device.into_iter();
    sets.map(|(device, ranges)| (device, ranges.into_iter().collect()))
        .collect()
}

/// Whether such a use is of a page that was touched.
fn is_sure(kind: UseKind) -> bool {
    match kind {
        UseKind::Read | UseKind::Fault | UseKind::Map => true,
        UseKind::Around | UseKind::Add => false,
    }
}

/// Where what a plan reads lies on this machine.
pub(crate) struct Places<'a> {
    page: u64,
    plan: &'a Plan<'a>,
    facts: HashMap<&'a FilePath, &'a FileFacts>,
    /// The machine's number of each device of the plan.
    devices: Vec<Option<u32>>,
}

impl<'a> Places<'a> {
    pub fn new(plan: &'a Plan<'a>, machine: &'a Machine) -> Places<'a> {
        let mounts: HashMap<&[u8], u32> = machine
            .devices
            .iter()
            .zip(0..)
            .map(|(device, index)| (device.mount_point.as_bytes(), index))
            .collect();
        Places {
            page: u64::from(machine.page_size.max(1)),
            plan,
            facts: machine.files.iter().map(|f| (&f.path, f)).collect(),
            devices: (0..plan.device_count())
                .map(|index| mounts.get(plan.device(index)?.mount_point.as_bytes()).copied())
                .collect(),
        }
    }

    /// The bytes of a request, and of which device they are. Those of which nobody knows where they lie are
    /// left out.
    pub fn of_request(&self, request: &Request) -> Vec<(u32, Bytes)> {
        let bytes = PageRange {
            start: request.offset,
            end: request.offset.saturating_add(request.length),
        };
        match request.kind {
            RequestKind::Metadata => {
                let device = self.devices.get(usize::from(request.device)).copied().flatten();
                device.map(|device| (device, bytes)).into_iter().collect()
            }
            RequestKind::Data => self.of_data(request.file, bytes).unwrap_or_default(),
            RequestKind::Stat | RequestKind::List => Vec::new(),
        }
    }

    fn of_data(&self, file: u32, bytes: Bytes) -> Option<Vec<(u32, Bytes)>> {
        let path = FilePath::from(self.plan.path(file as usize)?);
        let facts = self.facts.get(&path)?;
        let device = facts.device?;
        let pages = PageRange {
            start: bytes.start / self.page,
            end: bytes.end.div_ceil(self.page),
        };
        let pieces = pieces(&PageSet::from_iter([pages]), facts, self.page, 0);
        let place = |piece: &Piece| {
            let at = piece.physical?;
            let end = at + (piece.end - piece.start);
            Some((device, PageRange { start: at, end }))
        };
        Some(pieces.iter().filter_map(place).collect())
    }
}

/// What a plan reads, where it lies.
fn planned(plan: &Plan<'_>, machine: &Machine) -> BTreeMap<u32, PageSet> {
    let places = Places::new(plan, machine);
    let requests = plan.requests().take(plan.cut());
    sets(requests.flat_map(|request| places.of_request(&request)))
}

/// The devices' best time for these bytes, all devices at once, nanoseconds.
fn best_time(bytes: &BTreeMap<u32, PageSet>, machine: &Machine) -> u64 {
    let of_device = |(device, set): (&u32, &PageSet)| {
        let device = machine.devices.get(*device as usize)?;
        let fetches = device
            .first_touch
            .map_or(0.0, |first| first.seconds(granules(set, first.granule)));
        Some(sweep_seconds(set, &device.cost).max(fetches))
    };
    let longest = bytes.iter().filter_map(of_device).fold(0.0, f64::max);
    (longest * 1e9) as u64
}

/// In how many granules of so many bytes these bytes lie.
fn granules(set: &PageSet, granule: u64) -> u64 {
    let in_granules = set.ranges().iter().map(|range| PageRange {
        start: range.start / granule.max(1),
        end: range.end.div_ceil(granule.max(1)),
    });
    in_granules.collect::<PageSet>().pages()
}

/// A device's best time for these bytes of it, seconds: of one head in one pass in address order, elsewhere
/// all asked for at once.
pub fn sweep_seconds(set: &PageSet, cost: &Cost) -> f64 {
    if set.ranges().is_empty() {
        return 0.0;
    }
    let bytes = set.pages() as f64 / cost.bandwidth;
    let mut holes: Vec<f64> = set
        .ranges()
        .windows(2)
        .map(|two| (two[1].start - two[0].end) as f64 / cost.bandwidth)
        .collect();
    if cost.class == DeviceClass::Disk {
        return bytes + holes.iter().map(|hole| hole.min(cost.latency)).sum::<f64>();
    }
    // The smallest holes are read first: each is one request less for the fewest bytes more.
    holes.sort_unstable_by(f64::total_cmp);
    let each = cost.latency / f64::from(cost.depth.max(1));
    let mut least = f64::INFINITY;
    let mut read = bytes;
    for joined in 0..=holes.len() {
        let requests = (holes.len() + 1 - joined) as f64 * each;
        least = least.min(read.max(requests).max(cost.latency));
        read += holes.get(joined).copied().unwrap_or(0.0);
    }
    least
}

#[cfg(test)]
mod tests;
