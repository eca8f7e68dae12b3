//! A device with independent channels: each request takes a channel, waits its latency, then shares one link.
//! On a volume that is filled as it is read, the first read of a chunk waits for that chunk to be fetched.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::{Done, FirstTouch, Nanos, Op, ParallelSpec, Request, transfer};

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
    /// Of reads and of writes, in 10^6 bytes per second.
    bandwidth: [Option<f64>; 2],
    /// Nanoseconds between two starts, of reads and of writes.
    interval: [Nanos; 2],
    gate: [Nanos; 2],
    write_latency: Nanos,
    fill: Option<Fill>,
    busy: usize,
    link_free: Nanos,
    started: u64,
    inside: u32,
    queue: VecDeque<Waiting>,
    /// By time, then phase, then slot, so that ties have one order.
    events: BinaryHeap<Reverse<(Nanos, Phase, usize)>>,
    slots: Vec<Option<Waiting>>,
}

/// What of a lazily filled volume is there.
#[derive(Debug, Clone)]
struct Fill {
    chunk: u64,
    latency: Nanos,
    /// When each of the fetching channels is free.
    channels: BinaryHeap<Reverse<Nanos>>,
    /// When a chunk is there, for those that were ever asked for.
    ready: BTreeMap<u64, Nanos>,
}

impl Fill {
    fn new(spec: &FirstTouch) -> Fill {
        Fill {
            chunk: spec.chunk_kb << 10,
            latency: spec.latency_us * 1000,
            channels: (0..spec.parallel).map(|_| Reverse(0)).collect(),
            ready: BTreeMap::new(),
        }
    }

    /// When all of a read's chunks are there, each that is asked for the first time being fetched from `now`
    /// on.
    fn ready(&mut self, now: Nanos, request: &Request) -> Nanos {
        let last = request.offset + request.length.max(1) - 1;
        let mut latest = now;
        for chunk in request.offset / self.chunk..=last / self.chunk {
            let ready = *self.ready.entry(chunk).or_insert_with(|| {
                let Reverse(free) = self.channels.pop().unwrap_or(Reverse(0));
                let there = free.max(now) + self.latency;
                self.channels.push(Reverse(there));
                there
            });
            latest = latest.max(ready);
        }
        latest
    }
}

impl Parallel {
    pub(super) fn new(spec: &ParallelSpec) -> Parallel {
        let interval = |iops: Option<f64>| iops.map_or(0, |iops| (1e9 / iops).round() as Nanos);
        Parallel {
            latency: spec.latency_us.map(|us| us * 1000),
            depth: spec.depth,
            bandwidth: [spec.bandwidth_mb, spec.write_bandwidth_mb.or(spec.bandwidth_mb)],
            interval: [interval(spec.iops), interval(spec.write_iops)],
            gate: [0; 2],
            write_latency: spec.write_latency_us * 1000,
            fill: spec.first_touch.as_ref().map(Fill::new),
            busy: 0,
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
                    let finished = match self.bandwidth[direction(waiting.request.op)] {
                        Some(mb) => {
                            self.link_free = self.link_free.max(at) + transfer(waiting.request.length, mb);
                            self.link_free
                        }
                        None => at,
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
            let direction = direction(waiting.request.op);
            let mut begin = now.max(self.gate[direction]);
            self.gate[direction] = begin + self.interval[direction];
            let latency = match waiting.request.op {
                Op::Read => {
                    if let Some(fill) = &mut self.fill {
                        begin = fill.ready(begin, &waiting.request);
                    }
                    self.draw()
                }
                // A flush has nothing to wait for: what was acknowledged is safe.
                Op::Write | Op::Flush => self.write_latency,
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

/// Index of what reads and writes have each of their own.
fn direction(op: Op) -> usize {
    usize::from(op != Op::Read)
}

#[cfg(test)]
mod tests {
    use super::super::{Device, Kind, Model, drain};
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
        // Rounds of 4 ms, and at most sixteen transfers of 8 us at the end of each.
        for (count, rounds) in [(16, 1), (17, 2), (160, 10)] {
            let took = all_at_once("flash4ms", count, 4096);
            let expected = rounds * 4_000_000;
            assert!(
                (expected..expected + rounds * 140_000).contains(&took),
                "{count}: {took}"
            );
        }
    }

    #[test]
    fn link_is_shared() {
        // 8 MB in eight channels at 125 MB/s: 64 ms, after the first latency.
        assert_eq!(all_at_once("cloud", 8, 1_000_000), 64_700_000);
    }

    #[test]
    fn iops_are_paced() {
        let last = all_at_once("cloud", 3000, 512);
        assert!((990_000_000..1_010_000_000).contains(&last), "{last}");
    }

    fn read(device: &mut Device, now: Nanos, offset: u64, length: u64) -> Nanos {
        device.submit(
            now,
            Request {
                id: 0,
                op: Op::Read,
                offset,
                length,
            },
        );
        drain(device)[0].finished - now
    }

    #[test]
    fn only_the_first_read_of_a_chunk_is_slow() {
        let (lazy, cloud) = (Model::load("lazy").unwrap(), Model::load("cloud").unwrap());
        let Kind::Parallel(spec) = &lazy.kind else {
            panic!("lazy is a volume")
        };
        let fetch = spec.first_touch.as_ref().unwrap().latency_us * 1000;
        let mut volume = Device::new(&lazy, 1 << 30);
        let usual = read(&mut Device::new(&cloud, 1 << 30), 0, 0, 4096);
        let chunk = 512 << 10;
        assert_eq!(read(&mut volume, 0, 3 * chunk + 4096, 4096), fetch + usual);
        assert_eq!(read(&mut volume, 1_000_000_000, 3 * chunk, 4096), usual);
        assert_eq!(read(&mut volume, 2_000_000_000, 4 * chunk - 4096, 4096), usual);
        // Half in a chunk that is there, half in one that is not.
        assert!(read(&mut volume, 3_000_000_000, 4 * chunk - 4096, 8192) > fetch);
        assert_eq!(read(&mut volume, 4_000_000_000, 4 * chunk, 4096), usual);
    }

    #[test]
    fn two_readers_of_a_chunk_wait_for_one_fetch() {
        let model = Model::load("lazy").unwrap();
        let mut device = Device::new(&model, 1 << 30);
        for id in 0..20 {
            let (op, offset, length) = (Op::Read, id * 8192, 4096);
            device.submit(
                0,
                Request {
                    id,
                    op,
                    offset,
                    length,
                },
            );
        }
        let together = drain(&mut device).last().unwrap().finished;
        let alone = read(&mut Device::new(&model, 1 << 30), 0, 0, 4096);
        assert!(together < alone + 20 * 400_000, "{together} {alone}");
    }

    #[test]
    fn writes_take_their_own_time() {
        let mut card = Device::new(&Model::load("sdcard-a1").unwrap(), 1 << 30);
        let mut now = 0;
        for id in 0..100 {
            let (op, offset, length) = (Op::Write, id * 1_000_000 / 4096 * 4096, 4096);
            card.submit(
                now,
                Request {
                    id,
                    op,
                    offset,
                    length,
                },
            );
            now = drain(&mut card)[0].finished;
        }
        let rate = 100.0 / (now as f64 / 1e9);
        assert!((rate - 500.0).abs() < 10.0, "A1: 500 writes/s, got {rate}");
    }
}
