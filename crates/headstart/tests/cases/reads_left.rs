//! A start that was learned where metadata is no page cache of a block device reads next to nothing after a
//! replay: data, directories that it lists, names that are there and names that are not, however it asks for
//! them.

use crate::common::{Case, can_record};
use headstart_system::testing::{LoopFs, Spec, can_mount, undisturbed};
use std::cell::RefCell;
use std::path::Path;

const DIRECTORIES: usize = 40;
const FILES: usize = 2400;

/// Modules of a few kilobytes in directories, and libraries of some megabytes.
fn fill(root: &Path) -> std::io::Result<()> {
    let text = |seed: usize, bytes: usize| -> Vec<u8> {
        let numbers = (0u64..).map(|n| {
            format!(
                "{:x} ",
                (n + seed as u64 * 977).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            )
        });
        numbers.flat_map(String::into_bytes).take(bytes).collect()
    };
    for number in 0..FILES {
        let directory = root.join(format!("package{:02}", number % DIRECTORIES));
        std::fs::create_dir_all(&directory)?;
        std::fs::write(
            directory.join(format!("module{number:04}.py")),
            text(number, 500 + number * 37 % 9000),
        )?;
    }
    for number in 0..6 {
        std::fs::write(root.join(format!("library{number}.so")), text(number, 3 << 20))?;
    }
    Ok(())
}

