//! One trace as learning sees it: by path, with what was needed and when.

use headstart_model::plan::MAX_STAGES;
use headstart_model::profile::{Need, Version};
use headstart_model::sort::Sort;
use headstart_model::trace::{
    Backend, Evidence, File, FileState, Lookup, LookupKind, Scope, Use, UseKind, stage,
};
use headstart_model::{FilePath, GrowingSet, PageRange, PageSet, Trace};
use std::collections::{BTreeMap, BTreeSet};

/// A trace by path.
pub(crate) struct Run {
    /// What each path was needed for.
    pub paths: BTreeMap<FilePath, PathUse>,
    /// Names of the stages, in order, and when each began.
    pub stages: Vec<(String, u64)>,
    /// CPU time of the start.
    pub cpu_ns: Option<u64>,
    /// From its first use on until it was over: a start may have been held before.
    pub elapsed_ns: u64,
    /// Of that, what it waited for; see [`Profile::waited_ns`].
    ///
    /// [`Profile::waited_ns`]: headstart_model::Profile::waited_ns
    pub waited_ns: u64,
    /// When the first use was, in the trace's time; all times here count from it.
    began_ns: u64,
    /// Whether it tells of pages that they were not touched.
    pub tells: bool,
    /// Of the paths, those that its arguments have named.
    pub named: BTreeSet<FilePath>,
}

/// What a path was needed for in one run.
pub(crate) struct PathUse {
    pub overlay: Option<FilePath>,
    pub need: Need,
    pub first_use_ns: u64,
    pub version: Option<Version>,
    /// Pages in ascending order with the time of their first use.
    pub pages: Vec<(PageRange, u64)>,
    /// Pages of which it is not known whether they were needed; some are among `pages` all the same.
    pub perhaps: GrowingSet,
    /// Pages that were surely touched or read.
    pub touched: GrowingSet,
}

impl PathUse {
    /// The pages that were touched, with their windows.
    #[inline(never)]
    pub fn window_pages(&self) -> PageSet {
        self.pages.iter().map(|(range, _)| *range).collect()
    }
}

/// Bytes that the kernel maps around a fault at once, if they are in memory (its `fault_around_bytes`).
const FAULT_AROUND: u64 = 64 << 10;

/// The first kernel that maps all of a large folio at the fault of one page (finish_fault in its
/// mm/memory.c). What was mapped so the BPF programs tell, and none of the kernel's events.
const MAPS_FOLIOS: (u32, u32) = (6, 18);

/// Whether a trace tells of each fault which page it was for, and of each page that was mapped without one.
pub(crate) fn tells(trace: &Trace) -> bool {
    let mut numbers = trace.meta.kernel.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok());
    let version = number().zip(number());
    match (trace.meta.evidence, trace.meta.backend) {
        (Evidence::Adds, _) => false,
        (_, Backend::Bpf) => true,
        (_, Backend::Tracefs) => version.is_some_and(|version| version < MAPS_FOLIOS),
    }
}

fn is_below(path: &FilePath, prefix: &FilePath) -> bool {
    path.as_bytes()
        .strip_prefix(prefix.as_bytes())
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || prefix.as_bytes().ends_with(b"/"))
}

pub(crate) fn is_excluded(path: &FilePath, exclude: &[FilePath]) -> bool {
    exclude.iter().any(|prefix| is_below(path, prefix))
}

/// Where a file is seen: through an overlay, if that is known. The layers of a live system's root are mounted
/// below `/run`, and what is in them is not of `/run`.
pub(crate) fn seen_at(file: &File) -> &FilePath {
    let through = file.overlay.as_ref().filter(|path| path.is_absolute());
    through.unwrap_or(&file.path)
}

/// Whether pages of the file are learned, and so may be asked for by a plan: a regular file on a local file
/// system, still at its path, and not excluded.
pub(crate) fn has_pages(trace: &Trace, file: &File, exclude: &[FilePath]) -> bool {
    let local = file
        .filesystem
        .and_then(|f| trace.filesystems.get(f as usize))
        .is_some_and(|f| f.local);
    let regular = file.mode & 0o170000 == 0o100000;
    let there = file.path.is_absolute() && file.state == FileState::Present;
    local && regular && there && !is_excluded(seen_at(file), exclude)
}

/// The page behind the file's last.
fn end_of(file: &File, page_size: u64) -> u64 {
    // No offset is beyond the largest signed one, whatever size a trace claims.
    file.size.div_ceil(page_size).min(i64::MAX as u64 / page_size)
}

/// The pages of a use, all within the file. May be empty.
pub(crate) fn pages_of(used: &Use, file: &File, page_size: u64) -> PageRange {
    let end = end_of(file, page_size);
    PageRange {
        start: used.start.min(end),
        end: used.start.saturating_add(u64::from(used.pages)).min(end),
    }
}

/// What a use says of pages of its file; may be of none.
enum PageEvidence {
    /// They are needed.
    Needed(PageRange),
    /// They may have been touched, or not.
    Perhaps(PageRange),
}

/// The pages that uses stand for.
///
/// Who touches a page touches its neighbours, and each may cost a read. The kernel maps with it those that
/// are in memory: after the first touch the window hides all others. It is aligned by address, so the next
/// start may have other windows, and a cold one has other first touches than one that was replayed. So a
/// touched page stands for a window that depends on neither, the one that the kernel would map if the file
/// lay aligned in memory, as it does from 2 MiB on. Of the rest of what was mapped nothing is known; learning
/// leaves it as it was.
struct Windows {
    /// Mappings by file, ordered by their beginnings.
    mappings: Vec<Vec<PageRange>>,
    page_size: u64,
    /// Pages of a window.
    length: u64,
}

