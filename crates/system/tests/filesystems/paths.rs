//! Snapshots on the file systems whose metadata is not read by block, and of paths that lead astray.

use headstart_model::FilePath;
use headstart_model::machine::{FileFacts, Machine, PathKind};
use headstart_system::residency::{fadvise_willneed, resident};
use headstart_system::snapshot::{Need, Options, Wanted, snapshot};
use headstart_system::testing::tree;
use headstart_system::testing::{LoopFs, Mounted, Scratch, Spec, can_mount, run, wait_resident};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

fn take(paths: &[(&Path, Need)]) -> Machine {
    let wanted: Vec<Wanted> = paths
        .iter()
        .map(|(path, need)| Wanted {
            path: FilePath::from(*path),
            need: *need,
        })
        .collect();
    snapshot(&wanted, &Options::default()).unwrap()
}

fn facts<'a>(machine: &'a Machine, path: &Path) -> &'a FileFacts {
    let mut files = machine.files.iter().filter(|f| f.path.as_path() == path);
    let first = files
        .next()
        .unwrap_or_else(|| panic!("no entry for {}", path.display()));
    assert!(files.next().is_none(), "two entries for {}", path.display());
    first
}

fn uuid_by_blkid(node: &Path) -> String {
    let output = Command::new("blkid")
        .args(["-p", "-o", "value", "-s", "UUID"])
        .arg(node)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).trim().replace('-', "")
}

#[test]
fn every_file_system_is_known() {
    if !can_mount() {
        return;
    }
    for fstype in ["ext4", "xfs", "btrfs", "squashfs", "erofs"] {
        let fs = LoopFs::create(&Spec::new(fstype), tree::fill).unwrap();
        let root = fs.mount_point();
        let machine = snapshot(&tree::wanted(&root), &Options::default()).unwrap();
        let large = facts(&machine, &root.join("large"));
        let device = &machine.devices[large.device.unwrap() as usize];
        let stat = fs::metadata(root.join("large")).unwrap();
        assert_eq!(
            (large.found, large.size, large.inode),
            (PathKind::File, 20 << 20, stat.ino()),
            "{fstype}"
        );
        assert_eq!(device.node.as_path(), fs.node(), "{fstype}");
        assert_eq!(device.mount_point.as_path(), root, "{fstype}");
        assert_eq!(
            (device.fstype.as_str(), device.metadata_by_block),
            (fstype, fstype == "ext4")
        );
        if fstype != "squashfs" {
            let uuid: String = device.uuid.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(uuid, uuid_by_blkid(&fs.node()), "{fstype}");
            assert_eq!(
                large.extents.iter().map(|e| e.length).sum::<u64>(),
                20 << 20,
                "{fstype}"
            );
        }
        assert!(
            device.request_limit >= 128 << 10 && device.request_limit <= 8 << 20,
            "{device:?}"
        );
        assert_eq!(facts(&machine, &root.join("fifo")).found, PathKind::Special);
        assert_eq!(facts(&machine, &root.join("link")).found, PathKind::Symlink);
        assert_eq!(facts(&machine, &root.join("deep/1/d1/f1")).found, PathKind::File);
        assert_eq!(
            facts(&machine, &root.join("slow-link/f3")).inode,
            facts(&machine, &root.join("deep/1/d1/f3")).inode
        );
        assert_eq!(
            facts(&machine, &root.join("many/not-there-3")).found,
            PathKind::Missing
        );
        assert_eq!(
            facts(&machine, &root.join("deep/2/d2/not-there-3/below")).found,
            PathKind::Missing
        );
    }
}

