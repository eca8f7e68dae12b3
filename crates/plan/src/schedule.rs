//! When a device with one head reads what.
//!
//! One pass in address order costs least, but the start may have to wait for its end, and whatever it reads
//! by itself before costs a jump there and back. Several passes, each in address order, what is needed first
//! in the first of them, let the start run beside the later ones; each pass costs further jumps. And the
//! start can be held: let go so late that it never catches up with the replay, it reads nothing by itself at
//! all.
//!
//! The schedule is found by trying: each pass begins with what is needed from some time on, and takes along
//! what is needed later where it passes under the head anyway. The cost model tells when each request is
//! done, from that how long the start has to be held, and so when it ends. Of all times one more pass could
//! begin at the best is kept, as long as the start ends earlier for it by a jump at least.

use crate::request::{Ordered, Turn};
use headstart_model::machine::Cost;
use headstart_model::sort::Sort;

/// The most passes: each costs a long jump, and what it reads lies the further apart.
const MOST_PASSES: usize = 8;
/// A pass may begin at one of so many times, with as many needs between one and the next, or at the end of
/// one of the longest times in which nothing is needed for the first time.
const TIMES: usize = 64;
const PAUSES: usize = 16;

/// Of more requests than 4,096, half as many again as a desktop's boot, so many times fewer are tried: the
/// time it takes grows with both, and any profile is to be planned within a second.
const TRIED: usize = TIMES * 4096;

/// A long jump takes this many short ones: from one end of the disk to the other, once a pass.
const LONG_JUMP: f64 = 3.0;

/// A start may need things after this share of the time that is known of it. CPU time is an upper bound of
/// what it takes without waiting, by as much as its threads run at once; and a start that overtakes the
/// replay reads by itself, jumps there and back, takes the longer for it, and so teaches that things are
/// needed late. One that was held too long takes only as long as it computes, and teaches that.
const HASTE: f64 = 0.75;

/// The same of a boot: many of its tasks wait at once, so how much of its time was waiting is not known.
const HASTE_OF_BOOT: f64 = 0.5;
/// A further pass of a boot must end it earlier by this share, for the same reason. By the model a second
/// pass ended a server's boot 2 % earlier; it took 3 % longer
/// (`docs/decisions/0053-holes-and-boots-on-one-head.md`).
const WORTH_OF_BOOT: f64 = 0.1;

/// How many times as long as by the cost model a replay may be reckoned to take: a start is let go no sooner
/// than by the model, and more is a device that served others meanwhile.
const FASTEST: f64 = 1.0;
const SLOWEST: f64 = 4.0;

/// A start as far as the schedule is concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// The CPU time it takes.
    pub cpu_ns: u64,
    /// What it took when the deadlines were recorded.
    pub timeline_ns: u64,
    /// What of that it waited for devices.
    pub waited_ns: u64,
    /// How many times as long as by the cost model its replays take on one head.
    pub pace: f64,
    /// Whether it is a boot.
    pub is_boot: bool,
}

impl Start {
    /// What it takes where it waits for nothing. Several threads may use more CPU time than passes.
    fn compute_ns(&self) -> u64 {
        self.cpu_ns.min(self.timeline_ns)
    }

    /// The seconds that it computes.
    pub fn seconds(&self) -> f64 {
        self.compute_ns() as f64 * 1e-9
    }

    /// What makes a need's time (microseconds) the seconds after which the start that waits for nothing may
    /// have it. What the start waited for when its times were recorded is in them, so of a timeline longer
    /// than its CPU time they are taken as shares.
    pub fn scale(&self) -> f64 {
        self.compute_ns() as f64 / self.timeline_ns.max(1) as f64 * self.haste() * 1e-6
    }

    fn haste(&self) -> f64 {
        match self.is_boot {
            true => HASTE_OF_BOOT,
            false => HASTE,
        }
    }

    /// The seconds after which the start has this need (microseconds) at the earliest, if it waits for
    /// nothing. When it waited is not known: it may have been before each need. So whoever reads by itself
    /// beside its replay is held longer the next time, until all has been read at most, and shows then when
    /// it needs what.
    fn earliest(&self, need_us: u32) -> f64 {
        // Who was let go amid its replay waits for a part of it, and may be done sooner than who was held to
        // its end: waiting for as long as it computes says nothing.
        let waited_ns = self.waited_ns.saturating_sub(self.cpu_ns);
        let running_ns = self.timeline_ns.saturating_sub(waited_ns);
        let need_ns = (u64::from(need_us) * 1000).saturating_sub(waited_ns);
        let share = self.cpu_ns.min(running_ns) as f64 / running_ns.max(1) as f64;
        need_ns as f64 * share * self.haste() * 1e-9
    }

