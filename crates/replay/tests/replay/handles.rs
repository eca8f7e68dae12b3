//! What a replay opens by handle on one head, where the plan reads directories amid the data: without reading
//! them, and nothing that a path would be refused for. Needs root, for loop devices and for handles.

use crate::common::*;
use headstart_model::machine::DeviceClass;
use headstart_model::outcome::{ReplayReport, Skipped};
use headstart_model::plan::{PlanDraft, PlanFileEntry, RequestKind::*};
use headstart_system::ext4::Ext4;
use headstart_system::handle_opener::HandleOpener;
use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, Opened, Skip};
use headstart_system::testing::undisturbed;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

const FILES: u64 = 20;

/// Each file in a directory of its own, two below the root, and the directories not with the data.
fn tree() -> Mounted {
    Mounted::ext4(64, |root| {
        for n in 0..FILES {
            let dir = root.join(format!("a{n}/b"));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("f"), vec![7u8; 4 * PAGE as usize]).unwrap();
        }
    })
}

/// The entry of a file with its generation.
fn exact(path: &Path) -> PlanFileEntry {
    let generation = headstart_system::files::generation(File::open(path).unwrap().as_fd());
    PlanFileEntry {
        generation,
        ..entry(path)
    }
}

/// The inodes of the files first, then their data, and a block that makes it a sweep: the first, which is in
/// memory.
fn sweep(disk: &Mounted, change: impl Fn(u64, &mut PlanFileEntry)) -> PlanDraft {
    let mut plan = draft(vec![disk.planned(DeviceClass::Disk, 1)]);
    let ext4 = Ext4::open(&disk.node()).unwrap();
    let files: Vec<PlanFileEntry> = (0..FILES)
        .map(|n| exact(&disk.root().join(format!("a{n}/b/f"))))
        .collect();
    let mut blocks: Vec<u64> = files
        .iter()
        .map(|file| ext4.inode_block(file.inode).unwrap().start)
        .collect();
    blocks.sort_unstable();
    blocks.dedup();
    for block in blocks {
        add_metadata(&mut plan, block, PAGE);
    }
    for (n, mut file) in files.into_iter().enumerate() {
        change(n as u64, &mut file);
        add(&mut plan, Data, file, 0, 4 * PAGE);
    }
    add_metadata(&mut plan, 0, PAGE);
    plan
}

fn without_capability<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    // Capabilities are a thread's own, and those of the threads it makes.
    let done = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::DAC_READ_SEARCH);
            sets.permitted.remove(CapabilitySet::DAC_READ_SEARCH);
            set_capabilities(None, sets).unwrap();
            work()
        });
        thread.join()
    });
    done.unwrap()
}

fn replay(disk: &mut Mounted, plan: &PlanDraft) -> (ReplayReport, u64) {
    disk.cool();
    let before = disk.reads();
    let report = start(plan).finish();
    let reads = disk.reads() - before;
    for n in 0..FILES {
        let pages = resident(&disk.root().join(format!("a{n}/b/f")));
        assert_eq!(pages, [(0, 4)], "file {n}");
    }
    (report, reads)
}

#[test]
fn files_are_opened_without_their_directories_and_by_path_without_the_capability() {
    let mut disk = tree();
    let plan = sweep(&disk, |_, _| ());
    let (report, by_handle) = replay(&mut disk, &plan);
    assert_eq!(report.skipped, Skipped::default());
    assert_eq!(report.issued.len(), plan.requests.len());
    // Data may be merged, and the file system reads bitmaps or its journal when it likes.
    assert!(by_handle <= plan.requests.len() as u64 + 3, "{by_handle} reads");

    let (report, by_path) = without_capability(|| replay(&mut disk, &plan));
    assert_eq!(report.skipped, Skipped::default());
    assert!(
        by_path >= by_handle + FILES,
        "{by_path} reads by path, {by_handle} by handle: where are the directories?"
    );
}

#[test]
fn what_is_not_as_planned_is_not_opened_by_handle_either() {
    undisturbed(|| {
        let mut disk = tree();
        // Of another generation; of unknown generation (its path tells that it is the one); removed and made
        // anew.
        let plan = sweep(&disk, |n, file| match n {
            0 => file.generation ^= 1,
            1 => file.generation = 0,
            // Written in place since, and without a generation that tells that it is the same.
            2 => file.size += 1,
            3 => (file.mtime_ns, file.generation) = (file.mtime_ns + 1, 0),
            _ => (),
        });
        let renewed = disk.root().join("a4/b/f");
        std::fs::remove_file(&renewed).unwrap();
        std::fs::write(&renewed, vec![7u8; 4 * PAGE as usize]).unwrap();
        std::fs::remove_file(disk.root().join("a5/b/f")).unwrap();
        // Under another path it is the same file, and nothing else has become of it.
        std::fs::rename(disk.root().join("a6/b/f"), disk.root().join("elsewhere")).unwrap();
        disk.cool();
        let report = start(&plan).finish();
        let expected = Skipped {
            changed: 3,
            missing: 1,
            ..Skipped::default()
        };
        assert_eq!(report.skipped, expected);
        for n in [0, 3, 4] {
            let pages = resident(&disk.root().join(format!("a{n}/b/f")));
            assert_eq!(pages, [], "file {n}");
        }
        for n in [1, 2] {
            assert_eq!(resident(&disk.root().join(format!("a{n}/b/f"))), [(0, 4)]);
        }
        assert_eq!(resident(&disk.root().join("elsewhere")), [(0, 4)]);
    });
}

