//! The files seen: one entry for each, however often its inode came and went, and at the end its path and its
//! fate. There are as many as a trace takes; uses of others are lost.

use super::fate::{Fate, is_made};
use super::images::Images;
use super::pages::PageSets;
use super::shares::Taken;
use crate::kernel::event::{Dev, FileSeen, Location, Place, UseSeen};
use crate::limits::{FILE_BYTES, FILE_IDS, FILES, FILESYSTEMS, MAPPINGS};
use crate::trace::layers::Layers;
use crate::trace::mounts::{Mount, Mounts, is_learned};
use crate::trace::places::resolve;
use headstart_model::trace::{File, FileState, Filesystem, Mapping};
use headstart_model::{FilePath, PageRange};
use headstart_system::mounts::inodes_last;
use headstart_system::secrets::Secrets;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;

/// The files seen so far.
pub(super) struct Files {
    list: Vec<Entry>,
    by_id: HashMap<u64, u32>,
    by_identity: HashMap<Key, u32>,
    used: PageSets,
    mapped: BTreeSet<(u32, PageRange)>,
    layers: Layers,
    images: Images,
    /// Bytes of the paths.
    bytes: usize,
    pages: u64,
    page_size: u64,
}

struct Entry {
    seen: FileSeen,
    /// Whether a mount that the recorder sees shows it.
    visible: bool,
    /// Its path through an overlay of which the recorder does not see the layers, and the id of that mount.
    through: Option<(Vec<u8>, u32)>,
    /// Whether the kernel's own threads have used it, and whether a process has.
    by_kernel: bool,
    by_process: bool,
    /// Whether its name is to be kept nowhere.
    secret: bool,
}

impl Entry {
    fn only_by_kernel(&self) -> bool {
        self.by_kernel && !self.by_process
    }
}

/// What makes two sights the same file. On btrfs two subvolumes share device, inode number and, if one is a
/// snapshot of the other, generation: there the place counts too.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    dev: Dev,
    inode: u64,
    generation: u32,
    subvolumes: Option<Location>,
}

/// The files of a trace.
pub(super) struct Named {
    pub filesystems: Vec<Filesystem>,
    pub files: Vec<File>,
    pub mappings: Vec<Mapping>,
    /// By the index used while recording: the index in `files`, or `None` for a file without a path.
    pub index: Vec<Option<u32>>,
    /// Files without a path.
    pub lost: u64,
    /// Files for which there was no room.
    pub without_room: u64,
}

impl Files {
    pub(super) fn new(page_size: u64) -> Files {
        Files {
            list: vec![],
            by_id: HashMap::new(),
            by_identity: HashMap::new(),
            used: PageSets::default(),
            mapped: BTreeSet::new(),
            layers: Layers::new(),
            images: Images::default(),
            bytes: 0,
            pages: 0,
            page_size,
        }
    }

