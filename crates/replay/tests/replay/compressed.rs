//! A replay has each compressed block read and decompressed once. Needs root, for loop devices.

use crate::common::*;
use headstart_model::machine::{Compression, DeviceClass};
use headstart_model::plan::PlanDevice;
use headstart_model::plan::RequestKind::{Data, List, Stat};
use headstart_system::residency;
use headstart_system::snapshot::device_at;
use headstart_system::testing::{Spec, undisturbed};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// How images of live systems and snaps are made.
const IMAGES: [&[&str]; 4] = [
    &["-comp", "gzip"],
    &["-comp", "zstd", "-b", "1M"],
    &["-comp", "xz", "-b", "1M", "-no-fragments"],
    &["-comp", "xz", "-always-use-fragments"],
];
/// Pages of the file: 12 blocks of 1 MiB, and a tail.
const PAGES: u64 = 12 * 256 + 5;

/// Numbers as text: a third of it is left when it is compressed.
fn text(root: &Path) {
    let numbers = (0u64..).map(|n| format!("{:x} ", n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let mut bytes: Vec<u8> = numbers.take(800_000).flat_map(String::into_bytes).collect();
    bytes.truncate((PAGES * PAGE) as usize);
    assert_eq!(bytes.len() as u64, PAGES * PAGE);
    std::fs::write(root.join("f"), bytes).unwrap();
}

fn planned(disk: &Mounted) -> (PlanDevice, Compression) {
    let point = disk.root().as_path().into();
    let device = device_at(&point, &Default::default()).unwrap().unwrap();
    assert_ne!(device.uuid, [0; 16], "what was measured is found again");
    let compression = device.compression.unwrap();
    let planned = PlanDevice {
        compression: Some(compression),
        ..disk.planned(DeviceClass::Flash, 16)
    };
    (planned, compression)
}

/// How many pages of the file have been read into memory.
fn in_memory(path: &Path) -> u64 {
    resident(path).iter().map(|(from, to)| to - from).sum()
}

#[test]
fn each_compressed_block_is_read_once_though_many_are_asked_for_at_once() {
    for arguments in IMAGES {
        let mut disk = Mounted::new(Spec::new("squashfs").mkfs(arguments), 0, text);
        let path = disk.root().join("f");
        let before = disk.read_bytes();
        std::fs::read(&path).unwrap();
        let whole = disk.read_bytes() - before;
        disk.cool();
        let (device, compression) = planned(&disk);
        let expected = if arguments.contains(&"1M") {
            1 << 20
        } else {
            128 << 10
        };
        assert_eq!(compression.block, expected);
        let block = u64::from(compression.block);
        // One call of the kernel's limit of 128 KiB brings a block of 1 MiB.
        let mut plan = draft(vec![device]);
        let file = entry(&path);
        let blocks = (PAGES * PAGE).div_ceil(block);
        for at in (0..blocks).map(|at| at * block) {
            let length = block.min(PAGES * PAGE - at);
            add(&mut plan, Data, file.clone(), at, length);
        }
        let disk = RefCell::new(disk);
        undisturbed(|| {
            let mut disk = disk.borrow_mut();
            disk.cool();
            let before = disk.read_bytes();
            let report = start(&plan).finish();
            assert_eq!(report.skipped.total(), 0);
            let read = disk.read_bytes() - before;
            assert_eq!(in_memory(&path), PAGES, "{arguments:?}: {:?}", resident(&path));
            assert!(
                read * 100 <= whole * 105,
                "{arguments:?}: {read} bytes, {whole} by one who reads all"
            );
        });
    }
}

#[test]
fn a_compressed_block_that_is_in_memory_in_part_is_completed() {
    undisturbed(|| {
        let mut disk = Mounted::new(Spec::new("squashfs"), 0, text);
        let path = disk.root().join("f");
        let (device, compression) = planned(&disk);
        disk.cool();
        // Somebody has read a block, and one page was dropped again.
        let open = std::fs::File::open(&path).unwrap();
        std::os::unix::fs::FileExt::read_exact_at(&open, &mut [0], 3 * PAGE).unwrap();
        residency::advise_dontneed(&open, 9 * PAGE, PAGE).unwrap();
        let mut plan = draft(vec![device]);
        add(&mut plan, Data, entry(&path), 0, compression.block.into());
        let report = start(&plan).finish();
        assert_eq!(report.skipped.total(), 0);
        assert_eq!(resident(&path)[0], (0, 32));
    });
}

const DIRECTORIES: usize = 40;
const FILES: usize = 4000;

fn modules(root: &Path) {
    for n in 0..FILES {
        let dir = root.join(format!("package{:02}", n % DIRECTORIES));
        std::fs::create_dir_all(&dir).unwrap();
        let text = format!("{n} {:x}", n.wrapping_mul(0x9e37_79b9));
        std::fs::write(dir.join(format!("module{n:04}.py")), text).unwrap();
    }
}

/// What a start does with every seventh file: its name is looked up in another directory first, then it is
/// read; each directory is listed.
fn needs(root: &Path) -> Vec<(PathBuf, PathBuf)> {
    let path = |n: usize, dir: usize| root.join(format!("package{:02}/module{n:04}.py", dir % DIRECTORIES));
    // As imports go: here and there.
    let order = (0..FILES / 7).map(|n| n * 211 % (FILES / 7) * 7);
    order.map(|n| (path(n, n + 7), path(n, n))).collect()
}

fn start_alone(root: &Path) {
    for (missing, file) in needs(root) {
        assert!(!missing.exists());
        std::fs::read(file).unwrap();
    }
    for directory in directories(root) {
        assert_eq!(std::fs::read_dir(directory).unwrap().count(), FILES / DIRECTORIES);
    }
}

fn directories(root: &Path) -> Vec<PathBuf> {
    let directory = |n| root.join(format!("package{n:02}"));
    (0..DIRECTORIES).map(directory).collect()
}

/// Reads of a replay, and of a start behind it. `compression` as the plan has it: without, paths are looked
/// up far apart.
fn replayed(disk: &mut Mounted, compression: Option<Compression>) -> (u64, u64) {
    let (device, _) = planned(disk);
    let needs = needs(&disk.root());
    // Files are looked at for the plan, and forgotten.
    let files: Vec<_> = needs.iter().map(|(_, file)| entry(file)).collect();
    disk.cool();
    let mut plan = draft(vec![PlanDevice {
        compression,
        ..device
    }]);
    for ((missing, file), known) in needs.iter().zip(&files) {
        add(&mut plan, Stat, unknown(missing.to_str().unwrap()), 0, 0);
        if compression.is_some() {
            add(&mut plan, Stat, unknown(file.to_str().unwrap()), 0, 0);
        }
        assert!(known.size > 0);
    }
    let directories = directories(&disk.root());
    let list = |plan: &mut _| {
        for directory in &directories {
            add(plan, List, unknown(directory.to_str().unwrap()), 0, 0);
        }
    };
    if compression.is_none() {
        list(&mut plan);
    }
    for known in files {
        let size = known.size;
        add(&mut plan, Data, known, 0, size);
    }
    if compression.is_some() {
        list(&mut plan);
    }
    let before = disk.reads();
    let report = start(&plan).finish();
    assert_eq!(report.skipped.failed, 0);
    let during = disk.reads() - before;
    start_alone(&disk.root());
    (during, disk.reads() - before - during)
}

#[test]
fn metadata_is_read_in_one_pass_by_path() {
    // All data lies in one fragment: what is read is metadata.
    let spec = Spec::new("squashfs").mkfs(&["-b", "1M"]);
    let disk = RefCell::new(Mounted::new(spec, 0, modules));
    undisturbed(|| {
        let mut disk = disk.borrow_mut();
        let (_, compression) = planned(&disk);
        let apart = replayed(&mut disk, None);
        let together = replayed(&mut disk, Some(compression));
        disk.cool();
        let before = disk.reads();
        start_alone(&disk.root());
        let alone = disk.reads() - before;
        assert!(
            together.0 * 2 <= apart.0 && together.1 * 20 <= alone,
            "reads: alone {alone}, (replay, left) far apart {apart:?}, by path {together:?}"
        );
    });
}
