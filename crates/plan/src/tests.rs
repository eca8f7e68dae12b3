//! What becomes of a profile on one machine or another.

use crate::{PlanOptions, plan, wanted};
use headstart_model::machine::*;
use headstart_model::plan::{PlanDraft, PlanFile, RequestKind};
use headstart_model::profile::{Entry, Policy, Version, WeightedRange};
use headstart_model::{Key, Profile, testing};

pub(crate) const PAGE: u64 = 4096;

pub(crate) fn entry(path: &str, ranges: &[(u64, u32, u64)]) -> Entry {
    let version = Version {
        size: 1000 * PAGE,
        mtime_ns: 1,
        generation: 1,
    };
    let range = |(start, pages, ms): &(u64, u32, u64)| WeightedRange {
        first_use_ns: ms * 1_000_000,
        ..testing::range(*start, *pages, 1.0)
    };
    Entry {
        first_use_ns: ranges.iter().map(|r| r.2).min().unwrap_or(0),
        version: (!ranges.is_empty()).then_some(version),
        ranges: ranges.iter().map(range).collect(),
        tail: None,
        touches: None,
        ..testing::entry(path)
    }
}

pub(crate) fn profile(entries: Vec<Entry>) -> Profile {
    Profile {
        timeline_ns: 1_000_000_000,
        entries,
        ..Profile::new(Key::new("k").unwrap(), PAGE as u32, Policy::Decay)
    }
}

pub(crate) fn facts(path: &str, extents: &[(u64, u64, u64)], metadata: &[u64]) -> FileFacts {
    FileFacts {
        path: path.into(),
        found: PathKind::File,
        device: Some(0),
        inode: 1,
        generation: 1,
        size: 1000 * PAGE,
        mtime_ns: 1,
        owner: 0,
        others_may_write: false,
        extents: extents
            .iter()
            .map(|(l, p, n)| Extent {
                logical: l * PAGE,
                physical: p * PAGE,
                length: n * PAGE,
            })
            .collect(),
        metadata: metadata
            .iter()
            .map(|b| ByteRange {
                start: b * PAGE,
                length: PAGE,
            })
            .collect(),
    }
}

pub(crate) fn machine(class: DeviceClass, latency: f64, depth: u32, files: Vec<FileFacts>) -> Machine {
    let cost = Cost {
        class,
        bandwidth: 100e6,
        latency,
        depth,
    };
    let mut machine = testing::machine(cost, "ext4", files);
    machine.devices[0].mount_point = "/m".into();
    machine
}

pub(crate) fn flash(files: Vec<FileFacts>) -> Machine {
    // 1 us a request at full depth: no hole is worth a byte.
    machine(DeviceClass::Flash, 16e-6, 16, files)
}

pub(crate) fn make(profile: &Profile, machine: &Machine) -> PlanDraft {
    let draft = plan(profile, machine, &[], &PlanOptions::new(0));
    let bytes = draft.to_bytes().unwrap();
    assert_eq!(
        PlanFile::new(bytes).plan().unwrap().to_draft().unwrap(),
        draft,
        "every plan made can be read"
    );
    draft
}

/// (path, first page, pages) of the data requests in issue order.
pub(crate) fn data(draft: &PlanDraft) -> Vec<(String, u64, u64)> {
    let requests = draft.requests.iter().filter(|r| r.kind == RequestKind::Data);
    requests
        .map(|r| {
            (
                draft.files[r.file as usize].path.to_string(),
                r.offset / PAGE,
                r.length.div_ceil(PAGE),
            )
        })
        .collect()
}

fn expect(rows: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
    rows.iter().map(|(p, s, n)| (p.to_string(), *s, *n)).collect()
}