#[test]
fn one_prefetch_call_reads_as_much_as_the_device_says() {
    if !can_mount() {
        return;
    }
    for fstype in ["ext4", "xfs", "btrfs", "squashfs", "erofs"] {
        let mut fs = LoopFs::create(&Spec::new(fstype), tree::fill).unwrap();
        let large = fs.mount_point().join("large");
        let machine = take(&[(&large, Need::Data)]);
        let device = machine
            .devices
            .iter()
            .find(|d| d.node.as_path() == fs.node())
            .unwrap();
        let limit = u64::from(device.request_limit);
        fs.remount_cold().unwrap();
        let file = fs::File::open(&large).unwrap();
        fadvise_willneed(&file, 0, 20 << 20).unwrap();
        wait_resident(&file, limit).unwrap();
        let read: u64 = resident(&file, 0, 20 << 20)
            .unwrap()
            .iter()
            .map(|pages| pages.end - pages.start)
            .sum();
        // Compressed blocks are read whole.
        let slack = if fstype == "squashfs" || fstype == "erofs" {
            256 << 10
        } else {
            0
        };
        println!("{fstype}: {limit} said, {} read", read * 4096);
        assert!(
            (limit..=limit + slack).contains(&(read * 4096)),
            "{fstype}: {limit} said, {} read",
            read * 4096
        );
    }
}

#[test]
fn btrfs_subvolumes_are_one_device() {
    if !can_mount() {
        return;
    }
    let fs = LoopFs::create(&Spec::new("btrfs"), |root| {
        run(Command::new("btrfs")
            .args(["subvolume", "create"])
            .arg(root.join("sub")))?;
        fs::write(root.join("sub/file"), vec![1; 1 << 20])?;
        fs::write(root.join("file"), vec![1; 1 << 20])
    })
    .unwrap();
    let node = fs.node();
    let alone = Mounted::new(
        &["-o", "subvol=sub", node.to_str().unwrap()],
        &fs.beside().join("alone"),
    )
    .unwrap();
    let paths = [
        fs.mount_point().join("file"),
        fs.mount_point().join("sub/file"),
        alone.path().join("file"),
    ];
    let wanted: Vec<(&Path, Need)> = paths.iter().map(|p| (p.as_path(), Need::Data)).collect();
    let machine = take(&wanted);
    let device = facts(&machine, &paths[0]).device;
    for path in &paths {
        let facts = facts(&machine, path);
        assert_eq!(
            (facts.found, facts.device),
            (PathKind::File, device),
            "{}",
            path.display()
        );
        assert_eq!(facts.extents.len(), 1);
    }
    assert_eq!(machine.devices[device.unwrap() as usize].node.as_path(), node);
}

#[test]
fn overlays_are_read_from_their_layers() {
    if !can_mount() {
        return;
    }
    let fs = LoopFs::create(&Spec::new("ext4"), |root| {
        for dir in ["upper", "work", "lower/both", "base/both"] {
            fs::create_dir_all(root.join(dir))?;
        }
        fs::write(root.join("lower/both/middle"), "m")?;
        fs::write(root.join("base/both/bottom"), "b")?;
        fs::write(root.join("base/both/middle"), "hidden")?;
        fs::write(root.join("base/gone"), "g")
    })
    .unwrap();
    let root = fs.mount_point();
    let layer = |name: &str| root.join(name).to_str().unwrap().to_string();
    let options = format!(
        "lowerdir={}:{},upperdir={},workdir={}",
        layer("lower"),
        layer("base"),
        layer("upper"),
        layer("work")
    );
    let overlay = Mounted::new(
        &["-t", "overlay", "overlay", "-o", &options],
        &fs.beside().join("merged"),
    )
    .unwrap();
    let at = |name: &str| overlay.path().join(name);
    fs::write(at("both/top"), "t").unwrap();
    fs::remove_file(at("gone")).unwrap();
    rustix::fs::sync();

    let machine = take(&[
        (&at("both/top"), Need::Data),
        (&at("both/middle"), Need::Data),
        (&at("both/bottom"), Need::Data),
        (&at("gone"), Need::Stat),
        (&at("both"), Need::List),
    ]);
    for (name, layer) in [("top", "upper"), ("middle", "lower"), ("bottom", "base")] {
        let through = facts(&machine, &at(&format!("both/{name}")));
        let below = facts(&machine, &root.join(layer).join("both").join(name));
        assert_eq!((through.found, below.found), (PathKind::File, PathKind::File));
        assert_eq!(
            (through.device, &through.extents),
            (below.device, &below.extents),
            "{name}"
        );
        assert!(
            !below.extents.is_empty() && !below.metadata.is_empty() && through.metadata.is_empty(),
            "{name}"
        );
        assert_eq!(
            machine.devices[below.device.unwrap() as usize].node.as_path(),
            fs.node()
        );
    }
    assert_eq!(facts(&machine, &at("gone")).found, PathKind::Missing);
    // The hidden file was never looked at, the whiteout was.
    assert!(
        !machine
            .files
            .iter()
            .any(|f| f.path.as_path() == root.join("base/both/middle"))
    );
    assert_eq!(facts(&machine, &root.join("upper/gone")).found, PathKind::Special);
}

