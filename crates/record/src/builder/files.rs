//! The files seen: one entry for each, however often its inode came and went, and at the end its path and its fate.

use super::pages::PageSets;
use crate::event::{Dev, FileSeen, Location, UseSeen};
use crate::inode::{self, Identity};
use crate::mounts::{Mount, Mounts};
use crate::places::{Resolved, resolve};
use headstart_model::trace::{File, FileState, Filesystem, Mapping};
use headstart_model::{FilePath, PageRange};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::AsFd;

/// The files seen so far.
pub(super) struct Files {
    list: Vec<Entry>,
    by_id: HashMap<u64, u32>,
    by_identity: HashMap<Key, u32>,
    pages: u64,
    page_size: u64,
}

struct Entry {
    seen: FileSeen,
    used: PageSets,
    mapped: BTreeSet<PageRange>,
    /// Whether a mount that the recorder sees shows it.
    visible: bool,
}

/// What makes two sights the same file. On btrfs two subvolumes share device, inode number and, if one is a snapshot
/// of the other, generation: there the place counts too.
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
}

impl Files {
    pub(super) fn new(page_size: u64) -> Files {
        Files {
            list: vec![],
            by_id: HashMap::new(),
            by_identity: HashMap::new(),
            pages: 0,
            page_size,
        }
    }

    /// Pages used for the first time so far, over all files on file systems that the recorder sees: in a container, what
    /// goes on outside is no sign of work inside.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// A file came into sight.
    pub(super) fn see(&mut self, seen: FileSeen, mounts: &Mounts) {
        let dev = seen.place.dev;
        let visible = !resolve(mounts, &seen.place).is_empty();
        let btrfs = dev.major == 0 && mounts.of_device(dev).next().is_none_or(|m| m.fstype == "btrfs");
        let subvolumes = btrfs.then(|| seen.place.location.clone());
        let key = Key {
            dev,
            inode: seen.inode,
            generation: seen.generation,
            subvolumes,
        };
        // A trace of four thousand million files does not fit memory.
        let fresh = self.list.len() as u32;
        let id = seen.id;
        let index = *self.by_identity.entry(key).or_insert(fresh);
        match self.list.get_mut(index as usize) {
            None => self.list.push(Entry {
                seen,
                used: PageSets::default(),
                mapped: BTreeSet::new(),
                visible,
            }),
            Some(known) if known.seen.place.location == Location::Unknown => known.seen.place = seen.place,
            Some(_) => {}
        }
        self.by_id.insert(id, index);
    }

    /// Calls `fresh(file, start, pages)` for every run of pages of which a use says something new.
    pub(super) fn use_pages(&mut self, seen: &UseSeen, mut fresh: impl FnMut(u32, u64, u32)) {
        let end = seen.size.div_ceil(self.page_size);
        if seen.start >= end {
            return;
        }
        let last = seen.last.min(end - 1);
        // A file whose first sight was lost is counted among the lost events.
        let Some(index) = self.by_id.get(&seen.file) else {
            return;
        };
        let Some(entry) = self.list.get_mut(*index as usize) else {
            return;
        };
        entry.mapped.extend(seen.mapped);
        let first = entry.used.add(seen.kind, seen.start, last, |start, pages| {
            fresh(*index, start, pages)
        });
        if entry.visible {
            self.pages += first;
        }
    }

