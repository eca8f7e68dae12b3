//! What a recording by BPF holds.

use crate::support::*;
use headstart_model::trace::{EndReason, FileState, LookupKind, Scope, UseKind};
use headstart_record::{BackendChoice, Options, Recorder, Until};
use headstart_system::testing::undisturbed;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

pub const READ: &[UseKind] = &[UseKind::Read];
const MAPPED: &[UseKind] = &[UseKind::Map, UseKind::Around, UseKind::Fault];

/// Not a test of its own: what some tests have this binary do as the recorded command.
#[test]
#[ignore = "not a test of its own, but what one executes"]
fn helper() {
    let what = std::env::var("HELPER_DOES").unwrap();
    let words: Vec<&str> = what.split(' ').collect();
    match words[..] {
        ["touch", path, ref pages @ ..] => {
            let file = fs::File::open(path).unwrap();
            let length = file.metadata().unwrap().len() as usize;
            use rustix::mm::{MapFlags, ProtFlags, mmap};
            // SAFETY: a new mapping, read below within its bounds; the file stays as it is.
            let start = unsafe {
                mmap(
                    std::ptr::null_mut(),
                    length,
                    ProtFlags::READ,
                    MapFlags::SHARED,
                    &file,
                    0,
                )
            };
            for page in pages {
                // SAFETY: tests touch pages that the file has.
                unsafe {
                    start
                        .unwrap()
                        .cast::<u8>()
                        .add(page.parse::<usize>().unwrap() * 4096)
                        .read_volatile()
                };
            }
        }
        ["chroot", root, path] => {
            std::os::unix::fs::chroot(root).unwrap();
            fs::read(path).unwrap();
            std::env::set_current_dir("/").unwrap();
            fs::metadata(path.trim_start_matches('/')).unwrap();
        }
        _ => panic!("no such help: {what}"),
    }
}

pub fn help(what: &str) -> String {
    format!("HELPER_DOES='{what}' \"$HELPER\" bpf::helper --exact --ignored --test-threads 1")
}

pub fn write_pages(path: &Path, pages: usize, more: usize) {
    fs::write(path, vec![7; pages * 4096 + more]).unwrap();
}

#[test]
fn cat_uses_exactly_the_pages_of_its_file() {
    if !can_record() {
        return;
    }
    let (mut mounted, disk) = with_disk("ext4");
    let path = disk.join("file");
    write_pages(&path, 70, 100);
    for cold in [true, false] {
        if cold {
            mounted.remount_cold().unwrap();
        }
        let trace = record(&format!("cat {}", path.display()));
        assert_eq!(pages(&trace, &path, READ), (0..71).collect(), "cold: {cold}");
        let (index, file) = file(&trace, &path).unwrap();
        assert_eq!((file.size, file.state), (70 * 4096 + 100, FileState::Present));
        assert_eq!(file.mode, 0o100644);
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(file.inode, metadata.ino());
        assert_eq!(
            file.mtime_ns,
            metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec()
        );
        let filesystem = &trace.filesystems[file.filesystem.unwrap() as usize];
        assert_eq!((filesystem.fstype.as_str(), filesystem.local), ("ext4", true));
        assert_eq!(filesystem.mount_point.as_path(), disk);
        let told: u32 = trace
            .uses
            .iter()
            .filter(|u| u.file as usize == index)
            .map(|u| u.pages)
            .sum();
        assert_eq!(told, 71, "each page once");
        assert!(trace.uses.is_sorted_by_key(|u| u.time_ns));
        assert_eq!(trace.end.reason, EndReason::Exit(0));
        let blocked_ns = trace.end.blocked_ns.unwrap();
        assert!(blocked_ns <= trace.end.elapsed_ns);
        assert!(blocked_ns > 0 || !cold);
    }
}

/// By reads that go past the page cache, which wait for the disk whatever memory holds. A program's own files
/// are read again where the kernel pages out what is idle, or somebody drops the page cache.
#[test]
fn a_wait_for_the_disk_is_counted_and_sleep_is_not() {
    undisturbed(|| {
        if !can_record() {
            return;
        }
        let (_mounted, disk) = with_disk("ext4");
        let path = disk.join("file");
        write_pages(&path, 2000, 0);
        let blocked_ns = |command: &str| record(command).end.blocked_ns.unwrap();
        let reads = format!(
            "dd if={} of=/dev/null bs=4096 iflag=direct status=none",
            path.display()
        );
        let [few, many] = [20, 2000].map(|count| blocked_ns(&format!("{reads} count={count}")));
        let asleep = blocked_ns("sleep 0.5");
        assert!(
            many > 2 * few && many > 2 * asleep,
            "{few}, {many}, asleep {asleep}"
        );
    });
}

