//! Round trips, and what happens to damaged files.

use super::Kind;
use super::container::{Container, FormatError, Writer};
use crate::activity::{self, Activity, ThreadState};
use crate::machine::{Cost, DeviceClass, FirstTouch};
use crate::outcome::{Mode, Precision, Resident, Skipped, StageOutcome};
use crate::plan::{
    Fill, NO_FILE, PlanDevice, PlanDraft, PlanFile, PlanFileEntry, Request, RequestKind, Touch,
};
use crate::profile::{Entry, Need, Policy, Touches, Version, WeightedRange};
use crate::testing::Forged;
use crate::trace::*;
use crate::{FilePath, Key, Outcome, PageRange, Profile, Trace, limits, testing};
use proptest::prelude::*;

fn path() -> impl Strategy<Value = FilePath> {
    let byte = (1u8..=255).prop_filter("a slash ends a component", |byte| *byte != b'/');
    let component =
        prop::collection::vec(byte, 1..20).prop_filter("dots are no names", |c| c != b"." && c != b"..");
    prop::collection::vec(component, 1..4).prop_map(|components| {
        let path: Vec<u8> = components.iter().flat_map(|c| [b"/", &c[..]].concat()).collect();
        FilePath::from(path)
    })
}

pub(super) fn trace() -> impl Strategy<Value = Trace> {
    let kind = prop_oneof![
        Just(UseKind::Read),
        Just(UseKind::Map),
        Just(UseKind::Fault),
        Just(UseKind::Add),
        Just(UseKind::Around)
    ];
    let uses = prop::collection::vec(
        (any::<u32>(), 0u32..2, 0u32..3, any::<u32>(), 1u32..5000, kind),
        0..100,
    );
    let look = prop_oneof![
        Just(LookupKind::Open),
        Just(LookupKind::Stat),
        Just(LookupKind::List)
    ];
    let lookups = prop::collection::vec((any::<u32>(), 0u32..2, path(), look, any::<bool>()), 0..20);
    (uses, lookups, path(), path(), any::<u64>(), any::<i64>()).prop_map(|(uses, lookups, p1, p2, n, t)| {
        Trace {
            meta: Meta {
                started_unix_ns: n,
                kernel: "6.18".into(),
                page_size: 4096,
                backend: Backend::Bpf,
                evidence: Evidence::Uses,
                scope: Scope::Tree,
                command: vec!["a".into(), "b c".into()],
                recorder: "0.1".into(),
                replayed: false,
            },
            end: End {
                reason: EndReason::Exit(256),
                elapsed_ns: n,
                cpu_ns: None,
                events: 0,
                blocked_ns: Some(n),
            },
            lost: Lost {
                events: 0,
                paths: n,
                dropped: n,
                late: true,
            },
            processes: vec![
                Process {
                    pid: 7,
                    parent: None,
                    start_ns: 0,
                    executable: p1.clone(),
                },
                Process {
                    pid: 8,
                    parent: Some(0),
                    start_ns: n,
                    executable: p2.clone(),
                },
            ],
            filesystems: vec![Filesystem {
                major: 7,
                minor: 1,
                fstype: "ext4".into(),
                mount_point: "/".into(),
                local: true,
            }],
            files: [p1.clone(), p2.clone(), p1]
                .into_iter()
                .map(|path| File {
                    filesystem: Some(0),
                    path,
                    overlay: Some(p2.clone()),
                    inode: n,
                    generation: 5,
                    size: n,
                    mtime_ns: t,
                    mode: 0o100644,
                    state: FileState::Present,
                })
                .collect(),
            mappings: vec![Mapping {
                file: 2,
                pages: PageRange::new(n >> 20, 7),
            }],
            uses: uses
                .into_iter()
                .map(|(t, process, file, start, pages, kind)| Use {
                    time_ns: u64::from(t) * 100_000,
                    process,
                    file,
                    start: u64::from(start),
                    pages,
                    kind,
                })
                .collect(),
            lookups: lookups
                .into_iter()
                .map(|(t, process, path, kind, found)| Lookup {
                    time_ns: u64::from(t) * 100_000,
                    process,
                    path,
                    kind,
                    found,
                })
                .collect(),
            metadata: vec![MetadataMiss {
                time_ns: n - n % 100_000,
                major: 7,
                minor: 1,
                start: n >> 13,
                pages: 3,
            }],
            marks: vec![Mark {
                time_ns: n,
                stage: "login".into(),
            }],
            activity: None,
            ahead: (n % 3 > 0).then(|| {
                let one = |i: u64| Ahead {
                    file: (i % 3) as u32,
                    start: (n >> 20) % (1 << 50) + i,
                    pages: 1 + i as u32,
                    issued_ns: i * 300_000,
                    done_ns: i * 300_000 + (n >> 20) * 100_000,
                };
                (0..n % 3 * 4).map(one).collect()
            }),
        }
    })
}

