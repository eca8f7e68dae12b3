//! The file formats. All five share one container ([`container`]): magic, version, a table of checked
//! sections. headstart-trace(5), headstart-profile(5), headstart-profiles(5), headstart-plan(5) and
//! headstart-outcome(5) describe them.
//!
//! Everything read is untrusted: every length is bounded before memory is taken for it ([`crate::limits`]),
//! every index is checked, and what fails is an error that says which section.

mod activity;
mod ahead;
mod columns;
pub mod container;
mod outcome;
mod paths;
mod plan;
mod profile;
mod profile_set;
mod rows;
mod trace;
mod values;
mod windows;

pub use container::{Container, FormatError, Writer};
pub(crate) use profile::{path_bytes, ranges_of};

use crate::limits;
use crate::path::PathError;

/// What a file is, by its magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// headstart-trace(5)
    Trace,
    /// headstart-profile(5)
    Profile,
    /// headstart-plan(5)
    Plan,
    /// headstart-outcome(5)
    Outcome,
    /// headstart-profiles(5)
    ProfileSet,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] = [
        Kind::Trace,
        Kind::Profile,
        Kind::Plan,
        Kind::Outcome,
        Kind::ProfileSet,
    ];

    /// The first eight bytes of a file of this kind.
    pub fn magic(self) -> &'static [u8; 8] {
        match self {
            Kind::Trace => b"HSTRACE\0",
            Kind::Profile => b"HSPROFIL",
            Kind::Plan => b"HSPLAN\0\0",
            Kind::Outcome => b"HSOUTCOM",
            Kind::ProfileSet => b"HSPROSET",
        }
    }

    /// The major version that is written and read.
    pub fn major(self) -> u16 {
        match self {
            // 4: MMAP instead of MAPS. 5: WIND.
            Kind::Trace => 5,
            // 3: the modes Bypass and Declined.
            Kind::Outcome => 3,
            Kind::Profile | Kind::Plan | Kind::ProfileSet => 1,
        }
    }

    /// The oldest major version that is read.
    pub fn oldest(self) -> u16 {
        match self {
            Kind::Trace => 3,
            Kind::Outcome => 2,
            Kind::Profile | Kind::Plan | Kind::ProfileSet => self.major(),
        }
    }

    /// The minor version that is written: sections have been added so often.
    pub fn minor(self) -> u16 {
        match self {
            // 1: ACTV and AHED.
            Kind::Trace => 1,
            // 1: TCHS. 2: WAIT. 3: NAMD.
            Kind::Profile => 3,
            // 1: FILL and TOUC. 2: NAMD.
            Kind::Plan => 2,
            Kind::Outcome | Kind::ProfileSet => 0,
        }
    }

    /// The kind's name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Trace => "trace",
            Kind::Profile => "profile",
            Kind::Plan => "plan",
            Kind::Outcome => "outcome",
            Kind::ProfileSet => "file of profiles",
        }
    }

    /// The largest file of this kind, bytes.
    pub fn most_bytes(self) -> usize {
        match self {
            Kind::Trace | Kind::Profile | Kind::Plan | Kind::ProfileSet => limits::FILE,
            Kind::Outcome => limits::OUTCOME_FILE,
        }
    }

    /// The kind of a file that begins with `bytes`; `None` if it is none of headstart's.
    pub fn detect(bytes: &[u8]) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| bytes.starts_with(k.magic()))
    }
}

/// The largest file of any kind that is read, bytes.
pub const MAX_FILE: u64 = limits::FILE as u64;

/// Why a path that something of a file has is refused.
fn refused(what: impl std::fmt::Display, path: &[u8], why: PathError) -> String {
    // Long enough to find it, and short enough for a line of a log.
    const SHOWN: usize = 200;
    let shown = String::from_utf8_lossy(&path[..path.len().min(SHOWN)]);
    format!("{what} has the path {shown:?}, which {why}")
}

/// The size of a page: a power of two from 4 to 64 KiB.
fn is_page_size(bytes: u32) -> bool {
    bytes.is_power_of_two() && (4096..=65536).contains(&bytes)
}

/// Refuses a name of a stage that is too long.
fn stage_name(name: &str) -> Result<(), String> {
    limits::bounded("bytes of a stage's name", name.len(), limits::STAGE_NAME)
}

/// Whether `pages` pages from `start` on end at an offset that the kernel can express (`loff_t`): what is
/// read may multiply page numbers without a further look.
fn addressable(start: u64, pages: u64, page_size: u32) -> bool {
    start
        .checked_add(pages)
        .and_then(|end| end.checked_mul(u64::from(page_size)))
        .is_some_and(|end| end <= i64::MAX as u64)
}

#[cfg(test)]
mod limits_tests;
#[cfg(test)]
mod tests;
