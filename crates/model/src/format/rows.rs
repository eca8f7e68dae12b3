//! The tables of a trace, row by row: which columns they have and what is in them.

use super::columns::{Column, Cursor, Recent};
use super::paths::{Paths, Reference};
use crate::PageRange;
use crate::limits::{self, bounded};
use crate::trace::{File, FileState, Lookup, LookupKind, Mapping, MetadataMiss, Use, UseKind};

/// The unit of times, 0.1 ms: no device that is worth reading ahead of answers sooner, and half the size of
/// uses is saved.
pub(super) const TICK_NS: u64 = 100_000;

/// Number of columns of each table.
pub(super) const MAPPINGS: usize = 3;
pub(super) const FILES: usize = 13;
pub(super) const USES: usize = 11;
pub(super) const LOOKUPS: usize = 4;
pub(super) const MISSES: usize = 5;

const NS: i64 = 1_000_000_000;
pub(super) const KINDS: [UseKind; 5] = [
    UseKind::Read,
    UseKind::Map,
    UseKind::Fault,
    UseKind::Add,
    UseKind::Around,
];
const LOOKED_UP: [LookupKind; 4] = [
    LookupKind::Open,
    LookupKind::Stat,
    LookupKind::Link,
    LookupKind::List,
];
const STATES: [FileState; 5] = [
    FileState::Present,
    FileState::Deleted,
    FileState::Replaced,
    FileState::Unreachable,
    FileState::Made,
];

/// The place of a value among those it may have.
pub(super) fn place<T: PartialEq>(choices: &[T], value: &T) -> u64 {
    choices.iter().position(|choice| choice == value).unwrap_or(0) as u64
}

/// The value at a place.
pub(super) fn value_at<T: Copy>(choices: &[T], place: u64) -> Result<T, String> {
    let value = usize::try_from(place).ok().and_then(|at| choices.get(at));
    value.copied().ok_or_else(|| format!("{place} is no choice"))
}

/// Times that grow.
#[derive(Default)]
struct Clock(u64);

impl Clock {
    fn put(&mut self, column: &mut Column, time_ns: u64) {
        let ticks = time_ns / TICK_NS;
        column.step(self.0, ticks);
        self.0 = ticks;
    }

    fn take(&mut self, column: &mut Cursor<'_>) -> Result<u64, String> {
        self.0 = column.step(self.0)?;
        self.0
            .checked_mul(TICK_NS)
            .ok_or_else(|| "a time is out of range".into())
    }
}

/// A table of at most `most` rows, which the column that has one number for each row counts, without a row
/// yet.
pub(super) fn table<T>(what: &str, column: &Cursor<'_>, most: usize) -> Result<Vec<T>, String> {
    let rows = column.rows();
    bounded(what, rows, most)?;
    Ok(Vec::with_capacity(rows))
}

/// The mappings, which stand in order of file and page: of one file, most begin where the one before ends.
pub(super) fn write_mappings(mappings: &[Mapping]) -> [Column; MAPPINGS] {
    let mut columns = <[Column; MAPPINGS]>::default();
    let [file, start, pages] = &mut columns;
    let (mut of, mut end) = (0, 0);
    for mapping in mappings {
        if mapping.file != of {
            end = 0;
        }
        file.step(u64::from(of), u64::from(mapping.file));
        start.step(end, mapping.pages.start);
        pages.number(mapping.pages.end.wrapping_sub(mapping.pages.start));
        (of, end) = (mapping.file, mapping.pages.end);
    }
    columns
}