#[test]
fn a_part_read_twice_is_told_once() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let path = disk.join("file");
    write_pages(&path, 50, 0);
    let part = format!(
        "dd if={} of=/dev/null bs=4096 skip=20 count=3 status=none",
        path.display()
    );
    let trace = record(&format!("{part}; {part}"));
    let index = file(&trace, &path).unwrap().0;
    let told: Vec<_> = trace
        .uses
        .iter()
        .filter(|u| u.file as usize == index)
        .map(|u| (u.start, u.pages))
        .collect();
    assert_eq!(told, [(20, 1), (21, 1), (22, 1)]);
}

#[test]
fn a_mapped_file_is_used_around_what_is_touched() {
    if !can_record() {
        return;
    }
    let (mut mounted, disk) = with_disk("ext4");
    let path = disk.join("file");
    write_pages(&path, 200, 0);
    for cold in [true, false] {
        if cold {
            mounted.remount_cold().unwrap();
        }
        let trace = record(&help(&format!("touch {} 100 199", path.display())));
        let used = pages(&trace, &path, MAPPED);
        assert!(
            used.contains(&100) && used.contains(&199),
            "cold: {cold}: {used:?}"
        );
        // Windows of 16 pages, aligned in memory, not in the file.
        assert!(used.len() <= 32, "cold: {cold}: {used:?}");
        assert!(
            used.iter().all(|p| (85..116).contains(p) || *p >= 184),
            "cold: {cold}: {used:?}"
        );
        assert!(pages(&trace, &path, READ).is_empty());
        if cfg!(target_arch = "x86_64") {
            let touched = pages(&trace, &path, &[UseKind::Fault]);
            assert_eq!(
                touched.into_iter().collect::<Vec<_>>(),
                [100, 199],
                "cold: {cold}"
            );
            assert!(pages(&trace, &path, &[UseKind::Map]).is_empty(), "cold: {cold}");
            let index = file(&trace, &path).unwrap().0;
            let mapped = trace.mappings.iter().filter(|m| m.file as usize == index);
            let mapped: Vec<_> = mapped.map(|m| (m.pages.start, m.pages.end)).collect();
            assert_eq!(mapped, [(0, 200)], "cold: {cold}");
        }
    }
}

#[test]
fn a_neighbour_adds_nothing_and_a_grandchild_does() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let (mine, others) = (disk.join("mine"), disk.join("others"));
    write_pages(&mine, 3, 0);
    write_pages(&others, 3, 0);
    let read_others = || {
        fs::read(&others).unwrap();
        run("cat", &[others.to_str().unwrap()]);
    };
    let script = format!("sh -c 'cat {}; :'; sleep 0.1", mine.display());
    let trace = record_beside(&tree(), &script, read_others);
    assert_eq!(pages(&trace, &mine, READ).len(), 3);
    assert!(file(&trace, &others).is_none());
    assert!(!looked_up(&trace, &others, LookupKind::Open, true));
    // sh, the inner sh, its cat, and sleep: with their parents and what they run.
    let process = |name: &str| {
        trace
            .processes
            .iter()
            .position(|p| p.executable.to_string().ends_with(name))
    };
    let cat = &trace.processes[process("/cat").unwrap()];
    let inner = &trace.processes[cat.parent.unwrap() as usize];
    assert!(inner.executable.to_string().ends_with("sh"));
    assert_eq!(inner.parent, Some(0));
    assert_eq!(trace.processes[process("/sleep").unwrap()].parent, Some(0));
    let index = file(&trace, &mine).unwrap().0 as u32;
    let by = trace.uses.iter().find(|u| u.file == index).unwrap().process;
    assert_eq!(by as usize, process("/cat").unwrap());
}

#[test]
fn lookups_are_seen_though_nothing_is_read_under_names_of_one_spelling() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    fs::create_dir_all(disk.join("dir/sub")).unwrap();
    write_pages(&disk.join("dir/file"), 1, 0);
    write_pages(&disk.join("dir/sub/file"), 1, 0);
    std::os::unix::fs::symlink("dir/file", disk.join("link")).unwrap();
    std::os::unix::fs::symlink("dir/sub", disk.join("leads-on")).unwrap();
    for name in ["by-statx", "by-stat", "followed"] {
        std::os::unix::fs::symlink("dir/file", disk.join(name)).unwrap();
    }
    let at = disk.display();
    // Once to warm the dentries, then recorded.
    let script = format!(
        "cat {at}/missing {at}/dir/file/below 2>/dev/null; stat {at}/dir/sub {at}/by-statx; test -h {at}/by-stat; \
         stat -L {at}/followed; ls {at}/dir; cat {at}/link; readlink {at}/link; cd {at}/dir; \
         test -e ./sub//../elsewhere; cat file; cd sub; cat file; test -e nothing; test -e ../beside; \
         test -e {at}/leads-on/../missed; {at}/no-program 2>/dev/null"
    );
    run("sh", &["-c", &format!("({script}); :")]);
    let trace = record(&script);
    let expected = [
        ("missing", LookupKind::Open, false),
        ("dir/file/below", LookupKind::Open, false),
        ("dir/sub", LookupKind::Stat, true),
        ("dir", LookupKind::List, true),
        ("link", LookupKind::Open, true),
        ("link", LookupKind::Link, true),
        ("by-statx", LookupKind::Link, true),
        ("by-stat", LookupKind::Link, true),
        ("followed", LookupKind::Stat, true),
        ("dir/elsewhere", LookupKind::Stat, false),
        ("dir/beside", LookupKind::Stat, false),
        ("dir/file", LookupKind::Open, true),
        ("dir/sub/nothing", LookupKind::Stat, false),
        ("no-program", LookupKind::Open, false),
    ];
    for (path, kind, found) in expected {
        assert!(
            looked_up(&trace, &disk.join(path), kind, found),
            "{kind:?} {path} found: {found}"
        );
    }
    assert!(
        looked_up(&trace, Path::new("/bin/sh"), LookupKind::Open, true),
        "an executed program"
    );
    // What stands before `..` is a link, and leads to dir/missed.
    assert!(
        !trace
            .lookups
            .iter()
            .any(|l| l.path.to_string().ends_with("missed"))
    );
    let mut lookups: Vec<_> = trace.lookups.iter().map(|l| (&l.path, l.kind, l.found)).collect();
    lookups.sort();
    let before = lookups.len();
    lookups.dedup();
    assert_eq!(lookups.len(), before, "each once");
    assert!(trace.lookups.is_sorted_by_key(|l| l.time_ns));
}

