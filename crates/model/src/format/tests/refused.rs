//! What a file cannot say is refused, and what is too much for it is made to fit.

use super::super::Kind;
use super::super::container::{Container, Writer};
use super::given::*;
use crate::plan::{NO_FILE, PlanDraft, PlanFile, Request, RequestKind};
use crate::profile::{Entry, Need, Touches, Version, WeightedRange};
use crate::testing::Forged;
use crate::trace::*;
use crate::{FilePath, Outcome, PageRange, Profile, Trace, limits, testing};

#[test]
fn pages_beyond_any_file_are_refused() {
    let largest = (i64::MAX as u64) / 4096;
    let with = |change: &dyn Fn(&mut Trace)| {
        let mut trace = one(trace());
        trace.uses = vec![Use {
            time_ns: 0,
            process: 0,
            file: 0,
            start: 0,
            pages: 1,
            kind: UseKind::Read,
        }];
        change(&mut trace);
        Trace::from_bytes(&trace.forged().unwrap())
            .map(|_| ())
            .map_err(|e| e.to_string())
    };
    assert_eq!(with(&|t| t.uses[0].start = largest - 1), Ok(()));
    assert!(
        with(&|t| t.uses[0].start = largest)
            .unwrap_err()
            .contains("use 0")
    );
    assert_eq!(with(&|t| t.metadata[0].start = largest - 3), Ok(()));
    assert!(
        with(&|t| t.metadata[0].start = largest - 2)
            .unwrap_err()
            .contains("miss 0")
    );
    assert!(
        with(&|t| t.metadata[0].start = u64::MAX)
            .unwrap_err()
            .contains("miss 0")
    );
    let pages = |pages| with(&move |t| (t.metadata[0].start, t.metadata[0].pages) = (0, pages));
    assert_eq!(pages(limits::MISS_PAGES as u32), Ok(()));
    assert!(pages((1 << 20) + 1).unwrap_err().contains("miss 0"));

    let end = |start: u64, page_size: u32| {
        let mut profile = one(profile());
        profile.page_size = page_size;
        profile.entries = vec![Entry {
            path: "/f".into(),
            overlay: None,
            need: Need::Open,
            weight: 1.0,
            first_use_ns: 0,
            stage: 0,
            version: Some(Version {
                size: 1,
                mtime_ns: 0,
                generation: 0,
            }),
            ranges: vec![WeightedRange {
                start,
                pages: 1,
                weight: 1.0,
                first_use_ns: 0,
                stage: 0,
            }],
            tail: None,
            touches: None,
        }];
        Profile::from_bytes(&profile.forged().unwrap()).is_ok()
    };
    assert!(end(largest - 1, 4096) && !end(largest, 4096));
    assert!(!end(u64::MAX, 4096) && !end(largest - 1, 65536));
}

#[test]
fn ranges_from_the_end_are_few_and_near_it() {
    let range = |start, pages| testing::range(start, pages, 1.0);
    let read = |tails: Vec<Option<Vec<WeightedRange>>>| {
        let entry = |(index, tail)| Entry {
            tail,
            ..testing::entry(&format!("/{index:05}"))
        };
        let profile = testing::profile(tails.into_iter().enumerate().map(entry).collect());
        Profile::from_bytes(&profile.forged().unwrap()).map(|read| assert_eq!(read, profile))
    };
    let refused = |tails, why: &str| {
        let error = read(tails).unwrap_err().to_string();
        assert!(error.contains(why), "{error} lacks {why:?}");
    };
    read(vec![None, Some(vec![range(0, 1), range(3, 61)]), Some(vec![])]).unwrap();
    refused(vec![Some(vec![range(3, 62)])], "the pages from the end of");
    refused(vec![Some(vec![range(3, 2), range(4, 1)])], "the pages at 4 of");
    refused(vec![Some(vec![range(3, 0)])], "the pages at 3 of");
    refused(vec![Some(vec![]); limits::TAILS + 1], "4096 files that change");
    let many = |count| (0..count).map(|n| range(n, 1)).collect::<Vec<_>>();
    read(vec![Some(many(64)); limits::TAIL_RANGES / 64]).unwrap();
    refused(
        vec![Some(many(64)); limits::TAIL_RANGES / 64 + 1],
        "ranges from the end",
    );
}

