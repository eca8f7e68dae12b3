//! Layout on a volume that is thin below stops before it fills what lies below.

use crate::common::{Ran, finish};
use headstart_model::Key;
use headstart_store::Store;
use headstart_system::testing::numbered::{backwards, contents, path};
use headstart_system::testing::{Mounted, Scratch, can_mount, run, unmount};
use rustix::fs::StatVfsMountFlags;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const FILES: u64 = 200;
const BYTES: u64 = 100 << 10;

/// An ext4 in an image with holes, on a file system that has less room than it.
struct Thin {
    disk: Mounted,
    pool: Mounted,
    state: PathBuf,
    _scratch: Scratch,
}

impl Thin {
    fn new(mkfs: &[&str]) -> Thin {
        let scratch = Scratch::new().unwrap();
        let pool = ["-t", "tmpfs", "-o", "size=100M", "none"];
        let pool = Mounted::new(&pool, &scratch.path().join("pool")).unwrap();
        let image = pool.path().join("image");
        File::create(&image).unwrap().set_len(300 << 20).unwrap();
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F"])
            .args(mkfs)
            .arg(&image))
        .unwrap();
        let disk = Mounted::new(
            &["-o", "loop", image.to_str().unwrap()],
            &scratch.path().join("mnt"),
        )
        .unwrap();
        for number in 0..FILES {
            fs::write(path(disk.path(), number), contents(number, BYTES)).unwrap();
        }
        rustix::fs::sync();
        let state = scratch.path().join("state");
        let (store, key) = (Store::new(&state), Key::new("l").unwrap());
        store.make().unwrap();
        let profile = backwards(&key, disk.path(), FILES).unwrap();
        store.key(&key).lock().unwrap().save_profile(&profile).unwrap();
        Thin {
            disk,
            pool,
            state,
            _scratch: scratch,
        }
    }

    fn image(&self) -> PathBuf {
        self.pool.path().join("image")
    }

    /// Fills the pool, but for so many bytes.
    fn fill(&self, but: u64) {
        let facts = rustix::fs::statvfs(self.pool.path()).unwrap();
        let ballast = File::create(self.pool.path().join("ballast")).unwrap();
        let bytes = (facts.f_bavail * facts.f_frsize).saturating_sub(but);
        if bytes > 0 {
            rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, bytes).unwrap();
        }
    }

    fn apply(&self) -> Ran {
        self.layout(&["apply", "--force", "l"])
    }

    fn layout(&self, words: &[&str]) -> Ran {
        let mut command = Command::new(crate::common::binary());
        command.arg("--state").arg(&self.state).arg("layout").args(words);
        finish(command, b"")
    }

    /// It is mounted for writing, and takes writes that fit.
    #[track_caller]
    fn is_writable(&self, what: &str) {
        let path = self.disk.path().join("after");
        let mut after = File::create(&path).unwrap_or_else(|error| panic!("{what}: {error}"));
        after.write_all(b"x").unwrap();
        after.sync_all().unwrap_or_else(|error| panic!("{what}: {error}"));
        fs::remove_file(&path).unwrap();
        let flags = rustix::fs::statvfs(self.disk.path()).unwrap().f_flag;
        assert!(
            !flags.contains(StatVfsMountFlags::RDONLY),
            "{what}: it is read-only"
        );
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let at = format!(" {} ", self.disk.path().display());
        let line = mounts.lines().find(|line| line.contains(&at)).unwrap();
        assert!(
            line.contains(" rw,") && !line.contains("emergency_ro"),
            "{what}: {line}"
        );
    }

    /// Every byte is what it was, and the file system is clean.
    #[track_caller]
    fn check(self, what: &str) {
        let image = self.image();
        let Thin { disk, pool, .. } = &self;
        let _ = fs::remove_file(pool.path().join("ballast"));
        rustix::fs::sync();
        unmount(disk.path()).unwrap();
        run(Command::new("mount")
            .args(["-o", "remount,size=400M"])
            .arg(pool.path()))
        .unwrap();
        run(Command::new("e2fsck").arg("-fn").arg(&image)).unwrap_or_else(|error| panic!("{what}: {error}"));
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&image)
            .arg(disk.path()))
        .unwrap();
        for number in 0..FILES {
            let bytes = fs::read(path(disk.path(), number)).unwrap();
            assert!(bytes == contents(number, BYTES), "{what}: file {number}");
        }
        let others = fs::read_dir(disk.path()).unwrap().flatten();
        let kept = others.filter(|file| file.file_name().to_string_lossy().contains("headstart"));
        assert_eq!(kept.count(), 0, "{what}: no room was kept");
    }
}

