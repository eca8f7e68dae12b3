//! Whether the starts of a key are bypassed: decided after a start, for those that follow (decision 6).

use headstart_learn::verdict::controls::hash;
use headstart_learn::verdict::slower;
use headstart_learn::verdict::waits::{LEAST_SAVED, SAVED, too_little as waits_too_little};
use headstart_model::Outcome;
use headstart_model::human::duration;
use headstart_model::machine::DeviceClass;
use headstart_model::plan::{Plan, Request};
use headstart_store::Bypass;
use headstart_system::process::processors;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// The most of a boot that its replay, with headstart's own beginning, may take the device, or it cannot pay:
/// something is always computed before the first page is there and after the last. Not less: what is needed
/// first is read first, and the last that is read may be what nobody waits for.
const MOST_OF_DEVICE: f64 = 0.9;

/// A boot has just read about as much by itself: a device that would need so much longer than all of it for
/// the plan was measured wrongly, on a busy machine.
const BELIEVED: f64 = 1.25;

/// A re-evaluation costs a tenth of a boot and more: at this share of the starts without a replay it comes to
/// less than one in a hundred.
const MOST_SELDOM: u32 = 4;

/// More than machine-id(5) has, bytes.
const MACHINE_ID: u64 = 256;

/// After so many starts in a row that taught nothing the next one hardly will.
const MOST_UNTAUGHT: usize = 3;

/// How a boot goes by itself: the last one that was recorded without a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alone {
    /// What headstart took until nobody had to wait for it any more: to be read itself and to attach the
    /// recorder, of that the share of one boot where not each is recorded, nanoseconds.
    pub own_ns: u64,
    /// The processors' time that it took from then to the end, nanoseconds: what it took before is part of
    /// `own_ns`.
    pub cpu_ns: u64,
    /// From when nobody had to wait for headstart to the end, nanoseconds.
    pub rest_ns: u64,
    /// How long threads, added up, waited for block devices; `None` where that is not recorded.
    pub blocked_ns: Option<u64>,
}

/// The bypass that follows from what is known, if any; `every` is how many starts there are for one that
/// re-evaluates it. Only of boots is it known how they go by themselves, for they begin with nothing in
/// memory: of a program one start finds there all it needs and the next one nothing.
pub fn decide(
    alone: Option<&Alone>,
    plan: Option<&Plan<'_>>,
    outcomes: &[Outcome],
    every: u32,
) -> Option<Bypass> {
    if every == 0 {
        return None;
    }
    let too_little = |alone: &Alone| {
        let device = Device::from_plan(plan?, alone.rest_ns, processors().unwrap_or(1));
        too_little(alone, &device)
    };
    if let Some(why) = alone.and_then(too_little) {
        return Some(on_this_machine(every, false, why));
    }
    let (with, without) = slower(outcomes)?;
    let why = format!(
        "with reading ahead it takes {}, without {}",
        duration(with),
        duration(without)
    );
    Some(on_this_machine(every, true, why))
}

/// The bypass of a program that hardly waits for devices: no replay can gain there, and to compare starts
/// that differ by a fifth would take hundreds of them. `remote` says whether its plan reads remote file
/// systems, for which not all waiting is seen. A re-evaluation goes without a replay, and sees whether it
/// waits.
pub fn hardly_waits(outcomes: &[Outcome], remote: bool, every: u32) -> Option<Bypass> {
    let (waited, took) = waits_too_little(outcomes).filter(|_| every != 0 && !remote)?;
    let why = format!(
        "without reading ahead it takes {} and waits {} of that for disks; about half of the wait could be saved",
        duration(took),
        duration(waited)
    );
    Some(on_this_machine(every, false, why))
}

/// The bypass of starts of which nothing is known and the last few taught nothing, whatever the reason: each
/// would cost what recording costs, for nothing.
pub fn untaught(outcomes: &[Outcome], every: u32) -> Option<Bypass> {
    let last = outcomes
        .len()
        .checked_sub(MOST_UNTAUGHT)
        .and_then(|at| outcomes.get(at..))?;
    let why = last.last()?.not_learned.as_ref()?;
    let in_vain = |outcome: &Outcome| outcome.not_learned.is_some() && !outcome.unrecorded;
    let in_vain = every != 0 && last.iter().all(in_vain);
    let why = format!("nothing is known of them, and the last {MOST_UNTAUGHT} taught nothing: {why}");
    in_vain.then(|| on_this_machine(every, false, why))
}

/// The bypass of starts whose files somebody looks at as each is opened: who opens them to read them ahead
/// has the same done twice. A re-evaluation opens a few, and finds out whether it is over.
pub fn dear_opens(took: Option<Duration>, every: u32) -> Option<Bypass> {
    let took = took.filter(|_| every != 0)?;
    let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    let why = format!(
        "to open a file takes {} here, as beside an on-access scanner: files that are read ahead would be scanned twice",
        duration(ns)
    );
    Some(on_this_machine(every, false, why))
}

/// A bypass on this machine, with the kernel that runs.
fn on_this_machine(every: u32, replay: bool, why: String) -> Bypass {
    Bypass {
        every,
        kernel: kernel(),
        machine: machine(),
        replay,
        why,
    }
}

