//! headstart-trace(5).

use super::columns::{Column, Cursor, bounded, join, split};
use super::paths::{PathList, Paths};
use super::rows::{self, FILES, LOOKUPS, MAX_FILES, MAX_ROWS, MISSES, TICK_NS, USES};
use super::{Container, FormatError, Kind, MAX_PATH, Writer, addressable};
use crate::trace::{Filesystem, Mark, Process};
use crate::{FilePath, PageRange, Trace};
use serde::{Deserialize, Serialize};

/// The most pages of one metadata miss: a block is at most 64 KiB, and no readahead is near 4 GiB.
const MAX_MISS_PAGES: u64 = 1 << 20;

/// The most mappings: some hundred times those of a boot.
const MAX_MAPPINGS: usize = 1 << 18;

/// The most bytes of one: a file's index and two page numbers.
const MAPPING: usize = 3 + 2 * 8;

/// A process, as it is written: its executable is a path of the list.
#[derive(Serialize, Deserialize)]
struct Ran {
    pid: u32,
    parent: Option<u32>,
    start_ns: u64,
    executable: u32,
}

/// The paths of a trace, and which of them its parts refer to.
#[derive(Default)]
struct Named<'a> {
    list: PathList<'a>,
    processes: Vec<u32>,
    files: Vec<(u32, Option<u32>)>,
    lookups: Vec<u32>,
}

impl<'a> Named<'a> {
    /// Lists the paths as they were met, so that those of one directory stand together.
    fn of(trace: &'a Trace) -> Named<'a> {
        let mut first = vec![u64::MAX; trace.files.len()];
        for used in &trace.uses {
            if let Some(first) = first.get_mut(used.file as usize) {
                *first = used.time_ns.min(*first);
            }
        }
        let files = trace
            .files
            .iter()
            .zip(first)
            .map(|(file, time)| (time, &file.path));
        let lookups = trace.lookups.iter().map(|lookup| (lookup.time_ns, &lookup.path));
        let mut met: Vec<(u64, &FilePath)> = lookups.chain(files).collect();
        met.sort_by_key(|(time, _)| time / TICK_NS);
        let mut list = PathList::default();
        for (_, path) in met {
            list.meet(path);
        }
        let lookups = trace
            .lookups
            .iter()
            .map(|lookup| list.add(&lookup.path))
            .collect();
        let files = trace.files.iter();
        let files = files.map(|file| {
            (
                list.add(&file.path),
                file.overlay.as_ref().map(|path| list.add(path)),
            )
        });
        let files = files.collect();
        let processes = trace
            .processes
            .iter()
            .map(|process| list.add(&process.executable));
        let processes = processes.collect();
        Named {
            list,
            processes,
            files,
            lookups,
        }
    }
}

impl Trace {
    /// The trace as a file. Times of uses, look-ups and metadata misses are rounded down to 0.1 ms.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        let mut file = Writer::new(Kind::Trace);
        let too_large = |what| FormatError::TooLarge {
            kind: Kind::Trace.name(),
            what,
        };
        let bounds = [
            ("files", self.files.len(), MAX_FILES),
            ("mappings", self.mappings.len(), MAX_MAPPINGS),
            ("uses", self.uses.len(), MAX_ROWS),
            ("look-ups", self.lookups.len(), MAX_ROWS),
            ("metadata misses", self.metadata.len(), MAX_ROWS),
        ];
        for (what, rows, most) in bounds {
            bounded(what, rows, most).map_err(too_large)?;
        }
        let named = Named::of(self);
        let processes: Vec<Ran> = (self.processes.iter().zip(&named.processes))
            .map(|(process, executable)| Ran {
                pid: process.pid,
                parent: process.parent,
                start_ns: process.start_ns,
                executable: *executable,
            })
            .collect();
        let rest = (&processes, &self.filesystems, &self.marks);
        file.value(b"META", &(&self.meta, &self.end, &self.lost, rest))?;
        file.value(b"MAPS", &self.mappings)?;
        file.compressed(b"PATH", &join(&named.list.columns().map_err(too_large)?))?;
        let columns: Vec<Column> = (rows::write_files(&self.files, &named.files).into_iter())
            .chain(rows::write_uses(&self.uses))
            .chain(rows::write_lookups(&self.lookups, &named.lookups))
            .chain(rows::write_misses(&self.metadata))
            .collect();
        file.compressed(b"COLS", &join(&columns))?;
        file.finish()
    }

    /// Reads a trace.
    pub fn from_bytes(bytes: &[u8]) -> Result<Trace, FormatError> {
        let file = Container::new(Kind::Trace, bytes)?;
        let (meta, end, lost, rest) = file.value(b"META")?;
        let (ran, filesystems, marks): (Vec<Ran>, Vec<Filesystem>, Vec<Mark>) = rest;
        if file.section(b"MAPS")?.len() > MAX_MAPPINGS * MAPPING {
            return Err(file.damaged("it has too many mappings"));
        }
        let mappings = file.value(b"MAPS")?;
        let (paths, columns) = (file.section(b"PATH")?, file.section(b"COLS")?);
        let read = || -> Result<Trace, String> {
            let mut paths = Paths::read(split(&paths)?)?;
            let processes: Result<Vec<Process>, String> = ran
                .into_iter()
                .map(|ran| {
                    Ok(Process {
                        pid: ran.pid,
                        parent: ran.parent,
                        start_ns: ran.start_ns,
                        executable: paths.get(u64::from(ran.executable))?,
                    })
                })
                .collect();
            let mut columns = split::<{ FILES + USES + LOOKUPS + MISSES }>(&columns)?.into_iter();
            let processes = processes?;
            let files = rows::read_files(next(&mut columns)?, &mut paths)?;
            let uses = rows::read_uses(next(&mut columns)?, processes.len(), files.len())?;
            let lookups = rows::read_lookups(next(&mut columns)?, &mut paths)?;
            let metadata = rows::read_misses(next(&mut columns)?)?;
            let trace = Trace {
                meta,
                end,
                lost,
                processes,
                filesystems,
                files,
                mappings,
                uses,
                lookups,
                metadata,
                marks,
            };
            trace.check()?;
            Ok(trace)
        };
        read().map_err(|what| file.damaged(what))
    }
}

/// The next columns, as many as a table has.
fn next<'a, const N: usize>(
    columns: &mut impl Iterator<Item = Cursor<'a>>,
) -> Result<[Cursor<'a>; N], String> {
    let table: Vec<_> = columns.take(N).collect();
    table.try_into().map_err(|_| "columns are missing".into())
}

impl Trace {
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
        for (index, mapping) in self.mappings.iter().enumerate() {
            let PageRange { start, end } = mapping.pages;
            if mapping.file as usize >= self.files.len()
                || start >= end
                || !addressable(start, end - start, self.meta.page_size)
            {
                return Err(format!("mapping {index} is of no file or of impossible pages"));
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