#[test]
fn paths_that_lead_astray_end_in_facts() {
    let scratch = Scratch::new().unwrap();
    let at = |name: &str| scratch.path().join(name);
    fs::create_dir_all(at("a/b")).unwrap();
    fs::write(at("a/file"), "x").unwrap();
    symlink("loop-2", at("loop-1")).unwrap();
    symlink("loop-1", at("loop-2")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    symlink("/proc/self", at("proc")).unwrap();
    symlink(at("a"), at("absolute")).unwrap();
    run(Command::new("mkfifo").arg(at("fifo"))).unwrap();
    let paths = [
        at("a/b/../file"),
        at("absolute/./b/../../a//file"),
        at("loop-1"),
        at("loop-1/x"),
        at("dangling"),
        at("proc/maps"),
        at("fifo"),
        at("fifo/x"),
        at("a/file/x"),
        "relative".into(),
        "/proc/1/maps".into(),
        "/dev/null".into(),
        "/../../etc/passwd".into(),
        "/".into(),
    ];
    let wanted: Vec<(&Path, Need)> = paths.iter().map(|p| (p.as_path(), Need::Data)).collect();
    let machine = take(&wanted);
    let results: Vec<PathKind> = paths
        .iter()
        .map(|path| {
            machine
                .files
                .iter()
                .find(|f| f.path.as_bytes() == path.as_os_str().as_encoded_bytes())
                .unwrap()
                .found
        })
        .collect();
    use PathKind::*;
    let expected = [
        File, File, Symlink, Missing, Symlink, NotLocal, Special, Missing, Missing, Missing, NotLocal,
        NotLocal, File, Directory,
    ];
    for ((path, found), expected) in paths.iter().zip(results).zip(expected) {
        assert_eq!(found, expected, "{}", path.display());
    }
}

/// Reads that this thread has asked the kernel for so far, of any file.
fn reads_of_this_thread() -> u64 {
    let io = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("syscr: "));
    line.unwrap().parse().unwrap()
}

/// What the system knows is read once, not for every path.
#[test]
fn thousands_of_paths_take_few_reads() {
    if !can_mount() {
        return;
    }
    let fs = LoopFs::create(&Spec::new("ext4"), tree::fill).unwrap();
    let wanted: Vec<Wanted> = (0..5000)
        .map(|n| Wanted {
            path: FilePath::from(fs.mount_point().join(tree::many(n)).as_path()),
            need: Need::Data,
        })
        .collect();
    let reads = |wanted: &[Wanted]| {
        let before = reads_of_this_thread();
        snapshot(wanted, &Options::default()).unwrap();
        reads_of_this_thread() - before
    };
    reads(&wanted);
    let (few, many) = (reads(&wanted[..50]), reads(&wanted));
    // Reads of metadata blocks, which many files share, are more for more files.
    assert!(many < few + 500, "{few} reads for 50 paths, {many} for 5,000");
}

