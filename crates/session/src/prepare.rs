//! The start of a program, before anything is forked: what is known of it, and so what is done for it.

use crate::bypass;
use crate::decide::{Decision, GUESS_IS_OFF_BY, Known, LOOKS_AT_A_GUESS, MOST_LOOKS, Warmth, decide, looks};
use crate::{Arguments, Purpose};
use headstart_model::Named;
use headstart_model::machine::DeviceClass;
use headstart_model::outcome::Resident;
use headstart_model::plan::{Plan, PlanFile};
use headstart_replay::{Costs, Sample};
use headstart_store::{Bypass, KeyDir, Loaded, Store, Turns};
use headstart_system::fault_around;
use headstart_system::mounts::MountTable;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;

/// What is done for a start, and with what.
pub struct Prepared {
    /// What is done.
    pub decision: Decision,
    /// The plan, if there is one that reads anything.
    pub plan: Option<PlanFile>,
    /// What of the plan was in memory; `None` where nobody looked.
    pub resident: Option<Resident>,
    /// Whether all that the plan reads was in memory.
    pub warm: bool,
    /// Of a start that is left alone because what it reads is in memory: what was looked at, by which that can be told of the next one, too.
    pub in_memory: Option<Sample>,
    /// Whether its plan is another where its arguments name other files.
    pub depends: bool,
    /// Whether it is to be recorded while the kernel maps nothing around a fault.
    pub exact: bool,
    /// What there is to tell of it, for the log.
    pub lines: Vec<String>,
}

impl Prepared {
    /// Of which nothing is known but this.
    pub fn new(decision: Decision) -> Prepared {
        Prepared {
            decision,
            plan: None,
            resident: None,
            warm: false,
            in_memory: None,
            depends: false,
            exact: false,
            lines: Vec::new(),
        }
    }
}

/// The variable of the environment with which starts that find all in memory are replayed, too, where all starts are: for tests and
/// measurements, which need no cold disk then.
const EVEN_WARM: &str = "HEADSTART_EVEN_WARM";

/// Starts of which a larger part than this is cold are as cold as one another: what is left in memory of a program that was
/// not used for long is libraries that others use.
const ALIKE_COLD: f64 = 0.75;

/// Looks what is known of the start and decides. `mounts` tells what is mounted now, if it comes to that.
pub fn prepare(purpose: &Purpose, mounts: &mut dyn FnMut() -> io::Result<MountTable>) -> Prepared {
    let Purpose::Loop {
        store,
        key,
        arguments,
        control_every,
        is_recorded,
    } = purpose
    else {
        return Prepared::new(Decision::Record);
    };
    let mut first = First::of(&store.key(key));
    let (machine, bypass) = (first.machine(), first.bypass.take());
    let known = Known {
        enabled: first.enabled,
        bypass: bypass.as_ref(),
        kernel: &bypass::kernel(),
        machine: &machine,
        turns: first.turns,
        control_every: *control_every,
        is_recorded: *is_recorded,
        has_plan: true,
        warmth: None,
        draw: RandomState::new().build_hasher().finish(),
    };
    // A start that is bypassed reads no plan.
    if known.bypass.is_some() || !known.enabled {
        let decision = decide(&known);
        if matches!(decision, Decision::Bypass(_)) {
            return Prepared::new(decision);
        }
    }
    let mut lines = Vec::new();
    match fault_around::mend() {
        Ok(None) => {}
        Ok(Some(bytes)) => lines.push(format!(
            "the kernel maps {bytes} bytes around a fault again, which a headstart that was killed had changed"
        )),
        Err(error) => lines.push(format!(
            "the kernel still maps one page around a fault, as a headstart that was killed left it (fault_around_bytes in debugfs): {error}"
        )),
    }
    let plan = first.plan(&mut |line| lines.push(line));
    let depends = plan.as_ref().is_some_and(depends_on_arguments);
    let plan = plan.and_then(|plan| of_start(plan, arguments, mounts));
    let looked = plan
        .as_ref()
        .and_then(|plan| look(store, plan, known.turns, &mounts().ok()?, known.draw));
    let (sample, resident, warmth) = match looked {
        Some((sample, resident, warmth)) => (Some(sample), Some(resident), warmth),
        None => (None, None, None),
    };
    let exact_due = known.turns.exact_due;
    let decision = decide(&Known {
        has_plan: plan.is_some(),
        warmth: warmth.filter(|_| *control_every != 0 || std::env::var_os(EVEN_WARM).is_none()),
        ..known
    });
    let warm = warmth.is_some_and(|warmth| warmth.is_warm());
    // Where much is used that is not planned, only a recording tells of the next.
    let is_left = warm && known.turns.unplanned == 0 && !depends && matches!(decision, Decision::Bypass(_));
    Prepared {
        depends,
        // A start to compare others with is as all starts are.
        exact: exact_due && (decision == Decision::Replay || warm && decision == Decision::Control),
        decision,
        plan,
        resident,
        warm,
        in_memory: sample.filter(|_| is_left),
        lines,
    }
}