/// A trace of two processes with activity.
fn active() -> impl Strategy<Value = Trace> {
    let kind = prop_oneof![
        Just(activity::RequestKind::Read),
        Just(activity::RequestKind::Write),
        Just(activity::RequestKind::Discard),
        Just(activity::RequestKind::Flush),
        Just(activity::RequestKind::Other)
    ];
    let who = prop::option::of(0u32..2);
    let request = (
        any::<u32>(),
        prop::option::of(any::<u32>()),
        any::<u32>(),
        any::<u32>(),
        kind,
        who,
    );
    let state = prop_oneof![
        Just(ThreadState::Running),
        Just(ThreadState::WaitingForDisk),
        Just(ThreadState::Sleeping)
    ];
    let slice = (any::<u32>(), any::<u32>(), 0u32..2, any::<u32>(), state);
    let samples = prop::collection::vec((any::<u32>(), 0.0f32..=1.0, any::<[u64; 3]>()), 0..9);
    let requests = prop::collection::vec(request, 0..30);
    let slices = prop::collection::vec(slice, 0..30);
    (trace(), requests, slices, samples, any::<u64>()).prop_map(
        |(mut it, requests, slices, samples, lost)| {
            let us = |n: u32| u64::from(n) * 1000;
            let mut own = Activity {
                lost,
                ..testing::activity()
            };
            own.requests = requests
                .into_iter()
                .map(
                    |(at, took, sector, sectors, kind, process)| activity::BlockRequest {
                        issued_ns: us(at),
                        completed_ns: took.map(|took| us(at) + us(took)),
                        device: 0,
                        sector: sector.into(),
                        sectors,
                        kind,
                        metadata: sector % 2 == 1,
                        ahead: sector % 3 == 1,
                        process,
                    },
                )
                .collect();
            own.requests.sort_by_key(|it| it.issued_ns);
            own.slices = slices
                .into_iter()
                .map(|(from, lasts, process, thread, state)| activity::Slice {
                    from_ns: us(from),
                    to_ns: us(from) + us(lasts),
                    process,
                    thread,
                    state,
                })
                .collect();
            own.slices.sort_by_key(|it| it.from_ns);
            let mut samples = samples;
            samples.sort_by_key(|(at, ..)| *at);
            own.processors = samples
                .iter()
                .map(|(at, busy, _)| activity::BusySample {
                    time_ns: us(*at),
                    busy: *busy,
                })
                .collect();
            own.memory = samples
                .iter()
                .map(|(at, _, [free, page_cache, dirty])| activity::MemorySample {
                    time_ns: us(*at),
                    free: *free,
                    page_cache: *page_cache,
                    dirty: *dirty,
                })
                .collect();
            it.activity = Some(own);
            it
        },
    )
}