impl Windows {
    fn from_trace(trace: &Trace) -> Windows {
        let mut mappings = vec![Vec::new(); trace.files.len()];
        for mapping in &trace.mappings {
            mappings[mapping.file as usize].push(mapping.pages);
        }
        for of_file in &mut mappings {
            of_file.sort_small();
        }
        let page_size = u64::from(trace.meta.page_size);
        Windows {
            mappings,
            page_size,
            length: (FAULT_AROUND / page_size).max(1),
        }
    }

    fn evidence(&self, used: &Use, file: &File) -> PageEvidence {
        let pages = pages_of(used, file, self.page_size);
        match used.kind {
            UseKind::Read | UseKind::Map | UseKind::Add => PageEvidence::Needed(pages),
            UseKind::Fault => PageEvidence::Needed(self.around(used.file, pages, file)),
            UseKind::Around => PageEvidence::Perhaps(pages),
        }
    }

    /// The windows of touched pages, within the mapping that begins last before them, or the whole file.
    fn around(&self, file: u32, pages: PageRange, mapped: &File) -> PageRange {
        if pages.start >= pages.end {
            return pages;
        }
        let mappings = &self.mappings[file as usize];
        let mapping = mappings[..mappings.partition_point(|m| m.start <= pages.start)]
            .iter()
            .rfind(|m| pages.start < m.end);
        let (begin, end) = mapping.map_or((0, u64::MAX), |m| (m.start, m.end));
        // As do_fault_around in the kernel's mm/memory.c: a window that would begin before the mapping is
        // moved, not cut.
        let window = |page: u64| (page / self.length * self.length).max(begin);
        PageRange {
            start: window(pages.start),
            end: (window(pages.end - 1) + self.length)
                .min(end.max(pages.end))
                .min(end_of(mapped, self.page_size)),
        }
    }
}

impl Run {
    pub fn from_trace(trace: &Trace, exclude: &[FilePath]) -> Run {
        let began_ns = trace.began_ns();
        let over_ns = trace.up_ns().unwrap_or_else(|| match trace.meta.scope {
            Scope::Tree => trace.over_ns(),
            Scope::System => trace.end.elapsed_ns,
        });
        let (cpu_ns, elapsed_ns) = (trace.end.cpu_ns, over_ns.saturating_sub(began_ns));
        let beyond_cpu_ns = cpu_ns.map_or(0, |cpu_ns| elapsed_ns.saturating_sub(cpu_ns));
        let mut run = Run {
            paths: BTreeMap::new(),
            stages: vec![("start".into(), 0)],
            cpu_ns,
            elapsed_ns,
            waited_ns: trace.end.blocked_ns.unwrap_or(beyond_cpu_ns).min(elapsed_ns),
            began_ns,
            tells: tells(trace),
            named: BTreeSet::new(),
        };
        for mark in trace.marks.iter().filter(|mark| mark.stage != stage::RELEASED) {
            // More than a plan can have are not told apart.
            if run.stages.len() < MAX_STAGES && run.stages.iter().all(|(name, _)| *name != mark.stage) {
                run.stages
                    .push((mark.stage.clone(), mark.time_ns.saturating_sub(began_ns)));
            }
        }
        // What is followed is followed, whoever reads it as well: links that are read come last.
        let is_link = |lookup: &&Lookup| lookup.found && lookup.kind == LookupKind::Link;
        let (links, others): (Vec<&Lookup>, Vec<&Lookup>) = trace.lookups.iter().partition(is_link);
        for lookup in others.into_iter().chain(links) {
            if is_excluded(&lookup.path, exclude) {
                continue;
            }
            let need = match (lookup.found, lookup.kind) {
                (false, _) => Need::Missing,
                (true, LookupKind::Open) => Need::Open,
                (true, LookupKind::List) => Need::List,
                (true, LookupKind::Stat) => Need::Stat,
                (true, LookupKind::Link) => {
                    let known = run.paths.get(&lookup.path);
                    known.map_or(Need::List, |known| known.need.max(Need::Stat))
                }
            };
            run.need(&lookup.path, need, lookup.time_ns);
        }
        // Names of temporary files are others each time.
        for file in trace.files.iter().filter(|file| file.state == FileState::Deleted) {
            run.paths.remove(&file.path);
            file.overlay.iter().for_each(|path| drop(run.paths.remove(path)));
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
            perhaps: GrowingSet::default(),
            touched: GrowingSet::default(),
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
        let windows = Windows::from_trace(trace);
        let began_ns = self.began_ns;
        let mut seen = vec![GrowingSet::default(); trace.files.len()];
        let learned: Vec<bool> = trace
            .files
            .iter()
            .map(|file| has_pages(trace, file, exclude))
            .collect();
        for used in trace.all_uses() {
            let index = used.file as usize;
            if !learned[index] {
                continue;
            }
            let file = &trace.files[index];
            let (fresh, perhaps) = match windows.evidence(&used, file) {
                // Nobody knows which of these was touched.
                PageEvidence::Needed(pages) if used.kind == UseKind::Map => {
                    (seen[index].insert(pages), Some(pages))
                }
                PageEvidence::Needed(pages) => (seen[index].insert(pages), None),
                PageEvidence::Perhaps(pages) => (Vec::new(), Some(pages)),
            };
            let pages = pages_of(&used, file, windows.page_size);
            let touched = matches!(used.kind, UseKind::Read | UseKind::Fault).then_some(pages);
            if fresh.is_empty() && perhaps.is_none() && touched.is_none() {
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
            if let Some(perhaps) = perhaps {
                path.perhaps.insert(perhaps);
            }
            if let Some(touched) = touched {
                path.touched.insert(touched);
            }
        }
        for path in self.paths.values_mut() {
            path.pages.sort_small();
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
