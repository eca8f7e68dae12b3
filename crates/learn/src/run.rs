//! One trace as learning sees it: by path, with what was needed and when.

use headstart_model::plan::MAX_STAGES;
use headstart_model::profile::{Need, Version};
use headstart_model::trace::{File, FileState, LookupKind, Use, UseKind};
use headstart_model::{FilePath, GrowingSet, PageRange, Trace};
use std::collections::{BTreeMap, HashMap};

/// A trace by path.
pub(crate) struct Run {
    /// What each path was needed for.
    pub paths: BTreeMap<FilePath, PathUse>,
    /// Names of the stages, in order, and when each began.
    pub stages: Vec<(String, u64)>,
    /// CPU time of the start.
    pub cpu_ns: Option<u64>,
    /// From its first use to its end: a start may have been held before.
    pub elapsed_ns: u64,
    /// When the first use was, in the trace's time; all times here count from it.
    began_ns: u64,
}

/// What a path was needed for in one run.
pub(crate) struct PathUse {
    pub overlay: Option<FilePath>,
    pub need: Need,
    pub first_use_ns: u64,
    pub version: Option<Version>,
    /// Pages in ascending order with the time of their first use.
    pub pages: Vec<(PageRange, u64)>,
}

/// The pages around a fault that the kernel maps at once if they are in memory (`fault_around_bytes`, 64 KiB): when a
/// page is read in for a fault, the trace shows that page alone; when it was there, the trace shows the window. To
/// learn the same from cold and warm starts, a fault stands for its window.
const FAULT_AROUND: u64 = 16;

/// Where the windows of a start begin. They are aligned by address, not by place in the file, and a library may be
/// mapped at any page: in each process the windows that were mapped tell by how much the two differ.
pub(crate) struct Windows(HashMap<(u32, u32), u64>);

impl Windows {
    pub(crate) fn of(trace: &Trace) -> Windows {
        let mut votes: HashMap<(u32, u32), [u32; FAULT_AROUND as usize]> = HashMap::new();
        for used in trace.uses.iter().filter(|u| u.kind == UseKind::Map) {
            let of_file = votes.entry((used.process, used.file)).or_default();
            // A window is cut where its pages were seen before; most begin or end where they should.
            for edge in [used.start, used.start.saturating_add(u64::from(used.pages))] {
                of_file[(edge % FAULT_AROUND) as usize] += 1;
            }
        }
        let most = |votes: [u32; FAULT_AROUND as usize]| {
            (0..FAULT_AROUND)
                .rev()
                .max_by_key(|offset| votes[*offset as usize])
                .unwrap_or(0)
        };
        Windows(votes.into_iter().map(|(of, votes)| (of, most(votes))).collect())
    }

    /// The window of a page. Of a file of which no window was mapped it is not known: the page alone.
    fn around(&self, used: &Use) -> PageRange {
        let Some(offset) = self.0.get(&(used.process, used.file)) else {
            return PageRange::new(used.start, u64::from(used.pages));
        };
        let into = (used.start % FAULT_AROUND + FAULT_AROUND - offset) % FAULT_AROUND;
        let start = used.start.saturating_sub(into);
        let last = used.start.saturating_add(u64::from(used.pages));
        PageRange {
            start,
            end: used.start.saturating_add(FAULT_AROUND - into).max(last),
        }
    }
}

/// When the first use or look-up was.
fn began(trace: &Trace) -> u64 {
    let uses = trace.uses.iter().map(|u| u.time_ns);
    let lookups = trace.lookups.iter().map(|l| l.time_ns);
    uses.chain(lookups).min().unwrap_or(0)
}

fn below(path: &FilePath, prefix: &FilePath) -> bool {
    path.as_bytes()
        .strip_prefix(prefix.as_bytes())
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || prefix.as_bytes().ends_with(b"/"))
}

fn excluded(path: &FilePath, exclude: &[FilePath]) -> bool {
    exclude.iter().any(|prefix| below(path, prefix))
}