fn depends_on_arguments(file: &PlanFile) -> bool {
    file.plan().is_ok_and(|plan| plan.has_named())
}

/// A plan without what is only for starts that name other files than this one; nothing where that leaves nothing to read.
fn of_start(
    file: PlanFile,
    arguments: &Arguments,
    mounts: &mut dyn FnMut() -> io::Result<MountTable>,
) -> Option<PlanFile> {
    if !depends_on_arguments(&file) {
        return Some(file);
    }
    let named = mounts().map_or_else(|_| Named::default(), |mounts| arguments.named(&mounts));
    let file = file.of_start(&named).ok()?.unwrap_or(file);
    let reads = file.plan().is_ok_and(|plan| plan.cut() > 0);
    reads.then_some(file)
}

/// With more than this part cold a start is not warm, however few looks say so.
const SURELY_COLD: f64 = 0.5;

/// Of a plan of which less than this part may be looked at nothing is known.
const LEAST_KNOWN: f64 = 0.5;

/// What of the plan is in memory, by looks of which chance says where they are, and what that means; nothing where it cannot be told.
fn look(
    store: &Store,
    file: &PlanFile,
    turns: Turns,
    mounts: &MountTable,
    draw: u64,
) -> Option<(Sample, Resident, Option<Warmth>)> {
    let plan = file.plan().ok()?;
    let costs = Costs::of(&plan);
    let cost = PlanCost {
        reckoned_ns: costs.ns(),
        waited_ns: u64::from(turns.waited_ms) * 1_000_000,
        is_measured: &|| is_measured(store, &plan),
    };
    let mut sample = |looks| headstart_replay::sample(&plan, &costs, mounts, looks, draw);
    let (found, warmth) = looked(&cost, &mut sample);
    // Of a cold start the sample ends early, at another share each time: such starts are alike, and compared as such.
    let in_memory = match warmth {
        Some(warmth) if warmth.cold > ALIKE_COLD => 0.0,
        Some(warmth) => 1.0 - warmth.cold,
        None => 0.0,
    };
    let sampled_pages = found.resident.sampled_pages;
    let resident = Resident {
        sampled_pages,
        resident_pages: (sampled_pages as f64 * in_memory).round() as u64,
    };
    Some((found, resident, warmth))
}

/// What a plan costs a start by itself where nothing of it is in memory.
struct PlanCost<'a> {
    /// By what its devices cost, nanoseconds.
    reckoned_ns: u64,
    /// The longest that a start was seen to wait, nanoseconds.
    waited_ns: u64,
    /// Whether those devices were measured. It takes some system calls, and on a cold disk some reads, to find that out.
    is_measured: &'a dyn Fn() -> bool,
}

/// What is found by so many looks as it takes. Few are enough for a start of which all is in memory, or hardly anything; where something
/// between may be so, there are as many as there may be. Where only a guess says that it is warm, it has to be warm on a slower device, too.
fn looked(cost: &PlanCost<'_>, sample: &mut dyn FnMut(usize) -> Sample) -> (Sample, Option<Warmth>) {
    let alone_ns = cost.reckoned_ns.max(cost.waited_ns);
    let looks = looks(alone_ns);
    let (found, warmth) = in_few_looks(alone_ns, looks, sample(looks), sample);
    let is_warm = warmth.is_some_and(|warmth| warmth.is_warm());
    // What was waited for is a measurement.
    if !is_warm || cost.waited_ns > cost.reckoned_ns || (cost.is_measured)() {
        return (found, warmth);
    }
    let slow_ns = alone_ns.saturating_mul(GUESS_IS_OFF_BY);
    let more = looks.max(LOOKS_AT_A_GUESS);
    let found = match more > looks && found.resident.looks < more as u32 {
        true => sample(more),
        false => found,
    };
    in_few_looks(slow_ns, more, found, sample)
}

