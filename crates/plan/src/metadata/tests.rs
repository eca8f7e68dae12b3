//! Where a plan has metadata: which blocks, and when.

use crate::tests::{PAGE, entry, facts, flash, machine, make, profile};
use crate::{PlanOptions, plan, recorded_metadata};
use headstart_model::machine::{DeviceClass, FileFacts, Machine, PathKind};
use headstart_model::plan::{PlanDraft, PlanFile, RequestKind};
use headstart_model::profile::{Entry, Need};
use headstart_model::{FilePath, PageRange, Profile, testing};

#[test]
fn metadata_goes_first_and_shared_blocks_once() {
    let profile = profile(vec![entry("/m/a", &[(0, 1, 5)]), entry("/m/b", &[(0, 1, 3)])]);
    let files = vec![
        facts("/m/a", &[(0, 500, 1000)], &[40, 7]),
        facts("/m/b", &[(0, 1500, 1000)], &[40, 41]),
    ];
    let recorded = [
        ("/m".into(), PageRange::new(90, 1)),
        ("/other".into(), PageRange::new(91, 1)),
    ];
    let draft = plan(&profile, &flash(files), &recorded, &PlanOptions::new(0));
    let requests: Vec<_> = draft
        .requests
        .iter()
        .map(|r| (r.kind, r.offset / PAGE, r.length / PAGE))
        .collect();
    use RequestKind::*;
    assert_eq!(
        requests,
        [
            (Metadata, 7, 1),
            (Metadata, 40, 2),
            (Metadata, 90, 1),
            (Data, 0, 1),
            (Data, 0, 1)
        ]
    );
}

/// Of a file: its inode's block, an extent block, and its directory's blocks; and a name that is not there.
fn with_directories() -> (Profile, Vec<FileFacts>) {
    let mut missing = entry("/m/d/none", &[]);
    missing.need = Need::Missing;
    missing.first_use_ns = 5_000_000;
    let mut file = entry("/m/d/f", &[(0, 4, 9)]);
    file.first_use_ns = 9_000_000;
    let profile = profile(vec![file, missing]);
    let directory = FileFacts {
        found: PathKind::Directory,
        inode: 2,
        ..facts("/m/d", &[], &[101, 5000])
    };
    let none = FileFacts {
        found: PathKind::Missing,
        device: None,
        inode: 0,
        ..facts("/m/d/none", &[], &[])
    };
    let file = FileFacts {
        inode: 3,
        ..facts("/m/d/f", &[(0, 6000, 4)], &[100, 5500])
    };
    (profile, vec![directory, file, none])
}

/// What is issued, in order: kind and page.
fn issued(draft: &PlanDraft) -> Vec<(RequestKind, u64)> {
    draft.requests.iter().map(|r| (r.kind, r.offset / PAGE)).collect()
}

#[test]
fn on_one_head_directories_are_read_amid_the_data() {
    use RequestKind::{Data, Metadata, Stat};
    let (profile, files) = with_directories();
    // The block beside the file's inode is bridged by the way, the directory's own block lies before the
    // data.
    let disk = make(&profile, &machine(DeviceClass::Disk, 50e-6, 1, files.clone()));
    let order = [
        (Metadata, 100),
        (Metadata, 5500),
        (Metadata, 101),
        (Metadata, 5000),
    ];
    assert_eq!(issued(&disk), [&order[..], &[(Data, 0), (Stat, 0)]].concat());
    // For a user's start the replay checks whether that user may go there.
    let mut theirs = profile.clone();
    theirs.key = profile.key.of_user(1000).unwrap();
    let walked = make(&theirs, &machine(DeviceClass::Disk, 50e-6, 1, files.clone()));
    let order = [
        (Metadata, 100),
        (Metadata, 5000),
        (Metadata, 5500),
        (Data, 0),
        (Stat, 0),
    ];
    assert_eq!(issued(&walked), order);
    let flash = make(&profile, &machine(DeviceClass::Flash, 50e-6, 1, files.clone()));
    assert_eq!(
        issued(&flash),
        [
            (Metadata, 100),
            (Metadata, 5000),
            (Metadata, 5500),
            (Stat, 0),
            (Data, 0)
        ]
    );
    // Blocks smaller than pages: the page of a directory reaches over data.
    let mut small = files.clone();
    small[0].metadata[1].length = 1024;
    let small = make(&profile, &machine(DeviceClass::Disk, 50e-6, 1, small));
    assert!(
        issued(&small).is_sorted_by_key(|(kind, _)| *kind),
        "{:?}",
        issued(&small)
    );
    // On an overlay paths are needed, and with them directories.
    let mut files = files;
    let mut shown = facts("/o/d/f", &[(0, 6000, 4)], &[]);
    shown.inode = 77;
    files.push(shown);
    let mut merged = profile.clone();
    merged.entries.push(entry("/o/d/f", &[(0, 4, 9)]));
    let overlay = make(&merged, &machine(DeviceClass::Disk, 50e-6, 1, files));
    assert_eq!(issued(&overlay)[..4], issued(&flash)[..4]);
}