/// Whether pages of the file are learned, and so may be asked for by a plan: a regular file on a local file system,
/// still at its path, and not excluded.
pub(crate) fn has_pages(trace: &Trace, file: &File, exclude: &[FilePath]) -> bool {
    let local = file
        .filesystem
        .and_then(|f| trace.filesystems.get(f as usize))
        .is_some_and(|f| f.local);
    let regular = file.mode & 0o170000 == 0o100000;
    let there = file.path.is_absolute() && file.state == FileState::Present;
    local && regular && there && !excluded(&file.path, exclude)
}

/// The pages that a use of the file stands for: a fault for its window, all within the file. May be empty.
pub(crate) fn pages_of(used: &Use, file: &File, page_size: u64, windows: &Windows) -> PageRange {
    // No offset is beyond the largest signed one, whatever size a trace claims.
    let end = file.size.div_ceil(page_size).min(i64::MAX as u64 / page_size);
    let mut range = PageRange::new(used.start, u64::from(used.pages));
    if used.kind == UseKind::Fault {
        range = windows.around(used);
    }
    PageRange {
        start: range.start.min(end),
        end: range.end.min(end),
    }
}

impl Run {
    pub fn of(trace: &Trace, exclude: &[FilePath]) -> Run {
        let began_ns = began(trace);
        let mut run = Run {
            paths: BTreeMap::new(),
            stages: vec![("start".into(), 0)],
            cpu_ns: trace.end.cpu_ns,
            elapsed_ns: trace.end.elapsed_ns.saturating_sub(began_ns),
            began_ns,
        };
        for mark in &trace.marks {
            // More than a plan can have are not told apart.
            if run.stages.len() < MAX_STAGES && run.stages.iter().all(|(name, _)| *name != mark.stage) {
                run.stages
                    .push((mark.stage.clone(), mark.time_ns.saturating_sub(began_ns)));
            }
        }
        for lookup in &trace.lookups {
            if excluded(&lookup.path, exclude) {
                continue;
            }
            let need = match (lookup.found, lookup.kind) {
                (false, _) => Need::Missing,
                (true, LookupKind::Open) => Need::Open,
                (true, LookupKind::List) => Need::List,
                (true, LookupKind::Stat | LookupKind::Link) => Need::Stat,
            };
            run.need(&lookup.path, need, lookup.time_ns);
        }
        run.add_pages(trace, exclude);
        run
    }

    fn need(&mut self, path: &FilePath, need: Need, time_ns: u64) -> &mut PathUse {
        let time_ns = time_ns.saturating_sub(self.began_ns);
        let used = self.paths.entry(path.clone()).or_insert_with(|| PathUse {
            overlay: None,
            need,
            first_use_ns: time_ns,
            version: None,
            pages: Vec::new(),
        });
        // A directory is opened to be listed: listing says more.
        used.need = match (used.need, need) {
            (Need::List, _) | (_, Need::List) => Need::List,
            (a, b) => a.max(b),
        };
        used.first_use_ns = used.first_use_ns.min(time_ns);
        used
    }

    fn add_pages(&mut self, trace: &Trace, exclude: &[FilePath]) {
        let page_size = u64::from(trace.meta.page_size);
        let began_ns = self.began_ns;
        let windows = Windows::of(trace);
        let mut seen = vec![GrowingSet::default(); trace.files.len()];
        let learned: Vec<bool> = trace
            .files
            .iter()
            .map(|file| has_pages(trace, file, exclude))
            .collect();
        for used in &trace.uses {
            let index = used.file as usize;
            if !learned[index] {
                continue;
            }
            let file = &trace.files[index];
            let fresh = seen[index].insert(pages_of(used, file, page_size, &windows));
            if fresh.is_empty() {
                continue;
            }
            let path = self.need(&file.path, Need::Open, used.time_ns);
            path.overlay = file.overlay.clone().filter(FilePath::is_absolute);
            path.version = Some(Version {
                size: file.size,
                mtime_ns: file.mtime_ns,
                generation: file.generation,
            });
            let time_ns = used.time_ns.saturating_sub(began_ns);
            path.pages.extend(fresh.into_iter().map(|range| (range, time_ns)));
        }
        for path in self.paths.values_mut() {
            path.pages.sort_unstable();
        }
    }

    /// Index of the stage that a time falls into.
    pub fn stage(&self, time_ns: u64) -> u16 {
        self.stages
            .iter()
            .rposition(|(_, began)| *began <= time_ns)
            .unwrap_or(0) as u16
    }
}
