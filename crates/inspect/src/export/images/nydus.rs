//! nydus 3's trace of the groups of chunks that a start reads, for `nydus optimize --trace-file`.
//!
//! Its document is `TraceDocument` in nydus-storage's src/access_trace.rs; what says which group has which
//! blocks is `BlobMetadata` in nydus-format's src/blob/metadata.rs, both as of 3.0.0-beta.2.

use super::crc32c::crc32c;
use super::erofs::{BLOCK, Bootstrap, Inode};
use super::lookup::Lookup;
use super::{ImageFile, Places, u16_at, u32_at};
use crate::export::needed::{Needed, Unsaid};
use std::collections::HashMap;

const HEADER: u64 = 24;
const MAGIC: &[u8] = b"NDBLMETA";
/// Feature of a blob that was written in steps.
const INCOMPAT_KNOWN: u32 = 1;
const TABLE_HEADER: u64 = 16;
/// Type of the table of groups.
const GROUPS: u16 = 1;
const GROUP: usize = 24;

/// Bytes of all blobs' metadata: some 100 for each 2 MiB of an image, so this is an image of 300 GiB.
const METADATA: u64 = 16 << 20;

/// Where the groups of a blob's chunks begin.
struct Groups {
    /// The first block of each, ascending; then the end of the last.
    begins: Vec<u32>,
    is_listed: Vec<bool>,
}

/// Lists the groups of chunks that a start needs, in the order of first use. `images` are the image's
/// bootstrap, then the metadata of each blob, in the order of the bootstrap's device table. What is in none
/// is counted.
pub fn nydus(needed: &Needed<'_>, images: &[ImageFile<'_>], unsaid: &mut Unsaid) -> Result<Places, String> {
    let [bootstrap, metadata @ ..] = images else {
        return Err("no bootstrap: give it by --image".into());
    };
    let bootstrap = Bootstrap::read(bootstrap)?;
    let mut blobs = groups(&bootstrap, metadata)?;
    let inodes = inodes(needed, &bootstrap, unsaid)?;

    let mut text = b"{\"version\":1,\"patterns\":[".to_vec();
    let mut places = 0;
    for piece in needed.pieces() {
        let Some(inode) = inodes.get(&piece.file) else {
            continue;
        };
        bootstrap.locate(inode, &piece.bytes, &mut |found| {
            let damaged = || {
                bootstrap.refuse(&format!(
                    "has a chunk beyond the end of blob {}",
                    found.device + 1
                ))
            };
            let blob = blobs.get_mut(found.device).ok_or_else(damaged)?;
            let first = blob.group(found.bytes.start).ok_or_else(damaged)?;
            let last = blob.group(found.bytes.end - 1).ok_or_else(damaged)?;
            for group in first..=last {
                bootstrap.count()?;
                if std::mem::replace(&mut blob.is_listed[group], true) {
                    continue;
                }
                let comma = if places == 0 { "\n" } else { ",\n" };
                let blob = found.device + 1;
                let line = format!("{comma}{{\"blob_index\":{blob},\"chunk_group_index\":{group}}}");
                text.extend(line.bytes());
                places += 1;
            }
            Ok(())
        })?;
    }
    text.extend(b"\n]}\n");
    Ok(Places { text, places })
}

/// The needed files' inodes, by index.
fn inodes(
    needed: &Needed<'_>,
    bootstrap: &Bootstrap<'_>,
    unsaid: &mut Unsaid,
) -> Result<HashMap<usize, Inode>, String> {
    let mut lookup = Lookup::new(bootstrap)?;
    let mut inodes = HashMap::new();
    for (index, used) in needed.files.iter().enumerate() {
        match lookup.file(used.name)? {
            None => unsaid.add("no file in the bootstrap", used.path()),
            Some(inode) if inode.is_compressed() => {
                unsaid.add("compressed by EROFS, so not in chunks", used.path());
            }
            Some(inode) => {
                inodes.insert(index, inode);
            }
        }
    }
    Ok(inodes)
}

