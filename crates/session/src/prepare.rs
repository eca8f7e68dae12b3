//! The start of a program, before anything is forked: what is known of it, and so what is done for it.

use crate::Purpose;
use crate::bypass::{self, alone_ns};
use crate::decide::{Decision, Known, MOST_LOOKS, Warmth, decide, looks};
use headstart_model::machine::DeviceClass;
use headstart_model::outcome::Resident;
use headstart_model::plan::PlanFile;
use headstart_replay::Sample;
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
            exact: false,
            lines: Vec::new(),
        }
    }
}

/// Starts of which a larger part than this is cold are as cold as one another: what is left in memory of a program that was
/// not used for long is libraries that others use.
const ALIKE_COLD: f64 = 0.75;

/// Looks what is known of the start and decides. `mounts` tells what is mounted now, if it comes to that.
pub fn prepare(purpose: &Purpose, mounts: &mut dyn FnMut() -> io::Result<MountTable>) -> Prepared {
    let Purpose::Loop {
        store,
        key,
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
    let looked = plan
        .as_ref()
        .and_then(|plan| look(plan, &mounts().ok()?, known.draw));
    let (sample, resident, warmth) = match looked {
        Some((sample, resident, warmth)) => (Some(sample), Some(resident), warmth),
        None => (None, None, None),
    };
    let exact_due = known.turns.exact_due;
    let decision = decide(&Known {
        has_plan: plan.is_some(),
        warmth,
        ..known
    });
    let warm = warmth.is_some_and(|warmth| warmth.is_warm());
    let is_left = warm && matches!(decision, Decision::Bypass(_));
    Prepared {
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

/// With more than this part cold a start is not warm, however few looks say so.
const SURELY_COLD: f64 = 0.5;

/// What of the plan is in memory, by looks of which chance says where they are, and what that means; nothing where it cannot be told.
fn look(file: &PlanFile, mounts: &MountTable, draw: u64) -> Option<(Sample, Resident, Option<Warmth>)> {
    let plan = file.plan().ok()?;
    let mut sample = |looks| headstart_replay::sample(&plan, mounts, looks, draw);
    let (found, warmth) = looked(alone_ns(&plan), &mut sample);
    // Of a cold start the sample ends early, at another share each time: such starts are alike, and compared as such.
    let is_cold = warmth.is_some_and(|warmth| warmth.cold > ALIKE_COLD);
    let resident = Resident {
        sampled_pages: found.resident.sampled_pages,
        resident_pages: if is_cold { 0 } else { found.resident.resident_pages },
    };
    Some((found, resident, warmth))
}

/// What is found by so many looks as it takes. Few are enough for a start of which all is in memory, or hardly anything; where something
/// between may be so, there are as many as there may be.
fn looked(alone_ns: u64, sample: &mut dyn FnMut(usize) -> Sample) -> (Sample, Option<Warmth>) {
    let (few, most) = (looks(alone_ns), MOST_LOOKS as usize);
    let found = sample(few);
    let warmth = warmth_of(&found.resident, alone_ns);
    let in_doubt = warmth.is_some_and(|warmth| !warmth.is_warm() && warmth.cold <= SURELY_COLD);
    if !in_doubt || few >= most {
        return (found, warmth);
    }
    let found = sample(most);
    let warmth = warmth_of(&found.resident, alone_ns);
    (found, warmth)
}

/// What a sample means; nothing of one that found nothing.
fn warmth_of(sample: &headstart_replay::Resident, alone_ns: u64) -> Option<Warmth> {
    let part = |cold: u32, of: u32| f64::from(cold) / f64::from(of.max(1));
    // A file that is another one now will be read, and from where is not known.
    let looked_at = sample.sampled_requests + sample.changed;
    let cold = part(looked_at - sample.resident_requests, looked_at);
    (looked_at > 0).then(|| Warmth {
        cold: cold.max(part(sample.cold_paths, sample.sampled_paths)),
        cold_look_ups: part(sample.cold_look_ups, sample.sampled_look_ups),
        alone_ns,
    })
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

    /// Looks at a plan of whose requests these were looked at and in memory, look by look: with how many looks each time, and what it came to.
    fn looks_at(alone_ns: u64, found: &[(u32, u32)]) -> (Vec<usize>, Option<Warmth>) {
        let mut asked = Vec::new();
        let (_, warmth) = looked(alone_ns, &mut |looks| {
            let (sampled_requests, resident_requests) = found[asked.len()];
            asked.push(looks);
            let resident = headstart_replay::Resident {
                sampled_requests,
                resident_requests,
                ..Default::default()
            };
            Sample {
                resident,
                ..Sample::default()
            }
        });
        (asked, warmth)
    }

    #[test]
    fn few_looks_are_enough_unless_they_leave_it_in_doubt() {
        // What a device reads in so short a time is looked at five times.
        let short = 200_000_000;
        let (asked, warmth) = looks_at(short, &[(5, 5)]);
        assert_eq!(asked, [5]);
        assert!(warmth.unwrap().is_warm());
        // Cold: the sample ends when that is sure.
        let (asked, warmth) = looks_at(short, &[(3, 0)]);
        assert_eq!(asked, [5]);
        assert!(!warmth.unwrap().is_warm());
        // One of five is missing: of forty it is this one and no other, or one in five.
        let (asked, warmth) = looks_at(short, &[(5, 4), (40, 39)]);
        assert_eq!(asked, [5, 40]);
        assert!(warmth.unwrap().is_warm());
        let (asked, warmth) = looks_at(short, &[(5, 4), (40, 32)]);
        assert_eq!(asked, [5, 40]);
        assert!(!warmth.unwrap().is_warm());
        // Of a plan that takes long as much is looked at as may be, once.
        let (asked, warmth) = looks_at(10_000_000_000, &[(40, 38)]);
        assert_eq!(asked, [40]);
        assert!(!warmth.unwrap().is_warm());
        // Nothing was found: nothing is said, and nobody looks again.
        assert_eq!(looks_at(short, &[(0, 0)]), (vec![5], None));
    }
}
