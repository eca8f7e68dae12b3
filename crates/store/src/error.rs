//! What can go wrong, and the way out.

use std::io;
use std::path::{Path, PathBuf};

/// Why something could not be kept or found.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system refused.
    #[error("cannot {doing} {}: {error}{}", path.display(), way_out(error))]
    Io {
        /// What was being done, as a verb.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's error; said above, and so no source that whoever prints all sources would say again.
        error: io::Error,
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
    /// Somebody holds what is written under, and does not let go.
    #[error("{} is held by another process of headstart's that does not end: end the one that `fuser` names", .0.display())]
    Locked(PathBuf),
    /// A link or something else stands where a directory of the state's should be.
    #[error("{} is no directory: remove it", .0.display())]
    NoDirectory(PathBuf),
    /// There is no place for state.
    #[error(
        "there is no place to remember anything: neither HOME nor XDG_STATE_HOME is set; use --state DIR"
    )]
    NoPlace,
}

impl StoreError {
    pub(crate) fn io(doing: &'static str, path: &Path, error: impl Into<io::Error>) -> StoreError {
        StoreError::Io {
            doing,
            path: path.to_owned(),
            error: error.into(),
        }
    }
}

fn way_out(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run as root or use --state DIR",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; make room there",
        io::ErrorKind::ReadOnlyFilesystem => "; use --state DIR on a writable file system",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_system_is_said_once() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = StoreError::io("write", Path::new("/state/x"), full);
        assert_eq!(
            error.to_string(),
            "cannot write /state/x: no storage space; make room there"
        );
        // Whoever prints an error with its sources prints nothing twice.
        assert!(std::error::Error::source(&error).is_none());
    }
}