fn profile() -> impl Strategy<Value = Profile> {
    let ranges = prop::collection::vec((1u64..9, 1u32..9, 0.0f32..=1.0), 0..20);
    let tail = prop::option::of((0u64..60, 1u32..=4, 0.0f32..=1.0));
    let set = || prop::collection::vec((0u64..99, 1u64..9), 0..9);
    let touches = prop::option::of((set(), set(), set()));
    let extra = (tail, touches);
    let entries = prop::collection::btree_map(path(), (ranges, extra, 0.0f32..=1.0, any::<i64>()), 0..10);
    (entries, any::<u64>()).prop_map(|(entries, n)| Profile {
        key: Key::new("/usr/bin/soffice").unwrap(),
        page_size: 4096,
        runs: 3,
        mass: 2.5,
        cpu_ns: Some(n),
        timeline_ns: n,
        updated_unix_ns: n,
        exact_at: (n % 3) as u32,
        waited_ns: n % 5,
        policy: Policy::KOfN { k: 2, n: 3 },
        stages: vec!["start".into()],
        entries: entries
            .into_iter()
            .map(|(path, (ranges, (tail, touches), weight, t))| {
                let set = |ranges: Vec<(u64, u64)>| {
                    let ranges = ranges.into_iter();
                    ranges
                        .map(|(start, pages)| PageRange::new(start, pages))
                        .collect()
                };
                let mut start = 0;
                let ranges = ranges.into_iter().map(|(gap, pages, weight)| {
                    start += gap;
                    let range = WeightedRange {
                        start,
                        pages,
                        weight,
                        first_use_ns: n,
                        stage: 0,
                    };
                    start += u64::from(pages);
                    range
                });
                Entry {
                    path,
                    overlay: None,
                    need: Need::Open,
                    weight,
                    first_use_ns: n,
                    stage: 0,
                    version: Some(Version {
                        size: n,
                        mtime_ns: t,
                        generation: 1,
                    }),
                    ranges: ranges.collect(),
                    tail: tail.map(|(start, pages, weight)| {
                        vec![WeightedRange {
                            start,
                            pages,
                            weight,
                            first_use_ns: n,
                            stage: 0,
                        }]
                    }),
                    touches: touches.map(|(touched, once, unused)| Touches {
                        touched: set(touched),
                        once: set(once),
                        unused: set(unused),
                    }),
                }
            })
            .collect(),
    })
}

fn draft() -> impl Strategy<Value = PlanDraft> {
    let request = (0usize..4, any::<u32>(), 1u32..1 << 20, any::<u32>());
    (prop::collection::vec(request, 0..50), path(), any::<u64>()).prop_map(|(requests, path, n)| PlanDraft {
        key: Key::new("boot").unwrap(),
        page_size: 4096,
        created_unix_ns: n,
        budget: n,
        cut: requests.len() as u32,
        stages: vec!["start".into(), "quiet".into()],
        devices: vec![PlanDevice {
            mount_point: "/".into(),
            uuid: [9; 16],
            cost: Cost {
                class: DeviceClass::Network,
                bandwidth: 125e6,
                latency: 0.0007,
                depth: 16,
            },
            request_limit: 128 << 10,
            hold: 3,
        }],
        files: vec![PlanFileEntry {
            path,
            device: 0,
            inode: n,
            generation: 3,
            size: n,
            mtime_ns: -1,
        }],
        requests: requests
            .into_iter()
            .map(|(kind, offset, length, deadline_us)| {
                let kind = RequestKind::ALL[kind];
                let reads = matches!(kind, RequestKind::Metadata | RequestKind::Data);
                Request {
                    kind,
                    stage: 1,
                    device: 0,
                    file: if kind == RequestKind::Metadata { NO_FILE } else { 0 },
                    offset: u64::from(offset),
                    length: if reads { u64::from(length) } else { 0 },
                    bridged: if reads { u64::from(length / 2) } else { 0 },
                    deadline_us,
                    from_end: kind == RequestKind::Data && length % 2 == 1,
                    follows: kind == RequestKind::Data && length % 3 == 1,
                }
            })
            .collect(),
        fills: Vec::new(),
    })
}

