//! What can go wrong, and the way out.

use std::io;
use std::path::{Path, PathBuf};

/// Why something could not be kept or found.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused.
    #[error("cannot {doing} {}: {source}{}", path.display(), way_out(source))]
    Io {
        /// What was being done, as a verb.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is not a regular file.
    #[error("{} is no regular file: give the path of one", .0.display())]
    NotRegular(PathBuf),
    /// It is larger than any file of headstart's.
    #[error("{} has {size} bytes, at most {limit} are read: is it the right file?", path.display())]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// What should be written could not be encoded.
    #[error(transparent)]
    Format(#[from] headstart_model::format::FormatError),
    /// There is no place for state.
    #[error(
        "there is no place to remember anything: neither HOME nor XDG_STATE_HOME is set; use --state DIR"
    )]
    NoPlace,
}

impl StoreError {
    pub(crate) fn io(doing: &'static str, path: &Path, source: impl Into<io::Error>) -> StoreError {
        StoreError::Io {
            doing,
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

fn way_out(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "; run as root or use --state DIR",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; the old file stays",
        io::ErrorKind::ReadOnlyFilesystem => "; use --state DIR on a writable file system",
        _ => "",
    }
}
