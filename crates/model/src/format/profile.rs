//! headstart-profile(5).

use super::{Container, FormatError, Kind, Writer, addressable, usable};
use crate::{Key, Profile};

impl Profile {
    /// The profile as a file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
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
        )?;
        file.value(b"STAG", &self.stages)?;
        file.value(b"ENTR", &self.entries)?;
        file.finish()
    }

    /// Reads a profile.
    pub fn from_bytes(bytes: &[u8]) -> Result<Profile, FormatError> {
        let file = Container::new(Kind::Profile, bytes)?;
        let (key, page_size, runs, mass, cpu_ns, timeline_ns, updated_unix_ns, policy) =
            file.value(b"HEAD")?;
        let stages = file.value(b"STAG")?;
        let entries = file.value(b"ENTR")?;
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

    /// Whether every index leads somewhere and every value is in its range.
    fn check(&self) -> Result<(), String> {
        Key::new(self.key.as_str()).map_err(|e| e.to_string())?;
        if !self.page_size.is_power_of_two() || !(4096..=65536).contains(&self.page_size) {
            return Err(format!("pages of {} bytes", self.page_size));
        }
        if !self.mass.is_finite() || self.mass < 0.0 || self.stages.is_empty() {
            return Err("no stage, or votes that are no number".into());
        }
        let weight = |w: f32| (0.0..=1.0).contains(&w);
        let mut last = None;
        for entry in &self.entries {
            let path = &entry.path;
            if !usable(path) || entry.overlay.as_ref().is_some_and(|o| !usable(o)) {
                return Err(format!("the path {path:?}"));
            }
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
}
