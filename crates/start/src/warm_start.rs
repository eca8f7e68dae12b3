//! What a warm start is: how much of what a plan reads is in memory, by a sample, and whether reading the
//! rest ahead would gain anything.

use headstart_model::outcome::Resident;
use headstart_model::plan::{Plan, PlanFile};
use headstart_replay::{Costs, Remote, Sample};
use headstart_store::{Store, Turns};
use headstart_system::mounts::MountTable;

/// What of a plan is in memory before the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warmth {
    /// The part of its cost that is not in memory, 0 to 1, by a sample.
    pub cold: f64,
    /// How long a start by itself waits for all of the plan where nothing is in memory, nanoseconds.
    pub alone_ns: u64,
}

/// A start of which a larger part is not in memory is not warm, whatever its device costs: what was looked at
/// may stand for more than it says.
const MOST_COLD: f64 = 0.1;

/// What a replay and a recorder cost a start that gains nothing by them: two forks, attaching, reading what
/// they are. Measured on Linux 6.18 as 31 to 50 ms; reading ahead what takes a device less time than this is
/// a loss.
pub const OWN_NS: f64 = 30e6;

/// So many places are looked at, at least.
const LEAST_LOOKS: f64 = 5.0;

/// So many places are looked at, at most.
const MOST_LOOKS: usize = 40;

/// So many places are looked at, at least, where what the plan costs is guessed.
const LOOKS_AT_A_GUESS: usize = 12;

/// A device that was not measured may be slower than others of its class by this factor: an SD card reads 24
/// MB/s and answers after 0.7 ms, where flash is guessed to read 500 MB/s and to answer after 0.1 ms.
const GUESS_IS_OFF_BY: u64 = 20;

/// At how many places of a plan is to be looked, for which a start by itself would wait so long, nanoseconds.
///
/// Where a part c of its cost is cold, n looks find nothing of it with a probability of exp(−n c) at most
/// (`headstart_replay::Costs`). The start then waits for c of that time, which makes at most a part 1 / (e n)
/// of it, on average: no more than a replay costs, where the plan costs 3.3 s at most.
fn looks_for(alone_ns: u64) -> usize {
    let looks = alone_ns as f64 / (std::f64::consts::E * OWN_NS);
    looks.clamp(LEAST_LOOKS, MOST_LOOKS as f64) as usize
}

impl Warmth {
    /// Whether reading the rest ahead would gain less than it costs.
    pub fn is_warm(&self) -> bool {
        self.cold <= MOST_COLD && self.cold * self.alone_ns as f64 <= OWN_NS
    }
}

/// Starts of which a larger part than this is cold are as cold as one another: what is left in memory of a
/// program that was not used for long is libraries that others use.
const ALIKE_COLD: f64 = 0.75;

/// With more than this part cold a start is not warm, however few looks say so.
const SURELY_COLD: f64 = 0.5;

/// Of a plan of which less than this part may be looked at nothing is known.
const LEAST_KNOWN: f64 = 0.5;

/// What of the plan is in memory, by looks of which chance says where they are, and what that means; nothing
/// where it cannot be told. How much of all is in memory stays unknown where most of it could not be looked
/// at in time, or nobody can be asked of remote file systems.
pub(crate) fn sample_warmth(
    store: &Store,
    file: &PlanFile,
    turns: Turns,
    mounts: &MountTable,
    draw: u64,
) -> Option<(Sample, Option<Resident>, Option<Warmth>)> {
    let plan = file.plan().ok()?;
    let costs = Costs::for_plan(&plan);
    let cost = PlanCost {
        reckoned_ns: costs.ns(),
        waited_ns: u64::from(turns.waited_ms) * 1_000_000,
        is_measured: &|| is_measured(store, &plan),
    };
    let mut remote = Remote::default();
    let mut sample =
        |looks| headstart_replay::sample_with_remote(&plan, &costs, mounts, looks, draw, &mut remote);
    let (found, warmth) = sample_enough(&cost, &mut sample);
    let resident = warmth.map(|warmth| resident(found.resident.sampled_pages, warmth));
    // What was taken for cold may not have been: what the replay finds tells more.
    Some((found, resident.filter(|_| !remote.is_unknown()), warmth))
}

/// What a sample of so many pages says was in memory. Of a cold start the sample ends early, at another share
/// each time: such starts are alike, and compared as such.
fn resident(sampled_pages: u64, warmth: Warmth) -> Resident {
    let in_memory = match warmth.cold > ALIKE_COLD {
        true => 0.0,
        false => 1.0 - warmth.cold,
    };
    Resident {
        sampled_pages,
        resident_pages: (sampled_pages as f64 * in_memory).round() as u64,
    }
}

