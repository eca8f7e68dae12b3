//! The files of a plan: opened when a request first needs them, checked against the plan, and kept open while
//! descriptors last.

use crate::request::Reason;
use headstart_model::plan::{Plan, PlanFileEntry};
use headstart_model::{FilePath, PageRange};
use headstart_system::files::{Stat, Type};
use headstart_system::handle_opener::HandleOpener;
use headstart_system::mounts::{MountTable, inodes_last};
use headstart_system::open::{
    Expect, Opened, Skip, may_be_searched_by, open_checked, open_pinned, pin, pin_on_the_way,
};
use headstart_system::open_cost;
use headstart_system::residency;
use rustix::fs::{Advice, RawDir};
use rustix::process::{Resource, getrlimit};
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Bytes of one getdents64(2): as the C library's.
const ENTRIES: usize = 32 << 10;
/// Descriptors left to the rest of the process: a recorder's maps and links are a few dozen.
const OTHERS: usize = 64;

/// An open regular file, as planned.
#[derive(Debug)]
pub struct PlannedFile {
    fd: OwnedFd,
    /// Size, bytes.
    pub size: u64,
    /// Whether cachestat(2) tells of it: on an overlay it looks at the overlay's own, empty, mapping.
    counted: bool,
}

impl From<PlannedFile> for OwnedFd {
    fn from(file: PlannedFile) -> OwnedFd {
        file.fd
    }
}

impl PlannedFile {
    /// A file that is open, of which cachestat(2) tells (`counted`) or not.
    pub fn new(opened: Opened, counted: bool) -> PlannedFile {
        PlannedFile {
            fd: opened.fd,
            size: opened.stat.size,
            counted,
        }
    }

    /// Its descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Pages of `[offset, offset + length)` that are in memory.
    pub fn resident(&self, offset: u64, length: u64) -> std::io::Result<Vec<PageRange>> {
        resident(self.fd(), self.counted, offset, length)
    }

    /// Whether pages of `[offset, offset + length)` are in the cache and were not read: on their way, or not
    /// to be read. cachestat(2) counts them, mincore(2) does not; where only one of both tells, nothing is
    /// known.
    pub fn has_empty_pages(&self, offset: u64, length: u64) -> bool {
        let cached = match residency::cachestat(self.fd(), offset, length) {
            Ok(counts) if self.counted && length > 0 => counts.cache,
            _ => return false,
        };
        let read = residency::resident(self.fd(), offset, length);
        read.is_ok_and(|ranges| ranges.iter().map(|range| range.end - range.start).sum::<u64>() < cached)
    }

    /// Number of pages of `[offset, offset + length)` in memory.
    pub fn resident_pages(&self, offset: u64, length: u64) -> u64 {
        if self.counted {
            return residency::resident_pages(self.fd(), offset, length).unwrap_or(0);
        }
        self.resident(offset, length)
            .map_or(0, |ranges| ranges.iter().map(PageRange::pages).sum())
    }
}

/// The resident pages of a range: asks the cheap question (all, or none?) first. Pages on their way count as
/// resident where cachestat(2) answers (`counted`), mincore(2) counts only those that have arrived.
fn resident(fd: BorrowedFd<'_>, counted: bool, offset: u64, length: u64) -> std::io::Result<Vec<PageRange>> {
    let page = rustix::param::page_size() as u64;
    let range = PageRange {
        start: offset / page,
        end: (offset + length).div_ceil(page),
    };
    if counted && length > 0 {
        match residency::cachestat(fd, offset, length).map(|c| c.cache) {
            Ok(0) => return Ok(Vec::new()),
            Ok(pages) if pages >= range.pages() => return Ok(vec![range]),
            _ => {}
        }
    }
    let ranges = residency::resident(fd, offset, length)?;
    Ok(ranges
        .into_iter()
        .map(|r| PageRange {
            start: r.start,
            end: r.end,
        })
        .collect())
}

/// A place for an open file.
#[derive(Default)]
struct Slot {
    /// Kept open to the end of the replay.
    kept: Option<Arc<PlannedFile>>,
    /// Open as long as somebody reads from it.
    used: Weak<PlannedFile>,
    /// Why it cannot be opened; not tried again.
    refused: Option<Reason>,
}

impl Slot {
    /// The file or why there is none; `None` if it has to be opened.
    fn known(&self) -> Option<Result<Arc<PlannedFile>, Reason>> {
        match self.refused {
            Some(reason) => Some(Err(reason)),
            None => self.kept.clone().or_else(|| self.used.upgrade()).map(Ok),
        }
    }
}

