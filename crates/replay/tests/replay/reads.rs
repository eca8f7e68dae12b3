//! What a replay promises, on private cold file systems. Needs root, for loop devices.

use crate::common::*;
use headstart_model::PageRange;
use headstart_model::machine::DeviceClass;
use headstart_model::outcome::Skipped;
use headstart_model::plan::{PlanFile, RequestKind::*};
use headstart_replay::{Options, Replay};
use headstart_system::residency::resident_pages;
use headstart_system::testing::{Spec, taken_from_memory, undisturbed};
use std::path::Path;
use std::time::Duration;

#[test]
fn a_hole_that_cannot_be_read_is_told_and_one_that_can_is_not() {
    const MIDDLE: u64 = 256;
    // Its middle lies behind all else of it on the device.
    let disk = Mounted::ext4(64, |root| {
        let path = root.join("f");
        file(root, "f", 2 * MIDDLE);
        let synced = || std::fs::File::open(&path).unwrap().sync_all().unwrap();
        synced();
        let at = (MIDDLE * PAGE).to_string();
        let inserted = std::process::Command::new("fallocate")
            .args(["-i", "-o", &at, "-l", &at])
            .arg(&path)
            .status();
        assert!(inserted.unwrap().success());
        let open = std::fs::File::options().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&open, &vec![7; (MIDDLE * PAGE) as usize], MIDDLE * PAGE)
            .unwrap();
        synced();
    });
    let path = disk.root().join("f");
    let mut plan = draft(vec![disk.planned(DeviceClass::Disk, 1)]);
    add(&mut plan, Data, entry(&path), 0, 3 * MIDDLE * PAGE);
    plan.requests[0].bridged = MIDDLE * PAGE;
    let broken = |plan: &_| {
        let open = std::fs::File::open(&path).unwrap();
        headstart_system::residency::advise_dontneed(&open, 0, 0).unwrap();
        let report = start(plan).finish();
        (report.broken_bridges, report.skipped.failed)
    };
    assert_eq!(broken(&plan), (0, 0));
    let extents = headstart_system::extents::extents(std::fs::File::open(&path).unwrap()).unwrap();
    let middle = extents
        .iter()
        .find(|it| it.logical == MIDDLE * PAGE)
        .unwrap()
        .physical;
    assert!(extents.iter().all(|it| it.physical <= middle), "{extents:?}");
    // The device keeps its size, and reads no more there.
    let image = std::fs::File::options().write(true).open(disk.image()).unwrap();
    image.set_len(middle).unwrap();
    assert_eq!(broken(&plan), (1, 1));
    // What is needed is the program's own affair.
    plan.requests[0].bridged = 0;
    assert_eq!(broken(&plan).0, 0);
}

#[test]
fn exactly_the_planned_pages_come_on_every_class_of_device() {
    undisturbed(|| {
        let mut disk = Mounted::ext4(64, |root| {
            file(root, "large", 2000);
            file(root, "small", 1);
            file(root, "odd", 10);
            std::fs::write(root.join("tail"), vec![1; 5000]).unwrap();
        });
        for (class, depth) in [
            (DeviceClass::Disk, 1),
            (DeviceClass::Flash, 16),
            (DeviceClass::Network, 100),
        ] {
            disk.cool();
            let root = disk.root();
            let mut plan = draft(vec![disk.planned(class, depth)]);
            let files = entries(&root, &["large", "small", "odd", "tail"]);
            // 800 pages: 25 times what one call serves at 128 KiB.
            add(&mut plan, Data, files[0].clone(), 100 * PAGE, 800 * PAGE);
            add(&mut plan, Data, files[1].clone(), 0, PAGE);
            add(&mut plan, Data, files[2].clone(), PAGE, 2 * PAGE);
            add(&mut plan, Data, files[2].clone(), 6 * PAGE, PAGE);
            add(&mut plan, Data, files[3].clone(), PAGE, PAGE);
            let report = start(&plan).finish();
            assert_eq!(report.skipped, Skipped::default());
            assert_eq!(report.stopped, None);
            assert_eq!(resident(&root.join("large")), [(100, 900)], "{class:?}");
            assert_eq!(resident(&root.join("small")), [(0, 1)]);
            assert_eq!(resident(&root.join("odd")), [(1, 3), (6, 7)]);
            assert_eq!(resident(&root.join("tail")), [(1, 2)]);
            let arrived: u64 = report.issued.iter().map(|i| i.arrived_pages).sum();
            assert_eq!((report.issued.len(), arrived), (5, 805));
            assert!(report.issued.iter().all(|i| i.resident.is_empty()));
            assert!(report.issued.is_sorted_by_key(|i| i.issued_ns));
            assert!(
                report
                    .issued
                    .iter()
                    .all(|i| 0 < i.issued_ns && i.issued_ns < i.done_ns)
            );
            assert!(report.issued.iter().all(|i| i.done_ns <= report.replay_ns));
        }
    });
}

