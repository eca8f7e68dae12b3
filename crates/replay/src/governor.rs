//! Whether the replay may go on: not when asked to stop, when memory runs short, when others wait for memory,
//! or when what it has read does not stay there.
//!
//! The threads ask between requests; one of them looks at `/proc` every [`INTERVAL`]. Each decision is
//! counted ([`Decisions`]).

use crate::evicted::Evicted;
use crate::options::{Options, Taken};
use headstart_model::outcome::Decisions;
use headstart_model::plan::RequestKind;
use headstart_model::room::Room;
use headstart_system::memory::{Pressure, Reclaim, Resource, left_to, memory, pressure, reclaim};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Time between two looks at memory: a look costs about 0.1 ms, and a fast disk fills 100 MB in between.
const INTERVAL: Duration = Duration::from_millis(50);
/// Pressure is judged over at least this time: the kernel adds up stalls every few milliseconds.
const PRESSURE_WINDOW: Duration = Duration::from_millis(200);
/// Without PSI, tasks wait for memory if so many times in that window one had to find some by itself: the
/// kernel frees 32 pages each time, so that is 1 MiB that nobody had freed in time.
const STALLS: u64 = 8;

/// Decides whether requests may still be issued.
pub struct Governor {
    begun: Instant,
    stop_below: u64,
    share: f64,
    starter: Option<u32>,
    stop_pressure: f64,
    stop_at_reclaim: bool,
    stopped: OnceLock<String>,
    asked: AtomicBool,
    /// Whether data is not read any more, nor ever was.
    metadata_only: AtomicBool,
    /// When to look next, nanoseconds since `begun`.
    next_look: AtomicU64,
    /// Bytes that all replays of this process may fill together.
    room: AtomicU64,
    /// What those have filled that have not ended.
    taken: Arc<Taken>,
    /// What of that is this one's.
    own: AtomicU64,
    first: OnceLock<First>,
    /// The least memory that was available at any look, bytes.
    lowest: AtomicU64,
    /// Memory stalls until the last judgement, microseconds or a number, and when that was, nanoseconds since
    /// `begun`.
    stalls: AtomicU64,
    judged: AtomicU64,
    /// Samples of what was read.
    pub evicted: Evicted,
    counts: Counts,
}

/// Decisions so far.
#[derive(Default)]
struct Counts {
    looks: AtomicU32,
    short: AtomicU32,
    pressed: AtomicU32,
    reclaimed: AtomicU32,
    evicted: AtomicU32,
    without_room: AtomicU32,
    gave_way: AtomicU32,
}

/// What was found before the first request.
struct First {
    available: u64,
    /// Memory stalls since boot, microseconds; `None` without PSI.
    stalls_us: Option<u64>,
    /// What the kernel had done to find free memory.
    reclaim: Option<Reclaim>,
    at: Instant,
}