/// What was found at a path.
pub type Pinned<'a> = Result<(BorrowedFd<'a>, Stat), Skip>;

/// What a look-up comes to, with which a symbolic link is read.
pub fn looked_up(pinned: Pinned<'_>) -> Result<(), Reason> {
    match pinned.map_err(Reason::from) {
        Ok((pin, stat)) => {
            if stat.kind == Type::Symlink {
                let _ = rustix::fs::readlinkat(pin, c"", Vec::new());
            }
            Ok(())
        }
        Err(Reason::Missing) => Ok(()),
        Err(reason) => Err(reason),
    }
}

/// What a file has to be in order to be the planned one. Inode number and generation tell one file from
/// another, which may have grown or been written since: what it has of the planned pages is read. Without a
/// generation (0) nothing else than its size and time tells that no other file has got the inode number; and
/// where no inode number lasts, nothing else than those tells at all.
pub fn expect(
    mounts: &MountTable,
    entry: &PlanFileEntry,
    generation: Option<u32>,
    reader: Option<u32>,
) -> Expect {
    let known = entry.generation != 0;
    let fstype = || {
        mounts
            .lookup(entry.path.as_bytes())
            .map(|mount| mount.fstype.as_str())
    };
    let lasts = known || fstype().is_none_or(inodes_last);
    Expect {
        inode: Some(entry.inode).filter(|_| lasts),
        size: Some(entry.size).filter(|_| !known),
        mtime_ns: Some(entry.mtime_ns).filter(|_| !known),
        generation,
        reader,
    }
}

/// The most descriptors that this process may have, or 65,536 if that is less.
pub fn descriptors() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    limit.min(1 << 16) as usize
}

/// How many of them may be open only because they are read from, at best: half are for those that are kept
/// open.
pub fn descriptors_in_use() -> usize {
    (descriptors() / 2).saturating_sub(OTHERS)
}

/// Has the kernel make room for so many further open files, as far as this process may have them. Later, when
/// its threads share the table of descriptors, the kernel would wait for all processors each time that the
/// table grows (synchronize_rcu, some 10 ms), and whoever opens a file meanwhile would wait with it, as if it
/// were being scanned. While there is one thread nothing waits.
pub fn make_room(files: usize) {
    let last = descriptors().min(files + OTHERS).saturating_sub(1);
    drop(rustix::io::fcntl_dupfd_cloexec(
        rustix::stdio::stderr(),
        last as i32,
    ));
}

/// All files of a plan.
pub struct Files<'a> {
    plan: Plan<'a>,
    mounts: &'a MountTable,
    /// For each device of the plan, a way past its directories, if that is how its files are opened.
    openers: &'a [Option<HandleOpener>],
    /// Who has to be allowed to read them.
    reader: Option<u32>,
    /// By directory, whether that is so of what is in it.
    reached: Mutex<HashMap<FilePath, bool>>,
    slots: Vec<Mutex<Slot>>,
    /// How many more files may be kept open.
    room: AtomicUsize,
    /// How many were opened.
    opened: AtomicU32,
    overlays: bool,
}

