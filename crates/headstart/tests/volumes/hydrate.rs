//! `headstart plan --ranges-of` and `headstart hydrate`, on loop devices. Needs root, loop devices and what
//! can record.

use crate::common::{Case, Ran, can_record, finish};
use headstart_model::range_list::RangeList;
use headstart_model::range_list::text::Span;
use headstart_system::testing::{LoopFs, Reads, Spec, can_mount};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// What a volume is filled by, in its smallest chunks.
const CHUNK: u64 = 64 << 10;
/// Files of the start, in directories of some.
const FILES: usize = 60;

/// A volume with files of which a start needs a part, and a list of that.
struct Volume {
    case: Case,
    disk: LoopFs,
    list: RangeList,
}

fn noise(seed: usize, length: usize) -> Vec<u8> {
    let mut state = seed as u64 * 7 + 1;
    let step = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as u8
    };
    std::iter::repeat_with(step).take(length).collect()
}

/// What the start prints: sums of parts of files, and the names of a directory.
fn script(root: &Path) -> String {
    format!(
        "cd {} && for i in $(seq 0 2 {}); do head -c 20000 usr/d$((i % 7))/f$i; done | cksum && ls usr/d3 && cksum <link",
        root.display(),
        FILES - 1
    )
}

fn output(root: &Path) -> String {
    let ran = Command::new("sh").args(["-ec", &script(root)]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

impl Volume {
    fn new(fstype: &'static str) -> Volume {
        let spec = Spec {
            size: 400 << 20,
            direct_io: true,
            ..Spec::new(fstype)
        };
        let disk = LoopFs::create(&spec, |root| {
            for file in 0..FILES {
                let directory = root.join(format!("usr/d{}", file % 7));
                std::fs::create_dir_all(&directory)?;
                std::fs::write(directory.join(format!("f{file}")), noise(file, 300_000))?;
                // What nobody needs lies between.
                std::fs::write(
                    directory.join(format!("unused{file}")),
                    noise(file + 1000, 300_000),
                )?;
            }
            std::os::unix::fs::symlink("usr/d1/f1", root.join("link"))
        });
        let (mut disk, case) = (disk.unwrap(), Case::new());
        for _ in 0..3 {
            disk.remount_cold().unwrap();
            let ran = case.run("k", &["sh", "-ec", &script(&disk.mount_point())]);
            assert_eq!(ran.code(), 0, "{}", ran.err);
        }
        let node = disk.node().display().to_string();
        let ran = case.headstart(&["plan", "--ranges-of", &node, "k", "-o", "list"]);
        assert_eq!((ran.code(), &*ran.err), (0, ""));
        let list = RangeList::parse(&std::fs::read(case.path("list")).unwrap()).unwrap();
        assert_eq!(
            case.headstart(&["plan", "--ranges-of", &node, "k"]).out,
            list.to_string()
        );
        disk.unmount();
        Volume { case, disk, list }
    }

    /// Hydrates the device of an image, whatever of it is in memory, by the list of this name; with what was
    /// read of the device meanwhile.
    fn hydrate(&self, image: &Path, list: &str) -> (Ran, Reads) {
        let device = Loop::new(image);
        let before = device.reads();
        let ran = self.case.headstart(&["hydrate", list, &device.0]);
        (ran, device.reads() - before)
    }
}

/// A loop device.
struct Loop(String);

impl Loop {
    fn new(image: &Path) -> Loop {
        let ran = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on"])
            .arg(image)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        Loop(String::from_utf8(ran.stdout).unwrap().trim().to_owned())
    }

    fn reads(&self) -> Reads {
        let name = self.0.rsplit('/').next().unwrap();
        let stat = std::fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        let field = |index| {
            stat.split_whitespace()
                .nth(index)
                .unwrap()
                .parse::<u64>()
                .unwrap()
        };
        Reads {
            requests: field(0),
            bytes: field(2) * 512,
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        Command::new("losetup").args(["-d", &self.0]).status().unwrap();
    }
}

/// A start finds all that it needs in the chunks that a list touches: they alone are copied to another
/// volume.
fn is_all_in_the_list(fstype: &'static str, options: &str) {
    if !can_mount() || !can_record() {
        return;
    }
    let volume = Volume::new(fstype);
    let image = File::open(volume.disk.image()).unwrap();
    let size = image.metadata().unwrap().len();
    assert_eq!(volume.list.volume.size, size);
    let copied = volume.disk.beside().join("copy");
    let copy = File::create(&copied).unwrap();
    copy.set_len(size).unwrap();
    // Mounting reads where file systems begin: that of XFS the beginning of each group, ext4's descriptors.
    let groups = (0..4).map(|group| Span {
        start: group * size / 4,
        length: 1,
    });
    let mut bytes = 0;
    let mut buffer = vec![0; CHUNK as usize];
    for range in volume.list.ranges.iter().copied().chain(groups) {
        for chunk in range.start / CHUNK..(range.start + range.length).div_ceil(CHUNK) {
            image.read_exact_at(&mut buffer, chunk * CHUNK).unwrap();
            copy.write_all_at(&buffer, chunk * CHUNK).unwrap();
            bytes += CHUNK;
        }
    }
    // The start reads 600 KB in 30 files; 36 MB are there.
    assert!((600_000..12_000_000).contains(&bytes), "{bytes}");
    let mount = volume.disk.beside().join("copied");
    std::fs::create_dir(&mount).unwrap();
    let device = Loop::new(&copied);
    let mounted = |node: &str| {
        let mut command = Command::new("mount");
        command.args(["-o", options, node]).arg(&mount);
        assert!(command.status().unwrap().success(), "{node}");
    };
    mounted(&device.0);
    let copied = std::panic::catch_unwind(|| {
        let unused = std::fs::read(mount.join("usr/d0/unused0"));
        assert!(
            unused.map_or(true, |bytes| bytes != noise(1000, 300_000)),
            "all is there"
        );
        output(&mount)
    });
    assert!(Command::new("umount").arg(&mount).status().unwrap().success());
    let original = Loop::new(&volume.disk.image());
    mounted(&original.0);
    let expected = std::panic::catch_unwind(|| output(&mount));
    assert!(Command::new("umount").arg(&mount).status().unwrap().success());
    assert_eq!(copied.unwrap(), expected.unwrap());
}

#[test]
fn a_start_on_ext4_finds_all_that_it_needs_where_a_list_touches() {
    is_all_in_the_list("ext4", "ro,noload");
}

#[test]
fn a_start_on_xfs_finds_all_that_it_needs_where_a_list_touches() {
    is_all_in_the_list("xfs", "ro,norecovery,nouuid");
}

#[test]
fn hydrate_touches_its_volume_and_refuses_others() {
    if !can_mount() || !can_record() {
        return;
    }
    let volume = Volume::new("ext4");
    let image = volume.disk.image();
    let (ran, reads) = volume.hydrate(&image, "list");
    assert_eq!((ran.code(), &*ran.err), (0, ""));
    // A device whose reads do not wait is taken for filled, after 32 of them.
    assert!(ran.out.contains("the volume is filled"), "{}", ran.out);
    assert!((32..100).contains(&reads.requests), "{reads:?}");
    assert!(reads.bytes < 600 << 10, "{reads:?}");

    // One block of a file that is compared has other contents: no more is read than what tells a filled
    // volume.
    let most = 1 + volume.list.checks.len() as u64 + 32 + 8;
    let check = volume.list.checks[0];
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, check.span.start + 5).unwrap();
    file.write_all_at(&[!byte[0]], check.span.start + 5).unwrap();
    let (ran, reads) = volume.hydrate(&image, "list");
    ran.refused(&[
        &check.span.start.to_string(),
        "list",
        "are not those",
        "--ranges-of",
    ]);
    assert!(reads.requests <= most, "{reads:?}");
    file.write_all_at(&byte, check.span.start + 5).unwrap();

    // The UUID of another file system.
    let text = volume.list.to_string();
    let uuid = text.lines().nth(1).unwrap();
    let other = format!("uuid {}", "0".repeat(8) + &uuid[13..]);
    volume.case.write("other", text.replace(uuid, &other));
    let (ran, reads) = volume.hydrate(&image, "other");
    ran.refused(&["UUID", "other"]);
    assert!(reads.requests <= most, "{reads:?}");

    // A device that shrank, and one that grew.
    for size in [300u64 << 20, 500 << 20] {
        file.set_len(size).unwrap();
        let (ran, reads) = volume.hydrate(&image, "list");
        ran.refused(&[&size.to_string(), "list", "419430400"]);
        assert_eq!(reads.requests, 0);
    }
    // No device, no list.
    let node = image.display().to_string();
    let hydrate = |list, device| volume.case.headstart(&["hydrate", list, device]);
    hydrate("list", &node).refused(&[&node, "no block device"]);
    hydrate("list", "/dev/null").refused(&["/dev/null", "no block device"]);
    hydrate("list", "nowhere").refused(&["nowhere", "there is no such file"]);
    hydrate("nothing", &node).refused(&["nothing", "there is no such file"]);
    hydrate(".", &node).refused(&["no regular file"]);
    rustix::fs::mkfifoat(rustix::fs::CWD, volume.case.path("fifo"), rustix::fs::Mode::RUSR).unwrap();
    hydrate("fifo", &node).refused(&["fifo", "no regular file"]);
    for seconds in ["0", "3601", "x", "-1"] {
        let ran = volume
            .case
            .headstart(&["hydrate", "list", &node, "--seconds", seconds]);
        assert_eq!(ran.code(), 2, "{seconds}");
    }
}

#[test]
fn a_list_is_of_a_device_that_has_files_of_the_key() {
    if !can_mount() || !can_record() {
        return;
    }
    let mut volume = Volume::new("ext4");
    volume.disk.remount_cold().unwrap();
    let other = volume.disk.beside().join("other");
    File::create(&other).unwrap().set_len(1 << 20).unwrap();
    let other = Loop::new(&other);
    let plan = |words: &[&str]| volume.case.headstart(&[&["plan", "--ranges-of"], words].concat());
    plan(&[&other.0, "k"]).refused(&[
        &other.0,
        "needs nothing",
        &volume.disk.node().display().to_string(),
    ]);
    plan(&["/dev/null", "k"]).refused(&["/dev/null", "no block device"]);
    plan(&["/nowhere", "k"]).refused(&["/nowhere"]);
    plan(&[&other.0, "unknown"]).refused(&["unknown", "headstart status"]);
    plan(&[&other.0]).refused(&["boot", "headstart status"]);
    assert_eq!(plan(&[&other.0, "k", "--memory", "1M"]).code(), 2);
    assert_eq!(volume.case.headstart(&["plan"]).code(), 2);
}

/// A list is refused within a second of processor time and 64 MiB.
#[test]
fn hostile_lists_are_refused_soon() {
    let case = Case::new();
    let begin = "headstart-ranges 1\nuuid 30313233-3435-3637-3839-616263646566\nsize 9223372036854775807\nblock 512\n";
    let ranges = |count: u64, step: u64, length: u64| -> String {
        (0..count)
            .map(|n| format!("range {} {length}\n", n * step))
            .collect()
    };
    let huge = "range 0 512\n".repeat(10_000_000);
    let cases = [
        ("ten million", huge, "more than 4194304 bytes"),
        (
            "many",
            ranges(65_537, 1024, 512),
            "line 65541: more than 65536 ranges",
        ),
        (
            "all overlap",
            "range 512 512\n".repeat(65_536) + "end\n",
            "at 512 and 512 overlap",
        ),
        ("they overlap", ranges(65_536, 512, 1024) + "end\n", "overlap"),
        (
            "too long",
            "range 0 9223372036854775296\nend\n".into(),
            "more than 1 GiB",
        ),
        (
            "beyond",
            "range 9223372036854775296 1024\nend\n".into(),
            "beyond the end",
        ),
        (
            "no number",
            "range 18446744073709551616 512\nend\n".into(),
            "no offset",
        ),
        ("cut off", ranges(1000, 1024, 512), "no `end`"),
        // Read to its end: what is wrong is the device.
        (
            "the largest",
            ranges(65_536, 1 << 20, 16 << 10) + "end\n",
            "/dev/null",
        ),
    ];
    for (name, lines, expected) in cases {
        case.write("list", begin.to_owned() + &lines);
        let mut command = Command::new("prlimit");
        let program = crate::common::binary().with_file_name("headstart-hydrate");
        command.args(["--cpu=1", "--as=67108864", "--"]).arg(program);
        command.args(["list", "/dev/null"]).current_dir(case.path("."));
        let ran = finish(command, b"");
        assert_eq!(ran.raw & 0x7f, 0, "{name}: killed");
        ran.refused(&[expected]);
    }
    case.write("list", b"headstart-ranges 1\nuuid \x1b[31m\xff\n");
    let ran = case.headstart(&["hydrate", "list", "/dev/null"]);
    ran.refused(&["line 2: no UUID", "?[31m"]);
}