#[test]
fn by_deadline_on_flash_by_address_on_disk() {
    let profile = profile(vec![
        entry("/m/a", &[(0, 1, 30)]),
        entry("/m/b", &[(0, 1, 10), (9, 1, 20)]),
    ]);
    let files = vec![
        facts("/m/a", &[(0, 500, 1000)], &[]),
        facts("/m/b", &[(0, 9000, 5), (5, 100, 995)], &[]),
    ];
    let flash = make(&profile, &flash(files.clone()));
    assert_eq!(
        data(&flash),
        expect(&[("/m/b", 0, 1), ("/m/b", 9, 1), ("/m/a", 0, 1)])
    );
    let disk = make(&profile, &machine(DeviceClass::Disk, 1e-9, 1, files));
    assert_eq!(
        data(&disk),
        expect(&[("/m/b", 9, 1), ("/m/a", 0, 1), ("/m/b", 0, 1)])
    );
}

#[test]
fn holes_are_bridged_where_a_request_costs_more() {
    let profile = profile(vec![entry("/m/a", &[(0, 2, 0), (6, 2, 0), (20, 1, 0)])]);
    let files = vec![facts("/m/a", &[(0, 500, 1000)], &[])];
    assert_eq!(data(&make(&profile, &flash(files.clone()))).len(), 3);
    let disk = make(&profile, &machine(DeviceClass::Disk, 5e-3, 1, files));
    assert_eq!(data(&disk), expect(&[("/m/a", 0, 8), ("/m/a", 20, 1)]));
    assert_eq!(disk.requests[0].bridged, 4 * PAGE);
    // One of them could not be read.
    let disk = machine(
        DeviceClass::Disk,
        5e-3,
        1,
        vec![facts("/m/a", &[(0, 500, 1000)], &[])],
    );
    let options = PlanOptions {
        bridges: false,
        ..PlanOptions::new(7)
    };
    let jumps = plan(&profile, &disk, &[], &options);
    assert_eq!(
        data(&jumps),
        expect(&[("/m/a", 0, 2), ("/m/a", 6, 2), ("/m/a", 20, 1)])
    );
    // The same hole in the file, but the other half lies elsewhere on the disk.
    let files = vec![facts("/m/a", &[(0, 500, 4), (4, 90000, 996)], &[])];
    assert_eq!(
        data(&make(&profile, &machine(DeviceClass::Disk, 5e-3, 1, files))).len(),
        3
    );
}

#[test]
fn requests_end_with_the_file_and_leave_its_holes() {
    let profile = profile(vec![entry("/m/a", &[(0, 20, 0)])]);
    let mut short = facts("/m/a", &[(0, 500, 4), (8, 508, 4)], &[]);
    short.size = 10 * PAGE + 100;
    let draft = make(&profile, &flash(vec![short]));
    // Another size than learned, but every page is certain.
    let bytes: Vec<(u64, u64)> = draft.requests.iter().map(|r| (r.offset, r.length)).collect();
    assert_eq!(bytes, [(0, 4 * PAGE), (8 * PAGE, 2 * PAGE + 100)]);
}

#[test]
fn of_a_replaced_file_only_certain_pages_are_read() {
    let mut usual = entry("/m/a", &[(0, 4, 0), (10, 4, 0)]);
    usual.ranges[1].weight = 0.7;
    let profile = profile(vec![usual]);
    let same = facts("/m/a", &[(0, 500, 1000)], &[]);
    assert_eq!(
        data(&make(&profile, &flash(vec![same.clone()]))),
        expect(&[("/m/a", 0, 4), ("/m/a", 10, 4)])
    );
    // Written in place it is the same file.
    let written = FileFacts {
        mtime_ns: 2,
        ..same.clone()
    };
    assert_eq!(
        data(&make(&profile, &flash(vec![written]))),
        expect(&[("/m/a", 0, 4), ("/m/a", 10, 4)])
    );
    let other = FileFacts {
        generation: 2,
        ..same
    };
    assert_eq!(
        data(&make(&profile, &flash(vec![other]))),
        expect(&[("/m/a", 0, 4)])
    );
}

