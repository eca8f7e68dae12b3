//! headstart-profile(5).

use super::values::Values;
use super::{Container, FormatError, Kind, Writer, addressable, is_page_size, refused, stage_name};
use crate::limits::{self, bounded};
use crate::profile::{Entry, TAIL_PAGES, Touches, WeightedRange};
use crate::sort::Sort;
use crate::{FilePath, Key, PageRange, PageSet, Profile};
use std::collections::BTreeMap;

impl Profile {
    /// The profile as a file. What a reader would refuse is an error; [`Profile::fit`] makes one fit.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        self.check().map_err(|what| FormatError::TooLarge {
            kind: Kind::Profile.name(),
            what,
        })?;
        self.written()
    }

    /// The file, unchecked.
    pub(crate) fn written(&self) -> Result<Vec<u8>, FormatError> {
        let mut file = Writer::new(Kind::Profile);
        file.value(
            b"HEAD",
            &(
                &self.key,
                self.page_size,
                self.runs,
                self.mass,
                self.cpu_ns,
                self.timeline_ns,
                self.updated_unix_ns,
                self.policy,
            ),
            limits::HEAD,
        )?;
        file.value(b"STAG", &self.stages, limits::STAG)?;
        let entries: Vec<_> = self.entries.iter().map(without_tail).collect();
        file.value(b"ENTR", &entries, limits::ENTR)?;
        let tails: Vec<(u32, &[WeightedRange])> = (0..).zip(&self.entries).filter_map(tail).collect();
        if !tails.is_empty() {
            file.value(b"TAIL", &tails, limits::TAIL)?;
        }
        if self.waited_ns > 0 {
            file.value(b"WAIT", &self.waited_ns, limits::HEAD)?;
        }
        if self.exact_at > 0 || self.entries.iter().any(|entry| entry.touches.is_some()) {
            let touches: Vec<_> = (0u32..)
                .zip(&self.entries)
                .filter_map(|(index, entry)| Some((index, entry.touches.as_ref()?)))
                .collect();
            file.value(b"TCHS", &(self.exact_at, touches), limits::TCHS)?;
        }
        let named: Vec<(u32, f32)> = (0u32..)
            .zip(&self.entries)
            .filter_map(|(index, entry)| Some((index, *self.named.get(&entry.path)?)))
            .collect();
        if !named.is_empty() {
            file.value(b"NAMD", &named, limits::NAMD)?;
        }
        file.finish()
    }

    /// Reads a profile.
    pub fn from_bytes(bytes: &[u8]) -> Result<Profile, FormatError> {
        let file = Container::new(Kind::Profile, bytes)?;
        let (key, page_size, runs, mass, cpu_ns, timeline_ns, updated_unix_ns, policy) =
            file.values(b"HEAD", limits::HEAD, |v| v.one())?;
        let stages = file.values(b"STAG", limits::STAG, |v| v.list("stages", limits::STAGES))?;
        let mut entries = file.values(b"ENTR", limits::ENTR, read_entries)?;
        if file.has(b"TAIL") {
            file.values(b"TAIL", limits::TAIL, |values| read_tails(values, &mut entries))?;
        }
        let waited_ns = match file.has(b"WAIT") {
            true => file.values(b"WAIT", limits::HEAD, |values| values.one())?,
            false => 0,
        };
        let mut exact_at = 0;
        if file.has(b"TCHS") {
            exact_at = file.values(b"TCHS", limits::TCHS, |values| read_touches(values, &mut entries))?;
        }
        let named = match file.has(b"NAMD") {
            true => file.values(b"NAMD", limits::NAMD, |values| read_named(values, &entries))?,
            false => BTreeMap::new(),
        };
        let profile = Profile {
            key,
            page_size,
            runs,
            mass,
            cpu_ns,
            timeline_ns,
            waited_ns,
            updated_unix_ns,
            exact_at,
            policy,
            stages,
            entries,
            named,
        };
        profile.check().map_err(|what| file.damaged(what))?;
        Ok(profile)
    }

    /// Whether every limit is kept, every path has one spelling, every index leads somewhere and every value
    /// is in its range.
    pub(super) fn check(&self) -> Result<(), String> {
        Key::new(self.key.as_str()).map_err(|e| e.to_string())?;
        if !is_page_size(self.page_size) {
            return Err(format!("pages of {} bytes", self.page_size));
        }
        if !self.mass.is_finite() || self.mass < 0.0 || self.stages.is_empty() {
            return Err("no stage, or votes that are no number".into());
        }
        bounded("stages", self.stages.len(), limits::STAGES)?;
        bounded("entries", self.entries.len(), limits::ENTRIES)?;
        self.stages.iter().try_for_each(|name| stage_name(name))?;
        let weight = |w: f32| (0.0..=1.0).contains(&w);
        let mut last = None;
        let (mut ranges, mut bytes) = (0, 0);
        let (mut tails, mut tail_ranges, mut touches) = (0, 0, 0);
        if !self.named.values().all(|named| weight(*named)) {
            return Err("how often an entry was named".into());
        }
        for entry in &self.entries {
            let path = &entry.path;
            for path in [Some(path), entry.overlay.as_ref()].into_iter().flatten() {
                path.check()
                    .map_err(|why| refused("an entry", path.as_bytes(), why))?;
            }
            bytes += path_bytes(entry);
            bounded("bytes of paths", bytes, limits::ENTRY_BYTES)?;
            ranges += entry.ranges.len();
            bounded("ranges", ranges, limits::RANGES)?;
            if last.is_some_and(|l| l >= path) {
                return Err(format!("{path:?} is out of order"));
            }
            last = Some(path);
            if !weight(entry.weight) || usize::from(entry.stage) >= self.stages.len() {
                return Err(format!("the weight or stage of {path:?}"));
            }
            if entry.version.is_none() && !entry.ranges.is_empty() {
                return Err(format!("{path:?} has pages of an unknown file"));
            }
            let tail = entry.tail.as_deref().unwrap_or_default();
            tails += usize::from(entry.tail.is_some());
            bounded("files that change", tails, limits::TAILS)?;
            tail_ranges += tail.len();
            bounded("ranges from the end", tail_ranges, limits::TAIL_RANGES)?;
            if entry.version.is_none() && !tail.is_empty() {
                return Err(format!("{path:?} has pages of an unknown file"));
            }
            for list in [&entry.ranges[..], tail] {
                let mut end = 0;
                for range in list {
                    let fits = range.start >= end
                        && range.pages > 0
                        && weight(range.weight)
                        && addressable(range.start, u64::from(range.pages), self.page_size);
                    if !fits || usize::from(range.stage) >= self.stages.len() {
                        return Err(format!("the pages at {} of {path:?}", range.start));
                    }
                    end = range.range().end;
                }
            }
            touches += entry.touches.as_ref().map_or(0, ranges_of);
            bounded("ranges of touches", touches, limits::TOUCH_RANGES)?;
            if tail.last().is_some_and(|range| range.range().end > TAIL_PAGES) {
                return Err(format!("the pages from the end of {path:?}"));
            }
        }
        Ok(())
    }

    /// Drops what a file may not have: of the entries those with the least weight, of these the last needed
    /// first, and of an entry with more ranges than are left those with the least weight. Returns how many
    /// entries were dropped.
    pub fn fit(&mut self) -> usize {
        let bytes: usize = self.entries.iter().map(path_bytes).sum();
        let ranges: usize = self.entries.iter().map(|entry| entry.ranges.len()).sum();
        let before = self.entries.len();
        self.fit_tails();
        self.fit_touches();
        self.fit_named();
        if before <= limits::ENTRIES && bytes <= limits::ENTRY_BYTES && ranges <= limits::RANGES {
            return 0;
        }
        self.entries.sort_small_by(|a, b| {
            b.weight
                .total_cmp(&a.weight)
                .then(a.first_use_ns.cmp(&b.first_use_ns))
        });
        let (mut count, mut bytes, mut ranges) = (limits::ENTRIES, limits::ENTRY_BYTES, limits::RANGES);
        self.entries.retain_mut(|entry| {
            let length = path_bytes(entry);
            if count == 0 || length > bytes {
                return false;
            }
            (count, bytes) = (count - 1, bytes - length);
            if entry.ranges.len() > ranges {
                entry.ranges.sort_small_by(|a, b| b.weight.total_cmp(&a.weight));
                entry.ranges.truncate(ranges);
                entry.ranges.sort_small_by_key(|range| range.start);
            }
            ranges -= entry.ranges.len();
            true
        });
        self.entries.sort_small_by(|a, b| a.path.cmp(&b.path));
        self.fit_named();
        before - self.entries.len()
    }
}

