//! All files of a mounted file system, directory by directory: for file systems that do not tell by
//! themselves whose a block is.

use super::claims::{Claimant, Claims};
use super::names::join;
use headstart_model::FilePath;
use headstart_model::blocks::Kind;
use headstart_model::machine::ByteRange;
use headstart_system::extents::Mapper;
use headstart_system::files::Type;
use headstart_system::mounts::{Mount, MountTable};
use headstart_system::open::{pin, reopen};
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::os::fd::AsFd;

/// Directories that wait to be looked at, at most: a source tree of Linux has 6,000 in all.
const MAX_WAITING: usize = 1 << 18;

/// An entry of a directory.
struct Entry<'a> {
    path: &'a FilePath,
    inode: u64,
    kind: FileType,
}

/// Shows all entries below a mount's root until `visit` says that it is enough. Follows no symbolic link,
/// leaves the mount nowhere. Fails if there are too many directories.
fn walk(
    mounts: &MountTable,
    mount: &Mount,
    mut visit: impl FnMut(&Entry<'_>) -> ControlFlow<()>,
) -> Result<(), String> {
    let mut waiting = vec![mount.mount_point.clone()];
    while let Some(directory) = waiting.pop() {
        let Some(entries) = list(mounts, &directory) else {
            continue;
        };
        for entry in entries {
            let Ok(entry) = entry else { break };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let path = join(directory.as_bytes(), name);
            // What is behind another mount's point is another file system's.
            if mounts
                .index_of(path.as_bytes())
                .map(|index| mounts.all()[index].id)
                != Some(mount.id)
            {
                continue;
            }
            let entry = Entry {
                path: &path,
                inode: entry.ino(),
                kind: entry.file_type(),
            };
            if visit(&entry).is_break() {
                return Ok(());
            }
            // Where the kind is not told, it is a directory if it can be listed.
            if matches!(entry.kind, FileType::Directory | FileType::Unknown) {
                if waiting.len() >= MAX_WAITING {
                    return Err(format!("it has more than {MAX_WAITING} directories side by side"));
                }
                waiting.push(path);
            }
        }
    }
    Ok(())
}

/// Claims the data of all files below a mount's root, until everything has an owner or it takes too long.
/// Opens regular files and directories only.
pub fn claim(mounts: &MountTable, mount: &Mount, claims: &mut Claims) {
    let mut mapper = Mapper::new();
    let walked = walk(mounts, mount, |entry| {
        if claims.is_over() {
            return ControlFlow::Break(());
        }
        if matches!(entry.kind, FileType::RegularFile | FileType::Unknown) {
            // One that cannot be opened, or has just gone, owns nothing.
            if let Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL) =
                file(mounts, entry.path, &mut mapper, claims)
            {
                claims.give_up(format!("{} does not tell where files are", mount.fstype));
            }
        }
        ControlFlow::Continue(())
    });
    if let Err(why) = walked {
        claims.give_up(why);
    }
}

/// Looks for the paths of files that have claimed and have none, by their inode numbers, until all have one
/// or it takes too long. `name` tells the path of one that a path was found for: on btrfs the same number is
/// in every subvolume.
pub fn name(
    mounts: &MountTable,
    mount: &Mount,
    claims: &mut Claims,
    mut name: impl FnMut(u64, u64, &FilePath) -> Option<FilePath>,
) {
    let mut nameless: HashMap<u64, Vec<u64>> = HashMap::new();
    for (tree, inode) in claims.nameless() {
        nameless.entry(inode).or_default().push(tree);
    }
    // What has too many directories leaves some without names.
    let _ = walk(mounts, mount, |entry| {
        if nameless.is_empty() || claims.is_late() {
            return ControlFlow::Break(());
        }
        if let Some(trees) = nameless.get_mut(&entry.inode) {
            // This brings the entry to memory, so that the file is known by it.
            let pinned = pin(mounts, entry.path.as_path());
            if pinned.is_ok_and(|(_, stat)| stat.inode == entry.inode) {
                trees.retain(|tree| match name(*tree, entry.inode, entry.path) {
                    None => true,
                    Some(path) => {
                        claims.name(*tree, entry.inode, path);
                        false
                    }
                });
            }
            if trees.is_empty() {
                nameless.remove(&entry.inode);
            }
        }
        ControlFlow::Continue(())
    });
}

fn list(mounts: &MountTable, directory: &FilePath) -> Option<Dir> {
    let (pinned, stat) = pin(mounts, directory.as_path()).ok()?;
    if stat.kind != Type::Directory {
        return None;
    }
    Dir::new(reopen(pinned.as_fd()).ok()?).ok()
}

/// Claims the data of what is at a path, if that is a regular file; tells what it is otherwise.
pub fn file(
    mounts: &MountTable,
    path: &FilePath,
    mapper: &mut Mapper,
    claims: &mut Claims,
) -> Result<Option<Type>, Errno> {
    let Ok((pinned, stat)) = pin(mounts, path.as_path()) else {
        return Ok(None);
    };
    if stat.kind != Type::File {
        return Ok(Some(stat.kind));
    }
    let Ok(open) = reopen(pinned.as_fd()) else {
        return Ok(Some(Type::File));
    };
    let extents = mapper
        .unencoded(open.as_fd())
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let claimant = Claimant {
        tree: 0,
        inode: stat.inode,
        path: Some(path),
    };
    for extent in extents {
        let range = ByteRange {
            start: extent.physical,
            length: extent.length,
        };
        claims.claim_for(range, Kind::Data, claimant, extent.logical);
    }
    Ok(Some(Type::File))
}
