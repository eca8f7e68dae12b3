//! XFS: since version 5 each block of metadata says what it is, where it belongs, and whose it is. Offsets
//! are those of the kernel's fs/xfs/libxfs/xfs_format.h and xfs_da_format.h; numbers are big-endian.

use super::claims::{Claimant, Claims};
use super::raw::{MOST, Raw};
use headstart_model::blocks::{Kind, SECTOR};
use headstart_model::machine::ByteRange;
use std::io;

/// Metadata has the UUID of the super block's last field, since the other was changed
/// (XFS_SB_FEAT_INCOMPAT_META_UUID).
const INCOMPAT_META_UUID: u32 = 1 << 2;

/// Inodes that are allocated together (`XFS_INODES_PER_CHUNK`); a cluster, which is read at once, is a part
/// of it.
const IN_CHUNK: u64 = 64;

/// What of the super block is needed to find things.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    block: u64,
    sector: u64,
    /// Blocks of an allocation group, and how many there are.
    group_blocks: u64,
    groups: u64,
    /// In bits: a block's number within its group, inodes of a block, blocks of a directory block.
    group_bits: u32,
    inode_bits: u32,
    directory_bits: u32,
    inode_size: u64,
    uuid: [u8; 16],
    log: ByteRange,
}

fn be(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

fn uuid_at(bytes: &[u8], at: usize) -> Option<[u8; 16]> {
    bytes.get(at..at + 16)?.try_into().ok()
}

impl Geometry {
    /// From the super block; the error says what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Geometry, String> {
        let number = |at, size| be(bytes, at, size).ok_or("its super block is cut off".to_string());
        if bytes.get(..4) != Some(b"XFSB") {
            return Err("it has no super block of XFS".into());
        }
        let version = number(100, 2)? & 0xF;
        if version != 5 {
            return Err(format!(
                "XFS of version {version} does not say whose its metadata is: version 5 does"
            ));
        }
        let (block, sector, inode_size) = (number(4, 4)?, number(102, 2)?, number(104, 2)?);
        let sane = |value: u64, from: u64, to: u64| value.is_power_of_two() && (from..=to).contains(&value);
        if !sane(block, 512, 65536) || !sane(sector, 512, 32768) || !sane(inode_size, 256, 2048) {
            return Err("its super block has impossible sizes".into());
        }
        let bits = |at| number(at, 1).map(|bits| bits as u32);
        let (group_bits, inode_bits, directory_bits) = (bits(124)?, bits(123)?, bits(192)?);
        if group_bits > 31 || inode_bits > 8 || directory_bits > 7 {
            return Err("its super block has impossible sizes".into());
        }
        let uuid_place = match number(216, 4)? as u32 & INCOMPAT_META_UUID {
            0 => 32,
            _ => 248,
        };
        let mut geometry = Geometry {
            block,
            sector,
            group_blocks: number(84, 4)?,
            groups: number(88, 4)?,
            group_bits,
            inode_bits,
            directory_bits,
            inode_size,
            uuid: uuid_at(bytes, uuid_place).ok_or("its super block is cut off")?,
            log: ByteRange::default(),
        };
        let (log, blocks) = (number(48, 8)?, number(96, 4)?);
        // 0: it is on another device.
        if log != 0 {
            geometry.log = ByteRange {
                start: geometry.byte_of(log).unwrap_or(0),
                length: blocks * block,
            };
        }
        Ok(geometry)
    }

    /// Where a block begins: its upper bits are its group, its lower ones the block in it.
    fn byte_of(&self, number: u64) -> Option<u64> {
        let (group, block) = (number >> self.group_bits, number & ((1 << self.group_bits) - 1));
        group
            .checked_mul(self.group_blocks)?
            .checked_add(block)?
            .checked_mul(self.block)
    }

    /// Where an inode is, with those beside it that are read together with it; `None` where there can be
    /// none.
    pub fn inodes_around(&self, number: u64) -> Option<ByteRange> {
        let first = number / IN_CHUNK * IN_CHUNK;
        let start = self.byte_of(first >> self.inode_bits)?;
        let length = IN_CHUNK * self.inode_size;
        Some(ByteRange { start, length })
    }

    /// What a block of metadata at a byte of the device says it is, and of which inode; `None` if it is none,
    /// or belongs elsewhere.
    pub fn recognise(&self, block: &[u8], at: u64) -> Option<(Kind, Option<u64>)> {
        let long = be(block, 0, 4)? as u32;
        let short = be(block, 8, 2)? as u16;
        // Where its own place, the UUID and the owner are.
        let (kind, place, uuid, owner) = match &long.to_be_bytes() {
            b"AB3B" | b"AB3C" | b"IAB3" | b"FIB3" | b"RMB3" | b"R3FC" => (Kind::AllocationTree, 16, 32, None),
            b"BMA3" => (Kind::ExtentBlock, 24, 40, Some(56)),
            b"XDB3" | b"XDD3" | b"XDF3" => (Kind::Directory, 8, 24, Some(40)),
            b"XARM" => (Kind::Attributes, 40, 16, Some(32)),
            b"XSLM" => (Kind::SymbolicLink, 40, 16, Some(32)),
            [b'I', b'N', ..] => {
                let number = be(block, 152, 8)?;
                let ours = uuid_at(block, 160)? == self.uuid;
                return (ours && self.byte_of(number >> self.inode_bits) == Some(at))
                    .then_some((Kind::Inodes, None));
            }
            _ => match short {
                0x3df1 | 0x3dff | 0x3ebe => (Kind::Directory, 16, 32, Some(48)),
                0x3bee => (Kind::Attributes, 16, 32, Some(48)),
                _ => return None,
            },
        };
        let here = be(block, place, 8)?.checked_mul(SECTOR) == Some(at);
        if !here || uuid_at(block, uuid)? != self.uuid {
            return None;
        }
        Some((kind, owner.and_then(|owner| be(block, owner, 8))))
    }
}

