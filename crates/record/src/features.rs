//! What this kernel offers to a recorder, for `headstart doctor`.

use headstart_model::trace::{Backend, Evidence};

/// One thing a recorder may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// What it is, such as `tracepoint mm_filemap_get_pages`.
    pub name: String,
    /// Whether this kernel offers it to this process.
    pub present: bool,
    /// What it is for, or what its absence means.
    pub note: String,
}

/// What this kernel offers to a recorder, and what would record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Features {
    /// Everything looked at.
    pub features: Vec<Feature>,
    /// What would record with `--backend auto`, and what its events would mean; `None` if nothing can.
    pub chosen: Option<(Backend, Evidence)>,
    /// Why.
    pub because: String,
}

/// Looks at this kernel. Changes nothing.
pub fn features() -> Features {
    Features {
        features: Vec::new(),
        chosen: None,
        because: String::new(),
    }
}