/// Makes so many directories within each other below `at`, all of this name, and a file `end` in the last;
/// gives its path.
fn deep(at: &Path, name: &str, many: usize) -> PathBuf {
    let mut path = at.to_path_buf();
    for _ in 0..many {
        path.push(name);
    }
    fs::create_dir_all(&path).unwrap();
    path.push("end");
    fs::write(&path, "x").unwrap();
    path
}

#[test]
fn short_paths_that_lead_through_thousands_of_directories_take_little_time() {
    let scratch = Scratch::new().unwrap();
    let plain = scratch.path().join("plain");
    fs::write(&plain, "x").unwrap();
    // A chain of links, each of which leads into a directory and out of it 800 times; looking up takes the
    // kernel 3 ms.
    let end = deep(scratch.path(), &"x".repeat(200), 14);
    let at = end.parent().unwrap();
    fs::create_dir(at.join("d")).unwrap();
    for turn in 0..36 {
        let next = if turn == 35 {
            "end".into()
        } else {
            format!("l{}", turn + 1)
        };
        symlink("d/../".repeat(800) + &next, at.join(format!("l{turn}"))).unwrap();
    }
    let links: Vec<PathBuf> = (0..8)
        .map(|turn| scratch.path().join(format!("below/{turn}")))
        .collect();
    fs::create_dir(scratch.path().join("below")).unwrap();
    for link in &links {
        symlink(at.join("l0"), link).unwrap();
        // Beside other tests the kernel begins a look-up anew, and counts its links twice.
        let is_file = || fs::metadata(link).is_ok_and(|found| found.is_file());
        assert!((0..100).any(|_| is_file()));
    }
    let wanted: Vec<(&Path, Need)> = [&plain]
        .into_iter()
        .chain(&links)
        .map(|path| (path.as_path(), Need::Data))
        .collect();
    let machine = take(&wanted);
    assert_eq!(facts(&machine, &plain).found, PathKind::File);
    assert_eq!(facts(&machine, &end).found, PathKind::File);
    assert_eq!(
        facts(&machine, &links[7]).found,
        PathKind::Missing,
        "no room is left"
    );
}

#[test]
fn deep_paths_take_no_more_memory_than_is_given() {
    let scratch = Scratch::new().unwrap();
    let ends: Vec<PathBuf> = (0..6)
        .map(|turn| deep(&scratch.path().join(turn.to_string()), "d", 1900))
        .collect();
    let plain = scratch.path().join("plain");
    fs::write(&plain, "x").unwrap();
    let wanted: Vec<(&Path, Need)> = [&plain]
        .into_iter()
        .chain(&ends)
        .map(|path| (path.as_path(), Need::Stat))
        .collect();
    let machine = take(&wanted);
    let bytes: usize = machine.files.iter().map(|file| file.path.as_bytes().len()).sum();
    assert!(bytes < 20 << 20, "{bytes} bytes of paths");
    assert_eq!(facts(&machine, &ends[0]).found, PathKind::File);
    assert_eq!(facts(&machine, &ends[5]).found, PathKind::Missing);
    assert_eq!(facts(&machine, &plain).found, PathKind::File);
}

#[test]
fn a_link_that_is_read_is_not_followed() {
    let dir = Scratch::new().unwrap();
    let root = dir.path().to_owned();
    fs::create_dir_all(root.join("away/below")).unwrap();
    fs::write(root.join("away/below/file"), "x").unwrap();
    symlink("away/below/file", root.join("link")).unwrap();
    symlink("..", root.join("away/up")).unwrap();
    let seen = |path: &str, need| {
        let machine = take(&[(&root.join(path), need)]);
        assert_eq!(facts(&machine, &root.join("link")).found, PathKind::Symlink);
        let is_seen = |name: &str| machine.files.iter().any(|f| f.path.as_path() == root.join(name));
        (is_seen("away"), is_seen("away/below/file"))
    };
    assert_eq!(seen("link", Need::Stat), (true, true));
    assert_eq!(seen("link", Need::List), (false, false));
    // Links on the way are.
    assert_eq!(seen("away/up/link", Need::List), (true, false));
}
