//! When a device with one head reads what.
//!
//! One pass in address order costs least, but the start may have to wait for its end, and whatever it reads by itself
//! before costs a jump there and back. Several passes, each in address order, what is needed first in the first of
//! them, let the start run beside the later ones; each pass costs further jumps. And the start can be held: let go so
//! late that it never catches up with the replay, it reads nothing by itself at all.
//!
//! The schedule is found by trying: for each number of passes, cut where the start needs nothing for longest, the cost
//! model tells when each request is done, from that how long the start has to be held, and so when it ends. The number
//! that ends first wins.

use crate::Ordered;
use headstart_model::machine::Cost;
use headstart_model::plan::RequestKind;

/// Numbers of passes that are tried.
const PASSES: std::ops::RangeInclusive<usize> = 1..=8;

/// A long jump takes this many short ones: from one end of the disk to the other, once a pass.
const LONG_JUMP: f64 = 3.0;

/// A start as far as the schedule is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// The CPU time it takes.
    pub cpu_ns: u64,
    /// What it took when the deadlines were recorded.
    pub timeline_ns: u64,
}

/// How the data of one device is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Schedule {
    /// The pass of each data request, by its place in the list given.
    pub passes: Vec<u16>,
    /// The number of requests, metadata and look-ups included, that the start waits for.
    pub hold: u32,
}

/// The schedule of the requests of one device, given in any order, for this start. Of an
/// unknown one it is held for metadata only, and the data is read in one pass.
pub(crate) fn schedule(requests: &[&Ordered], cost: &Cost, start: Option<Start>) -> Schedule {
    let is_data = |r: &&&Ordered| r.request.kind == RequestKind::Data;
    let before: Vec<&Ordered> = requests.iter().filter(|r| !is_data(r)).copied().collect();
    let data: Vec<&Ordered> = requests.iter().filter(is_data).copied().collect();
    let Some(start) = start else {
        return Schedule {
            passes: vec![0; data.len()],
            hold: before.len() as u32,
        };
    };
    let needed = needed(&data, &start);
    let cpu = start.cpu_ns as f64 * 1e-9;
    // Where metadata was read by block, looking a path up reads nothing.
    let reading: Vec<&Ordered> = before.iter().filter(|r| r.request.length > 0).copied().collect();
    let begun = time(&reading, cost);
    let mut best: Option<(f64, Schedule)> = None;
    for passes in PASSES {
        let (end, schedule) = attempt(&data, &needed, passes, cost, begun, cpu, before.len());
        if best.as_ref().is_none_or(|(least, _)| end < *least) {
            best = Some((end, schedule));
        }
    }
    best.map(|(_, schedule)| schedule).unwrap_or_default()
}

/// When the start needs each request, in seconds since it was let go. What it waited for when its times were recorded
/// is in them, so of a timeline longer than its CPU time they are taken as shares.
fn needed(data: &[&Ordered], start: &Start) -> Vec<f64> {
    let scale = (start.cpu_ns as f64 / start.timeline_ns.max(1) as f64).min(1.0) * 1e-6;
    data.iter()
        .map(|r| f64::from(r.request.deadline_us) * scale)
        .collect()
}

/// The seconds that requests take in address order.
fn time(requests: &[&Ordered], cost: &Cost) -> f64 {
    let mut sorted: Vec<&&Ordered> = requests.iter().collect();
    sorted.sort_by_key(|r| r.physical);
    let mut head = None;
    sorted.iter().map(|r| step(r, &mut head, cost)).sum()
}

/// The seconds of one request with the head where the last one left it.
fn step(request: &Ordered, head: &mut Option<u64>, cost: &Cost) -> f64 {
    let length = request.request.length as f64 / cost.bandwidth;
    let Some(at) = request.physical else {
        return cost.latency + length;
    };
    let gap = head
        .and_then(|head| at.checked_sub(head))
        .map(|gap| gap as f64 / cost.bandwidth);
    *head = Some(at + request.request.length);
    // What is near ahead passes under the head.
    gap.unwrap_or(f64::INFINITY).min(cost.latency) + length
}

