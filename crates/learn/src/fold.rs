//! One more run into a profile: every path and page votes.
//!
//! With `m` the mass of the votes so far and `d` the decay of a run, a weight `w` becomes
//! `(w m d + v) / (m d + 1)`, where `v` is 1 if the run needed it and 0 if not: the share of the decayed
//! votes. Where a run cannot tell, the weight stays.

use crate::exact;
use crate::run::{PathUse, Run};
use headstart_model::plan::MAX_STAGES;
use headstart_model::profile::{
    Entry, HALF_LIFE_RUNS, MAJORITY, Policy, TAIL_PAGES, Version, WeightedRange, from_end,
};
use headstart_model::sort::Sort;
use headstart_model::{FilePath, PageRange, PageSet, Profile};
use std::collections::{BTreeMap, BTreeSet};

/// Below this a decayed weight is forgotten: with a half-life of three runs, what one run in five needed
/// stays, what was needed once is gone after six.
const FORGET: f32 = 0.06;

/// What pages of a replaced file weigh after one run: they are all that is known of the new file, so they are
/// read next time, and two runs without them take them out again.
const REPLACED_SEEN: f32 = 0.75;

/// Pages of a replaced file that the first run with the new one did not use keep this share of their weight.
const REPLACED_UNSEEN: f32 = 0.5;

/// From this weight on, a page of a file that has since been replaced is certain enough to be kept at all.
const CERTAIN: f32 = 0.9;

/// A start that took at most this much longer than the fastest of late waited about as little: its times are
/// taken.
const AS_FAST: f64 = 1.1;

/// What the fastest start took grows by this with every slower one: a program that has become slower gets a
/// timeline of its own after some starts.
const SLOWER: f64 = 1.05;

/// First uses closer than this (10 ms) are one range: finer times would cut ranges into pages.
const SAME_TIME_NS: u64 = 10_000_000;

struct Votes {
    /// Mass of the old votes after the decay.
    old: f64,
    /// With this run's.
    total: f64,
    /// Whether this run's times replace those known.
    newer: bool,
    /// From the times known before to those of the new timeline.
    stretch: f64,
    /// From this run's times to those of the new timeline.
    scale: f64,
}

impl Votes {
    fn weight(&self, before: f32, seen: bool) -> f32 {
        ((f64::from(before) * self.old + f64::from(u8::from(seen))) / self.total) as f32
    }

    /// The time of a first use: this run's if it has the timeline, else the one known before; either is put
    /// where it would be on the new timeline.
    fn time(&self, before: Option<u64>, now: Option<u64>) -> u64 {
        let scaled = |time: u64, by: f64| {
            if by == 1.0 {
                time
            } else {
                (time as f64 * by) as u64
            }
        };
        match (before, now) {
            (Some(_), Some(now)) if self.newer => now,
            (Some(before), _) => scaled(before, self.stretch),
            (None, now) => scaled(now.unwrap_or(0), self.scale),
        }
    }
}

