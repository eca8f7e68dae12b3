//! How much of a plan is in memory, asked before anything else is done for a start.
//!
//! A start of which all is in memory needs nobody; to find that out must cost next to nothing. So a few
//! places of a plan are looked at, drawn in proportion to what each costs the start ([`Costs`]), in an order
//! of which each beginning is spread over the plan. Nothing is read, and nothing waits for a device or a
//! server: a path is resolved from what the kernel remembers (`RESOLVE_CACHED`, Linux 5.12), and where it
//! would have to read a directory or an inode the place counts as cold. Once enough is cold the rest is not
//! asked for.

mod costs;
mod found;
mod remote;

pub use costs::Costs;
pub use found::Resident;
pub use remote::Remote;
pub(crate) use remote::is_warm;

use crate::file::{PlannedFile, expect};
use crate::request::{Reason, bytes_now};
use costs::Place;
use found::{Found, Sampled};
use headstart_model::plan::{Plan, PlanFileEntry, Request, RequestKind};
use headstart_model::sort::Sort;
use headstart_system::files::Type;
use headstart_system::mounts::{MountTable, waits_for_servers};
use headstart_system::open::{Skip, find_cached, open_pinned, pin, pin_cached};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Pages that are looked at in one place: the kernel counts a page in 10 to 60 ns, so this many cost less
/// than to open the file.
const PAGES: u64 = 64;
/// So many cold places are enough: a replay then has a quarter of the largest sample to read.
const ENOUGH: u32 = 10;
/// No more is looked at after so long: beside an on-access scanner each open waits for it.
const LONG: Duration = Duration::from_millis(10);
/// How many paths are looked up where the kernel cannot say what it remembers (before 5.12): each may have to
/// be read.
const BLIND: u32 = 8;

/// A sample, and what was found in memory.
#[derive(Debug, Default)]
pub struct Sample {
    /// What it came to.
    pub resident: Resident,
    /// Files of which pages were looked at, those that cost most first.
    pub files: Vec<OwnedFd>,
    /// Names that are only looked up (O_PATH).
    pub names: Vec<OwnedFd>,
}

/// Looks at about so many places of what a plan would read; `draw`, a number by chance, says where
/// ([`Costs::places`]). Takes well under a millisecond and reads nothing from any device; only before
/// Linux 5.12 a few paths may have to be read.
///
/// What lies on remote file systems stays unknown: [`sample_with_remote`] knows more.
pub fn sample(plan: &Plan<'_>, costs: &Costs, mounts: &MountTable, looks: usize, draw: u64) -> Sample {
    let (found, sampler) = look(plan, costs, mounts, costs.places(looks, draw), LONG);
    sampler.sample(found.resident())
}

/// [`sample`], where a forked process asks what is in memory of remote file systems, once for all samples
/// that are given the same `remote`: an open asks a server, which may never answer. What it has not told
/// within 0.1 s counts as cold, and so does all of it where no process can be forked (the caller has several
/// threads): who replays it asks before it reads ([`crate::Forks`]).
pub fn sample_with_remote(
    plan: &Plan<'_>,
    costs: &Costs,
    mounts: &MountTable,
    looks: usize,
    draw: u64,
    remote: &mut Remote,
) -> Sample {
    let (mut found, sampler) = look(plan, costs, mounts, costs.places(looks, draw), LONG);
    if found.may_be_warm() {
        found = remote.added_to(found, plan, costs, draw);
    }
    sampler.sample(found.resident())
}

/// Looks at these places, for so long at most.
fn look<'a>(
    plan: &'a Plan<'a>,
    costs: &Costs,
    mounts: &'a MountTable,
    places: impl IntoIterator<Item = Place>,
    long: Duration,
) -> (Found, Sampler<'a>) {
    let mut found = Found::default();
    let mut sampler = Sampler {
        plan,
        overlays: mounts.all().iter().any(|mount| mount.overlay.is_some()),
        mounts,
        blind: 0,
        open: Vec::new(),
        names: Vec::new(),
    };
    let begun = Instant::now();
    for place in places {
        if found.cold_places() >= ENOUGH {
            found.cut_short();
            break;
        }
        if begun.elapsed() > long {
            found.cut_short();
            found.add(Sampled::Unknown, &place, 0.0);
            continue;
        }
        let Some(request) = costs.requests.get(place.part.request) else {
            continue;
        };
        let Some(sampled) = sampler.check(request, &place) else {
            break;
        };
        found.add(sampled, &place, sampled.cold_share(request));
    }
    (found, sampler)
}

