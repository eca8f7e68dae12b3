//! What lies together on a device is asked for together.
//!
//! Where a request costs more than the bytes of a page ([`worthwhile`]), files that lie one behind the other
//! are best read by one request, and the replay makes one of those that stand one behind the other in the
//! plan ([`Request::follows`]). They stand in the order in which the start needs them; a neighbour that it
//! needs later is taken along, so that more become one. That brings forward what is needed later, and so
//! delays what is needed in between by the time its bytes take. How much later it may be needed is found by
//! trying: as much as lets the start end, by the cost model, hardly later ([`HARDLY`]).
//!
//! A disk's plan is in address order anyway, and what is near passes under its head.
//!
//! [`Request::follows`]: headstart_model::plan::Request::follows

use crate::request::{Lead, Ordered, Turn};
use crate::schedule::Start;
use headstart_model::machine::{Cost, Device, DeviceClass, Machine};
use headstart_model::plan::RequestKind;
use headstart_model::sort::Sort;

/// What is needed later by these shares of the time that the start takes may be taken along.
const LATER: [f64; 6] = [0.0, 0.01, 0.03, 0.1, 0.3, 1.0];

/// Ends that differ by this share, and by what one request takes, hardly differ. Where what limits a volume
/// is a rate of requests, one costs more than the probe can see, at few at a time: Python from a cloud volume
/// of 3,000 reads a second took 0.91 to 0.96 s with 900 requests and 0.99 to 1.05 with 2,060, and with a
/// tolerance of one request the model preferred now these and now those.
const HARDLY: f64 = 0.03;

/// Whether requests cost so much on a device that it pays to make one of several.
fn worthwhile(device: &Device, page: u64) -> bool {
    let has_places = device.compression.is_none();
    has_places && device.cost.class != DeviceClass::Disk && device.cost.place_matters(page)
}

/// Says of each request of the sweep with which it is asked for, where that pays: see [`Ordered::lead`].
pub(crate) fn gather(requests: &mut [Ordered], machine: &Machine, start: Option<Start>) {
    let page = u64::from(machine.page_size);
    for (index, device) in machine.devices.iter().enumerate() {
        if !worthwhile(device, page) {
            continue;
        }
        let of_device = |r: &&mut Ordered| usize::from(r.request.device) == index && is_data(r);
        let mut data: Vec<&mut Ordered> = requests.iter_mut().filter(of_device).collect();
        data.sort_small_by_key(|r| {
            (
                r.request.stage,
                r.physical.is_none(),
                r.physical,
                r.request.deadline_us,
            )
        });
        let cost = &device.cost;
        let attempts = LATER
            .iter()
            .map(|share| attempt(&data, cost, start, *share, page));
        let attempts: Vec<Attempt> = attempts.collect();
        let ends = attempts.iter().map(|attempt| attempt.end);
        let least = ends.fold(f64::INFINITY, f64::min);
        // Of those that hardly differ the one with the fewest requests: they also cost others, and the
        // processors.
        let good = |attempt: &Attempt| attempt.end <= least * (1.0 + HARDLY) + cost.latency;
        let Some(best) = attempts.into_iter().rev().find(good) else {
            continue;
        };
        for (request, lead) in data.iter_mut().zip(best.leads) {
            request.lead = Some(lead);
        }
    }
}

/// Marks what follows the request of its device before it, of requests in issue order.
pub(crate) fn mark(requests: &mut [Ordered], machine: &Machine) {
    let page = u64::from(machine.page_size);
    let pays = machine.devices.iter().map(|device| worthwhile(device, page));
    // Of each device on which it pays, the last so far.
    let mut last: Vec<Option<Option<usize>>> = pays.map(|pays| pays.then_some(None)).collect();
    for at in 0..requests.len() {
        let request = &requests[at];
        let device = last.get_mut(usize::from(request.request.device));
        let Some(Some(last)) = device else {
            continue;
        };
        // Metadata amid the data is asked for by itself.
        let before = std::mem::replace(last, is_data(request).then_some(at));
        if !is_data(request) {
            continue;
        }
        requests[at].request.follows =
            before.is_some_and(|before| touch(&requests[before], &requests[at], page));
    }
}

