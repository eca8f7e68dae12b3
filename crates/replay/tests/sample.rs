//! What a look at a plan's files finds in memory, and that it leaves the disk alone. Needs root, for loop devices.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use headstart_model::machine::DeviceClass;
use headstart_model::plan::{PlanDraft, PlanFile, PlanFileEntry, RequestKind::*};
use headstart_replay::{Resident, sample};
use headstart_system::handle_opener::HandleOpener;
use headstart_system::mounts::MountTable;
use headstart_system::open::Expect;
use headstart_system::testing::{DeadMount, can_mount};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

const FILES: u64 = 100;

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

fn look_at(plan: &PlanDraft, most: usize) -> Resident {
    let plan = PlanFile::new(plan.to_bytes().unwrap());
    sample(&plan.plan().unwrap(), &MountTable::read().unwrap(), most, 0).resident
}

fn look(plan: &PlanDraft) -> Resident {
    look_at(plan, 40)
}

/// `RESOLVE_CACHED` is of Linux 5.12: before, a few paths are read. A test does not pass undone, unless that is asked for.
fn tells() -> bool {
    let mounts = MountTable::read().unwrap();
    let told = headstart_system::open::pin_cached(&mounts, Path::new("/usr"));
    assert!(
        told.is_ok() || std::env::var_os("HEADSTART_TESTS_SKIP").is_some(),
        "this kernel does not tell what it remembers: {told:?}; HEADSTART_TESTS_SKIP=1 leaves this test out"
    );
    told.is_ok()
}

#[test]
fn a_warm_plan_is_resident_and_a_cold_one_is_not_and_no_disk_is_read() {
    if !can_mount() || !tells() {
        return;
    }
    let mut disk = disk();
    let plan = plan(&disk);
    for n in 0..FILES {
        std::fs::read(path(&disk.root(), n)).unwrap();
    }
    let warm = look(&plan);
    assert_eq!(warm.share(), Some(1.0), "{warm:?}");
    assert_eq!((warm.sampled_requests, warm.sampled_paths), (40, 48));
    assert_eq!((warm.sampled_pages, warm.resident_pages), (160, 160));
    assert_eq!((warm.cold_paths, warm.changed, warm.cut_short), (0, 0, false));
    let few = look_at(&plan, 10);
    assert_eq!((few.sampled_requests, few.sampled_paths), (10, 18));
    assert_eq!((few.sampled_look_ups, few.cold_look_ups), (8, 0));

    disk.cool();
    let before = disk.reads();
    let cold = look(&plan);
    assert_eq!(disk.reads(), before);
    assert_eq!(cold.share(), Some(0.0));
    assert!(cold.cut_short && cold.cold_paths == 10, "{cold:?}");
}

#[test]
fn what_is_partly_in_memory_is_found_to_be() {
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
    let partly = look(&plan);
    let share = partly.share().unwrap();
    assert!((0.8..1.0).contains(&share), "{partly:?}");
}

#[test]
fn data_in_memory_below_forgotten_names_is_cold_by_its_paths() {
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
    let opener = HandleOpener::of(&mounts, mount).unwrap();
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
    let found = look(&plan);
    drop(open);
    assert_eq!((found.cold_paths, found.resident_pages), (10, 0), "{found:?}");
}

#[test]
fn audit_11_names_of_what_no_replay_reads_do_not_make_a_warm_start_cold() {
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
    let warm = look(&plan);
    assert_eq!(
        (warm.cold_paths, warm.changed, warm.share()),
        (0, 0, Some(1.0)),
        "{warm:?}"
    );
    assert_eq!(warm.sampled_paths, 48);
}

#[test]
fn another_file_in_the_place_of_one_is_no_sample() {
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
    let found = look(&plan);
    assert_eq!((found.share(), found.changed), (None, 40), "{found:?}");
}

#[test]
fn audit_05_a_sample_asks_no_dead_server() {
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
    std::thread::spawn(move || done.send(look(&plan)));
    let found = waiting
        .recv_timeout(std::time::Duration::from_secs(30))
        .expect("it hangs");
    assert_eq!((found.share(), found.changed), (None, 40), "{found:?}");
}
