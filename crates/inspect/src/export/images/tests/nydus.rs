//! Bootstraps and metadata of blobs.

use super::super::{crc32c::crc32c, nydus};
use super::{BLOCK, damaged, put, with};
use crate::export::{Needed, Unsaid};
use headstart_model::profile::{Entry, Version};
use headstart_model::{FilePath, Profile, testing};
use std::time::{Duration, Instant};

/// A file's path, its bytes, and the pages that are used of it: first page, number.
type Uses<'a> = (&'a str, u64, &'a [(u64, u32)]);

/// Starts that use these files, one after the other.
fn profile(files: &[Uses<'_>]) -> Profile {
    let mut time = 0..;
    let mut entries: Vec<Entry> = Vec::new();
    for (path, size, ranges) in files {
        let version = Version {
            size: *size,
            ..testing::VERSION
        };
        let mut entry = Entry::whole(FilePath::from(*path), version, 4096, 0);
        let ranges = ranges
            .iter()
            .map(|(start, pages)| headstart_model::profile::WeightedRange {
                start: *start,
                pages: *pages,
                first_use_ns: time.next().unwrap(),
                ..testing::range(0, 1, 1.0)
            });
        entry.ranges = ranges.collect();
        entries.push(entry);
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    testing::profile(entries)
}

fn of_nydus(profile: &Profile, files: &[&[u8]]) -> Result<(serde_json::Value, String), String> {
    let needed = Needed::of(profile, &"/".into(), &|_| true);
    let mut unsaid = Unsaid::default();
    let places = with(files, |files| nydus(&needed, files, &mut unsaid))?;
    let read: serde_json::Value = serde_json::from_slice(&places.text).unwrap();
    assert_eq!(read["patterns"].as_array().unwrap().len(), places.places);
    Ok((read, unsaid.to_string()))
}

fn groups(read: &serde_json::Value) -> Vec<(u64, u64)> {
    let number = |entry: &serde_json::Value, key: &str| entry[key].as_u64().unwrap();
    let patterns = read["patterns"].as_array().unwrap().iter();
    patterns
        .map(|entry| (number(entry, "blob_index"), number(entry, "chunk_group_index")))
        .collect()
}

/// A bootstrap: `/a` has chunks of 8192 bytes at blocks 0 and 10 of blob 1, then a hole, then block 3 of blob
/// 2; `/d/b` has one at block 4 of blob 1; `/small` lies in the bootstrap. It has two blobs of 12 and 5
/// blocks.
fn bootstrap() -> Vec<u8> {
    let mut image = vec![0; 4 * BLOCK];
    put(&mut image, 1024, &0xe0f5_e1e2u32.to_le_bytes());
    image[1024 + 12] = 12;
    put(&mut image, 1024 + 14, &1u16.to_le_bytes()); // The root is inode 1.
    put(&mut image, 1024 + 40, &1u32.to_le_bytes()); // Inodes begin at block 1.
    put(&mut image, 1024 + 80, &0xcu32.to_le_bytes());
    put(&mut image, 1024 + 86, &2u16.to_le_bytes()); // Devices, from slot 9 on.
    put(&mut image, 1024 + 88, &9u16.to_le_bytes());
    put(&mut image, 9 * 128 + 64, &12u32.to_le_bytes());
    put(&mut image, 10 * 128 + 64, &5u32.to_le_bytes());
    let mut inode = |number: usize, layout: u16, mode: u16, size: u32, u: u32| {
        let at = BLOCK + number * 32;
        put(&mut image, at, &(layout << 1).to_le_bytes());
        put(&mut image, at + 4, &mode.to_le_bytes());
        put(&mut image, at + 8, &size.to_le_bytes());
        put(&mut image, at + 16, &u.to_le_bytes());
    };
    let d = directory(&[(b".", 20), (b"..", 1), (b"b", 12)]);
    // The root takes two blocks; the directory d lies behind its inode.
    inode(1, 0, 0o040_755, 2 * BLOCK as u32, 2);
    inode(4, 4, 0o100_644, 4 * 8192, 0x21);
    inode(12, 4, 0o100_644, 100, 0x21);
    inode(16, 2, 0o100_644, 5, 0);
    inode(20, 2, 0o040_755, d.len() as u32, 0);
    put(&mut image, BLOCK + 21 * 32, &d);
    let mut chunk = |number: usize, index: usize, device: u16, block: u32| {
        let at = BLOCK + (number + 1) * 32 + index * 8;
        put(&mut image, at + 2, &device.to_le_bytes());
        put(&mut image, at + 4, &block.to_le_bytes());
    };
    chunk(4, 0, 1, 0);
    chunk(4, 1, 1, 10);
    chunk(4, 2, 0, u32::MAX);
    chunk(4, 3, 2, 3);
    chunk(12, 0, 1, 4);
    put(
        &mut image,
        2 * BLOCK,
        &directory(&[(b" x", 4), (b".", 1), (b"..", 1), (b"a", 4)]),
    );
    put(&mut image, 3 * BLOCK, &directory(&[(b"d", 20), (b"small", 16)]));
    image
}

fn directory(entries: &[(&[u8], u64)]) -> Vec<u8> {
    let mut heads = Vec::new();
    let mut names = Vec::new();
    for (name, inode) in entries {
        heads.extend(inode.to_le_bytes());
        heads.extend(((entries.len() * 12 + names.len()) as u16).to_le_bytes());
        heads.extend([0, 0]);
        names.extend(*name);
    }
    [heads, names].concat()
}

/// Metadata of a blob whose groups begin at these blocks; the last is the end.
fn metadata(begins: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; 24];
    put(&mut bytes, 0, b"NDBLMETA");
    put(&mut bytes, 20, &2u16.to_le_bytes());
    // A table that is of no interest comes first.
    let mut table = |kind: u16, extension: u16, entries: &[Vec<u8>]| {
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend(kind.to_le_bytes());
        bytes.extend((16 + extension).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend((entries[0].len() as u32).to_le_bytes());
        bytes.extend((entries.len() as u32).to_le_bytes());
        bytes.extend(vec![0; extension.into()]);
        bytes.extend(entries.concat());
    };
    table(2, 0, &[vec![7; 4], vec![9; 4], vec![1; 4]]);
    let groups = begins.iter().map(|begin| {
        let mut group = vec![0; 24];
        put(&mut group, 8, &begin.to_le_bytes());
        group
    });
    table(1, 8, &groups.collect::<Vec<_>>());
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    summed(bytes)
}

fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[16..20].fill(0);
    let sum = crc32c(0, &bytes);
    put(&mut bytes, 16, &sum.to_le_bytes());
    bytes
}

fn nydus_files() -> [Vec<u8>; 3] {
    [bootstrap(), metadata(&[0, 2, 11, 12]), metadata(&[0, 5])]
}

fn nydus_profile() -> Profile {
    profile(&[
        ("/d/b", 100, &[(0, 1)]),
        ("/a", 4 * 8192, &[(6, 1), (3, 1), (0, 1), (4, 2)]),
        ("/small", 5, &[(0, 1)]),
        ("/d/gone", 5, &[(0, 1)]),
        ("/a/b", 5, &[(0, 1)]),
        ("/d", 5, &[(0, 1)]),
    ])
}

#[test]
fn groups_are_those_of_the_needed_chunks_in_the_order_of_first_use() {
    let files = nydus_files();
    let files: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
    let (read, unsaid) = of_nydus(&nydus_profile(), &files).unwrap();
    assert_eq!(read["version"], 1);
    // The page 3 of a is the second of its chunk at block 10, and so in the group from block 11 on.
    assert_eq!(groups(&read), [(1, 1), (2, 0), (1, 2), (1, 0)]);
    assert_eq!(unsaid, "no file in the bootstrap: 3, first /d/gone");
}

#[test]
fn one_address_space_for_all_blobs_is_read_too() {
    let [mut bootstrap, one, two] = nydus_files();
    for (slot, mapped) in [(9, 1000u32), (10, 1012)] {
        put(&mut bootstrap, slot * 128 + 68, &mapped.to_le_bytes());
    }
    for (at, block) in [
        (5 * 32, 1000u32),
        (5 * 32 + 8, 1010),
        (5 * 32 + 24, 1015),
        (13 * 32, 1004),
    ] {
        put(&mut bootstrap, BLOCK + at + 2, &[0, 0]);
        put(&mut bootstrap, BLOCK + at + 4, &block.to_le_bytes());
    }
    let (read, _) = of_nydus(&nydus_profile(), &[&bootstrap, &one, &two]).unwrap();
    assert_eq!(groups(&read), [(1, 1), (2, 0), (1, 2), (1, 0)]);
}

#[test]
fn images_of_nydus_that_do_not_fit_are_refused_with_the_way_out() {
    let [bootstrap, one, two] = nydus_files();
    let mut of_nydus_2 = bootstrap.clone();
    put(&mut of_nydus_2, 1024 + 8, &0x4000_0000u32.to_le_bytes());
    let mut unsorted = metadata(&[0, 5]);
    let at = unsorted.len() - BLOCK + 64;
    unsorted[at] = 1;
    for (files, expected) in [
        (
            &[&bootstrap[..]][..],
            "has 2 blobs: give the .blob.meta of each by --image",
        ),
        (
            &[&bootstrap, &two, &one],
            "image 1: is of another blob: it has 5 blocks, that of the bootstrap 12",
        ),
        (
            &[&bootstrap, &one, &unsorted],
            "image 2: is damaged: its checksum is another",
        ),
        (
            &[&bootstrap, &one, &metadata(&[5, 0])],
            "image 2: has groups that do not ascend",
        ),
        (
            &[&bootstrap, &one, &bootstrap],
            "image 2: is no metadata of a blob of nydus 3",
        ),
        (
            &[&one, &one, &two],
            "image 0: is no EROFS image: give the bootstrap of the image first",
        ),
        (
            &[&of_nydus_2, &one, &two],
            "image 0: is a bootstrap of nydus 2: use --for nydus2",
        ),
        (&[&bootstrap[..1100], &one, &two], "image 0: ends at 1100"),
        (&[], "no bootstrap"),
    ] {
        let refused = of_nydus(&nydus_profile(), files).unwrap_err();
        assert!(refused.contains(expected), "{expected}: {refused}");
    }
}

#[test]
fn damaged_bootstraps_and_metadata_end_in_a_result_or_an_error() {
    let [bootstrap, one, two] = nydus_files();
    let profile = nydus_profile();
    damaged(&bootstrap, 4 * BLOCK / 4, |bootstrap| {
        let _ = of_nydus(&profile, &[bootstrap, &one, &two]);
    });
    damaged(&one, 1024, |one| {
        let one = if one.len() > 24 {
            summed(one.to_vec())
        } else {
            one.to_vec()
        };
        let _ = of_nydus(&profile, &[&bootstrap, &one, &two]);
    });
}

#[test]
fn a_hostile_bootstrap_takes_no_second() {
    let [mut bootstrap, _, two] = nydus_files();
    // A huge file in the largest and in the smallest chunks, all of them the first; a directory in itself.
    let mut large = metadata(&(0..600_000).collect::<Vec<u32>>());
    put(&mut bootstrap, 9 * 128 + 64, &599_999u32.to_le_bytes());
    put(&mut bootstrap, BLOCK + 4 * 32, &(4u16 << 1 | 1).to_le_bytes());
    put(&mut bootstrap, BLOCK + 4 * 32 + 8, &(1u64 << 40).to_le_bytes());
    let deep = format!("/{}a", "d/".repeat(2000));
    put(&mut bootstrap, BLOCK + 21 * 32 + 24, &20u64.to_le_bytes());
    bootstrap[BLOCK + 21 * 32 + 36 + 3] = b'd';
    let profile = profile(&[("/a", 1 << 40, &[(0, u32::MAX)]), (&deep, 5, &[(0, 1)])]);
    for format in [0x20u32, 0x3f] {
        put(&mut bootstrap, BLOCK + 4 * 32 + 16, &format.to_le_bytes());
        let begun = Instant::now();
        let _ = of_nydus(&profile, &[&bootstrap, &large, &two]);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
    large.resize(17 << 20, 0);
    let refused = of_nydus(&profile, &[&bootstrap, &large, &two]).unwrap_err();
    assert!(refused.contains("more than 16 MiB"), "{refused}");
}