/// Counts a decision.
fn count(counter: &AtomicU32) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Governor {
    /// A governor that has not looked yet.
    pub fn new(options: &Options) -> Governor {
        Governor {
            begun: Instant::now(),
            stop_below: options.stop_below,
            share: options.share,
            starter: options.starter,
            stop_pressure: options.stop_pressure,
            stop_at_reclaim: options.stop_at_reclaim,
            stopped: OnceLock::new(),
            asked: AtomicBool::new(false),
            metadata_only: AtomicBool::new(false),
            next_look: AtomicU64::new(0),
            room: AtomicU64::new(u64::MAX),
            taken: Arc::clone(&options.taken),
            own: AtomicU64::new(0),
            first: OnceLock::new(),
            lowest: AtomicU64::new(u64::MAX),
            stalls: AtomicU64::new(0),
            judged: AtomicU64::new(0),
            evicted: Evicted::default(),
            counts: Counts::default(),
        }
    }

    /// Looks at memory before the first request, and decides how much may be read in all.
    pub fn start(&self) {
        let usable = memory().map_or(0, |m| m.usable());
        let (pressure, reclaim) = (pressure(Resource::Memory), reclaim());
        count(&self.counts.looks);
        self.lowest.fetch_min(usable, Ordering::Relaxed);
        let mut room = Room::new(usable, self.stop_below, self.share);
        // No more than the start's own group could hold, though its pages are charged to this process's.
        if let Some(left) = self.starter.and_then(left_to) {
            room = room.at_most(left);
        }
        match room {
            Room::Nothing => self.too_little(usable),
            Room::Metadata(_) => self.metadata_only.store(true, Ordering::Relaxed),
            Room::All(_) => {}
        }
        if let Some(now) = pressure.filter(|p| p.some_10 > self.stop_pressure) {
            self.decide(
                &self.counts.pressed,
                format!("tasks waited for memory {:.0} % of the last 10 s", now.some_10),
            );
        }
        self.room.store(room.bytes(), Ordering::Relaxed);
        let stalls_us = pressure.map(|p| p.some_total_us);
        let stalls = stalls_us.or(reclaim.map(|reclaim| reclaim.stalls));
        self.stalls.store(stalls.unwrap_or(0), Ordering::Relaxed);
        self.judged.store(self.elapsed(), Ordering::Relaxed);
        self.next_look
            .store(self.elapsed() + INTERVAL.as_nanos() as u64, Ordering::Relaxed);
        // Set once: there is one caller.
        let _ = self.first.set(First {
            available: usable,
            stalls_us,
            reclaim,
            at: Instant::now(),
        });
    }

    fn elapsed(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// No request is issued from now on. The first reason is kept.
    pub fn stop(&self, why: impl Into<String>) {
        let _ = self.stopped.set(why.into());
    }

    /// Stops for something that this governor decided, which counts if nothing has stopped it before.
    fn decide(&self, counter: &AtomicU32, why: String) {
        if self.stopped.set(why).is_ok() {
            count(counter);
        }
    }

    fn too_little(&self, usable: u64) {
        self.decide(
            &self.counts.short,
            format!(
                "{} MiB of memory are available, {} are to be left to others",
                usable >> 20,
                self.stop_below >> 20
            ),
        );
    }

    /// Why it stopped.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// No request is issued from now on, for the start is over, and somebody may wait for all to be closed.
    pub fn stop_requests(&self) {
        self.stop("it was asked to stop");
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Whether somebody has asked for the end.
    pub fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Whether the next request may be issued.
    pub fn go_on(&self) -> bool {
        if self.stopped.get().is_some() {
            return false;
        }
        let (now, due) = (self.elapsed(), self.next_look.load(Ordering::Relaxed));
        let next = now + INTERVAL.as_nanos() as u64;
        if now >= due
            && self
                .next_look
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.check(now);
        }
        self.stopped.get().is_none()
    }

    fn check(&self, now: u64) {
        count(&self.counts.looks);
        if let Some(usable) = self.note_memory() {
            match Room::new(usable, self.stop_below, self.share) {
                Room::Nothing => self.too_little(usable),
                Room::Metadata(_) => self.metadata_only.store(true, Ordering::Relaxed),
                Room::All(_) => {}
            }
        }
        if self.stop_at_reclaim && self.has_reclaimed(reclaim()) {
            self.decide(
                &self.counts.reclaimed,
                "the kernel began to reclaim memory".into(),
            );
        }
        let window = now.saturating_sub(self.judged.load(Ordering::Relaxed));
        if window >= PRESSURE_WINDOW.as_nanos() as u64 {
            self.judged.store(now, Ordering::Relaxed);
            match pressure(Resource::Memory) {
                Some(pressure) => self.judge_pressure(pressure, window),
                None => self.judge_stalls(reclaim()),
            }
        }
    }

    /// Looks how much memory is available.
    fn note_memory(&self) -> Option<u64> {
        let usable = memory().ok()?.usable();
        self.lowest.fetch_min(usable, Ordering::Relaxed);
        Some(usable)
    }

    /// Whether the kernel has looked for pages to free since the beginning.
    fn has_reclaimed(&self, now: Option<Reclaim>) -> bool {
        let before = self.first.get().and_then(|first| first.reclaim);
        let scanned = |reclaim: Reclaim| reclaim.scanned;
        before
            .zip(now)
            .is_some_and(|(before, now)| scanned(now) > scanned(before))
    }

    fn judge_pressure(&self, pressure: Pressure, window_ns: u64) {
        let before = self.stalls.swap(pressure.some_total_us, Ordering::Relaxed);
        let waited_us = pressure.some_total_us.saturating_sub(before);
        let share = waited_us as f64 * 1000.0 / window_ns as f64 * 100.0;
        if share > self.stop_pressure {
            self.decide(
                &self.counts.pressed,
                format!("tasks waited for memory {share:.0} % of the time"),
            );
        }
    }

    /// The same where the kernel keeps no PSI.
    fn judge_stalls(&self, reclaim: Option<Reclaim>) {
        let Some(reclaim) = reclaim else { return };
        let before = self.stalls.swap(reclaim.stalls, Ordering::Relaxed);
        let times = reclaim.stalls.saturating_sub(before);
        if times >= STALLS {
            self.decide(
                &self.counts.pressed,
                format!("tasks had to find memory by themselves {times} times"),
            );
        }
    }

    /// Of a sample of what was read so many pages were in memory then, and so many are now.
    pub fn found_again(&self, then: u64, now: u64) {
        let Some((looked, gone)) = self.evicted.note(then, now) else {
            return;
        };
        // What somebody has dropped from memory on purpose tells nothing of how much there is.
        if self.has_reclaimed(reclaim()) {
            self.decide(
                &self.counts.evicted,
                format!("{gone} of {looked} pages that had been read ahead were out of memory again"),
            );
        }
    }

    /// A device is asked for less at once, for others wait for it.
    pub fn gives_way(&self) {
        count(&self.counts.gave_way);
    }

    /// Whether requests of this kind may be issued, however small.
    pub fn reads(&self, kind: RequestKind) -> bool {
        let reads = kind != RequestKind::Data || !self.metadata_only.load(Ordering::Relaxed);
        if !reads {
            count(&self.counts.without_room);
        }
        reads
    }

    /// Takes `bytes` from what may be read in all; `false` when that much is not left.
    pub fn allow(&self, bytes: u64) -> bool {
        let is_allowed = self.taken.take(bytes, self.room.load(Ordering::Relaxed));
        if is_allowed {
            self.own.fetch_add(bytes, Ordering::Relaxed);
        } else {
            count(&self.counts.without_room);
        }
        is_allowed
    }

    /// Memory available before the first request, bytes.
    pub fn memory_available(&self) -> u64 {
        self.first.get().map_or(0, |f| f.available)
    }

    /// How much less was available at some look, or is now, bytes.
    pub fn memory_needed(&self) -> Option<u64> {
        let before = self.first.get()?.available;
        self.note_memory()?;
        Some(before.saturating_sub(self.lowest.load(Ordering::Relaxed)))
    }

    /// What was decided so far.
    pub fn decisions(&self) -> Decisions {
        let Counts {
            looks,
            short,
            pressed,
            reclaimed,
            evicted,
            without_room,
            gave_way,
        } = &self.counts;
        let number = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        Decisions {
            looks: number(looks),
            short: number(short),
            pressed: number(pressed),
            reclaimed: number(reclaimed),
            evicted: number(evicted),
            metadata_only: self.metadata_only.load(Ordering::Relaxed).into(),
            without_room: number(without_room),
            gave_way: number(gave_way),
        }
    }

    /// Share of time since then in which some task waited for memory, percent; `None` without PSI.
    pub fn memory_pressure(&self) -> Option<f32> {
        let first = self.first.get()?;
        let stalls = pressure(Resource::Memory)?
            .some_total_us
            .saturating_sub(first.stalls_us?);
        let elapsed = first.at.elapsed().as_micros().max(1);
        Some((stalls as f64 * 100.0 / elapsed as f64).min(100.0) as f32)
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        self.taken.give_back(self.own.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests;
