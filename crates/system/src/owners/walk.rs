//! All files of a mounted file system, directory by directory: for file systems that do not tell by themselves whose a block
//! is.

use super::claims::{Claimant, Claims};
use super::names::below;
use crate::extents::Mapper;
use crate::files::Type;
use crate::mounts::{Mount, MountTable};
use crate::open::{pin, reopen};
use headstart_model::FilePath;
use headstart_model::blocks::Kind;
use headstart_model::machine::ByteRange;
use rustix::fs::Dir;
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Directories that wait to be looked at, at most: a source tree of Linux has 6,000 in all.
const MAX_WAITING: usize = 1 << 18;

/// Claims the data of all files below a mount's root, until everything has an owner or it takes too long. Follows no symbolic
/// link, leaves the mount nowhere, opens regular files and directories only.
pub fn claim(mounts: &MountTable, mount: &Mount, claims: &mut Claims) {
    let mut mapper = Mapper::new();
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
            if claims.is_over() {
                return;
            }
            let path = below(directory.as_bytes(), name);
            // Also what is behind another mount's point is refused: it is looked up from this mount's root.
            if mounts
                .index_of(path.as_bytes())
                .map(|index| mounts.all()[index].id)
                != Some(mount.id)
            {
                continue;
            }
            match entry.file_type() {
                rustix::fs::FileType::Directory if waiting.len() >= MAX_WAITING => {
                    claims.give_up(format!("it has more than {MAX_WAITING} directories side by side"));
                }
                rustix::fs::FileType::Directory => waiting.push(path),
                rustix::fs::FileType::RegularFile | rustix::fs::FileType::Unknown => {
                    match file(mounts, &path, &mut mapper, claims) {
                        Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL) => {
                            claims.give_up(format!("{} does not tell where files are", mount.fstype));
                        }
                        // One that cannot be opened, or has just gone, owns nothing.
                        Ok(Some(Type::Directory)) => waiting.push(path),
                        Ok(_) | Err(_) => {}
                    }
                }
                _ => {}
            }
        }
    }
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