/// A third of the modules, each looked up in another directory first; parts of the libraries; half of the
/// directories are listed.
const START: &str = "import os, sys
root, files, directories = sys.argv[1], 2400, 40
for n in range(0, files // 3):
    n = n * 211 % (files // 3) * 3
    name = f'module{n:04}.py'
    assert not os.path.exists(f'{root}/package{(n + 7) % directories:02}/{name}')
    open(f'{root}/package{n % directories:02}/{name}').read()
for n in range(6):
    with open(f'{root}/library{n}.so', 'rb') as library:
        for place in range(0, 3 << 20, 400_000):
            library.seek(place)
            library.read(50_000)
for n in range(0, directories, 2):
    assert len(os.listdir(f'{root}/package{n:02}')) == files // directories
";

/// Each module is asked for in another way.
const ASK: &str = "import errno, os, stat, sys
def refused(error, call, *arguments):
    try: call(*arguments)
    except OSError as refusal: assert refusal.errno == error, refusal
    else: raise AssertionError(arguments)
for n in range(2400):
    path = f'{sys.argv[1]}/package{n % 40:02}/module{n:04}.py'
    match n // 40 % 6:
        case 0: refused(errno.EINVAL, os.readlink, path)
        case 1: assert not os.access(path, os.X_OK)
        case 2: refused(errno.EEXIST, os.mkdir, path)
        case 3: refused(errno.EEXIST, os.open, path, os.O_CREAT | os.O_EXCL)
        case 4: refused(errno.ENODATA, os.getxattr, path, 'user.none')
        case 5: os.statvfs(path)
";

/// Read requests of a start without headstart, and of one after a replay.
fn reads(spec: &Spec, script: &str) -> (u64, u64) {
    let case = Case::new();
    let script = case.write("start.py", script);
    let fs = RefCell::new(LoopFs::create(spec, fill).unwrap());
    let root = fs.borrow().mount_point();
    let command = ["python3", "-S", script.to_str().unwrap(), root.to_str().unwrap()];
    let start = || {
        let mut command = std::process::Command::new("python3");
        command.args(["-S"]).args([script.as_path(), root.as_path()]);
        assert!(command.status().unwrap().success());
    };
    for _ in 0..2 {
        fs.borrow_mut().remount_cold().unwrap();
        assert_eq!(case.run("start", &command).code(), 0);
    }
    let counts = RefCell::new((0, 0));
    // What is dropped amid the measured start is read again.
    undisturbed(|| {
        let mut fs = fs.borrow_mut();
        fs.remount_cold().unwrap();
        let before = fs.reads();
        start();
        let alone = (fs.reads() - before).requests;
        fs.remount_cold().unwrap();
        let replay = case.headstart(&["replay", "start", "--wait"]);
        assert_eq!(replay.code(), 0, "{}", replay.err);
        let before = fs.reads();
        start();
        let left = (fs.reads() - before).requests;
        println!("{}: {alone} reads alone, {left} after a replay", spec.fstype);
        assert!(left * 20 <= alone, "{spec:?}: {left} of {alone} reads are left");
        *counts.borrow_mut() = (alone, left);
    });
    counts.into_inner()
}

#[test]
fn at_most_a_twentieth_is_left_on_squashfs() {
    if !can_record() || !can_mount() {
        return;
    }
    for arguments in [&["-comp", "gzip"][..], &["-comp", "zstd", "-b", "1M"]] {
        let (alone, _) = reads(&Spec::new("squashfs").mkfs(arguments), START);
        assert!(alone > 500, "{alone}");
    }
}

#[test]
fn at_most_a_twentieth_is_left_on_erofs() {
    if !can_record() || !can_mount() {
        return;
    }
    for arguments in [&["-zlz4hc"][..], &["-zlz4hc", "-C65536"], &[]] {
        let (alone, _) = reads(&Spec::new("erofs").mkfs(arguments), START);
        assert!(alone > 100, "{arguments:?}: {alone}");
    }
}

const LINKS: usize = 300;

/// Links in one directory, and what they point to in sixty others.
fn fill_links(root: &Path) -> std::io::Result<()> {
    std::fs::create_dir(root.join("links"))?;
    for number in 0..LINKS {
        let target = format!("targets{:02}/file{number:03}", number % 60);
        let at = root.join(&target);
        std::fs::create_dir_all(at.parent().unwrap_or(root))?;
        std::fs::write(at, vec![7; 3000])?;
        std::os::unix::fs::symlink(
            format!("../{target}"),
            root.join(format!("links/link{number:03}")),
        )?;
    }
    Ok(())
}

const READ_LINKS: &str = "import os, sys
for n in range(300):
    (os.lstat if n % 2 else os.readlink)(f'{sys.argv[1]}/links/link{n:03}')
";

/// What a link points to is not read ahead for those who only read the link.
#[test]
fn links_that_are_read_are_not_followed() {
    if !can_record() || !can_mount() {
        return;
    }
    for fstype in ["ext4", "xfs", "squashfs", "erofs"] {
        let case = Case::new();
        let script = case.write("start.py", READ_LINKS);
        let fs = RefCell::new(LoopFs::create(&Spec::new(fstype), fill_links).unwrap());
        let root = fs.borrow().mount_point();
        let command = ["python3", "-S", script.to_str().unwrap(), root.to_str().unwrap()];
        let start = || {
            let mut start = std::process::Command::new(command[0]);
            assert!(start.args(&command[1..]).status().unwrap().success());
        };
        for _ in 0..2 {
            fs.borrow_mut().remount_cold().unwrap();
            assert_eq!(case.run("links", &command).code(), 0);
        }
        undisturbed(|| {
            let mut fs = fs.borrow_mut();
            let mut reads = |step: &dyn Fn(), is_cold: bool| {
                if is_cold {
                    fs.remount_cold().unwrap();
                }
                let before = fs.reads();
                step();
                (fs.reads() - before).requests
            };
            let alone = reads(&start, true);
            let replay = || assert_eq!(case.headstart(&["replay", "links", "--wait"]).code(), 0);
            let ahead = reads(&replay, true);
            let left = reads(&start, false);
            println!("{fstype}: {alone} reads alone, {ahead} by the replay, {left} left");
            assert!(ahead <= alone + alone / 4 + 2, "{fstype}: {ahead} for {alone}");
            assert!(left * 10 <= alone, "{fstype}: {left} of {alone}");
        });
        let target = root.join("targets07/file007");
        let words = ["explain", "--name", "links", "--json", target.to_str().unwrap()];
        // No start has used it.
        let known = case.json_and_status(&words, 1);
        assert_eq!(known[0]["prefetched"], false, "{known}");
        assert_eq!(known[0]["requests"], serde_json::json!([]), "{known}");
    }
}

#[test]
fn at_most_a_twentieth_is_left_on_xfs_of_names_that_are_only_asked_for() {
    if !can_record() || !can_mount() {
        return;
    }
    let (alone, _) = reads(&Spec::new("xfs"), ASK);
    assert!(alone > 60, "{alone}");
}
