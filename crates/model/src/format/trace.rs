//! headstart-trace(5).

use super::{Container, FormatError, Kind, MAX_PATH, Writer, addressable, uses};
use crate::Trace;

/// The most pages of one metadata miss: a block is at most 64 KiB, and no readahead is near 4 GiB.
const MAX_MISS_PAGES: u64 = 1 << 20;

impl Trace {
    /// The trace as a file. Times of uses are rounded down to microseconds.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        let mut file = Writer::new(Kind::Trace);
        file.value(b"META", &(&self.meta, &self.end, &self.lost))?;
        file.value(b"PROC", &self.processes)?;
        file.value(b"FSYS", &self.filesystems)?;
        file.value(b"FILE", &self.files)?;
        file.compressed(b"USES", &uses::encode(&self.uses))?;
        file.value(b"LOOK", &self.lookups)?;
        file.value(b"MISS", &self.metadata)?;
        file.value(b"MARK", &self.marks)?;
        file.finish()
    }

    /// Reads a trace.
    pub fn from_bytes(bytes: &[u8]) -> Result<Trace, FormatError> {
        let file = Container::new(Kind::Trace, bytes)?;
        let (meta, end, lost) = file.value(b"META")?;
        let mut trace = Trace {
            meta,
            end,
            lost,
            processes: file.value(b"PROC")?,
            filesystems: file.value(b"FSYS")?,
            files: file.value(b"FILE")?,
            uses: Vec::new(),
            lookups: file.value(b"LOOK")?,
            metadata: file.value(b"MISS")?,
            marks: file.value(b"MARK")?,
        };
        trace.uses = uses::decode(&file.section(b"USES")?, trace.processes.len(), trace.files.len())
            .map_err(|what| file.damaged(what))?;
        trace.check().map_err(|what| file.damaged(what))?;
        Ok(trace)
    }

    /// Whether every index leads somewhere and every value is in its range.
    fn check(&self) -> Result<(), String> {
        if !self.meta.page_size.is_power_of_two() || !(4096..=65536).contains(&self.meta.page_size) {
            return Err(format!("pages of {} bytes", self.meta.page_size));
        }
        let processes = self.processes.len() as u64;
        for (index, process) in self.processes.iter().enumerate() {
            if process.parent.is_some_and(|p| u64::from(p) >= processes) {
                return Err(format!("process {index} has a parent that is not listed"));
            }
        }
        for (index, file) in self.files.iter().enumerate() {
            if file
                .filesystem
                .is_some_and(|f| f as usize >= self.filesystems.len())
            {
                return Err(format!("file {index} is on a file system that is not listed"));
            }
            let paths = [Some(&file.path), file.overlay.as_ref()];
            if paths
                .into_iter()
                .flatten()
                .any(|p| p.as_bytes().len() >= MAX_PATH || p.as_bytes().contains(&0))
            {
                return Err(format!("file {index} has an impossible path"));
            }
        }
        for (index, used) in self.uses.iter().enumerate() {
            if !addressable(used.start, u64::from(used.pages), self.meta.page_size) {
                return Err(format!("use {index} is beyond the largest file"));
            }
        }
        for (index, miss) in self.metadata.iter().enumerate() {
            let pages = u64::from(miss.pages);
            if pages > MAX_MISS_PAGES || !addressable(miss.start, pages, self.meta.page_size) {
                return Err(format!(
                    "metadata miss {index} has too many pages or is beyond the largest device"
                ));
            }
        }
        for (index, lookup) in self.lookups.iter().enumerate() {
            if u64::from(lookup.process) >= processes || !super::usable(&lookup.path) {
                return Err(format!("lookup {index} has no process or an impossible path"));
            }
        }
        Ok(())
    }
}