#[test]
fn what_was_resident_is_told_and_not_read_again() {
    undisturbed(|| {
        let disk = Mounted::ext4(64, |root| file(root, "f", 100));
        let path = disk.root().join("f");
        let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 4)]);
        add(&mut plan, Data, entry(&path), 10 * PAGE, 10 * PAGE);
        start(&plan).finish();
        let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 4)]);
        add(&mut plan, Data, entry(&path), 12 * PAGE, 4 * PAGE);
        add(&mut plan, Data, entry(&path), 15 * PAGE, 10 * PAGE);
        let before = disk.reads();
        let mut issued = start(&plan).finish().issued;
        issued.sort_by_key(|one| one.request);
        let range = |start, end| PageRange { start, end };
        assert_eq!(issued[0].resident, [range(12, 16)]);
        assert_eq!(issued[1].resident, [range(15, 20)]);
        assert_eq!(issued[1].arrived_pages, 10);
        assert_eq!(disk.reads() - before, 1);
        assert_eq!(resident(&path), [(10, 25)]);
    });
}

#[test]
fn file_systems_without_known_metadata_are_looked_up_in_parallel() {
    undisturbed(|| {
        let fstypes = ["xfs", "btrfs", "squashfs", "erofs"];
        // Before data, or beside it.
        let ways = [false, true]
            .into_iter()
            .flat_map(|beside| WAYS.map(|way| (beside, way)));
        let cases = fstypes
            .into_iter()
            .flat_map(|fs| ways.clone().map(move |way| (fs, way)));
        for (fstype, (beside, (depth, io_uring))) in cases {
            let mut disk = Mounted::new(Spec::new(fstype), 512, |root| {
                file(root, "data", 3);
                for d in 0..5 {
                    std::fs::create_dir(root.join(format!("d{d}"))).unwrap();
                    (0..20).for_each(|f| file(root, &format!("d{d}/f{f}"), 3));
                }
            });
            let root = disk.root();
            let mut plan = draft(vec![disk.planned(DeviceClass::Flash, depth)]);
            plan.devices[0].request_limit = 1 << 20;
            if beside {
                add(&mut plan, Data, entry(&root.join("data")), 0, 3 * PAGE);
                disk.cool();
            }
            for d in 0..5 {
                let dir = root.join(format!("d{d}"));
                add(&mut plan, List, unknown(dir.to_str().unwrap()), 0, 0);
                for f in 0..20 {
                    add(
                        &mut plan,
                        Stat,
                        unknown(dir.join(format!("f{f}")).to_str().unwrap()),
                        0,
                        0,
                    );
                }
            }
            let report = start_with(&plan, io_uring).finish();
            assert_eq!(
                (report.issued.len(), report.skipped.total()),
                (105 + usize::from(beside), 0),
                "{fstype}"
            );
            let before = reads_when_quiet(&disk);
            for d in 0..5 {
                let dir = std::fs::read_dir(root.join(format!("d{d}"))).unwrap();
                assert_eq!(
                    dir.filter(|f| f.as_ref().unwrap().metadata().unwrap().len() > 0)
                        .count(),
                    20
                );
            }
            assert_eq!(disk.reads() - before, 0, "{fstype}");

            let mut plan = draft(vec![disk.planned(DeviceClass::Flash, depth)]);
            let files: Vec<_> = (0..20).map(|f| root.join(format!("d0/f{f}"))).collect();
            files
                .iter()
                .for_each(|f| add(&mut plan, Data, entry(f), 0, 3 * PAGE));
            let report = start_with(&plan, io_uring).finish();
            assert_eq!((report.issued.len(), report.skipped.total()), (20, 0), "{fstype}");
            assert!(files.iter().all(|f| resident(f) == [(0, 3)]), "{fstype}");
            assert_eq!(report.issued.iter().map(|i| i.arrived_pages).sum::<u64>(), 60);
        }
    });
}

