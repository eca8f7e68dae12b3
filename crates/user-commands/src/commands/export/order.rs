//! Whether a mounted image has the files of a list in the list's order.

use anyhow::{Context, Result, bail};
use headstart_inspect::export::Needed;
use headstart_model::FilePath;
use headstart_system::extents::Mapper;
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, open_checked};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The type of file system whose builder may lose an order and say nothing.
const EROFS: &str = "erofs";

/// Fails where `tree` is a mounted EROFS in which these files do not lie in the order of their first use.
/// What lies beside an inode (a file's tail) has no place of its own, and is not looked at.
pub fn is_kept(tree: &Path, needed: &Needed<'_>) -> Result<()> {
    let mounts = MountTable::read().context("the mount table")?;
    let tree = tree.canonicalize().with_context(|| tree.display().to_string())?;
    let mount = mounts.lookup(tree.as_os_str().as_bytes());
    if mount.is_none_or(|mount| mount.fstype != EROFS) {
        return Ok(());
    }
    let mut mapper = Mapper::new();
    let mut last: Option<(u64, FilePath)> = None;
    for used in &needed.files {
        let path = tree.join(OsStr::from_bytes(used.name));
        let Ok(opened) = open_checked(&mounts, &path, &Expect::default()) else {
            continue;
        };
        let extents = mapper.extents(opened.fd.as_fd()).unwrap_or_default();
        let Some(first) = extents.first() else { continue };
        let path = FilePath::from(path.as_path());
        match last {
            Some((place, before)) if first.physical < place => bail!(
                "{path} is used after {before} and lies before it: mkfs.erofs has put the files of {} into the order of \
                 their paths, as it does with compression and before version 1.9: make the image anew without them",
                tree.display()
            ),
            _ => last = Some((first.physical, path)),
        }
    }
    Ok(())
}
