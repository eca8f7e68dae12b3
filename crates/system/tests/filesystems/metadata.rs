//! The promise of `ext4`: once the ranges it names are read through the block device, nothing that was wanted
//! needs another metadata read.

use headstart_model::machine::{FileFacts, Machine, PathKind};
use headstart_system::extents::extents;
use headstart_system::residency::fadvise_willneed;
use headstart_system::snapshot::{Need, Options, Wanted, snapshot};
use headstart_system::testing::tree;
use headstart_system::testing::{LoopFs, Spec, can_mount, wait_resident};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

fn read_metadata(fs: &LoopFs, machine: &Machine) -> u64 {
    let device = File::open(fs.node()).unwrap();
    let mut pages: Vec<u64> = Vec::new();
    for range in machine.files.iter().flat_map(|f| &f.metadata) {
        pages.extend(range.start / 4096..(range.start + range.length).div_ceil(4096));
    }
    pages.sort_unstable();
    pages.dedup();
    // Exactly those: an ordinary read would bring in what lies behind them.
    for page in &pages {
        fadvise_willneed(&device, page * 4096, 4096).unwrap();
    }
    for page in &pages {
        device.read_exact_at(&mut [0], page * 4096).unwrap();
    }
    pages.len() as u64
}

fn look_up(wanted: &[Wanted]) {
    for want in wanted {
        let path = want.path.as_path();
        let _ = std::fs::symlink_metadata(path);
        let metadata = std::fs::metadata(path);
        match want.need {
            Need::List => assert!(std::fs::read_dir(path).unwrap().count() > 0),
            // Reads the whole map of the file's blocks, and no data.
            Need::Data => drop(extents(File::open(path).unwrap()).unwrap()),
            Need::Stat => drop(metadata),
        }
    }
}

/// Asks for all data of the wanted files; gives the bytes of whole pages that holds.
fn read_data(wanted: &[Wanted], facts: &HashMap<&[u8], &FileFacts>, limit: u64) -> u64 {
    let mut bytes = 0;
    for want in wanted.iter().filter(|w| w.need == Need::Data) {
        let facts = facts[want.path.as_bytes()];
        let file = File::open(want.path.as_path()).unwrap();
        for extent in &facts.extents {
            let end = (extent.logical + extent.length).min(facts.size).div_ceil(4096) * 4096;
            bytes += end - extent.logical;
            for start in (extent.logical..end).step_by(limit as usize) {
                fadvise_willneed(&file, start, limit.min(end - start)).unwrap();
            }
            wait_resident(&file, end.min(facts.size)).unwrap();
        }
    }
    bytes
}

fn check(spec: Spec) {
    if !can_mount() {
        return;
    }
    let mut fs = LoopFs::create(&spec, tree::fill).unwrap();
    let wanted = tree::wanted(&fs.mount_point());
    let machine = snapshot(&wanted, &Options::default()).unwrap();
    let device = machine
        .devices
        .iter()
        .find(|d| d.node.as_path() == fs.node())
        .unwrap();
    assert!(device.metadata_by_block, "{device:?}");
    let limit = u64::from(device.request_limit);

    fs.remount_cold().unwrap();
    let start = fs.reads();
    look_up(&wanted);
    let cold = fs.reads() - start;

    fs.remount_cold().unwrap();
    let start = fs.reads();
    let pages = read_metadata(&fs, &machine);
    let metadata = fs.reads() - start;
    assert!(
        metadata.bytes >= pages * 4096 * 9 / 10,
        "{metadata:?} for {pages} pages: was the device not cold?"
    );
    let start = fs.reads();
    look_up(&wanted);
    let left = fs.reads() - start;
    println!("{spec:?}: cold {cold:?}, metadata {metadata:?}, left {left:?}");
    assert!(left.requests * 100 <= cold.requests, "left {left:?} of {cold:?}");

    let facts: HashMap<&[u8], &FileFacts> = machine.files.iter().map(|f| (f.path.as_bytes(), f)).collect();
    assert!(
        facts[fs.mount_point().join("fragmented").as_os_str().as_encoded_bytes()]
            .extents
            .len()
            > 1000
    );
    let start = fs.reads();
    let wanted_bytes = read_data(&wanted, &facts, limit);
    let data = fs.reads() - start;
    // A hundredth: in pages of smaller blocks a part may be a hole, and others look at new devices too.
    let slack = wanted_bytes
        / if spec.mkfs.iter().any(|a| a == "4096") {
            100
        } else {
            50
        };
    assert!(
        data.bytes.abs_diff(wanted_bytes) <= slack,
        "read {} of {wanted_bytes} bytes",
        data.bytes
    );

    // Not by reading everything: of the large directory only the blocks of 82 names.
    let many = facts[fs.mount_point().join("many").as_os_str().as_encoded_bytes()];
    let read: u64 = many.metadata.iter().map(|r| r.length).sum();
    let indexed = spec.fstype == "ext4" || spec.fstype == "ext3";
    assert!(
        !indexed || read < many.size * 9 / 10,
        "{read} of {} bytes",
        many.size
    );
    assert_eq!(many.found, PathKind::Directory);
}

#[test]
fn ext4_with_4k_blocks() {
    check(Spec::new("ext4").mkfs(&["-b", "4096"]));
}

#[test]
fn ext4_with_1k_blocks() {
    check(Spec::new("ext4").mkfs(&["-b", "1024"]));
}

#[test]
fn ext4_without_64_bits_and_flexible_groups_with_small_inodes() {
    check(Spec::new("ext4").mkfs(&[
        "-b",
        "2048",
        "-I",
        "128",
        "-O",
        "^64bit,^flex_bg,^metadata_csum,^resize_inode,meta_bg",
    ]));
}

#[test]
fn ext4_with_inline_data_and_meta_bg() {
    check(Spec::new("ext4").mkfs(&[
        "-b",
        "4096",
        "-I",
        "512",
        "-O",
        "inline_data,meta_bg,^resize_inode",
    ]));
}

#[test]
fn ext3() {
    check(Spec::new("ext3").mkfs(&["-b", "4096"]));
}

#[test]
fn ext2_with_1k_blocks() {
    check(Spec::new("ext2").mkfs(&["-b", "1024"]));
}
