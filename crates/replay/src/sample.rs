//! How much of a plan is in memory, asked before anything else is done for a start.
//!
//! A start of which all is in memory needs nobody; to find that out must cost next to nothing. So a few of a plan's
//! requests are looked at: first the earliest that the start needs, then some spread over the plan, in an order of which
//! each beginning is spread over it too; chance says where, so that what one start's looks miss those of the next may find.
//! Nothing is read, and nothing waits for a device or a server: a path is resolved from what the kernel remembers
//! (`RESOLVE_CACHED`, Linux 5.12), and where it would have to read a directory or an inode the request counts as cold. Once
//! enough is cold the rest is not asked for.

use crate::file::{PlannedFile, expect};
use crate::request::bytes_now;
use headstart_model::plan::{Plan, PlanFileEntry, Request, RequestKind};
use headstart_system::files::Type;
use headstart_system::mounts::MountTable;
use headstart_system::open::{Skip, find_cached, open_pinned, pin, pin_cached};
use std::ops::AddAssign;
use std::os::fd::{AsFd, OwnedFd};

/// Requests for data that are looked at, at most. Where a tenth of a plan is cold, 15 in 1,000 samples of so many find nothing cold; to
/// look at one takes some 7 us, three times that where the kernel's and the processor's caches hold nothing of it.
const MOST: usize = 40;
/// Of so many one is one of the earliest, which come first.
const SHARE: usize = 5;
/// Paths that are only looked up.
const PATHS: usize = 8;
/// Pages of one request that are looked at, at its beginning, middle and end by turns: the kernel counts a page in
/// 10 to 60 ns, so this many cost less than to open the file.
const PAGES: u64 = 64;
/// So many cold requests are enough: a replay then has a quarter of the largest sample to read, or the most urgent part.
const ENOUGH: u32 = 10;
/// How many paths are looked up where the kernel cannot say what it remembers (before 5.12): each may have to be read.
const BLIND: u32 = 8;

/// What a sample found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// Requests for data that were looked at.
    pub sampled_requests: u32,
    /// Of these, those of which all that was looked at is in memory.
    pub resident_requests: u32,
    /// Pages that were looked at; those behind a cold path included.
    pub sampled_pages: u64,
    /// Of these, those in memory.
    pub resident_pages: u64,
    /// Paths that were resolved, those of the data included.
    pub sampled_paths: u32,
    /// Of these, those for which a directory or an inode would have to be read.
    pub cold_paths: u32,
    /// Of the paths, those that are only looked up.
    pub sampled_look_ups: u32,
    /// Of these, the cold ones.
    pub cold_look_ups: u32,
    /// Requests that are not as planned: the file is gone, another, or may not be read. They are not among the sampled.
    pub changed: u32,
    /// Whether enough was cold, so that the rest was not looked at.
    pub cut_short: bool,
}

impl Resident {
    /// The share of the sampled requests for data that are wholly in memory: a device is asked for requests, and waits
    /// are counted by them. `None` if none could be looked at.
    pub fn share(&self) -> Option<f64> {
        (self.sampled_requests > 0)
            .then(|| f64::from(self.resident_requests) / f64::from(self.sampled_requests))
    }
}

/// A sample, and what was found in memory.
#[derive(Debug, Default)]
pub struct Sample {
    /// What it came to.
    pub resident: Resident,
    /// Files of which pages were looked at.
    pub files: Vec<OwnedFd>,
    /// Names that are only looked up (O_PATH).
    pub names: Vec<OwnedFd>,
}

/// What became of one request of the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Its path is remembered, and so many of so many pages are in memory.
    Pages(u64, u64),
    /// Its path is not remembered.
    ColdPath(u64),
    Changed,
}

impl AddAssign<Look> for Resident {
    fn add_assign(&mut self, look: Look) {
        let (resident, pages, cold) = match look {
            Look::Changed => {
                self.changed += 1;
                return;
            }
            Look::Pages(resident, pages) => (resident.min(pages), pages, 0),
            Look::ColdPath(pages) => (0, pages, 1),
        };
        self.sampled_paths += 1;
        self.cold_paths += cold;
        if pages == 0 {
            self.sampled_look_ups += 1;
            self.cold_look_ups += cold;
        }
        if pages > 0 {
            self.sampled_requests += 1;
            self.resident_requests += u32::from(resident == pages);
            self.sampled_pages += pages;
            self.resident_pages += resident;
        }
    }
}

