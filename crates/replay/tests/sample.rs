//! What a look at a plan's files finds in memory, and that it leaves the disk alone. A program of its own,
//! one test at a time: mounts of other tests make looks into what is in memory fail. Needs root, for loop
//! devices.

#![allow(clippy::unwrap_used)] // Tests fail by panicking, in their helpers too.

#[path = "replay/common.rs"]
mod common;

use common::*;
use headstart_model::machine::DeviceClass;
use headstart_model::plan::{PlanDraft, PlanFile, PlanFileEntry, RequestKind::*};
use headstart_replay::{Costs, Resident, sample};
use headstart_system::handle_opener::HandleOpener;
use headstart_system::mounts::MountTable;
use headstart_system::open::Expect;
use headstart_system::testing::{DeadMount, can_mount, needs};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

const FILES: u64 = 100;

/// As long as it is held no other test mounts anything.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    // One that failed has left nothing behind that another would meet.
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn path(root: &Path, n: u64) -> PathBuf {
    root.join(format!("d{}/f{n}", n % 10))
}

fn disk() -> Mounted {
    Mounted::ext4(64, |root| {
        for n in 0..FILES {
            std::fs::create_dir_all(path(root, n).parent().unwrap()).unwrap();
            std::fs::write(path(root, n), vec![7u8; 4 * PAGE as usize]).unwrap();
        }
    })
}

fn plan(disk: &Mounted) -> PlanDraft {
    let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 8)]);
    for n in 0..FILES {
        add(&mut plan, Stat, entry(&path(&disk.root(), n)), 0, 0);
        add(&mut plan, Data, entry(&path(&disk.root(), n)), 0, 4 * PAGE);
    }
    plan
}

fn look_by(plan: &PlanDraft, looks: usize, draw: u64) -> Resident {
    let plan = PlanFile::new(plan.to_bytes().unwrap());
    let plan = plan.plan().unwrap();
    let costs = Costs::for_plan(&plan);
    sample(&plan, &costs, &MountTable::read().unwrap(), looks, draw).resident
}

fn sample_plan(plan: &PlanDraft) -> Resident {
    look_by(plan, 40, 0)
}

/// `RESOLVE_CACHED` is of Linux 5.12: before, a few paths are read.
#[track_caller]
fn tells() -> bool {
    let mounts = MountTable::read().unwrap();
    let told = headstart_system::open::pin_cached(&mounts, Path::new("/usr"));
    needs(
        &format!("a kernel that tells what it remembers ({told:?})"),
        told.is_ok(),
    )
}

#[test]
fn a_warm_plan_is_resident_and_a_cold_one_is_not_and_no_disk_is_read() {
    let _alone = alone();
    if !can_mount() || !tells() {
        return;
    }
    let mut disk = disk();
    let plan = plan(&disk);
    for n in 0..FILES {
        std::fs::read(path(&disk.root(), n)).unwrap();
    }
    let warm = sample_plan(&plan);
    assert_eq!((warm.cold, warm.unknown), (0.0, 0.0), "{warm:?}");
    assert!((40..=41).contains(&warm.looks), "{warm:?}");
    assert!(
        warm.sampled_pages > 40 && warm.resident_pages == warm.sampled_pages,
        "{warm:?}"
    );
    assert_eq!((warm.cold_paths, warm.changed, warm.cut_short), (0, 0, false));
    let few = look_by(&plan, 10, 7).looks;
    assert!((10..=11).contains(&few), "{few}");

    disk.cool();
    let before = disk.reads();
    let cold = sample_plan(&plan);
    assert_eq!(disk.reads(), before);
    assert_eq!(cold.cold, 1.0);
    assert!(cold.cut_short && cold.cold_paths == 10, "{cold:?}");
}

