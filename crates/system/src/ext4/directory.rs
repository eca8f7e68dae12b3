//! Which blocks of a large directory have to be read to look names up: the path through its index, and the
//! one leaf that holds a name, or would (Documentation/filesystems/ext4/directory.rst, "Hash Tree
//! Directories").

use super::blocks::Map;
use super::bytes::{u16_at, u32_at};
use super::hash::{Kind, hash};
use super::{Ext4, Ext4Error, ReadAt};

/// Levels of index below the root: 1, with the feature largedir 2.
const MAX_LEVELS: u8 = 2;

/// The blocks, as numbers in the directory, that looking up the names reads: root, index blocks on the way,
/// leaves. `None` if the directory has no index that can be followed: then any block may have to be read.
pub fn blocks_of_names<S: ReadAt>(
    fs: &Ext4<S>,
    map: &Map,
    names: &[&[u8]],
) -> Result<Option<Vec<u64>>, Ext4Error> {
    let read = |logical: u64| {
        map.find(logical)
            .ok_or(Ext4Error::Damaged {
                what: "directory index",
            })
            .and_then(|block| fs.block(block))
    };
    let root = read(0)?;
    // Behind the entries `.` and `..`: a reserved word, hash kind, length of this header, levels.
    let header = [root.get(28), root.get(29), root.get(30)].map(|byte| byte.copied().unwrap_or(u8::MAX));
    let [version, length, levels] = header;
    let Some((kind, unsigned)) = Kind::parse(version) else {
        return Ok(None);
    };
    if u32_at(&root, 24) != Some(0) || length != 8 || levels > MAX_LEVELS {
        return Ok(None);
    }
    let unsigned = unsigned || fs.geometry.hash_unsigned;
    let mut blocks = vec![0];
    for name in names {
        let wanted = hash(kind, unsigned, fs.geometry.hash_seed, name);
        // Nodes of one level that may lead to the name: two where a hash's names continue in the next.
        let mut nodes = follow(&root, 24 + usize::from(length), wanted)?;
        blocks.extend(&nodes);
        for _ in 0..levels {
            let mut next = Vec::new();
            for node in nodes {
                next.extend(follow(&read(node)?, 8, wanted)?);
            }
            blocks.extend(&next);
            nodes = next;
        }
    }
    blocks.sort_unstable();
    blocks.dedup();
    Ok(Some(blocks))
}

/// The entries of an index node that a hash leads to: the last with a hash not above it, and the next one if
/// its lowest bit says that the same hash continues there.
fn follow(node: &[u8], at: usize, wanted: u32) -> Result<Vec<u64>, Ext4Error> {
    let bad = Ext4Error::Damaged {
        what: "directory index",
    };
    let count = usize::from(u16_at(node, at + 2).ok_or(bad.clone())?);
    if count == 0 || at + count * 8 > node.len() {
        return Err(bad);
    }
    // The first entry's hash is where limit and count are: it stands for 0.
    let hash_of = |index: usize| {
        if index == 0 {
            0
        } else {
            u32_at(node, at + index * 8).unwrap_or(u32::MAX)
        }
    };
    let block_of = |index: usize| u64::from(u32_at(node, at + index * 8 + 4).unwrap_or(0) & 0x0FFF_FFFF);
    let (mut low, mut high) = (0, count);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if hash_of(middle) <= wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    let mut blocks = vec![block_of(low)];
    if low + 1 < count && hash_of(low + 1) == wanted | 1 {
        blocks.push(block_of(low + 1));
    }
    Ok(blocks)
}