#[test]
fn of_a_file_that_grows_the_end_is_planned_where_it_is_now() {
    let mut log = entry("/m/log", &[(0, 2, 0)]);
    log.tail = Some(vec![
        WeightedRange {
            first_use_ns: 7_000_000,
            ..testing::range(0, 3, 1.0)
        },
        testing::range(10, 1, 0.2),
    ]);
    let profile = profile(vec![log]);
    assert!(wanted(&profile)[0].data);
    let grown = FileFacts {
        size: 1100 * PAGE + 1,
        mtime_ns: 2,
        ..facts("/m/log", &[(0, 500, 1101)], &[])
    };
    let planned_rows = |facts: FileFacts| -> Vec<(u64, u64, bool, u32)> {
        let draft = make(&profile, &flash(vec![facts]));
        let data = draft.requests.iter().filter(|r| r.kind == RequestKind::Data);
        data.map(|r| (r.offset / PAGE, r.length, r.from_end, r.deadline_us))
            .collect()
    };
    assert_eq!(
        planned_rows(grown.clone()),
        [(0, 2 * PAGE, false, 0), (1098, 2 * PAGE + 1, true, 7000)]
    );
    // The end of another file is another.
    let replaced = FileFacts {
        generation: 2,
        ..grown.clone()
    };
    assert_eq!(planned_rows(replaced), [(0, 2 * PAGE, false, 0)]);
    let small = FileFacts { size: PAGE, ..grown };
    assert_eq!(planned_rows(small), [(0, PAGE, false, 0), (0, PAGE, true, 7000)]);
}

#[test]
fn a_small_budget_keeps_what_is_needed_first() {
    let profile = profile(vec![entry("/m/a", &[(0, 10, 30)]), entry("/m/b", &[(0, 10, 10)])]);
    let files = vec![
        facts("/m/a", &[(0, 500, 1000)], &[]),
        facts("/m/b", &[(0, 9000, 1000)], &[]),
    ];
    let disk = machine(DeviceClass::Disk, 1e-9, 1, files);
    let options = PlanOptions {
        budget: Some(15 * PAGE),
        ..PlanOptions::new(0)
    };
    let draft = plan(&profile, &disk, &[], &options);
    // What does not fit whole goes as far as it does; on a disk by address.
    assert_eq!((draft.cut, draft.budget), (2, 15 * PAGE));
    assert_eq!(
        data(&draft),
        expect(&[("/m/a", 0, 5), ("/m/b", 0, 10), ("/m/a", 5, 5)])
    );
    for (pages, cut) in [(0, 0), (10, 1), (20, 2)] {
        let options = PlanOptions {
            budget: Some(pages * PAGE),
            ..options.clone()
        };
        let draft = plan(&profile, &disk, &[], &options);
        assert_eq!((draft.cut, draft.requests.len()), (cut, 2), "{pages}");
    }
}

#[test]
fn a_small_budget_keeps_what_saves_most_for_its_bytes() {
    // A large file that is needed first, and small ones that are needed later: each spares a jump.
    let mut entries = vec![entry("/m/large", &[(0, 1000, 0)])];
    entries.extend((0..20).map(|n| entry(&format!("/m/{n:02}"), &[(0, 1, 100 + n)])));
    // One that only half of the starts need, and one whose metadata stands before all data.
    let mut rare = entry("/m/rare", &[(0, 1, 5)]);
    rare.weight = 0.4;
    rare.ranges[0].weight = 0.4;
    entries.push(rare);
    let place = |entry: &Entry| facts(&entry.path.to_string(), &[(0, 9000, 4000)], &[]);
    let files: Vec<FileFacts> = entries.iter().map(place).collect();
    let profile = Profile {
        policy: Policy::Boot,
        ..profile(entries)
    };
    let disk = machine(DeviceClass::Disk, 5e-3, 1, files);
    let kept = |budget: u64| {
        let options = PlanOptions {
            budget: Some(budget * PAGE),
            ..PlanOptions::new(0)
        };
        let draft = plan(&profile, &disk, &[], &options);
        let mut kept: Vec<(String, u64)> = data(&draft)[..draft.cut as usize]
            .iter()
            .map(|(path, _, pages)| (path.clone(), *pages))
            .collect();
        kept.sort_unstable();
        kept
    };
    let small = |to: u32| (0..to).map(|n| (format!("/m/{n:02}"), 1));
    assert_eq!(kept(8), small(8).collect::<Vec<_>>(), "in a class by deadline");
    assert_eq!(kept(20), small(20).collect::<Vec<_>>());
    let mut more: Vec<_> = small(20).collect();
    more.push(("/m/rare".into(), 1));
    assert_eq!(kept(21), more);
    more.insert(20, ("/m/large".into(), 29));
    assert_eq!(kept(50), more, "and of the rest a part");
}

