//! btrfs: chunks lead from the device to the file system's own addresses, and tell data from metadata; each
//! node of metadata says of which tree it is; and the kernel tells whose data an address is. Structures are
//! those of the kernel's include/uapi/linux/btrfs_tree.h; numbers are little-endian.

use super::Named;
use super::claims::{Claimant, Claims};
use super::names::{by_number, open_file};
use super::raw::Raw;
use headstart_model::FilePath;
use headstart_model::blocks::Kind;
use headstart_model::machine::{ByteRange, Extent};
use headstart_system::extents::Mapper;
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, open_checked};
use headstart_system::sys::{BtrfsSearch, btrfs_owner};
use rustix::io::Errno;
use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

const CHUNK_TREE: u64 = 3;
const FIRST_CHUNK_TREE: u64 = 256;
const CHUNK_ITEM: u32 = 228;
const DATA: u64 = 1;
/// Stripes that are whole copies: none of RAID0, RAID10, RAID5 and RAID6.
const STRIPED: u64 = 8 | 64 | 128 | 256;
/// The metadata's UUID is another than the file system's (BTRFS_FEATURE_INCOMPAT_METADATA_UUID).
const INCOMPAT_METADATA_UUID: u64 = 1 << 10;
/// Chunks that are listed at most: 1 GiB each, as they are made, of 256 TiB.
const MAX_CHUNKS: usize = 1 << 18;
/// Where super blocks are, and their size.
const SUPER_BLOCKS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
const SUPER_BLOCK: u64 = 4096;

fn le(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)),
    )
}

fn uuid_at(bytes: &[u8], at: usize) -> Option<[u8; 16]> {
    bytes.get(at..at.checked_add(16)?)?.try_into().ok()
}

/// What of the super block is needed to find things.
struct SuperBlock {
    uuid: [u8; 16],
    node: u64,
    sector: u64,
    device: u64,
}

impl SuperBlock {
    fn parse(bytes: &[u8]) -> Option<SuperBlock> {
        if bytes.get(64..72)? != b"_BHRfS_M" {
            return None;
        }
        let uuid_place = match le(bytes, 0xBC, 8)? & INCOMPAT_METADATA_UUID {
            0 => 32,
            _ => 0x23B,
        };
        let (sector, node) = (le(bytes, 0x90, 4)?, le(bytes, 0x94, 4)?);
        let sane = |value: u64| value.is_power_of_two() && (512..=65536).contains(&value);
        (sane(sector) && sane(node) && node >= sector).then_some(SuperBlock {
            uuid: uuid_at(bytes, uuid_place)?,
            node,
            sector,
            device: le(bytes, 0xC9, 8)?,
        })
    }
}

/// A run of addresses with the same use, and where it is on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chunk {
    logical: u64,
    length: u64,
    kind: u64,
    /// First byte of each copy on the device.
    copies: Vec<u64>,
}

impl Chunk {
    /// From its item; `None` if it is damaged or not on the device.
    fn parse(logical: u64, item: &[u8], device: u64) -> Option<Chunk> {
        let (length, kind) = (le(item, 0, 8)?, le(item, 24, 8)?);
        logical.checked_add(length)?;
        let stripes = le(item, 44, 2)? as usize;
        let copies = (0..stripes)
            .map_while(|index| Some((le(item, 48 + index * 32, 8)?, le(item, 56 + index * 32, 8)?)))
            .filter(|(owner, offset)| *owner == device && offset.checked_add(length).is_some())
            .map(|(_, offset)| offset)
            .collect();
        Some(Chunk {
            logical,
            length,
            kind,
            copies,
        })
    }

    /// What of wanted bytes of the device it is: the bytes, and the address of the first.
    fn part(&self, wanted: ByteRange) -> Vec<(ByteRange, u64)> {
        let end = wanted.start.saturating_add(wanted.length);
        self.copies
            .iter()
            .filter_map(|copy| {
                let (first, last) = (wanted.start.max(*copy), end.min(copy + self.length));
                let length = last.checked_sub(first).filter(|length| *length > 0)?;
                let range = ByteRange { start: first, length };
                Some((range, self.logical + (first - copy)))
            })
            .collect()
    }
}