fn groups(bootstrap: &Bootstrap<'_>, metadata: &[ImageFile<'_>]) -> Result<Vec<Groups>, String> {
    let devices = &bootstrap.devices;
    if metadata.len() != devices.len() {
        return Err(bootstrap.refuse(&format!(
            "has {} blobs: give the .blob.meta of each by --image, in the order of `nydus check`; given: {}",
            devices.len(),
            metadata.len()
        )));
    }
    let all = metadata.iter().map(|file| file.size);
    if all.fold(0, u64::saturating_add) > METADATA {
        return Err(format!(
            "the blobs' metadata has more than {} MiB",
            METADATA >> 20
        ));
    }
    let blobs = metadata.iter().zip(devices).map(|(file, device)| {
        let groups = Groups::read(file)?;
        match groups.begins.last() {
            Some(end) if *end == device.blocks => Ok(groups),
            end => Err(file.refuse(&format!(
                "is of another blob: it has {} blocks, that of the bootstrap {}",
                end.copied().unwrap_or(0),
                device.blocks
            ))),
        }
    });
    blobs.collect()
}

impl Groups {
    fn read(file: &ImageFile<'_>) -> Result<Groups, String> {
        let bytes = file.vec(0, file.size as usize)?;
        let header = bytes
            .get(..HEADER as usize)
            .filter(|header| header.starts_with(MAGIC));
        let Some(header) = header else {
            return Err(file.refuse("is no metadata of a blob of nydus 3 (from 3.0.0-beta.2 on)"));
        };
        let mut cleared = header.to_vec();
        cleared[16..20].fill(0);
        if crc32c(crc32c(0, &cleared), &bytes[HEADER as usize..]) != u32_at(header, 16) {
            return Err(file.refuse("is damaged: its checksum is another"));
        }
        let unknown = u32_at(header, 12) & !INCOMPAT_KNOWN;
        if unknown != 0 {
            return Err(file.refuse(&format!("has features that are not known here: {unknown:#x}")));
        }
        let table = table(file, &bytes, u16_at(header, 20))?;
        let begins: Vec<u32> = table.map(|group| u32_at(group, 8)).collect();
        if begins.is_empty() || !begins.is_sorted_by(|a, b| a < b) {
            return Err(file.refuse("has groups that do not ascend"));
        }
        Ok(Groups {
            is_listed: vec![false; begins.len() - 1],
            begins,
        })
    }

    /// The group that has this byte of the blob.
    fn group(&self, byte: u64) -> Option<usize> {
        let block = u32::try_from(byte / BLOCK).ok()?;
        let group = self
            .begins
            .partition_point(|begin| *begin <= block)
            .checked_sub(1)?;
        (group < self.is_listed.len()).then_some(group)
    }
}

/// The entries of the table of groups.
fn table<'b>(
    file: &ImageFile<'_>,
    bytes: &'b [u8],
    tables: u16,
) -> Result<impl Iterator<Item = &'b [u8]>, String> {
    let mut at = HEADER;
    for _ in 0..tables {
        at = at.next_multiple_of(8);
        let head = bytes
            .get(at as usize..)
            .and_then(|rest| rest.get(..TABLE_HEADER as usize));
        let Some(head) = head else { break };
        let (kind, header) = (u16_at(head, 0), u64::from(u16_at(head, 2)));
        let (entry, count) = (u64::from(u32_at(head, 8)), u64::from(u32_at(head, 12)));
        if header < TABLE_HEADER || u16_at(head, 6) != 0 {
            return Err(file.refuse(&format!("has a table at {at} that is not known here")));
        }
        // Each factor has 32 bits.
        let end = at + header + entry * count;
        let entries = bytes.get((at + header) as usize..end as usize);
        let entries = entries.ok_or_else(|| file.refuse(&format!("ends within the table at {at}")))?;
        if kind == GROUPS && entry >= GROUP as u64 {
            return Ok(entries.chunks_exact(entry as usize));
        }
        at = end;
    }
    Err(file.refuse("has no table of groups"))
}
