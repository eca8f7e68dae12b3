//! The order of issue, and the line where the memory budget cuts.

use crate::request::{Ordered, Turn};
use crate::schedule::{Start, schedule};
use crate::{cached, lazily_filled, neighbours};
use headstart_model::machine::{Cost, DeviceClass, Machine};
use headstart_model::plan::RequestKind;
use headstart_model::sort::Sort;
use std::cmp::Reverse;

/// What the order comes to.
pub(crate) struct Order {
    /// How many requests fit the budget; the rest stand behind them.
    pub cut: u32,
    /// For how many of its requests each device holds the start.
    pub holds: Vec<u32>,
}

/// Sorts the requests into issue order, and cuts at the budget (bytes).
///
/// Turn after turn ([`Turn`]). The sweep goes by stage, and inside a stage by deadline; on a disk by address,
/// in as many passes as its [`schedule`] has for this start, whatever the stage: what is needed later goes
/// along only where that costs nothing; elsewhere neighbours go together where that pays ([`neighbours`]).
/// Look-ups go from the root downwards, so that directories are there before what lies in them.
pub(crate) fn order(
    requests: &mut Vec<Ordered>,
    machine: &Machine,
    budget: u64,
    start: Option<Start>,
) -> Order {
    let beyond = cut(requests, machine, budget);
    let mut holds = vec![0; machine.devices.len()];
    for (index, device) in machine
        .devices
        .iter()
        .enumerate()
        .filter(|(_, d)| d.cost.class == DeviceClass::Disk)
    {
        let of_device = |r: &&Ordered| usize::from(r.request.device) == index;
        let own: Vec<&Ordered> = requests.iter().filter(of_device).collect();
        let schedule = schedule(&own, &device.cost, start);
        holds[index] = schedule.hold;
        let sweep = requests
            .iter_mut()
            .filter(|r| usize::from(r.request.device) == index && r.turn == Turn::Sweep);
        for (request, pass) in sweep.zip(schedule.passes) {
            request.pass = pass;
        }
    }
    neighbours::gather(requests, machine, start);
    sort(requests, machine);
    by_granule(requests, machine);
    cached::spread(requests, machine, &holds);
    neighbours::mark(requests, machine);
    let cut = requests.len() as u32;
    requests.extend(beyond);
    Order { cut, holds }
}

/// Sorts the requests, whose passes are known.
#[inline(never)]
fn sort(requests: &mut [Ordered], machine: &Machine) {
    requests.sort_small_by_key(|r| {
        let device = machine.devices.get(usize::from(r.request.device));
        let class = device.map(|d| d.cost.class);
        let has_places = device.is_some_and(|d| d.compression.is_none());
        let looked_up = matches!(r.turn, Turn::LookUps | Turn::After);
        let by_address = class == Some(DeviceClass::Disk) && has_places || r.turn == Turn::Metadata;
        let place = (r.physical.is_none(), r.physical.unwrap_or(0));
        let (deadline_us, lead) = r.lead.unwrap_or((r.request.deadline_us, 0));
        let by_time = (false, u64::from(deadline_us));
        let sweep = r.turn == Turn::Sweep && class == Some(DeviceClass::Disk);
        let stage = if sweep { 0 } else { r.request.stage };
        let level = if looked_up { r.level } else { usize::from(r.pass) };
        let first = if by_address && !looked_up { place } else { by_time };
        (
            r.turn,
            stage,
            level,
            first,
            (
                lead,
                if lead == 0 {
                    u64::from(r.request.deadline_us)
                } else {
                    place.1
                },
            ),
            (r.request.file, r.request.offset),
        )
    });
}

/// Puts the requests of volumes that are filled as they are read in the order of their granules, where all is
/// read earlier for it by half a fetch at least.
fn by_granule(requests: &mut [Ordered], machine: &Machine) {
    let before = lazily_filled::ends(requests, machine);
    if before.iter().all(|end| *end == 0) {
        return;
    }
    for (device, facts) in machine.devices.iter().enumerate() {
        if let Some(fill) = facts.first_touch.filter(|_| before[device] > 0) {
            lazily_filled::passes(requests, device, fill.granule);
        }
    }
    sort(requests, machine);
    let after = lazily_filled::ends(requests, machine);
    for request in requests.iter_mut() {
        let device = usize::from(request.request.device);
        let fetch = machine.devices.get(device).and_then(|device| device.first_touch);
        if let Some(fill) = fetch {
            let half = (fill.latency * 5e8) as u64;
            if before[device] > 0 && before[device] <= after[device].saturating_add(half) {
                request.pass = 0;
            }
        }
    }
    sort(requests, machine);
}

/// Leaves the requests that fit the budget (bytes), by kind, stage and deadline, and gives the others.
///
/// Metadata comes before all: without it each file costs a start some reads of a block. Data goes in by what
/// it saves for its bytes, in classes of a factor of two; in a class, what is needed first.
fn cut(requests: &mut Vec<Ordered>, machine: &Machine, budget: u64) -> Vec<Ordered> {
    let all: u64 = requests
        .iter()
        .map(|r| r.request.length)
        .fold(0, u64::saturating_add);
    let when = |r: &Ordered| (r.request.stage, r.request.deadline_us);
    let mut beyond = Vec::new();
    if all > budget {
        requests.sort_small_by_cached_key(|r| (worth(r), Reverse(saved_class(r, machine)), when(r)));
        let mut rest = budget;
        let fits = requests
            .iter()
            .position(|r| {
                let over = r.request.length > rest;
                rest -= if over { 0 } else { r.request.length };
                over
            })
            .unwrap_or(requests.len());
        beyond = requests.split_off(fits);
        let page = u64::from(machine.page_size.max(1));
        let part = beyond.first_mut().and_then(|first| {
            let device = machine.devices.get(usize::from(first.request.device));
            let block = device
                .and_then(|device| device.compression)
                .map(|of| of.block.into());
            let unit = u64::max(page, block.unwrap_or(0));
            first.beginning(rest / unit * unit)
        });
        requests.extend(part);
    }
    requests.sort_small_by_key(|r| (worth(r), when(r)));
    beyond
}

/// The time that a start is spared by a request for each of its bytes, if it needs what is read, as a power
/// of two of nanoseconds: by itself it would wait for the device once, and for the bytes.
fn saved_class(request: &Ordered, machine: &Machine) -> i32 {
    let Some(device) = machine.devices.get(usize::from(request.request.device)) else {
        return i32::MIN;
    };
    let Cost {
        latency, bandwidth, ..
    } = device.cost;
    // Holes are nobody's need.
    let needed = request.request.length.saturating_sub(request.request.bridged);
    let seconds = f64::from(request.weight) * (latency + needed as f64 / bandwidth);
    (seconds * 1e9 / request.request.length.max(1) as f64)
        .log2()
        .floor() as i32
}

/// What comes first where memory is short.
fn worth(request: &Ordered) -> u8 {
    match request.request.kind {
        RequestKind::Metadata => 0,
        RequestKind::Stat | RequestKind::List => 1,
        RequestKind::Data => 2,
    }
}