#[test]
fn where_many_are_served_at_once_what_the_start_alone_looks_at_comes_when_it_is_needed() {
    use RequestKind::{Data, Metadata};
    // A program, and a tree that it looks at afterwards, in the other order; then it reads a file beside the
    // tree.
    let looked_at = |path: &str, ms: u64| Entry {
        first_use_ns: ms * 1_000_000,
        ..entry(path, &[])
    };
    let profile = profile(vec![
        entry("/m/bin/p", &[(0, 1, 1)]),
        looked_at("/m/tree/b/1", 20),
        looked_at("/m/tree/a/1", 40),
        entry("/m/late", &[(0, 1, 60)]),
    ]);
    let directory = |path: &str, block: u64| FileFacts {
        found: PathKind::Directory,
        ..facts(path, &[], &[block])
    };
    let files = vec![
        directory("/m/bin", 300),
        facts("/m/bin/p", &[(0, 800, 1)], &[301]),
        directory("/m/tree", 100),
        directory("/m/tree/a", 102),
        // The second blocks lie one behind the other, in two parts of 128 KiB.
        facts("/m/tree/a/1", &[], &[50, 1055]),
        directory("/m/tree/b", 200),
        facts("/m/tree/b/1", &[], &[50, 1056]),
        facts("/m/late", &[(0, 900, 1)], &[301]),
    ];
    let draft = make(&profile, &flash(files.clone()));
    let order = [
        // Of both files that are read.
        (Metadata, 300),
        (Data, 0),
        (Metadata, 50),
        (Metadata, 100),
        (Metadata, 200),
        (Metadata, 1056),
        (Metadata, 102),
        (Metadata, 1055),
        (Data, 0),
    ];
    assert_eq!(issued(&draft), order);
    assert_eq!(draft.requests[0].length, 2 * PAGE);
    // However costly requests are: no page is asked for twice, and no request is all hole.
    for latency in [5e-3, 50e-3, 500e-3] {
        let mut coarse = flash(files.clone());
        coarse.devices[0].cost.latency = latency;
        coarse.devices[0].cost.depth = 1;
        let draft = make(&profile, &coarse);
        let metadata = draft.requests.iter().filter(|r| r.kind == Metadata);
        let mut ranges: Vec<(u64, u64)> = metadata
            .clone()
            .map(|r| (r.offset, r.offset + r.length))
            .collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|two| two[0].1 <= two[1].0), "{ranges:?}");
        assert!(
            metadata
                .clone()
                .all(|r| r.bridged < r.length && r.deadline_us < u32::MAX)
        );
        assert_eq!(metadata.map(|r| r.length - r.bridged).sum::<u64>(), 8 * PAGE);
    }
}

#[test]
fn what_was_recorded_but_nobody_is_known_to_need_is_read_amid_the_data() {
    let (profile, files) = with_directories();
    let recorded = [
        ("/m".into(), PageRange::new(100, 2)),
        ("/m".into(), PageRange::new(7000, 1)),
    ];
    let draft = plan(
        &profile,
        &machine(DeviceClass::Disk, 50e-6, 1, files),
        &recorded,
        &PlanOptions::new(0),
    );
    let last = draft.requests.iter().rfind(|r| r.kind == RequestKind::Metadata);
    assert_eq!(last.map(|r| (r.offset / PAGE, r.deadline_us)), Some((7000, 0)));
    // When the directory is needed is known, although it was recorded too.
    let directory = draft.requests.iter().find(|r| r.offset == 101 * PAGE).unwrap();
    assert_eq!(directory.deadline_us, 5000);
    let map = draft.requests.iter().find(|r| r.offset == 5500 * PAGE).unwrap();
    assert_eq!(map.deadline_us, 9000);
}

#[test]
fn elsewhere_paths_are_looked_up_from_the_root_down() {
    let mut list = entry("/m/d/e", &[]);
    list.need = Need::List;
    let mut gone = entry("/m/gone", &[]);
    gone.need = Need::Missing;
    let profile = profile(vec![list, entry("/m/d/e/f", &[(0, 1, 1)]), gone]);
    let kind = |path: &str, found| FileFacts {
        found,
        ..facts(path, &[], &[])
    };
    let mut machine = flash(vec![
        kind("/m/d/e", PathKind::Directory),
        facts("/m/d/e/f", &[], &[]),
        kind("/m/d", PathKind::Directory),
        FileFacts {
            device: None,
            ..kind("/m/gone", PathKind::Missing)
        },
        kind("/m/tty", PathKind::Special),
        FileFacts {
            device: None,
            ..kind("/net/x", PathKind::NotLocal)
        },
    ]);
    let rows = |machine: &Machine| -> Vec<(RequestKind, String)> {
        let draft = make(&profile, machine);
        draft
            .requests
            .iter()
            .map(|r| (r.kind, draft.files[r.file as usize].path.to_string()))
            .collect()
    };
    assert_eq!(
        rows(&machine),
        [
            (RequestKind::Stat, "/m/gone".to_string()),
            (RequestKind::Data, "/m/d/e/f".to_string())
        ]
    );
    machine.devices[0].metadata_by_block = false;
    // What no data waits for comes behind it, unless a head moves.
    let expected = [
        (RequestKind::Stat, "/m/d"),
        (RequestKind::List, "/m/d/e"),
        (RequestKind::Data, "/m/d/e/f"),
        (RequestKind::Stat, "/m/gone"),
    ];
    let expected = expected.map(|(k, p)| (k, p.to_string()));
    assert_eq!(rows(&machine), expected);
    machine.devices[0].cost.class = DeviceClass::Disk;
    let mut rows = rows(&machine);
    rows[..2].sort_by(|a, b| a.1.cmp(&b.1));
    let [d, e, f, gone] = expected;
    assert_eq!(rows, [d, gone, e, f]);
}