/// Claims all that can be found out. `root` is the root of a mount of it.
pub fn claim(
    mounts: &MountTable,
    root: BorrowedFd<'_>,
    raw: &mut Raw,
    claims: &mut Claims,
    named: &Named,
) -> io::Result<()> {
    let super_block = SuperBlock::parse(raw.read(SUPER_BLOCKS[0], SUPER_BLOCK as usize)?);
    let sb = super_block.ok_or_else(|| io::Error::other("it has no super block of btrfs"))?;
    for start in SUPER_BLOCKS {
        let length = SUPER_BLOCK;
        claims.claim(ByteRange { start, length }, Kind::SuperBlock);
    }
    let chunks = chunks(root, sb.device)?;
    let (striped, whole): (Vec<&Chunk>, Vec<&Chunk>) =
        chunks.iter().partition(|chunk| chunk.kind & STRIPED != 0);
    let mut data: Vec<&Chunk> = Vec::new();
    for chunk in whole {
        match chunk.kind & DATA {
            0 => nodes(&sb, chunk, raw, claims)?,
            _ => data.push(chunk),
        }
    }
    let mut mapper = Mapper::new();
    for (inode, path) in named {
        if claims.is_over() {
            return Ok(());
        }
        let expect = Expect {
            inode: Some(*inode),
            ..Expect::default()
        };
        if let Ok(opened) = open_checked(mounts, path.as_path(), &expect) {
            let extents = mapper.unencoded(opened.fd.as_fd()).unwrap_or_default();
            file(&data, claims, &extents, 0, *inode, Some(path));
        }
    }
    rest(root, &sb, &data, &mut mapper, claims)?;
    if !striped.is_empty() && !claims.is_over() {
        claims.give_up("RAID0, RAID10, RAID5 and RAID6 of btrfs are not supported");
    }
    Ok(())
}

/// All chunks, also those of which nothing is on the device.
fn chunks(root: BorrowedFd<'_>, device: u64) -> io::Result<Vec<Chunk>> {
    /// `struct btrfs_ioctl_search_header`: generation, object, offset, type, length.
    const HEADER: usize = 32;
    let mut search = BtrfsSearch::new();
    let mut chunks = Vec::new();
    let mut from = 0;
    while chunks.len() < MAX_CHUNKS {
        let (count, items) = search.get(root, CHUNK_TREE, FIRST_CHUNK_TREE, CHUNK_ITEM, from)?;
        let (mut at, mut last) = (0, None);
        for _ in 0..count {
            let (Some(offset), Some(length)) = (le(items, at + 16, 8), le(items, at + 28, 4)) else {
                break;
            };
            let end = at + HEADER + length as usize;
            let Some(item) = items.get(at + HEADER..end) else {
                break;
            };
            chunks.extend(Chunk::parse(offset, item, device));
            (at, last) = (end, Some(offset));
        }
        match last.and_then(|last| last.checked_add(1)) {
            Some(next) => from = next,
            None => break,
        }
    }
    Ok(chunks)
}

/// Claims the nodes of metadata of a chunk.
fn nodes(sb: &SuperBlock, chunk: &Chunk, raw: &mut Raw, claims: &mut Claims) -> io::Result<()> {
    /// Bytes of `struct btrfs_header`.
    const HEADER: usize = 101;
    for left in claims.unclaimed() {
        for (range, logical) in chunk.part(left) {
            let end = logical + range.length;
            // Nodes begin at multiples of their size from the chunk's beginning.
            let mut node = chunk.logical + (logical - chunk.logical) / sb.node * sb.node;
            while node < end {
                if claims.is_over() {
                    return Ok(());
                }
                let Some(start) = (range.start + node).checked_sub(logical) else {
                    break;
                };
                let header = raw.read(start, HEADER)?;
                let ours = uuid_at(header, 32) == Some(sb.uuid) && le(header, 48, 8) == Some(node);
                let kind = match le(header, 88, 8) {
                    Some(owner) if ours => tree(owner),
                    // It was in use then, and is no more.
                    _ => Kind::OtherTree,
                };
                claims.claim(
                    ByteRange {
                        start,
                        length: sb.node,
                    },
                    kind,
                );
                node += sb.node;
            }
        }
    }
    Ok(())
}

fn tree(owner: u64) -> Kind {
    /// The log of a tree, and where data moves by way of.
    const LOG: u64 = u64::MAX - 5;
    const MOVING: u64 = u64::MAX - 8;
    match owner {
        2 => Kind::ExtentTree,
        3 => Kind::ChunkTree,
        7 => Kind::ChecksumTree,
        5 | LOG | MOVING => Kind::FileTree,
        256.. if owner <= i64::MAX as u64 => Kind::FileTree,
        _ => Kind::OtherTree,
    }
}

