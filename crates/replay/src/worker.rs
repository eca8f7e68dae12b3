//! Threads that serve one device's queue, with a bounded number of parts in flight.
//!
//! A part is one `fadvise(WILLNEED)` of at most the device's request limit. Parts that lie one behind the
//! other on the device are asked for at once ([`ReadAhead`]), and count as one in flight; without io_uring
//! each has a call of its own. A part has arrived when its last page that was absent can be read; a thread
//! waits for that with a one-byte pread before it has more than its window in flight. The pread finds the
//! page under way and waits; should the page be gone, `FADV_RANDOM` on the descriptor keeps the kernel from
//! reading more than that one.

use crate::device::{Device, Shape};
use crate::evicted::Sample;
use crate::file::{Files, PlannedFile};
use crate::governor::Governor;
use crate::lazily_filled::Filling;
use crate::queue::{Part, Queue};
use crate::request::{Prepared, Reason, RequestState, absent, bytes_now};
use crate::threads::together;
use headstart_model::PageRange;
use headstart_model::plan::RequestKind;
use headstart_system::read_ahead::{MOST_BYTES, ReadAhead};
use headstart_system::residency;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A thread that gives way looks again after so long.
const GIVES_WAY_FOR: Duration = Duration::from_millis(5);

/// What a queue's threads need.
pub struct Worker<'a> {
    /// The device they read from.
    pub device: &'a Device,
    /// The plan's files.
    pub files: &'a Files<'a>,
    /// Says when to stop.
    pub governor: &'a Governor,
    /// Counts parts of requests that are over.
    pub over: &'a AtomicU64,
    /// Counts those of them that could be read.
    pub arrived: &'a AtomicU64,
    /// What times count from.
    pub origin: Instant,
    /// Whether io_uring may be used.
    pub io_uring: bool,
    /// Fetches what is asked for, where the device is filled as it is read.
    pub filling: Option<&'a Filling<'a>>,
    /// So many files may be open that are not kept open anyway: see [`Shape::each_open`].
    pub open: usize,
}

/// What is read from.
enum Source<'a> {
    File(Arc<PlannedFile>),
    Block(BorrowedFd<'a>),
}

impl Source<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Source::File(file) => file.fd(),
            Source::Block(fd) => *fd,
        }
    }

    fn resident_pages(&self, offset: u64, length: u64) -> u64 {
        match self {
            Source::File(file) => file.resident_pages(offset, length),
            Source::Block(fd) => residency::resident_pages(fd, offset, length).unwrap_or(0),
        }
    }
}

/// A part on its way.
struct InFlight<'a> {
    /// Where the request is in its queue.
    index: usize,
    state: &'a RequestState,
    source: Source<'a>,
    /// What was asked for.
    pages: PageRange,
}

impl InFlight<'_> {
    /// Its first byte and how many.
    fn bytes(&self) -> (u64, u64) {
        let page = rustix::param::page_size() as u64;
        (self.pages.start * page, self.pages.pages() * page)
    }
}

/// The request of the first part in flight.
fn front(flying: &VecDeque<Vec<InFlight<'_>>>) -> Option<usize> {
    Some(flying.front()?.first()?.index)
}

impl<'a> Worker<'a> {
    /// Serves a queue to its end, or until stopped, with the device's number of threads. `over` is told, ever
    /// again, how many requests from the first on are over.
    pub fn serve(&self, queue: &Queue, over: &(dyn Fn(usize) + Sync)) {
        let Shape { threads, chunk, .. } = self.device.shape();
        let parts = |state: &RequestState| state.request.length.div_ceil(chunk).max(1);
        let useful = queue.requests.iter().map(parts).fold(0, u64::saturating_add);
        let useful = useful.min(threads.into());
        // The first request that each thread has under way; it never is less far than that.
        let fronts: Vec<AtomicUsize> = (0..useful).map(|_| AtomicUsize::new(0)).collect();
        let next = AtomicUsize::new(0);
        together(useful, || {
            let own = next.fetch_add(1, Ordering::Relaxed);
            self.work(queue, own, threads, chunk, &|front| {
                if let Some(own) = fronts.get(own) {
                    own.store(front, Ordering::Relaxed);
                }
                let least = fronts.iter().map(|front| front.load(Ordering::Relaxed)).min();
                over(least.unwrap_or(0));
            });
        });
    }

