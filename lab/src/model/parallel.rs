//! A device with independent channels: each request takes a channel, waits its latency, then shares one link.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::{Done, Nanos, Op, ParallelSpec, Request, transfer};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiting {
    request: Request,
    arrived: Nanos,
    depth: u32,
}

/// What happens to a request next; the order of the variants breaks ties in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Finished,
    FirstByte,
}

#[derive(Debug, Clone)]
pub(super) struct Parallel {
    latency: [Nanos; 2],
    depth: usize,
    bandwidth: Option<f64>,
    /// Nanoseconds between two starts.
    interval: Nanos,
    write_latency: Nanos,
    busy: usize,
    gate: Nanos,
    link_free: Nanos,
    started: u64,
    inside: u32,
    queue: VecDeque<Waiting>,
    /// By time, then phase, then slot, so that ties have one order.
    events: BinaryHeap<Reverse<(Nanos, Phase, usize)>>,
    slots: Vec<Option<Waiting>>,
}

impl Parallel {
    pub(super) fn new(spec: &ParallelSpec) -> Parallel {
        Parallel {
            latency: spec.latency_us.map(|us| us * 1000),
            depth: spec.depth,
            bandwidth: spec.bandwidth_mb,
            interval: spec.iops.map_or(0, |iops| (1e9 / iops).round() as Nanos),
            write_latency: spec.write_latency_us * 1000,
            busy: 0,
            gate: 0,
            link_free: 0,
            started: 0,
            inside: 0,
            queue: VecDeque::new(),
            events: BinaryHeap::new(),
            slots: Vec::new(),
        }
    }

    pub(super) fn submit(&mut self, now: Nanos, request: Request) {
        self.inside += 1;
        self.queue.push_back(Waiting {
            request,
            arrived: now,
            depth: self.inside,
        });
        self.start(now);
    }

    pub(super) fn next_event(&self) -> Option<Nanos> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn run(&mut self, now: Nanos, done: &mut Vec<Done>) {
        while let Some(&Reverse((at, phase, slot))) = self.events.peek() {
            if at > now {
                break;
            }
            self.events.pop();
            let Some(waiting) = self.slots[slot] else { continue };
            match phase {
                Phase::FirstByte => {
                    let finished = match (self.bandwidth, waiting.request.op) {
                        (Some(mb), Op::Read) => {
                            self.link_free = self.link_free.max(at) + transfer(waiting.request.length, mb);
                            self.link_free
                        }
                        _ => at,
                    };
                    self.events.push(Reverse((finished, Phase::Finished, slot)));
                }
                Phase::Finished => {
                    self.slots[slot] = None;
                    self.busy -= 1;
                    self.inside -= 1;
                    done.push(Done {
                        request: waiting.request,
                        arrived: waiting.arrived,
                        finished: at,
                        depth: waiting.depth,
                    });
                    self.start(at);
                }
            }
        }
    }

    /// Gives free channels to waiting requests, first come first served, no faster than the IOPS gate.
    fn start(&mut self, now: Nanos) {
        while self.busy < self.depth {
            let Some(waiting) = self.queue.pop_front() else {
                break;
            };
            let begin = now.max(self.gate);
            self.gate = begin + self.interval;
            let latency = match waiting.request.op {
                Op::Read => self.draw(),
                Op::Write => self.write_latency,
            };
            let slot = self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
            self.slots[slot] = Some(waiting);
            self.busy += 1;
            self.events
                .push(Reverse((begin + latency, Phase::FirstByte, slot)));
        }
    }

    /// A latency within the bounds, fixed by the place in the sequence (splitmix64 of the request number).
    fn draw(&mut self) -> Nanos {
        self.started += 1;
        let [low, high] = self.latency;
        let mut z = self.started.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        low + (z ^ (z >> 31)) % (high - low + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Device, Model, drain};
    use super::*;

    fn all_at_once(model: &str, count: u64, length: u64) -> Nanos {
        let mut device = Device::new(&Model::load(model).unwrap(), 1 << 30);
        for id in 0..count {
            device.submit(
                0,
                Request {
                    id,
                    op: Op::Read,
                    offset: id * 1_000_000,
                    length,
                },
            );
        }
        drain(&mut device).last().unwrap().finished
    }

    #[test]
    fn depth_overlaps_and_no_more() {
        assert_eq!(all_at_once("flash4ms", 16, 4096), 4_000_000);
        assert_eq!(all_at_once("flash4ms", 17, 4096), 8_000_000);
        assert_eq!(all_at_once("flash4ms", 160, 4096), 40_000_000);
    }

    #[test]
    fn link_is_shared() {
        // 10 MB in ten channels at 100 MB/s: 100 ms, after the first latency.
        assert_eq!(all_at_once("lazy", 10, 1_000_000), 120_000_000);
    }

    #[test]
    fn iops_are_paced() {
        let last = all_at_once("cloud", 3000, 512);
        assert!((990_000_000..1_010_000_000).contains(&last), "{last}");
    }
}
