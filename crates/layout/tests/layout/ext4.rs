//! Files moved on real file systems, of every shape. Needs root and loop devices.

use crate::disk::*;
use headstart_layout::moving::movable::Movable;
use headstart_layout::moving::volume::Volume;
use headstart_layout::{Bounds, State, apply, status};
use headstart_model::machine::Machine;
use headstart_store::Store;
use headstart_system::mounts::MountTable;
use headstart_system::open::Expect;
use headstart_system::testing::{can_mount, run, unmount};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// As the shutdown does.
const AT_SHUTDOWN: Bounds = Bounds {
    at_shutdown: true,
    ..FORCE
};
/// Why a program is not moved.
const WAITS: &str = "programs that run: moved at the next shutdown";

#[test]
fn files_lie_in_the_order_of_their_use_and_are_what_they_were() {
    if !can_mount() {
        return;
    }
    let shapes: &[&[&str]] = &[
        &["-b", "4096"],
        &["-b", "2048"],
        &["-b", "1024"],
        &["-O", "64bit,metadata_csum"],
        &["-O", "^64bit,^metadata_csum,^flex_bg"],
    ];
    for mkfs in shapes {
        let mut disk = Disk::new(mkfs, 768 << 20);
        assert!(!is_ascending(&disk.places()), "{mkfs:?}");
        let kept = disk.apply(FORCE);
        assert_eq!(kept.state, State::Complete, "{mkfs:?}: {kept:?}");
        assert_eq!((kept.files, &kept.left), (FILES, &Default::default()), "{mkfs:?}");
        assert!(is_ascending(&disk.places()), "{mkfs:?}: {:?}", disk.places());
        assert!(
            kept.before.jumps > 0 && kept.after.jumps == 0,
            "{mkfs:?}: {kept:?}"
        );
        assert!(kept.after.time_ns < kept.before.time_ns, "{mkfs:?}: {kept:?}");
        disk.check();
        // Nothing is to be gained any more, and so nothing is done.
        let places = disk.places();
        let again = disk.apply(Bounds::default());
        assert_eq!(again.state, State::Declined, "{mkfs:?}: {again:?}");
        assert_eq!((again.files, disk.places()), (0, places), "{mkfs:?}");
        // Two more moves of all.
        for _ in 0..2 {
            let forced = disk.apply(FORCE);
            assert_eq!((forced.state, forced.files), (State::Complete, FILES), "{mkfs:?}");
            assert!(is_ascending(&disk.places()), "{mkfs:?}");
        }
        disk.check();
    }
}

#[test]
fn what_cannot_be_moved_stays_and_says_why() {
    if !can_mount() {
        return;
    }
    for (mkfs, why) in [
        ("bigalloc", "bigalloc"),
        ("fast_commit", "fast_commit"),
        ("^extent,^64bit", "extents"),
        ("^has_journal", "no journal"),
    ] {
        let mut disk = Disk::new(&["-O", mkfs], 768 << 20);
        let kept = disk.apply(FORCE);
        assert_eq!(kept.state, State::Declined);
        assert!(kept.why.as_ref().unwrap().contains(why), "{kept:?}");
        disk.check();
    }
    let mut disk = Disk::new(&[], 768 << 20);
    disk.fs.unmount();
    let tuned = Command::new("tune2fs")
        .args(["-o", "journal_data"])
        .arg(disk.fs.image())
        .status();
    assert!(tuned.unwrap().success());
    disk.fs.remount_cold().unwrap();
    let kept = disk.apply(FORCE);
    assert_eq!((kept.state, kept.files), (State::Declined, 0), "{kept:?}");
    assert!(kept.why.as_ref().unwrap().contains("data=journal"), "{kept:?}");
    disk.check();

    // Its journal is not used.
    let at = disk.mount_point();
    unmount(&at).unwrap();
    run(Command::new("mount")
        .args(["-o", "norecovery"])
        .arg(disk.fs.node())
        .arg(&at))
    .unwrap();
    let kept = disk.apply(FORCE);
    assert_eq!((kept.state, kept.files), (State::Declined, 0), "{kept:?}");
    assert!(kept.why.as_ref().unwrap().contains("no journal"), "{kept:?}");
    disk.check();

    let mut disk = Disk::new(&["-O", "inline_data"], 768 << 20);
    for number in (0..FILES).step_by(4) {
        // Room that is allocated beforehand is never in the inode.
        fs::remove_file(path(&disk.mount_point(), number)).unwrap();
        fs::write(path(&disk.mount_point(), number), contents(number, size(number))).unwrap();
    }
    rustix::fs::sync();
    let kept = disk.apply(FORCE);
    // Every fourth has one byte.
    assert_eq!(
        kept.left["no data of its own on the device"],
        FILES / 4,
        "{kept:?}"
    );
    assert_eq!((kept.state, kept.files), (State::Complete, FILES - FILES / 4));
    disk.check();

    let mut disk = Disk::new(&[], 768 << 20);
    let at = disk.mount_point();
    fs::hard_link(path(&at, 1), at.join("second name")).unwrap();
    let chattr = |flag: &str, number: u64| {
        let done = Command::new("chattr").arg(flag).arg(path(&at, number)).status();
        assert!(done.unwrap().success());
    };
    chattr("+i", 2);
    chattr("+a", 7);
    // A page that is mapped and one of a program that runs: in use are both, only the second is refused.
    let reader = File::open(path(&at, 3)).unwrap();
    let kept = disk.apply(FORCE);
    chattr("-i", 2);
    chattr("-a", 7);
    assert_eq!(kept.state, State::Complete);
    assert_eq!(kept.left["it has several names"], 1);
    assert_eq!(kept.left["immutable"], 1);
    assert_eq!(kept.left["append only"], 1);
    assert_eq!(kept.files, FILES - 3);
    let mut byte = [0; 8];
    reader.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, contents(3, 8)[..]);
    drop(reader);
    fs::remove_file(at.join("second name")).unwrap();
    disk.check();
}

