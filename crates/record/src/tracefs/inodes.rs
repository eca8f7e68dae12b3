//! Inode numbers → files: who an inode is, while it lives.
//!
//! An event tells device and number only. Each batch of events looks an inode up anew, so that a number that was freed
//! and given to another file is noticed (the other is born at another time) and a file that grows has its size; no
//! descriptor is kept, so that nothing is kept from being unmounted or freed.

use super::handle;
use super::procs::Held;
use crate::error::RecordError;
use crate::event::{Dev, Event, FileSeen, Location, Place};
use crate::inode::identify;
use crate::mounts::{Mount, Mounts, below, join};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags, openat, statx};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The inodes seen so far.
pub(super) struct Inodes {
    mounts: Mounts,
    known: HashMap<(Dev, u64), Known>,
    block: HashMap<(Dev, u64), Option<u64>>,
    executed: HashMap<(Dev, u64), Vec<u8>>,
    next: u64,
    batch: Batch,
}

/// What is true for one batch of events only.
#[derive(Default)]
struct Batch {
    number: u64,
    doors: HashMap<Dev, Vec<(OwnedFd, Mount)>>,
    held: Held,
}

/// What is known of an inode.
#[derive(Clone, Copy)]
struct Known {
    batch: u64,
    /// `None`: not a file anybody can name, and not one of a mounted file system.
    file: Option<Sight>,
    born: Option<Born>,
}

/// What tells a file from another one of the same number.
type Born = (i64, u32, u32);

/// A file, as uses need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    pub id: u64,
    pub size: u64,
}

/// What was found behind a number.
struct Found {
    location: Location,
    generation: u32,
    size: u64,
    mtime_ns: i64,
    mode: u32,
    born: Born,
}

impl Inodes {
    /// None yet.
    pub fn new() -> Result<Inodes, RecordError> {
        Ok(Inodes {
            mounts: Mounts::read()?,
            known: HashMap::new(),
            block: HashMap::new(),
            executed: HashMap::new(),
            next: 0,
            batch: Batch::default(),
        })
    }

    /// A batch begins: what was mounted, open or mapped before may not be so any more.
    pub fn begin(&mut self) {
        self.mounts.refresh();
        self.batch = Batch {
            number: self.batch.number + 1,
            ..Batch::default()
        };
    }

    /// A batch ends: nothing is held open until the next.
    pub fn end(&mut self) {
        self.batch = Batch {
            number: self.batch.number,
            ..Batch::default()
        };
    }

    /// A path that was executed: its process may run something else, or nothing, before anybody looks.
    pub fn executed(&mut self, path: &[u8]) {
        // A relative one is relative to the process's directory, not to this one's.
        if !path.starts_with(b"/") {
            return;
        }
        if let Ok(metadata) = std::fs::metadata(OsStr::from_bytes(path)) {
            let dev = metadata.dev();
            let dev = Dev {
                major: rustix::fs::major(dev),
                minor: rustix::fs::minor(dev),
            };
            self.executed
                .entry((dev, metadata.ino()))
                .or_insert_with(|| path.to_vec());
        }
    }

    /// The file behind an inode that `pid` used; a new one is told to `sink` first. `None` for what is no file of a
    /// mounted file system, such as anonymous shared memory.
    pub fn see(&mut self, dev: Dev, inode: u64, pid: u32, sink: &mut dyn FnMut(Event)) -> Option<Sight> {
        let before = self.known.get(&(dev, inode)).copied();
        if let Some(known) = before {
            if known.batch == self.batch.number {
                return known.file;
            }
        }
        // Nothing is learned from memory and network file systems, so a path that cannot be found there is no loss.
        let matters = dev.major != 0 || self.mounts.of_device(dev).any(|mount| mount.is_local());
        let mounted = matters || self.mounts.of_device(dev).next().is_some();
        let found = if mounted { self.find(dev, inode, pid) } else { None };
        let born = found.as_ref().map(|f| f.born);
        let file = match (before, &found) {
            (
                Some(Known {
                    file: Some(file),
                    born: known,
                    ..
                }),
                Some(found),
            ) if known == born => Some(Sight {
                size: found.size,
                ..file
            }),
            // Gone by now, but used while it lived.
            (Some(known), None) => known.file,
            (None, None) if !matters => None,
            _ => Some(self.introduce(dev, inode, found, sink)),
        };
        let born = born.or(before.and_then(|known| known.born));
        self.known.insert(
            (dev, inode),
            Known {
                batch: self.batch.number,
                file,
                born,
            },
        );
        file
    }

