//! Inode numbers → files: who an inode is, while it lives.
//!
//! An event tells device and number only. Each batch of events looks an inode up anew, so that a number that
//! was freed and given to another file is noticed (the other is born at another time) and a file that grows
//! has its size; no descriptor is kept, so that nothing is kept from being unmounted or freed.

use super::inode_location::{Birth, FoundInode, Opener, by_number, by_path, openers};
use super::procs::ProcessFiles;
use crate::error::RecordError;
use crate::kernel::event::{Dev, Event, FileSeen, Place};
use crate::limits::{FILE_BYTES, FILE_IDS};
use crate::trace::mounts::{Mounts, dev_of, is_local};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

/// The most inodes, and the most files executed: as many as a recording has names for. What is used of others
/// is lost.
const MOST: usize = FILE_IDS;

/// The types of file system that [`Inodes::told_by_adds`] means: whose reads at a file's end have no event,
/// and whose inodes hold small files. Not ext4, of which hardly any has such files; they are read with their
/// inodes, too.
const BY_ADDS: [(&str, Adds); 6] = [
    ("squashfs", Adds::All),
    ("f2fs", Adds::OfOnePage),
    ("ntfs3", Adds::OfOnePage),
    ("udf", Adds::OfOnePage),
    ("gfs2", Adds::OfOnePage),
    ("ocfs2", Adds::OfOnePage),
];

/// Which additions to the page cache tell of a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Adds {
    /// It reads whole blocks.
    All,
    /// Those of a file that has but one page: it may be read without an event, and nothing else reads it
    /// ahead.
    OfOnePage,
}

/// What an inode is called that there is no room for: no file has this number.
const NO_ROOM: Sight = Sight {
    id: u64::MAX,
    size: u64::MAX,
};

/// The inodes seen so far.
pub(super) struct Inodes {
    mounts: Mounts,
    known: HashMap<(Dev, u64), KnownInode>,
    block: HashMap<(Dev, u64), Option<u64>>,
    executed: HashMap<(Dev, u64), Vec<u8>>,
    /// Bytes of the paths executed.
    executed_bytes: usize,
    next: u64,
    batch: Batch,
}

/// What is true for one batch of events only.
#[derive(Default)]
struct Batch {
    number: u64,
    openers: HashMap<Dev, Vec<Opener>>,
    files: ProcessFiles,
}

/// What is known of an inode.
#[derive(Clone, Copy)]
struct KnownInode {
    batch: u64,
    /// `None`: not a file anybody can name, and not one of a mounted file system.
    file: Option<Sight>,
    born: Option<Birth>,
}

/// A file, as uses need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    pub id: u64,
    pub size: u64,
}

impl Inodes {
    /// None yet. Files are numbered from `first` on.
    pub fn new(first: u64) -> Result<Inodes, RecordError> {
        Ok(Inodes {
            mounts: Mounts::read()?,
            known: HashMap::new(),
            block: HashMap::new(),
            executed: HashMap::new(),
            executed_bytes: 0,
            next: first,
            batch: Batch::default(),
        })
    }