#[test]
fn what_is_partly_in_memory_is_found_to_be() {
    let _alone = alone();
    if !can_mount() || !tells() {
        return;
    }
    let mut disk = disk();
    let plan = plan(&disk);
    disk.cool();
    // One in ten is not read.
    for n in (0..FILES).filter(|n| n % 10 != 3) {
        std::fs::read(path(&disk.root(), n)).unwrap();
    }
    let shares: f64 = (0..20).map(|draw| look_by(&plan, 40, draw << 9).cold).sum();
    assert!((0.06..0.14).contains(&(shares / 20.0)), "{shares}");
}

#[test]
fn one_large_cold_file_among_many_warm_ones_is_never_missed() {
    let _alone = alone();
    if !can_mount() || !tells() {
        return;
    }
    let mut disk = Mounted::ext4(64, |root| {
        for n in 0..35 {
            std::fs::write(root.join(format!("lib{n}")), vec![7u8; 400 << 10]).unwrap();
        }
        std::fs::write(root.join("own"), vec![7u8; 20 << 20]).unwrap();
    });
    let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 8)]);
    for n in 0..35 {
        add(
            &mut plan,
            Data,
            entry(&disk.root().join(format!("lib{n}"))),
            0,
            400 << 10,
        );
    }
    add(&mut plan, Data, entry(&disk.root().join("own")), 0, 20 << 20);
    disk.cool();
    for n in 0..35 {
        std::fs::read(disk.root().join(format!("lib{n}"))).unwrap();
    }
    std::fs::metadata(disk.root().join("own")).unwrap();
    for draw in 0..50 {
        let resident = look_by(&plan, 5, draw << 13);
        assert!(resident.cold > 0.4, "{resident:?}");
    }
    // A fifth of it is cold, in its middle.
    let own = File::open(disk.root().join("own")).unwrap();
    std::io::copy(&mut &own, &mut std::io::sink()).unwrap();
    headstart_system::residency::advise_dontneed(&own, 8 << 20, 4 << 20).unwrap();
    // On a busy machine the time of some samples is over before they have looked everywhere.
    let samples = (0..200).map(|draw| look_by(&plan, 40, draw << 13));
    let whole: Vec<_> = samples.filter(|sample| sample.unknown == 0.0).collect();
    assert!(whole.len() >= 100, "{} samples are whole", whole.len());
    let missed = whole.iter().filter(|sample| sample.cold == 0.0).count();
    assert_eq!(missed, 0);
}

#[test]
fn data_in_memory_below_forgotten_names_is_cold_by_its_paths() {
    let _alone = alone();
    if !can_mount() || !tells() {
        return;
    }
    let mut disk = disk();
    let generation = |path: &Path| headstart_system::files::generation(File::open(path).unwrap().as_fd());
    let entries: Vec<_> = (0..FILES)
        .map(|n| {
            let path = path(&disk.root(), n);
            let expect = Expect {
                inode: Some(entry(&path).inode),
                generation: Some(generation(&path)),
                ..Expect::default()
            };
            (path, expect)
        })
        .collect();
    let plan = plan(&disk);
    disk.cool();
    let mounts = MountTable::read().unwrap();
    let mount = mounts.lookup(disk.root().to_str().unwrap().as_bytes()).unwrap();
    let opener = HandleOpener::new(&mounts, mount).unwrap();
    // By their numbers, past all directories.
    let open: Vec<_> = entries
        .iter()
        .map(|(path, expect)| {
            let opened = opener.open(&mounts, path, expect).unwrap();
            std::io::copy(
                &mut File::from(opened.fd.try_clone().unwrap()),
                &mut std::io::sink(),
            )
            .unwrap();
            opened
        })
        .collect();
    let resident = sample_plan(&plan);
    drop(open);
    assert_eq!(
        (resident.cold_paths, resident.resident_pages, resident.cold),
        (10, 0, 1.0),
        "{resident:?}"
    );
}