impl Profile {
    /// Forgets how often paths were named that have no entry.
    fn fit_named(&mut self) {
        let entries = &self.entries;
        self.named
            .retain(|path, _| entries.binary_search_by(|entry| entry.path.cmp(path)).is_ok());
    }

    /// Forgets which pages were touched where a file has no room for that: all are read ahead.
    fn fit_touches(&mut self) {
        let mut left = limits::TOUCH_RANGES;
        for entry in &mut self.entries {
            match left.checked_sub(entry.touches.as_ref().map_or(0, ranges_of)) {
                Some(rest) => left = rest,
                None => entry.touches = None,
            }
        }
    }

    /// Drops what a file may not have of ranges counted from the end: those of the files with the least
    /// weight.
    fn fit_tails(&mut self) {
        let length = |entry: &Entry| entry.tail.as_ref().map_or(0, Vec::len);
        let mut with: Vec<&mut Entry> = self.entries.iter_mut().filter(|e| e.tail.is_some()).collect();
        let ranges: usize = with.iter().map(|entry| length(entry)).sum();
        if with.len() <= limits::TAILS && ranges <= limits::TAIL_RANGES {
            return;
        }
        with.sort_small_by(|a, b| b.weight.total_cmp(&a.weight));
        let (mut files, mut ranges) = (limits::TAILS, limits::TAIL_RANGES);
        for entry in with {
            match (files.checked_sub(1), ranges.checked_sub(length(entry))) {
                (Some(files_left), Some(ranges_left)) => (files, ranges) = (files_left, ranges_left),
                _ => entry.tail = None,
            }
        }
    }
}

