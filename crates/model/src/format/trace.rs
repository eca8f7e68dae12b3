//! headstart-trace(5).

use super::activity::{self, ACTIVITY};
use super::ahead::{self, AHEAD};
use super::columns::{Column, Cursor, join, split};
use super::paths::{PathList, Paths};
use super::rows::{self, FILES, LOOKUPS, MAPPINGS, MISSES, TICK_NS, USES};
use super::values::Values;
use super::windows::{self, WINDOWS};
use super::{Container, FormatError, Kind, Writer, addressable, is_page_size, refused, stage_name};
use crate::limits::{self, bounded};
use crate::sort::Sort;
use crate::trace::{End, Filesystem, Lost, Mark, Meta, Process};
use crate::{FilePath, PageRange, Trace};
use serde::{Deserialize, Serialize};

/// The last major version without WIND.
const WITHOUT_WINDOWS: u16 = 4;

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
struct NameTable<'a> {
    list: PathList<'a>,
    processes: Vec<u32>,
    files: Vec<(u32, Option<u32>)>,
    lookups: Vec<u32>,
}

impl<'a> NameTable<'a> {
    /// Lists the paths as they were met, so that those of one directory stand together.
    fn from_trace(trace: &'a Trace) -> NameTable<'a> {
        let mut first = vec![u64::MAX; trace.files.len()];
        let windows = trace.windows.iter().map(|row| (row.file, row.time_ns));
        let uses = trace.uses.iter().map(|used| (used.file, used.time_ns));
        for (file, time_ns) in windows.chain(uses) {
            if let Some(first) = first.get_mut(file as usize) {
                *first = time_ns.min(*first);
            }
        }
        let files = trace
            .files
            .iter()
            .zip(first)
            .map(|(file, time)| (time, &file.path));
        let lookups = trace.lookups.iter().map(|lookup| (lookup.time_ns, &lookup.path));
        let mut met: Vec<(u64, &FilePath)> = lookups.chain(files).collect();
        met.sort_small_by_key(|(time, _)| time / TICK_NS);
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
        NameTable {
            list,
            processes,
            files,
            lookups,
        }
    }
}

fn too_large(what: String) -> FormatError {
    FormatError::TooLarge {
        kind: Kind::Trace.name(),
        what,
    }
}

/// Of a command the first words, as many as may be written.
fn first_words(command: &[String]) -> &[String] {
    let mut left = limits::WORD_BYTES;
    let fits = |word: &&String| {
        let fits = word.len() <= left;
        left -= word.len().min(left);
        fits
    };
    let count = command.iter().take(limits::WORDS).take_while(fits).count();
    &command[..count]
}

impl Trace {
    /// The trace as a file. Times of uses, look-ups and metadata misses are rounded down to 0.1 ms, those of
    /// the activity to 1 us; of a command longer than [`limits::WORDS`] or [`limits::WORD_BYTES`] the first
    /// words are written. What a reader would refuse is an error.
    pub fn to_bytes(&self) -> Result<Vec<u8>, FormatError> {
        self.check().map_err(too_large)?;
        self.written()
    }

    /// The file, unchecked.
    pub(crate) fn written(&self) -> Result<Vec<u8>, FormatError> {
        let file = Writer::new(Kind::Trace);
        // Who does not know WIND would take its pages for unused.
        let mut file = match self.windows.is_empty() {
            true => file.of_major(WITHOUT_WINDOWS),
            false => file,
        };
        let named = NameTable::from_trace(self);
        let processes: Vec<Ran> = (self.processes.iter().zip(&named.processes))
            .map(|(process, executable)| Ran {
                pid: process.pid,
                parent: process.parent,
                start_ns: process.start_ns,
                executable: *executable,
            })
            .collect();
        let Meta {
            started_unix_ns,
            kernel,
            page_size,
            backend,
            evidence,
            scope,
            command,
            recorder,
            replayed,
        } = &self.meta;
        let before = (started_unix_ns, kernel, page_size, backend, evidence, scope);
        let meta = (before, first_words(command), recorder, replayed);
        let rest = (&processes, &self.filesystems, &self.marks);
        file.value(b"META", &(meta, &self.end, &self.lost, rest), limits::META)?;
        let mappings = join(&rows::write_mappings(&self.mappings));
        file.compressed(b"MMAP", &mappings, limits::MMAP)?;
        let paths = join(&named.list.columns().map_err(too_large)?);
        file.compressed(b"PATH", &paths, limits::PATH_SECTION)?;
        let columns: Vec<Column> = (rows::write_files(&self.files, &named.files).into_iter())
            .chain(rows::write_uses(&self.uses))
            .chain(rows::write_lookups(&self.lookups, &named.lookups))
            .chain(rows::write_misses(&self.metadata))
            .collect();
        file.compressed(b"COLS", &join(&columns), limits::COLS)?;
        drop(columns);
        if !self.windows.is_empty() {
            file.compressed(b"WIND", &join(&windows::write(&self.windows)), limits::WIND)?;
        }
        if let Some(activity) = &self.activity {
            let columns = activity::write(activity, &self.processes);
            file.compressed(b"ACTV", &join(&columns), limits::ACTV)?;
        }
        if let Some(ahead) = &self.ahead {
            file.compressed(b"AHED", &join(&ahead::write(ahead)), limits::AHED)?;
        }
        file.finish()
    }