/// Claims what lies at known places.
pub fn claim_fixed(geometry: &Geometry, claims: &mut Claims) {
    for group in 0..geometry.groups {
        if claims.is_over() {
            return;
        }
        let Some(start) = geometry
            .group_blocks
            .checked_mul(geometry.block)
            .and_then(|length| length.checked_mul(group))
        else {
            return;
        };
        let length = geometry.sector;
        claims.claim(ByteRange { start, length }, Kind::SuperBlock);
        // Free space, inodes and the free list have a sector each; what is left of their last block is
        // nobody's.
        let length = (geometry.sector * 4).next_multiple_of(geometry.block);
        claims.claim(ByteRange { start, length }, Kind::Groups);
    }
    claims.claim(geometry.log, Kind::Journal);
}

/// Looks at every block that nobody has claimed, and claims what says that it is metadata.
pub fn claim_metadata(geometry: &Geometry, raw: &mut Raw, claims: &mut Claims) -> io::Result<()> {
    for left in claims.unclaimed() {
        // Whole blocks: a read may have begun within one.
        let first = left.start / geometry.block * geometry.block;
        let end = left.start.saturating_add(left.length);
        let mut at = first;
        while at < end {
            if claims.is_over() {
                return Ok(());
            }
            let length = end
                .saturating_sub(at)
                .next_multiple_of(geometry.block)
                .min(MOST as u64);
            let bytes = raw.read(at, length as usize)?.to_vec();
            let whole = bytes.len() as u64 / geometry.block * geometry.block;
            for index in 0..(whole / geometry.block) as usize {
                claim_block(geometry, raw, claims, &bytes, index, at)?;
            }
            if whole == 0 {
                break;
            }
            at += whole;
        }
    }
    Ok(())
}