/// What ENTR has of an entry.
fn without_tail(entry: &Entry) -> impl serde::Serialize + '_ {
    (
        &entry.path,
        &entry.overlay,
        entry.need,
        entry.weight,
        entry.first_use_ns,
        entry.stage,
        entry.version,
        &entry.ranges,
    )
}

/// What TAIL has of the entry of that index, if anything.
fn tail((index, entry): (u32, &Entry)) -> Option<(u32, &[WeightedRange])> {
    Some((index, entry.tail.as_deref()?))
}

/// Gives entries what [`tail`] wrote of them.
fn read_tails(values: &mut Values<'_>, entries: &mut [Entry]) -> Result<(), String> {
    let count = values.count("files that change", limits::TAILS)?;
    let mut left = limits::TAIL_RANGES;
    for _ in 0..count {
        let index: u32 = values.one()?;
        let tail = values.list("ranges from the end", left)?;
        left -= tail.len();
        let entry = entries.get_mut(index as usize);
        entry.ok_or_else(|| format!("there is no entry {index}"))?.tail = Some(tail);
    }
    Ok(())
}

/// How many ranges say which pages were touched.
pub(crate) fn ranges_of(touches: &Touches) -> usize {
    let sets = [&touches.touched, &touches.once, &touches.unused];
    sets.iter().map(|set| set.ranges().len()).sum()
}

/// Gives entries their touches; returns [`Profile::exact_at`].
fn read_touches(values: &mut Values<'_>, entries: &mut [Entry]) -> Result<u32, String> {
    let runs = values.one()?;
    let count = values.count("files with touches", entries.len())?;
    let mut left = limits::TOUCH_RANGES;
    for _ in 0..count {
        let index: u32 = values.one()?;
        let mut set = || -> Result<PageSet, String> {
            let ranges: Vec<PageRange> = values.list("ranges of touches", left)?;
            left -= ranges.len();
            Ok(ranges.into_iter().collect())
        };
        let touches = Touches {
            touched: set()?,
            once: set()?,
            unused: set()?,
        };
        let entry = entries.get_mut(index as usize);
        entry.ok_or_else(|| format!("there is no entry {index}"))?.touches = Some(touches);
    }
    Ok(runs)
}

/// How often entries were named, by path.
fn read_named(values: &mut Values<'_>, entries: &[Entry]) -> Result<BTreeMap<FilePath, f32>, String> {
    let count = values.count("entries that were named", entries.len())?;
    let mut named = BTreeMap::new();
    for _ in 0..count {
        let (index, weight): (u32, f32) = values.one()?;
        let entry = entries.get(index as usize);
        let entry = entry.ok_or_else(|| format!("there is no entry {index}"))?;
        named.insert(entry.path.clone(), weight);
    }
    Ok(named)
}

/// What the paths of an entry count for.
pub(crate) fn path_bytes(entry: &Entry) -> usize {
    entry.path.as_bytes().len() + entry.overlay.as_ref().map_or(0, |path| path.as_bytes().len())
}

fn read_entries(values: &mut Values<'_>) -> Result<Vec<Entry>, String> {
    let count = values.count("entries", limits::ENTRIES)?;
    let mut entries = Vec::with_capacity(count);
    let (mut bytes, mut left) = (0, limits::RANGES);
    for _ in 0..count {
        let (path, overlay, need, weight, first_use_ns, stage, version) = values.one()?;
        let ranges = values.list("ranges", left)?;
        left -= ranges.len();
        let entry = Entry {
            path,
            overlay,
            need,
            weight,
            first_use_ns,
            stage,
            version,
            ranges,
            tail: None,
            touches: None,
        };
        bytes += path_bytes(&entry);
        bounded("bytes of paths", bytes, limits::ENTRY_BYTES)?;
        entries.push(entry);
    }
    Ok(entries)
}
