//! How long a replay took, beside what the cost model says of it.
//!
//! A device's cost is measured by a few reads, of one head by some near one another. How far a plan makes the
//! head move, what the drive reads on by itself and who else reads meanwhile shows when the plan is replayed:
//! the next one holds the start by that. And where a replay was faster than the model says is possible, the
//! cost was measured of a busy device.

use crate::floor::{Places, sweep_seconds};
use crate::schedule::step;
use headstart_model::PageRange;
use headstart_model::machine::{DeviceClass, Machine};
use headstart_model::outcome::ReplayReport;
use headstart_model::plan::Plan;

/// A replay that is modelled to read for less than this, seconds, says little: a single jump more is a large
/// part of it.
const LITTLE: f64 = 0.1;

/// A device's part of a replay.
#[derive(Clone, Default)]
struct Part {
    /// By the cost model, of one head, seconds.
    modelled: f64,
    head: Option<u64>,
    /// What was read, elsewhere.
    bytes: Vec<PageRange>,
    /// When it began and ended, by the replay's clock.
    from_ns: Option<u64>,
    to_ns: u64,
}

/// How many times as long as the cost model says a replay took on the device that it read from for longest:
/// of one head what it read, in the order in which it did, elsewhere in the best order. `None` where it read
/// next to nothing from any. `machine` is where its files lie.
pub fn pace(plan: &Plan<'_>, report: &ReplayReport, machine: &Machine) -> Option<f32> {
    let places = Places::new(plan, machine);
    let requests: Vec<_> = plan.requests().collect();
    let mut parts = vec![Part::default(); machine.devices.len()];
    for issued in &report.issued {
        let in_memory: u64 = issued.resident.iter().map(|range| range.pages()).sum();
        let Some(request) = requests.get(issued.request as usize) else {
            continue;
        };
        // Of what was in memory in part nobody knows what was read, and when.
        if request.length == 0 || in_memory > 0 {
            continue;
        }
        for (device, bytes) in places.of_request(request) {
            let (Some(part), Some(of)) = (
                parts.get_mut(device as usize),
                machine.devices.get(device as usize),
            ) else {
                continue;
            };
            match of.cost.class {
                DeviceClass::Disk => {
                    part.modelled += step(Some(bytes.start), bytes.pages(), &mut part.head, &of.cost);
                }
                DeviceClass::Flash | DeviceClass::Network => part.bytes.push(bytes),
            }
            part.from_ns = Some(part.from_ns.unwrap_or(u64::MAX).min(issued.issued_ns));
            part.to_ns = part.to_ns.max(issued.done_ns);
        }
    }
    for (part, of) in parts.iter_mut().zip(&machine.devices) {
        let bytes = std::mem::take(&mut part.bytes).into_iter().collect();
        part.modelled += match of.cost.class {
            DeviceClass::Disk => 0.0,
            DeviceClass::Flash | DeviceClass::Network => sweep_seconds(&bytes, &of.cost),
        };
    }
    let longest = parts
        .into_iter()
        .max_by(|a, b| a.modelled.total_cmp(&b.modelled))
        .filter(|part| part.modelled > LITTLE)?;
    let took = longest.to_ns.saturating_sub(longest.from_ns?) as f64 * 1e-9;
    Some((took / longest.modelled) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{PAGE, facts};
    use headstart_model::machine::Cost;
    use headstart_model::outcome::Issued;
    use headstart_model::plan::{Request, RequestKind};
    use headstart_model::testing::{self, DISK, NETWORK, plan_file};

    /// A replay of files of a page each, so many pages apart, that took so many milliseconds each.
    fn replayed(apart: u64, ms: u64, resident: bool, cost: Cost) -> Option<f32> {
        const FILES: u64 = 100;
        let name = |n: u64| format!("/f{n}");
        let read = (0..FILES).map(|n| facts(&name(n), &[(0, n * apart, 1)], &[]));
        let machine = testing::machine(cost, "ext4", read.collect());
        let files = (0..FILES).map(|n| testing::planned(&name(n))).collect();
        let requests = (0..FILES as u32).map(|n| Request::new(RequestKind::Data, n, PAGE));
        let file = plan_file(&testing::draft(cost, files, requests.collect()));
        let page = PageRange::new(0, 1);
        let issued = (0..FILES).map(|n| Issued {
            request: n as u32,
            pages: page,
            issued_ns: 7_000_000 + n * ms * 1_000_000,
            done_ns: 7_000_000 + (n + 1) * ms * 1_000_000,
            resident: resident.then_some(page).into_iter().collect(),
            arrived_pages: 1,
        });
        let report = ReplayReport {
            issued: issued.collect(),
            ..ReplayReport::default()
        };
        pace(&file.plan().unwrap(), &report, &machine)
    }

    #[test]
    fn a_replay_that_takes_longer_than_the_model_says_is_told_by_how_much() {
        // A jump of 5 ms, and a page.
        let pace = replayed(100_000, 10, false, DISK).unwrap();
        assert!((1.95..2.0).contains(&pace), "{pace}");
        let pace = replayed(100_000, 5, false, DISK).unwrap();
        assert!((0.97..1.0).contains(&pace), "{pace}");
    }

    #[test]
    fn where_many_are_served_at_once_the_best_order_is_the_measure() {
        // A request takes 1 ms, 16 are served at once.
        let slow = Cost {
            latency: 64e-3,
            ..NETWORK
        };
        let pace = replayed(100_000, 8, false, slow).unwrap();
        assert!((1.95..2.05).contains(&pace), "{pace}");
    }

    #[test]
    fn what_read_little_or_found_all_in_memory_tells_nothing() {
        assert_eq!(replayed(1, 10, false, DISK), None, "one behind the other");
        assert_eq!(replayed(100_000, 10, true, DISK), None);
        assert_eq!(replayed(100_000, 10, false, NETWORK), None, "6 ms");
    }
}
