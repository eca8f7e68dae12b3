//! The BPF back-end.

use crate::backend::Backend;
use crate::error::RecordError;
use crate::options::Options;

/// The back-end, attached and running.
pub(crate) fn start(_options: &Options) -> Result<Box<dyn Backend>, RecordError> {
    Err(RecordError::Unsupported {
        backend: "BPF",
        feature: "not yet".into(),
        way_out: "use --backend tracefs",
    })
}
