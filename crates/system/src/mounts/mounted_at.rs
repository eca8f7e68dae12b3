//! Which mount is mounted at a directory of another.

use super::Mount;
use hashbrown::HashTable;
use std::hash::{BuildHasher as _, RandomState};

/// Mounts by the mount below and the mount point. The table holds indices alone, for thousands of mounts are
/// read at a start, and a copy of each of their names took longer than the kernel takes to tell them.
#[derive(Debug, Default)]
pub(super) struct Above {
    hashes: RandomState,
    table: HashTable<usize>,
}

impl Above {
    pub(super) fn with_capacity(mounts: usize) -> Above {
        Above {
            hashes: RandomState::new(),
            table: HashTable::with_capacity(mounts),
        }
    }

    /// Of two with the same mount below and mount point the one that was added last stays.
    pub(super) fn add(&mut self, mounts: &[Mount], index: usize) {
        let key = key(&mounts[index]);
        let hash = |index: &usize| self.hashes.hash_one(self::key(&mounts[*index]));
        let same = |other: &usize| self::key(&mounts[*other]) == key;
        match self.table.entry(self.hashes.hash_one(key), same, hash) {
            hashbrown::hash_table::Entry::Occupied(mut place) => *place.get_mut() = index,
            hashbrown::hash_table::Entry::Vacant(place) => drop(place.insert(index)),
        }
    }

    /// Index of the mount that is mounted at `path` on the mount with the id `below`.
    pub(super) fn get(&self, mounts: &[Mount], below: u32, path: &[u8]) -> Option<usize> {
        let hash = self.hashes.hash_one((below, path));
        let index = self
            .table
            .find(hash, |index| key(&mounts[*index]) == (below, path));
        index.copied()
    }
}

fn key(mount: &Mount) -> (u32, &[u8]) {
    (mount.parent, mount.mount_point.as_bytes())
}
