//! What commands print, a module for each: tables for people and, where the model's own types are not already
//! the document, serializable views for `--json`; and pictures of starts ([`chart`]). Pure: no system call,
//! no clock; the time to compare with is an argument.

pub mod bench;
pub mod chart;
pub mod compare;
pub mod diff;
pub mod estimate;
pub mod explain;
pub mod export;
pub mod floor;
pub use headstart_model::human;
pub mod orders;
pub mod outcome;
pub mod plan;
pub mod profile;
pub mod profile_set;
pub mod replay;
pub mod status;
pub mod summary;
pub mod table;
pub mod trace;

/// Rows of each table that is sorted by size, in text. Two such tables and what stands above them fit a
/// screen of 40 lines, and in a start the first fifteen files have most of the bytes. `--json` has all rows.
pub const ROWS: usize = 15;