#[test]
fn a_plan_leaves_what_its_starts_need_for_themselves() {
    const MIB: u64 = 1 << 20;
    let budget = |available: u64, needed| {
        let machine = headstart_model::machine::Machine {
            memory_available: available * MIB,
            ..flash(Vec::new())
        };
        let options = PlanOptions {
            needed,
            ..PlanOptions::new(0)
        };
        plan(&profile(Vec::new()), &machine, &[], &options).budget / MIB
    };
    assert_eq!((budget(1088, None), budget(1088, Some(824 * MIB))), (512, 200));
    assert_eq!((budget(48, None), budget(20, None)), (4, 0));
}

#[test]
fn what_lies_under_an_overlay_is_found_either_way() {
    let mut below = entry("/lower/a", &[(0, 1, 0)]);
    below.overlay = Some("/m/a".into());
    let profile = profile(vec![below]);
    assert_eq!(
        wanted(&profile)
            .iter()
            .map(|w| w.path.to_string())
            .collect::<Vec<_>>(),
        ["/lower/a", "/m/a"]
    );
    let gone = FileFacts {
        found: PathKind::Missing,
        device: None,
        ..facts("/lower/a", &[], &[])
    };
    let there = facts("/m/a", &[(0, 500, 1000)], &[]);
    let paths = |files| {
        data(&make(&profile, &flash(files)))
            .into_iter()
            .map(|d| d.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(paths(vec![gone, there.clone()]), ["/m/a"]);
    assert_eq!(
        paths(vec![facts("/lower/a", &[(0, 500, 1000)], &[]), there]),
        ["/lower/a"]
    );
}

#[test]
fn the_last_stage_of_a_plan_stands_for_those_beyond_it() {
    let mut profile = profile(vec![
        entry("/m/a", &[(0, 1, 0), (5, 1, 1), (9, 1, 2)]),
        entry("/m/gone", &[]),
    ]);
    profile.stages = (0..300).map(|i| format!("s{i}")).collect();
    profile.entries[0].ranges[1].stage = 255;
    profile.entries[0].ranges[2].stage = 299;
    profile.entries[1].stage = 256;
    let gone = FileFacts {
        found: PathKind::Missing,
        device: None,
        ..facts("/m/gone", &[], &[])
    };
    let draft = make(
        &profile,
        &flash(vec![facts("/m/a", &[(0, 500, 1000)], &[]), gone]),
    );
    assert_eq!(draft.stages.len(), 256);
    let mut stages: Vec<_> = draft.requests.iter().map(|r| r.stage).collect();
    stages.sort_unstable();
    assert_eq!(stages, [0, 255, 255, 255]);
}

#[test]
fn of_a_journal_what_will_be_written_behind_its_last_page_is_read_too() {
    // Of 1,000 pages 100 are written, and the start reads the first and the last 30 of them.
    let planned = |entry: Entry, written: u64| {
        let files = vec![facts("/m/journal", &[(0, 500, written)], &[])];
        data(&make(&profile(vec![entry]), &flash(files)))
    };
    let journal = |tail| Entry {
        tail,
        ..entry("/m/journal", &[(0, 2, 0), (70, 30, 0)])
    };
    assert_eq!(
        planned(journal(Some(Vec::new())), 100),
        expect(&[("/m/journal", 0, 2), ("/m/journal", 70, 30 + 64)])
    );
    // One that never changed, one that is full, and one that is not read up to where it is written.
    for (tail, written) in [(None, 100), (Some(Vec::new()), 1000), (Some(Vec::new()), 170)] {
        assert_eq!(
            planned(journal(tail.clone()), written),
            expect(&[("/m/journal", 0, 2), ("/m/journal", 70, 30)]),
            "{tail:?} {written}"
        );
    }
}