/// Reads what [`write_mappings`] wrote.
pub(super) fn read_mappings(columns: [Cursor<'_>; MAPPINGS]) -> Result<Vec<Mapping>, String> {
    let [mut file, mut start, mut pages] = columns;
    let (mut of, mut end) = (0, 0);
    let mut mappings = table("mappings", &file, limits::MAPPINGS)?;
    while file.more() {
        let next = file.step(u64::from(of))?;
        let next =
            u32::try_from(next).map_err(|_| format!("mapping {} is of file {next}", mappings.len()))?;
        if next != of {
            end = 0;
        }
        let first = start.step(end)?;
        end = first
            .checked_add(pages.number()?)
            .ok_or_else(|| format!("mapping {} has too large a page number", mappings.len()))?;
        of = next;
        mappings.push(Mapping {
            file: of,
            pages: PageRange { start: first, end },
        });
    }
    Ok(mappings)
}

/// The files; `paths` has the indices of the path and of the overlay's of each.
pub(super) fn write_files(files: &[File], paths: &[(u32, Option<u32>)]) -> [Column; FILES] {
    let mut columns = <[Column; FILES]>::default();
    let [
        path,
        overlay,
        filesystem,
        inode,
        ago,
        generations,
        size,
        when,
        seconds,
        nanos,
        modes_ago,
        modes,
        state,
    ] = &mut columns;
    let (mut reference, mut number) = (Reference::default(), 0);
    let (mut generation, mut second, mut mode) = <(Recent, Recent, Recent)>::default();
    for (file, (index, over)) in files.iter().zip(paths) {
        reference.put(path, *index);
        overlay.number(over.map_or(0, |index| u64::from(index) + 1));
        filesystem.number(file.filesystem.map_or(0, |index| u64::from(index) + 1));
        inode.step(number, file.inode);
        number = file.inode;
        generation.put(ago, generations, u64::from(file.generation));
        size.number(file.size);
        second.put(when, seconds, file.mtime_ns.div_euclid(NS) as u64);
        nanos.number(file.mtime_ns.rem_euclid(NS) as u64);
        mode.put(modes_ago, modes, u64::from(file.mode));
        state.number(place(&STATES, &file.state));
    }
    columns
}

/// Reads what [`write_files`] wrote.
pub(super) fn read_files(columns: [Cursor<'_>; FILES], paths: &mut Paths) -> Result<Vec<File>, String> {
    let [
        mut path,
        mut overlay,
        mut filesystem,
        mut inode,
        mut ago,
        mut generations,
        mut size,
        mut when,
        mut seconds,
        mut nanos,
        mut modes_ago,
        mut modes,
        mut state,
    ] = columns;
    let (mut reference, mut number) = (Reference::default(), 0);
    let (mut generation, mut second, mut mode) = <(Recent, Recent, Recent)>::default();
    let mut files = table("files", &path, limits::FILES)?;
    while path.more() {
        let index = reference.take(&mut path)?;
        number = inode.step(number)?;
        let seconds = second.take(&mut when, &mut seconds)? as i64;
        let nanos = nanos.small::<u32>()?;
        files.push(File {
            filesystem: filesystem.small::<u32>()?.checked_sub(1),
            path: paths.get(index)?,
            overlay: match overlay.number()? {
                0 => None,
                over => Some(paths.get(over - 1)?),
            },
            inode: number,
            generation: u32::try_from(generation.take(&mut ago, &mut generations)?)
                .map_err(|_| "a generation is out of range")?,
            size: size.number()?,
            mtime_ns: seconds
                .checked_mul(NS)
                .and_then(|ns| ns.checked_add(i64::from(nanos)))
                .ok_or("a time of modification is out of range")?,
            mode: u32::try_from(mode.take(&mut modes_ago, &mut modes)?)
                .map_err(|_| "a mode is out of range")?,
            state: value_at(&STATES, state.number()?)?,
        });
    }
    Ok(files)
}

/// Where the last use of each file ended; grows with the files met.
#[derive(Default)]
struct Ends(Vec<u64>);

impl Ends {
    fn get(&self, file: u32) -> u64 {
        self.0.get(file as usize).copied().unwrap_or(0)
    }

    fn set(&mut self, file: u32, end: u64) {
        let index = file as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] = end;
    }
}

/// The uses.
pub(super) fn write_uses(uses: &[Use]) -> [Column; USES] {
    let mut columns = <[Column; USES]>::default();
    let [time, process, ago, files, kind, start, pages @ ..] = &mut columns;
    let (mut clock, mut of, mut file, mut ends) = (Clock::default(), 0, Recent::default(), Ends::default());
    for used in uses {
        clock.put(time, used.time_ns);
        process.step(of, u64::from(used.process));
        of = u64::from(used.process);
        file.put(ago, files, u64::from(used.file));
        let place = place(&KINDS, &used.kind);
        kind.number(place);
        start.step(ends.get(used.file), used.start);
        pages[place as usize].number(u64::from(used.pages));
        ends.set(used.file, used.start.wrapping_add(u64::from(used.pages)));
    }
    columns
}

/// Reads what [`write_uses`] wrote, each of one of `processes` processes and `files` files.
pub(super) fn read_uses(
    columns: [Cursor<'_>; USES],
    processes: usize,
    files: usize,
) -> Result<Vec<Use>, String> {
    let [
        mut time,
        mut process,
        mut ago,
        mut steps,
        mut kind,
        mut start,
        mut pages @ ..,
    ] = columns;
    let (mut clock, mut of, mut file, mut ends) = (Clock::default(), 0, Recent::default(), Ends::default());
    let mut uses = table("uses", &time, limits::USES)?;
    while time.more() {
        let time_ns = clock.take(&mut time)?;
        of = process.step(of)?;
        let number = file.take(&mut ago, &mut steps)?;
        if of >= processes as u64 || number >= files as u64 {
            return Err(format!(
                "use {} is of process {of} and file {number}, which it does not list",
                uses.len()
            ));
        }
        let number = number as u32;
        let place = kind.number()?;
        let kind = value_at(&KINDS, place)?;
        let start = start.step(ends.get(number))?;
        let length = pages[place as usize].small::<u32>()?;
        let end = start.checked_add(u64::from(length)).filter(|_| length > 0);
        ends.set(
            number,
            end.ok_or("a use has no pages or too large a page number")?,
        );
        uses.push(Use {
            time_ns,
            process: of as u32,
            file: number,
            start,
            pages: length,
            kind,
        });
    }
    Ok(uses)
}

/// The look-ups; `paths` has the index of the path of each.
pub(super) fn write_lookups(lookups: &[Lookup], paths: &[u32]) -> [Column; LOOKUPS] {
    let mut columns = <[Column; LOOKUPS]>::default();
    let [time, process, path, kind] = &mut columns;
    let (mut clock, mut of, mut reference) = (Clock::default(), 0, Reference::default());
    for (lookup, index) in lookups.iter().zip(paths) {
        clock.put(time, lookup.time_ns);
        process.step(of, u64::from(lookup.process));
        of = u64::from(lookup.process);
        reference.put(path, *index);
        kind.number(place(&LOOKED_UP, &lookup.kind) * 2 + u64::from(lookup.found));
    }
    columns
}

/// Reads what [`write_lookups`] wrote.
pub(super) fn read_lookups(columns: [Cursor<'_>; LOOKUPS], paths: &mut Paths) -> Result<Vec<Lookup>, String> {
    let [mut time, mut process, mut path, mut kind] = columns;
    let (mut clock, mut of, mut reference) = (Clock::default(), 0, Reference::default());
    let mut lookups = table("look-ups", &time, limits::LOOKUPS)?;
    while time.more() {
        let time_ns = clock.take(&mut time)?;
        of = process.step(of)?;
        let what = kind.number()?;
        lookups.push(Lookup {
            time_ns,
            process: u32::try_from(of).map_err(|_| "a process is out of range")?,
            path: paths.get(reference.take(&mut path)?)?,
            kind: value_at(&LOOKED_UP, what / 2)?,
            found: what % 2 == 1,
        });
    }
    Ok(lookups)
}

/// The metadata misses.
pub(super) fn write_misses(misses: &[MetadataMiss]) -> [Column; MISSES] {
    let mut columns = <[Column; MISSES]>::default();
    let [time, ago, devices, start, pages] = &mut columns;
    let (mut clock, mut device, mut end) = (Clock::default(), Recent::default(), 0);
    for miss in misses {
        clock.put(time, miss.time_ns);
        device.put(ago, devices, u64::from(miss.major) << 32 | u64::from(miss.minor));
        start.step(end, miss.start);
        pages.number(u64::from(miss.pages));
        end = miss.start.wrapping_add(u64::from(miss.pages));
    }
    columns
}

/// Reads what [`write_misses`] wrote.
pub(super) fn read_misses(columns: [Cursor<'_>; MISSES]) -> Result<Vec<MetadataMiss>, String> {
    let [mut time, mut ago, mut devices, mut start, mut pages] = columns;
    let (mut clock, mut device, mut end) = (Clock::default(), Recent::default(), 0u64);
    let mut misses = table("metadata misses", &time, limits::MISSES)?;
    while time.more() {
        let time_ns = clock.take(&mut time)?;
        let number = device.take(&mut ago, &mut devices)?;
        let start = start.step(end)?;
        let pages = pages.small::<u32>()?;
        end = start.wrapping_add(u64::from(pages));
        misses.push(MetadataMiss {
            time_ns,
            major: (number >> 32) as u32,
            minor: number as u32,
            start,
            pages,
        });
    }
    Ok(misses)
}
