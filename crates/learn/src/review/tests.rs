//! What the review counts.

use super::*;
use crate::tests::trace;
use crate::{ahead, served};
use headstart_model::outcome::Issued;
use headstart_model::plan::{NO_FILE, PlanDevice, PlanDraft, PlanFile, PlanFileEntry, Request};
use headstart_model::profile::{Entry, Need, Policy, Version, WeightedRange};
use headstart_model::testing;
use headstart_model::trace::{FileState, Use};

const PAGE: u64 = 4096;
const MS: u64 = 1_000_000;

/// A data request for `/f`: (start, pages, stage, issued at, milliseconds), and what of it was resident
/// before.
type Row<'a> = (u64, u64, u8, u64, &'a [(u64, u64)]);

/// A replay of the plan with these requests, and a trace.
struct Case {
    path: &'static str,
    plan: PlanDraft,
    report: ReplayReport,
    trace: Trace,
    profile: Option<Profile>,
    trace_began_ns: i64,
}

/// A start that used the pages, the first at once and each further a millisecond later.
fn case(requests: &[Row<'_>], uses: &[(u64, u32, UseKind)]) -> Case {
    let mut case = Case {
        path: "/f",
        plan: PlanDraft {
            stages: vec!["start".into(), "late".into()],
            devices: vec![PlanDevice::new("/".into(), testing::FLASH)],
            ..PlanDraft::new(Key::new("k").unwrap(), PAGE as u32)
        },
        report: ReplayReport::default(),
        trace: trace(1000, uses),
        profile: None,
        trace_began_ns: 0,
    };
    for (start, pages, stage, issued_ms, resident) in requests {
        case.ask(RequestKind::Data, start * PAGE, pages * PAGE, *stage);
        let issued = case.report.issued.last_mut().unwrap();
        issued.issued_ns = issued_ms * MS;
        issued.resident = resident
            .iter()
            .map(|(start, pages)| PageRange::new(*start, *pages))
            .collect();
        issued.arrived_pages = *pages;
    }
    case
}

impl Case {
    fn ask(&mut self, kind: RequestKind, offset: u64, length: u64, stage: u8) {
        let file = if kind == RequestKind::Metadata { NO_FILE } else { 0 };
        self.plan.requests.push(Request {
            stage,
            offset,
            ..Request::new(kind, file, length)
        });
        self.report.issued.push(Issued {
            request: self.report.issued.len() as u32,
            pages: PageRange {
                start: offset / 4096,
                end: (offset + length).div_ceil(4096),
            },
            issued_ns: 0,
            done_ns: u64::MAX,
            resident: Vec::new(),
            arrived_pages: 0,
        });
    }

    /// Each use with what was done for it, joined as a trace is kept: used, late, missed.
    fn served(&self) -> [u64; 3] {
        let file = self.plan_file();
        let plan = file.plan().unwrap();
        let mut trace = self.trace.clone();
        trace.ahead = ahead(&trace, &plan, &self.report, self.trace_began_ns);
        let served = served(&trace);
        assert_eq!(served.len(), trace.uses.len());
        served.iter().fold([0; 3], |[used, late, missed], it| {
            [used + it.in_time, late + it.late, missed + it.missed]
        })
    }

    fn plan_file(&self) -> PlanFile {
        let mut plan = self.plan.clone();
        plan.files = vec![PlanFileEntry {
            size: 1000 * PAGE,
            ..testing::planned(self.path)
        }];
        PlanFile::new(plan.to_bytes().unwrap())
    }

    fn stages(&self) -> Vec<StageOutcome> {
        self.outcome().stages
    }

    fn outcome(&self) -> Outcome {
        let file = self.plan_file();
        let plan = file.plan().unwrap();
        review(&Reviewed {
            key: Key::new("k").unwrap(),
            mode: Mode::Replay,
            trace: &self.trace,
            replay: Some((&plan, &self.report)),
            profile: self.profile.as_ref(),
            trace_began_ns: self.trace_began_ns,
            not_learned: None,
        })
    }

    fn start(&self) -> StageOutcome {
        self.stages().remove(0)
    }

    /// What the review counts and what the uses one by one come to are the same where no two requests ask for
    /// a page, and nothing was mapped around a fault.
    fn agree(&mut self) {
        let served = self.served();
        self.trace.uses.retain(|used| used.kind != Around);
        assert_eq!(
            self.served(),
            served,
            "what was mapped around a fault does not count"
        );
        let sum_of = |value: fn(&StageOutcome) -> u64| self.stages().iter().map(value).sum();
        let reviewed = [
            sum_of(|s| s.used_pages),
            sum_of(|s| s.late_pages),
            sum_of(|s| s.missed_pages),
        ];
        assert_eq!(self.served(), reviewed);
    }
}

/// Used, late, wasted, missed.
fn counts(stage: &StageOutcome) -> [u64; 4] {
    [
        stage.used_pages,
        stage.late_pages,
        stage.wasted_pages,
        stage.missed_pages,
    ]
}

fn profile(path: &str, overlay: Option<&str>, ranges: &[(u64, u32, f32)]) -> Profile {
    Profile {
        entries: vec![Entry {
            path: path.into(),
            overlay: overlay.map(Into::into),
            need: Need::Open,
            weight: 1.0,
            first_use_ns: 0,
            stage: 0,
            version: Some(Version {
                size: 1000 * PAGE,
                mtime_ns: 5,
                generation: 1,
            }),
            ranges: ranges
                .iter()
                .map(|(start, pages, weight)| WeightedRange {
                    start: *start,
                    pages: *pages,
                    weight: *weight,
                    first_use_ns: 0,
                    stage: 0,
                })
                .collect(),
            tail: None,
            touches: None,
        }],
        ..Profile::new(Key::new("k").unwrap(), PAGE as u32, Policy::Decay)
    }
}

use UseKind::{Add, Around, Fault, Map, Read};

#[test]
fn pages_are_used_or_wasted_or_missed() {
    let case = case(
        &[(0, 10, 0, 0, &[])],
        &[(0, 4, Read), (8, 6, Read), (500, 3, Map)],
    );
    let stage = case.start();
    assert_eq!(counts(&stage), [6, 0, 4, 7]);
    assert_eq!((stage.data_requests, stage.issued_pages), (1, 10));
    assert_eq!((stage.resident_pages, stage.arrived_pages), (0, 10));
}

#[test]
fn a_page_used_before_its_request_was_issued_is_late_and_not_wasted() {
    // Issued after 2 ms; used at 0, 1, 2, 3 ms. The request was never done, and that is no matter.
    let uses = [(0, 1, Read), (1, 1, Read), (2, 1, Read), (3, 1, Read)];
    let mut case = case(&[(0, 5, 0, 2, &[])], &uses);
    assert_eq!(counts(&case.start()), [2, 2, 1, 0]);
    // Only the first use of a page counts.
    case.trace.uses.push(Use {
        time_ns: 9 * MS,
        start: 0,
        pages: 2,
        ..case.trace.uses[0]
    });
    assert_eq!(counts(&case.start()), [2, 2, 1, 0]);
    // The trace began a millisecond after the replay, or one before.
    case.trace_began_ns = MS as i64;
    assert_eq!(counts(&case.start()), [3, 1, 1, 0]);
    case.trace_began_ns = -(MS as i64);
    assert_eq!(counts(&case.start()), [1, 3, 1, 0]);
}

#[test]
fn what_was_resident_is_not_wasted() {
    let case = case(&[(0, 10, 0, 0, &[(2, 4), (9, 5)])], &[(0, 3, Read)]);
    let stage = case.start();
    assert_eq!(
        stage.resident_pages, 5,
        "what lies outside the request is not its"
    );
    // Wasted: 6, 7, 8.
    assert_eq!(counts(&stage), [3, 0, 3, 0]);
}

#[test]
fn holes_bridged_on_purpose_are_counted_apart() {
    let mut case = case(&[(0, 20, 0, 0, &[])], &[(0, 3, Read), (10, 1, Read)]);
    assert_eq!(
        case.start().bridged_pages,
        0,
        "without a profile no hole is known"
    );
    assert_eq!(case.start().wasted_pages, 16);
    case.profile = Some(profile("/f", None, &[(0, 5, 1.0), (8, 4, 0.2), (15, 5, 0.9)]));
    let stage = case.start();
    assert_eq!(stage.bridged_pages, 10);
    assert_eq!(counts(&stage), [4, 0, 7, 0]);
}

#[test]
fn each_of_two_requests_for_a_page_is_judged_by_what_it_found() {
    // The second found what the first had brought.
    let twice: [Row<'_>; 2] = [(0, 8, 0, 0, &[]), (4, 8, 0, 0, &[(4, 4)])];
    let used = case(&twice, &[(0, 12, Read)]).start();
    assert_eq!(counts(&used), [16, 0, 0, 0]);
    assert_eq!((used.issued_pages, used.resident_pages), (16, 4));
    let unused = case(&twice, &[]).start();
    assert_eq!(counts(&unused), [0, 0, 12, 0], "4 to 8 were read once");
}

#[test]
fn a_page_mapped_around_a_fault_is_used_but_never_missed() {
    let mut case = case(
        &[(32, 16, 0, 0, &[])],
        &[
            (32, 4, Map),
            (40, 1, Fault),
            (44, 4, Around),
            (100, 16, Around),
            (998, 1, Fault),
        ],
    );
    assert_eq!(counts(&case.start()), [9, 0, 7, 1]);
    case.trace.files[0].size = 44 * PAGE - 1;
    assert_eq!(counts(&case.start()), [5, 0, 11, 0], "within the file");
}

#[test]
fn what_was_only_mapped_around_a_touch_is_in_doubt_unless_it_was_to_bridge() {
    let uses = [(0, 16, Around), (3, 1, Fault), (40, 2, Read), (90, 1, Fault)];
    let mut case = case(&[(0, 16, 0, 0, &[]), (40, 4, 0, 0, &[])], &uses);
    let precision = |needed_pages, uncertain_pages| {
        Some(Precision {
            needed_pages,
            uncertain_pages,
        })
    };
    assert_eq!(case.outcome().precision, precision(4, 15));
    case.profile = Some(profile("/f", None, &[(2, 2, 1.0), (40, 4, 1.0)]));
    assert_eq!(case.outcome().precision, precision(4, 1));
    assert_eq!(case.start().bridged_pages, 14);
}

#[test]
fn nothing_is_missed_that_no_plan_may_ask_for() {
    let missed = |change: fn(&mut Trace)| {
        let mut case = case(&[], &[(0, 4, Read), (100, 2, Read)]);
        change(&mut case.trace);
        case.start().missed_pages
    };
    assert_eq!(missed(|_| ()), 6);
    assert_eq!(missed(|t| t.files[0].filesystem = Some(1)), 0);
    assert_eq!(missed(|t| t.files[0].filesystem = None), 0);
    assert_eq!(missed(|t| t.files[0].state = FileState::Deleted), 0);
    assert_eq!(missed(|t| t.files[0].state = FileState::Replaced), 0);
    assert_eq!(missed(|t| t.files[0].mode = 0o060644), 0);
    assert_eq!(missed(|t| t.files[0].path = "/run/f".into()), 0);
    assert_eq!(missed(|t| t.files[0].size = 50 * PAGE), 4);
    assert_eq!(missed(|t| t.uses[1].kind = Add), 4, "readahead is no use");
}

#[test]
fn pages_of_a_file_deleted_meanwhile_were_used_all_the_same() {
    let mut case = case(&[(0, 4, 0, 0, &[])], &[(0, 6, Read)]);
    case.trace.files[0].state = FileState::Deleted;
    assert_eq!(counts(&case.start()), [4, 0, 0, 0]);
}

#[test]
fn a_file_below_an_overlay_is_joined_by_either_name() {
    let mut case = case(&[(0, 10, 0, 0, &[])], &[(0, 4, Read), (20, 1, Read)]);
    case.trace.files[0].path = "/lower/f".into();
    case.trace.files[0].overlay = Some("/merged/f".into());
    case.profile = Some(profile("/lower/f", Some("/merged/f"), &[(0, 8, 1.0)]));
    for path in ["/lower/f", "/merged/f"] {
        case.path = path;
        let stage = case.start();
        assert_eq!((counts(&stage), stage.bridged_pages), ([4, 0, 4, 1], 2), "{path}");
    }
    case.path = "/other";
    assert_eq!(counts(&case.start()), [0, 0, 0, 5]);
}

#[test]
fn requests_count_in_their_stage_and_misses_in_the_first() {
    let mut case = case(
        &[(0, 4, 0, 0, &[]), (10, 4, 1, 1, &[(13, 1)])],
        &[(12, 1, Read), (0, 1, Read), (11, 1, Read), (90, 1, Read)],
    );
    case.ask(RequestKind::Metadata, 5 * PAGE, 2 * PAGE, 0);
    case.ask(RequestKind::Stat, 0, 0, 1);
    case.ask(RequestKind::List, 0, 0, 1);
    let stages = case.stages();
    assert_eq!(counts(&stages[0]), [1, 0, 3, 1]);
    assert_eq!(counts(&stages[1]), [1, 1, 1, 0]);
    assert_eq!(
        (stages[0].stage.as_str(), stages[1].stage.as_str()),
        ("start", "late")
    );
    assert_eq!((stages[0].metadata_requests, stages[0].metadata_pages), (1, 2));
    assert_eq!((stages[1].metadata_requests, stages[1].opens), (0, 2));
    assert_eq!((stages[1].data_requests, stages[1].resident_pages), (1, 1));
}

#[test]
fn many_uses_of_many_requests_are_reviewed_in_time() {
    let rows: Vec<Row<'_>> = (0..20_000).map(|i| (4 * i, 2, 0, 0, &[][..])).collect();
    let uses: Vec<_> = (0..20_000).map(|i| (4 * i, 1, Read)).collect();
    let mut case = case(&rows, &uses);
    case.trace.files[0].size = 100_000 * PAGE;
    assert_eq!(counts(&case.start()), [20_000, 0, 20_000, 0]);
}

#[test]
fn without_a_replay_there_are_no_stages() {
    let mut trace = trace(10, &[(0, 4, Read)]);
    trace.end.blocked_ns = Some(3);
    let outcome = review(&Reviewed {
        key: Key::new("k").unwrap(),
        mode: Mode::Control,
        trace: &trace,
        replay: None,
        profile: None,
        trace_began_ns: 0,
        not_learned: Some("why".into()),
    });
    assert_eq!(outcome.stages, []);
    assert_eq!((outcome.status, outcome.elapsed_ns), (Some(0), 1_000_000_000));
    assert_eq!(
        (outcome.blocked_ns, outcome.not_learned),
        (Some(3), Some("why".into()))
    );
}

#[test]
fn uses_one_by_one_come_to_what_the_review_counts() {
    let requests: &[Row<'_>] = &[
        (0, 4, 0, 0, &[]),
        (10, 4, 1, 2, &[(13, 1)]),
        (32, 16, 0, 1, &[]),
        (100, 8, 0, 900, &[]),
    ];
    let uses = [
        (12, 1, Read),
        (0, 2, Map),
        (1, 5, Read),
        (11, 1, Read),
        (40, 1, Fault),
        (36, 16, Around),
        (50, 4, Read),
        (96, 16, Around),
        (98, 6, Fault),
        (98, 20, Read),
        (990, 20, Read),
        (500, 9, Add),
    ];
    case(requests, &uses).agree();
    case(&[], &uses).agree();
    case(requests, &[]).agree();
    let mut later = case(requests, &uses);
    for began_ns in [MS as i64, 5 * MS as i64] {
        later.trace_began_ns = began_ns;
        later.agree();
    }
    for change in [
        |t: &mut Trace| t.files[0].state = FileState::Deleted,
        |t: &mut Trace| t.files[0].size = 45 * PAGE - 1,
        |t: &mut Trace| t.files[0].overlay = Some("/merged".into()),
        |t: &mut Trace| t.files[0].filesystem = Some(1),
    ] {
        let mut case = case(requests, &uses);
        change(&mut case.trace);
        case.agree();
    }
    let mut below = case(requests, &uses);
    below.trace.files[0].overlay = Some("/merged/f".into());
    below.path = "/merged/f";
    below.agree();
}

#[test]
fn what_was_read_ahead_before_the_recording_was_at_its_beginning() {
    let mut case = case(&[(0, 4, 0, 1, &[]), (10, 4, 0, 9, &[])], &[(0, 1, Read)]);
    case.report.issued[0].done_ns = 2 * MS;
    case.report.issued[1].done_ns = 3 * MS;
    case.trace_began_ns = 4 * MS as i64;
    let file = case.plan_file();
    let reads = ahead(
        &case.trace,
        &file.plan().unwrap(),
        &case.report,
        case.trace_began_ns,
    )
    .unwrap();
    let ranges: Vec<_> = reads
        .iter()
        .map(|ahead| (ahead.start, ahead.pages, ahead.issued_ns, ahead.done_ns))
        .collect();
    assert_eq!(ranges, [(0, 4, 0, 0), (10, 4, 5 * MS, 5 * MS)]);
}

#[test]
fn without_a_replay_nothing_was_missed() {
    let served = served(&trace(
        100,
        &[(0, 4, Read), (2, 4, Fault), (2, 4, Around), (90, 20, Add)],
    ));
    let counts: Vec<_> = served
        .iter()
        .map(|file| (file.missed, file.not_prefetched))
        .collect();
    assert_eq!(counts, [(0, 4), (0, 2), (0, 0), (0, 10)]);
}