    /// Pages used for the first time so far, over all files on file systems that the recorder sees: in a
    /// container, what goes on outside is no sign of work inside.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// About how much memory they take, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.list.len() * 320
            + self.by_id.len() * 40
            + self.mapped.len() * 48
            + self.used.chunks() * 72
            + self.bytes
    }

    /// What is taken of the room for files and their pages.
    pub(super) fn taken(&self) -> Taken {
        Taken {
            files: self.list.len(),
            ids: self.by_id.len(),
            bytes: self.bytes,
            chunks: self.used.chunks(),
            uses: 0,
        }
    }

    /// A file came into sight. Where there is no room for it its uses will be lost.
    pub(super) fn add(&mut self, mut seen: FileSeen, mounts: &Mounts, secrets: &mut Secrets) {
        if self.by_id.len() >= FILE_IDS && !self.by_id.contains_key(&seen.id) {
            return;
        }
        if !is_nameable(&seen.place.location) {
            seen.place.location = Location::Unknown;
        }
        let dev = seen.place.dev;
        let shown = is_shown(mounts, &seen.place);
        let secret = resolve(mounts, &seen.place, 1)
            .first()
            .is_some_and(|first| secrets.is_secret(Some(&|| mounts.table()), &first.path));
        let btrfs = dev.major == 0 && mounts.of_device(dev).next().is_none_or(|m| m.fstype == "btrfs");
        let subvolumes = btrfs.then(|| seen.place.location.clone());
        let key = Key {
            dev,
            inode: seen.inode,
            generation: seen.generation,
            subvolumes,
        };
        let id = seen.id;
        let length = length_of(&seen.place.location);
        let has_room = self.bytes + length <= FILE_BYTES;
        let index = match self.by_identity.get(&key) {
            Some(index) => {
                if let Some(known) = self.list.get_mut(*index as usize) {
                    let place = &known.seen.place.location;
                    // The first name that is surely one it was used by.
                    let better = *place == Location::Unknown || known.seen.by_some_name && !seen.by_some_name;
                    if better && seen.place.location != Location::Unknown && has_room {
                        // What was taken is not given back: shares are reckoned by what is taken more.
                        self.bytes += length.saturating_sub(length_of(place));
                        known.seen.by_some_name = seen.by_some_name;
                        known.seen.place = seen.place;
                    }
                }
                *index
            }
            None if has_room && self.list.len() < FILES => {
                let fresh = self.list.len() as u32;
                self.by_identity.insert(key, fresh);
                let through = match shown {
                    true => None,
                    false => self.layers.find(&seen, mounts),
                };
                if !shown && through.is_none() {
                    self.images.add(&seen.place);
                }
                let length = length + through.as_ref().map_or(0, |(path, _)| path.len());
                self.list.push(Entry {
                    seen,
                    visible: shown || through.is_some(),
                    through,
                    by_kernel: false,
                    by_process: false,
                    secret,
                });
                self.bytes += length;
                fresh
            }
            None => return,
        };
        self.by_id.insert(id, index);
    }

    /// Calls `fresh(file, start, pages)` for every run of pages of which a use says something new. Returns
    /// whether all of it could be noted: not where the file is not known, for its first sight was lost or
    /// there was no room, nor where there is no room for the pages.
    #[must_use]
    pub(super) fn use_pages(&mut self, seen: &UseSeen, mut fresh: impl FnMut(u32, u64, u32)) -> bool {
        let end = seen.size.div_ceil(self.page_size);
        if seen.start >= end {
            return true;
        }
        let last = seen.last.min(end - 1);
        let Some(index) = self.by_id.get(&seen.file).copied() else {
            return false;
        };
        // Without one only a part of a page's neighbourhood is not known.
        if self.mapped.len() < MAPPINGS {
            self.mapped.extend(seen.mapped.map(|pages| (index, pages)));
        }
        let added = self.used.add(index, seen.kind, seen.start, last, |start, pages| {
            fresh(index, start, pages)
        });
        if let Some(entry) = self.list.get_mut(index as usize) {
            entry.by_kernel |= seen.pid == 0;
            entry.by_process |= seen.pid != 0;
            if entry.visible && seen.pid != 0 {
                self.pages += added.first_uses;
            }
        }
        added.whole
    }

    /// The file systems of what was used.
    pub(super) fn devices(&self) -> HashSet<Dev> {
        self.list.iter().map(|entry| entry.seen.place.dev).collect()
    }

    /// Gives every file its path, as far as it can be had now, and says which were made while all was
    /// recorded, between these two times in nanoseconds since 1970. Files that no mount shows are left out if
    /// that is asked for: in scope system they are other containers'.
    pub(super) fn name(
        self,
        mounts: &mut Mounts,
        secrets: &mut Secrets,
        without_foreign: bool,
        recorded: RangeInclusive<i64>,
    ) -> Named {
        let mut named = Named {
            filesystems: vec![],
            files: vec![],
            mappings: vec![],
            index: vec![],
            lost: 0,
            without_room: 0,
        };
        let mut filesystems = HashMap::new();
        let mut room = FILE_BYTES;
        let mut overlays = HashSet::new();
        let images = self.images;
        let is_image = |entry: &Entry, mounts: &Mounts| {
            let path = resolve(mounts, &entry.seen.place, 1).into_iter().next();
            entry.only_by_kernel() && path.is_some_and(|found| images.may_be(&found.path))
        };
        let has_image = self.list.iter().any(|entry| is_image(entry, mounts));
        for entry in self.list {
            // What the kernel read for others; and what lies in an image, which stands for it.
            let foreign = entry.only_by_kernel() && !is_image(&entry, mounts);
            if entry.secret || foreign || has_image && !entry.visible && images.has(entry.seen.place.dev) {
                named.index.push(None);
                continue;
            }
            let Entry { seen, through, .. } = entry;
            if seen.place.location == Location::Unknown {
                named.lost += 1;
                named.index.push(None);
                continue;
            }
            if without_foreign && through.is_none() && !is_shown(mounts, &seen.place) {
                named.index.push(None);
                continue;
            }
            let mut fate = Fate::from_seen(&seen, through.as_ref(), mounts, &recorded);
            if fate.state != FileState::Present {
                // It may have been unmounted just now.
                mounts.refresh();
                fate = Fate::from_seen(&seen, through.as_ref(), mounts, &recorded);
            }
            // It may have been renamed to there.
            if secrets.is_secret(Some(&|| mounts.table()), &fate.path) {
                named.index.push(None);
                continue;
            }
            let path = FilePath::from(fate.path);
            // A boot reads nothing ahead on remote file systems: servers come late.
            let in_vain = without_foreign && fate.mount.as_ref().is_some_and(|mount| mount.is_remote);
            let state = match fate.state {
                _ if in_vain => FileState::Unreachable,
                FileState::Present if is_made(&path, &seen, &recorded) => FileState::Made,
                state => state,
            };
            // Below a mount point it may be longer than within its file system.
            let nameable = path.check().is_ok();
            if !nameable || path.as_bytes().len() > room {
                let count = if nameable {
                    &mut named.without_room
                } else {
                    &mut named.lost
                };
                *count += 1;
                named.index.push(None);
                continue;
            }
            room -= path.as_bytes().len();
            let filesystem = fate.mount.as_ref().and_then(|mount| {
                let next = named.filesystems.len();
                if next >= FILESYSTEMS && !filesystems.contains_key(&mount.id) {
                    return None;
                }
                Some(*filesystems.entry(mount.id).or_insert_with(|| {
                    named.filesystems.push(describe(mount, in_vain));
                    next as u32
                }))
            });
            let lasts = fate.mount.as_ref().is_none_or(|mount| inodes_last(&mount.fstype));
            let overlay = if mounts.have_overlays() && through.is_none() {
                through_overlay(mounts, path.as_bytes())
            } else {
                None
            };
            // What is left of the room for paths is for those through overlays.
            let overlay = overlay.filter(|path| {
                let fits = path.check().is_ok() && path.as_bytes().len() <= room;
                let fits = fits && named.files.len() + overlays.len() < FILES;
                if fits {
                    room -= path.as_bytes().len();
                    overlays.insert(path.clone());
                }
                fits
            });
            named.index.push(Some(named.files.len() as u32));
            named.files.push(File {
                filesystem,
                overlay,
                path,
                inode: seen.inode,
                // An overlay does not tell it, and where no inode number lasts it is another at each mount.
                generation: if through.is_some() || !lasts {
                    0
                } else {
                    seen.generation
                },
                size: seen.size,
                mtime_ns: seen.mtime_ns,
                mode: seen.mode,
                state,
            });
        }
        let index = |file: u32| named.index.get(file as usize).copied().flatten();
        named.mappings = (self.mapped.into_iter())
            .filter_map(|(file, pages)| {
                Some(Mapping {
                    file: index(file)?,
                    pages,
                })
            })
            .collect();
        named
    }
}