/// Claims a file's data.
fn file(
    data: &[&Chunk],
    claims: &mut Claims,
    extents: &[Extent],
    tree: u64,
    inode: u64,
    path: Option<&FilePath>,
) {
    let claimant = Claimant { tree, inode, path };
    for extent in extents {
        let end = extent.physical.saturating_add(extent.length);
        let from = data.partition_point(|chunk| chunk.logical + chunk.length <= extent.physical);
        for chunk in data[from..].iter().take_while(|chunk| chunk.logical < end) {
            let (first, last) = (
                extent.physical.max(chunk.logical),
                end.min(chunk.logical + chunk.length),
            );
            for copy in &chunk.copies {
                let range = ByteRange {
                    start: copy + (first - chunk.logical),
                    length: last - first,
                };
                let offset = extent.logical.saturating_add(first - extent.physical);
                claims.claim_for(range, Kind::Data, claimant, offset);
            }
        }
    }
}

/// Asks the kernel whose the data is that nobody has claimed.
fn rest(
    root: BorrowedFd<'_>,
    sb: &SuperBlock,
    data: &[&Chunk],
    mapper: &mut Mapper,
    claims: &mut Claims,
) -> io::Result<()> {
    let mut asked = HashSet::new();
    for left in claims.unclaimed() {
        for chunk in data {
            for (range, logical) in chunk.part(left) {
                let mut step = 0;
                while step < range.length {
                    let at = ByteRange {
                        start: range.start + step,
                        length: sb.sector.min(range.length - step),
                    };
                    let address = logical + step;
                    step += sb.sector;
                    if claims.is_over() {
                        return Ok(());
                    }
                    if !claims.wants(at) {
                        continue;
                    }
                    let Some([inode, offset, tree]) = owner(root, address)? else {
                        continue;
                    };
                    // The rest of the file's, unless it is compressed.
                    if asked.insert((tree, inode)) {
                        let open = by_number(root, "btrfs", tree, inode).and_then(|pin| open_file(&pin));
                        let extents = open.and_then(|open| mapper.unencoded(open.as_fd()).ok());
                        file(data, claims, &extents.unwrap_or_default(), tree, inode, None);
                    }
                    let claimant = Claimant {
                        tree,
                        inode,
                        path: None,
                    };
                    claims.claim_for(at, Kind::Data, claimant, offset);
                }
            }
        }
    }
    Ok(())
}

fn owner(root: BorrowedFd<'_>, logical: u64) -> io::Result<Option<[u64; 3]>> {
    match btrfs_owner(root, logical) {
        // It is nobody's, any more.
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::INVAL)) => Ok(None),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(length: u64, kind: u64, stripes: &[(u64, u64)]) -> Vec<u8> {
        let mut item = vec![0; 48];
        item[..8].copy_from_slice(&length.to_le_bytes());
        item[24..32].copy_from_slice(&kind.to_le_bytes());
        item[44..46].copy_from_slice(&(stripes.len() as u16).to_le_bytes());
        for (device, offset) in stripes {
            item.extend(device.to_le_bytes());
            item.extend(offset.to_le_bytes());
            item.extend([0; 16]);
        }
        item
    }

    #[test]
    fn a_chunk_leads_from_each_copy_to_its_addresses() {
        let chunk = Chunk::parse(1000, &item(100, DATA, &[(1, 5000), (2, 0), (1, 7000)]), 1).unwrap();
        assert_eq!(chunk.copies, [5000, 7000]);
        let wanted = |start, length| ByteRange { start, length };
        assert_eq!(chunk.part(wanted(4990, 20)), [(wanted(5000, 10), 1000)]);
        assert_eq!(chunk.part(wanted(7090, 100)), [(wanted(7090, 10), 1090)]);
        assert_eq!(chunk.part(wanted(5100, 10)), []);
    }

    #[test]
    fn damaged_chunks_are_none() {
        for length in 0..46 {
            assert_eq!(Chunk::parse(0, &item(1, DATA, &[])[..length], 1), None);
        }
        assert_eq!(
            Chunk::parse(u64::MAX, &item(1, DATA, &[]), 1),
            None,
            "beyond all addresses"
        );
        let cut = &item(100, DATA, &[(1, 0), (1, 100)])[..90];
        assert_eq!(
            Chunk::parse(0, cut, 1).unwrap().copies,
            [0],
            "what is cut off is left out"
        );
        let far = Chunk::parse(0, &item(100, DATA, &[(1, u64::MAX)]), 1).unwrap();
        assert!(far.copies.is_empty(), "beyond any device");
    }

    #[test]
    fn trees_have_their_kinds() {
        let kinds = [1, 2, 3, 5, 7, 256, u64::MAX - 5, u64::MAX - 2].map(tree);
        use Kind::*;
        assert_eq!(
            kinds,
            [
                OtherTree,
                ExtentTree,
                ChunkTree,
                FileTree,
                ChecksumTree,
                FileTree,
                FileTree,
                OtherTree
            ]
        );
    }
}