/// Adds a run.
pub(crate) fn fold(profile: &mut Profile, run: Run, policy: Policy) {
    let decay = match policy {
        Policy::Decay | Policy::Boot => 0.5f64.powf(1.0 / HALF_LIFE_RUNS),
        Policy::Union | Policy::Intersection | Policy::KOfN { .. } => 1.0,
    };
    let usual = is_usual(profile, &run);
    let as_fast = run.elapsed_ns as f64 <= profile.timeline_ns as f64 * AS_FAST;
    let newer = profile.runs == 0 || (usual && (as_fast || is_more(profile, &run)));
    let timeline_ns = match (newer, usual) {
        (true, _) => run.elapsed_ns,
        (false, true) => (profile.timeline_ns as f64 * SLOWER) as u64,
        // How long something else took says nothing of how long the start takes.
        (false, false) => profile.timeline_ns,
    };
    let share = |elapsed_ns: u64| match elapsed_ns {
        1.. if usual => timeline_ns as f64 / elapsed_ns as f64,
        _ => 1.0,
    };
    let votes = Votes {
        old: profile.mass * decay,
        total: profile.mass * decay + 1.0,
        newer,
        stretch: share(profile.timeline_ns),
        scale: share(run.elapsed_ns),
    };
    let forget = if matches!(policy, Policy::Decay | Policy::Boot) {
        FORGET
    } else {
        0.0
    };
    merge_stages(profile, &run);
    let last = profile.stages.len().saturating_sub(1);
    let places: Vec<u16> = (run.stages.iter())
        .map(|(name, _)| profile.stages.iter().position(|s| s == name).unwrap_or(last) as u16)
        .collect();
    let stage = |time: u64| -> u16 { places[usize::from(run.stage(time))] };
    let page_size = u64::from(profile.page_size);
    let tells = run.tells;
    let mut seen: BTreeMap<&FilePath, &PathUse> = run.paths.iter().collect();
    let mut entries = Vec::with_capacity(profile.entries.len() + seen.len());
    for entry in std::mem::take(&mut profile.entries) {
        let used = seen.remove(&entry.path);
        entries.push(merge(entry, used, &votes, &stage, page_size, tells));
    }
    for (path, used) in seen {
        let blank = Entry {
            path: path.clone(),
            overlay: None,
            need: used.need,
            weight: 0.0,
            first_use_ns: used.first_use_ns,
            stage: 0,
            version: None,
            ranges: Vec::new(),
            tail: None,
            touches: None,
        };
        entries.push(merge(blank, Some(used), &votes, &stage, page_size, tells));
    }
    drop_light(&mut entries, forget);
    entries.sort_small_by(|a, b| a.path.cmp(&b.path));
    profile.entries = entries;
    fold_named(profile, &run, &votes);
    profile.cpu_ns = match (profile.cpu_ns, run.cpu_ns) {
        (before, _) if !usual => before,
        (Some(before), Some(now)) => Some(((before as f64 * votes.old + now as f64) / votes.total) as u64),
        (before, now) => now.or(before),
    };
    profile.timeline_ns = timeline_ns;
    if newer {
        profile.waited_ns = run.waited_ns;
    }
    profile.mass = votes.total;
    profile.runs = profile.runs.saturating_add(1);
    if tells && exact::is_exact(run.paths.values()) {
        profile.exact_at = profile.runs;
    }
}

/// Drops what has at most this weight.
fn drop_light(entries: &mut Vec<Entry>, weight: f32) {
    entries.retain(|entry| entry.weight > weight);
    for entry in entries {
        entry.ranges.retain(|range| range.weight > weight);
        let tail = entry.tail.iter_mut();
        tail.for_each(|tail| tail.retain(|range| range.weight > weight));
    }
}

/// Adds which paths the run's arguments have named. What is hardly ever named any more is forgotten.
fn fold_named(profile: &mut Profile, run: &Run, votes: &Votes) {
    let before = std::mem::take(&mut profile.named);
    let paths: BTreeSet<&FilePath> = before.keys().chain(&run.named).collect();
    let weight = |path: &FilePath| {
        let before = before.get(path).copied().unwrap_or(0.0);
        votes.weight(before, run.named.contains(path)).min(1.0)
    };
    let is_there = |path: &FilePath| {
        profile
            .entries
            .binary_search_by(|entry| entry.path.cmp(path))
            .is_ok()
    };
    profile.named = paths
        .into_iter()
        .filter(|path| is_there(path))
        .map(|path| (path.clone(), weight(path)))
        .filter(|(_, weight)| *weight > FORGET)
        .collect();
}

/// Whether the run saw at least half of the paths that most runs need: one that fails at once, or only prints
/// its help, is over so soon that its times would stand for the start's.
fn is_usual(profile: &Profile, run: &Run) -> bool {
    let sure = || profile.entries.iter().filter(|e| e.weight >= MAJORITY);
    2 * sure().filter(|e| run.paths.contains_key(&e.path)).count() >= sure().count()
}

/// Whether the run saw more than twice as many paths as most runs need: what is known is of runs that were
/// over soon, and the first of those was taken for a start.
fn is_more(profile: &Profile, run: &Run) -> bool {
    let sure = profile.entries.iter().filter(|e| e.weight >= MAJORITY);
    2 * sure.count() < run.paths.len()
}

/// Makes weights shares of `runs` runs where fewer were learned from.
pub(crate) fn rescale(profile: &mut Profile, runs: f64) {
    let scale = (profile.mass / runs).min(1.0) as f32;
    profile.named.values_mut().for_each(|named| *named *= scale);
    for entry in &mut profile.entries {
        entry.weight *= scale;
        for range in entry.all_ranges_mut() {
            range.weight *= scale;
        }
    }
}

