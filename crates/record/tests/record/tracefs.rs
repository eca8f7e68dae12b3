//! The tracefs back-end on a file system of its own, and beside the BPF back-end. Needs root.

use crate::support::{Waiting, flood, numbers, run, with_disk, write};
use headstart_model::trace::{EndReason, Evidence, FileState, Scope, UseKind};
use headstart_record::{BackendChoice, Options, Recorder, Trace};
use headstart_system::testing::{can_mount, needs};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Copies a program into `bin` and its libraries into `lib`, the loader as `lib/ld`.
fn copy_program(to: &Path, name: &str) {
    let path = run("sh", &["-c", &format!("command -v {name}")]);
    let script = format!(
        "mkdir -p {at}/bin {at}/lib && cp {path} {at}/bin/ && \
         for l in $(ldd {path} | grep -o '/[^ ]*'); do cp $l {at}/lib/; case $l in */ld-*) cp $l {at}/lib/ld;; esac; done",
        at = to.display()
    );
    run("sh", &["-c", &script]);
}

fn options(backend: BackendChoice) -> Options {
    Options {
        backend,
        ..Options::tree(vec![])
    }
}

/// Records one start of a shell script with each of the back-ends at once.
fn record(script: &str, all: &[Options]) -> Vec<Trace> {
    let child = Waiting::start(script);
    let mut recorders: Vec<Recorder> = all.iter().map(|o| Recorder::start(o).unwrap()).collect();
    for recorder in &mut recorders {
        recorder.add_root(child.id()).unwrap();
    }
    let status = child.run();
    recorders
        .into_iter()
        .map(|r| r.finish(EndReason::Exit(status)).unwrap())
        .collect()
}

/// Pages by path, of the kinds that are wanted.
fn pages(trace: &Trace, kinds: &[UseKind]) -> BTreeMap<String, BTreeSet<u64>> {
    let mut pages: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for one in trace.uses.iter().filter(|one| kinds.contains(&one.kind)) {
        let path = trace.files[one.file as usize].path.to_string();
        pages
            .entry(path)
            .or_default()
            .extend(one.start..one.start + u64::from(one.pages));
    }
    pages
}

const ALL: [UseKind; 5] = [
    UseKind::Read,
    UseKind::Map,
    UseKind::Fault,
    UseKind::Add,
    UseKind::Around,
];

/// Of each path, the pages that only one has.
fn difference(
    a: &BTreeMap<String, BTreeSet<u64>>,
    b: &BTreeMap<String, BTreeSet<u64>>,
) -> BTreeMap<String, (Vec<u64>, Vec<u64>)> {
    let none = BTreeSet::new();
    let paths: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let differences = |path: &String| {
        let (a, b) = (a.get(path).unwrap_or(&none), b.get(path).unwrap_or(&none));
        (
            a.difference(b).copied().collect::<Vec<_>>(),
            b.difference(a).copied().collect::<Vec<_>>(),
        )
    };
    paths
        .into_iter()
        .map(|p| (p.clone(), differences(p)))
        .filter(|(_, (a, b))| !a.is_empty() || !b.is_empty())
        .collect()
}

#[test]
fn reads_are_recorded_page_by_page_and_cut_at_the_end_of_the_file() {
    if !can_mount() {
        return;
    }
    let (mut mounted, disk) = with_disk("ext4");
    write(&disk, "large", 4 << 20);
    write(&disk, "small", 5000);
    mounted.remount_cold().unwrap();
    let at = disk.display();
    // Twice, since of a page that a reader takes while it waits for the next one the kernel has no event.
    let script = format!(
        "dd if={at}/large of=/dev/null bs=4096 skip=100 count=3 2>/dev/null; cat {at}/small {at}/small >/dev/null"
    );
    let trace = record(&script, &[options(BackendChoice::Tracefs)]).remove(0);
    assert_eq!((trace.lost.events, trace.lost.paths), (0, 0));
    let seen = pages(&trace, &ALL);
    let large = &seen[&format!("{at}/large")];
    assert_eq!(seen[&format!("{at}/small")], BTreeSet::from([0, 1]));
    match trace.meta.evidence {
        Evidence::Uses => assert_eq!(*large, BTreeSet::from([100, 101, 102])),
        _ => assert!(large.is_superset(&BTreeSet::from([100, 101, 102]))),
    }
    let file = trace
        .files
        .iter()
        .find(|f| f.path.to_string().ends_with("/small"))
        .unwrap();
    assert_eq!(
        (file.size, file.state, file.mode & 0o170000),
        (5000, FileState::Present, 0o100000)
    );
    assert_eq!(file.inode, std::fs::metadata(disk.join("small")).unwrap().ino());
    assert!(trace.filesystems[file.filesystem.unwrap() as usize].fstype == "ext4");
    assert!(
        trace
            .processes
            .iter()
            .any(|p| p.executable.to_string().ends_with("/dd")),
        "{:?}",
        trace.processes
    );
}