    /// What makes the cost model's seconds those of its replays.
    fn pace(&self) -> f64 {
        self.pace.clamp(FASTEST, SLOWEST)
    }
}

/// How the data of one device is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Schedule {
    /// The pass of each request of the sweep, by its place among those in the list given.
    pub passes: Vec<u16>,
    /// The number of requests, those before the sweep included, that the start waits for.
    pub hold: u32,
}

/// The schedule of the requests of one device, given in any order, for this start. Of an
/// unknown one it is held for what goes before the sweep only, and that is done in one pass.
pub(crate) fn schedule(requests: &[&Ordered], cost: &Cost, start: Option<Start>) -> Schedule {
    let before: Vec<&Ordered> = requests
        .iter()
        .filter(|r| r.turn < Turn::Sweep)
        .copied()
        .collect();
    let data: Vec<&Ordered> = requests
        .iter()
        .filter(|r| r.turn == Turn::Sweep)
        .copied()
        .collect();
    let Some(start) = start else {
        return Schedule {
            passes: vec![0; data.len()],
            hold: before.len() as u32,
        };
    };
    // Where metadata was read by block, looking a path up reads nothing.
    let reading: Vec<&Ordered> = before.iter().filter(|r| r.request.length > 0).copied().collect();
    let mut by_address: Vec<usize> = (0..data.len()).collect();
    by_address.sort_small_by_key(|i| (data[*i].physical.is_none(), data[*i].physical));
    let sweep = Sweep {
        needed: needed(&data, &start),
        earliest: data
            .iter()
            .map(|r| start.earliest(r.request.deadline_us))
            .collect(),
        by_address,
        cost,
        pace: start.pace(),
        begun: time(&reading, cost) * start.pace(),
        cpu: start.seconds(),
        before: before.len(),
        requests: data,
    };
    // What a further pass must save, seconds.
    let worth = |end: f64| {
        let share = if start.is_boot { WORTH_OF_BOOT } else { 0.0 };
        (cost.latency * sweep.pace).max(share * end)
    };
    let times = times(&sweep.needed);
    let mut begins = Vec::new();
    let mut best = sweep.attempt(&begins);
    while begins.len() + 1 < MOST_PASSES {
        let with = |time: &f64| {
            let mut begins = [&begins[..], &[*time]].concat();
            begins.sort_unstable_by(f64::total_cmp);
            let attempt = sweep.attempt(&begins);
            (attempt, begins)
        };
        let next = times.iter().filter(|time| !begins.contains(time)).map(with);
        match next.min_by(|a, b| a.0.end.total_cmp(&b.0.end)) {
            Some((attempt, more)) if attempt.end + worth(best.end) < best.end => {
                (best, begins) = (attempt, more);
            }
            _ => break,
        }
    }
    best.schedule
}

/// When the start needs each request, in seconds since it was let go.
fn needed(data: &[&Ordered], start: &Start) -> Vec<f64> {
    let scale = start.scale();
    data.iter()
        .map(|r| f64::from(r.request.deadline_us) * scale)
        .collect()
}

/// The seconds that requests take in address order.
fn time(requests: &[&Ordered], cost: &Cost) -> f64 {
    let mut sorted: Vec<&&Ordered> = requests.iter().collect();
    sorted.sort_small_by_key(|r| r.physical);
    let mut head = None;
    sorted
        .iter()
        .map(|r| step(r.physical, r.request.length, &mut head, cost))
        .sum()
}

/// The seconds of one request of so many bytes with the head where the last one left it.
pub(crate) fn step(physical: Option<u64>, bytes: u64, head: &mut Option<u64>, cost: &Cost) -> f64 {
    let length = bytes as f64 / cost.bandwidth;
    let Some(at) = physical else {
        return cost.latency + length;
    };
    let gap = head
        .and_then(|head| at.checked_sub(head))
        .map(|gap| gap as f64 / cost.bandwidth);
    *head = Some(at.saturating_add(bytes));
    // What is near ahead passes under the head.
    gap.unwrap_or(f64::INFINITY).min(cost.latency) + length
}

/// What is read beside a start, and what its time depends on.
struct Sweep<'a> {
    requests: Vec<&'a Ordered>,
    /// The requests as the head passes them; those of unknown address last.
    by_address: Vec<usize>,
    /// When the start needs each, seconds since it was let go: what the passes go by.
    needed: Vec<f64>,
    /// When it does at the earliest: how long it is held goes by that.
    earliest: Vec<f64>,
    cost: &'a Cost,
    /// How many times as long as by the cost model it takes.
    pace: f64,
    /// When the sweep begins, seconds since the replay's first instant.
    begun: f64,
    /// The seconds that the start computes.
    cpu: f64,
    /// Requests before the sweep.
    before: usize,
}

/// A schedule, and when the start then ends.
struct Attempt {
    end: f64,
    schedule: Schedule,
}