#[test]
fn a_profile_with_too_many_ranges_from_the_end_is_made_to_fit() {
    let tail = |pages: u64| Some((0..pages).map(|n| testing::range(n, 1, 1.0)).collect());
    let entry = |index: usize| Entry {
        tail: tail(64),
        weight: if index == 0 { 0.5 } else { 1.0 },
        ..testing::entry(&format!("/{index:05}"))
    };
    let mut profile = testing::profile((0..=limits::TAIL_RANGES / 64).map(entry).collect());
    assert!(profile.to_bytes().is_err());
    assert_eq!(profile.fit(), 0, "no entry is dropped for them");
    assert_eq!(profile.entries[0].tail, None, "it has the least weight");
    assert!(profile.entries[1..].iter().all(|entry| entry.tail.is_some()));
    assert_eq!(
        Profile::from_bytes(&profile.to_bytes().unwrap()).unwrap(),
        profile
    );
}

/// Paths that have another spelling, or none.
const BAD: [&str; 8] = [
    "",
    "w/x",
    "//x",
    "/w//x",
    "/w/",
    "/w/./x",
    "/w/../mnt/dead/x",
    "/w/..",
];

#[test]
fn no_reader_takes_a_path_with_another_spelling() {
    let refused = |error: super::FormatError| {
        let text = error.to_string();
        assert!(text.contains("which"), "{text} does not say why");
    };
    for bad in BAD.map(FilePath::from) {
        let trace = |change: &dyn Fn(&mut Trace)| {
            let mut trace = one(trace());
            change(&mut trace);
            refused(trace.to_bytes().unwrap_err());
            // What writes no such file is not what a forger writes with.
            let bytes = trace.forged().unwrap();
            refused(Trace::from_bytes(&bytes).unwrap_err());
        };
        trace(&|t| t.files[0].path = bad.clone());
        trace(&|t| t.files[0].overlay = Some(bad.clone()));
        trace(&|t| t.filesystems[0].mount_point = bad.clone());
        trace(&|t| {
            t.lookups = vec![Lookup {
                time_ns: 0,
                process: 0,
                path: bad.clone(),
                kind: LookupKind::Stat,
                found: true,
            }];
        });
        if bad != FilePath::default() {
            trace(&|t| t.processes[0].executable = bad.clone());
        }

        let profile = |change: &dyn Fn(&mut Entry)| {
            let mut profile = one(profile());
            let mut entry = testing::entry("/x");
            change(&mut entry);
            profile.entries = vec![entry];
            refused(profile.to_bytes().unwrap_err());
            refused(Profile::from_bytes(&profile.forged().unwrap()).unwrap_err());
        };
        profile(&|entry| entry.path = bad.clone());
        profile(&|entry| entry.overlay = Some(bad.clone()));

        let plan = |change: &dyn Fn(&mut PlanDraft)| {
            let mut draft = one(draft());
            change(&mut draft);
            refused(draft.to_bytes().unwrap_err());
            refused(
                PlanFile::new(draft.forged().unwrap())
                    .plan()
                    .map(drop)
                    .unwrap_err(),
            );
        };
        plan(&|draft| draft.files[0].path = bad.clone());
        plan(&|draft| draft.devices[0].mount_point = bad.clone());
    }
}

/// A plan of two requests for metadata, each of a granule of its own.
fn fetching() -> PlanDraft {
    let request = |number: u64| Request {
        offset: number * GRANULE + 4096,
        ..Request::new(RequestKind::Metadata, NO_FILE, 4096)
    };
    filled(testing::draft(
        testing::DISK,
        Vec::new(),
        vec![request(7), request(2)],
    ))
}

