//! What became of a file by the end, and under which path.

use crate::kernel::event::{FileSeen, Location};
use crate::trace::inode::{self, Identity};
use crate::trace::layers;
use crate::trace::mounts::{Mount, Mounts};
use crate::trace::places::{Resolved, resolve};
use headstart_model::FilePath;
use headstart_model::trace::FileState;
use headstart_system::mounts::{Kind, WAYS, inodes_last, kind_of};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;

/// Where a file is at the end.
pub(super) struct Fate {
    pub(super) path: Vec<u8>,
    pub(super) mount: Option<Mount>,
    pub(super) state: FileState,
}

impl Fate {
    /// `through` is its path through an overlay of which the layers are not seen, and that mount. What was
    /// written while all was recorded, between these two times in nanoseconds since 1970, was perhaps made
    /// then.
    pub(super) fn from_seen(
        seen: &FileSeen,
        through: Option<&(Vec<u8>, u32)>,
        mounts: &Mounts,
        recorded: &RangeInclusive<i64>,
    ) -> Fate {
        if let Some((path, id)) = through {
            return Fate::on_overlay(seen, path, *id, mounts);
        }
        let mut candidates = resolve(mounts, &seen.place, WAYS);
        let is_there = |one: &Resolved<'_>| one.mount.is_none_or(|mount| mounts.is_there(mount));
        let Some(there) = candidates.iter().position(is_there) else {
            return match candidates.into_iter().next() {
                Some(Resolved { path, mount }) => Fate {
                    state: state_without_asking(seen, recorded),
                    path,
                    mount: mount.cloned(),
                },
                None => Fate::unreachable(seen),
            };
        };
        let mut states = candidates.iter().map(|candidate| match is_there(candidate) {
            true => state_at(seen, candidate, recorded),
            false => FileState::Unreachable,
        });
        if let Some(present) = states.position(|state| state == FileState::Present) {
            let Resolved { path, mount } = candidates.swap_remove(present);
            return Fate {
                path,
                mount: mount.cloned(),
                state: FileState::Present,
            };
        }
        let best = candidates.swap_remove(there);
        let state = state_at(seen, &best, recorded);
        let Resolved { path, mount } = best;
        if let (FileState::Deleted, Some(mount)) = (state, mount) {
            if let Some(path) = renamed(seen, mount) {
                return Fate {
                    path,
                    mount: Some(mount.clone()),
                    state: FileState::Present,
                };
            }
        }
        Fate {
            path,
            mount: mount.cloned(),
            state,
        }
    }

    fn on_overlay(seen: &FileSeen, path: &[u8], id: u32, mounts: &Mounts) -> Fate {
        let mount = mounts.by_id(id).cloned();
        let state = match layers::is_at(seen, path, id, mounts) {
            true => FileState::Present,
            false => FileState::Deleted,
        };
        Fate {
            path: path.to_vec(),
            mount,
            state,
        }
    }

    fn unreachable(seen: &FileSeen) -> Fate {
        let path = match &seen.place.location {
            Location::Within(path) | Location::Absolute(path) => path.clone(),
            Location::Unknown => vec![],
        };
        Fate {
            path,
            mount: None,
            state: FileState::Unreachable,
        }
    }
}

/// Of a file system that is not mounted any more nothing can be asked, and nothing on it has changed since;
/// of a remote one nothing is asked. What was written during the start may be a file that the start has made.
fn state_without_asking(seen: &FileSeen, recorded: &RangeInclusive<i64>) -> FileState {
    match recorded.contains(&seen.mtime_ns) {
        true => FileState::Made,
        false => FileState::Present,
    }
}

fn state_at(seen: &FileSeen, at: &Resolved<'_>, recorded: &RangeInclusive<i64>) -> FileState {
    // A server, or a program, may never answer.
    if at.mount.is_some_and(|mount| mount.is_remote) {
        return state_without_asking(seen, recorded);
    }
    if at
        .mount
        .is_some_and(|mount| mount.fstype != "overlay" && kind_of(&mount.fstype) == Kind::Other)
    {
        return FileState::Unreachable;
    }
    let path = FilePath::from(at.path.as_slice());
    match inode::identify(path.as_path(), at.mount.map_or("", |mount| &mount.fstype)) {
        Ok(found) if is_same(seen, at.mount, &found, &path) => FileState::Present,
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
fn is_same(seen: &FileSeen, mount: Option<&Mount>, found: &Identity, path: &FilePath) -> bool {
    let same_mount = match (mount, found.mount) {
        (Some(mount), Some(found)) => mount.id == found,
        _ => true,
    };
    // A back-end that cannot tell the generation says 0.
    let same_generation = seen.generation == 0 || found.generation.is_none_or(|g| g == seen.generation);
    let lasts = mount.is_none_or(|mount| inodes_last(&mount.fstype));
    same_mount && ((found.inode == seen.inode && same_generation) || (!lasts && is_unchanged(seen, path)))
}

/// Where no inode number lasts, size and time tell one file from another. The number that vfat shows with
/// `nfs=nostale_ro` is not even the inode's.
fn is_unchanged(seen: &FileSeen, path: &FilePath) -> bool {
    let facts = inode::facts(path.as_path());
    facts.is_ok_and(|facts| (facts.size, facts.mtime_ns) == (seen.size, seen.mtime_ns))
}

fn renamed(seen: &FileSeen, mount: &Mount) -> Option<Vec<u8>> {
    let at = std::fs::File::open(mount.mount_point.as_path()).ok()?;
    inode::path_of(at.as_fd(), &mount.fstype, seen.inode, seen.generation)
}

/// Whether a file was made while all was recorded. Only of what was written then that has to be asked.
pub(super) fn is_made(path: &FilePath, seen: &FileSeen, recorded: &RangeInclusive<i64>) -> bool {
    let made = || inode::made_unix_ns(path.as_path()).ok().flatten();
    recorded.contains(&seen.mtime_ns) && made().is_some_and(|made| recorded.contains(&made))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::event::{Dev, Place};

    #[test]
    fn where_no_inode_number_lasts_size_and_time_tell_a_file() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "text").unwrap();
        let path = FilePath::from(path.as_path());
        let facts = inode::facts(path.as_path()).unwrap();
        let seen = FileSeen {
            id: 1,
            place: Place {
                dev: Dev { major: 98, minor: 0 },
                location: Location::Unknown,
                mount: None,
            },
            inode: facts.inode + 1,
            generation: 0,
            size: facts.size,
            user: 0,
            by_some_name: false,
            mtime_ns: facts.mtime_ns,
            mode: facts.mode,
        };
        for (fstype, size, same) in [
            ("vfat", 4, true),
            ("exfat", 4, true),
            ("vfat", 5, false),
            ("ext4", 4, false),
        ] {
            let table = format!("36 35 98:0 / / rw - {fstype} /dev/sda rw\n");
            let table = headstart_system::mounts::MountTable::parse(table.as_bytes());
            let identity = inode::identify(path.as_path(), fstype).unwrap();
            let identity = Identity {
                mount: None,
                ..identity
            };
            let seen = FileSeen { size, ..seen.clone() };
            assert_eq!(
                is_same(&seen, table.all().first(), &identity, &path),
                same,
                "{fstype}"
            );
        }
    }
}
