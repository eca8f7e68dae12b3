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
mod tests {
    use super::*;
    use headstart_model::Key;
    use headstart_model::machine::{Compression, Cost, FirstTouch};
    use headstart_model::outcome::Mode;
    use headstart_model::plan::{Fill, PlanFile, RequestKind, Touch};
    use headstart_model::testing;

    const MS: u64 = 1_000_000;

    /// What the lab's container needs, in the requests of its plan, on a device of this cost.
    fn container(class: DeviceClass, bandwidth: f64, latency: f64, depth: u32) -> PlanFile {
        let request = |number: u32| Request {
            deadline_us: number,
            ..Request::new(RequestKind::Data, 0, 28_418_832 / 447)
        };
        let cost = Cost {
            class,
            bandwidth,
            latency,
            depth,
        };
        let mut draft = testing::draft(
            cost,
            vec![testing::planned("/f")],
            (0..447).map(request).collect(),
        );
        draft.key = testing::key("boot");
        testing::plan_file(&draft)
    }

    fn alone(own_ms: u64, rest_ms: u64, blocked_ms: u64) -> Alone {
        Alone {
            own_ns: own_ms * MS,
            cpu_ns: 60 * MS,
            rest_ns: rest_ms * MS,
            blocked_ns: Some(blocked_ms * MS),
        }
    }

    fn why_bypassed(alone: Alone, plan: &PlanFile) -> Option<String> {
        let bypass = decide(Some(&alone), Some(&plan.plan().unwrap()), &[], 10);
        bypass.map(|bypass| {
            assert!(!bypass.replay && bypass.every == 10 && bypass.kernel == kernel());
            bypass.why
        })
    }

    #[test]
    fn a_start_by_itself_waits_for_each_granule_of_a_volume_that_is_filled_as_it_is_read() {
        let file = container(DeviceClass::Flash, 125e6, 7e-4, 4);
        let (before, mut draft) = (
            Device::from_plan(&file.plan().unwrap(), u64::MAX, 2).alone_ns,
            file.plan().unwrap().to_draft().unwrap(),
        );
        draft.fills = vec![Fill {
            device: 0,
            first_touch: FirstTouch {
                granule: 512 << 10,
                latency: 33e-3,
                depth: 10,
            },
            touches: (0..100u32)
                .map(|n| Touch {
                    offset: u64::from(n) << 19,
                    request: n,
                })
                .collect(),
        }];
        let file = PlanFile::new(draft.to_bytes().unwrap());
        let plan = file.plan().unwrap();
        assert!(
            (3_299 * MS..=3_301 * MS).contains(&(Device::from_plan(&plan, u64::MAX, 2).alone_ns - before))
        );
        // Ten at once, of those that are needed until then: requests 0 to 50.
        assert!((197 * MS..=199 * MS).contains(&Device::from_plan(&plan, 50_000, 2).replay_ns));
    }

    /// The container of docs/notes/2026-11-boots.md: seconds from the execution of process 1 on, costs as
    /// probed.
    #[test]
    fn the_measured_boots_are_bypassed_where_they_gain_nothing() {
        use DeviceClass::*;
        let open = |alone, plan: &PlanFile| assert_eq!(why_bypassed(alone, plan), None);
        // With headstart 6.7, 1.8, 0.28 and 1.8 s sooner.
        open(alone(200, 7900, 7600), &container(Disk, 110e6, 6e-3, 1));
        open(alone(100, 1930, 3000), &container(Flash, 500e6, 4e-3, 16));
        open(alone(80, 490, 1000), &container(Flash, 111e6, 0.79e-3, 4));
        open(alone(250, 2850, 15_000), &container(Flash, 99e6, 33.8e-3, 16));
        // 0.05 s later from before process 1 on, 0.25 s from the first unit on.
        let card = container(Flash, 24.3e6, 0.68e-3, 1);
        let why = why_bypassed(alone(250, 1640, 5000), &card).unwrap();
        assert!(why.contains("would take the disk 1.47 s"), "{why}");
        assert!(why_bypassed(alone(370, 1230, 4000), &card).is_some());
        // No difference but 0.1 s of processors.
        let none = container(Flash, 2.2e9, 9.3e-6, 1);
        let why = why_bypassed(alone(40, 290, 230), &none).unwrap();
        assert!(why.contains("waits 21.2 ms for disks"), "{why}");
    }

    /// 27 MiB of a live system, by xz: a stick is read within 0.95 s.
    #[test]
    fn a_boot_is_bypassed_where_processors_take_as_long_to_decompress_it() {
        let mut draft = container(DeviceClass::Flash, 30e6, 0.5e-3, 4)
            .plan()
            .unwrap()
            .to_draft()
            .unwrap();
        draft.devices[0].compression = Some(Compression {
            block: 128 << 10,
            rate: 20,
        });
        let file = testing::plan_file(&draft);
        let plan = file.plan().unwrap();
        let device = |processors| Device::from_plan(&plan, u64::MAX, processors);
        assert_eq!([1, 2].map(|of| device(of).decompresses), [true, false]);
        let why = |processors| too_little(&alone(40, 1550, 1400), &device(processors));
        let one = why(1).unwrap();
        assert!(
            one.contains("take the processors, which decompress it, 1.42 s"),
            "{one}"
        );
        assert_eq!(why(2), None);
    }

