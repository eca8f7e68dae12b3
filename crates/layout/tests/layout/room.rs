//! Which free room files are moved to, and what happens where there is little. Needs root and loop devices.

use crate::disk::{Disk, FILES, FORCE, PAGE, size};
use headstart_layout::moving::volume::Volume;
use headstart_layout::{Bounds, NO_ROOM, State, plan};
use headstart_model::Profile;
use headstart_system::mounts::MountTable;
use headstart_system::testing::{self, can_mount};
use rustix::fs::FallocateFlags;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

#[test]
fn of_room_in_pieces_the_best_is_taken_and_the_rest_given_back() {
    if !can_mount() {
        return;
    }
    // All is full but for every second one of many small files, and a few that are larger.
    let mut disk = Disk::new(&[], 256 << 20);
    let at = disk.mount_point();
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
    let free = |disk: &Disk| rustix::fs::statvfs(disk.mount_point()).unwrap().f_bfree;
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
fn where_not_all_fits_what_saves_most_is_moved_and_stays() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(&[], 768 << 20);
    let wanted: u64 = (0..FILES)
        .map(|number| self::size(number).next_multiple_of(PAGE))
        .sum();
    let (free, size) = disk.free();
    let fits = wanted / 6;
    disk.fill(free - size / 20 - fits);
    // A slow one, on which every jump is worth it.
    let mut machine = disk.machine(&disk.profile());
    for device in &mut machine.devices {
        (device.cost.bandwidth, device.cost.latency) = (10e6, 0.1);
    }
    let jumps = plan(&[disk.profile()], &machine)[0].before.jumps;
    let apply = || disk.apply_on(&machine, disk.profile(), Bounds::default());
    let kept = apply();
    assert_eq!(kept.state, State::Complete, "{kept:?}");
    assert!(kept.bytes > 0 && kept.bytes <= fits, "{kept:?}");
    assert_eq!(kept.files + kept.left[NO_ROOM], FILES, "{kept:?}");
    assert_eq!(kept.before.jumps, jumps, "of all: {kept:?}");
    assert!(kept.after.jumps < jumps / 2, "{kept:?}");
    let again = apply();
    assert_eq!((again.state, again.bytes), (State::Declined, 0), "{again:?}");
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
    let (free, size) = disk.free();
    // All would fit beside the twentieth that stays free, were it not that most of what is free is in blocks
    // smaller than a page.
    let bytes = (free - whole.planned_bytes / 2) >> 12 << 12;
    let filler = disk.fill(bytes);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let wanted = size / 20 + whole.planned_bytes * 2;
    for hole in 0..(wanted >> 10).min(bytes >> 11) {
        rustix::fs::fallocate(&filler, punch, hole << 11, 1024).unwrap();
    }
    rustix::fs::sync();
    let most = disk.free().0 - size / 20;
    assert!(most > whole.planned_bytes, "{most} bytes may be taken");
    let kept = disk.apply(FORCE);
    assert_eq!(kept.state, State::Complete, "{kept:?}");
    let stay = kept.left.get(NO_ROOM).copied().unwrap_or(0);
    assert!(
        stay > 0 && kept.files > 0 && kept.files + stay == FILES,
        "{kept:?}"
    );
    disk.check();
}

/// Half of one file is nothing that could be moved instead.
#[test]
fn one_file_goes_to_room_in_pieces() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(&[], 256 << 20);
    let large = disk.mount_point().join("large");
    let piece = |number: u64| disk.mount_point().join(format!("piece{number}"));
    // Pieces of 1 MiB as far as there is room, of which each fourth is the file's, then every second of the
    // others is free.
    let file = File::create(&large).unwrap();
    let mut pieces = Vec::new();
    for number in 0.. {
        let (of, at) = match number % 4 {
            0 if number < 32 => (file.try_clone().unwrap(), (number / 4) << 20),
            _ => (File::create(piece(number)).unwrap(), 0),
        };
        if rustix::fs::fallocate(&of, FallocateFlags::empty(), at, 1 << 20).is_err() {
            break;
        }
        pieces.push(number);
    }
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![7; 8 << 20], 0).unwrap();
    for number in pieces.iter().filter(|number| *number % 4 == 2) {
        fs::remove_file(piece(*number)).unwrap();
    }
    rustix::fs::sync();
    let profile = Profile {
        entries: vec![testing::whole(&large, 0).unwrap()],
        ..disk.profile()
    };
    let kept = disk.apply_for(profile, FORCE);
    assert_eq!((kept.state, kept.files), (State::Complete, 1), "{kept:?}");
    assert!(fs::read(&large).unwrap() == vec![7; 8 << 20]);
    disk.check();
}

#[test]
fn a_full_file_system_is_left_as_it_is() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(&[], 64 << 20);
    // Less than the twentieth that stays free.
    disk.fill(disk.free().0 - (2 << 20));
    let kept = disk.apply(FORCE);
    assert_eq!(kept.state, State::Declined, "{kept:?}");
    assert!(kept.why.unwrap().contains("stay so"));
    disk.check();
}

/// Where contents are not what they were, the room stays as a file; that takes a faulty kernel or disk, so
/// only the keeping is tested.
#[test]
fn room_that_is_kept_is_a_file_for_root_alone() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new(&[], 768 << 20);
    let mounts = MountTable::read().unwrap();
    let volume = Volume::open(&mounts, &disk.mount_point(), &disk.fs.node(), "ext4").unwrap();
    let donor = volume.donor(1 << 20).unwrap();
    donor.keep(&volume, "rescue").unwrap();
    assert!(donor.keep(&volume, "rescue").is_err(), "nothing is written over");
    drop((donor, volume));
    let kept = fs::metadata(disk.mount_point().join("rescue")).unwrap();
    assert_eq!((kept.len(), kept.mode() & 0o777, kept.uid()), (1 << 20, 0o600, 0));
    disk.check();
}
