//! What is fetched of a lazily filled volume before it is asked for.
//!
//! There the first read of a granule waits until all of it was fetched from elsewhere ([`FirstTouch`]), some
//! at a time. Requests for files come at that one by one: several wait for the same granule, those for
//! metadata for the last of theirs before the first file is opened, and the device fetches fewer at once than
//! it could. So a replay reads one page of each granule through the block device, in the order in which the
//! requests need them, and asks for files when theirs are there. Holes between what is needed of a granule
//! cost nothing, however large: nothing of them is read.
//!
//! Where fetches are what takes time, the link to the host has time left meanwhile. So what lies in a granule
//! that is fetched for a sooner need is read with that, though it is needed later ([`passes`]). Else the link
//! would be idle at first, and all that is left would come at the end.
//!
//! Each is planned where the start is read earlier for it by half a fetch at least; both ways are gone
//! through in time. What a device costs beyond the first touch decides all else, as elsewhere.

use crate::request::{Ordered, Turn};
use headstart_model::limits;
use headstart_model::machine::{Cost, Device, DeviceClass, FirstTouch, Machine};
use headstart_model::plan::{Fill, RequestKind, Touch};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::ops::RangeInclusive;

/// What is fetched first for these requests, which are in issue order.
pub(crate) fn fills(requests: &[Ordered], machine: &Machine) -> Vec<Fill> {
    let mut left = limits::TOUCHES;
    let mut fills = Vec::new();
    for (device, facts) in machine.devices.iter().take(limits::DEVICES).enumerate() {
        let page = u64::from(machine.page_size);
        let Some(first_touch) = facts.first_touch.filter(|fill| fill.makes_sense(page)) else {
            continue;
        };
        let device = device as u16;
        let own = of_device(requests, device.into());
        let touches = touches(&own, first_touch.granule, left);
        if touches.is_empty() || !pays(&own, &touches, &facts.cost, &first_touch) {
            continue;
        }
        left -= touches.len();
        fills.push(Fill {
            device,
            first_touch,
            touches,
        });
    }
    fills
}

/// The granules that a request reads in.
fn granules(request: &Ordered, granule: u64) -> RangeInclusive<u64> {
    let from = request.physical.unwrap_or(0);
    let to = from.saturating_add(request.request.length.max(1) - 1);
    from / granule..=to / granule
}

/// The granules of these requests, each once, `most` at most.
#[inline(never)]
fn touches(requests: &[(u32, &Ordered)], granule: u64, most: usize) -> Vec<Touch> {
    let mut seen = HashSet::new();
    let mut touches = Vec::new();
    for (number, request) in requests {
        for index in granules(request, granule) {
            if touches.len() >= most {
                return touches;
            }
            // No device reaches so far.
            let addressable = index < i64::MAX as u64 / granule;
            if addressable && seen.insert(index) {
                touches.push(Touch {
                    offset: index * granule,
                    request: *number,
                });
            }
        }
    }
    touches
}

/// The requests that read from a known place of a device, with their numbers.
fn of_device(requests: &[Ordered], device: usize) -> Vec<(u32, &Ordered)> {
    let numbered = (0..).zip(requests);
    numbered
        .filter(|(_, request)| usize::from(request.request.device) == device && request.physical.is_some())
        .collect()
}

/// When each device has read all of these requests, which are in issue order, if it fetches their granules
/// first, nanoseconds; 0 for one that is not filled as it is read, and for one head, which goes by address.
pub(crate) fn ends(requests: &[Ordered], machine: &Machine) -> Vec<u64> {
    let page = u64::from(machine.page_size);
    let end = |(device, facts): (usize, &Device)| {
        let serves_many = facts.cost.class != DeviceClass::Disk;
        let first_touch = facts
            .first_touch
            .filter(|fill| serves_many && fill.makes_sense(page))?;
        let own = of_device(requests, device);
        let touches = touches(&own, first_touch.granule, limits::TOUCHES);
        Some(Volume::fetching(&touches, &facts.cost, &first_touch).read(&own))
    };
    let devices = machine.devices.iter().enumerate();
    devices.map(|device| end(device).unwrap_or(0)).collect()
}