    /// Nanoseconds since the origin.
    pub fn now(&self) -> u64 {
        // 0 stands for "never".
        (self.origin.elapsed().as_nanos() as u64).max(1)
    }

    /// How many requests one of so many threads has in flight, by what is known of the device now.
    fn window(&self, threads: u32) -> usize {
        match (threads, self.device.others.wait()) {
            // As the start by itself has, so that each gets its turn under the head.
            (1, true) => 1,
            _ => self.device.shape().at_once().div_ceil(threads.max(1)) as usize,
        }
    }

    /// Looks around, where that is due: whether others still wait for the device, and whether what was read a
    /// while ago is still in memory.
    fn look_around(&self) {
        let now = Instant::now();
        if self.device.others.look(now) {
            self.governor.gives_way();
        }
        if let Some(sample) = self.governor.evicted.due(now) {
            if let Ok(file) = self.files.get(sample.file) {
                let (offset, length) = sample.bytes;
                self.governor
                    .found_again(sample.pages, file.resident_pages(offset, length));
            }
        }
    }

    /// Waits as long as others wait for the device, if this is one of the second half of so many threads.
    /// They hold nothing up meanwhile: what they have asked for has arrived.
    fn give_way(
        &self,
        queue: &Queue,
        (own, threads): (usize, u32),
        flying: &mut VecDeque<Vec<InFlight<'_>>>,
        under_way: &dyn Fn(usize),
    ) {
        let is_too_many =
            || self.device.others.wait() && own >= threads.div_ceil(2) as usize && !queue.is_taken();
        if !is_too_many() {
            return;
        }
        flying.drain(..).for_each(|oldest| self.land(oldest));
        under_way(usize::MAX);
        while is_too_many() && self.governor.go_on() {
            std::thread::sleep(GIVES_WAY_FOR);
            self.look_around();
        }
    }

    fn work(&self, queue: &Queue, own: usize, threads: u32, chunk: u64, under_way: &dyn Fn(usize)) {
        let page = rustix::param::page_size() as u64;
        let mut flying: VecDeque<Vec<InFlight<'_>>> = VecDeque::new();
        // Made when it is first needed.
        let mut ring = None;
        while self.governor.go_on() {
            self.look_around();
            self.give_way(queue, (own, threads), &mut flying, under_way);
            let parts = queue.take_parts(chunk, page);
            let Some((first, last)) = parts.first().zip(parts.last()) else {
                break;
            };
            let last = &queue.requests[last.index];
            // A look-up waits for no granule: of which it reads nobody knows.
            if let Some(filling) = self.filling.filter(|_| last.request.length > 0) {
                let last = last.index;
                while !filling.is_ready(last) {
                    under_way(front(&flying).unwrap_or(first.index));
                    // What has arrived is told meanwhile.
                    match flying.pop_front() {
                        Some(oldest) => self.land(oldest),
                        None => filling.wait(last, self.governor),
                    }
                    if !self.governor.go_on() {
                        break;
                    }
                }
            }
            let mut parts = parts.into_iter().peekable();
            while let Some(part) = parts.peek() {
                under_way(front(&flying).unwrap_or(part.index));
                let together = self.possible(queue, &mut parts);
                if together.is_empty() {
                    continue;
                }
                while flying.len() >= self.window(threads) {
                    let Some(oldest) = flying.pop_front() else { break };
                    self.land(oldest);
                    under_way(front(&flying).unwrap_or(together[0].index));
                }
                let asked = self.ask(&mut ring, together);
                if !asked.is_empty() {
                    flying.push_back(asked);
                }
            }
        }
        while let Some(oldest) = flying.pop_front() {
            // Whoever has asked for the end waits for all to be closed: what comes without being waited for
            // comes all the same.
            if self.governor.was_asked() {
                continue;
            }
            under_way(oldest[0].index);
            self.land(oldest);
        }
        under_way(usize::MAX);
    }

