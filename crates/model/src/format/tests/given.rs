//! Nouns of every shape.

use crate::activity::{self, Activity, ThreadState};
use crate::machine::{Compression, Cost, DeviceClass, FirstTouch};
use crate::outcome::{Decisions, Mode, Precision, Resident, Skipped, StageOutcome, Used};
use crate::plan::{Fill, NO_FILE, PlanDevice, PlanDraft, PlanFileEntry, Request, RequestKind, Touch};
use crate::profile::{Entry, Need, Policy, Touches, Version, WeightedRange};
use crate::trace::*;
use crate::{FilePath, Key, Outcome, PageRange, Profile, Trace, WindowUse, testing};
use proptest::prelude::*;

pub(super) fn path() -> impl Strategy<Value = FilePath> {
    let byte = (1u8..=255).prop_filter("a slash ends a component", |byte| *byte != b'/');
    let component =
        prop::collection::vec(byte, 1..20).prop_filter("dots are no names", |c| c != b"." && c != b"..");
    prop::collection::vec(component, 1..4).prop_map(|components| {
        let path: Vec<u8> = components.iter().flat_map(|c| [b"/", &c[..]].concat()).collect();
        FilePath::from(path)
    })
}

/// A row of WIND, made of the numbers of a use.
fn window(&(t, process, file, window, pages, kind): &(u32, u32, u32, u32, u32, UseKind)) -> WindowUse {
    WindowUse {
        time_ns: u64::from(t) * 100_000,
        process,
        file,
        window: u64::from(window),
        pages: pages as u16 | 1 << (pages % 16),
        kind,
    }
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
            windows: uses.iter().step_by(2).map(window).collect(),
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
pub(super) fn active() -> impl Strategy<Value = Trace> {
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
            own.requests.sort_by_key(|request| request.issued_ns);
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
            own.slices.sort_by_key(|slice| slice.from_ns);
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

pub(super) fn profile() -> impl Strategy<Value = Profile> {
    let ranges = prop::collection::vec((1u64..9, 1u32..9, 0.0f32..=1.0), 0..20);
    let tail = prop::option::of((0u64..60, 1u32..=4, 0.0f32..=1.0));
    let set = || prop::collection::vec((0u64..99, 1u64..9), 0..9);
    let touches = prop::option::of((set(), set(), set()));
    let extra = (tail, touches);
    let entries = prop::collection::btree_map(path(), (ranges, extra, 0.0f32..=1.0, any::<i64>()), 0..10);
    (entries, any::<u64>()).prop_map(|(entries, n)| Profile {
        named: (entries.keys().cloned().zip(0u8..).filter(|(_, at)| at % 3 == 0))
            .map(|(path, at)| (path, f32::from(at) / 256.0))
            .collect(),
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

pub(super) fn draft() -> impl Strategy<Value = PlanDraft> {
    let request = (0usize..4, any::<u32>(), 1u32..1 << 20, any::<u32>());
    (prop::collection::vec(request, 0..50), path(), any::<u64>())
        .prop_map(|(requests, path, n)| PlanDraft {
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
                compression: (n % 2 == 0).then_some(Compression {
                    block: 4096 << (n % 9),
                    rate: n as u16,
                }),
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
            named: Vec::new(),
        })
        .prop_map(|mut draft| {
            draft.named = (0..draft.requests.len() as u32)
                .filter(|at| at % 3 == 1)
                .collect();
            draft
        })
}

/// The plan, of which what its requests for metadata read is fetched first.
pub(super) fn filled(mut draft: PlanDraft) -> PlanDraft {
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

pub(super) const GRANULE: u64 = 512 << 10;

pub(super) fn outcome() -> Outcome {
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
        unrecorded: true,
        used: Some(Used {
            pages: 900,
            unreachable_pages: 30,
        }),
        decisions: Decisions {
            looks: 40,
            without_room: 300,
            gave_way: 2,
            ..Decisions::default()
        },
        memory_needed: Some(1 << 28),
    }
}

/// Any one trace of the strategy.
pub(in super::super) fn one<T>(strategy: impl Strategy<Value = T>) -> T {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    strategy.new_tree(&mut runner).unwrap().current()
}
