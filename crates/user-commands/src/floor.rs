//! The floor of a start on this machine's devices: a trace becomes a profile of that one start, that a
//! snapshot, and both the floor.

use anyhow::{Context, Result, ensure};
use headstart_learn::verdict::start::{WARM, resident};
use headstart_learn::{DEFAULT_EXCLUDE, LearnOptions, learn};
use headstart_model::floor::{Above, Floor, Need};
use headstart_model::machine::{Cost, Device, Machine, PathKind as What};
use headstart_model::outcome::Mode;
use headstart_model::profile::Policy;
use headstart_model::{FilePath, Key, Outcome, Profile, Trace};
use headstart_plan::floor::{above_floor, floor, needs};
use headstart_start::machine::{self, Costs};
use headstart_store::KeyDir;

/// The floor of a start, and what it rests on.
pub struct StartFloor {
    /// The floor.
    pub floor: Floor,
    /// Where the start's time above it went; `None` where the start had no replay, found most of what it
    /// needs in memory, or is not kept, and for a device that is made up.
    pub above: Option<Above>,
    /// What the start uses whose floor it is, in the order of time.
    pub needs: Vec<Need>,
    /// The devices that that start used, with the costs that were reckoned with.
    pub devices: Vec<Device>,
}

/// A start that is kept: its trace and what came of it.
pub struct KeptStart {
    /// The trace.
    pub trace: Trace,
    /// Its outcome, if that is kept too.
    pub outcome: Option<Outcome>,
}

/// Which start of a key is wanted, of those whose traces are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The last.
    Any,
    /// The last with a replay and a whole trace; where there is none the last with a whole trace.
    Replay,
}

/// The start of a key that is wanted. What is damaged goes to `tell`.
pub fn last_start(kept: &KeyDir, wanted: Wanted, tell: &mut dyn FnMut(String)) -> Option<KeptStart> {
    let outcomes = kept.outcomes(&mut *tell);
    let mut last = None;
    for path in kept.traces().into_iter().rev() {
        let Some(trace) = kept.trace(&path).or_tell(&mut *tell) else {
            continue;
        };
        if wanted == Wanted::Replay && trace.unfit().is_some() {
            continue;
        }
        let started = trace.meta.started_unix_ns;
        let outcome = outcomes
            .iter()
            .find(|outcome| outcome.started_unix_ns == started)
            .cloned();
        let replayed = outcome
            .as_ref()
            .is_some_and(|outcome| outcome.mode == Mode::Replay);
        if wanted == Wanted::Any || replayed {
            return Some(KeptStart { trace, outcome });
        }
        last.get_or_insert(KeptStart { trace, outcome });
    }
    last
}

/// Of starts that used less than this share of the bytes none is the same as another.
const ALIKE: f64 = 0.9;
/// A start whose threads, added up, waited for devices for more than this share of its time has a floor that
/// says little: it may be as low as what it takes to read.
const MOSTLY_WAITED: f64 = 0.25;

/// How floors are reckoned.
struct Reckoning<'a> {
    costs: &'a Costs<'a>,
    /// By this factor devices are faster than what they are known to cost.
    faster: f64,
    /// What all devices are taken to cost, instead.
    every: Option<Cost>,
}

