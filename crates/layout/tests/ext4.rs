//! Files moved on real file systems, of every shape. Needs root and loop devices.

#![allow(clippy::unwrap_used)]

use headstart_layout::{Bounds, Kept, State, apply, plan, status};
use headstart_model::machine::{DeviceClass, Machine};
use headstart_model::profile::Policy;
use headstart_model::{Key, Profile};
use headstart_session::machine::{Costs, Measure, snapshot};
use headstart_store::{KeyDir, Store};
use headstart_system::mounts::MountTable;
use headstart_system::moving::volume::{Movable, Volume};
use headstart_system::open::Expect;
use headstart_system::testing::{self, LoopFs, Spec, can_mount};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FILES: u64 = 60;
const PAGE: u64 = 4096;
/// How far the files lie apart is the file system's choice, so the gain is small here or there; what is worth it is tested with
/// the order itself.
const FORCE: Bounds = Bounds {
    force: true,
    rate: None,
    at_shutdown: false,
    until: None,
};
/// As the shutdown does.
const AT_SHUTDOWN: Bounds = Bounds {
    at_shutdown: true,
    ..FORCE
};
/// Why a program is not moved.
const WAITS: &str = "programs that run: moved at the next shutdown";

/// Contents that tell the file and the place in it.
fn contents(number: u64, bytes: u64) -> Vec<u8> {
    let words = (0..bytes.div_ceil(8)).map(|word| (number << 32 | word).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut all: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    all.truncate(bytes as usize);
    all
}

fn size(number: u64) -> u64 {
    match number % 4 {
        0 => 1,
        // Those below 64 KiB are put together by the file system itself.
        1 => 20 * PAGE + 700,
        2 => 100_000 + number * 37,
        _ => 300_000,
    }
}

fn path(at: &Path, number: u64) -> PathBuf {
    at.join(format!("{number:03}"))
}

/// Files with room between them.
fn scatter(at: &Path, numbers: &[u64], gap: u64) -> std::io::Result<()> {
    for &number in numbers {
        let file = File::create(path(at, number))?;
        let room = File::create(at.join(format!("gap{number}")))?;
        // Allocated at once, in this order. Without extents there is no such call, and nothing is moved there.
        for (file, bytes) in [(&file, size(number)), (&room, gap)] {
            match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
                Ok(()) | Err(Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        file.write_all_at(&contents(number, size(number)), 0)?;
    }
    rustix::fs::sync();
    for number in numbers {
        fs::remove_file(at.join(format!("gap{number}")))?;
    }
    Ok(())
}

struct Disk {
    fs: LoopFs,
    state: tempfile::TempDir,
}

impl Disk {
    fn new(mkfs: &[&str], size: u64) -> Disk {
        let spec = Spec {
            size,
            ..Spec::new("ext4").mkfs(mkfs)
        };
        Disk {
            fs: LoopFs::create(&spec, |at| {
                scatter(at, &(0..FILES).collect::<Vec<_>>(), size / 100)
            })
            .unwrap(),
            state: tempfile::tempdir_in("/var/tmp").unwrap(),
        }
    }

    fn at(&self) -> PathBuf {
        self.fs.mount_point()
    }

    fn store(&self) -> Store {
        Store::new(self.state.path())
    }

    fn key(&self) -> KeyDir {
        self.store().key(&Key::new("test").unwrap())
    }

    /// What a start that reads all from the last to the first learned.
    fn profile(&self) -> Profile {
        let entry = |number| testing::whole(&path(&self.at(), number), 1000 - number).unwrap();
        Profile {
            entries: (0..FILES).map(entry).collect(),
            ..Profile::new(Key::new("test").unwrap(), PAGE as u32, Policy::Decay)
        }
    }

    fn machine(&self, profile: &Profile) -> Machine {
        let store = self.store();
        let costs = Costs {
            store: &store,
            class: Some(DeviceClass::Disk),
            measure: Measure::Nothing,
        };
        snapshot(profile, &costs, &mut |line| panic!("{line}")).unwrap()
    }

    fn apply(&self, bounds: Bounds) -> Kept {
        self.apply_for(self.profile(), bounds)
    }

    fn apply_for(&self, profile: Profile, bounds: Bounds) -> Kept {
        let machine = self.machine(&profile);
        let orders = plan(&[profile], &machine);
        let all = apply(
            orders,
            &machine,
            &[self.key()],
            &self.store(),
            bounds,
            &mut |_| {},
        )
        .unwrap();
        assert_eq!(status(&self.store()).unwrap()[..1], all);
        let [kept] = <[Kept; 1]>::try_from(all).unwrap();
        kept
    }

    /// Where the first byte of each file lies, in the order of their use.
    fn places(&self) -> Vec<u64> {
        let place = |number| {
            let file = File::open(path(&self.at(), number)).unwrap();
            headstart_system::extents::extents(&file).unwrap()[0].physical
        };
        (0..FILES).rev().map(place).collect()
    }

    /// Every byte is what it was, read from the device, and the file system is clean.
    fn check(&mut self) {
        self.fs.remount_cold().unwrap();
        for number in 0..FILES {
            let found = fs::read(path(&self.at(), number)).unwrap();
            assert!(found == contents(number, size(number)), "file {number}");
        }
        self.fs.check().unwrap();
    }
}

fn is_ascending(places: &[u64]) -> bool {
    places.windows(2).all(|two| two[0] < two[1])
}

#[test]
fn files_lie_in_the_order_of_their_use_and_are_what_they_were() {
    if !can_mount() {
        return;
    }
    let shapes: &[&[&str]] = &[
        &["-b", "4096"],
        &["-b", "2048"],
        &["-b", "1024"],
        &["-O", "^has_journal"],
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

    let mut disk = Disk::new(&["-O", "inline_data"], 768 << 20);
    for number in (0..FILES).step_by(4) {
        // Room that is allocated beforehand is never in the inode.
        fs::remove_file(path(&disk.at(), number)).unwrap();
        fs::write(path(&disk.at(), number), contents(number, size(number))).unwrap();
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
    let at = disk.at();
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
    let at = disk.at();
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
    assert_eq!((late.left[WAITS], late.files), (1, 0), "{late:?}");
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
    let at = disk.at();
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
    let found = fs::read(path(&at, 6)).unwrap();
    let mut expected = vec![0; 1 << 22];
    for chunk in [0, 5, 17] {
        let from = (chunk * 20 * PAGE) as usize;
        expected[from..from + data.len()].copy_from_slice(&data);
    }
    assert!(found == expected);
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
    let new = disk.at().join("new");
    fs::create_dir(&new).unwrap();
    scatter(&new, &changed, 7 << 20).unwrap();
    for number in changed {
        fs::rename(path(&new, number), path(&disk.at(), number)).unwrap();
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
fn of_room_in_pieces_the_best_is_taken_and_the_rest_given_back() {
    if !can_mount() {
        return;
    }
    // All is full but for every second one of many small files, and a few that are larger.
    let mut disk = Disk::new(&[], 256 << 20);
    let at = disk.at();
    let mut fillers = Vec::new();
    for number in 0.. {
        let bytes = if number % 60 == 59 { 2 << 20 } else { 64 << 10 };
        let filler = at.join(format!("filler{number}"));
        let file = File::create(&filler).unwrap();
        if rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes).is_err() {
            break;
        }
        fillers.push(filler);
    }
    for filler in fillers.iter().skip(1).step_by(2) {
        fs::remove_file(filler).unwrap();
    }
    rustix::fs::sync();
    let free = |disk: &Disk| rustix::fs::statvfs(disk.at()).unwrap().f_bfree;
    let before = free(&disk);
    let kept = disk.apply(FORCE);
    assert_eq!((kept.state, kept.files), (State::Complete, FILES), "{kept:?}");
    // In holes of 64 KiB it would be more than a hundred.
    let pieces = kept.planned_bytes.div_ceil(2 << 20) + 2;
    assert!(kept.pieces <= pieces, "{kept:?}");
    // A process that another test has just forked has the room's files open until it executes something.
    let limit = Instant::now() + Duration::from_secs(30);
    while free(&disk) != before && Instant::now() < limit {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(free(&disk), before, "nothing is kept");
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
    let changed = File::options().write(true).open(path(&disk.at(), 3)).unwrap();
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
    let at = disk.at();
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
                    let found = fs::read(path(&at, number)).unwrap();
                    assert!(found == expected[number as usize], "file {number}");
                }
                rounds += 1;
            }
            rounds
        });
        let writer = scope.spawn(|| {
            // The same bytes, by another way in each round: in place, with O_DIRECT's alignment, by truncation, by renaming.
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
fn what_there_is_no_room_for_stays_and_the_rest_is_moved() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(&[], 64 << 20);
    let whole = disk.apply(FORCE);
    assert_eq!((whole.state, whole.files), (State::Complete, FILES), "{whole:?}");
    let found = rustix::fs::statvfs(disk.at()).unwrap();
    let (free, size) = (found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize);
    // Half of it fits beside the twentieth that stays free.
    let filler = free - size / 20 - whole.planned_bytes / 2;
    fs::write(disk.at().join("filler"), vec![3; filler as usize]).unwrap();
    let kept = disk.apply(FORCE);
    assert_eq!(kept.state, State::Complete, "{kept:?}");
    let stay = kept.left.get(headstart_layout::NO_ROOM).copied().unwrap_or(0);
    assert!(
        stay > 0 && kept.files > 0 && kept.files + stay == FILES,
        "{kept:?}"
    );
    assert!(
        kept.bytes > whole.bytes / 4 && kept.bytes <= whole.bytes / 2,
        "{kept:?}"
    );
    disk.check();
}

#[test]
fn what_there_was_no_room_for_is_moved_the_next_times() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(&[], 768 << 20);
    let found = rustix::fs::statvfs(disk.at()).unwrap();
    let (free, size) = (found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize);
    let wanted: u64 = (0..FILES)
        .map(|number| self::size(number).next_multiple_of(PAGE))
        .sum();
    let filler = File::create(disk.at().join("filler")).unwrap();
    let bytes = free - size / 20 - wanted * 3 / 4;
    rustix::fs::fallocate(&filler, FallocateFlags::empty(), 0, bytes).unwrap();
    let (mut in_order, mut left) = (0, 0);
    for time in 0..4 {
        let kept = disk.apply(if time == 0 { FORCE } else { Bounds::default() });
        left = kept.left.get(headstart_layout::NO_ROOM).copied().unwrap_or(0);
        assert!(kept.settled >= in_order && kept.files > 0, "{time}: {kept:?}");
        assert_eq!(kept.files + kept.settled + left, FILES, "{time}: {kept:?}");
        in_order = kept.settled + kept.files;
        if left == 0 {
            break;
        }
    }
    assert_eq!(left, 0);
    disk.check();
}

#[test]
fn where_the_free_room_is_in_small_pieces_what_fits_into_the_others_is_moved() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(&["-b", "1024"], 64 << 20);
    let whole = disk.apply(FORCE);
    assert_eq!((whole.state, whole.files), (State::Complete, FILES), "{whole:?}");
    let found = rustix::fs::statvfs(disk.at()).unwrap();
    let (free, size) = (found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize);
    // All would fit beside the twentieth that stays free, were it not that most of what is free is in blocks smaller than a page.
    let filler = fs::File::create(disk.at().join("filler")).unwrap();
    let bytes = (free - whole.planned_bytes / 2) >> 12 << 12;
    let (keep, punch) = (
        FallocateFlags::empty(),
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
    );
    rustix::fs::fallocate(&filler, keep, 0, bytes).unwrap();
    let wanted = size / 20 + whole.planned_bytes * 2;
    for hole in 0..(wanted >> 10).min(bytes >> 11) {
        rustix::fs::fallocate(&filler, punch, hole << 11, 1024).unwrap();
    }
    rustix::fs::sync();
    let found = rustix::fs::statvfs(disk.at()).unwrap();
    let most = (found.f_bavail * found.f_frsize) - size / 20;
    assert!(most > whole.planned_bytes, "{most} bytes may be taken");
    let kept = disk.apply(FORCE);
    assert_eq!(kept.state, State::Complete, "{kept:?}");
    let stay = kept.left.get(headstart_layout::NO_ROOM).copied().unwrap_or(0);
    assert!(
        stay > 0 && kept.files > 0 && kept.files + stay == FILES,
        "{kept:?}"
    );
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
fn a_full_file_system_is_left_as_it_is() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(&[], 64 << 20);
    let filler = disk.at().join("filler");
    let free = rustix::fs::statvfs(disk.at()).unwrap();
    // Less than the twentieth that stays free.
    let bytes = (free.f_bavail * free.f_frsize).saturating_sub(2 << 20);
    fs::write(&filler, vec![3; bytes as usize]).unwrap();
    let kept = disk.apply(FORCE);
    assert_eq!(kept.state, State::Declined, "{kept:?}");
    assert!(kept.why.unwrap().contains("stay so"));
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

/// Where contents are not what they were, the room stays as a file; that takes a faulty kernel or disk, so only the keeping is tested.
#[test]
fn room_that_is_kept_is_a_file_for_root_alone() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(&[], 768 << 20);
    let mounts = MountTable::read().unwrap();
    let volume = Volume::open(&mounts, &disk.at(), &disk.fs.node(), "ext4").unwrap();
    let donor = volume.donor(1 << 20).unwrap();
    donor.keep(&volume, "rescue").unwrap();
    assert!(donor.keep(&volume, "rescue").is_err(), "nothing is written over");
    drop((donor, volume));
    let kept = fs::metadata(disk.at().join("rescue")).unwrap();
    assert_eq!((kept.len(), kept.mode() & 0o777, kept.uid()), (1 << 20, 0o600, 0));
    disk.check();
}

/// Else who owns a file could have it look as if a move had damaged it.
#[test]
fn who_changes_a_file_and_sets_its_time_back_is_found_out_and_a_move_is_not() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new(&[], 768 << 20);
    let mounts = MountTable::read().unwrap();
    let volume = Volume::open(&mounts, &disk.at(), &disk.fs.node(), "ext4").unwrap();
    let path = path(&disk.at(), 3);
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