/// A stage of a run that the profile does not know comes behind the one that it followed in the run: plans go
/// by the order of stages. The last stands for those that are too many for a plan.
fn merge_stages(profile: &mut Profile, run: &Run) {
    let mut behind = 0;
    for (name, _) in &run.stages {
        match profile.stages.iter().position(|known| known == name) {
            Some(known) => behind = known + 1,
            None if profile.stages.len() < MAX_STAGES => {
                profile.stages.insert(behind, name.clone());
                make_room(&mut profile.entries, behind);
                behind += 1;
            }
            None => {}
        }
    }
}

/// What is of the stage at `index` or a later one is now of the next.
fn make_room(entries: &mut [Entry], index: usize) {
    let shift = |stage: &mut u16| *stage += u16::from(usize::from(*stage) >= index);
    for entry in entries {
        shift(&mut entry.stage);
        entry.all_ranges_mut().for_each(|range| shift(&mut range.stage));
    }
}

/// What became of the file at a path since it was last used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// Nothing, or nothing is known of it.
    Same,
    /// It grew or was written: its pages are those of before, its end may be elsewhere.
    Written,
    /// Another file is there.
    Replaced,
}

fn since(old: Option<Version>, new: Option<Version>) -> Since {
    match (old, new) {
        (Some(old), Some(new)) if old == new => Since::Same,
        (Some(old), Some(new)) if old.same_file(&new) => Since::Written,
        (Some(_), Some(_)) => Since::Replaced,
        _ => Since::Same,
    }
}

fn merge(
    mut entry: Entry,
    used: Option<&PathUse>,
    votes: &Votes,
    stage: &dyn Fn(u64) -> u16,
    page_size: u64,
    tells: bool,
) -> Entry {
    let known = entry.weight > 0.0;
    let time = votes.time(known.then_some(entry.first_use_ns), used.map(|u| u.first_use_ns));
    entry.first_use_ns = time;
    entry.weight = votes.weight(entry.weight, used.is_some());
    let Some(used) = used else {
        entry.ranges = sweep(&entry.ranges, &[], &PageSet::new(), votes, stage);
        if let Some(tail) = &mut entry.tail {
            *tail = sweep(tail, &[], &PageSet::new(), votes, stage);
        }
        return entry;
    };
    entry.stage = stage(used.first_use_ns);
    entry.need = used.need;
    let since = since(entry.version, used.version);
    // From its first change on a file is known as one that changes, and what it is used for decides.
    let unexpected = match since {
        Since::Same => false,
        Since::Written => entry.tail.is_none(),
        Since::Replaced => true,
    };
    match (since, entry.version) {
        (Since::Replaced, _) => {
            entry.tail = None;
            entry.ranges.retain(|r| r.weight >= CERTAIN);
            for range in &mut entry.ranges {
                range.weight *= REPLACED_UNSEEN;
            }
        }
        (Since::Written, Some(old)) if unexpected => {
            entry.tail = Some(mirrored(&entry.ranges, old.size.div_ceil(page_size)));
        }
        _ => {}
    }
    if used.version.is_some() {
        let known = entry.touches.take().filter(|_| since == Since::Same);
        // What is in such pages moves.
        if entry.tail.is_none() {
            entry.touches = exact::touches(known, used, tells);
        }
        entry.version = used.version;
        entry.overlay = used.overlay.clone();
    }
    entry.ranges = sweep(&entry.ranges, &used.pages, &used.perhaps.pages(), votes, stage);
    if let (Some(tail), Some(version)) = (&mut entry.tail, used.version) {
        let end = version.size.div_ceil(page_size);
        let pages = pages_from_end(used.pages.iter().copied(), end);
        let perhaps = used.perhaps.pages();
        let perhaps = perhaps.ranges().iter().map(|range| (*range, 0));
        let perhaps = pages_from_end(perhaps, end).into_iter().map(|(range, _)| range);
        *tail = sweep(tail, &pages, &perhaps.collect(), votes, stage);
    }
    if unexpected {
        for range in &mut entry.ranges {
            let after = used.pages.partition_point(|(p, _)| p.start <= range.start);
            if after > 0 && range.start < used.pages[after - 1].0.end {
                range.weight = range.weight.max(REPLACED_SEEN);
            }
        }
        entry.weight = entry.weight.max(MAJORITY);
    }
    if let Some(version) = entry.version {
        // A file that shrank has no pages behind its end.
        let end = version.size.div_ceil(page_size);
        entry.ranges.retain_mut(|r| {
            r.pages = u64::from(r.pages).min(end.saturating_sub(r.start)) as u32;
            r.pages > 0
        });
    }
    entry
}