/// The plan, of which what its requests for metadata read is fetched first.
fn filled(mut draft: PlanDraft) -> PlanDraft {
    let metadata = draft.requests.iter().zip(0..);
    let metadata = metadata.filter(|(request, _)| request.kind == RequestKind::Metadata);
    let touches = metadata.map(|(request, number)| Touch {
        offset: request.offset / GRANULE * GRANULE,
        request: number,
    });
    draft.fills = vec![Fill {
        device: 0,
        first_touch: FirstTouch {
            granule: GRANULE,
            latency: 0.033,
            depth: 10,
        },
        touches: touches.collect(),
    }];
    draft
}

const GRANULE: u64 = 512 << 10;

fn outcome() -> Outcome {
    Outcome {
        key: Key::new("x").unwrap(),
        started_unix_ns: 1,
        mode: Mode::Replay,
        elapsed_ns: 2,
        status: Some(0),
        blocked_ns: None,
        resident_before: Some(Resident {
            sampled_pages: 64,
            resident_pages: 7,
        }),
        replay_ns: 3,
        stages: vec![StageOutcome {
            stage: "start".into(),
            issued_pages: 4,
            ..StageOutcome::default()
        }],
        skipped: Skipped {
            changed: 5,
            ..Skipped::default()
        },
        memory_available: 6,
        memory_pressure: Some(0.5),
        not_learned: None,
        first_request_ns: Some(7),
        precision: Some(Precision {
            needed_pages: 300,
            uncertain_pages: 7,
        }),
        pace: Some(1.5),
    }
}

/// Reads the bytes as each kind of file; that it returns is what is tested.
fn read_all(bytes: &[u8]) -> [bool; 4] {
    [
        Trace::from_bytes(bytes).is_ok(),
        Profile::from_bytes(bytes).is_ok(),
        PlanFile(bytes.to_vec()).plan().is_ok(),
        Outcome::from_bytes(bytes).is_ok(),
    ]
}

proptest! {
    #[test]
    fn traces_come_back(trace in trace()) {
        prop_assert_eq!(Trace::from_bytes(&trace.to_bytes().unwrap()).unwrap(), trace);
    }

    #[test]
    fn traces_with_activity_come_back(trace in active()) {
        prop_assert_eq!(Trace::from_bytes(&trace.to_bytes().unwrap()).unwrap(), trace);
    }

    #[test]
    fn profiles_come_back(profile in profile()) {
        prop_assert_eq!(Profile::from_bytes(&profile.to_bytes().unwrap()).unwrap(), profile);
    }

    #[test]
    fn plans_come_back(draft in draft()) {
        let file = PlanFile(draft.to_bytes().unwrap());
        prop_assert_eq!(file.plan().unwrap().to_draft().unwrap(), draft.clone());
        let draft = filled(draft);
        let file = PlanFile(draft.to_bytes().unwrap());
        prop_assert_eq!(file.plan().unwrap().to_draft().unwrap(), draft);
    }

    #[test]
    fn a_changed_byte_is_noticed(trace in trace(), at in any::<prop::sample::Index>(), with in 1u8..=255) {
        let mut bytes = trace.to_bytes().unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= with;
        // A byte of padding, or the minor version, whose checksum then fails, may differ; nothing else may pass.
        if let Ok(read) = Trace::from_bytes(&bytes) {
            prop_assert_eq!(read, trace);
        }
    }
}

#[test]
fn an_outcome_of_the_version_before_is_old_not_damaged() {
    let mut bytes = outcome().to_bytes().unwrap();
    bytes[8..10].copy_from_slice(&1u16.to_le_bytes());
    let read = Outcome::from_bytes(&bytes);
    assert!(
        matches!(
            read,
            Err(FormatError::Old {
                found: 1,
                read: 2,
                ..
            })
        ),
        "{read:?}"
    );
}