    /// The block device whose pages an inode of an unmounted anonymous file system stands for, if `page` lies on it.
    pub fn block_device(&mut self, dev: Dev, inode: u64, page: u64) -> Option<Dev> {
        if dev.major != 0 || self.mounts.of_device(dev).next().is_some() {
            return None;
        }
        let device = Dev::from_kernel(u32::try_from(inode).ok()?);
        if device.major == 0 {
            return None;
        }
        let pages = *self.block.entry((dev, inode)).or_insert_with(|| {
            let sectors =
                std::fs::read_to_string(format!("/sys/dev/block/{}:{}/size", device.major, device.minor));
            Some(
                (sectors.ok()?.trim().parse::<u64>().ok()? * 512).div_ceil(rustix::param::page_size() as u64),
            )
        });
        pages.is_some_and(|pages| page < pages).then_some(device)
    }

    fn introduce(
        &mut self,
        dev: Dev,
        inode: u64,
        found: Option<Found>,
        sink: &mut dyn FnMut(Event),
    ) -> Sight {
        let id = self.next;
        self.next += 1;
        let unknown = Found {
            location: Location::Unknown,
            generation: 0,
            // Nothing is known to be beyond its end.
            size: u64::MAX,
            mtime_ns: 0,
            mode: 0,
            born: Born::default(),
        };
        let found = found.unwrap_or(unknown);
        let size = found.size;
        sink(Event::File(FileSeen {
            id,
            place: Place {
                dev,
                location: found.location,
                mount: None,
            },
            inode,
            generation: found.generation,
            size: if size == u64::MAX { 0 } else { size },
            mtime_ns: found.mtime_ns,
            mode: found.mode,
        }));
        Sight { id, size }
    }

    fn find(&mut self, dev: Dev, inode: u64, pid: u32) -> Option<Found> {
        let mounts = &self.mounts;
        let doors = self.batch.doors.entry(dev).or_insert_with(|| doors(mounts, dev));
        let by_handle = doors.iter().find_map(|(door, mount)| {
            let file = handle::open(door.as_fd(), &mount.fstype, inode).ok()?;
            describe(&file, inode, Some(mount))
        });
        if by_handle.is_some() {
            return by_handle;
        }
        let path = self
            .batch
            .held
            .path(pid, dev, inode, mounts.of_device(dev).map(|m| m.id))?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let there = openat(CWD, OsStr::from_bytes(path), flags, Mode::empty()).ok();
        there.and_then(|file| describe(&file, inode, None)).or_else(|| {
            // Held but no longer there under its name.
            let location = Location::Absolute(without_mark(path).to_vec());
            Some(Found {
                location,
                generation: 0,
                size: u64::MAX,
                mtime_ns: 0,
                mode: 0,
                born: Born::default(),
            })
        })
    }
}

/// Directories through which a file system's inodes can be opened, whole file systems before parts.
fn doors(mounts: &Mounts, dev: Dev) -> Vec<(OwnedFd, Mount)> {
    // Memory and network file systems do not take numbers, or would ask a server.
    let mut all: Vec<&Mount> = mounts.of_device(dev).filter(|mount| mount.is_local()).collect();
    all.sort_by_key(|m| m.root.len());
    all.into_iter()
        .filter_map(|mount| Some((door(mount)?, mount.clone())))
        .collect()
}