/// What was found by few looks, or if that leaves it in doubt, what is found by more.
fn in_few_looks(
    alone_ns: u64,
    few: usize,
    found: Sample,
    sample: &mut dyn FnMut(usize) -> Sample,
) -> (Sample, Option<Warmth>) {
    let warmth = warmth_of(&found.resident, alone_ns);
    let in_doubt = warmth.is_some_and(|warmth| !warmth.is_warm() && warmth.cold <= SURELY_COLD);
    if !in_doubt || found.resident.looks >= MOST_LOOKS as u32 || few >= MOST_LOOKS {
        return (found, warmth);
    }
    let found = sample(MOST_LOOKS);
    let warmth = warmth_of(&found.resident, alone_ns);
    (found, warmth)
}

/// What a sample means; nothing of one that found nothing.
fn warmth_of(found: &headstart_replay::Resident, alone_ns: u64) -> Option<Warmth> {
    (found.looks > 0 && found.unknown <= 1.0 - LEAST_KNOWN).then_some(Warmth {
        cold: found.cold,
        alone_ns,
    })
}

/// Whether all devices of a plan were measured. What the plan itself says of a device may be a guess.
fn is_measured(store: &Store, plan: &Plan<'_>) -> bool {
    let mut devices = (0..plan.device_count()).filter_map(|index| plan.device(index));
    devices.all(|device| store.device_cost(&device.uuid).is_some())
}

/// Whether a start is to wait for a replay of this plan on a device that was measured as one head. What the plan itself says of a device
/// may be a guess.
pub fn waits_on_one_head(store: &Store, plan: &PlanFile) -> bool {
    let Ok(plan) = plan.plan() else { return false };
    let is_one_head = |uuid: &[u8; 16]| {
        let stored = store.device_cost(uuid);
        stored.is_some_and(|stored| stored.cost.class == DeviceClass::Disk)
    };
    let mut devices = (0..plan.device_count()).filter_map(|index| plan.device(index));
    devices.any(|device| device.hold > 0 && is_one_head(&device.uuid))
}

/// What is asked of a key before its start: of one file where that says all (`headstart_store::Start`), else of the files of its directory.
pub struct First {
    kept: KeyDir,
    plan: Option<PlanFile>,
    /// Whether anything is done for its starts.
    pub enabled: bool,
    /// Its bypass, if its starts are bypassed.
    pub bypass: Option<Bypass>,
    /// Where it stands between control runs.
    pub turns: Turns,
}

impl First {
    /// Reads that; the plan only where it comes with the rest.
    pub fn of(kept: &KeyDir) -> First {
        let kept = kept.clone();
        match kept.start() {
            Some(start) => First {
                plan: Some(start.plan),
                enabled: true,
                bypass: None,
                turns: start.turns,
                kept,
            },
            None => First {
                plan: None,
                enabled: kept.is_served(),
                bypass: kept.bypass(),
                turns: kept.turns(),
                kept,
            },
        }
    }

    /// This machine, where that decides: a bypass holds for one.
    pub fn machine(&self) -> String {
        self.bypass
            .as_ref()
            .map_or_else(String::new, |_| bypass::machine())
    }

    /// The plan, as [`plan_of`].
    pub fn plan(&mut self, tell: &mut dyn FnMut(String)) -> Option<PlanFile> {
        match self.plan.take() {
            Some(file) => that_reads(file, tell),
            None => plan_of(&self.kept, tell),
        }
    }
}

/// The plan, if it reads anything. That memory has no room for what it would read is told.
pub fn plan_of(kept: &KeyDir, tell: &mut dyn FnMut(String)) -> Option<PlanFile> {
    match kept.plan() {
        Loaded::Some(file) => that_reads(file, tell),
        Loaded::None => None,
        Loaded::Damaged(line) => {
            tell(line);
            None
        }
    }
}