impl<'a> Files<'a> {
    /// The files of a plan, none open; `openers` are by the plan's devices.
    ///
    /// At most half of the descriptors that this process may have are used to keep files open, `in_use` are
    /// left to those being read from. No file is opened that `reader` may not read, by its own permissions
    /// and those of the directories on the way. The limit is not raised: the started program would inherit
    /// it.
    pub fn new(
        plan: Plan<'a>,
        mounts: &'a MountTable,
        openers: &'a [Option<HandleOpener>],
        in_use: usize,
        reader: Option<u32>,
    ) -> Files<'a> {
        let limit = descriptors();
        let room = limit.saturating_sub(in_use + OTHERS).min(limit / 2);
        Files {
            plan,
            mounts,
            openers,
            reader,
            reached: Mutex::default(),
            slots: (0..plan.file_count()).map(|_| Mutex::default()).collect(),
            room: AtomicUsize::new(room),
            opened: AtomicU32::new(0),
            overlays: mounts.all().iter().any(|m| m.overlay.is_some()),
        }
    }

    /// The file of that index, open.
    pub fn get(&self, index: u32) -> Result<Arc<PlannedFile>, Reason> {
        let mut slot = self.slot(index)?;
        match slot.known() {
            Some(known) => known,
            None => self.fill(&mut slot, self.open(index)),
        }
    }

    /// Whether nobody has tried to open it, or it is closed again.
    pub fn vacant(&self, index: u32) -> bool {
        self.slot(index).is_ok_and(|slot| slot.known().is_none())
    }

    /// Whether it is kept open to the end.
    pub fn keeps(&self, index: u32) -> bool {
        self.slot(index).is_ok_and(|slot| slot.kept.is_some())
    }

    /// Opens the file of that index from where it was pinned, unless somebody else has.
    pub fn offer(&self, index: u32, pinned: Pinned<'_>) {
        let Ok(mut slot) = self.slot(index) else { return };
        if slot.known().is_none() {
            let file = pinned
                .map_err(Reason::from)
                .and_then(|(pin, stat)| self.accept(&self.entry(index)?, pin, stat));
            let _ = self.fill(&mut slot, file);
        }
    }

    fn slot(&self, index: u32) -> Result<MutexGuard<'_, Slot>, Reason> {
        let slot = self.slots.get(index as usize).ok_or(Reason::Missing)?;
        Ok(slot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn fill(&self, slot: &mut Slot, file: Result<PlannedFile, Reason>) -> Result<Arc<PlannedFile>, Reason> {
        let file = Arc::new(file.inspect_err(|reason| slot.refused = Some(*reason))?);
        let take = |room: usize| room.checked_sub(1);
        match self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => slot.kept = Some(Arc::clone(&file)),
            Err(_) => slot.used = Arc::downgrade(&file),
        }
        Ok(file)
    }

    /// The plan that they are of.
    pub fn plan(&self) -> Plan<'_> {
        self.plan
    }

    /// Its inode number as planned, 0 if there is no such file.
    pub fn inode(&self, index: u32) -> u64 {
        self.entry(index).map_or(0, |entry| entry.inode)
    }

    /// Its size as planned, bytes; 0 if there is no such file.
    pub fn size(&self, index: u32) -> u64 {
        self.entry(index).map_or(0, |entry| entry.size)
    }

    fn entry(&self, index: u32) -> Result<PlanFileEntry, Reason> {
        self.plan.file(index as usize).ok_or(Reason::Missing)
    }

    /// Where it is, as planned; `None` if there is no such file.
    pub fn path(&self, index: u32) -> Option<PathBuf> {
        Some(self.entry(index).ok()?.path.as_path().to_path_buf())
    }

    /// The same, if the reader may go all the way there.
    pub fn way(&self, index: u32) -> Option<PathBuf> {
        self.check_way(&self.entry(index).ok()?.path).ok()?;
        self.path(index)
    }

    /// Whether it is read for a user, as far as that user may.
    pub fn has_reader(&self) -> bool {
        self.reader.is_some()
    }

    fn open(&self, index: u32) -> Result<PlannedFile, Reason> {
        let entry = self.entry(index)?;
        self.check_way(&entry.path)?;
        self.check_cost()?;
        if let Some(file) = self.open_by_handle(&entry) {
            return Ok(file);
        }
        let (pin, stat) = pin(self.mounts, entry.path.as_path())?;
        self.accept(&entry, pin.as_fd(), stat)
    }

    /// `None` also for what has changed: its path tells how.
    fn open_by_handle(&self, entry: &PlanFileEntry) -> Option<PlannedFile> {
        let opener = self.openers.get(usize::from(entry.device))?.as_ref()?;
        let expect = self.expect(entry, Some(entry.generation));
        self.opened.fetch_add(1, Ordering::Relaxed);
        let opened = opener.open(self.mounts, entry.path.as_path(), &expect).ok()?;
        self.planned(entry, opened).ok()
    }

    fn accept(&self, entry: &PlanFileEntry, pin: BorrowedFd<'_>, stat: Stat) -> Result<PlannedFile, Reason> {
        self.check_way(&entry.path)?;
        self.check_cost()?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        // 0 stands for unknown.
        let expect = self.expect(entry, Some(entry.generation).filter(|g| *g != 0));
        self.planned(entry, open_pinned(pin, stat, &expect)?)
    }

    fn expect(&self, entry: &PlanFileEntry, generation: Option<u32>) -> Expect {
        expect(self.mounts, entry, generation, self.reader)
    }

    /// Where somebody looks at each file that is opened only some are.
    fn check_cost(&self) -> Result<(), Reason> {
        let is_enough = self.opened.load(Ordering::Relaxed) >= open_cost::AT_LEAST;
        match is_enough && open_cost::dear().is_some() {
            true => Err(Reason::Stopped),
            false => Ok(()),
        }
    }

    /// Whether the reader may go all the way to what is at a path.
    fn check_way(&self, path: &FilePath) -> Result<(), Reason> {
        let Some(reader) = self.reader else { return Ok(()) };
        let reached = || self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        let mut way = Vec::new();
        let mut open = true;
        let parent = |path: &FilePath| path.parent();
        for directory in std::iter::successors(parent(path), parent) {
            let known = reached().get(&directory).copied();
            if let Some(known) = known {
                open = known;
                break;
            }
            way.push(directory);
        }
        for directory in way.into_iter().rev() {
            open = open
                && match pin_on_the_way(self.mounts, directory.as_path()) {
                    Ok((fd, stat)) => may_be_searched_by(fd.as_fd(), &stat, reader),
                    // Where there is none, there is nothing in it either.
                    Err(skip) => skip == Skip::Missing,
                };
            reached().insert(directory, open);
        }
        match open {
            true => Ok(()),
            false => Err(Reason::Denied),
        }
    }

    fn planned(&self, entry: &PlanFileEntry, opened: Opened) -> Result<PlannedFile, Reason> {
        if opened.stat.kind != Type::File {
            return Err(Reason::Special);
        }
        // Waiting for a page must not read others: see `queue`.
        let _ = rustix::fs::fadvise(&opened.fd, 0, None, Advice::Random);
        Ok(PlannedFile::new(opened, !self.on_overlay(&entry.path)))
    }

    fn on_overlay(&self, path: &FilePath) -> bool {
        self.overlays
            && self
                .mounts
                .lookup(path.as_bytes())
                .is_some_and(|m| m.overlay.is_some())
    }

    /// Looks the path up, so that the kernel knows afterwards what is there, or that nothing is. A symbolic
    /// link is read, not followed.
    pub fn look_up(&self, index: u32) -> Result<(), Reason> {
        let entry = self.entry(index)?;
        self.check_way(&entry.path)?;
        match pin(self.mounts, entry.path.as_path()) {
            Ok((fd, stat)) => looked_up(Ok((fd.as_fd(), stat))),
            Err(skip) => looked_up(Err(skip)),
        }
    }

    /// Reads the entries of a directory, until `go_on` says no. A symbolic link is read instead, not
    /// followed.
    pub fn list(&self, index: u32, go_on: impl Fn() -> bool) -> Result<(), Reason> {
        let entry = self.entry(index)?;
        self.check_way(&entry.path)?;
        let expect = Expect {
            reader: self.reader,
            ..Expect::default()
        };
        let opened = match open_checked(self.mounts, entry.path.as_path(), &expect) {
            Err(Skip::Symlink) => return self.look_up(index),
            opened => opened?,
        };
        if opened.stat.kind != Type::Directory {
            return Err(Reason::Changed);
        }
        let mut buffer = vec![MaybeUninit::uninit(); ENTRIES];
        let mut entries = RawDir::new(&opened.fd, &mut buffer);
        while let Some(entry) = entries.next() {
            entry.map_err(|_| Reason::Failed)?;
            if entries.is_buffer_empty() && !go_on() {
                return Err(Reason::Stopped);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_inode_number_lasts_size_and_time_decide() {
        let entry = |generation| PlanFileEntry {
            path: "/m/f".into(),
            device: 0,
            inode: 7,
            generation,
            size: 3,
            mtime_ns: 5,
        };
        let expected = |fstype: &str, generation| {
            let mounts = format!("1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /m rw - {fstype} /dev/b rw\n");
            let mounts = MountTable::parse(mounts.as_bytes());
            let expect = expect(&mounts, &entry(generation), None, None);
            (expect.inode, expect.size, expect.mtime_ns)
        };
        for fstype in ["vfat", "msdos", "exfat"] {
            assert_eq!(expected(fstype, 0), (None, Some(3), Some(5)), "{fstype}");
        }
        for fstype in ["ntfs3", "udf", "iso9660", "squashfs", "erofs", "ext4", "xfs"] {
            assert_eq!(expected(fstype, 0), (Some(7), Some(3), Some(5)), "{fstype}");
        }
        assert_eq!(expected("ext4", 9), (Some(7), None, None));
    }

    #[test]
    fn there_is_room_for_all_files_before_the_first_is_opened() {
        let room = || -> usize {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
            size.unwrap().trim().parse().unwrap()
        };
        let files = descriptors() - OTHERS;
        assert!(room() < files, "{} before", room());
        make_room(files);
        assert!(room() >= files, "{} of {files}", room());
        make_room(usize::MAX / 2);
        assert!(room() >= descriptors());
    }
}
