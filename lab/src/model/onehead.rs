//! A disk with one actuator: a seek that grows with the square root of the distance, half a turn, then the media rate.
//!
//! What is queued is served by a one-way elevator (C-LOOK): the next request at or after the head, else back to the lowest.
//! A request that begins where the head is costs only its transfer, as a drive's own read-ahead gives; a short gap ahead is
//! let pass under the head where that is cheaper than a jump.

use std::collections::VecDeque;

use super::{Done, Nanos, OneHeadSpec, Op, Request, transfer};

#[derive(Debug, Clone, Copy)]
struct Waiting {
    request: Request,
    arrived: Nanos,
    depth: u32,
}

#[derive(Debug, Clone)]
pub(super) struct OneHead {
    arm: Arm,
    ncq: usize,
    write_latency: Nanos,
    head: u64,
    queue: VecDeque<Waiting>,
    serving: Option<(Waiting, Nanos)>,
    /// Writes in the drive's cache and when they are acknowledged.
    cached: VecDeque<(Waiting, Nanos)>,
}

/// The mechanics alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arm {
    seek: [f64; 2],
    rotation: Nanos,
    bandwidth: f64,
    size: f64,
}

impl Arm {
    pub(super) fn new(spec: &OneHeadSpec, size: u64) -> Arm {
        Arm {
            seek: spec.seek_us.map(|us| us as f64 * 1000.0),
            rotation: spec.rotation_us * 1000,
            bandwidth: spec.bandwidth_mb,
            size: size.max(1) as f64,
        }
    }

    /// Time to bring byte `to` under a head at byte `from`.
    pub(super) fn position(&self, from: u64, to: u64) -> Nanos {
        let distance = from.abs_diff(to);
        if distance == 0 {
            return 0;
        }
        let [low, high] = self.seek;
        let stroke = (distance as f64 / self.size).min(1.0).sqrt();
        let jump = (low + (high - low) * stroke).round() as Nanos + self.rotation;
        if to > from {
            jump.min(transfer(distance, self.bandwidth))
        } else {
            jump
        }
    }

    /// Time to pass `length` bytes under the head.
    pub(super) fn transfer(&self, length: u64) -> Nanos {
        transfer(length, self.bandwidth)
    }
}

impl OneHead {
    pub(super) fn new(spec: &OneHeadSpec, size: u64) -> OneHead {
        OneHead {
            arm: Arm::new(spec, size),
            ncq: spec.ncq,
            write_latency: spec.write_latency_us * 1000,
            head: 0,
            queue: VecDeque::new(),
            serving: None,
            cached: VecDeque::new(),
        }
    }

    pub(super) fn submit(&mut self, now: Nanos, request: Request) {
        let inside = self.queue.len() + self.cached.len() + usize::from(self.serving.is_some());
        let waiting = Waiting {
            request,
            arrived: now,
            depth: inside as u32 + 1,
        };
        match request.op {
            Op::Write => self.cached.push_back((waiting, now + self.write_latency)),
            Op::Read => {
                self.queue.push_back(waiting);
                if self.serving.is_none() {
                    self.start(now);
                }
            }
        }
    }

    pub(super) fn next_event(&self) -> Option<Nanos> {
        let reading = self.serving.map(|(_, at)| at);
        let writing = self.cached.front().map(|(_, at)| *at);
        reading.into_iter().chain(writing).min()
    }

