//! Files moved on a real XFS, and what is not moved there or on Btrfs. Needs root, loop devices and
//! Linux 6.12.

use crate::disk::{self, FORCE, PAGE, backwards, machine, path};
use headstart_layout::moving::movable::Movable;
use headstart_layout::moving::volume::Volume;
use headstart_layout::{LayoutResult, State, apply, plan};
use headstart_model::Key;
use headstart_store::Store;
use headstart_system::mounts::MountTable;
use headstart_system::open::Expect;
use headstart_system::testing::{LoopFs, Spec, can_mount, run};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

const FILES: u64 = 40;

fn size(number: u64) -> u64 {
    // Tails of every kind, and one of some megabytes.
    match number % 4 {
        0 => 1 + number,
        1 => 20 * PAGE + 700,
        2 => 3 * PAGE,
        _ => 400_000 + (number / 20) * 3_000_000,
    }
}

fn contents(number: u64) -> Vec<u8> {
    disk::contents(number, size(number))
}

/// CRC-32C, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
        }
    }
    !crc
}

/// Sets whether an XFS has exchange-range, in its super block: mkfs.xfs and xfs_repair know of it from 6.10
/// on, Debian 12's do not, and it changes nothing else on the disk.
fn set_exchange_range(image: &Path, on: bool) {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut block = [0; 512];
    file.read_exact_at(&mut block, 0).unwrap();
    assert_eq!(&block[..4], b"XFSB");
    block[219] = block[219] & !0x40 | if on { 0x40 } else { 0 };
    block[224..228].fill(0);
    let sum = crc(&block).to_le_bytes();
    block[224..228].copy_from_slice(&sum);
    file.write_all_at(&block, 0).unwrap();
    file.sync_all().unwrap();
}

struct Disk {
    fs: LoopFs,
    state: tempfile::TempDir,
}

impl Disk {
    fn new(fstype: &'static str, exchange_range: bool) -> Disk {
        let mut fs = LoopFs::create(&Spec::new(fstype), |_| Ok(())).unwrap();
        if fstype == "xfs" {
            fs.unmount();
            set_exchange_range(&fs.image(), exchange_range);
            fs.remount_cold().unwrap();
        }
        let at = fs.mount_point();
        for number in 0..FILES {
            fs::write(path(&at, number), contents(number)).unwrap();
            // What lies between them goes again.
            fs::write(at.join(format!("gap{number}")), vec![1; 300_000]).unwrap();
            rustix::fs::sync();
        }
        for number in 0..FILES {
            fs::remove_file(at.join(format!("gap{number}"))).unwrap();
        }
        fs.remount_cold().unwrap();
        let state = tempfile::tempdir_in("/var/tmp").unwrap();
        Disk { fs, state }
    }

    fn mount_point(&self) -> PathBuf {
        self.fs.mount_point()
    }

    /// Moves all into the order from the last to the first.
    fn apply(&self) -> LayoutResult {
        let store = Store::new(self.state.path());
        let key = store.key(&Key::new("test").unwrap());
        let profile = backwards(key.key(), &self.mount_point(), FILES).unwrap();
        let machine = machine(&store, &profile);
        let orders = plan(&[profile], &machine);
        let results = apply(orders, &machine, &[key], &store, FORCE, &mut |_| {}).unwrap();
        let [kept] = <[LayoutResult; 1]>::try_from(results).unwrap();
        kept
    }

    fn places(&self) -> Vec<u64> {
        let place = |number| {
            let file = File::open(path(&self.mount_point(), number)).unwrap();
            // A file that is in its inode has no place.
            let extents = headstart_system::extents::extents(&file).unwrap();
            extents.first().map_or(0, |extent| extent.physical)
        };
        (0..FILES).rev().map(place).collect()
    }

    /// Times and mode of all files.
    fn facts(&self) -> Vec<([i64; 4], u32)> {
        let facts = |number| {
            let facts = fs::metadata(path(&self.mount_point(), number)).unwrap();
            let times = [
                facts.mtime(),
                facts.mtime_nsec(),
                facts.ctime(),
                facts.ctime_nsec(),
            ];
            (times, facts.mode())
        };
        (0..FILES).map(facts).collect()
    }

    fn check(&mut self) {
        self.fs.unmount();
        set_exchange_range(&self.fs.image(), false);
        run(Command::new("xfs_repair").arg("-n").arg(self.fs.image())).unwrap();
        set_exchange_range(&self.fs.image(), true);
        self.fs.remount_cold().unwrap();
        for number in 0..FILES {
            let bytes = fs::read(path(&self.mount_point(), number)).unwrap();
            assert!(bytes == contents(number), "file {number}");
        }
    }
}

#[test]
fn files_of_an_xfs_lie_in_the_order_of_their_use_and_are_what_they_were() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new("xfs", true);
    let facts = disk.facts();
    for _ in 0..3 {
        let kept = disk.apply();
        assert_eq!(
            (kept.state, kept.files, &kept.left),
            (State::Complete, FILES, &Default::default()),
            "{kept:?}"
        );
        assert!(disk.places().is_sorted(), "{:?}", disk.places());
        assert_eq!(disk.facts(), facts, "no time and no mode changes");
        disk.check();
    }
}