    /// Reads a trace.
    pub fn from_bytes(bytes: &[u8]) -> Result<Trace, FormatError> {
        let file = Container::new(Kind::Trace, bytes)?;
        let (meta, end, lost, ran, filesystems, marks) = file.values(b"META", limits::META, read_meta)?;
        let mappings = if file.has(b"MAPS") {
            file.values(b"MAPS", limits::MAPS, |v| v.list("mappings", limits::MAPPINGS))?
        } else {
            let section = file.section(b"MMAP", limits::MMAP)?;
            let read = || rows::read_mappings(split::<MAPPINGS>(&section)?);
            read().map_err(|what| file.damaged(what))?
        };
        let mut paths = {
            let section = file.section(b"PATH", limits::PATH_SECTION)?;
            let read = || Paths::read(split(&section)?);
            read().map_err(|what| file.damaged(what))?
        };
        let columns = file.section(b"COLS", limits::COLS)?;
        let read = || -> Result<Trace, String> {
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
            Ok(Trace {
                meta,
                end,
                lost,
                processes,
                filesystems,
                files,
                mappings,
                uses,
                windows: Vec::new(),
                lookups,
                metadata,
                marks,
                activity: None,
                ahead: None,
            })
        };
        let mut trace = read().map_err(|what| file.damaged(what))?;
        drop(columns);
        drop(paths);
        let damaged = |what| file.damaged(what);
        if file.has(b"WIND") {
            let columns = file.section(b"WIND", limits::WIND)?;
            let columns = split::<WINDOWS>(&columns).map_err(damaged)?;
            trace.windows = windows::read(columns).map_err(damaged)?;
        }
        if file.has(b"ACTV") {
            let columns = file.section(b"ACTV", limits::ACTV)?;
            let columns = split::<ACTIVITY>(&columns).map_err(damaged)?;
            trace.activity = Some(activity::read(columns, &trace).map_err(damaged)?);
        }
        if file.has(b"AHED") {
            let columns = file.section(b"AHED", limits::AHED)?;
            let columns = split::<AHEAD>(&columns).map_err(damaged)?;
            trace.ahead = Some(ahead::read(columns).map_err(damaged)?);
        }
        trace.check().map_err(damaged)?;
        Ok(trace)
    }
}

/// What META holds.
type Head = (Meta, End, Lost, Vec<Ran>, Vec<Filesystem>, Vec<Mark>);

fn read_meta(values: &mut Values<'_>) -> Result<Head, String> {
    let (started_unix_ns, kernel, page_size, backend, evidence, scope) = values.one()?;
    let command = values.list("words of the command", limits::WORDS)?;
    let (recorder, replayed, end, lost) = values.one()?;
    let meta = Meta {
        started_unix_ns,
        kernel,
        page_size,
        backend,
        evidence,
        scope,
        command,
        recorder,
        replayed,
    };
    Ok((
        meta,
        end,
        lost,
        values.list("processes", limits::PROCESSES)?,
        values.list("file systems", limits::FILESYSTEMS)?,
        values.list("stage marks", limits::MARKS)?,
    ))
}

/// The next columns, as many as a table has.
fn next<'a, const N: usize>(
    columns: &mut impl Iterator<Item = Cursor<'a>>,
) -> Result<[Cursor<'a>; N], String> {
    let table: Vec<_> = columns.take(N).collect();
    table.try_into().map_err(|_| "columns are missing".into())
}

impl Trace {
    /// Whether every path has one spelling, every index leads somewhere and every value is in its range.
    fn check(&self) -> Result<(), String> {
        for (what, rows, most) in [
            ("processes", self.processes.len(), limits::PROCESSES),
            ("file systems", self.filesystems.len(), limits::FILESYSTEMS),
            ("stage marks", self.marks.len(), limits::MARKS),
            ("files", self.files.len(), limits::FILES),
            ("mappings", self.mappings.len(), limits::MAPPINGS),
            ("uses", self.uses.len(), limits::USES),
            ("look-ups", self.lookups.len(), limits::LOOKUPS),
            ("metadata misses", self.metadata.len(), limits::MISSES),
        ] {
            bounded(what, rows, most)?;
        }
        windows::check(self)?;
        if let Some(activity) = &self.activity {
            activity::check(activity, self)?;
        }
        if !is_page_size(self.meta.page_size) {
            return Err(format!("pages of {} bytes", self.meta.page_size));
        }
        for mark in &self.marks {
            stage_name(&mark.stage)?;
        }
        self.check_paths()?;
        if let Some(ahead) = &self.ahead {
            ahead::check(ahead, self)?;
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
            if pages > limits::MISS_PAGES as u64 || !addressable(miss.start, pages, self.meta.page_size) {
                return Err(format!(
                    "metadata miss {index} has too many pages or is beyond the largest device"
                ));
            }
        }
        for (index, lookup) in self.lookups.iter().enumerate() {
            if u64::from(lookup.process) >= processes {
                return Err(format!("look-up {index} is of a process that is not listed"));
            }
        }
        Ok(())
    }

    /// Whether every path has one spelling. Empty may be the executable of a process that is unknown, and the
    /// path of a file on a file system that is mounted nowhere: they name nothing.
    fn check_paths(&self) -> Result<(), String> {
        let one = |what: &str, index: usize, path: &FilePath| {
            let bad = |why| refused(format!("{what} {index}"), path.as_bytes(), why);
            path.check().map_err(bad)
        };
        for (index, process) in self.processes.iter().enumerate() {
            if process.executable != FilePath::default() {
                one("process", index, &process.executable)?;
            }
        }
        for (index, filesystem) in self.filesystems.iter().enumerate() {
            one("file system", index, &filesystem.mount_point)?;
        }
        for (index, file) in self.files.iter().enumerate() {
            if file.filesystem.is_some() || file.path != FilePath::default() {
                one("file", index, &file.path)?;
            }
            if let Some(overlay) = &file.overlay {
                one("file", index, overlay)?;
            }
        }
        for (index, lookup) in self.lookups.iter().enumerate() {
            one("look-up", index, &lookup.path)?;
        }
        Ok(())
    }
}