#[test]
fn an_outcome_that_ends_before_its_last_value_has_none() {
    let without = Outcome {
        first_request_ns: None,
        precision: None,
        pace: None,
        ..outcome()
    };
    let mut values = postcard::to_stdvec(&without).unwrap();
    for value in ["pace", "precision", "first_request_ns"] {
        assert_eq!(values.pop(), Some(0), "{value} is an option that is none");
        let mut file = Writer::new(Kind::Outcome);
        file.compressed(b"OUTC", &values, limits::OUTCOME_FILE).unwrap();
        assert_eq!(Outcome::from_bytes(&file.finish().unwrap()).unwrap(), without);
    }
}

#[test]
fn outcomes_come_back() {
    assert_eq!(
        Outcome::from_bytes(&outcome().to_bytes().unwrap()).unwrap(),
        outcome()
    );
}

#[test]
fn what_activity_cannot_be_is_refused() {
    let sound = Trace {
        activity: Some(testing::activity()),
        ..testing::trace()
    };
    let bytes = sound.to_bytes().unwrap();
    assert_eq!(u16::from_le_bytes([bytes[10], bytes[11]]), 1, "minor version");
    type Change = fn(&mut Activity);
    let changes: [(Change, &str); 12] = [
        (|it| it.requests[0].device = 1, "not listed"),
        (|it| it.requests[0].process = Some(1), "not listed"),
        (|it| it.requests[0].sector = u64::MAX, "largest device"),
        (|it| it.requests[0].completed_ns = Some(0), "before it was issued"),
        (|it| it.slices[0].process = 1, "not listed"),
        (|it| it.slices[0].to_ns = 0, "before it begins"),
        (|it| it.slices.swap(0, 1), "order of time"),
        (|it| it.processors[0].busy = f32::NAN, "no share"),
        (|it| it.processors[0].busy = 1.5, "no share"),
        (|it| it.devices[0].name = "a\0b".into(), "NUL"),
        (|it| it.devices[0].name = "x".repeat(65), "more than 64"),
        (
            |it| it.devices = vec![it.devices[0].clone(); 1025],
            "more than 1024",
        ),
    ];
    for (index, (change, why)) in changes.into_iter().enumerate() {
        let mut bad = sound.clone();
        change(bad.activity.as_mut().unwrap());
        let error = bad.to_bytes().unwrap_err().to_string();
        assert!(error.contains(why), "{index}: {error} lacks {why:?}");
        // A forger's file is refused, or says something else that can be: times that go back cannot be written down.
        if let Ok(read) = Trace::from_bytes(&bad.forged().unwrap()) {
            assert_ne!(read, bad, "{index}");
            assert!(read.to_bytes().is_ok(), "{index}");
        }
    }
}

#[test]
fn a_reader_of_the_version_before_finds_what_it_knows() {
    // It skips ACTV, as any section whose tag it does not know.
    let with = Trace {
        activity: Some(testing::activity()),
        ..testing::trace()
    };
    let bytes = with.to_bytes().unwrap();
    let file = super::Container::new(Kind::Trace, &bytes).unwrap();
    let mut old = Writer::new(Kind::Trace);
    for tag in file.tags() {
        let renamed = if tag == *b"ACTV" { *b"NEW!" } else { tag };
        old.raw(&renamed, &file.section(&tag, usize::MAX).unwrap());
    }
    let read = Trace::from_bytes(&old.finish().unwrap()).unwrap();
    assert_eq!(read, testing::trace());
}

/// Sets each field of header and table to zero, the largest value and a mixed one, with the header's checksum made
/// right again, so that the checks behind it are reached.
fn bend_fields(bytes: &[u8]) -> Vec<Vec<u8>> {
    let sections = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let mut fields = vec![(0, 8), (8, 2), (10, 2), (12, 4), (16, 8), (24, 4), (28, 4)];
    for row in 0..sections {
        let at = 32 + row * 40;
        fields.extend([
            (at, 4),
            (at + 4, 4),
            (at + 8, 8),
            (at + 16, 8),
            (at + 24, 8),
            (at + 32, 4),
            (at + 36, 4),
        ]);
    }
    let mut bent = Vec::new();
    for (at, length) in fields {
        for fill in [0u8, 0xff, 0xa5] {
            let mut copy = bytes.to_vec();
            copy[at..at + length].fill(fill);
            bent.push(copy.clone());
            let table = 32 + 40 * sections;
            copy[24..28].fill(0);
            let check = crc32fast::hash(&copy[..table]);
            copy[24..28].copy_from_slice(&check.to_le_bytes());
            bent.push(copy);
        }
    }
    bent
}

