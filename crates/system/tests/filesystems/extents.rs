//! Extents are those that e2fsprogs finds in the file system's own structures.

use headstart_model::machine::Extent;
use headstart_system::extents::extents;
use headstart_system::testing::tree;
use headstart_system::testing::{LoopFs, Spec, can_mount};
use std::fs::File;
use std::path::Path;
use std::process::Command;

fn blocks(extents: &[Extent], size: u64, block: u64) -> Vec<u64> {
    let end = size.div_ceil(block);
    let mut blocks = Vec::new();
    for extent in extents {
        let first = extent.logical / block;
        let last = (first + extent.length / block).min(end);
        blocks.extend((first..last).map(|n| extent.physical / block + n - first));
    }
    blocks
}

fn blocks_by_debugfs(image: &Path, path: &str) -> Vec<u64> {
    let output = Command::new("debugfs")
        .arg("-R")
        .arg(format!("blocks {path}"))
        .arg(image)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect()
}

#[test]
fn files_and_directories_lie_where_debugfs_finds_them() {
    if !can_mount() {
        return;
    }
    for (fstype, block) in [("ext4", 4096), ("ext4", 1024), ("ext3", 4096), ("ext2", 1024)] {
        let mut fs =
            LoopFs::create(&Spec::new(fstype).mkfs(&["-b", &block.to_string()]), tree::fill).unwrap();
        let mut by_path = Vec::new();
        for path in [
            "large",
            "fragmented",
            "sparse",
            "empty",
            "deep/1/d1/f29",
            "many",
            "deep",
        ] {
            let file = File::open(fs.mount_point().join(path)).unwrap();
            let size = file.metadata().unwrap().len();
            // Directories tell their extents on ext4 only where they have an extent tree.
            if let Ok(extents) = extents(&file) {
                by_path.push((path, blocks(&extents, size, block)));
            }
        }
        fs.unmount();
        assert!(by_path.len() >= 5);
        for (path, ours) in by_path {
            let theirs = blocks_by_debugfs(&fs.image(), path);
            // debugfs lists the blocks of the map too.
            let data: Vec<u64> = theirs.iter().copied().filter(|b| ours.contains(b)).collect();
            assert_eq!(ours, data, "{fstype} {block} {path}");
            let map = theirs.len() - data.len();
            assert!(
                map <= ours.len() / 100 + 8,
                "{fstype} {block} {path}: {map} blocks of {}",
                ours.len()
            );
        }
    }
}

#[test]
fn what_was_never_written_has_no_place() {
    if !can_mount() {
        return;
    }
    let fs = LoopFs::create(&Spec::new("xfs"), |root| {
        let file = File::create(root.join("reserved"))?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20)?;
        std::fs::write(root.join("written"), vec![1; 1 << 20])
    })
    .unwrap();
    let extents_of = |name: &str| extents(File::open(fs.mount_point().join(name)).unwrap()).unwrap();
    assert_eq!(extents_of("reserved"), []);
    assert_eq!(
        extents_of("written").iter().map(|e| e.length).sum::<u64>(),
        1 << 20
    );
}