/// Looks at a part of what a plan would read: so many of its requests for data, [`MOST`] at most, and `draw`, a number by chance, says
/// which. Takes well under a millisecond and reads nothing from any device; only before Linux 5.12 a few paths may have to be read.
///
/// Without the right to open a file (that of another user) nothing is known of it, and it counts as changed.
pub fn sample(plan: &Plan<'_>, mounts: &MountTable, most: usize, draw: u64) -> Sample {
    let mut found = Resident::default();
    let mut sampler = Sampler {
        plan,
        overlays: mounts.all().iter().any(|mount| mount.overlay.is_some()),
        mounts,
        blind: 0,
        open: Vec::new(),
        names: Vec::new(),
    };
    let requests: Vec<Request> = plan.requests().take(plan.cut()).collect();
    let of = |kinds: &[RequestKind]| -> Vec<usize> {
        let wanted = requests.iter().enumerate();
        let wanted = wanted.filter(|(_, request)| kinds.contains(&request.kind));
        wanted.map(|(index, _)| index).collect()
    };
    let mut data = of(&[RequestKind::Data]);
    let most = most.min(MOST);
    let picks = earliest_then_spread(&mut data, most, draw, |index| requests[index].deadline_us);
    let paths = spread(&of(&[RequestKind::Stat, RequestKind::List]), PATHS, draw);
    for (turn, index) in picks.into_iter().chain(paths).enumerate() {
        if found.sampled_requests - found.resident_requests >= ENOUGH || found.cold_paths >= ENOUGH {
            found.cut_short = true;
            break;
        }
        match sampler.look(&requests[index], turn as u64) {
            Some(look) => found += look,
            None => break,
        }
    }
    Sample {
        resident: found,
        files: sampler.open.into_iter().map(|(_, file)| file.into()).collect(),
        names: sampler.names,
    }
}

struct Sampler<'a> {
    plan: &'a Plan<'a>,
    mounts: &'a MountTable,
    overlays: bool,
    /// Paths that were looked up although the kernel cannot say what it remembers.
    blind: u32,
    /// Files that are open, by their numbers in the plan.
    open: Vec<(u32, PlannedFile)>,
    names: Vec<OwnedFd>,
}

impl Sampler<'_> {
    /// `None` if no more is to be looked at.
    fn look(&mut self, request: &Request, turn: u64) -> Option<Look> {
        let Some(entry) = self.plan.file(request.file as usize) else {
            return Some(Look::Changed);
        };
        if request.kind != RequestKind::Data {
            return self.look_up(&entry);
        }
        let page = rustix::param::page_size() as u64;
        let pages_now = |size| {
            let (start, end) = bytes_now(request, entry.size, size, page)?;
            Some((start / page, end.div_ceil(page)))
        };
        let at = match self.open.iter().position(|(number, _)| *number == request.file) {
            Some(at) => at,
            None => match self.open(&entry)? {
                Ok(file) => {
                    self.open.push((request.file, file));
                    self.open.len() - 1
                }
                Err(Skip::Cold) => {
                    let planned = pages_now(entry.size).map_or(0, |(first, end)| (end - first).min(PAGES));
                    return Some(Look::ColdPath(planned));
                }
                Err(_) => return Some(Look::Changed),
            },
        };
        let file = &self.open[at].1;
        let Some((first, end)) = pages_now(file.size) else {
            return Some(Look::Changed);
        };
        let pages = (end - first).min(PAGES);
        let first = first + (end - first - pages) * (turn % 3) / 2;
        let resident = file.resident_pages(first * page, pages * page);
        Some(Look::Pages(resident, pages))
    }

    /// Of what is no file of a local file system (/proc, a socket) a replay reads nothing, and that nothing is there the kernel remembers, too.
    fn look_up(&mut self, entry: &PlanFileEntry) -> Option<Look> {
        let path = entry.path.as_path();
        match self.as_remembered(find_cached(self.mounts, path), |mounts| {
            pin(mounts, path).map(|(pin, _)| pin)
        })? {
            Err(Skip::Cold) => return Some(Look::ColdPath(0)),
            found => self.names.extend(found.ok()),
        }
        Some(Look::Pages(0, 0))
    }

    /// The file, as planned.
    fn open(&mut self, entry: &PlanFileEntry) -> Option<Result<PlannedFile, Skip>> {
        let path = entry.path.as_path();
        let pinned = self.as_remembered(pin_cached(self.mounts, path), |mounts| pin(mounts, path))?;
        let expect = expect(entry, Some(entry.generation).filter(|g| *g != 0), None);
        let opened = pinned.and_then(|(pin, stat)| match stat.kind {
            Type::File => open_pinned(pin.as_fd(), stat, &expect),
            _ => Err(Skip::Special),
        });
        let overlay = self.overlays
            && self
                .mounts
                .lookup(entry.path.as_bytes())
                .is_some_and(|mount| mount.overlay.is_some());
        Some(opened.map(|opened| PlannedFile::new(opened, !overlay)))
    }

    /// What was found of a path from what the kernel remembers; where it cannot say, what is found otherwise, of a few paths. `None` if no more
    /// is to be looked at.
    fn as_remembered<T>(
        &mut self,
        found: Result<T, Skip>,
        otherwise: impl Fn(&MountTable) -> Result<T, Skip>,
    ) -> Option<Result<T, Skip>> {
        match found {
            Err(Skip::Io(code)) if code == rustix::io::Errno::INVAL.raw_os_error() => {
                self.blind += 1;
                (self.blind <= BLIND).then(|| otherwise(self.mounts))
            }
            found => Some(found),
        }
    }
}

