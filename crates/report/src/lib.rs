//! What headstart shows: tables for people and, where the model's own types are not already the document, serializable
//! views for `--json`. Pure: no system call, no clock; the time to compare with is an argument.

pub mod diff;
pub mod explain;
pub mod export;
pub mod floor;
pub use headstart_model::human;
pub mod outcome;
pub mod plan;
pub mod profile;
pub mod replay;
pub mod status;
pub mod table;
pub mod trace;

/// How much of a file to show.
#[derive(Clone, Copy, Debug)]
pub struct Detail {
    /// Rows of each table of things sorted by their size.
    pub top: usize,
    /// Whether every file's page ranges are listed.
    pub pages: bool,
}

impl Default for Detail {
    fn default() -> Detail {
        Detail {
            top: 15,
            pages: false,
        }
    }
}