#[test]
fn names_of_what_no_replay_reads_do_not_make_a_warm_start_cold() {
    let _alone = alone();
    if !can_mount() || !tells() {
        return;
    }
    let disk = disk();
    let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 8)]);
    for n in 0..FILES {
        std::fs::read(path(&disk.root(), n)).unwrap();
        add(&mut plan, Data, entry(&path(&disk.root(), n)), 0, 4 * PAGE);
        // A start of LibreOffice looks up 80 names in /proc and the like.
        let elsewhere = PathBuf::from(format!("/proc/{}/task", n + 1));
        add(
            &mut plan,
            Stat,
            PlanFileEntry {
                path: elsewhere.as_path().into(),
                ..entry(&path(&disk.root(), n))
            },
            0,
            0,
        );
    }
    let warm = sample_plan(&plan);
    assert_eq!(
        (warm.cold_paths, warm.changed, warm.cold),
        (0, 0, 0.0),
        "{warm:?}"
    );
}

#[test]
fn another_file_in_the_place_of_one_is_as_cold() {
    let _alone = alone();
    if !can_mount() || !tells() {
        return;
    }
    let disk = disk();
    let mut plan = plan(&disk);
    for n in 0..FILES {
        std::fs::read(path(&disk.root(), n)).unwrap();
    }
    for file in &mut plan.files {
        file.mtime_ns += 1;
    }
    let resident = sample_plan(&plan);
    assert!(resident.changed >= 10 && resident.cold > 0.9, "{resident:?}");
}

#[test]
fn a_file_that_is_gone_weighs_with_what_it_cost() {
    let _alone = alone();
    if !can_mount() || !tells() {
        return;
    }
    let disk = Mounted::ext4(64, |root| {
        for n in 0..20 {
            std::fs::write(root.join(format!("f{n}")), vec![7u8; 64 << 10]).unwrap();
        }
        std::fs::write(root.join("large"), vec![7u8; 4 << 20]).unwrap();
    });
    let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 8)]);
    for n in 0..20 {
        add(
            &mut plan,
            Data,
            entry(&disk.root().join(format!("f{n}"))),
            0,
            64 << 10,
        );
    }
    add(&mut plan, Data, entry(&disk.root().join("large")), 0, 4 << 20);
    for n in 0..20 {
        std::fs::read(disk.root().join(format!("f{n}"))).unwrap();
    }
    std::fs::read(disk.root().join("large")).unwrap();
    assert_eq!(look_by(&plan, 5, 1).cold, 0.0);
    std::fs::remove_file(disk.root().join("large")).unwrap();
    for draw in 0..50 {
        let resident = look_by(&plan, 5, draw << 13);
        assert!(resident.cold > 0.5 && resident.changed > 0, "{resident:?}");
    }
}

#[test]
fn a_sample_asks_no_dead_server() {
    let _alone = alone();
    if !can_mount() {
        return;
    }
    let disk = disk();
    let point = disk.beside().join("dead");
    let mut plan = plan(&disk);
    for file in &mut plan.files {
        file.path = point.join("file").as_path().into();
    }
    let _dead = DeadMount::new(&point).unwrap();
    let (done, waiting) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(sample_plan(&plan)));
    let found = waiting
        .recv_timeout(std::time::Duration::from_secs(30))
        .expect("it hangs");
    // Only the server knows.
    assert!(found.looks == 0 && found.unknown == 1.0, "{found:?}");
}

#[test]
fn of_what_is_read_by_block_some_paths_tell_whether_it_is_in_memory() {
    let _alone = alone();
    if !can_mount() || !tells() {
        return;
    }
    let mut disk = disk();
    let mut plan = draft(vec![disk.planned(DeviceClass::Flash, 8)]);
    add_metadata(&mut plan, 0, 64 * PAGE);
    let directories: Vec<PathBuf> = (0..10).map(|n| disk.root().join(format!("d{n}"))).collect();
    plan.files = directories.iter().map(|path| entry(path)).collect();
    for directory in &directories {
        std::fs::read_dir(directory).unwrap().count();
    }
    let warm = sample_plan(&plan);
    assert_eq!((warm.cold, warm.unknown), (0.0, 0.0), "{warm:?}");
    assert!(warm.looks >= 40, "{warm:?}");
    disk.cool();
    let before = disk.reads();
    let cold = sample_plan(&plan);
    assert_eq!((disk.reads(), cold.cold), (before, 1.0), "{cold:?}");
}
