//! desync's state of a copy-on-read file: which chunks `desync mount-index --cor-state-init` fetches first.
//!
//! The state is a bit for each chunk of the index, the lowest of a byte first (`sparseFileLoader` in desync's
//! sparse-file.go). The index is casync's (`IndexFromReader` in desync's index.go, `CaFormatTable` in
//! format.go).

use super::{ImageFile, Places, u64_at};
use std::ops::Range;

const INDEX: u64 = 0x9682_4d9c_7b12_9ff9;
const TABLE: u64 = 0xe75b_9e11_2f17_417d;
const TAIL: u64 = 0x4b4f_050e_5549_ecd1;
/// The index's head with that of its table.
const HEAD: usize = 48 + 16;
/// Where a chunk ends, and its name.
const ITEM: usize = 8 + 32;

/// Bytes of an index: 1.6 million chunks, with casync's 64 KiB on average an image of 100 GiB.
const MOST: u64 = 64 << 20;

/// Marks the chunks that have these bytes of a device, in any order. `sizes` are those that the image may
/// have: a device, and where it is a partition that of its disk, with the byte of the disk at which it
/// begins.
pub fn desync(bytes: &[Range<u64>], sizes: &[ImageSize], index: &ImageFile<'_>) -> Result<Places, String> {
    let ends = ends(index)?;
    let size = ends.last().copied().unwrap_or(0);
    // Devices have whole sectors.
    let Some(begin) = sizes.iter().find(|it| it.size == size / 512 * 512) else {
        let sizes: Vec<String> = sizes.iter().map(|it| it.size.to_string()).collect();
        return Err(index.refuse(&format!(
            "is of another image: that has {size} bytes, the device below --tree {}",
            sizes.join(" or its disk ")
        )));
    };
    let mut bits = vec![0u8; ends.len().div_ceil(8)];
    let mut bytes = bytes.to_vec();
    bytes.sort_by_key(|bytes| bytes.start);
    // No chunk is marked twice: files may share their data.
    let mut next = 0;
    for bytes in bytes {
        let [start, end] = [bytes.start, bytes.end].map(|byte| byte.saturating_add(begin.at));
        let first = ends.partition_point(|at| *at <= start).max(next);
        let behind = (ends.partition_point(|at| *at < end) + 1).min(ends.len());
        for chunk in first..behind {
            bits[chunk / 8] |= 1 << (chunk % 8);
        }
        next = next.max(behind);
    }
    let places = bits.iter().map(|byte| byte.count_ones() as usize).sum();
    Ok(Places { text: bits, places })
}

/// A size that an image may have.
#[derive(Clone, Copy, Debug)]
pub struct ImageSize {
    /// In bytes.
    pub size: u64,
    /// Where in it the file system begins.
    pub at: u64,
}

/// Where each chunk ends.
fn ends(index: &ImageFile<'_>) -> Result<Vec<u64>, String> {
    if index.size > MOST {
        return Err(index.refuse(&format!("has more than {} MiB", MOST >> 20)));
    }
    let head: [u8; HEAD] = index.array(0)?;
    if [u64_at(&head, 0), u64_at(&head, 8)] != [48, INDEX] {
        return Err(index.refuse("is no index of casync or desync"));
    }
    if [u64_at(&head, 48), u64_at(&head, 56)] != [u64::MAX, TABLE] {
        return Err(index.refuse("has no table of chunks"));
    }
    let count = (index.size as usize).checked_sub(HEAD + ITEM);
    let count = count.filter(|items| items % ITEM == 0).map(|items| items / ITEM);
    let count = count.ok_or_else(|| index.refuse("ends within a chunk"))?;
    let mut ends = Vec::with_capacity(count);
    let mut block = vec![0; 1024 * ITEM];
    let mut at = HEAD as u64;
    while ends.len() < count {
        let part = &mut block[..(count - ends.len()).min(1024) * ITEM];
        index.read(part, at)?;
        at += part.len() as u64;
        ends.extend(part.chunks_exact(ITEM).map(|item| u64_at(item, 0)));
    }
    let tail: [u8; ITEM] = index.array(at)?;
    if [u64_at(&tail, 0), u64_at(&tail, 8), u64_at(&tail, 32)] != [0, 0, TAIL] {
        return Err(index.refuse("has no tail: it is cut or damaged"));
    }
    if ends.first() == Some(&0) || !ends.is_sorted_by(|a, b| a < b) {
        return Err(index.refuse("has chunks that do not ascend"));
    }
    Ok(ends)
}