#[test]
fn metadata_that_is_read_is_told() {
    if !can_record() {
        return;
    }
    let (mut mounted, disk) = with_disk("ext4");
    for i in 0..50 {
        fs::create_dir_all(disk.join(format!("dir{i}"))).unwrap();
        fs::write(disk.join(format!("dir{i}/file")), "x").unwrap();
    }
    mounted.remount_cold().unwrap();
    let script = format!("ls -lR {}", disk.display());
    let cold = record(&script);
    let (major, minor) = numbers(&mounted);
    let misses = |trace: &headstart_model::Trace| {
        trace
            .metadata
            .iter()
            .filter(|m| (m.major, m.minor) == (major, minor))
            .map(|m| m.pages)
            .sum::<u32>()
    };
    assert!(
        misses(&cold) >= 50,
        "each directory has a block: {}",
        misses(&cold)
    );
    assert_eq!(misses(&record(&script)), 0, "warm");
}

#[test]
fn attaching_takes_the_processors_time_that_is_said() {
    if !can_record() {
        return;
    }
    let recorder = Recorder::start(&Options {
        backend: BackendChoice::Bpf,
        ..Options::system()
    });
    let attached_ns = recorder.unwrap().attach_cpu_ns();
    // The kernel checks some twenty programs, a tenth of a millisecond each at least.
    assert!(
        (1_000_000..60_000_000_000).contains(&attached_ns),
        "{attached_ns} ns"
    );
}

#[test]
fn lost_events_are_counted() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    for i in 0..300 {
        write_pages(&disk.join(format!("file{i}")), 1, 0);
    }
    let options = Options {
        buffer_bytes: 4096,
        ..tree()
    };
    let trace = record_beside(&options, &format!("cat {}/file*", disk.display()), || {});
    assert!(trace.lost.events > 0);
    assert!(trace.unfit().is_some());
}

#[test]
fn the_recorders_own_reads_are_invisible_and_all_others_are_not() {
    if !can_record() {
        return;
    }
    let (_mounted, disk) = with_disk("ext4");
    let (own, others) = (disk.join("own"), disk.join("others"));
    write_pages(&own, 3, 0);
    write_pages(&others, 3, 0);
    let options = Options {
        backend: BackendChoice::Bpf,
        until: Until::Seconds(1),
        ..Options::system()
    };
    let recorder = Recorder::start(&options).unwrap();
    fs::read(&own).unwrap();
    run("cat", &[others.to_str().unwrap()]);
    // Nothing but the limit ends it.
    let reason = recorder.run_until(&AtomicBool::new(false), None, || None);
    let trace = recorder.finish(reason).unwrap();
    assert_eq!(
        (trace.end.reason, trace.meta.scope),
        (EndReason::Limit, Scope::System)
    );
    assert!(file(&trace, &own).is_none());
    assert!(!looked_up(&trace, &own, LookupKind::Open, true));
    assert_eq!(pages(&trace, &others, READ).len(), 3);
    let (index, _) = file(&trace, &others).unwrap();
    let by = trace
        .uses
        .iter()
        .find(|u| u.file as usize == index)
        .unwrap()
        .process;
    assert!(
        trace.processes[by as usize]
            .executable
            .to_string()
            .ends_with("/cat")
    );
}

#[test]
fn a_start_that_falls_quiet_has_ended() {
    if !can_record() {
        return;
    }
    let options = Options {
        until: Until::Quiet { seconds: 1 },
        ..tree()
    };
    let begun = Instant::now();
    let trace = record_beside(&options, "cat /etc/passwd; sleep 6", || {});
    // Before the command's own end, and not before it was quiet for so long.
    assert_eq!(trace.end.reason, EndReason::Quiet);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
}