/// What a plan costs a start by itself where nothing of it is in memory.
struct PlanCost<'a> {
    /// By what its devices cost, nanoseconds.
    reckoned_ns: u64,
    /// The longest that a start was seen to wait, nanoseconds.
    waited_ns: u64,
    /// Whether those devices were measured. It takes some system calls, and on a cold disk some reads, to
    /// find that out.
    is_measured: &'a dyn Fn() -> bool,
}

/// What is found by so many looks as it takes. Few are enough for a start of which all is in memory, or
/// hardly anything; where something between may be so, there are as many as there may be. Where only a guess
/// says that it is warm, it has to be warm on a slower device, too.
fn sample_enough(cost: &PlanCost<'_>, sample: &mut dyn FnMut(usize) -> Sample) -> (Sample, Option<Warmth>) {
    let alone_ns = cost.reckoned_ns.max(cost.waited_ns);
    let looks = looks_for(alone_ns);
    let (found, warmth) = in_few_looks(alone_ns, looks, sample(looks), sample);
    let is_warm = warmth.is_some_and(|warmth| warmth.is_warm());
    // What was waited for is a measurement.
    if !is_warm || cost.waited_ns > cost.reckoned_ns || (cost.is_measured)() {
        return (found, warmth);
    }
    let slow_ns = alone_ns.saturating_mul(GUESS_IS_OFF_BY);
    let more = looks.max(LOOKS_AT_A_GUESS);
    let sampled = match more > looks && found.resident.looks < more as u32 {
        true => sample(more),
        false => found,
    };
    in_few_looks(slow_ns, more, sampled, sample)
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
    let sampled = sample(MOST_LOOKS);
    let warmth = warmth_of(&sampled.resident, alone_ns);
    (sampled, warmth)
}

/// What a sample means; nothing of one that found nothing.
fn warmth_of(resident: &headstart_replay::Resident, alone_ns: u64) -> Option<Warmth> {
    (resident.looks > 0 && resident.unknown <= 1.0 - LEAST_KNOWN).then_some(Warmth {
        cold: resident.cold,
        alone_ns,
    })
}

/// Whether all devices of a plan were measured. What the plan itself says of a device may be a guess.
fn is_measured(store: &Store, plan: &Plan<'_>) -> bool {
    let mut devices = (0..plan.device_count()).filter_map(|index| plan.device(index));
    devices.all(|device| store.device_cost(&device.uuid).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at a plan of whose cost these parts were found cold, look by look: with how many looks each
    /// time, and what it came to.
    fn looks_at(cost: &PlanCost<'_>, found: &[f64]) -> (Vec<usize>, Option<Warmth>) {
        let mut asked = Vec::new();
        let (_, warmth) = sample_enough(cost, &mut |looks| {
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

    #[test]
    fn what_could_not_be_looked_at_in_time_is_not_called_cold() {
        let found = |looks, unknown, cold| headstart_replay::Resident {
            looks,
            unknown,
            cold,
            ..Default::default()
        };
        assert_eq!(warmth_of(&found(0, 0.0, 0.0), 1), None);
        assert_eq!(warmth_of(&found(1, 0.8, 0.0), 1), None, "one of five places");
        let pages = |cold| {
            let warmth = warmth_of(&found(5, 0.2, cold), 1).unwrap();
            resident(64, warmth).resident_pages
        };
        assert_eq!([pages(0.0), pages(0.25), pages(0.9)], [64, 48, 0]);
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
    fn what_stays_unseen_costs_no_more_than_a_replay() {
        assert_eq!((looks_for(0), looks_for(u64::MAX)), (5, 40));
        for alone_ms in [400, 800, 1600, 3200] {
            let looks = looks_for(alone_ms * 1_000_000) as f64;
            let lost_ms = |cold: f64| cold * (-cold * looks).exp() * alone_ms as f64;
            let most = (0..1000)
                .map(|part| lost_ms(f64::from(part) / 1000.0))
                .fold(0.0, f64::max);
            assert!(
                (25.0..38.0).contains(&most),
                "{alone_ms} ms: {looks} looks, {most} ms"
            );
        }
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
        let cold_share_of = |looks, unknown| {
            let resident = headstart_replay::Resident {
                looks,
                unknown,
                ..Default::default()
            };
            warmth_of(&resident, 1).map(|warmth| warmth.cold)
        };
        assert_eq!(cold_share_of(0, 0.0), None);
        assert_eq!(cold_share_of(5, 0.4), Some(0.0));
        assert_eq!(cold_share_of(5, 0.6), None);
    }
}