/// Reads in so many passes: when the start then ends, and the schedule.
fn attempt(
    data: &[&Ordered],
    needed: &[f64],
    passes: usize,
    cost: &Cost,
    begun: f64,
    cpu: f64,
    before: usize,
) -> (f64, Schedule) {
    let pass_of = cut(needed, passes);
    let mut order: Vec<usize> = (0..data.len()).collect();
    order.sort_by_key(|i| (pass_of[*i], data[*i].physical.is_none(), data[*i].physical));
    // When each is done, and so how far the start must stay behind.
    let (mut now, mut head, mut pass) = (begun, None, 0);
    let mut behind = begun;
    let mut done = Vec::with_capacity(order.len());
    for index in &order {
        if pass_of[*index] != pass {
            pass = pass_of[*index];
            now += cost.latency * LONG_JUMP;
        }
        now += step(data[*index], &mut head, cost);
        behind = f64::max(behind, now - needed[*index]);
        done.push(now);
    }
    let held = done.partition_point(|at| *at <= behind);
    (
        now.max(behind + cpu),
        Schedule {
            passes: pass_of,
            hold: (before + held) as u32,
        },
    )
}

/// The pass of each request: cut at the longest times in which nothing is needed for the first time.
fn cut(needed: &[f64], passes: usize) -> Vec<u16> {
    let mut times = needed.to_vec();
    times.sort_by(f64::total_cmp);
    let mut gaps: Vec<(f64, f64)> = times
        .windows(2)
        .map(|pair| (pair[1] - pair[0], pair[1]))
        .collect();
    gaps.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut starts: Vec<f64> = gaps.iter().take(passes - 1).map(|(_, start)| *start).collect();
    starts.sort_by(f64::total_cmp);
    needed
        .iter()
        .map(|time| starts.partition_point(|start| start <= time) as u16)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::machine::DeviceClass;
    use headstart_model::plan::Request;

    const DISK: Cost = Cost {
        class: DeviceClass::Disk,
        bandwidth: 100e6,
        latency: 5e-3,
        depth: 1,
    };

    /// A request at so many megabytes, of so many, needed after so many milliseconds.
    fn request(kind: RequestKind, at: u64, length: u64, ms: u32) -> Ordered {
        Ordered {
            request: Request {
                kind,
                stage: 0,
                device: 0,
                file: 0,
                offset: 0,
                length: length * 1_000_000,
                bridged: 0,
                deadline_us: ms * 1000,
            },
            physical: Some(at * 1_000_000),
            level: 0,
            pass: 0,
        }
    }

    fn run(requests: &[Ordered], cpu_ms: Option<u64>) -> Schedule {
        schedule(
            &requests.iter().collect::<Vec<_>>(),
            &DISK,
            cpu_ms.map(|ms| Start {
                cpu_ns: ms * 1_000_000,
                timeline_ns: ms * 1_000_000,
            }),
        )
    }

    #[test]
    fn a_start_without_work_of_its_own_waits_for_one_pass() {
        let files: Vec<_> = (0..50)
            .map(|i| request(RequestKind::Data, (i * 37 % 50) * 100, 1, i as u32))
            .collect();
        let schedule = run(&files, Some(1));
        assert!(schedule.passes.iter().all(|p| *p == 0));
        assert!(schedule.hold >= 45, "{schedule:?}");
    }

    #[test]
    fn a_start_that_computes_long_is_let_go_early() {
        let files: Vec<_> = (0..50)
            .map(|i| request(RequestKind::Data, i * 100, 1, i as u32 * 100))
            .collect();
        assert!(run(&files, Some(60_000)).hold <= 2);
    }

    #[test]
    fn what_is_needed_first_goes_first_where_waiting_for_all_would_take_longer() {
        // A second of reading, a second of computing; the first need lies at the far end.
        let mut files: Vec<_> = (0..10)
            .map(|i| request(RequestKind::Data, i * 10, 10, 1000))
            .collect();
        files.push(request(RequestKind::Data, 5000, 1, 0));
        let schedule = run(&files, Some(1000));
        let pass = schedule.passes[10];
        assert!(schedule.passes[..10].iter().any(|p| *p > pass), "{schedule:?}");
        assert!(schedule.hold < 5, "{schedule:?}");
    }

    #[test]
    fn an_unknown_start_waits_for_metadata_only() {
        let requests = [
            request(RequestKind::Metadata, 1, 1, 0),
            request(RequestKind::Data, 50, 1, 9),
            request(RequestKind::Stat, 0, 0, 0),
        ];
        assert_eq!(
            run(&requests, None),
            Schedule {
                passes: vec![0],
                hold: 2
            }
        );
    }
}