/// Looks at one block of `bytes`, which begin at `start` of the device.
fn claim_block(
    geometry: &Geometry,
    raw: &mut Raw,
    claims: &mut Claims,
    bytes: &[u8],
    index: usize,
    start: u64,
) -> io::Result<()> {
    let size = geometry.block as usize;
    let block_at = |index: usize| bytes.get(index * size..(index + 1) * size).unwrap_or_default();
    let (block, at) = (block_at(index), start + (index * size) as u64);
    if let Some((kind, owner)) = geometry.recognise(block, at) {
        claim(claims, kind, owner, at, geometry.block);
        return Ok(());
    }
    // A cluster of inodes may begin within a block that is larger than it.
    let inode = geometry.inode_size as usize;
    let in_block = geometry.block.div_ceil(geometry.inode_size) as usize;
    let inodes = (1..in_block).any(|index| {
        let bytes = block.get(index * inode..).unwrap_or_default();
        let number = be(bytes, 152, 8).unwrap_or(0);
        bytes.starts_with(b"IN")
            && uuid_at(bytes, 160) == Some(geometry.uuid)
            && geometry.byte_of(number >> geometry.inode_bits) == Some(at)
    });
    if inodes {
        claim(claims, Kind::Inodes, None, at, geometry.block);
        return Ok(());
    }
    // Only the first block of a larger directory block says what it is.
    for back in 1..1usize << geometry.directory_bits {
        let Some(before) = at.checked_sub((back * size) as u64) else {
            break;
        };
        let recognised = match index.checked_sub(back) {
            Some(index) => geometry.recognise(block_at(index), before),
            None => geometry.recognise(raw.read(before, size)?, before),
        };
        if let Some((Kind::Directory, owner)) = recognised {
            claim(claims, Kind::Directory, owner, at, geometry.block);
            break;
        }
    }
    Ok(())
}

fn claim(claims: &mut Claims, kind: Kind, owner: Option<u64>, start: u64, length: u64) {
    let range = ByteRange { start, length };
    match owner {
        None => claims.claim(range, kind),
        Some(inode) => {
            let claimant = Claimant {
                tree: 0,
                inode,
                path: None,
            };
            claims.claim_for(range, kind, claimant, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        let mut sb = vec![0u8; 512];
        sb[..4].copy_from_slice(b"XFSB");
        sb[4..8].copy_from_slice(&4096u32.to_be_bytes());
        sb[32..48].fill(7);
        sb[48..56].copy_from_slice(&((1u64 << 16) + 10).to_be_bytes());
        sb[84..88].copy_from_slice(&50_000u32.to_be_bytes());
        sb[88..92].copy_from_slice(&4u32.to_be_bytes());
        sb[96..100].copy_from_slice(&100u32.to_be_bytes());
        sb[100..102].copy_from_slice(&0xB4A5u16.to_be_bytes());
        sb[102..104].copy_from_slice(&512u16.to_be_bytes());
        sb[104..106].copy_from_slice(&512u16.to_be_bytes());
        (sb[123], sb[124]) = (3, 16);
        Geometry::parse(&sb).unwrap()
    }

    #[test]
    fn the_log_lies_in_its_group() {
        let log = geometry().log;
        assert_eq!((log.start, log.length), (50_010 * 4096, 100 * 4096));
    }

    #[test]
    fn an_inode_lies_where_its_number_says() {
        // In the second group, block 8, the fifth inode: 8 inodes of 512 bytes a block, 64 in a chunk.
        let number = (1 << 16 | 8) << 3 | 5;
        let (start, length) = ((50_000 + 8) * 4096, 64 * 512);
        assert_eq!(
            geometry().inodes_around(number),
            Some(ByteRange { start, length })
        );
        assert_eq!(geometry().inodes_around(u64::MAX), None);
    }

    #[test]
    fn a_block_that_says_it_belongs_elsewhere_is_not_believed() {
        let geometry = geometry();
        let mut block = vec![0u8; 4096];
        block[..4].copy_from_slice(b"XDB3");
        block[8..16].copy_from_slice(&800u64.to_be_bytes());
        block[24..40].fill(7);
        block[40..48].copy_from_slice(&131u64.to_be_bytes());
        assert_eq!(
            geometry.recognise(&block, 800 * 512),
            Some((Kind::Directory, Some(131)))
        );
        assert_eq!(geometry.recognise(&block, 808 * 512), None, "another place");
        block[24] = 8;
        assert_eq!(geometry.recognise(&block, 800 * 512), None, "another file system");
        for length in 0..200 {
            geometry.recognise(&block[..length], 0);
        }
    }

    #[test]
    fn damaged_super_blocks_are_refused_by_what_is_wrong() {
        assert!(Geometry::parse(b"XFSB").unwrap_err().contains("cut off"));
        assert!(Geometry::parse(&[0; 512]).unwrap_err().contains("no super block"));
        let mut sb = vec![0xFFu8; 512];
        sb[..4].copy_from_slice(b"XFSB");
        assert!(Geometry::parse(&sb).unwrap_err().contains("version 15"));
        sb[101] = 0xF5;
        assert!(Geometry::parse(&sb).unwrap_err().contains("impossible"));
    }
}