    /// Gives every file its path, as far as it can be had now. Files that no mount shows are left out if that is asked
    /// for: in scope system they are other containers'.
    pub(super) fn name(self, mounts: &Mounts, without_foreign: bool) -> Named {
        let mut named = Named {
            filesystems: vec![],
            files: vec![],
            mappings: vec![],
            index: vec![],
            lost: 0,
        };
        let mut filesystems = HashMap::new();
        for Entry { seen, mapped, .. } in self.list {
            if seen.place.location == Location::Unknown {
                named.lost += 1;
                named.index.push(None);
                continue;
            }
            if without_foreign && resolve(mounts, &seen.place).is_empty() {
                named.index.push(None);
                continue;
            }
            let fate = Fate::of(&seen, mounts);
            let filesystem = fate.mount.map(|mount| {
                *filesystems.entry(mount.id).or_insert_with(|| {
                    named.filesystems.push(describe(mount));
                    named.filesystems.len() as u32 - 1
                })
            });
            let index = named.files.len() as u32;
            named.index.push(Some(index));
            named
                .mappings
                .extend(mapped.into_iter().map(|pages| Mapping { file: index, pages }));
            named.files.push(File {
                filesystem,
                overlay: if mounts.have_overlays() {
                    through_overlay(mounts, &fate.path)
                } else {
                    None
                },
                path: fate.path.into(),
                inode: seen.inode,
                generation: seen.generation,
                size: seen.size,
                mtime_ns: seen.mtime_ns,
                mode: seen.mode,
                state: fate.state,
            });
        }
        named
    }
}

fn describe(mount: &Mount) -> Filesystem {
    Filesystem {
        major: mount.dev.major,
        minor: mount.dev.minor,
        fstype: mount.fstype.clone(),
        mount_point: mount.point.clone().into(),
        local: mount.is_local(),
    }
}

/// The path through the overlay behind which a layer's file lies, if it can be seen there.
fn through_overlay(mounts: &Mounts, path: &[u8]) -> Option<FilePath> {
    let paths = mounts.through_overlays(path).into_iter().map(FilePath::from);
    paths
        .into_iter()
        .find(|path| std::fs::symlink_metadata(path.as_path()).is_ok())
}

/// Where a file is at the end.
struct Fate<'a> {
    path: Vec<u8>,
    mount: Option<&'a Mount>,
    state: FileState,
}

impl<'a> Fate<'a> {
    fn of(seen: &FileSeen, mounts: &'a Mounts) -> Fate<'a> {
        let mut candidates = resolve(mounts, &seen.place);
        let mut states = candidates.iter().map(|candidate| state_at(seen, candidate));
        if let Some(present) = states.position(|state| state == FileState::Present) {
            let Resolved { path, mount } = candidates.swap_remove(present);
            return Fate {
                path,
                mount,
                state: FileState::Present,
            };
        }
        if candidates.is_empty() {
            let path = match &seen.place.location {
                Location::Within(path) | Location::Absolute(path) => path.clone(),
                Location::Unknown => vec![],
            };
            return Fate {
                path,
                mount: None,
                state: FileState::Unreachable,
            };
        }
        let Resolved { path, mount } = candidates.swap_remove(0);
        let state = state_at(
            seen,
            &Resolved {
                path: path.clone(),
                mount,
            },
        );
        if let (FileState::Deleted, Some(mount)) = (state, mount) {
            if let Some(path) = renamed(seen, mount) {
                return Fate {
                    path,
                    mount: Some(mount),
                    state: FileState::Present,
                };
            }
        }
        Fate { path, mount, state }
    }
}

fn state_at(seen: &FileSeen, at: &Resolved<'_>) -> FileState {
    let path = FilePath::from(at.path.as_slice());
    match inode::identify(path.as_path(), at.mount.map_or("", |mount| &mount.fstype)) {
        Ok(found) if is_same(seen, at.mount, &found) => FileState::Present,
        Ok(_) => FileState::Replaced,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            FileState::Deleted
        }
        Err(_) => FileState::Unreachable,
    }
}

/// Mounts that hide one another can make a path lead to another file system: then it is another file.
fn is_same(seen: &FileSeen, mount: Option<&Mount>, found: &Identity) -> bool {
    let same_mount = match (mount, found.mount) {
        (Some(mount), Some(found)) => mount.id == found,
        _ => true,
    };
    // A back-end that cannot tell the generation says 0.
    let same_generation = seen.generation == 0 || found.generation.is_none_or(|g| g == seen.generation);
    found.inode == seen.inode && same_generation && same_mount
}

fn renamed(seen: &FileSeen, mount: &Mount) -> Option<Vec<u8>> {
    let point = FilePath::from(mount.point.as_slice());
    let at = std::fs::File::open(point.as_path()).ok()?;
    inode::path_of(at.as_fd(), &mount.fstype, seen.inode, seen.generation)
}