    #[test]
    fn what_is_in_memory_already_is_not_waited_for() {
        let disk = container(DeviceClass::Flash, 500e6, 0.1e-3, 16);
        assert!(why_bypassed(alone(40, 2000, 0), &disk).is_some());
        assert!(
            why_bypassed(alone(40, 2000, 90), &disk).is_some(),
            "headstart takes as much"
        );
        assert!(
            why_bypassed(alone(40, 1000, 150), &disk).is_some(),
            "it saves half of that"
        );
        let disk = container(DeviceClass::Flash, 500e6, 0.25e-3, 16);
        assert_eq!(why_bypassed(alone(40, 1000, 250), &disk), None);
        let unknown = Alone {
            blocked_ns: None,
            ..alone(40, 1000, 0)
        };
        assert_eq!(why_bypassed(unknown, &disk), None, "the device's cost tells then");
    }

    #[test]
    fn only_what_is_needed_by_the_end_counts_and_nonsense_is_not_believed() {
        let card = container(DeviceClass::Flash, 24.3e6, 0.68e-3, 1);
        let plan = card.plan().unwrap();
        assert_eq!(
            Device::from_plan(&plan, 0, 2).replay_ns / MS,
            3,
            "one request of 447"
        );
        assert_eq!(Device::from_plan(&plan, 447_000, 2).replay_ns / MS, 1473);
        assert_eq!(
            why_bypassed(alone(100, 1100, 900), &card),
            None,
            "it has just read all that"
        );
    }

    #[test]
    fn starts_are_bypassed_where_replays_are_slower_and_those_are_tried_again() {
        let outcome = |(mode, ms): (Mode, u64)| Outcome {
            elapsed_ns: ms * MS,
            status: Some(0),
            ..Outcome::new(Key::new("boot").unwrap(), mode)
        };
        let mut times = vec![(Mode::Record, 1970)];
        times.extend((0..9).map(|i| (Mode::Replay, 2190 + 10 * i)));
        times.push((Mode::Control, 1980));
        let outcomes: Vec<Outcome> = times.into_iter().map(outcome).collect();
        let bypass = decide(None, None, &outcomes, 10).unwrap();
        assert!(bypass.replay, "only a replay can tell");
        assert!(
            bypass.why.contains("2.23 s") && bypass.why.contains("1.98 s"),
            "{}",
            bypass.why
        );
        assert_eq!(decide(None, None, &outcomes[..10], 10), None);
        assert_eq!(
            decide(None, None, &outcomes, 0),
            None,
            "all starts are to be read ahead"
        );
    }

    #[test]
    fn three_starts_in_a_row_that_teach_nothing_are_enough() {
        let outcome = |why: &str| Outcome {
            not_learned: (!why.is_empty()).then(|| why.into()),
            ..Outcome::new(Key::new("boot").unwrap(), Mode::Record)
        };
        let after = |whys: &[&str]| {
            let outcomes: Vec<Outcome> = whys.iter().map(|why| outcome(why)).collect();
            untaught(&outcomes, 10)
        };
        let bypass = after(&["", "first", "second", "events were lost"]).unwrap();
        assert!(bypass.why.ends_with("events were lost") && !bypass.replay && bypass.every == 10);
        assert_eq!(after(&["one", "two"]), None);
        assert_eq!(
            after(&["one", "two", "three", ""]),
            None,
            "the last taught something"
        );
        assert_eq!(after(&["one", "", "two", "three"]), None);
        assert_eq!(untaught(&[outcome("a"), outcome("b"), outcome("c")], 0), None);
        let unrecorded = Outcome {
            unrecorded: true,
            ..outcome("not its turn")
        };
        assert_eq!(untaught(&[outcome("a"), unrecorded, outcome("c")], 10), None);
    }

    #[test]
    fn starts_whose_files_are_scanned_as_they_are_opened_are_bypassed() {
        let bypass = dear_opens(Some(Duration::from_micros(1250)), 10).unwrap();
        assert!(!bypass.replay && bypass.every == 10);
        assert!(
            bypass.why.contains("1.25 ms") && bypass.why.contains("scanner"),
            "{}",
            bypass.why
        );
        assert_eq!(dear_opens(None, 10), None);
        assert_eq!(
            dear_opens(Some(Duration::from_secs(1)), 0),
            None,
            "all are to be replayed"
        );
    }

    #[test]
    fn what_is_found_again_is_looked_for_more_seldom() {
        let bypass = |every, kernel: &str| Bypass {
            every,
            kernel: kernel.into(),
            machine: String::new(),
            replay: false,
            why: "no gain".into(),
        };
        let next = |before: Option<&Bypass>| confirmed(bypass(10, "6.12"), before, 10).every;
        assert_eq!(next(None), 10);
        assert_eq!(next(Some(&bypass(10, "6.1"))), 10, "another kernel");
        assert_eq!(next(Some(&bypass(10, "6.12"))), 20);
        assert_eq!(next(Some(&bypass(20, "6.12"))), 40);
        assert_eq!(next(Some(&bypass(40, "6.12"))), 40);
        assert_eq!(next(Some(&bypass(2, "6.12"))), 20, "it was configured otherwise");
    }
}
