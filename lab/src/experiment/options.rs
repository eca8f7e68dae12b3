//! What the caller of an experiment decides, beside what its file says.

use std::path::PathBuf;

/// How to run an experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its directory.
    pub out: PathBuf,
    /// The headstart binary.
    pub headstart: PathBuf,
    /// An earlier build of it, measured in the same rounds; see
    /// [`Experiment::with_earlier_build`](super::Experiment::with_earlier_build).
    pub earlier: Option<PathBuf>,
    /// Go on in a directory begun by another experiment file or binary.
    pub mixed: bool,
    /// Forget what the directory holds of earlier runs.
    pub again: bool,
}