/// Whether a trace may hold the path: not one that is longer than any that can be asked for, nor one that a
/// process gave and that has several spellings.
fn is_nameable(location: &Location) -> bool {
    match location {
        Location::Within(path) | Location::Absolute(path) => FilePath::from(path.as_slice()).check().is_ok(),
        Location::Unknown => true,
    }
}

/// Whether a mount that the recorder sees, or saw, shows a place.
fn is_shown(mounts: &Mounts, place: &Place) -> bool {
    match &place.location {
        Location::Within(within) => mounts.shows(place.dev, within),
        Location::Absolute(_) => true,
        Location::Unknown => false,
    }
}

fn length_of(location: &Location) -> usize {
    match location {
        Location::Within(path) | Location::Absolute(path) => path.len(),
        Location::Unknown => 0,
    }
}

fn describe(mount: &Mount, in_vain: bool) -> Filesystem {
    Filesystem {
        major: mount.major,
        minor: mount.minor,
        fstype: mount.fstype.clone(),
        mount_point: mount.mount_point.clone(),
        // What is told as an overlay's file is one of which the layer is not seen.
        local: is_learned(mount) && !in_vain || mount.fstype == "overlay",
    }
}

/// The path through the overlay behind which a layer's file lies, if it can be seen there.
fn through_overlay(mounts: &Mounts, path: &[u8]) -> Option<FilePath> {
    let paths = mounts.through_overlays(path).into_iter().map(FilePath::from);
    paths
        .into_iter()
        .find(|path| std::fs::symlink_metadata(path.as_path()).is_ok())
}