    pub(super) fn run(&mut self, now: Nanos, done: &mut Vec<Done>) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            let waiting = match self.cached.front() {
                Some((waiting, due)) if *due == at => {
                    let waiting = *waiting;
                    self.cached.pop_front();
                    waiting
                }
                _ => {
                    let Some((waiting, _)) = self.serving.take() else {
                        break;
                    };
                    self.start(at);
                    waiting
                }
            };
            let Waiting {
                request,
                arrived,
                depth,
            } = waiting;
            done.push(Done {
                request,
                arrived,
                finished: at,
                depth,
            });
        }
    }

    /// The elevator: picks among the first `ncq` requests.
    fn start(&mut self, now: Nanos) {
        let window = self.queue.iter().take(self.ncq).enumerate();
        // Behind the head sorts after ahead of it; the sequence number breaks ties.
        let next = window.min_by_key(|(i, w)| (w.request.offset < self.head, w.request.offset, *i));
        let Some(waiting) = next.map(|(i, _)| i).and_then(|i| self.queue.remove(i)) else {
            return;
        };
        let Request { offset, length, .. } = waiting.request;
        let finished = now + self.arm.position(self.head, offset) + self.arm.transfer(length);
        self.head = offset + length;
        self.serving = Some((waiting, finished));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Device, Model, drain};
    use super::*;

    const SIZE: u64 = 1 << 30;

    fn read(id: u64, offset: u64, length: u64) -> Request {
        Request {
            id,
            op: Op::Read,
            offset,
            length,
        }
    }

    fn order(requests: &[u64]) -> Vec<u64> {
        let mut device = Device::new(&Model::load("disk").unwrap(), SIZE);
        for (id, offset) in requests.iter().enumerate() {
            device.submit(0, read(id as u64, *offset, 4096));
        }
        drain(&mut device).iter().map(|d| d.request.id).collect()
    }

    #[test]
    fn elevator_sweeps_up_then_returns() {
        // The first is taken at once; then upwards from there, then the lowest.
        assert_eq!(
            order(&[500 << 20, 100 << 20, 900 << 20, 600 << 20, 50 << 20]),
            [0, 3, 2, 4, 1]
        );
    }

    #[test]
    fn elevator_sees_only_the_native_queue() {
        let mut offsets = vec![0, 900 << 20];
        offsets.extend((0..31).map(|i| (800 << 20) + i * 8192));
        offsets.push(1 << 20); // the 34th: 33rd in the queue while the first is served
        let order = order(&offsets);
        assert_eq!(order[0], 0);
        assert_eq!(
            order[1], 2,
            "the lowest of the first 32 waiting, not the newcomer"
        );
    }

    #[test]
    fn continuing_costs_transfer_and_jumping_costs_seek_and_turn() {
        let mut device = Device::new(&Model::load("disk").unwrap(), SIZE);
        device.submit(0, read(0, 0, 1_200_000));
        assert_eq!(drain(&mut device)[0].finished, 10_000_000);
        device.submit(50_000_000, read(1, 1_200_000, 1_200_000));
        assert_eq!(drain(&mut device)[0].finished, 60_000_000);
        device.submit(100_000_000, read(2, SIZE - 4096, 4096));
        let took = drain(&mut device)[0].finished - 100_000_000;
        assert!(
            (20_000_000..20_300_000).contains(&took),
            "full stroke 16 ms + 4.17 ms: {took}"
        );
    }

    #[test]
    fn short_gap_passes_under_the_head() {
        let arm_time = |gap: u64| {
            let mut device = Device::new(&Model::load("seek5ms").unwrap(), SIZE);
            device.submit(0, read(0, gap, 4096));
            drain(&mut device)[0].finished
        };
        assert_eq!(arm_time(120_000), transfer(124_096, 120.0));
        // 600 kB at 120 MB/s is 5 ms: beyond it the jump is cheaper.
        assert!(arm_time(1_200_000) < transfer(1_204_096, 120.0));
    }

    #[test]
    fn writes_do_not_move_the_head() {
        let mut device = Device::new(&Model::load("disk").unwrap(), SIZE);
        device.submit(
            0,
            Request {
                id: 0,
                op: Op::Write,
                offset: 900 << 20,
                length: 4096,
            },
        );
        device.submit(0, read(1, 0, 12_000));
        let done = drain(&mut device);
        assert_eq!((done[0].request.id, done[0].finished), (1, 100_000));
        assert_eq!((done[1].request.id, done[1].finished), (0, 200_000));
    }
}
