//! The model against the wall clock: requests go in with an answer to give, a thread gives each answer at the
//! model's time.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::model::{Device, Done, Kind, Model, Nanos, Op, Request};

/// Requests that measure the chain.
const PROBES: usize = 51;

/// Between two of them: like a program that computes a little, not one that only reads.
const PAUSE: Duration = Duration::from_micros(300);

/// More than this is not the chain but other work on the machine.
const LONGEST_LEAD: Duration = Duration::from_micros(100);

/// How long a restart waits for outstanding requests.
const PATIENCE: Duration = Duration::from_secs(30);

/// Name of the thread that keeps time.
pub(super) const THREAD: &str = "disk-clock";

/// One line of the request log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Arrival, nanoseconds since the device was made; in the log of a machine's boot, since that began.
    pub at: Nanos,
    /// Read or write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Requests in the device on arrival, itself included.
    pub depth: u32,
    /// What the model said, arrival to end, in nanoseconds.
    pub service: Nanos,
}

impl Entry {
    /// Header of [`Entry::csv`].
    pub const CSV_HEADER: &str = "time_us,op,sector,sectors,depth,service_us";

    /// The entry as a line: microseconds and 512-byte sectors.
    pub fn csv(&self) -> String {
        let op = match self.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
        };
        let (sector, sectors) = (self.offset / 512, self.length.div_ceil(512));
        format!(
            "{},{op},{sector},{sectors},{},{}",
            self.at / 1000,
            self.depth,
            self.service / 1000
        )
    }
}

/// An answer to be given when the model says so.
pub type Answer = Box<dyn FnOnce() + Send>;

/// The two ends of a request, which may become ready in either order.
enum Slot {
    /// The answer is here, the model is not done.
    Ready(Answer),
    /// The model is done, the answer is still being fetched.
    Due,
}

struct State {
    device: Device,
    next_id: u64,
    slots: HashMap<u64, Slot>,
    /// By request number: finished in another order, but kept in the order of arrival.
    log: BTreeMap<u64, Entry>,
    /// Answers leave this much early, to make up for the way through FUSE and the loop device.
    lead: Nanos,
    /// Requests are answered at once, past the model and the log: the chain is being measured, or a start
    /// rehearsed.
    bypass: bool,
    stop: bool,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    epoch: Instant,
    /// The model answers at once: there is nothing to wait for in another thread.
    instant: bool,
    model: Model,
    size: u64,
}