/// Puts the requests of a device, which are in issue order, into passes by how many granules are fetched when
/// theirs are. No file's data comes before its first need, and so before what its file waits for.
pub(crate) fn passes(requests: &mut [Ordered], device: usize, granule: u64) {
    let (mut fetched, mut begun) = (HashMap::<u64, u64>::new(), HashMap::<u64, u64>::new());
    let own = requests
        .iter_mut()
        .filter(|r| usize::from(r.request.device) == device);
    for request in own.filter(|r| r.turn == Turn::Sweep && r.physical.is_some()) {
        let mut when = 0;
        for index in granules(request, granule).take(limits::TOUCHES) {
            let count = fetched.len() as u64 + 1;
            when = *fetched.entry(index).or_insert(count).max(&mut when);
        }
        let until = fetched.len() as u64;
        let when = match request.request.kind {
            RequestKind::Data => when.max(*begun.entry(request.request.file.into()).or_insert(until)),
            _ => until,
        };
        request.pass = when.min(u16::MAX.into()) as u16;
    }
}

/// Whether all is read earlier, by half a fetch at least, where these granules are asked for first.
fn pays(requests: &[(u32, &Ordered)], touches: &[Touch], cost: &Cost, first_touch: &FirstTouch) -> bool {
    let mut without = Volume::new(cost, first_touch);
    let mut with = Volume::fetching(touches, cost, first_touch);
    without.read(requests) > with.read(requests) + with.fetch_ns / 2
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// A lazily filled volume at some time, nanoseconds since the replay's first instant.
struct Volume<'a> {
    cost: &'a Cost,
    granule: u64,
    fetch_ns: u64,
    /// When each of those that fetch is free.
    fetching: BinaryHeap<Reverse<u64>>,
    /// When a granule is there.
    there: HashMap<u64, u64>,
}