/// As images are made for tests, with all metadata written; and as mkfs makes them by default, with holes
/// where the journal and bitmaps are to be.
const SHAPES: [&[&str]; 3] = [
    &["-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"],
    &[],
    &["-b", "1024"],
];

#[test]
fn where_too_little_is_left_below_nothing_is_moved_and_it_stays_writable() {
    if !can_mount() {
        return;
    }
    for mkfs in SHAPES {
        for left in [0, 1 << 20, 6 << 20, 15 << 20] {
            let what = format!("{mkfs:?}, {left} bytes left");
            let thin = Thin::new(mkfs);
            thin.fill(left);
            let took = fs::metadata(thin.image()).unwrap().blocks();
            let ran = thin.apply();
            assert_eq!(ran.code(), 1, "{what}: {}{}", ran.out, ran.err);
            assert_eq!(
                (ran.err.lines().count(), ran.out.as_str()),
                (1, ""),
                "{what}: {}",
                ran.err
            );
            assert!(
                ran.err.len() < 400 && ran.err.contains("mnt"),
                "{what}: {}",
                ran.err
            );
            let takes = fs::metadata(thin.image()).unwrap().blocks();
            assert!(
                takes <= took + (1 << 20) / 512,
                "{what}: what was taken below is given back"
            );
            if left > 0 {
                thin.is_writable(&what);
            }
            thin.check(&what);
        }
    }
}

#[test]
fn where_enough_is_left_all_are_moved_and_it_keeps_nothing_more_below() {
    if !can_mount() {
        return;
    }
    let thin = Thin::new(&["-J", "size=4"]);
    let took = fs::metadata(thin.image()).unwrap().blocks();
    let ran = thin.apply();
    assert_eq!(ran.code(), 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains(": complete"), "{}", ran.out);
    assert_eq!(ran.err, "", "no line of progress where there is no terminal");
    // Room, and then the files: each byte twice.
    let status: serde_json::Value = serde_json::from_str(&thin.layout(&["status", "--json"]).out).unwrap();
    let number = |what: &str| status[0][what].as_u64().unwrap();
    assert_eq!(number("writes_bytes"), 2 * number("planned_bytes"));
    assert_eq!(
        (number("room_bytes"), number("bytes")),
        (number("planned_bytes"), number("planned_bytes"))
    );
    assert!(
        number("takes_ns") > 0 && ran.out.contains("\n  wrote "),
        "{}",
        ran.out
    );
    rustix::fs::sync();
    let takes = fs::metadata(thin.image()).unwrap().blocks();
    // Its journal had holes.
    assert!(takes <= took + (6 << 20) / 512, "{} KiB more", (takes - took) / 2);
    thin.is_writable("moved");
    thin.check("moved");
}

/// What lies below a device mapper's or a virtual machine's disk says nothing: here another file system that
/// others fill while nobody looks.
#[test]
fn where_below_is_filled_meanwhile_the_first_failed_write_ends_it() {
    if !can_mount() {
        return;
    }
    for left in [9 << 20, 14 << 20, 19 << 20] {
        let thin = Thin::new(SHAPES[0]);
        // The kernel tells the image by a path at which now is another file, without holes.
        let hidden = Hidden::new(&thin.image());
        thin.fill(left);
        let ran = thin.apply();
        let what = format!("{left}: {}{}", ran.out, ran.err);
        assert_eq!(ran.code(), 1, "{what}");
        assert!(ran.err.lines().count() == 1 && ran.err.len() < 400, "{what}");
        assert!(ran.err.contains("nothing was moved"), "{what}");
        thin.is_writable(&what);
        drop(hidden);
        thin.check(&what);
    }
}

/// Something else is at this path until it is dropped.
struct Hidden(PathBuf);

impl Hidden {
    fn new(image: &Path) -> Hidden {
        let other = image.with_extension("other");
        File::create(&other).unwrap().write_all_at(&[1], 0).unwrap();
        run(Command::new("mount").arg("--bind").arg(&other).arg(image)).unwrap();
        Hidden(image.to_owned())
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = unmount(&self.0);
    }
}