fn is_data(request: &Ordered) -> bool {
    request.turn == Turn::Sweep && request.request.kind == RequestKind::Data
}

/// Whether the second lies right behind the first; the last page of a file may be in use in part only.
fn touch(first: &Ordered, second: &Ordered, page: u64) -> bool {
    let (Some(first_at), Some(second_at)) = (first.physical, second.physical) else {
        return false;
    };
    let end = first_at.saturating_add(first.request.length);
    (end..=end.saturating_add(page - 1) / page.max(1) * page).contains(&second_at)
}

/// Which requests are asked for together, and when the start then ends.
struct Attempt {
    end: f64,
    leads: Vec<Lead>,
}

/// Takes along what is needed later by up to this share of the start's time, of requests by stage and
/// address.
fn attempt(requests: &[&mut Ordered], cost: &Cost, start: Option<Start>, share: f64, page: u64) -> Attempt {
    // As many bytes as the replay asks for at once.
    let largest = cost.piece();
    let last_us = requests.iter().map(|r| r.request.deadline_us).max().unwrap_or(0);
    let (scale, takes) = match start {
        Some(start) => (start.scale(), start.seconds()),
        // Of a start of which no more is known, as if it used its processors until its last need.
        None => (1e-6, f64::from(last_us) * 1e-6),
    };
    // Groups, each by the places of its first and behind its last, and when the first of it is needed.
    let mut groups: Vec<(usize, usize, u32)> = Vec::new();
    let (mut bytes, mut last_need) = (0, 0);
    for (at, request) in requests.iter().enumerate() {
        let (length, need) = (request.request.length, request.request.deadline_us);
        if let Some((from, to, first_need)) = groups.last_mut() {
            let joined = (need.min(*first_need), need.max(last_need));
            let near = f64::from(joined.1 - joined.0) * scale <= share * takes;
            let fits = bytes + length <= largest && request.request.stage == requests[*from].request.stage;
            if fits && near && touch(requests[at - 1], request, page) {
                (*to, *first_need, last_need, bytes) = (at + 1, joined.0, joined.1, bytes + length);
                continue;
            }
        }
        (bytes, last_need) = (length, need);
        groups.push((at, at + 1, need));
    }
    let lead = |(from, _, need): &(usize, usize, u32)| (*need, requests[*from].physical.unwrap_or(u64::MAX));
    let mut leads = vec![(0, 0); requests.len()];
    for group in &groups {
        leads[group.0..group.1].fill(lead(group));
    }
    groups.sort_small_by_key(|group| (requests[group.0].request.stage, lead(group)));
    let each = cost.latency / f64::from(cost.depth.max(1));
    let (mut issued, mut read, mut behind, mut done) = (0.0, 0.0, 0.0, 0.0);
    let mut before = None;
    for (from, to, first_need) in groups {
        let length: u64 = requests[from..to].iter().map(|r| r.request.length).sum();
        // What stands one behind the other anyway is one request, too.
        let follows = before.is_some_and(|before: usize| touch(requests[before], requests[from], page));
        issued += each * (length.div_ceil(largest).max(1) - u64::from(follows)) as f64;
        read += length as f64 / cost.bandwidth;
        done = f64::max(issued + cost.latency, read);
        behind = f64::max(behind, done - f64::from(first_need) * scale);
        before = Some(to - 1);
    }
    Attempt {
        end: f64::max(done, behind + takes),
        leads,
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{PAGE, data, entry, facts, flash, make, profile};
    use headstart_model::machine::{DeviceClass, Machine};
    use headstart_model::plan::PlanDraft;

    /// Files of two pages each at these blocks, of which the start needs all in this order, a millisecond
    /// between one and the next; a request costs as much as so many pages.
    fn planned(blocks: &[u64], pages: u64) -> PlanDraft {
        let name = |n: usize| format!("/m/{n:03}");
        let files = blocks.iter().enumerate();
        let mut machine = flash(
            files
                .clone()
                .map(|(n, block)| facts(&name(n), &[(0, *block, 2)], &[]))
                .collect(),
        );
        cost(&mut machine, pages);
        let entries = files.map(|(n, _)| entry(&name(n), &[(0, 2, n as u64)]));
        make(&profile(entries.collect()), &machine)
    }

    fn cost(machine: &mut Machine, pages: u64) {
        let cost = &mut machine.devices[0].cost;
        let seconds = (pages * PAGE) as f64 / cost.bandwidth * f64::from(cost.depth) * 1.001;
        // A plan keeps nanoseconds.
        cost.latency = (seconds * 1e9).round() / 1e9;
    }

    fn follows(draft: &PlanDraft) -> Vec<bool> {
        let data = draft
            .requests
            .iter()
            .filter(|r| r.kind == headstart_model::plan::RequestKind::Data);
        data.map(|r| r.follows).collect()
    }

    fn names(draft: &PlanDraft) -> Vec<String> {
        data(draft).into_iter().map(|(path, ..)| path).collect()
    }

    #[test]
    fn neighbours_needed_one_after_the_other_are_asked_for_together() {
        let draft = planned(&[100, 102, 104, 300, 302, 200], 4);
        assert_eq!(follows(&draft), [false, true, true, false, true, false]);
        assert!(names(&draft).is_sorted(), "in the order of their need");
    }

    #[test]
    fn where_requests_cost_less_than_a_page_nothing_is_changed() {
        let draft = planned(&[100, 104, 102, 300], 0);
        assert_eq!(follows(&draft), [false; 4]);
        assert!(names(&draft).is_sorted());
    }

    #[test]
    fn a_neighbour_that_is_needed_later_is_taken_along() {
        // A hundred requests of 400 pages' time each: the start waits for nothing else.
        let blocks: Vec<u64> = (0..100).map(|n| 100 + n * 37 % 100 * 2).collect();
        let draft = planned(&blocks, 400);
        // 128 pages are one request at most.
        let alone = follows(&draft).into_iter().filter(|follows| !follows).count();
        assert!(alone <= 4, "{alone}");
    }

    #[test]
    fn what_is_needed_much_later_does_not_go_before_what_is_needed_at_once() {
        // Neighbours are needed at any time of 0.4 s; half a megabyte takes 5 ms, a request 0.7.
        let blocks: Vec<u64> = (0..400).map(|n| 100 + n * 149 % 400 * 2).collect();
        let draft = planned(&blocks, 1);
        let first: Vec<String> = names(&draft).into_iter().take(128).collect();
        let early = first.iter().filter(|name| name.as_str() < "/m/200").count();
        assert!(early > 96, "{early}: {first:?}");
    }

    #[test]
    fn of_groupings_that_end_the_start_at_nearly_the_same_time_the_one_with_the_fewest_requests_is_taken() {
        // A start of 0.1 s, of which 3 % are three milliseconds; by what a request takes alone 55 would be
        // left.
        let blocks: Vec<u64> = (0..100).map(|n| 100 + n * 37 % 100 * 2).collect();
        let draft = planned(&blocks, 4);
        let alone = follows(&draft).into_iter().filter(|follows| !follows).count();
        assert!(alone <= 4, "{alone}");
    }

    #[test]
    fn one_head_is_not_concerned() {
        let mut machine = flash(vec![
            facts("/m/a", &[(0, 100, 2)], &[]),
            facts("/m/b", &[(0, 102, 2)], &[]),
        ]);
        cost(&mut machine, 400);
        machine.devices[0].cost.class = DeviceClass::Disk;
        let entries = ["/m/a", "/m/b"].map(|name| entry(name, &[(0, 2, 0)]));
        assert_eq!(follows(&make(&profile(entries.to_vec()), &machine)), [false; 2]);
    }
}