#[test]
fn pages_of_files_on_an_overlay_are_counted() {
    undisturbed(|| {
        let disk = Mounted::ext4(32, |root| {
            for dir in ["lower", "upper", "work"] {
                std::fs::create_dir(root.join(dir)).unwrap();
            }
            file(root, "lower/f", 10);
        });
        let at = |name: &str| disk.root().join(name).display().to_string();
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            at("lower"),
            at("upper"),
            at("work")
        );
        let point = disk.beside().join("overlay");
        let _overlay =
            headstart_system::testing::Mounted::new(&["-t", "overlay", "overlay", "-o", &layers], &point)
                .unwrap();
        let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 8)]);
        add(&mut plan, Data, entry(&point.join("f")), 2 * PAGE, 3 * PAGE);
        let first = start(&plan).finish();
        assert_eq!(first.issued[0].resident, []);
        assert_eq!(first.issued[0].arrived_pages, 3);
        assert_eq!(resident(&disk.root().join("lower/f")), [(2, 5)]);
        let second = start(&plan).finish();
        assert_eq!(second.issued[0].resident, [PageRange { start: 2, end: 5 }]);
    });
}

#[test]
fn devices_are_served_in_parallel_and_held_for_only_so_long() {
    let one = Mounted::ext4(64, |root| file(root, "f", 4000));
    let two = Mounted::ext4(64, |root| file(root, "f", 4000));
    let mut plan = draft(vec![
        one.planned(DeviceClass::Flash, 4),
        two.planned(DeviceClass::Disk, 1),
    ]);
    add_metadata(&mut plan, 0, 40 << 20);
    hold(&mut plan, 0);
    for (device, disk) in [&one, &two].into_iter().enumerate() {
        add(&mut plan, Data, entry(&disk.root().join("f")), 0, 4000 * PAGE);
        plan.requests.last_mut().unwrap().device = device as u16;
    }
    let options = options();
    let replay = Replay::start(PlanFile::new(plan.to_bytes().unwrap()), options.clone()).unwrap();
    // The first device's metadata is waited for; its data is not, and the second device is not.
    replay.wait_released();
    let released = options.origin.elapsed().as_nanos() as u64;
    let report = replay.finish();
    assert_eq!(report.skipped, Skipped::default());
    let issued = |request| report.issued.iter().find(|i| i.request == request).unwrap();
    assert!(
        issued(2).issued_ns < issued(0).done_ns,
        "the second device waited for the first"
    );
    assert!(issued(0).done_ns <= issued(1).issued_ns, "data before metadata");
    assert!(
        issued(0).done_ns <= released,
        "let go before the metadata was there"
    );
    assert_eq!((issued(1).arrived_pages, issued(2).arrived_pages), (4000, 4000));

    // Where nothing may be waited for, the start is let go before what it is held for has been read.
    let cold = Mounted::ext4(400, |root| file(root, "f", 80_000));
    let mut plan = draft(vec![cold.planned(DeviceClass::Disk, 1)]);
    add(&mut plan, Data, entry(&cold.root().join("f")), 0, 80_000 * PAGE);
    hold(&mut plan, 0);
    let options = Options {
        barrier_limit: Duration::ZERO,
        ..options
    };
    let replay = Replay::start(PlanFile::new(plan.to_bytes().unwrap()), options.clone()).unwrap();
    replay.wait_released();
    let released = options.origin.elapsed().as_nanos() as u64;
    let report = replay.finish();
    assert!(released < report.issued.iter().map(|i| i.done_ns).max().unwrap());
}

#[test]
fn the_start_is_released_when_the_first_requests_are_in() {
    // A disk is read in one stream, flash by several threads.
    for (class, depth) in [(DeviceClass::Disk, 8), (DeviceClass::Flash, 8)] {
        let disk = Mounted::ext4(160, |root| {
            (0..5).for_each(|n| file(root, &format!("f{n}"), 500));
            file(root, "large", 20_000);
        });
        let mut plan = draft(vec![disk.planned(class, depth)]);
        for n in 0..5 {
            add(
                &mut plan,
                Data,
                entry(&disk.root().join(format!("f{n}"))),
                0,
                500 * PAGE,
            );
        }
        hold(&mut plan, 0);
        add(
            &mut plan,
            Data,
            entry(&disk.root().join("large")),
            0,
            20_000 * PAGE,
        );
        let options = options();
        let replay = Replay::start(PlanFile::new(plan.to_bytes().unwrap()), options.clone()).unwrap();
        replay.wait_released();
        let released = options.origin.elapsed().as_nanos() as u64;
        let report = replay.finish();
        assert_eq!(report.issued.len(), 6);
        let done = |request| {
            let issued = report.issued.iter().find(|i| i.request == request);
            issued.unwrap().done_ns
        };
        let held = (0..5).map(done).max().unwrap();
        assert!(
            held <= released,
            "{class:?}: let go at {released} ns, held for {held} ns"
        );
        assert!(
            released < done(5),
            "{class:?}: let go at {released} ns, not before the end"
        );
    }
}

