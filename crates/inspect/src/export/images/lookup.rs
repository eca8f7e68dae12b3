//! Names in the directories of an EROFS image: each block has its names in ascending order, as the blocks
//! have theirs.

use super::erofs::{BLOCK, Bootstrap, Inode};
use super::{u16_at, u64_at};
use std::collections::HashMap;

/// Bytes of an entry of a directory block: its names are behind all of them.
const ENTRY: usize = 12;

/// Looks files up by their names below the root.
pub(super) struct Lookup<'a> {
    bootstrap: &'a Bootstrap<'a>,
    /// By name: most files are in few directories.
    directories: HashMap<Vec<u8>, Option<Inode>>,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(bootstrap: &'a Bootstrap<'a>) -> Result<Lookup<'a>, String> {
        let root = bootstrap.root()?;
        Ok(Lookup {
            bootstrap,
            directories: HashMap::from([(Vec::new(), Some(root))]),
        })
    }

    /// The file of this name.
    pub(super) fn file(&mut self, name: &[u8]) -> Result<Option<Inode>, String> {
        let (parent, last) = split(name);
        let Some(directory) = self.directory(parent)? else {
            return Ok(None);
        };
        let found = find(self.bootstrap, &directory, last)?;
        Ok(found.filter(Inode::is_file))
    }

    fn directory(&mut self, name: &[u8]) -> Result<Option<Inode>, String> {
        // The longest part that is known, then one component after the other: a name may be deep.
        let mut known = name;
        while !self.directories.contains_key(known) {
            known = split(known).0;
        }
        let mut inode = self.directories.get(known).copied().flatten();
        while known.len() < name.len() {
            let rest = &name[known.len()..];
            let rest = rest.strip_prefix(b"/").unwrap_or(rest);
            let component = rest.split(|byte| *byte == b'/').next().unwrap_or(rest);
            if let Some(directory) = inode {
                inode = find(self.bootstrap, &directory, component)?.filter(Inode::is_directory);
            }
            known = &name[..name.len() - rest.len() + component.len()];
            self.directories.insert(known.to_vec(), inode);
        }
        Ok(inode)
    }
}

/// A name's directory and its last component.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    match name.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&name[..at], &name[at + 1..]),
        None => (b"", name),
    }
}

fn find(bootstrap: &Bootstrap<'_>, directory: &Inode, name: &[u8]) -> Result<Option<Inode>, String> {
    // The last block whose first name is not behind this one.
    let (mut from, mut to) = (0, directory.size.div_ceil(BLOCK));
    let mut block = None;
    while from < to {
        let middle = from + (to - from) / 2;
        let read = bootstrap.directory_block(directory, middle)?;
        let first = entries(bootstrap, &read)?.next();
        match first {
            Some((first, _)) if first <= name => {
                from = middle + 1;
                block = Some(read);
            }
            _ => to = middle,
        }
    }
    let Some(block) = block else { return Ok(None) };
    let mut entries = entries(bootstrap, &block)?;
    match entries.find(|(entry, _)| *entry == name) {
        Some((_, inode)) => bootstrap.inode(inode).map(Some),
        None => Ok(None),
    }
}

/// The names of a block, and their inodes.
fn entries<'b>(
    bootstrap: &Bootstrap<'_>,
    block: &'b [u8],
) -> Result<impl Iterator<Item = (&'b [u8], u64)>, String> {
    let damaged = || bootstrap.refuse("has a damaged directory");
    let names = block.get(8..10).map(|first| usize::from(u16_at(first, 0)));
    let names = names.filter(|names| *names >= ENTRY && names % ENTRY == 0 && *names <= block.len());
    let heads = &block[..names.ok_or_else(damaged)?];
    let begin = |head: &[u8]| usize::from(u16_at(head, 8));
    let ends = heads.chunks_exact(ENTRY).skip(1).map(begin).chain([block.len()]);
    let all = heads.chunks_exact(ENTRY).zip(ends);
    if !all
        .clone()
        .all(|(head, end)| begin(head) <= end && end <= block.len())
    {
        return Err(damaged());
    }
    Ok(all.map(move |(head, end)| {
        let name = &block[begin(head)..end];
        // The last name ends where zeros fill the block.
        let name = name.split(|byte| *byte == 0).next().unwrap_or(name);
        (name, u64_at(head, 0))
    }))
}