#[test]
fn what_cannot_be_moved_on_an_xfs_stays_and_says_why() {
    if !can_mount() {
        return;
    }
    let without = Disk::new("xfs", false).apply();
    assert_eq!(without.state, State::Declined);
    let why = without.why.unwrap();
    assert!(why.contains("without exchange-range"), "{why}");
    let mut disk = Disk::new("xfs", true);
    let at = disk.mount_point();
    fs::set_permissions(path(&at, 1), Permissions::from_mode(0o4755)).unwrap();
    run(Command::new("setcap").arg("cap_net_raw+ep").arg(path(&at, 3))).unwrap();
    run(Command::new("cp")
        .arg("--reflink=always")
        .arg(path(&at, 5))
        .arg(at.join("shares")))
    .unwrap();
    run(Command::new("chattr").arg("+i").arg(path(&at, 7))).unwrap();
    run(Command::new("xfs_io").args(["-c", "chattr +f"]).arg(path(&at, 9))).unwrap();
    let kept = disk.apply();
    run(Command::new("chattr").arg("-i").arg(path(&at, 7))).unwrap();
    assert_eq!(kept.state, State::Complete, "{kept:?}");
    for why in ["setuid", "capabilities", "reflink", "immutable", "defragmented"] {
        let left = kept.left.iter().filter(|(reason, _)| reason.contains(why));
        assert_eq!(left.map(|(_, count)| count).sum::<u64>(), 1, "{why}: {kept:?}");
    }
    assert_eq!(kept.files, FILES - 5, "{kept:?}");
    let facts = fs::metadata(path(&at, 1)).unwrap();
    assert_eq!(facts.mode() & 0o7777, 0o4755);
    disk.check();
}

#[test]
fn files_of_a_btrfs_are_not_moved_and_it_is_told_why() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("btrfs", false);
    let places = disk.places();
    let kept = disk.apply();
    assert_eq!((kept.state, kept.files), (State::Declined, 0));
    let why = kept.why.unwrap();
    assert!(why.contains("snapshots"), "{why}");
    assert_eq!(disk.places(), places);
}

/// Writes through a mapping, again and again another byte, until its standard input ends; then the file must
/// have what was written last.
const MAPPER: &str = r#"
import mmap, select, sys
file = open(sys.argv[1], "r+b")
view, model, round = mmap.mmap(file.fileno(), 0), bytearray(file.read()), 0
while not select.select([sys.stdin], [], [], 0)[0]:
    round += 1
    for at in range(0, len(model), 4096):
        view[at] = model[at] = round % 251
    if view[:] != model:
        sys.exit("a mapping has lost what was written through it")
view.flush()
if open(sys.argv[1], "rb").read() != model:
    sys.exit("the file has lost what was written through a mapping")
print(round)
"#;

#[test]
fn what_is_written_while_a_file_of_an_xfs_moves_is_not_lost() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new("xfs", true);
    let at = disk.mount_point();
    let (written, mapped) = (path(&at, 3), path(&at, 23));
    let mut child = Command::new("python3")
        .args(["-c", MAPPER])
        .arg(&mapped)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mounts = MountTable::read().unwrap();
    let volume = Volume::open(&mounts, &at, &disk.fs.node(), "xfs").unwrap();
    let done = AtomicBool::new(false);
    let (rounds, mut moved, mut refused) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let file = File::options().read(true).write(true).open(&written).unwrap();
            let mut model = fs::read(&written).unwrap();
            let mut rounds = 0u64;
            while !done.load(Ordering::Relaxed) {
                rounds += 1;
                let at = (rounds * 7919 % (model.len() as u64 - 100)) as usize;
                let data = [rounds as u8; 100];
                file.write_all_at(&data, at as u64).unwrap();
                model[at..at + 100].copy_from_slice(&data);
                if rounds % 16 == 0 {
                    assert!(fs::read(&written).unwrap() == model, "round {rounds}");
                    // Now and then there is time for a whole move.
                    std::thread::sleep(std::time::Duration::from_millis(rounds / 16 % 60));
                }
            }
            assert!(fs::read(&written).unwrap() == model);
            rounds
        });
        let (mut moved, mut refused) = (0, 0);
        for _ in 0..150 {
            for path in [&written, &mapped] {
                let file = Movable::open(&volume, &mounts, path, &Expect::default()).unwrap();
                let donor = volume.donor(file.stat.size.next_multiple_of(PAGE)).unwrap();
                for extent in file.extents().unwrap() {
                    match file.move_to(&volume, &donor, extent.logical, extent.logical, extent.length) {
                        Ok(()) => moved += 1,
                        Err(_) => refused += 1,
                    }
                }
            }
        }
        done.store(true, Ordering::Relaxed);
        (writer.join().unwrap(), moved, refused)
    });
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        rounds > 0 && moved > 0 && refused > 0,
        "{rounds} {moved} {refused}"
    );
    println!("{rounds} rounds of writes, {moved} moved, {refused} refused");
    // Nobody writes now: it moves.
    (moved, refused) = (0, 0);
    for path in [&written, &mapped] {
        let before = fs::read(path).unwrap();
        let file = Movable::open(&volume, &mounts, path, &Expect::default()).unwrap();
        let donor = volume.donor(file.stat.size.next_multiple_of(PAGE)).unwrap();
        for extent in file.extents().unwrap() {
            file.move_to(&volume, &donor, extent.logical, extent.logical, extent.length)
                .unwrap();
            moved += 1;
        }
        drop((file, donor));
        assert!(fs::read(path).unwrap() == before);
    }
    assert!(moved > 0 && refused == 0);
    // Both keep the root of its mount open.
    drop((volume, mounts));
    // They are not what the check expects.
    for (number, path) in [(3, &written), (23, &mapped)] {
        fs::write(path, contents(number)).unwrap();
    }
    disk.check();
}
