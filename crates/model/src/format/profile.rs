//! headstart-profile(5).

use super::values::Values;
use super::{Container, FormatError, Kind, Writer, addressable, is_page_size, refused, stage_name};
use crate::limits::{self, bounded};
use crate::profile::Entry;
use crate::{Key, Profile};

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
        file.value(b"ENTR", &self.entries, limits::ENTR)?;
        file.finish()
    }

    /// Reads a profile.
    pub fn from_bytes(bytes: &[u8]) -> Result<Profile, FormatError> {
        let file = Container::new(Kind::Profile, bytes)?;
        let (key, page_size, runs, mass, cpu_ns, timeline_ns, updated_unix_ns, policy) =
            file.values(b"HEAD", limits::HEAD, |v| v.one())?;
        let stages = file.values(b"STAG", limits::STAG, |v| v.list("stages", limits::STAGES))?;
        let entries = file.values(b"ENTR", limits::ENTR, read_entries)?;
        let profile = Profile {
            key,
            page_size,
            runs,
            mass,
            cpu_ns,
            timeline_ns,
            updated_unix_ns,
            policy,
            stages,
            entries,
        };
        profile.check().map_err(|what| file.damaged(what))?;
        Ok(profile)
    }

    /// Whether every limit is kept, every path has one spelling, every index leads somewhere and every value is in its
    /// range.
    fn check(&self) -> Result<(), String> {
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
            let mut end = 0;
            for range in &entry.ranges {
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
        Ok(())
    }

    /// Drops what a file may not have: of the entries those with the least weight, of these the last needed first, and of
    /// an entry with more ranges than are left those with the least weight. Returns how many entries were dropped.
    pub fn fit(&mut self) -> usize {
        let bytes: usize = self.entries.iter().map(path_bytes).sum();
        let ranges: usize = self.entries.iter().map(|entry| entry.ranges.len()).sum();
        let before = self.entries.len();
        if before <= limits::ENTRIES && bytes <= limits::ENTRY_BYTES && ranges <= limits::RANGES {
            return 0;
        }
        self.entries.sort_unstable_by(|a, b| {
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
                entry
                    .ranges
                    .sort_unstable_by(|a, b| b.weight.total_cmp(&a.weight));
                entry.ranges.truncate(ranges);
                entry.ranges.sort_unstable_by_key(|range| range.start);
            }
            ranges -= entry.ranges.len();
            true
        });
        self.entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        before - self.entries.len()
    }
}

/// What the paths of an entry count for.
fn path_bytes(entry: &Entry) -> usize {
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
        };
        bytes += path_bytes(&entry);
        bounded("bytes of paths", bytes, limits::ENTRY_BYTES)?;
        entries.push(entry);
    }
    Ok(entries)
}