/// What was read so far. The kernel counts a read when it is over, and a replay does not wait for its last
/// ones.
fn reads_when_quiet(disk: &Mounted) -> u64 {
    let mut before = disk.reads();
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let now = disk.reads();
        if now == before {
            return now;
        }
        before = now;
    }
}

#[test]
fn what_is_in_memory_does_not_hold_the_start() {
    undisturbed(|| {
        const FILES: u64 = 2000;
        for fstype in ["ext4", "xfs"] {
            let disk = Mounted::new(Spec::new(fstype), 400, |root| {
                (0..FILES).for_each(|n| file(root, &format!("f{n}"), 1 + n % 3));
            });
            let mut plan = draft(vec![disk.planned(DeviceClass::Disk, 1)]);
            add_metadata(&mut plan, 0, 400 << 20);
            for n in 0..FILES {
                let path = disk.root().join(format!("f{n}"));
                std::fs::read(&path).unwrap();
                add(&mut plan, Data, entry(&path), 0, (1 + n % 3) * PAGE);
            }
            hold(&mut plan, 0);
            // The kernel may take a page from memory at any time. Then the set-up is made again, and the
            // verdict is not.
            let node = std::fs::File::open(disk.node()).unwrap();
            let in_memory = || {
                let pages = |n| {
                    let file = std::fs::File::open(disk.root().join(format!("f{n}"))).unwrap();
                    resident_pages(&file, 0, u64::MAX).unwrap()
                };
                let blocks = resident_pages(&node, 0, 400 << 20).unwrap();
                (blocks, (0..FILES).map(pages).sum::<u64>())
            };
            let pages: u64 = (0..FILES).map(|n| 1 + n % 3).sum();
            let was_judged = (0..20).any(|_| {
                start(&plan).finish();
                let taken = taken_from_memory();
                let (had, before) = (in_memory(), reads_when_quiet(&disk));
                let replay = start(&plan);
                replay.wait_released();
                replay.finish();
                let after = reads_when_quiet(&disk);
                let is_judged = had.1 == pages && in_memory() == had && taken_from_memory() == taken;
                assert!(
                    !is_judged || after == before,
                    "{fstype}: {before:?}, then {after:?}"
                );
                is_judged
            });
            assert!(
                was_judged,
                "{fstype}: the kernel takes pages from memory all the time"
            );
        }
    });
}

#[test]
fn metadata_read_through_the_block_device_makes_a_tree_free_of_reads() {
    for block in ["4096", "1024"] {
        tree_becomes_free_of_reads(block);
    }
}

fn tree_becomes_free_of_reads(block: &str) {
    let mut disk = Mounted::ext4_blocks(block, 64, |root| {
        for d in 0..20 {
            let dir = root.join(format!("d{d}"));
            std::fs::create_dir(&dir).unwrap();
            for f in 0..100 {
                file(&dir, &format!("f{f}"), 1);
            }
        }
    });
    let walk = |root: &Path| {
        for dir in std::fs::read_dir(root).unwrap() {
            let dir = dir.unwrap().path();
            if dir.is_dir() && !dir.ends_with("lost+found") {
                std::fs::read_dir(dir)
                    .unwrap()
                    .for_each(|f| assert!(f.unwrap().metadata().unwrap().len() > 0));
            }
        }
    };
    let cold = disk.reads();
    walk(&disk.root());
    let cold = disk.reads() - cold;
    assert!(cold > 20, "{cold} reads cold");

    // Where the metadata is: what the walk brought into the block device's cache, pages read in part
    // included.
    let node = std::fs::File::open(disk.node()).unwrap();
    let touched = |page: &u64| resident_pages(&node, page * PAGE, PAGE).unwrap() == 1;
    let touched: Vec<u64> = (0..(64 << 20) / PAGE).filter(touched).collect();
    drop(node);
    disk.cool();
    let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 8)]);
    // With small blocks this reads parts of pages, and readahead leaves such pages as they are.
    for d in 0..20 {
        std::fs::metadata(disk.root().join(format!("d{d}/f50"))).unwrap();
    }
    for run in touched.chunk_by(|a, b| a + 1 == *b) {
        add_metadata(&mut plan, run[0] * PAGE, run.len() as u64 * PAGE);
    }
    hold(&mut plan, 0);
    let replay = start(&plan);
    replay.wait_released();
    let before = disk.reads();
    walk(&disk.root());
    assert_eq!(disk.reads() - before, 0, "blocks of {block}");
    let report = replay.finish();
    assert_eq!(report.skipped, Skipped::default());
    let asked: u64 = plan.requests.iter().map(|r| r.length / PAGE).sum();
    assert_eq!(report.issued.iter().map(|i| i.arrived_pages).sum::<u64>(), asked);
}