/// What a opener makes of a path and of what is at another.
fn through(
    opener: &HandleOpener,
    named: &Path,
    meant: &Path,
    change: impl Fn(&mut Expect),
) -> Result<Opened, Skip> {
    let facts = std::fs::symlink_metadata(meant).unwrap();
    let generation = match facts.is_file() || facts.is_dir() {
        true => headstart_system::files::generation(File::open(meant).unwrap().as_fd()),
        // Any: these have one that only a handle tells.
        false => 0,
    };
    let mut expect = Expect {
        inode: Some(facts.ino()),
        size: Some(facts.len()),
        mtime_ns: Some(facts.mtime() * 1_000_000_000 + facts.mtime_nsec()),
        generation: Some(generation),
        reader: None,
    };
    change(&mut expect);
    opener.open(&MountTable::read().unwrap(), named, &expect)
}

#[test]
fn a_crafted_plan_gets_regular_files_of_that_mount_and_nothing_else() {
    let disk = Mounted::ext4(32, |root| {
        std::fs::write(root.join("file"), "x").unwrap();
        std::fs::create_dir(root.join("dir")).unwrap();
        symlink("file", root.join("link")).unwrap();
        for (program, arguments) in [("mkfifo", &["fifo"][..]), ("mknod", &["null", "c", "1", "3"])] {
            let made = std::process::Command::new(program)
                .args(arguments)
                .current_dir(root)
                .status();
            assert!(made.unwrap().success());
        }
    });
    let other = Mounted::ext4(32, |root| std::fs::write(root.join("file"), "y").unwrap());
    let mounts = MountTable::read().unwrap();
    let at = |name: &str| disk.root().join(name);
    let mount = |path: &Path| mounts.lookup(path.as_os_str().as_encoded_bytes()).unwrap();
    let opener = HandleOpener::new(&mounts, mount(&disk.root())).unwrap();
    let (file, asis) = (at("file"), |_: &mut Expect| ());

    assert!(through(&opener, &file, &file, asis).is_ok());
    // A regular file that is what the plan knows of it, under another name.
    assert!(through(&opener, &at("gone"), &file, asis).is_ok());
    let refused = |named: &Path, meant: &Path| through(&opener, named, meant, asis).unwrap_err();
    assert_eq!(refused(&file, &at("dir")), Skip::Special);
    assert_eq!(refused(&file, &at("fifo")), Skip::Special);
    assert_eq!(refused(&file, &at("null")), Skip::Special);
    assert_eq!(refused(&file, &at("link")), Skip::Symlink);
    // Paths of other mounts, of file systems that are not local, and relative ones.
    assert_eq!(refused(&other.root().join("file"), &file), Skip::NotLocal);
    assert_eq!(refused(Path::new("/proc/self/maps"), &file), Skip::NotLocal);
    assert_eq!(refused(Path::new("file"), &file), Skip::Missing);

    let changed = |what| Skip::Changed { what };
    let with = |change: &dyn Fn(&mut Expect)| through(&opener, &file, &file, change).unwrap_err();
    assert_eq!(with(&|e| e.inode = None), changed("inode"));
    assert_eq!(with(&|e| e.generation = None), changed("generation"));
    assert_eq!(with(&|e| e.generation = Some(0)), changed("generation"));
    assert_eq!(
        with(&|e| e.generation = e.generation.map(|g| g ^ 1)),
        changed("generation")
    );
    assert_eq!(with(&|e| e.size = Some(2)), changed("size"));
    assert_eq!(with(&|e| e.mtime_ns = Some(0)), changed("mtime"));
    // The journal: a regular file in all but that it has no name.
    assert!(through(&opener, &file, &file, |e| e.inode = Some(8)).is_err());
    assert!(through(&opener, &file, &file, |e| e.inode = Some(u64::MAX)).is_err());

    without_capability(|| {
        assert!(HandleOpener::new(&mounts, mount(&disk.root())).is_err());
        assert!(through(&opener, &file, &file, asis).is_err());
    });
    assert!(HandleOpener::new(&mounts, mount(Path::new("/proc"))).is_err());
}