#[test]
fn metadata_that_had_to_be_read_is_recorded_with_its_device() {
    if !can_mount() {
        return;
    }
    let (mut mounted, disk) = with_disk("ext4");
    for i in 0..50 {
        write(&disk, &format!("dir{i}/file"), 100);
    }
    mounted.remount_cold().unwrap();
    let script = format!("cat {}/*/file >/dev/null", disk.display());
    let trace = record(&script, &[options(BackendChoice::Tracefs)]).remove(0);
    let device = numbers(&mounted);
    let blocks: u64 = trace
        .metadata
        .iter()
        .filter(|m| (m.major, m.minor) == device)
        .map(|m| u64::from(m.pages))
        .sum();
    assert!(
        blocks >= 50,
        "50 directories have a block each, {blocks} were recorded"
    );
}

#[test]
fn what_others_do_is_not_recorded() {
    if !can_mount() {
        return;
    }
    let (mut mounted, disk) = with_disk("ext4");
    write(&disk, "mine", 100_000);
    write(&disk, "other", 100_000);
    mounted.remount_cold().unwrap();
    let at = disk.display();
    let other = Waiting::start(&format!(
        "for i in 1 2 3 4 5 6 7 8 9; do cat {at}/other; done >/dev/null"
    ));
    let script = format!("for i in 1 2 3 4 5 6 7 8 9; do (cat {at}/mine & wait); done >/dev/null");
    let other = std::thread::spawn(|| other.run());
    let trace = record(&script, &[options(BackendChoice::Tracefs)]).remove(0);
    other.join().unwrap();
    let seen = pages(&trace, &ALL);
    assert_eq!(seen[&format!("{at}/mine")].len(), 25);
    assert!(!seen.contains_key(&format!("{at}/other")));
}

#[test]
fn in_scope_system_everybody_counts_but_the_recorder() {
    if !can_mount() {
        return;
    }
    let _flood = flood();
    let (mut mounted, disk) = with_disk("ext4");
    write(&disk, "others", 10_000);
    write(&disk, "own", 10_000);
    mounted.remount_cold().unwrap();
    let at = disk.display().to_string();
    let options = Options {
        backend: BackendChoice::Tracefs,
        ..Options::system()
    };
    let recorder = Recorder::start(&options).unwrap();
    let own = format!("{at}/own");
    // A thread that begins after the recorder and is gone before it looks.
    std::thread::spawn(move || std::fs::read(own).unwrap())
        .join()
        .unwrap();
    let status = Waiting::start(&format!("cat {at}/others >/dev/null")).run();
    let trace = recorder.finish(EndReason::Exit(status)).unwrap();
    assert_eq!(trace.meta.scope, Scope::System);
    let seen = pages(&trace, &ALL);
    assert_eq!(seen.get(&format!("{at}/others")).map(BTreeSet::len), Some(3));
    assert!(!seen.contains_key(&format!("{at}/own")));
}

#[test]
fn a_file_that_was_removed_while_open_is_told_apart() {
    if !can_mount() {
        return;
    }
    let (mut mounted, disk) = with_disk("ext4");
    write(&disk, "gone", 10_000);
    mounted.remount_cold().unwrap();
    let at = disk.display();
    let script = format!("exec 3<{at}/gone; cat <&3 >/dev/null; rm {at}/gone; sleep 0.3");
    let trace = record(&script, &[options(BackendChoice::Tracefs)]).remove(0);
    let file = trace
        .files
        .iter()
        .find(|f| f.path.to_string().ends_with("/gone"))
        .unwrap();
    assert_eq!(file.state, FileState::Deleted);
}

#[test]
fn lost_events_are_counted() {
    if !can_mount() {
        return;
    }
    let _flood = flood();
    let (_mounted, disk) = with_disk("ext4");
    // The default buffer of one processor holds them all, the smallest a sixth.
    write(&disk, "file", 160_000);
    let script = format!("dd if={}/file of=/dev/null bs=1 2>/dev/null", disk.display());
    let small = Options {
        buffer_bytes: 4096,
        ..options(BackendChoice::Tracefs)
    };
    // The recorder empties it ten times a second: beside other work the reads may come too slowly to overrun
    // it.
    let mut traces = Vec::new();
    for _ in 0..20 {
        traces = record(&script, &[small.clone(), options(BackendChoice::Tracefs)]);
        if traces[0].lost.events > 0 || traces[0].meta.evidence != Evidence::Uses {
            break;
        }
    }
    if traces[0].meta.evidence == Evidence::Uses {
        assert!(
            traces[0].lost.events > 0,
            "160,000 reads did not overrun the smallest buffer"
        );
    }
    assert!(traces[0].unfit().is_some());
    let whole = traces.remove(1);
    assert_eq!(whole.lost.events, 0, "the default buffer is large enough");
}

#[test]
fn paths_are_found_on_other_file_systems_too() {
    if !can_mount() {
        return;
    }
    for fstype in ["xfs", "btrfs"] {
        let (mut mounted, disk) = with_disk(fstype);
        write(&disk, "deep/er/file", 9000);
        mounted.remount_cold().unwrap();
        let at = disk.display();
        // Twice, as above.
        let trace = record(
            &format!("cat {at}/deep/er/file {at}/deep/er/file >/dev/null"),
            &[options(BackendChoice::Tracefs)],
        )
        .remove(0);
        assert_eq!(trace.lost.paths, 0, "{fstype}");
        assert_eq!(
            pages(&trace, &ALL)[&format!("{at}/deep/er/file")].len(),
            3,
            "{fstype}"
        );
    }
}