/// The earliest, then others in an order of which each beginning is spread over all: so many at most.
fn earliest_then_spread(
    all: &mut [usize],
    most: usize,
    draw: u64,
    deadline: impl Fn(usize) -> u32,
) -> Vec<usize> {
    let key = |index: &usize| (deadline(*index), *index);
    let first = most / SHARE;
    if all.len() > first {
        all.select_nth_unstable_by_key(first, key);
    }
    let (earliest, rest) = all.split_at_mut(first.min(all.len()));
    earliest.sort_unstable_by_key(key);
    rest.sort_unstable();
    let mut picks = earliest.to_vec();
    picks.extend(spread(rest, most - first, draw));
    picks
}

/// At most `most` of all, evenly spread: one of each `most`th part, the same in all parts and any by `draw`. Each beginning of what is
/// given is spread evenly too.
fn spread(all: &[usize], most: usize, draw: u64) -> Vec<usize> {
    let count = all.len().min(most);
    // The bits of a counter backwards: 0, 1/2, 1/4, 3/4, 1/8 …
    let bits = count.next_power_of_two().trailing_zeros();
    let turns = 0..count.next_power_of_two();
    let places = turns.map(|turn| match bits {
        0 => turn,
        bits => turn.reverse_bits() >> (usize::BITS - bits),
    });
    let places = places.filter(|place| *place < count);
    let offset = draw as usize % all.len().max(1);
    places
        .map(|place| all[(place * all.len() + offset) / count])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_come_first_and_each_request_once() {
        for (count, most) in [
            (0, 40),
            (1, 40),
            (7, 40),
            (8, 40),
            (9, 40),
            (65, 40),
            (1000, 40),
            (1, 10),
            (1000, 10),
        ] {
            let mut all: Vec<usize> = (0..count).collect();
            // The last is needed first.
            let picks = earliest_then_spread(&mut all, most, count as u64, |index| (count - index) as u32);
            assert_eq!(picks.len(), count.min(most));
            let first: Vec<usize> = (0..count).rev().take(most / SHARE).collect();
            assert_eq!(picks[..first.len()], first);
            let mut once = picks.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), picks.len());
        }
    }

    #[test]
    fn every_beginning_of_what_is_spread_is_spread() {
        let all: Vec<usize> = (0..1000).collect();
        let picks = spread(&all, 50, 0);
        assert_eq!(picks.len(), 50);
        for (turns, gap) in [(4, 400), (8, 200), (16, 140), (50, 25)] {
            let mut some = picks[..turns].to_vec();
            some.sort_unstable();
            assert!(some.windows(2).all(|w| w[1] - w[0] <= gap), "{turns}: {some:?}");
        }
        assert_eq!(spread(&[3, 4, 5], 50, 7).len(), 3);
        assert!(spread(&[], 50, 7).is_empty());
    }

    #[test]
    fn by_chance_each_is_looked_at_as_often_as_any_other() {
        for count in [41, 64, 1000] {
            let all: Vec<usize> = (0..count).collect();
            let mut seen = vec![0; count];
            for draw in 0..count as u64 {
                let picks = spread(&all, 10, draw);
                assert_eq!(picks.len(), 10);
                picks.iter().for_each(|pick| seen[*pick] += 1);
            }
            assert!(seen.iter().all(|times| *times == 10), "{count}: {seen:?}");
        }
    }
}
