//! The tracefs back-end: an instance of its own, read as raw per-CPU pages.

use crate::backend::Backend;
use crate::error::RecordError;
use crate::options::Options;

/// The back-end, attached and running.
pub(crate) fn start(_options: &Options) -> Result<Box<dyn Backend>, RecordError> {
    Err(RecordError::Unsupported {
        backend: "tracefs",
        feature: "this build has no tracefs back-end".into(),
        way_out: "use --backend bpf",
    })
}
