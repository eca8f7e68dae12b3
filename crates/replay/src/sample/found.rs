//! What looks came to, place by place and in all.

use super::costs::Place;
use headstart_model::plan::Request;
use serde::{Deserialize, Serialize};

/// What a sample found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resident {
    /// Places that were looked at and told something.
    pub looks: u32,
    /// The share of the plan's cost that is not in memory, by these places.
    pub cold: f64,
    /// Pages that were looked at; those behind a cold path included, and one for each path alone.
    pub sampled_pages: u64,
    /// Of these, those in memory.
    pub resident_pages: u64,
    /// Places whose path the kernel does not remember.
    pub cold_paths: u32,
    /// Places that are not as planned: the file is gone, or another. What it costs counts as cold: what is
    /// there now will be read.
    pub changed: u32,
    /// The share of the plan's cost that may not be looked at, such as another user's file.
    pub unknown: f64,
    /// Whether enough was cold, so that the rest was not looked at.
    pub cut_short: bool,
}

/// What was found in one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Sampled {
    /// Its path is remembered.
    Path,
    /// Its path is remembered, and `resident` of its `pages` are in memory.
    Pages { resident: u64, pages: u64 },
    /// Its path is not remembered, and behind it are so many pages.
    ColdPath(u64),
    /// It is not as planned.
    Changed,
    /// It is on a remote file system, where this process may not look.
    Remote,
    /// Nothing is known of it.
    Unknown,
}

impl Sampled {
    /// Which part of what was looked at is cold. Of the pages that are missing those may be that nobody asks
    /// for, read to bridge a hole.
    pub(super) fn cold_share(self, request: &Request) -> f64 {
        match self {
            Sampled::Path | Sampled::Unknown | Sampled::Remote => 0.0,
            Sampled::ColdPath(_) | Sampled::Changed => 1.0,
            Sampled::Pages { resident, pages } => {
                let cold = pages.saturating_sub(resident) as f64 / pages.max(1) as f64;
                let bridged = request.bridged.min(request.length) as f64 / request.length.max(1) as f64;
                match bridged < 1.0 {
                    true => ((cold - bridged) / (1.0 - bridged)).max(0.0),
                    false => 0.0,
                }
            }
        }
    }
}

/// The sum of looks: counts, and seconds of the plan's cost. A process passes it to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Found {
    counts: Resident,
    cold_places: u32,
    known: f64,
    cold: f64,
    unknown: f64,
    remote: f64,
}

impl Found {
    /// One more look, of which so large a share is cold.
    pub(super) fn add(&mut self, sampled: Sampled, place: &Place, cold: f64) {
        match sampled {
            Sampled::Unknown => return self.unknown += place.weight,
            Sampled::Remote => return self.remote += place.weight,
            _ => {}
        }
        self.known += place.weight;
        self.cold += place.weight * cold;
        self.cold_places += u32::from(cold >= 0.5);
        let (in_memory, pages) = match sampled {
            Sampled::Pages { resident, pages } => (resident.min(pages), pages),
            Sampled::Path => (1, 1),
            Sampled::ColdPath(pages) => (0, pages.max(1)),
            Sampled::Changed | Sampled::Remote | Sampled::Unknown => (0, 0),
        };
        self.counts.looks += 1;
        self.counts.sampled_pages += pages;
        self.counts.resident_pages += in_memory;
        self.counts.cold_paths += u32::from(matches!(sampled, Sampled::ColdPath(_)));
        self.counts.changed += u32::from(sampled == Sampled::Changed);
    }

    /// Places of which at least a half is cold.
    pub(super) fn cold_places(&self) -> u32 {
        self.cold_places
    }

    /// Places were left out.
    pub(super) fn cut_short(&mut self) {
        self.counts.cut_short = true;
    }

    /// Whether it depends on what is remote: there is such a part, and less than half of the rest is cold.
    pub(super) fn may_be_warm(&self) -> bool {
        self.remote > 0.0 && !self.counts.cut_short && self.cold <= 0.5 * self.known
    }

    /// With what another process has found of the remote part; if it says nothing all of that is cold.
    pub(super) fn with_remote(mut self, told: Option<Found>) -> Found {
        let remote = std::mem::take(&mut self.remote);
        let Some(told) = told else {
            self.counts.looks += 1;
            self.known += remote;
            self.cold += remote;
            return self;
        };
        self.counts.looks += told.counts.looks;
        self.counts.sampled_pages += told.counts.sampled_pages;
        self.counts.resident_pages += told.counts.resident_pages;
        self.counts.cold_paths += told.counts.cold_paths;
        self.counts.changed += told.counts.changed;
        self.known += told.known;
        self.cold += told.cold;
        self.unknown += told.unknown;
        self
    }

    /// What it comes to.
    pub(super) fn resident(&self) -> Resident {
        let share = |part: f64, of: f64| if of > 0.0 { part / of } else { 0.0 };
        let unknown = self.unknown + self.remote;
        Resident {
            cold: share(self.cold, self.known),
            unknown: share(unknown, self.known + unknown),
            ..self.counts
        }
    }
}