/// A file of the plan that is open.
struct Open {
    /// Its number there.
    number: u32,
    file: PlannedFile,
    /// What of it was found to cost most at once.
    seconds: f64,
}

struct Sampler<'a> {
    plan: &'a Plan<'a>,
    mounts: &'a MountTable,
    overlays: bool,
    /// Paths that were looked up although the kernel cannot say what it remembers.
    blind: u32,
    open: Vec<Open>,
    names: Vec<OwnedFd>,
}

impl Sampler<'_> {
    /// What was opened, with what was found.
    fn sample(mut self, resident: Resident) -> Sample {
        self.open.sort_small_by(|a, b| b.seconds.total_cmp(&a.seconds));
        Sample {
            resident,
            files: self.open.into_iter().map(|open| open.file.into()).collect(),
            names: self.names,
        }
    }

    /// `None` if no more is to be looked at.
    fn check(&mut self, request: &Request, place: &Place) -> Option<Sampled> {
        let Some(entry) = self.plan.file(request.file as usize) else {
            return Some(Sampled::Changed);
        };
        // Whoever is waited for does not ask what is in memory of a remote file system.
        if self.is_remote(&entry) && !waits_for_servers() {
            return Some(Sampled::Remote);
        }
        if request.kind != RequestKind::Data {
            return self.look_up(&entry);
        }
        let page = rustix::param::page_size() as u64;
        // Its pages, and among them those that lie where this place is.
        let pages_now = |size| {
            let (start, end) = bytes_now(request, entry.size, size, page)?;
            let (first, end) = (start / page, end.div_ceil(page));
            let into = ((place.at - place.part.path) / place.part.data).clamp(0.0, 1.0);
            let into = ((end - first) as f64 * into) as u64;
            let from = first + into.min(end - first - 1) / PAGES * PAGES;
            Some((from, (end - from).min(PAGES)))
        };
        let known = self.open.iter().position(|open| open.number == request.file);
        let at = match known {
            Some(at) => at,
            None => match self.open(&entry)? {
                Ok(file) => {
                    self.open.push(Open {
                        number: request.file,
                        file,
                        seconds: 0.0,
                    });
                    self.open.len() - 1
                }
                Err(Skip::Cold) => {
                    return Some(Sampled::ColdPath(
                        pages_now(entry.size).map_or(0, |(_, pages)| pages),
                    ));
                }
                Err(skip) if Reason::from(skip) == Reason::Denied => return Some(Sampled::Unknown),
                Err(_) => return Some(Sampled::Changed),
            },
        };
        let open = &mut self.open[at];
        open.seconds = open.seconds.max(place.part.data);
        if place.at < place.part.path {
            return Some(Sampled::Path);
        }
        let Some((first, pages)) = pages_now(open.file.size) else {
            return Some(Sampled::Changed);
        };
        let resident = open.file.resident_pages(first * page, pages * page);
        Some(Sampled::Pages { resident, pages })
    }

    fn is_remote(&self, entry: &PlanFileEntry) -> bool {
        let mount = self.mounts.lookup(entry.path.as_bytes());
        mount.is_some_and(|mount| mount.is_remote)
    }

    /// Of what is no file of a local file system (/proc, a socket) a replay reads nothing, and that nothing
    /// is there the kernel remembers, too.
    fn look_up(&mut self, entry: &PlanFileEntry) -> Option<Sampled> {
        let path = entry.path.as_path();
        match self.as_remembered(find_cached(self.mounts, path), |mounts| {
            pin(mounts, path).map(|(pin, _)| pin)
        })? {
            Err(Skip::Cold) => return Some(Sampled::ColdPath(0)),
            found => self.names.extend(found.ok()),
        }
        Some(Sampled::Path)
    }

    /// The file, as planned.
    fn open(&mut self, entry: &PlanFileEntry) -> Option<Result<PlannedFile, Skip>> {
        let path = entry.path.as_path();
        let pinned = self.as_remembered(pin_cached(self.mounts, path), |mounts| pin(mounts, path))?;
        let expect = expect(
            self.mounts,
            entry,
            Some(entry.generation).filter(|g| *g != 0),
            None,
        );
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

    /// What was found of a path from what the kernel remembers; where it cannot say, what is found otherwise,
    /// of a few paths. `None` if no more is to be looked at.
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