/// Which of these pages are among the last [`TAIL_PAGES`] of a file of `end` pages, counted from its end,
/// ascending.
fn pages_from_end(pages: impl Iterator<Item = (PageRange, u64)>, end: u64) -> Vec<(PageRange, u64)> {
    let mut reversed: Vec<(PageRange, u64)> = pages
        .map(|(range, time)| (from_end(range, end), time))
        .map(|(range, time)| {
            let end = range.end.min(TAIL_PAGES);
            (PageRange { end, ..range }, time)
        })
        .filter(|(range, _)| range.start < range.end)
        .collect();
    reversed.sort_small();
    reversed
}

/// The ranges among the last [`TAIL_PAGES`] of a file of `end` pages, counted from its end.
fn mirrored(ranges: &[WeightedRange], end: u64) -> Vec<WeightedRange> {
    let mut reversed: Vec<WeightedRange> = Vec::new();
    for range in ranges.iter().rev() {
        let pages = pages_from_end([(range.range(), 0)].into_iter(), end);
        reversed.extend(pages.into_iter().map(|(pages, _)| WeightedRange {
            start: pages.start,
            pages: pages.pages() as u32,
            ..*range
        }));
    }
    reversed
}

/// Old ranges and this run's pages, both ascending and disjoint, as ranges with new weights. A page that this
/// run perhaps needed keeps its weight.
fn sweep(
    old: &[WeightedRange],
    new: &[(PageRange, u64)],
    perhaps: &PageSet,
    votes: &Votes,
    stage: &dyn Fn(u64) -> u16,
) -> Vec<WeightedRange> {
    let mut edges: Vec<u64> = Vec::with_capacity(2 * (old.len() + new.len()));
    edges.extend(old.iter().flat_map(|r| [r.range().start, r.range().end]));
    edges.extend(new.iter().flat_map(|(r, _)| [r.start, r.end]));
    edges.extend(perhaps.ranges().iter().flat_map(|r| [r.start, r.end]));
    edges.sort_unstable();
    edges.dedup();
    let (mut o, mut n) = (0, 0);
    let mut result: Vec<WeightedRange> = Vec::new();
    for pair in edges.windows(2) {
        let (start, end) = (pair[0], pair[1]);
        while old.get(o).is_some_and(|r| r.range().end <= start) {
            o += 1;
        }
        while new.get(n).is_some_and(|(r, _)| r.end <= start) {
            n += 1;
        }
        let before = old.get(o).filter(|r| r.start <= start);
        let now = new
            .get(n)
            .filter(|(r, _)| r.start <= start)
            .map(|(_, time)| *time);
        if before.is_none() && now.is_none() {
            continue;
        }
        let weight = before.map_or(0.0, |r| r.weight);
        let piece = WeightedRange {
            start,
            pages: (end - start).min(u64::from(u32::MAX)) as u32,
            weight: if now.is_none() && perhaps.contains(start) {
                weight
            } else {
                votes.weight(weight, now.is_some())
            },
            first_use_ns: votes.time(before.map(|r| r.first_use_ns), now),
            stage: now.map_or_else(|| before.map_or(0, |r| r.stage), stage),
        };
        match result.last_mut() {
            Some(last) if joins(last, &piece) => {
                last.pages += piece.pages;
                last.first_use_ns = last.first_use_ns.min(piece.first_use_ns);
            }
            _ => result.push(piece),
        }
    }
    result
}

fn joins(last: &WeightedRange, next: &WeightedRange) -> bool {
    last.range().end == next.start
        && (last.weight - next.weight).abs() < 1e-6
        && last.stage == next.stage
        && last.first_use_ns.abs_diff(next.first_use_ns) < SAME_TIME_NS
        && last.pages.checked_add(next.pages).is_some()
}
