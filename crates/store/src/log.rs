//! The log of background work: lines of text, bounded.

use crate::StoreError;
use crate::file;
use rustix::fs::{CWD, Mode, OFlags};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Beyond this many bytes the log is moved to `log.old` and begun anew.
const MAX_LOG: u64 = 1 << 20;

/// The log file of a state directory.
#[derive(Clone, Debug)]
pub struct Log(PathBuf);

impl Log {
    pub(crate) fn new(path: PathBuf) -> Log {
        Log(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Opens it for appending.
    pub fn open(&self) -> Result<File, StoreError> {
        if let Some(parent) = self.0.parent() {
            file::make_directory(parent)?;
        }
        if std::fs::symlink_metadata(&self.0).is_ok_and(|m| m.len() > MAX_LOG) {
            std::fs::rename(&self.0, self.0.with_extension("old"))
                .map_err(|e| StoreError::io("move", &self.0, e))?;
        }
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, &self.0, flags | OFlags::NONBLOCK, Mode::RUSR | Mode::WUSR)
            .map(File::from)
            .map_err(|e| StoreError::io("open", &self.0, e))
    }

    /// Appends a line.
    pub fn line(&self, text: &str) -> Result<(), StoreError> {
        let text = format!("{}\n", text.replace('\n', " "));
        self.open()?
            .write_all(text.as_bytes())
            .map_err(|e| StoreError::io("write", &self.0, e))
    }
}