#[test]
fn recorded_blocks_are_named_by_mount_point() {
    use headstart_model::trace::MetadataMiss;
    let bytes: FilePath = "/m".into();
    let mut trace = testing::trace();
    trace.filesystems[0].mount_point = bytes.clone();
    let miss = |major: u32, start: u64, pages: u32| MetadataMiss {
        time_ns: 0,
        major,
        minor: 1,
        start,
        pages,
    };
    trace.metadata = vec![miss(8, 5, 2), miss(9, 6, 1)];
    assert_eq!(recorded_metadata(&trace), [(bytes, PageRange::new(5, 2))]);
    trace.filesystems[0].local = false;
    assert_eq!(recorded_metadata(&trace), []);
}

#[test]
fn large_recorded_ranges_are_planned_as_ranges() {
    let mut profile = profile(vec![entry("/m/a", &[(0, 1, 7)])]);
    profile.entries[0].first_use_ns = 7_000_000;
    let files = vec![facts("/m/a", &[(0, 500, 1000)], &[3, 1 << 30])];
    let recorded = [
        ("/m".into(), PageRange::new(1 << 20, 1 << 40)),
        ("/m".into(), PageRange::new(3 << 40, 1 << 20)),
        ("/m".into(), PageRange::new((3 << 40) + 5, 1 << 20)),
        ("/m".into(), PageRange::new(u64::MAX - 1, 1)),
    ];
    let options = PlanOptions {
        budget: Some(u64::MAX),
        ..PlanOptions::new(0)
    };
    let draft = plan(&profile, &flash(files), &recorded, &options);
    let metadata = draft.requests.iter().filter(|r| r.kind == RequestKind::Metadata);
    let rows: Vec<_> = metadata
        .map(|r| (r.offset / PAGE, r.length / PAGE, r.bridged, r.deadline_us))
        .collect();
    assert_eq!(
        rows,
        [
            (3, 1, 0, 7000),
            (1 << 20, 1 << 40, 0, 0),
            (3 << 40, (1 << 20) + 5, 0, 0)
        ]
    );
    assert!(PlanFile::new(draft.to_bytes().unwrap()).plan().is_ok());
}

/// The paths of a plan's files that no request names.
fn asked_for(draft: &PlanDraft) -> Vec<String> {
    let is_free = |file: u32| draft.requests.iter().all(|request| request.file != file);
    let files = (0..).zip(&draft.files).filter(|(file, _)| is_free(*file));
    files.map(|(_, file)| file.path.to_string()).collect()
}

#[test]
fn some_paths_of_what_is_read_by_block_are_asked_for() {
    let listed = |n: u64| Entry {
        need: Need::List,
        ..entry(&format!("/m/d{n:04}"), &[])
    };
    let directory = |n: u64| FileFacts {
        found: PathKind::Directory,
        ..facts(&format!("/m/d{n:04}"), &[], &[1000 + n])
    };
    let made = |directories: u64, is_by_block: bool| {
        let mut entries = vec![entry("/m/argument", &[])];
        entries.extend((0..directories).map(listed));
        entries.push(entry("/m/file", &[(0, 1, 5)]));
        let mut profile = profile(entries);
        profile.named.insert("/m/argument".into(), 1.0);
        let mut files: Vec<FileFacts> = (0..directories).map(directory).collect();
        files.push(facts("/m/argument", &[], &[7]));
        files.push(facts("/m/file", &[(0, 500, 1000)], &[8]));
        let mut machine = flash(files);
        machine.devices[0].metadata_by_block = is_by_block;
        asked_for(&make(&profile, &machine))
    };
    assert_eq!(made(3, true), ["/m/d0000", "/m/d0001", "/m/d0002"]);
    let some = made(1000, true);
    assert_eq!(some.len(), 63);
    assert!(
        some[0] == "/m/d0000" && some[62] == "/m/d0992",
        "all over: {some:?}"
    );
    assert!(made(3, false).is_empty(), "each is looked up by a request");
}