#[test]
fn a_program_that_runs_is_moved_at_the_shutdown() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(&[], 768 << 20);
    let at = disk.mount_point();
    let kept_of_five = fs::read(path(&at, 5)).unwrap();
    fs::copy("/bin/sleep", path(&at, 5)).unwrap();
    for number in [5, 9, 13] {
        fs::set_permissions(path(&at, number), Permissions::from_mode(0o755)).unwrap();
    }
    // What is not written back yet lies nowhere.
    rustix::fs::sync();
    let place = |disk: &Disk| disk.places()[(FILES - 1 - 5) as usize];
    let before = place(&disk);
    let mut child = Command::new(path(&at, 5)).arg("1000").spawn().unwrap();
    let kept = disk.apply(FORCE);
    let late = disk.apply(AT_SHUTDOWN);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(kept.state, State::Complete, "{kept:?}");
    assert_eq!((kept.left[WAITS], kept.files), (1, FILES - 1), "{kept:?}");
    let runs_on = "programs that run until the machine is off";
    assert_eq!((late.left[runs_on], late.files), (1, 0), "{late:?}");
    assert_eq!(place(&disk), before, "not moved");
    // When it has ended; the other two have their place.
    let kept = disk.apply(AT_SHUTDOWN);
    assert_eq!((kept.state, kept.files), (State::Complete, 1), "{kept:?}");
    assert!(place(&disk) != before && kept.left.is_empty(), "{kept:?}");
    fs::write(path(&at, 5), kept_of_five).unwrap();
    disk.check();
}

#[test]
fn the_data_of_a_file_with_holes_is_moved_and_the_holes_stay() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new(&[], 768 << 20);
    let at = disk.mount_point();
    let sparse = File::create(path(&at, 6)).unwrap();
    let data = contents(6, 8 * PAGE);
    for chunk in [0, 5, 17] {
        sparse.write_all_at(&data, chunk * 20 * PAGE).unwrap();
    }
    sparse.set_len(1 << 22).unwrap();
    sparse.sync_all().unwrap();
    let kept = disk.apply(FORCE);
    assert_eq!((kept.state, kept.files), (State::Complete, FILES), "{kept:?}");
    // The holes take no room: its data is one piece, and in one piece with what is used before it.
    let extents = headstart_system::extents::extents(&sparse).unwrap();
    assert_eq!(extents.len(), 3);
    assert!(
        extents
            .windows(2)
            .all(|two| two[1].physical == two[0].physical + two[0].length)
    );
    let before_it = disk.places()[(FILES - 1 - 7) as usize];
    assert_eq!(extents[0].physical, before_it + size(7).next_multiple_of(PAGE));
    let bytes = fs::read(path(&at, 6)).unwrap();
    let mut expected = vec![0; 1 << 22];
    for chunk in [0, 5, 17] {
        let from = (chunk * 20 * PAGE) as usize;
        expected[from..from + data.len()].copy_from_slice(&data);
    }
    assert!(bytes == expected);
    let blocks = fs::metadata(path(&at, 6)).unwrap().blocks();
    assert!(blocks * 512 < 1 << 20, "the holes are holes still: {blocks}");
}