/// A device model driven by real time.
pub struct Clock {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

impl Clock {
    /// Switches a device of `size` bytes on.
    pub fn start(model: &Model, size: u64) -> std::io::Result<Clock> {
        let state = State {
            device: Device::new(model, size),
            next_id: 0,
            slots: HashMap::new(),
            log: BTreeMap::new(),
            lead: 0,
            bypass: false,
            stop: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            wake: Condvar::new(),
            epoch: Instant::now(),
            instant: model.kind == Kind::None,
            model: model.clone(),
            size,
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(THREAD.into())
            .spawn(move || theirs.run())?;
        Ok(Clock {
            shared,
            thread: Some(thread),
        })
    }

    /// Submits a request that arrived now; `fetch` gets the data, at once, and returns how to answer.
    pub fn submit(&self, op: Op, offset: u64, length: u64, fetch: impl FnOnce() -> Answer) {
        let shared = &self.shared;
        let id = {
            let mut state = shared.lock();
            if state.bypass {
                drop(state);
                return fetch()();
            }
            let now = shared.now();
            let id = state.next_id;
            state.next_id += 1;
            if shared.instant {
                let entry = Entry {
                    at: now,
                    op,
                    offset,
                    length,
                    depth: 1,
                    service: 0,
                };
                state.log.insert(id, entry);
                drop(state);
                return fetch()();
            }
            let before = state.device.next_event();
            state.device.submit(
                now,
                Request {
                    id,
                    op,
                    offset,
                    length,
                },
            );
            if state.device.next_event() != before {
                shared.wake.notify_one();
            }
            id
        };
        let answer = fetch();
        let mut state = shared.lock();
        match state.slots.remove(&id) {
            Some(_) => {
                drop(state);
                answer();
            }
            None => {
                state.slots.insert(id, Slot::Ready(answer));
            }
        }
    }

    /// The time by which the log counts, now.
    pub fn now(&self) -> Nanos {
        self.shared.now()
    }

    /// The log since the last call, in order of arrival; entries appear when the model finishes them.
    pub fn take_log(&self) -> Vec<Entry> {
        std::mem::take(&mut self.shared.lock().log)
            .into_values()
            .collect()
    }

    /// Whether requests are answered at once, past the model and the log: while a start is rehearsed whose
    /// time nobody asks for.
    pub fn at_once(&self, at_once: bool) {
        self.shared.lock().bypass = at_once;
    }

    /// Switches the device off and on again: head at rest, nothing cached, nothing filled. Waits for what is
    /// outstanding.
    pub fn restart(&self) -> Result<()> {
        let patience = Instant::now() + PATIENCE;
        loop {
            let mut state = self.shared.lock();
            if state.slots.is_empty() {
                state.device = Device::new(&self.shared.model, self.shared.size);
                self.shared.wake.notify_one();
                return Ok(());
            }
            let outstanding = state.slots.len();
            drop(state);
            ensure!(
                Instant::now() < patience,
                "{outstanding} requests to the disk are still unanswered after {} s",
                PATIENCE.as_secs()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// How much earlier than the model says answers leave.
    pub fn lead(&self) -> Duration {
        Duration::from_nanos(self.shared.lock().lead)
    }

    /// Measures what the chain itself costs by `probe`, which returns the time of one request, and answers
    /// that much earlier from now on. Returns the cost.
    pub fn calibrate(&self, probe: impl Fn() -> Result<Duration>) -> Result<Duration> {
        self.shared.lock().bypass = true;
        let times = (0..PROBES)
            .map(|_| {
                std::thread::sleep(PAUSE);
                probe()
            })
            .collect::<Result<Vec<_>>>();
        let mut state = self.shared.lock();
        state.bypass = false;
        let mut times = times?;
        times.sort_unstable();
        // The quarter of the quickest: what other work on the machine adds is not the chain's.
        let cost = times[PROBES / 4].min(LONGEST_LEAD);
        state.lead = cost.as_nanos() as Nanos;
        Ok(cost)
    }
}

impl Drop for Clock {
    /// Ends the thread; what is outstanding is dropped, which FUSE answers with an error.
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic in an answer has already been printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        self.epoch.elapsed().as_nanos() as Nanos
    }

    fn run(&self) {
        // The default slack of 50 us would be added to every request; failing to lower it only costs
        // precision.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
        let mut margin = Margin::default();
        let mut state = self.lock();
        loop {
            if state.stop {
                return;
            }
            let (now, lead) = (self.now(), state.lead);
            let done = state.device.advance(now + lead);
            if !done.is_empty() {
                let due: Vec<Answer> = done.into_iter().filter_map(|done| state.finish(done)).collect();
                drop(state);
                due.into_iter().for_each(|answer| answer());
                state = self.lock();
                continue;
            }
            state = match state.device.next_event() {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let target = at.saturating_sub(lead);
                    let pause = target.saturating_sub(now + margin.nanos());
                    if pause > 0 {
                        let timeout = Duration::from_nanos(pause);
                        let (state, result) = self
                            .wake
                            .wait_timeout(state, timeout)
                            .unwrap_or_else(PoisonError::into_inner);
                        if result.timed_out() {
                            margin.learn(self.now().saturating_sub(now + pause));
                        }
                        state
                    } else {
                        // Too short to sleep through. The lock is free meanwhile: requests may still come in.
                        drop(state);
                        while self.now() < target {
                            std::hint::spin_loop();
                        }
                        self.lock()
                    }
                }
            };
        }
    }
}

/// How late this machine's timers ring (up to a few hundred microseconds in virtual machines): the clock
/// sleeps that much less and turns the rest away waiting.
#[derive(Debug, Default)]
struct Margin(Nanos);

impl Margin {
    /// Longest wait without sleeping; later than that is a machine too busy to be precise.
    const MOST: Nanos = 400_000;

    /// Lateness seen, and a little: a timer that is now and then later than usual is absorbed too.
    fn nanos(&self) -> Nanos {
        (self.0 + self.0 / 4 + 5_000).min(Self::MOST)
    }

    fn learn(&mut self, late: Nanos) {
        self.0 = (self.0 * 7 + late.min(Self::MOST)) / 8;
    }
}

impl State {
    /// Logs a finished request; returns its answer unless that is still being fetched.
    fn finish(&mut self, done: Done) -> Option<Answer> {
        let Request {
            id,
            op,
            offset,
            length,
        } = done.request;
        let service = done.finished - done.arrived;
        let entry = Entry {
            at: done.arrived,
            op,
            offset,
            length,
            depth: done.depth,
            service,
        };
        self.log.insert(id, entry);
        match self.slots.remove(&id) {
            Some(Slot::Ready(answer)) => Some(answer),
            _ => {
                self.slots.insert(id, Slot::Due);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn answers_come_at_the_models_time_and_are_logged() {
        let clock = Clock::start(&Model::load("flash4ms").unwrap(), 1 << 20).unwrap();
        let (send, receive) = mpsc::channel();
        let begin = Instant::now();
        for i in 0..17u64 {
            let send = send.clone();
            clock.submit(Op::Read, i * 4096, 4096, move || {
                Box::new(move || send.send((i, begin.elapsed())).unwrap())
            });
        }
        let answers: Vec<(u64, Duration)> = receive.iter().take(17).collect();
        let first_sixteen = answers[..16].iter().map(|a| a.1).max().unwrap();
        assert!(answers[0].1 >= Duration::from_millis(4) && answers[16].1 >= Duration::from_millis(8));
        // Loose: the machine may be busy.
        assert!(first_sixteen < Duration::from_millis(60), "{first_sixteen:?}");
        let log = clock.take_log();
        assert_eq!(log.len(), 17);
        assert_eq!((log[0].depth, log[16].depth), (1, 17));
        // 4 ms, and 4 KiB at 500 MB/s.
        assert_eq!(log[0].service, 4_008_192);
        assert_eq!(
            log[16].csv().split(',').skip(1).take(4).collect::<Vec<_>>(),
            ["read", "128", "8", "17"]
        );
    }

    /// What the log says is what the model does with the same requests at the same times: bit for bit,
    /// whatever the machine was doing when the answers were due.
    #[test]
    fn the_log_is_the_models_own() {
        for name in ["disk7200", "sata-ssd", "lazy"] {
            let model = Model::load(name).unwrap();
            let size = 1 << 30;
            let clock = Clock::start(&model, size).unwrap();
            clock.calibrate(|| Ok(Duration::from_micros(50))).unwrap();
            let (send, receive) = mpsc::channel();
            for i in 0..120u64 {
                let send = send.clone();
                let op = if i % 5 == 0 { Op::Write } else { Op::Read };
                clock.submit(op, (i * 7919 % 200_000) * 4096, 4096, move || {
                    Box::new(move || send.send(()).unwrap())
                });
                if i % 8 == 0 {
                    receive.recv().unwrap();
                }
            }
            receive.iter().take(105).for_each(drop);
            let log = clock.take_log();
            assert_eq!(log.len(), 120);
            let mut device = Device::new(&model, size);
            let mut done = Vec::new();
            for (id, e) in (0..).zip(&log) {
                let (op, offset, length) = (e.op, e.offset, e.length);
                device.submit(
                    e.at,
                    Request {
                        id,
                        op,
                        offset,
                        length,
                    },
                );
                done.extend(device.advance(e.at));
            }
            done.extend(crate::model::drain(&mut device));
            done.sort_unstable_by_key(|done| done.request.id);
            let services: Vec<(Nanos, u32)> =
                done.iter().map(|d| (d.finished - d.arrived, d.depth)).collect();
            let logged: Vec<(Nanos, u32)> = log.iter().map(|e| (e.service, e.depth)).collect();
            assert_eq!(services, logged, "{name}");
        }
    }

    #[test]
    fn a_slow_fetch_answers_itself() {
        let clock = Clock::start(&Model::load("sata-ssd").unwrap(), 1 << 20).unwrap();
        let (send, receive) = mpsc::channel();
        clock.submit(Op::Read, 0, 4096, move || {
            std::thread::sleep(Duration::from_millis(20));
            Box::new(move || send.send(()).unwrap())
        });
        receive.recv_timeout(Duration::from_secs(5)).unwrap();
    }
}
