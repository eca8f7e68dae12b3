//! What `headstart bench` reports: the document of its `--json`.

use crate::rule::{Difference, Finding};
use headstart_model::floor::{Above, Floor};
use serde::Serialize;

/// All starts of a benchmark, and what they show.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The command line.
    pub command: Vec<String>,
    /// What was measured of each start: until the command ended, or until it was quiet.
    pub end: End,
    /// Cold starts without headstart, seconds each.
    pub cold: Vec<f64>,
    /// Cold starts with headstart, seconds each.
    pub with_headstart: Vec<f64>,
    /// Warm starts without headstart, seconds each.
    pub warm: Vec<f64>,
    /// What the cold starts with and without headstart show.
    pub finding: Finding,
    /// By how much they differ; `None` with fewer than four of either.
    pub saved: Option<Difference>,
    /// How starts were made cold.
    pub cold_by: ColdBy,
    /// What was to be cold.
    pub pages: Pages,
    /// What the last start with a replay could have taken at least; `None` where it is not known.
    pub floor: Option<Floor>,
    /// Where the time of that start above the floor went.
    pub above: Option<Above>,
    /// How many of the starts with headstart were bypassed: it did nothing for them.
    pub bypassed: usize,
    /// The key in the state directory under which what was learned is kept; `None` where it is dropped.
    pub kept: Option<String>,
}

/// Boots that are measured, and what they show so far: the document of `headstart bench --boot --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Boots {
    /// When it began, nanoseconds since 1970.
    pub since_unix_ns: u64,
    /// How many of the next boots are measured yet.
    pub left: u8,
    /// Boots that were not read ahead, seconds each.
    pub not_read_ahead: Vec<f64>,
    /// Boots that were, seconds each.
    pub read_ahead: Vec<f64>,
    /// What they show.
    pub finding: Finding,
    /// By how much they differ; `None` with fewer than four of either.
    pub saved: Option<Difference>,
    /// Whether it is known what a boot reads: until then no boot can be read ahead.
    pub is_known: bool,
}

/// When a start has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// When the command ends.
    Exit,
    /// When it reads nothing and hardly computes, as a program with a window that waits for its user.
    Quiet,
}

/// How starts were made cold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColdBy {
    /// The pages of what it reads were dropped, and no others. Directories and inodes stayed in memory.
    Files,
    /// The caches of the whole machine were dropped.
    DropCaches,
}

/// What was to be cold before each cold start. Pages of a file that other processes have mapped stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pages {
    /// Bytes of what the start uses of its files.
    pub wanted: u64,
    /// Of these, bytes that stayed in memory before the cold start in which most did.
    pub stayed: u64,
    /// The files of which most stayed, largest first.
    pub files_that_stayed: Vec<String>,
}