#[test]
fn what_lies_in_order_stays_and_what_changed_since_is_moved() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(&[], 768 << 20);
    assert_eq!(disk.apply(FORCE).files, FILES);
    // Written anew, as by an upgrade, each far from the others.
    let changed: Vec<u64> = (0..37)
        .filter(|number| number % 4 == 1 || number % 4 == 3)
        .collect();
    let new = disk.mount_point().join("new");
    fs::create_dir(&new).unwrap();
    scatter(&new, &changed, 7 << 20).unwrap();
    for number in changed {
        fs::rename(path(&new, number), path(&disk.mount_point(), number)).unwrap();
    }
    let before = disk.places();
    let kept = disk.apply(Bounds::default());
    assert_eq!(kept.state, State::Complete, "{kept:?}");
    assert!(kept.settled >= 20 && kept.files >= 9, "{kept:?}");
    assert_eq!(kept.files + kept.settled, FILES, "{kept:?}");
    let stayed = before
        .iter()
        .zip(disk.places())
        .filter(|(before, now)| **before == *now);
    assert_eq!(stayed.count() as u64, kept.settled);
    assert!(kept.after.time_ns < kept.before.time_ns, "{kept:?}");
    disk.check();
}

#[test]
fn what_nobody_needs_any_more_is_moved_out_of_the_way() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(&[], 768 << 20);
    assert_eq!(disk.apply(FORCE).files, FILES);
    let before = disk.places();
    // Every third file is needed no more.
    let mut profile = disk.profile();
    profile.entries.retain(|entry| entry.first_use_ns % 3 != 0);
    let wanted = profile.entries.len() as u64;
    let kept = disk.apply_for(profile, FORCE);
    assert_eq!((kept.files, kept.evicted), (wanted, FILES - wanted), "{kept:?}");
    let (first, last) = (before[0], before[before.len() - 1]);
    let inside: Vec<u64> = disk
        .places()
        .into_iter()
        .filter(|place| (first..=last).contains(place))
        .collect();
    assert_eq!(inside, Vec::<u64>::new(), "the room of the first time is free");
    disk.check();
}

#[test]
fn what_is_needed_and_stays_this_time_is_not_moved_out_of_the_way() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(&[], 768 << 20);
    let profile = disk.profile();
    assert_eq!(disk.apply_for(profile.clone(), FORCE).files, FILES);
    // Changed since it was learned: in place, so it lies where it was put.
    let changed = File::options()
        .write(true)
        .open(path(&disk.mount_point(), 3))
        .unwrap();
    changed.write_all_at(&contents(3, 8), 0).unwrap();
    changed.sync_all().unwrap();
    let before = disk.places();
    let kept = disk.apply_for(profile, FORCE);
    assert_eq!((kept.files, kept.evicted), (FILES - 1, 0), "{kept:?}");
    let place = |places: &[u64]| places[(FILES - 1 - 3) as usize];
    assert_eq!(place(&disk.places()), place(&before));
    disk.check();
}

#[test]
fn nobody_who_uses_the_files_meanwhile_notices() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(&[], 768 << 20);
    let at = disk.mount_point();
    let done = AtomicBool::new(false);
    /// Ends the others also when a check here fails.
    struct End<'a>(&'a AtomicBool);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let rounds = std::thread::scope(|scope| {
        let end = End(&done);
        let reader = scope.spawn(|| {
            let expected: Vec<_> = (0..FILES).map(|number| contents(number, size(number))).collect();
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) {
                for number in 0..FILES {
                    let bytes = fs::read(path(&at, number)).unwrap();
                    assert!(bytes == expected[number as usize], "file {number}");
                }
                rounds += 1;
            }
            rounds
        });
        let writer = scope.spawn(|| {
            // The same bytes, by another way in each round: in place, with O_DIRECT's alignment, by
            // truncation, by renaming.
            for round in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let number = 3 + 4 * (round % 5);
                let (name, all) = (at.join(format!("w{number}")), contents(number, size(number)));
                fs::write(&name, &all).unwrap();
                let file = File::options().read(true).write(true).open(&name).unwrap();
                file.set_len(round * 1000 % size(number)).unwrap();
                file.write_all_at(&all, 0).unwrap();
                fs::rename(&name, at.join("renamed")).unwrap();
                assert!(fs::read(at.join("renamed")).unwrap() == all);
            }
        });
        for _ in 0..3 {
            let kept = disk.apply(FORCE);
            assert_eq!((kept.state, kept.files), (State::Complete, FILES), "{kept:?}");
        }
        drop(end);
        writer.join().unwrap();
        reader.join().unwrap()
    });
    assert!(rounds > 0);
    fs::remove_file(at.join("renamed")).unwrap();
    disk.check();
}