impl Reckoning<'_> {
    fn reckon(&self, trace: &Trace, tell: &mut dyn FnMut(String)) -> Result<Reckoned> {
        let options = LearnOptions {
            key: Key::new("floor")?,
            policy: Policy::Union,
            now_unix_ns: trace.meta.started_unix_ns,
            exclude: DEFAULT_EXCLUDE.map(FilePath::from).to_vec(),
            named: Default::default(),
        };
        let profile = learn(None, std::slice::from_ref(trace), &options)
            .context("the floor of this start is not known")?;
        let mut machine = machine::snapshot(&profile, self.costs, tell)?;
        for device in &mut machine.devices {
            device.cost.latency *= self.faster;
            device.cost.bandwidth /= self.faster;
            device.cost = self.every.unwrap_or(device.cost);
        }
        let needs = needs(trace, &profile, &machine);
        Ok(Reckoned {
            floor: floor(trace, &needs, &machine),
            needs,
            profile,
            machine,
        })
    }

    /// The other start of the key with the least floor, if that is less than the start's `own`.
    fn least_beside(
        &self,
        start: &KeptStart,
        own: &Reckoned,
        kept: &KeyDir,
        tell: &mut dyn FnMut(String),
    ) -> Option<Reckoned> {
        let same = |trace: &Trace| {
            let end = &trace.end;
            let most = MOSTLY_WAITED * end.elapsed_ns as f64;
            trace.unfit().is_none()
                && end.reason == start.trace.end.reason
                && end.blocked_ns.is_none_or(|blocked_ns| blocked_ns as f64 <= most)
        };
        let mut least = None::<Reckoned>;
        for path in kept.traces() {
            let trace = kept.trace(&path).or_tell(&mut *tell);
            let Some(trace) = trace.filter(same) else { continue };
            // That of the start itself is known.
            if trace.meta.started_unix_ns == start.trace.meta.started_unix_ns {
                continue;
            }
            match self.reckon(&trace, tell) {
                Ok(found)
                    if found.floor.bytes as f64 >= ALIKE * own.floor.bytes as f64
                        && found.floor.floor_ns < least.as_ref().unwrap_or(own).floor.floor_ns =>
                {
                    least = Some(found);
                }
                _ => {}
            }
        }
        least
    }
}

/// The floor of the start; `every` is what all devices are taken to cost, instead of what is known of them.
/// `of` is where the start's key is kept: its plan tells what a replay of it read, and the least floor of the
/// starts whose traces are kept there is that of each of them, because they differ in what else the machine
/// had to do.
pub fn start_floor(
    start: &KeptStart,
    of: Option<&KeyDir>,
    costs: &Costs<'_>,
    every: Option<Cost>,
    tell: &mut dyn FnMut(String),
) -> Result<StartFloor> {
    let outcomes = of.map_or_else(Vec::new, |kept| kept.outcomes(&mut *tell));
    let paces = outcomes.iter().filter_map(|outcome| outcome.pace);
    // Where a replay was faster than by what its device is known to cost, so is the device.
    let faster = paces
        .map(f64::from)
        .filter(|pace| *pace > 0.0)
        .fold(1.0, f64::min);
    let reckoning = Reckoning { costs, faster, every };
    let own = reckoning.reckon(&start.trace, tell)?;
    let read_pages = own.profile.entries.iter().any(|entry| !entry.ranges.is_empty());
    let is_there = |found: What| matches!(found, What::File | What::NotLocal);
    ensure!(
        !read_pages || own.machine.files.iter().any(|file| is_there(file.found)),
        "none of the files that it read is there now: mount what they are on"
    );
    let least = of.and_then(|kept| reckoning.least_beside(start, &own, kept, tell));
    let floor = least.as_ref().unwrap_or(&own).floor;
    let file = of.and_then(|kept| kept.plan().or_tell(tell));
    let plan = file.as_ref().and_then(|file| file.plan().ok());
    // What was in memory needed no device, and what another device would have taken is not known.
    let cold = |outcome: &&Outcome| every.is_none() && resident(outcome).is_none_or(|share| share < WARM);
    let outcome = start.outcome.as_ref().filter(cold);
    let of_own = Floor {
        floor_ns: floor.floor_ns,
        ..own.floor
    };
    let above = outcome.zip(plan).and_then(|(outcome, plan)| {
        above_floor(&of_own, &start.trace, &own.profile, &own.machine, &plan, outcome)
    });
    let of_least = least.unwrap_or(own);
    Ok(StartFloor {
        floor,
        needs: of_least.needs,
        above,
        devices: of_least.machine.devices,
    })
}

/// The floor by one trace, and what it is of.
struct Reckoned {
    floor: Floor,
    needs: Vec<Need>,
    profile: Profile,
    machine: Machine,
}
