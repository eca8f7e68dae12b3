//! Owners are those that e2fsprogs finds, and of a whole device nothing in use is without one.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use headstart_model::blocks::{Kind, Part};
use headstart_model::machine::ByteRange;
use headstart_system::mounts::MountTable;
use headstart_system::testing::{LoopFs, Spec, can_mount, tree};
use headstart_user_commands::owners::{Named, find, places};
use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Whose the bytes of the whole device of a mount are.
fn owners(mount: &Path) -> Part {
    let mounts = MountTable::read().unwrap();
    let place = places(&mounts)
        .into_iter()
        .find(|place| place.part.mount_point.as_path() == mount)
        .unwrap();
    let whole = ByteRange {
        start: 0,
        length: place.part.range.length,
    };
    let deadline = Instant::now() + Duration::from_secs(120);
    let part = find(&mounts, place, &[whole], &Named::new(), deadline, &|_| {});
    assert_eq!(part.unfinished, None);
    part
}

fn blocks(part: &Part, size: u64, mut of: impl FnMut(Kind) -> bool) -> BTreeSet<u64> {
    let owned = part.owned.iter().filter(|owned| of(owned.kind));
    owned
        .flat_map(|owned| {
            let range = owned.range;
            range.start / size..(range.start + range.length).div_ceil(size)
        })
        .collect()
}

/// What dumpe2fs tells of the groups: the block size, the first block, the blocks in use, and the fields that
/// name blocks.
struct ExpectedOwners {
    size: u64,
    used: BTreeSet<u64>,
    fields: Vec<(String, BTreeSet<u64>)>,
}

fn told(image: &Path) -> ExpectedOwners {
    let output = Command::new("dumpe2fs").arg(image).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let fact = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    let ranges = |text: &str| -> BTreeSet<u64> {
        let words = text.split(|c: char| !c.is_ascii_digit() && c != '-');
        let range = |word: &str| -> Option<(u64, u64)> {
            let (from, to) = word.split_once('-').unwrap_or((word, word));
            Some((from.parse().ok()?, to.parse().ok()?))
        };
        words.filter_map(range).flat_map(|(from, to)| from..=to).collect()
    };
    let mut used: BTreeSet<u64> = (fact("First block:")..fact("Block count:")).collect();
    let mut fields = Vec::new();
    for line in text.lines() {
        // Those of a group; of all only the number is told.
        if let Some(free) = line.strip_prefix("  Free blocks:") {
            ranges(free)
                .iter()
                .for_each(|block| assert!(used.remove(block), "{block}"));
        }
        // `Block bitmap at 129 (+129), csum …`, `Primary superblock at 0, Group descriptors at 1-1`.
        for part in line.split(", ") {
            if let Some((name, place)) = part.trim().split_once(" at ") {
                let place = place.split([' ', ',']).next().unwrap();
                fields.push((name.to_string(), ranges(place)));
            }
        }
    }
    ExpectedOwners {
        size: fact("Block size:"),
        used,
        fields,
    }
}