#[test]
fn cut_and_bent_files_are_refused_in_time() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let files = [
        active()
            .new_tree(&mut runner)
            .unwrap()
            .current()
            .to_bytes()
            .unwrap(),
        profile()
            .new_tree(&mut runner)
            .unwrap()
            .current()
            .to_bytes()
            .unwrap(),
        draft()
            .new_tree(&mut runner)
            .unwrap()
            .current()
            .to_bytes()
            .unwrap(),
        outcome().to_bytes().unwrap(),
    ];
    for file in &files {
        assert_eq!(
            read_all(file).iter().filter(|ok| **ok).count(),
            1,
            "a file is of one kind"
        );
        for cut in (0..file.len()).step_by(64) {
            assert_eq!(read_all(&file[..cut]), [false; 4], "cut at {cut}");
        }
        for bent in bend_fields(file) {
            // What it costs is bounded by `tests/bounds.rs` and by the fuzzers.
            read_all(&bent);
        }
    }
}

#[test]
fn later_minor_versions_with_unknown_sections_are_read() {
    let mut file = Writer::new(Kind::Outcome);
    file.raw(b"NEW!", b"from the future");
    file.value(b"OUTC", &outcome(), limits::OUTCOME_FILE).unwrap();
    assert_eq!(Outcome::from_bytes(&file.finish().unwrap()).unwrap(), outcome());
}

#[test]
fn errors_say_what_is_wrong() {
    let bytes = outcome().to_bytes().unwrap();
    let text = |r: Result<Trace, super::FormatError>| r.unwrap_err().to_string();
    assert!(text(Trace::from_bytes(b"")).contains("no headstart trace"));
    assert!(
        text(Trace::from_bytes(&bytes)).contains("that of a outcome")
            || text(Trace::from_bytes(&bytes)).contains("outcome")
    );
    let mut later = bytes.clone();
    later[8] += 1;
    assert!(
        Outcome::from_bytes(&later)
            .unwrap_err()
            .to_string()
            .contains("newer headstart")
    );
    let mut earlier = one(trace()).to_bytes().unwrap();
    earlier[8] = 1;
    assert!(text(Trace::from_bytes(&earlier)).contains("version 1, this headstart reads version 3"));
}

/// Any one trace of the strategy.
pub(super) fn one<T>(strategy: impl Strategy<Value = T>) -> T {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    strategy.new_tree(&mut runner).unwrap().current()
}

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
fn audit_05_no_reader_takes_a_path_with_another_spelling() {
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
            refused(PlanFile(draft.forged().unwrap()).plan().map(drop).unwrap_err());
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
            PlanFile(draft.forged().unwrap()).plan().map(drop).unwrap_err(),
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
        let file = PlanFile(file.finish().unwrap());
        file.plan().map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(made(2), Ok(()));
    for (count, why) in [(1, "granules of no device"), (3, "fill 0"), (u64::MAX, "fill 0")] {
        let error = made(count).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn audit_12_a_plan_has_few_devices_and_no_deep_queue() {
    let with = |devices: usize, depth: u32| {
        let mut draft = one(draft());
        let mut device = draft.devices[0].clone();
        device.cost.depth = depth;
        draft.devices = vec![device; devices];
        draft
    };
    let read = |bytes: Vec<u8>| PlanFile(bytes).plan().map(drop).map_err(|e| e.to_string());
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
            _ => tag,
        };
        old.raw(&renamed, &file.section(&tag, usize::MAX).unwrap());
    }
    let without = Profile {
        waited_ns: 0,
        exact_at: 0,
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