impl Sweep<'_> {
    /// Reads in passes of which all but the first begin with what is needed at these times (ascending).
    fn attempt(&self, begins: &[f64]) -> Attempt {
        let needed = self.needed.iter();
        let mut passes: Vec<u16> = needed
            .map(|time| begins.partition_point(|begin| begin <= time) as u16)
            .collect();
        let count = begins.len() as u16 + 1;
        for pass in 0..count {
            self.take_along(&mut passes, pass);
        }
        // When each is done, and so how far the start must stay behind.
        let (mut now, mut head) = (self.begun, None);
        let (mut behind, mut held) = (self.begun, self.begun);
        let mut done = Vec::with_capacity(passes.len());
        for pass in 0..count {
            if pass > 0 {
                now += self.cost.latency * LONG_JUMP * self.pace;
            }
            for index in self.by_address.iter().filter(|i| passes[**i] == pass) {
                let Ordered {
                    request, physical, ..
                } = self.requests[*index];
                now += step(*physical, request.length, &mut head, self.cost) * self.pace;
                behind = f64::max(behind, now - self.needed[*index]);
                held = f64::max(held, now - self.earliest[*index]);
                done.push(now);
            }
        }
        let held = done.partition_point(|at| *at <= held);
        Attempt {
            end: now.max(behind + self.cpu),
            schedule: Schedule {
                passes,
                hold: (self.before + held) as u32,
            },
        }
    }

    /// Moves what passes under the head in this pass into it from later ones: to read it takes no longer than
    /// to let it pass, and spares a jump.
    fn take_along(&self, passes: &mut [u16], pass: u16) {
        let (mut head, mut passed) = (None, Vec::new());
        for index in &self.by_address {
            let Some(at) = self.requests[*index].physical else {
                break;
            };
            if passes[*index] > pass {
                passed.push(*index);
            } else if passes[*index] == pass {
                let gap = head.and_then(|head| at.checked_sub(head));
                if gap.is_some_and(|gap: u64| gap as f64 / self.cost.bandwidth <= self.cost.latency) {
                    passed.iter().for_each(|index| passes[*index] = pass);
                }
                passed.clear();
                head = Some(at + self.requests[*index].request.length);
            }
        }
    }
}