fn that_reads(file: PlanFile, tell: &mut dyn FnMut(String)) -> Option<PlanFile> {
    let plan = file.plan().ok()?;
    let (cut, requests) = (plan.cut(), plan.requests().count());
    if cut == 0 && requests > 0 {
        tell(
            "when it was planned memory had no room for anything that is known: nothing is read ahead".into(),
        );
    }
    (cut > 0).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at a plan of whose cost these parts were found cold, look by look: with how many looks each time, and what it came to.
    fn looks_at(cost: &PlanCost<'_>, found: &[f64]) -> (Vec<usize>, Option<Warmth>) {
        let mut asked = Vec::new();
        let (_, warmth) = looked(cost, &mut |looks| {
            let cold = found[asked.len()];
            asked.push(looks);
            let resident = headstart_replay::Resident {
                looks: looks as u32,
                cold,
                ..Default::default()
            };
            Sample {
                resident,
                ..Sample::default()
            }
        });
        (asked, warmth)
    }

    fn measured(ms: u64) -> PlanCost<'static> {
        PlanCost {
            reckoned_ns: ms * 1_000_000,
            waited_ns: 0,
            is_measured: &|| true,
        }
    }

    fn guessed(ms: u64, waited_ms: u64) -> PlanCost<'static> {
        PlanCost {
            waited_ns: waited_ms * 1_000_000,
            is_measured: &|| false,
            ..measured(ms)
        }
    }

    fn is_warm(warmth: Option<Warmth>) -> bool {
        warmth.unwrap().is_warm()
    }

    #[test]
    fn few_looks_are_enough_unless_they_leave_it_in_doubt() {
        // What a device reads in so short a time is looked at five times.
        let short = measured(200);
        let (asked, warmth) = looks_at(&short, &[0.0]);
        assert!(is_warm(warmth) && asked == [5]);
        // Cold: the sample ends when that is sure.
        let (asked, warmth) = looks_at(&short, &[1.0]);
        assert!(!is_warm(warmth) && asked == [5]);
        // One of five is missing: of forty it is this one and no other, or one in five.
        let (asked, warmth) = looks_at(&short, &[0.2, 0.025]);
        assert!(is_warm(warmth) && asked == [5, 40]);
        let (asked, warmth) = looks_at(&short, &[0.2, 0.2]);
        assert!(!is_warm(warmth) && asked == [5, 40]);
        // Of a plan that takes long as much is looked at as may be, once.
        let (asked, warmth) = looks_at(&measured(10_000), &[0.05]);
        assert!(!is_warm(warmth) && asked == [40]);
    }

    #[test]
    fn what_only_a_guess_calls_warm_is_looked_at_more_closely() {
        let (asked, warmth) = looks_at(&guessed(60, 0), &[0.0, 0.0]);
        assert!(is_warm(warmth) && asked == [5, 12]);
        // 3 ms by the guess, 60 ms on an SD card.
        let (asked, warmth) = looks_at(&guessed(60, 0), &[0.05, 0.05, 0.05]);
        assert!(!is_warm(warmth) && asked == [5, 12, 40], "{asked:?}");
        assert!(is_warm(looks_at(&measured(60), &[0.05]).1));
        // What a start was seen to wait for is no guess: 800 ms, where 60 were reckoned.
        let (asked, warmth) = looks_at(&guessed(60, 800), &[0.0]);
        assert!(is_warm(warmth) && asked == [9], "{asked:?}");
        let (asked, warmth) = looks_at(&guessed(60, 800), &[0.1, 0.05]);
        assert!(!is_warm(warmth) && asked == [9, 40], "{asked:?}");
        // Cold is cold: nobody asks what was measured.
        let unasked = PlanCost {
            is_measured: &|| panic!("asked"),
            ..measured(200)
        };
        assert!(!is_warm(looks_at(&unasked, &[0.6]).1));
    }

    #[test]
    fn of_what_may_not_be_looked_at_nothing_is_said() {
        let of = |looks, unknown| {
            let found = headstart_replay::Resident {
                looks,
                unknown,
                ..Default::default()
            };
            warmth_of(&found, 1).map(|warmth| warmth.cold)
        };
        assert_eq!(of(0, 0.0), None);
        assert_eq!(of(5, 0.4), Some(0.0));
        assert_eq!(of(5, 0.6), None);
    }
}