/// A bypass that a re-evaluation has confirmed: what is found once more is looked for half as often, down to
/// one start in `every` times [`MOST_SELDOM`].
pub fn confirmed(found: Bypass, before: Option<&Bypass>, every: u32) -> Bypass {
    let known = before.filter(|before| before.kernel == found.kernel && before.machine == found.machine);
    let seldom = |before: &Bypass| before.every.max(every).saturating_mul(2);
    let every = known.map_or(every, |before| {
        seldom(before).min(every.saturating_mul(MOST_SELDOM))
    });
    Bypass { every, ..found }
}

/// Why a replay cannot make a boot faster: the device takes as long for it, or there is too little to save,
/// weighed against what headstart itself takes.
fn too_little(alone: &Alone, device: &Device) -> Option<String> {
    let rest = alone.rest_ns as f64;
    let replay_ns = alone.own_ns.saturating_add(device.replay_ns);
    let believed = device.replay_ns as f64 <= BELIEVED * rest;
    if believed && replay_ns as f64 > MOST_OF_DEVICE * rest {
        return Some(format!(
            "a boot takes {}, and only to read it ahead would take the {} {}, and headstart {} to begin",
            duration(alone.rest_ns),
            match device.decompresses {
                true => "processors, which decompress it,",
                false => "disk",
            },
            duration(device.replay_ns),
            duration(alone.own_ns)
        ));
    }
    let blocked_ns = alone.blocked_ns.unwrap_or(u64::MAX);
    let waits_ns = blocked_ns.min(device.alone_ns).min(alone.rest_ns);
    let saved_ns = (SAVED * waits_ns as f64) as u64;
    let least_ns = alone.cpu_ns.max((LEAST_SAVED * rest) as u64);
    (saved_ns < alone.own_ns.saturating_add(least_ns)).then(|| {
        format!(
            "of {} a boot waits {} for disks; about half of the wait could be saved, and headstart needs {} to begin and then {} of processors",
            duration(alone.rest_ns),
            duration(waits_ns),
            duration(alone.own_ns),
            duration(alone.cpu_ns)
        )
    })
}

/// What the devices of a plan, all at once, need to read what is used until some time of the start,
/// nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Device {
    /// As the plan reads it, at least: what a request costs besides its bytes is left out on one head, where
    /// the order decides about that. Not less than this machine's processors take to decompress it.
    replay_ns: u64,
    /// Whether that is what the processors take.
    decompresses: bool,
    /// As the start reads it by itself, one request after the other.
    alone_ns: u64,
}

impl Device {
    fn from_plan(plan: &Plan<'_>, until_ns: u64, processors: u32) -> Device {
        let mut decompressing = 0.0;
        let mut seconds = vec![(0.0, 0.0); plan.device_count()];
        let used = |one: &Request| one.length > 0 && u64::from(one.deadline_us) <= until_ns / 1000;
        for request in plan.requests().take(plan.cut()).filter(used) {
            let index = usize::from(request.device);
            let (Some(device), Some((replay, alone))) = (plan.device(index), seconds.get_mut(index)) else {
                continue;
            };
            let cost = &device.cost;
            let transfer = request.length as f64 / cost.bandwidth;
            let requests = |size: u64| request.length.div_ceil(size.max(1)) as f64;
            *replay += transfer;
            if cost.class != DeviceClass::Disk {
                let at_once = f64::from(cost.depth.max(1));
                *replay += requests(device.request_limit.into()) * cost.latency / at_once;
            }
            *alone += cost.alone(request.length);
            decompressing += device.compression.map_or(0.0, |of| of.seconds(request.length));
        }
        // Where it is filled as it is read, a start by itself waits for each granule.
        let requests: Vec<Request> = plan.requests().collect();
        for fill in plan.fills() {
            let needed = fill
                .touches
                .iter()
                .map(|touch| requests.get(touch.request as usize));
            let granules = needed.flatten().filter(|request| used(request)).count() as u64;
            if let Some((replay, alone)) = seconds.get_mut(usize::from(fill.device)) {
                *replay = f64::max(*replay, fill.first_touch.seconds(granules));
                *alone += granules as f64 * fill.first_touch.latency;
            }
        }
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        // What processors decompress they do beside the devices, for all of these.
        let decompressing = decompressing / f64::from(processors.max(1));
        let reading = seconds.iter().map(|(replay, _)| *replay).fold(0.0, f64::max);
        Device {
            replay_ns: ns(reading.max(decompressing)),
            decompresses: decompressing > reading,
            alone_ns: ns(seconds.iter().map(|(_, alone)| *alone).sum()),
        }
    }
}

/// A hash of the kernel and of the devices of a plan: their file systems, and what kind of device each is on;
/// never 0.
pub fn machine_hash(plan: &Plan<'_>) -> u32 {
    let mut bytes = kernel().into_bytes();
    for device in (0..plan.device_count()).filter_map(|index| plan.device(index)) {
        bytes.extend_from_slice(&device.uuid);
        bytes.push(device.cost.class as u8);
    }
    hash(&bytes).max(1)
}

/// This machine, as /etc/machine-id names it; empty where nothing does.
pub fn machine() -> String {
    let bytes = headstart_store::read_bounded(Path::new("/etc/machine-id"), MACHINE_ID)
        .ok()
        .flatten();
    let text = bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or_default();
    text.lines().next().unwrap_or_default().into()
}

/// The running kernel, as uname(2) calls its release.
pub fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