#[test]
fn a_plan_fetches_few_granules_each_where_it_can_lie() {
    let sound = fetching();
    assert!(sound.to_bytes().is_ok());
    let refused = |why: &str, change: &dyn Fn(&mut PlanDraft)| {
        let mut draft = sound.clone();
        change(&mut draft);
        for error in [
            draft.to_bytes().unwrap_err(),
            PlanFile::new(draft.forged().unwrap())
                .plan()
                .map(drop)
                .unwrap_err(),
        ] {
            assert!(error.to_string().contains(why), "{error} lacks {why:?}");
        }
    };
    let granule = "a granule of fill 0";
    refused("fill 0", &|draft| draft.fills[0].device = 1);
    refused("fill 1", &|draft| draft.fills.push(draft.fills[0].clone()));
    for bad in [0, 2048, GRANULE + 1, 2 * limits::GRANULE as u64] {
        refused("fill 0", &|draft| draft.fills[0].first_touch.granule = bad);
    }
    refused("fill 0", &|draft| draft.fills[0].first_touch.depth = 0);
    refused("fill 0", &|draft| draft.fills[0].first_touch.depth = 257);
    refused("fill 0", &|draft| draft.fills[0].first_touch.latency = 0.0);
    refused(granule, &|draft| draft.fills[0].touches[1].offset += 4096);
    refused(granule, &|draft| {
        draft.fills[0].touches[1].offset = 1 << 63;
    });
    refused(granule, &|draft| draft.fills[0].touches[1].request = 2);
    refused(granule, &|draft| draft.fills[0].touches.reverse());
    refused("it has more than 16384 granules", &|draft| {
        let last = draft.fills[0].touches[1];
        draft.fills[0].touches.resize(limits::TOUCHES + 1, last);
    });
}