impl<'a> Volume<'a> {
    fn new(cost: &'a Cost, first_touch: &FirstTouch) -> Volume<'a> {
        Volume {
            cost,
            granule: first_touch.granule,
            fetch_ns: nanoseconds(first_touch.latency),
            fetching: vec![Reverse(0); first_touch.depth.max(1) as usize].into(),
            there: HashMap::new(),
        }
    }

    /// One of which all these granules are asked for at once.
    fn fetching(touches: &[Touch], cost: &'a Cost, first_touch: &FirstTouch) -> Volume<'a> {
        let mut volume = Volume::new(cost, first_touch);
        for touch in touches {
            volume.fetch(touch.offset / first_touch.granule, 0);
        }
        volume
    }

    /// When a granule that somebody needs at `now` is there.
    fn fetch(&mut self, granule: u64, now: u64) -> u64 {
        if let Some(there) = self.there.get(&granule) {
            return *there;
        }
        let Reverse(free) = self.fetching.pop().unwrap_or_default();
        let there = free.max(now).saturating_add(self.fetch_ns);
        self.fetching.push(Reverse(there));
        self.there.insert(granule, there);
        there
    }

    /// When all of these are read: what the data waits for first, then the others, as many at once as the
    /// device likes.
    #[inline(never)]
    fn read(&mut self, requests: &[(u32, &Ordered)]) -> u64 {
        let latency = nanoseconds(self.cost.latency);
        let mut free: BinaryHeap<Reverse<u64>> =
            vec![Reverse(0); self.cost.depth.clamp(1, limits::DEPTH as u32) as usize].into();
        let (mut turn, mut begin, mut end) = (Turn::Metadata, 0, 0);
        let (mut asked, mut link) = (0, 0);
        for (_, request) in requests {
            if request.turn != turn {
                (turn, begin) = (request.turn, end);
            }
            // What follows is asked for with what it follows.
            let slot = (!request.request.follows)
                .then(|| free.pop())
                .flatten()
                .map(|Reverse(slot)| slot);
            asked = slot.unwrap_or(asked).max(begin);
            let there = granules(request, self.granule)
                .take(limits::TOUCHES)
                .map(|granule| self.fetch(granule, asked))
                .max();
            let first_byte = there.unwrap_or(0).max(asked).saturating_add(latency);
            let transfer = nanoseconds(request.request.length as f64 / self.cost.bandwidth);
            link = first_byte.max(link).saturating_add(transfer);
            end = end.max(link);
            if slot.is_some() {
                free.push(Reverse(link));
            }
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{PAGE, data, entry, facts, flash, make, profile};
    use headstart_model::machine::{Cost, DeviceClass, FirstTouch, Machine};
    use headstart_model::plan::{PlanDraft, RequestKind};

    const GRANULE: u64 = 512 << 10;
    /// Blocks of a granule.
    const EACH: u64 = GRANULE / PAGE;

    /// Files of two pages at these blocks, needed one after the other, on a volume that is filled as it is
    /// read.
    fn volume(blocks: &[u64]) -> (Vec<headstart_model::profile::Entry>, Machine) {
        let name = |n: usize| format!("/m/{n:04}");
        let files = blocks.iter().enumerate();
        let mut machine = flash(
            files
                .clone()
                .map(|(n, block)| facts(&name(n), &[(0, *block, 2)], &[n as u64]))
                .collect(),
        );
        let device = &mut machine.devices[0];
        device.cost = Cost {
            class: DeviceClass::Flash,
            bandwidth: 125e6,
            latency: 7e-4,
            depth: 4,
        };
        device.first_touch = Some(FirstTouch {
            granule: GRANULE,
            latency: 33e-3,
            depth: 10,
        });
        let entries = files.map(|(n, _)| entry(&name(n), &[(0, 2, n as u64)]));
        (entries.collect(), machine)
    }

    fn planned(blocks: &[u64]) -> PlanDraft {
        let (entries, machine) = volume(blocks);
        make(&profile(entries), &machine)
    }

    #[test]
    fn each_granule_is_fetched_once_in_the_order_of_need() {
        // Four in each of sixty granules, the last first.
        let blocks: Vec<u64> = (0..240).map(|n| (61 - n / 4) * EACH + n % 4 * 30).collect();
        let draft = planned(&blocks);
        let [fill] = &draft.fills[..] else {
            panic!("{:?}", draft.fills)
        };
        let data = |number: u32| draft.requests[number as usize].kind == RequestKind::Data;
        let first = fill.touches[0];
        assert!(first.offset == 0 && first.request == 0, "where the metadata lies");
        // The metadata reaches into the next.
        let granules = fill.touches[2..].iter().map(|touch| touch.offset / GRANULE);
        let expected: Vec<u64> = (2..=61).rev().collect();
        assert_eq!(granules.collect::<Vec<_>>(), expected);
        assert!(fill.touches[2..].iter().all(|touch| data(touch.request)));
        let requests = fill.touches[2..].iter().map(|touch| touch.request);
        assert!(requests.collect::<Vec<_>>().is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn metadata_comes_when_it_is_needed() {
        // Each file's lies in a granule of its own, and so does its data; one is needed 20 ms after the
        // other.
        let blocks: Vec<u64> = (0..40).map(|n| (1 + n) * EACH).collect();
        let (mut entries, mut machine) = volume(&blocks);
        for (n, (entry, it)) in entries.iter_mut().zip(&mut machine.files).enumerate() {
            let path = format!("/m/{n:04}");
            *it = facts(&path, &[(0, blocks[n], 2)], &[(100 + n as u64) * EACH]);
            entry.first_use_ns = n as u64 * 20_000_000;
            entry.ranges[0].first_use_ns = entry.first_use_ns;
        }
        let kinds = |draft: &PlanDraft| draft.requests.iter().map(|r| r.kind).collect::<Vec<_>>();
        let each = [RequestKind::Metadata, RequestKind::Data];
        let draft = make(&profile(entries.clone()), &machine);
        assert_eq!(kinds(&draft), each.repeat(40));
        let touched = draft.fills[0].touches.iter().map(|touch| touch.offset / GRANULE);
        let expected: Vec<u64> = (0..40).flat_map(|n| [100 + n, 1 + n]).collect();
        assert_eq!(touched.collect::<Vec<_>>(), expected);
        // Elsewhere it goes first.
        machine.devices[0].first_touch = None;
        let first = kinds(&make(&profile(entries), &machine));
        assert_eq!(first, each.map(|kind| vec![kind; 40]).concat());
    }

    #[test]
    fn what_reaches_over_several_granules_needs_them_all() {
        let (mut entries, mut machine) = volume(&[1; 40]);
        for (n, (entry_, facts_)) in entries.iter_mut().zip(&mut machine.files).enumerate() {
            let name = format!("/m/{n:04}");
            // From the last block of one to the first of the next but one.
            *facts_ = facts(&name, &[(0, (4 * n as u64 + 1) * EACH - 1, EACH + 2)], &[]);
            *entry_ = entry(&name, &[(0, EACH as u32 + 2, n as u64)]);
        }
        let draft = make(&profile(entries), &machine);
        let granules = draft.fills[0].touches.iter().map(|touch| touch.offset / GRANULE);
        let expected: Vec<u64> = (0..40).flat_map(|n| 4 * n..4 * n + 3).collect();
        assert_eq!(granules.collect::<Vec<_>>(), expected);
    }

    /// The pages at which a plan reads `/m/memory` and `/m/other`. Of each of sixty granules the first lies
    /// in four pieces, of which the start needs one after all granules' pieces before; the other lies in the
    /// second granule, and is needed last.
    fn order_of_data(bandwidth: f64) -> Vec<(String, u64)> {
        let (_, mut machine) = volume(&[]);
        machine.devices[0].cost.bandwidth = bandwidth;
        machine.files = vec![
            facts("/m/memory", &[(0, EACH, 60 * EACH)], &[0]),
            facts("/m/other", &[(0, 2 * EACH + 20, 2)], &[1]),
        ];
        machine.files[0].size = 60 * GRANULE;
        let mut ranges: Vec<(u64, u32, u64)> =
            (0..240).map(|n| (n % 60 * EACH + n / 60 * 32, 16, n)).collect();
        ranges.sort();
        let entries = vec![entry("/m/memory", &ranges), entry("/m/other", &[(0, 2, 1000)])];
        let draft = make(&profile(entries), &machine);
        data(&draft)
            .into_iter()
            .map(|(path, start, _)| (path, start))
            .collect()
    }

    #[test]
    fn where_fetches_take_the_time_what_lies_in_a_granule_is_read_with_it() {
        let memory = |n: u64| ("/m/memory".to_owned(), n);
        let other = ("/m/other".to_owned(), 0);
        let by_granule = (0..240).map(|n| memory(n / 4 * EACH + n % 4 * 32));
        let expected: Vec<_> = by_granule.chain([other.clone()]).collect();
        assert_eq!(order_of_data(125e6), expected);
        // Where the link takes it, by need.
        let by_need = (0..240).map(|n| memory(n % 60 * EACH + n / 60 * 32));
        assert_eq!(order_of_data(5e6), by_need.chain([other]).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_fetched_first_where_it_gains_nothing() {
        // All in one granule, in which the metadata lies too.
        assert_eq!(planned(&[10, 30, 50]).fills, []);
        // The same files on a volume that was filled.
        let blocks: Vec<u64> = (0..240).map(|n| (1 + n / 4) * EACH + n % 4 * 30).collect();
        let (entries, mut machine) = volume(&blocks);
        assert_eq!(make(&profile(entries.clone()), &machine).fills.len(), 1);
        machine.devices[0].first_touch = None;
        assert_eq!(make(&profile(entries), &machine).fills, []);
    }

    #[test]
    fn a_forged_measurement_plans_nothing() {
        let blocks: Vec<u64> = (0..240).map(|n| (1 + n / 4) * EACH).collect();
        let (entries, mut machine) = volume(&blocks);
        let sound = machine.devices[0].first_touch.unwrap();
        for bad in [
            FirstTouch { granule: 0, ..sound },
            FirstTouch { granule: 3, ..sound },
            FirstTouch { depth: 0, ..sound },
            FirstTouch {
                latency: f64::NAN,
                ..sound
            },
        ] {
            machine.devices[0].first_touch = Some(bad);
            assert_eq!(make(&profile(entries.clone()), &machine).fills, []);
        }
    }
}