/// The promise that makes the back-ends interchangeable. No class of pages is left out of the comparison of a
/// start with all in memory. In a cold one a reader may take pages while it waits for the next, for which the
/// kernel has no event: those BPF finds by the call's arguments (src/bpf/filemap_events.h), tracefs cannot.
#[test]
fn both_back_ends_give_the_same_pages() {
    if !can_mount() {
        return;
    }
    let _flood = flood();
    let (mut mounted, disk) = with_disk("ext4");
    write(&disk, "large", 8 << 20);
    for i in 0..300 {
        write(&disk, &format!("small/{}/{i}", i % 7), i * 131 + 1);
    }
    copy_program(&disk, "dd");
    copy_program(&disk, "md5sum");
    mounted.remount_cold().unwrap();
    let at = disk.display();
    let script = format!(
        "{lib} {at}/bin/md5sum {at}/small/*/* >/dev/null; \
         {lib} {at}/bin/dd if={at}/large of=/dev/null bs=10000 skip=5 count=7 2>/dev/null; \
         ({lib} {at}/bin/md5sum {at}/large & wait) >/dev/null; \
         python3 -c 'import json, decimal, mmap; m = mmap.mmap(open(\"{at}/large\", \"rb\").fileno(), 0, \
         prot=mmap.PROT_READ); m[99999]; m[5555555]' 2>/dev/null; true",
        lib = format_args!("{at}/lib/ld --library-path {at}/lib"),
    );
    let record_both = || {
        let traces = record(
            &script,
            &[options(BackendChoice::Bpf), options(BackendChoice::Tracefs)],
        );
        let lost: Vec<u64> = traces.iter().map(|trace| trace.lost.events).collect();
        assert_eq!(lost, [0, 0]);
        traces
    };
    let (cold, warm) = (record_both(), record_both());
    let same = cold[0].meta.evidence == cold[1].meta.evidence;
    if !needs("use events (Linux 6.12)", same) {
        return;
    }
    let blocks = |trace: &Trace| -> BTreeSet<(u32, u32, u64)> {
        trace
            .metadata
            .iter()
            .flat_map(|m| (m.start..m.start + u64::from(m.pages)).map(|p| (m.major, m.minor, p)))
            .collect()
    };
    assert_eq!(blocks(&cold[0]), blocks(&cold[1]));
    let pages_of = |trace: &Trace| pages(trace, &ALL);
    let mut only_bpf = 0;
    for (path, (bpf, tracefs)) in difference(&pages_of(&cold[0]), &pages_of(&cold[1])) {
        assert_eq!(tracefs, Vec::<u64>::new(), "only tracefs: {path}");
        only_bpf += bpf.len();
    }
    let count = pages_of(&cold[0]).values().map(BTreeSet::len).sum::<usize>();
    eprintln!("cold: {only_bpf} of {count} pages were taken while others were waited for");
    assert!(count > 3000 && only_bpf * 50 <= count, "{only_bpf} of {count}");

    let (bpf, tracefs) = (&warm[0], &warm[1]);
    assert!(pages_of(bpf).values().map(BTreeSet::len).sum::<usize>() > 3000);
    // What newer kernels map with a folio none of their events tells.
    let around = pages(bpf, &[UseKind::Around]);
    for (path, (bpf, tracefs)) in difference(&pages_of(bpf), &pages_of(tracefs)) {
        assert_eq!(tracefs, Vec::<u64>::new(), "only tracefs: {path}");
        let around = around.get(&path).cloned().unwrap_or_default();
        assert!(
            bpf.iter().all(|page| around.contains(page)),
            "only bpf: {path} {bpf:?}"
        );
    }
    // Only BPF programs tell which page a fault was for.
    for kinds in [&[UseKind::Read][..], &[UseKind::Map, UseKind::Around]] {
        let pages_of = |trace: &Trace| pages(trace, kinds);
        eprintln!("{kinds:?}: {} files", pages_of(bpf).len());
        assert!(!pages_of(bpf).is_empty());
        for (path, (only_bpf, only_tracefs)) in difference(&pages_of(bpf), &pages_of(tracefs)) {
            assert_eq!(only_tracefs, Vec::<u64>::new(), "{kinds:?}: {path}");
            let with_folios = around.get(&path).cloned().unwrap_or_default();
            let told = only_bpf.iter().all(|page| with_folios.contains(page));
            assert!(kinds != [UseKind::Read] && told, "{kinds:?}: {path} {only_bpf:?}");
        }
    }
    let faults = |trace: &Trace| pages(trace, &[UseKind::Fault]);
    for (path, (_, only_tracefs)) in difference(&faults(bpf), &faults(tracefs)) {
        assert_eq!(only_tracefs, Vec::<u64>::new(), "{path}");
    }
}