#[test]
fn a_plan_says_as_many_granules_as_it_has() {
    let bytes = fetching().to_bytes().unwrap();
    let sound = Container::new(Kind::Plan, &bytes).unwrap();
    let made = |count: u64| {
        let mut file = Writer::new(Kind::Plan);
        for tag in sound.tags() {
            let mut section = sound.section(&tag, usize::MAX).unwrap();
            if &tag == b"FILL" {
                section[24..].copy_from_slice(&count.to_le_bytes());
            }
            file.raw(&tag, &section);
        }
        let file = PlanFile::new(file.finish().unwrap());
        file.plan().map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(made(2), Ok(()));
    for (count, why) in [(1, "granules of no device"), (3, "fill 0"), (u64::MAX, "fill 0")] {
        let error = made(count).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_plan_has_few_devices_and_no_deep_queue() {
    let with = |devices: usize, depth: u32| {
        let mut draft = one(draft());
        let mut device = draft.devices[0].clone();
        device.cost.depth = depth;
        draft.devices = vec![device; devices];
        draft
    };
    let read = |bytes: Vec<u8>| PlanFile::new(bytes).plan().map(drop).map_err(|e| e.to_string());
    let most = limits::DEVICES;
    assert_eq!(read(with(most, 256).to_bytes().unwrap()), Ok(()));
    assert!(with(most + 1, 1).to_bytes().is_err());
    for many in [most + 1, 65_536] {
        let error = read(with(many, 1).forged().unwrap()).unwrap_err();
        assert!(error.contains("more than 64 devices"), "{error}");
    }
    // A writer puts depths in their range; one that does not is refused.
    let mut deep = with(1, 255).to_bytes().unwrap();
    let at = deep
        .windows(4)
        .position(|four| four == 255u32.to_le_bytes())
        .unwrap();
    deep[at..at + 4].copy_from_slice(&257u32.to_le_bytes());
    assert_eq!(
        read(repaired(&deep)),
        Err("the plan is damaged (device 0): record or make it again".into())
    );
}

/// The file with its checksums made right.
fn repaired(bytes: &[u8]) -> Vec<u8> {
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let mut file = bytes.to_vec();
    let sections = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    for row in (0..sections).map(|row| 32 + row * 40) {
        let check = crc32fast::hash(&bytes[number(row + 8)..][..number(row + 16)]);
        file[row + 32..row + 36].copy_from_slice(&check.to_le_bytes());
    }
    file[24..28].fill(0);
    let check = crc32fast::hash(&file[..32 + 40 * sections]);
    file[24..28].copy_from_slice(&check.to_le_bytes());
    file
}

#[test]
fn long_commands_and_reasons_are_cut_and_long_names_of_stages_refused() {
    let mut trace = one(trace());
    trace.meta.command = vec!["x".into(); limits::WORDS + 1];
    let read = |trace: &Trace| Trace::from_bytes(&trace.to_bytes().unwrap()).unwrap();
    assert_eq!(read(&trace).meta.command.len(), limits::WORDS);
    trace.meta.command = vec!["tar".into(), "x".repeat(limits::WORD_BYTES), "y".into()];
    assert_eq!(read(&trace).meta.command, ["tar"]);
    trace.marks = vec![Mark {
        time_ns: 0,
        stage: "x".repeat(limits::STAGE_NAME + 1),
    }];
    assert!(trace.to_bytes().is_err());

    let mut outcome = outcome();
    outcome.not_learned = Some("ü".repeat(limits::REASON));
    let read = Outcome::from_bytes(&outcome.to_bytes().unwrap()).unwrap();
    assert_eq!(read.not_learned, Some("ü".repeat(limits::REASON / 2)));
}

#[test]
fn a_profile_that_is_too_large_keeps_what_weighs_most() {
    let mut profile = one(profile());
    let entry = |index: usize| Entry {
        weight: index as f32 / (limits::ENTRIES + 10) as f32,
        ..testing::entry(&format!("/{index:06}"))
    };
    profile.entries = (0..limits::ENTRIES + 10).map(entry).collect();
    assert!(profile.to_bytes().is_err());
    assert_eq!(profile.fit(), 10);
    assert_eq!(profile.entries[0].path, "/000010".into());
    assert_eq!(
        Profile::from_bytes(&profile.to_bytes().unwrap()).unwrap(),
        profile
    );
    assert_eq!(profile.fit(), 0);

    let ranges = |count: usize| -> Vec<WeightedRange> {
        let range = |index: usize| testing::range(2 * index as u64, 1, 1.0 - (index % 2) as f32);
        (0..count).map(range).collect()
    };
    let lighter = Entry {
        weight: 0.5,
        ranges: ranges(100),
        ..testing::entry("/a")
    };
    let heavier = Entry {
        ranges: ranges(limits::RANGES - 50),
        ..testing::entry("/b")
    };
    profile.entries = vec![lighter, heavier];
    assert_eq!(profile.fit(), 0);
    assert_eq!(profile.entries[1].ranges.len(), limits::RANGES - 50);
    assert_eq!(
        profile.entries[0].ranges,
        ranges(100).into_iter().step_by(2).collect::<Vec<_>>()
    );
    assert_eq!(
        Profile::from_bytes(&profile.to_bytes().unwrap()).unwrap(),
        profile
    );
}

#[test]
fn touches_and_waiting_come_back_and_older_readers_skip_them() {
    let set = |ranges: &[(u64, u64)]| ranges.iter().map(|(s, n)| PageRange::new(*s, *n)).collect();
    let entry = |path: &str| testing::entry(path);
    let with = Profile {
        waited_ns: 7,
        exact_at: 2,
        entries: vec![
            entry("/a"),
            Entry {
                touches: Some(Touches {
                    touched: set(&[(0, 3)]),
                    once: set(&[(3, 4)]),
                    unused: set(&[(8, 1), (20, 12)]),
                }),
                ..entry("/b")
            },
        ],
        ..testing::profile(Vec::new())
    };
    let bytes = with.to_bytes().unwrap();
    assert_eq!(Profile::from_bytes(&bytes).unwrap(), with);
    // A reader of the version before finds the profile as it knows it.
    let file = super::Container::new(Kind::Profile, &bytes).unwrap();
    let mut old = Writer::new(Kind::Profile);
    for tag in file.tags() {
        let renamed = match &tag {
            b"TCHS" => *b"NEW!",
            b"WAIT" => *b"NEW2",
            b"NAMD" => *b"NEW3",
            _ => tag,
        };
        old.raw(&renamed, &file.section(&tag, usize::MAX).unwrap());
    }
    let without = Profile {
        waited_ns: 0,
        exact_at: 0,
        named: Default::default(),
        entries: vec![entry("/a"), entry("/b")],
        ..with
    };
    assert_eq!(Profile::from_bytes(&old.finish().unwrap()).unwrap(), without);
}

#[test]
fn more_touches_than_a_profile_may_have_are_refused_and_made_to_fit() {
    let many = |count: usize| (0..count as u64).map(|n| PageRange::new(2 * n, 1)).collect();
    let entry = |path: &str, count| Entry {
        touches: Some(Touches {
            unused: many(count),
            ..Touches::default()
        }),
        ..testing::entry(path)
    };
    let mut profile = testing::profile(vec![entry("/a", limits::TOUCH_RANGES), entry("/b", 1)]);
    let refused = Profile::from_bytes(&profile.forged().unwrap())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("ranges of touches"), "{refused}");
    assert_eq!(profile.fit(), 0, "no entry is dropped for them");
    assert_eq!(
        Profile::from_bytes(&profile.to_bytes().unwrap()).unwrap(),
        profile
    );
    assert!(profile.entries[0].touches.is_some() && profile.entries[1].touches.is_none());
}