#[test]
fn every_block_in_use_has_an_owner_and_no_free_one() {
    if !can_mount() {
        return;
    }
    let variants: [(&str, &[&str]); 8] = [
        ("ext4", &["-b", "4096"]),
        ("ext4", &["-b", "1024"]),
        ("ext4", &["-b", "1024", "-O", "meta_bg,^resize_inode,^64bit"]),
        ("ext4", &["-b", "1024", "-O", "meta_bg,^resize_inode,64bit"]),
        (
            "ext4",
            &[
                "-b",
                "2048",
                "-O",
                "^flex_bg,^metadata_csum,^uninit_bg,^sparse_super,^resize_inode",
            ],
        ),
        ("ext4", &["-b", "1024", "-O", "sparse_super2,^has_journal"]),
        ("ext3", &["-b", "1024"]),
        ("ext2", &["-b", "4096"]),
    ];
    for (fstype, arguments) in variants {
        let mut fs = LoopFs::create(&Spec::new(fstype).mkfs(arguments), tree::fill).unwrap();
        let part = owners(&fs.mount_point());
        let inode = |path: &str| std::fs::metadata(fs.mount_point().join(path)).unwrap().ino();
        let (large, many) = (inode("large"), inode("many"));
        fs.unmount();
        let told = told(&fs.image());
        let what = format!("{fstype} {arguments:?}");
        let first = told.used.first().copied().unwrap();
        let mut ours = blocks(&part, told.size, |_| true);
        // The boot block, which no bitmap counts.
        ours.retain(|block| *block >= first);
        let (nobodys, free): (Vec<_>, Vec<_>) = (
            told.used.difference(&ours).collect(),
            ours.difference(&told.used).collect(),
        );
        assert!(
            nobodys.is_empty() && free.is_empty(),
            "{what}: {nobodys:?} {free:?}"
        );

        for (name, there) in &told.fields {
            let kinds: &[Kind] = match name.as_str() {
                "Block bitmap" | "Inode bitmap" => &[Kind::Bitmap],
                "Inode table" => &[Kind::Inodes],
                "Primary superblock" | "Backup superblock" => &[Kind::SuperBlock],
                "Group descriptors" | "Group descriptor" | "Reserved GDT blocks" => &[Kind::Groups],
                _ => continue,
            };
            let ours = blocks(&part, told.size, |kind| kinds.contains(&kind));
            let missing: Vec<_> = there.difference(&ours).collect();
            assert!(missing.is_empty(), "{what}: {name}: {missing:?}");
        }

        // Of each inode as much as debugfs finds.
        let mut sums: HashMap<(u64, Kind), u64> = HashMap::new();
        for owned in &part.owned {
            if let Some(file) = owned.file {
                let inode = part.files[file as usize].inode;
                *sums.entry((inode, owned.kind)).or_default() += owned.range.length;
            }
        }
        for (inode, kind) in [(large, Kind::Data), (many, Kind::Directory)] {
            let output = Command::new("debugfs")
                .arg("-R")
                .arg(format!("blocks <{inode}>"))
                .arg(fs.image())
                .output()
                .unwrap();
            let count = String::from_utf8_lossy(&output.stdout).split_whitespace().count() as u64;
            let sum = |kind| sums.get(&(inode, kind)).copied().unwrap_or(0);
            assert_eq!(
                (sum(kind) + sum(Kind::ExtentBlock)) / told.size,
                count,
                "{what}: inode {inode}"
            );
        }
    }
}

/// Of XFS and btrfs: metadata is of kinds that there must be, and files have all their bytes and their paths.
#[test]
fn files_and_metadata_of_xfs_and_btrfs_are_told_apart() {
    if !can_mount() {
        return;
    }
    let xfs = [
        Kind::SuperBlock,
        Kind::Groups,
        Kind::Journal,
        Kind::AllocationTree,
        Kind::Inodes,
        Kind::Directory,
    ];
    let btrfs = [
        Kind::SuperBlock,
        Kind::FileTree,
        Kind::ChecksumTree,
        Kind::ExtentTree,
        Kind::ChunkTree,
        Kind::OtherTree,
    ];
    let raid1: &[&str] = &["-m", "dup", "-d", "dup"];
    let variants: [(&str, &[&str], &[Kind]); 5] = [
        ("xfs", &[], &xfs),
        ("xfs", &["-b", "size=1024", "-n", "size=8192"], &xfs),
        ("xfs", &["-m", "rmapbt=1", "-i", "size=1024"], &xfs),
        ("btrfs", &[], &btrfs),
        ("btrfs", raid1, &btrfs),
    ];
    for (fstype, arguments, kinds) in variants {
        let fs = LoopFs::create(&Spec::new(fstype).mkfs(arguments), tree::fill).unwrap();
        let part = owners(&fs.mount_point());
        let what = format!("{fstype} {arguments:?}");
        let found_kinds: BTreeSet<Kind> = part.owned.iter().map(|owned| owned.kind).collect();
        assert!(
            kinds.iter().all(|kind| found_kinds.contains(kind)),
            "{what}: {found_kinds:?}"
        );
        let path = fs.mount_point().join("large");
        let index = part
            .files
            .iter()
            .position(|file| file.path.as_ref().is_some_and(|found| found.as_path() == path))
            .unwrap_or_else(|| panic!("{what}: {:?}", part.files));
        let data = part.owned.iter().filter(|owned| owned.kind == Kind::Data);
        let sum: u64 = data
            .filter(|owned| owned.file == Some(index as u32))
            .map(|owned| owned.range.length)
            .sum();
        let copies = if arguments == raid1 { 2 } else { 1 };
        let size = std::fs::metadata(&path).unwrap().len().next_multiple_of(4096);
        assert_eq!(sum, copies * size, "{what}");
    }
}