#[test]
fn metadata_of_another_file_system_is_not_read() {
    let disk = Mounted::ext4(32, |root| file(root, "f", 4));
    let skipped = |change: &dyn Fn(&mut headstart_model::plan::PlanDevice)| {
        let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 8)]);
        change(&mut plan.devices[0]);
        add_metadata(&mut plan, 8 << 20, 8 * PAGE);
        add_metadata(&mut plan, 16 << 20, PAGE);
        hold(&mut plan, 0);
        let before = disk.reads();
        let replay = start(&plan);
        replay.wait_released();
        let report = replay.finish();
        assert_eq!((report.issued.len(), disk.reads() - before), (0, 0));
        report.skipped
    };
    let changed = Skipped {
        changed: 2,
        ..Skipped::default()
    };
    let not_local = Skipped {
        not_local: 2,
        ..Skipped::default()
    };
    assert_eq!(skipped(&|d| d.uuid[3] ^= 1), changed);
    assert_eq!(skipped(&|d| d.uuid = [0; 16]), changed);
    assert_eq!(skipped(&|d| d.mount_point = "/var/tmp/nothing".into()), changed);
    assert_eq!(skipped(&|d| d.mount_point = "/proc".into()), not_local);

    // Beyond the end of the device: cut, or nothing left.
    let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 8)]);
    add_metadata(&mut plan, (32 << 20) - PAGE, 1 << 60);
    add_metadata(&mut plan, 1 << 60, 1 << 60);
    let report = start(&plan).finish();
    assert_eq!((report.issued.len(), report.skipped.changed), (1, 1));
    assert_eq!(report.issued[0].arrived_pages, 1);
}

#[test]
fn a_file_that_grew_is_read_as_planned_and_its_end_where_it_is_now() {
    undisturbed(|| {
        for class in [DeviceClass::Disk, DeviceClass::Flash] {
            let mut disk = Mounted::ext4(64, |root| {
                file(root, "log", 400);
                file(root, "cut", 400);
                file(root, "other", 400);
            });
            let root = disk.root();
            let mut plan = draft(vec![disk.planned(class, 4)]);
            plan.devices[0].request_limit = 16 * PAGE as u32;
            for name in ["log", "cut", "other"] {
                let mut planned = entry(&root.join(name));
                let opened = std::fs::File::open(root.join(name)).unwrap();
                planned.generation = headstart_system::files::generation(std::os::fd::AsFd::as_fd(&opened));
                assert_ne!(planned.generation, 0);
                add(&mut plan, Data, planned.clone(), 0, 2 * PAGE);
                add(&mut plan, Data, planned.clone(), 100 * PAGE, 5 * PAGE);
                add(&mut plan, Data, planned, 350 * PAGE, 50 * PAGE);
                plan.requests.last_mut().unwrap().from_end = true;
            }
            // Appended to, cut short, and replaced by a longer one of the same name.
            let at = |name: &str| root.join(name);
            let mut log = std::fs::File::options().append(true).open(at("log")).unwrap();
            std::io::Write::write_all(&mut log, &vec![8; 30 * PAGE as usize + 7]).unwrap();
            drop(log);
            let cut = std::fs::File::options().write(true).open(at("cut")).unwrap();
            cut.set_len(60 * PAGE).unwrap();
            drop(cut);
            file(&root, "new", 500);
            std::fs::rename(at("new"), at("other")).unwrap();
            disk.cool();
            let report = start(&plan).finish();
            assert_eq!(resident(&at("log")), [(0, 2), (100, 105), (381, 431)]);
            // Behind the new end nothing is left of the middle.
            assert_eq!(resident(&at("cut")), [(0, 2), (10, 60)]);
            assert_eq!(resident(&at("other")), []);
            let expected = Skipped {
                changed: 4,
                ..Skipped::default()
            };
            assert_eq!(report.skipped, expected);
            let moved = report.issued.iter().find(|issued| issued.request == 2).unwrap();
            assert_eq!(moved.pages, PageRange { start: 381, end: 431 });
            assert_eq!((moved.arrived_pages, moved.resident.len()), (50, 0));
        }
    });
}