/// Times at which a pass could begin.
fn times(needed: &[f64]) -> Vec<f64> {
    let mut sorted = needed.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let count = (TRIED / sorted.len().max(1)).clamp(2, TIMES);
    let mut pauses: Vec<(f64, f64)> = sorted.windows(2).map(|two| (two[1] - two[0], two[1])).collect();
    pauses.sort_small_by(|a, b| b.0.total_cmp(&a.0));
    let pauses = pauses.iter().take(PAUSES.min(count));
    let mut times: Vec<f64> = pauses.map(|(_, end)| *end).collect();
    times.extend((1..count).filter_map(|n| sorted.get(n * sorted.len() / count)));
    times.sort_unstable_by(f64::total_cmp);
    times.dedup();
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::plan::{Request, RequestKind};
    use headstart_model::testing::DISK;

    /// A request at so many megabytes, of so many, needed after so many milliseconds.
    fn request(turn: Turn, at: u64, length: u64, ms: u32) -> Ordered {
        Ordered {
            request: Request {
                deadline_us: ms * 1000,
                ..Request::new(RequestKind::Data, 0, length * 1_000_000)
            },
            physical: Some(at * 1_000_000),
            level: 0,
            turn,
            pass: 0,
            lead: None,
            is_named: false,
            weight: 1.0,
        }
    }

    fn run(requests: &[Ordered], cpu_ms: Option<u64>) -> Schedule {
        schedule(
            &requests.iter().collect::<Vec<_>>(),
            &DISK,
            cpu_ms.map(|ms| Start {
                cpu_ns: ms * 1_000_000,
                timeline_ns: ms * 1_000_000,
                waited_ns: 0,
                pace: 1.0,
                is_boot: false,
            }),
        )
    }

    #[test]
    fn a_start_without_work_of_its_own_waits_for_one_pass() {
        let files: Vec<_> = (0..50)
            .map(|i| request(Turn::Sweep, (i * 37 % 50) * 100, 1, i as u32))
            .collect();
        let schedule = run(&files, Some(1));
        assert!(schedule.passes.iter().all(|p| *p == 0));
        assert!(schedule.hold >= 45, "{schedule:?}");
    }

    #[test]
    fn a_start_that_computes_long_is_let_go_early() {
        let files: Vec<_> = (0..50)
            .map(|i| request(Turn::Sweep, i * 100, 1, i as u32 * 100))
            .collect();
        assert!(run(&files, Some(60_000)).hold <= 2);
    }

    #[test]
    fn what_is_needed_first_goes_first_where_waiting_for_all_would_take_longer() {
        // A second of reading, a second of computing; the first need lies at the far end.
        let mut files: Vec<_> = (0..10).map(|i| request(Turn::Sweep, i * 10, 10, 1000)).collect();
        files.push(request(Turn::Sweep, 5000, 1, 0));
        let schedule = run(&files, Some(1000));
        let pass = schedule.passes[10];
        assert!(schedule.passes[..10].iter().any(|p| *p > pass), "{schedule:?}");
        assert!(schedule.hold < 5, "{schedule:?}");
    }

    #[test]
    fn a_boot_is_read_in_one_pass_unless_another_saves_much() {
        // Of a second of reading a part is needed at the end of a short start that computes for so long.
        let passes = |cpu_ms: u64, is_boot| {
            let mut files: Vec<_> = (0..20).map(|i| request(Turn::Sweep, i * 200, 5, 0)).collect();
            for file in files.iter_mut().step_by(4) {
                file.request.deadline_us = cpu_ms as u32 * 1000;
            }
            let start = Start {
                cpu_ns: cpu_ms * 1_000_000,
                timeline_ns: cpu_ms * 1_000_000,
                waited_ns: 0,
                pace: 1.0,
                is_boot,
            };
            let schedule = schedule(&files.iter().collect::<Vec<_>>(), &DISK, Some(start));
            schedule.passes.into_iter().max().unwrap() + 1
        };
        assert_eq!((passes(100, false), passes(100, true)), (2, 1));
        assert_eq!((passes(1000, false), passes(1000, true)), (2, 2));
    }

    #[test]
    fn what_passes_under_the_head_is_taken_along() {
        // A large file, a small one needed a second later, and so on without holes: the one that a small file
        // would leave takes 1 ms, a jump 5 ms.
        let neighbours = |small: u64| -> Vec<_> {
            let pair = |i: u64| {
                let mut large = request(Turn::Sweep, i * 10, 10, 0);
                large.request.length -= small;
                let mut later = request(Turn::Sweep, i * 10 + 10, 0, 1000);
                later.request.length = small;
                later.physical = later.physical.map(|end| end - small);
                [large, later]
            };
            (0..20).flat_map(pair).collect()
        };
        let near = run(&neighbours(100_000), Some(2000)).passes;
        // The last has nothing behind it.
        assert!(near[..39].iter().all(|pass| *pass == 0), "{near:?}");
        // Here it would take 10 ms.
        let far = run(&neighbours(1_000_000), Some(2000)).passes;
        assert!(far.chunks(2).all(|two| two[0] < two[1]), "{far:?}");
    }

    /// 50 files at any place, each needed 40 ms after the one before it, by a start of two seconds.
    fn held(cpu_ms: u64, waited_ms: u64, pace: f64) -> u32 {
        let files: Vec<_> = (0..50)
            .map(|i| request(Turn::Sweep, (i * 37 % 50) * 100, 1, i as u32 * 40))
            .collect();
        let cpu_ns = cpu_ms * 1_000_000;
        let start = Start {
            cpu_ns,
            timeline_ns: 2_000_000_000,
            waited_ns: waited_ms * 1_000_000,
            pace,
            is_boot: false,
        };
        schedule(&files.iter().collect::<Vec<_>>(), &DISK, Some(start)).hold
    }

    #[test]
    fn a_start_that_waited_for_its_reads_is_held_longer_until_all_is_read_at_most() {
        let held = [0, 500, 1500, 4000].map(|waited_ms| held(500, waited_ms, 1.0));
        assert_eq!(held[0], held[1], "no longer than it computes");
        assert!(held[1] < held[2] && held[2] <= held[3], "{held:?}");
        assert_eq!(held[3], 50);
    }

    #[test]
    fn a_start_whose_replays_take_longer_than_the_model_says_is_held_longer() {
        let held = [1.0, 2.0, 4.0].map(|pace| held(2000, 0, pace));
        assert!(held[0] < held[1] && held[1] < held[2], "{held:?}");
    }

    #[test]
    fn threads_that_use_more_than_the_time_that_passes_do_not_lengthen_a_start() {
        let start = |cpu_ns| Start {
            cpu_ns,
            timeline_ns: 1_000_000_000,
            waited_ns: 0,
            pace: 1.0,
            is_boot: false,
        };
        assert_eq!(start(3_000_000_000).compute_ns(), 1_000_000_000);
        assert_eq!(start(300_000_000).compute_ns(), 300_000_000);
    }

    #[test]
    fn an_unknown_start_waits_for_what_goes_before_the_sweep() {
        let requests = [
            request(Turn::Metadata, 1, 1, 0),
            request(Turn::Sweep, 50, 1, 9),
            request(Turn::LookUps, 0, 0, 0),
            request(Turn::After, 0, 0, 0),
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