fn door(mount: &Mount) -> Option<OwnedFd> {
    // A descriptor with O_PATH would not do for open_by_handle_at(2).
    let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(
        CWD,
        OsStr::from_bytes(&mount.point),
        flags | OFlags::DIRECTORY,
        Mode::empty(),
    )
    .ok()?;
    // Another mount may cover it. Linux before 5.8 does not tell; then the inode numbers must.
    let stat = statx(&fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    let told = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    (!told || stat.stx_mnt_id == u64::from(mount.id)).then_some(fd)
}

/// What an open inode is; `None` if it is not `inode`. Through a `mount` the place is told within its file system.
fn describe(file: &OwnedFd, inode: u64, mount: Option<&Mount>) -> Option<Found> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let stat = statx(file, c"", AtFlags::EMPTY_PATH, wanted)
        .ok()
        .filter(|s| s.stx_ino == inode)?;
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let identity = identify(&path).ok().filter(|found| found.inode == inode);
    let path = path.into_os_string().into_vec();
    let location = match (mount, identity) {
        (None, _) => Location::Absolute(path),
        (Some(_), None) if path == b"/" => return None,
        (Some(mount), identity) => Location::Within(within(mount, without_mark(&path), identity.is_some())),
    };
    let generation = identity.and_then(|found| found.generation).unwrap_or(0);
    Some(Found {
        location,
        generation,
        size: stat.stx_size,
        mtime_ns: mtime(&stat),
        mode: u32::from(stat.stx_mode),
        born: born(&stat, generation),
    })
}

/// The path from the root of the file system, of what shows as `path` through `mount`. What lies outside a mount of a
/// part shows as its path from the root of the file system, which leads nowhere, or elsewhere.
fn within(mount: &Mount, path: &[u8], leads_there: bool) -> Vec<u8> {
    match below(path, &mount.point) {
        Some(rest) if leads_there || mount.point != b"/" => join(&mount.root, rest),
        Some(rest) if mount.root == b"/" => join(b"/", rest),
        _ => path.to_vec(),
    }
}

/// A path without what the kernel puts behind that of an unlinked file.
fn without_mark(path: &[u8]) -> &[u8] {
    match path.strip_suffix(b" (deleted)") {
        Some(short) if std::fs::symlink_metadata(Path::new(OsStr::from_bytes(path))).is_err() => short,
        _ => path,
    }
}

fn mtime(stat: &Statx) -> i64 {
    stat.stx_mtime
        .tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(i64::from(stat.stx_mtime.tv_nsec))
}

/// Time of birth where the file system has one, else the generation.
fn born(stat: &Statx, generation: u32) -> Born {
    match stat.stx_mask & StatxFlags::BTIME.bits() {
        0 => (0, 0, generation),
        _ => (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_file(text: &str) -> (tempfile::NamedTempFile, Dev) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let dev = file.as_file().metadata().unwrap().dev();
        (
            file,
            Dev {
                major: rustix::fs::major(dev),
                minor: rustix::fs::minor(dev),
            },
        )
    }

    #[test]
    fn a_file_is_found_by_number_and_keeps_its_id_while_it_grows() {
        let (file, dev) = held_file("x");
        let inode = file.as_file().metadata().unwrap().ino();
        let mut inodes = Inodes::new().unwrap();
        let mut seen = Vec::new();
        let mut see = |inodes: &mut Inodes| {
            inodes.begin();
            inodes
                .see(dev, inode, std::process::id(), &mut |event| seen.push(event))
                .unwrap()
        };
        let first = see(&mut inodes);
        std::fs::write(file.path(), "xyz").unwrap();
        let second = see(&mut inodes);
        assert_eq!((first.size, second.size, first.id), (1, 3, second.id));
        assert_eq!(seen.len(), 1, "told once");
        let Event::File(seen) = &seen[0] else { panic!() };
        let path = file.path().as_os_str().as_bytes();
        match &seen.place.location {
            Location::Within(within) => assert!(path.ends_with(within)),
            Location::Absolute(absolute) => assert_eq!(absolute, path),
            Location::Unknown => panic!("no path"),
        }
    }

    #[test]
    fn memory_without_a_mount_is_no_file() {
        let mut inodes = Inodes::new().unwrap();
        let nowhere = Dev {
            major: 0,
            minor: 1 << 19,
        };
        assert_eq!(
            inodes.see(nowhere, 7, std::process::id(), &mut |_| panic!()),
            None
        );
        assert_eq!(inodes.block_device(nowhere, 1, 0), None);
        assert_eq!(
            inodes.block_device(nowhere, 4095 << 20 | 7, 0),
            None,
            "no such device"
        );
    }
}