#[test]
fn when_its_time_is_over_nothing_is_looked_at_or_moved() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(&[], 768 << 20);
    let before = disk.places();
    let late = Bounds {
        until: Some(Instant::now()),
        ..FORCE
    };
    let kept = disk.apply(late);
    assert_eq!(
        (kept.state, kept.files, kept.to),
        (State::Stopped, 0, None),
        "{kept:?}"
    );
    assert_eq!(disk.places(), before);
    disk.check();
}

#[test]
fn a_second_mover_is_refused_and_a_killed_one_is_told() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::new(state.path());
    assert_eq!(status(&store).unwrap(), []);
    fs::write(state.path().join("layout.json"), b"[{").unwrap();
    let error = status(&store).unwrap_err().to_string();
    assert!(error.contains("layout.json is damaged"), "{error}");
    let lock = File::create(state.path().join("layout.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let error = apply(
        vec![],
        &Machine::default(),
        &[],
        &store,
        Bounds::default(),
        &mut |_| {},
    )
    .unwrap_err();
    assert!(error.to_string().contains("another headstart"), "{error}");
    drop(lock);
    let kept = r#"[{"keys":["k"],"mount_point":"/","state":"underway","why":null,"began_unix_ns":1,"ended_unix_ns":0,
        "files":2,"bytes":3,"planned_bytes":4,"to":5,"before":{"jumps":1,"time_ns":2},"after":{"jumps":1,"time_ns":1},
        "left":{}}]"#;
    fs::write(state.path().join("layout.json"), kept).unwrap();
    assert_eq!(status(&store).unwrap()[0].state, State::Interrupted);
}

/// The kernel refuses to load what is open for writing, and to execute it.
#[test]
fn what_is_to_be_moved_is_open_for_writing_while_it_moves_alone_and_what_the_kernel_loads_never() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new(&[], 768 << 20);
    let at = disk.mount_point();
    let modules = at.join("lib/modules/6.12.1");
    fs::create_dir_all(&modules).unwrap();
    for path in [modules.join("driver.ko"), at.join("data")] {
        // By a process of its own: another test's child may have open for writing what this one writes.
        run(Command::new("cp").arg("/bin/true").arg(&path)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    }
    rustix::fs::sync();
    let mounts = MountTable::read().unwrap();
    let volume = Volume::open(&mounts, &at, &disk.fs.node(), "ext4").unwrap();
    let open = |path: &Path| Movable::open(&volume, &mounts, path, &Expect::default());
    let why = open(&modules.join("driver.ko")).err().unwrap();
    assert!(why.contains("the kernel itself loads"), "{why}");
    let path = at.join("data");
    let file = open(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    run(&mut Command::new(&path)).unwrap();
    let donor = volume.donor(file.stat.size.next_multiple_of(PAGE)).unwrap();
    for extent in file.extents().unwrap() {
        file.move_to(&volume, &donor, extent.logical, extent.logical, extent.length)
            .unwrap();
    }
    run(&mut Command::new(&path)).unwrap();
    drop(file);
}

/// Else who owns a file could have it look as if a move had damaged it.
#[test]
fn who_changes_a_file_and_sets_its_time_back_is_found_out_and_a_move_is_not() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new(&[], 768 << 20);
    let mounts = MountTable::read().unwrap();
    let volume = Volume::open(&mounts, &disk.mount_point(), &disk.fs.node(), "ext4").unwrap();
    let path = path(&disk.mount_point(), 3);
    let file = Movable::open(&volume, &mounts, &path, &Expect::default()).unwrap();
    let donor = volume.donor(file.stat.size.next_multiple_of(PAGE)).unwrap();
    for extent in file.extents().unwrap() {
        file.move_to(&volume, &donor, extent.logical, extent.logical, extent.length)
            .unwrap();
    }
    assert!(file.is_unchanged().unwrap());
    let owned = File::options().write(true).open(&path).unwrap();
    let before = owned.metadata().unwrap().modified().unwrap();
    owned.write_all_at(b"x", 0).unwrap();
    owned.set_modified(before).unwrap();
    assert_eq!(owned.metadata().unwrap().modified().unwrap(), before);
    assert!(!file.is_unchanged().unwrap());
    // Also right after another change.
    let file = Movable::open(&volume, &mounts, &path, &Expect::default()).unwrap();
    owned.write_all_at(b"y", 0).unwrap();
    owned.set_modified(before).unwrap();
    assert!(!file.is_unchanged().unwrap());
}