    /// The file systems of which the kernel tells some reads only as what they read enters memory.
    pub fn told_by_adds(&self) -> BTreeSet<Dev> {
        let of_type = |(fstype, _): &(&'static str, Adds)| self.mounts.of_type(fstype).map(dev_of);
        BY_ADDS.iter().flat_map(of_type).collect()
    }

    /// Which additions tell of a use on a device, if any do.
    pub fn adds(&self, dev: Dev) -> Option<Adds> {
        let of_type = |fstype: &str| BY_ADDS.iter().find(|(name, _)| *name == fstype);
        let mut types = self.mounts.of_device(dev);
        types
            .find_map(|mount| of_type(&mount.fstype))
            .map(|(_, adds)| *adds)
    }

    /// A batch begins: what was mounted, open or mapped before may not be so any more.
    pub fn start_batch(&mut self) {
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
        if !path.starts_with(b"/") || self.executed_bytes + path.len() > FILE_BYTES {
            return;
        }
        if let Ok(metadata) = std::fs::metadata(OsStr::from_bytes(path)) {
            let dev = metadata.dev();
            let dev = Dev {
                major: rustix::fs::major(dev),
                minor: rustix::fs::minor(dev),
            };
            let bytes = &mut self.executed_bytes;
            self.executed.entry((dev, metadata.ino())).or_insert_with(|| {
                *bytes += path.len();
                path.to_vec()
            });
        }
    }

    /// The file behind an inode that `pid` used; a new one is told to `sink` first. `None` for what is no
    /// file of a mounted file system, such as anonymous shared memory.
    pub fn identify(&mut self, dev: Dev, inode: u64, pid: u32, sink: &mut dyn FnMut(Event)) -> Option<Sight> {
        let before = self.known.get(&(dev, inode)).copied();
        if let Some(known) = before {
            if known.batch == self.batch.number {
                return known.file;
            }
        }
        if before.is_none() && self.known.len() >= MOST {
            return Some(NO_ROOM);
        }
        // Nothing is learned from memory and network file systems, so a path that cannot be found there is no
        // loss.
        let matters = dev.major != 0 || self.mounts.of_device(dev).any(is_local);
        let mounted = matters || self.mounts.of_device(dev).next().is_some();
        let identified = if mounted { self.find(dev, inode, pid) } else { None };
        let born = identified.as_ref().map(|f| f.born);
        let file = match (before, &identified) {
            (
                Some(KnownInode {
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
            _ => Some(self.introduce(dev, inode, identified, sink)),
        };
        let born = born.or(before.and_then(|known| known.born));
        self.known.insert(
            (dev, inode),
            KnownInode {
                batch: self.batch.number,
                file,
                born,
            },
        );
        file
    }

    /// The block device whose pages an inode of an unmounted anonymous file system stands for, if `page` lies
    /// on it.
    pub fn block_device(&mut self, dev: Dev, inode: u64, page: u64) -> Option<Dev> {
        if dev.major != 0 || self.mounts.of_device(dev).next().is_some() {
            return None;
        }
        let device = Dev::from_kernel(u32::try_from(inode).ok()?);
        if device.major == 0 {
            return None;
        }
        if self.block.len() >= MOST {
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
        found: Option<FoundInode>,
        sink: &mut dyn FnMut(Event),
    ) -> Sight {
        let id = self.next;
        self.next += 1;
        let identified = found.unwrap_or_else(FoundInode::unknown);
        let size = identified.size;
        sink(Event::File(FileSeen {
            id,
            place: Place {
                dev,
                location: identified.location,
                mount: None,
            },
            inode,
            generation: identified.generation,
            size: if size == u64::MAX { 0 } else { size },
            user: 0,
            by_some_name: identified.by_some_name,
            mtime_ns: identified.mtime_ns,
            mode: identified.mode,
        }));
        Sight { id, size }
    }

    fn find(&mut self, dev: Dev, inode: u64, pid: u32) -> Option<FoundInode> {
        let mounts = &self.mounts;
        let openers = self
            .batch
            .openers
            .entry(dev)
            .or_insert_with(|| openers(mounts, dev));
        let by_number = by_number(openers, inode);
        if by_number.as_ref().is_some_and(|found| found.names < 2) {
            return by_number;
        }
        // By which of its names it is used only who uses it knows.
        let ids = mounts.of_device(dev).map(|mount| mount.id);
        let held = self.batch.files.path(pid, dev, inode, ids);
        let path = held.or_else(|| self.executed.get(&(dev, inode)).map(Vec::as_slice));
        let Some(path) = path else { return by_number };
        let fstype = mounts
            .of_device(dev)
            .next()
            .map_or("", |mount| mount.fstype.as_str());
        let held = by_path(path, inode, fstype);
        match by_number {
            Some(found) if held.born != found.born => Some(found),
            _ => Some(held),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::event::Location;

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
        let mut inodes = Inodes::new(0).unwrap();
        let mut seen = Vec::new();
        let mut see = |inodes: &mut Inodes| {
            inodes.start_batch();
            inodes
                .identify(dev, inode, std::process::id(), &mut |event| seen.push(event))
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
    fn an_executed_file_is_found_when_nobody_runs_it_any_more() {
        // /proc takes no handles and nobody holds this: only its path is left.
        let dev = std::fs::metadata("/proc/version").unwrap().dev();
        let dev = Dev {
            major: rustix::fs::major(dev),
            minor: rustix::fs::minor(dev),
        };
        let inode = std::fs::metadata("/proc/version").unwrap().ino();
        let mut inodes = Inodes::new(0).unwrap();
        inodes.start_batch();
        let mut seen = None;
        assert_eq!(inodes.identify(dev, inode, u32::MAX, &mut |_| panic!()), None);
        inodes.executed(b"/proc/version");
        inodes.start_batch();
        inodes.identify(dev, inode, u32::MAX, &mut |event| seen = Some(event));
        let Some(Event::File(seen)) = seen else {
            panic!("not found")
        };
        assert_eq!(seen.place.location, Location::Absolute(b"/proc/version".to_vec()));
    }

    #[test]
    fn memory_without_a_mount_is_no_file() {
        let mut inodes = Inodes::new(0).unwrap();
        let nowhere = Dev {
            major: 0,
            minor: 1 << 19,
        };
        assert_eq!(
            inodes.identify(nowhere, 7, std::process::id(), &mut |_| panic!()),
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