    /// Takes parts that are asked for together, up to as many as may have files open for themselves: those of
    /// them that are possible, and of which something is not in memory. The others are over then.
    fn possible<'b>(&self, queue: &'b Queue, parts: &mut impl Iterator<Item = Part>) -> Vec<InFlight<'b>>
    where
        'a: 'b,
    {
        let mut together = Vec::new();
        let mut open = 0;
        while open < self.device.shape().each_open(self.open) {
            let Some(part) = parts.next() else { break };
            if let Some(one) = self.check_part(queue, part) {
                let kept = one.state.request.kind == RequestKind::Metadata
                    || self.files.keeps(one.state.request.file);
                open += usize::from(!kept);
                together.push(one);
            }
        }
        together
    }

    /// Looks at a part; `None` if it is over by that.
    fn check_part<'b>(&self, queue: &'b Queue, part: Part) -> Option<InFlight<'b>>
    where
        'a: 'b,
    {
        let page = rustix::param::page_size() as u64;
        let state = &queue.requests[part.index];
        let Ok(prepared) = state.prepared.get_or_init(|| self.prepare(state)) else {
            queue.leave(part.index);
            return None;
        };
        // By whole pages: only what is meant from the end of a file moves.
        let moved = |byte: u64| (byte - state.request.offset).saturating_add(prepared.start);
        if moved(part.start) >= prepared.end {
            queue.leave(part.index);
            return None;
        }
        let wanted = PageRange {
            start: moved(part.start) / page,
            end: moved(part.end).min(prepared.end).div_ceil(page),
        };
        let Some(pages) = hull(&prepared.absent, wanted) else {
            self.done(state, true);
            return None;
        };
        let Ok(source) = self.source(state) else {
            self.done(state, false);
            queue.leave(part.index);
            return None;
        };
        Some(InFlight {
            index: part.index,
            state,
            source,
            pages,
        })
    }

    /// Asks for parts, all at once where that can be had; returns those that were asked for, the others are
    /// over.
    fn ask<'b>(
        &self,
        ring: &mut Option<Option<ReadAhead>>,
        mut parts: Vec<InFlight<'b>>,
    ) -> Vec<InFlight<'b>> {
        let mut begun = vec![false; parts.len()];
        let ranges = || -> Option<Vec<_>> {
            let range = |part: &InFlight<'b>| {
                let (offset, length) = part.bytes();
                Some((offset, u32::try_from(length).ok().filter(|l| *l <= MOST_BYTES)?))
            };
            parts.iter().map(range).collect()
        };
        if parts.len() > 1 {
            let made = ring.get_or_insert_with(|| self.io_uring.then(ReadAhead::new)?.ok());
            if let (Some(ring), Some(ranges)) = (made, ranges()) {
                let fds = parts.iter().map(|part| part.source.fd());
                let ranges: Vec<_> = fds
                    .zip(ranges)
                    .map(|(fd, (at, length))| (fd, at, length))
                    .collect();
                let mut otherwise = Vec::new();
                if ring.start(&ranges, |place| otherwise.push(place)).is_ok() {
                    begun.fill(true);
                    otherwise.into_iter().for_each(|place| begun[place] = false);
                }
            }
        }
        let mut begun = begun.into_iter();
        parts.retain(|part| {
            let (offset, length) = part.bytes();
            let asked = begun.next() == Some(true)
                || residency::fadvise_willneed(part.source.fd(), offset, length).is_ok();
            if !asked {
                self.done(part.state, false);
            }
            asked
        });
        parts
    }

    /// Waits for parts that were asked for together. What the kernel left out of them (it gives up quietly
    /// where it finds no page to read into) is asked for once more.
    fn land(&self, parts: Vec<InFlight<'_>>) {
        parts.into_iter().for_each(|part| self.land_one(part));
    }

    fn land_one(&self, part: InFlight<'_>) {
        let page = rustix::param::page_size() as u64;
        let (offset, length) = part.bytes();
        let fd = part.source.fd();
        let wait = || rustix::io::retry_on_intr(|| rustix::io::pread(fd, &mut [0u8], offset + length - page));
        let begun = Instant::now();
        let mut arrived = wait().is_ok();
        self.device.note_read(length, begun.elapsed());
        let complete = match (&part.source, &self.device.block) {
            (Source::Block(_), Ok(block)) => block.complete(part.pages).is_ok(),
            _ => true,
        };
        if arrived && complete && part.source.resident_pages(offset, length) < part.pages.pages() {
            arrived = residency::fadvise_willneed(fd, offset, length).is_ok() && wait().is_ok();
        }
        if let (Source::File(_), true) = (&part.source, arrived) {
            let at = Instant::now();
            self.governor.evicted.offer(at, || Sample {
                at,
                file: part.state.request.file,
                bytes: (offset, length),
                pages: part.source.resident_pages(offset, length),
            });
        }
        self.done(part.state, arrived && complete);
    }

    /// Looks at what a request is about. Look-ups are done by that.
    fn prepare(&self, state: &RequestState) -> Result<Prepared, Reason> {
        let request = &state.request;
        if !self.governor.reads(request.kind) {
            return Err(Reason::OverBudget);
        }
        let at_ns = self.now();
        let looked_up = match request.kind {
            RequestKind::Stat => Some(self.files.look_up(request.file)),
            RequestKind::List => Some(self.files.list(request.file, || self.governor.go_on())),
            RequestKind::Metadata | RequestKind::Data => None,
        };
        if let Some(result) = looked_up {
            self.looked_up(state, result.is_ok());
            return result.map(|()| Prepared::nothing(at_ns));
        }
        let end = request.offset.saturating_add(request.length);
        let page = rustix::param::page_size() as u64;
        let (start, end, resident) = match request.kind {
            RequestKind::Metadata => {
                let block = self.device.block.as_ref().map_err(|reason| *reason)?;
                let end = end.min(block.size);
                let length = end.checked_sub(request.offset).filter(|l| *l > 0);
                (
                    request.offset,
                    end,
                    block.resident(request.offset, length.ok_or(Reason::Changed)?),
                )
            }
            _ => {
                let file = self.files.get(request.file)?;
                let planned = self.files.size(request.file);
                let (start, end) = bytes_now(request, planned, file.size, page).ok_or(Reason::Changed)?;
                (start, end, file.resident(start, end - start))
            }
        };
        let resident = resident.map_err(|_| Reason::Failed)?;
        let pages = PageRange {
            start: start / page,
            end: end.div_ceil(page),
        };
        let absent = absent(pages, &resident);
        let bytes = absent.iter().map(PageRange::pages).sum::<u64>() * page;
        if !self.governor.allow(bytes) {
            return Err(Reason::OverBudget);
        }
        Ok(Prepared {
            start,
            end,
            resident,
            absent,
            at_ns: self.now(),
        })
    }

    /// A part of a request was in, or could not be read.
    pub fn done(&self, state: &RequestState, ok: bool) {
        state.part_done(self.now(), ok);
        self.count(ok);
    }

    /// A look-up is over, whatever it found: that is told by the request itself.
    pub fn looked_up(&self, state: &RequestState, ok: bool) {
        state.part_done(self.now(), true);
        self.count(ok);
    }

    fn count(&self, ok: bool) {
        self.over.fetch_add(1, Ordering::Relaxed);
        self.arrived.fetch_add(u64::from(ok), Ordering::Relaxed);
    }

    fn source(&self, state: &RequestState) -> Result<Source<'a>, Reason> {
        match state.request.kind {
            RequestKind::Metadata => {
                let block = self.device.block.as_ref().map_err(|reason| *reason)?;
                Ok(Source::Block(block.fd()))
            }
            _ => self.files.get(state.request.file).map(Source::File),
        }
    }
}

/// From the first to the last page of `ranges` (ascending) within `wanted`; `None` if there is none.
fn hull(ranges: &[PageRange], wanted: PageRange) -> Option<PageRange> {
    let from = ranges.partition_point(|r| r.end <= wanted.start);
    let until = ranges.partition_point(|r| r.start < wanted.end);
    let inside = ranges.get(from..until)?;
    Some(PageRange {
        start: inside.first()?.start.max(wanted.start),
        end: inside.last()?.end.min(wanted.end),
    })
}

#[cfg(test)]
mod tests;
