//! What is learned from runs.

use crate::time_tests::start;
use crate::{LearnOptions, Refused, learn};
use headstart_model::profile::{Entry, Need, Policy};
use headstart_model::trace::*;
use headstart_model::{Key, PageRange, Profile, Trace, testing};

/// A trace of uses of `/f`: (start, pages, kind).
pub(crate) fn trace(size_pages: u64, uses: &[(u64, u32, UseKind)]) -> Trace {
    let mut trace = testing::trace();
    trace.filesystems.push(Filesystem {
        major: 0,
        minor: 9,
        fstype: "tmpfs".into(),
        mount_point: "/tmp".into(),
        local: false,
    });
    trace.files = vec![File {
        size: size_pages * 4096,
        ..testing::file("/f")
    }];
    let one = |(ms, (start, pages, kind)): (usize, &(u64, u32, UseKind))| Use {
        kind: *kind,
        ..testing::used(ms as u64, 0, *start, *pages)
    };
    trace.uses = uses.iter().enumerate().map(one).collect();
    trace
}

pub(crate) fn reads(ranges: &[(u64, u32)]) -> Trace {
    trace(
        1000,
        &ranges
            .iter()
            .map(|(s, p)| (*s, *p, UseKind::Read))
            .collect::<Vec<_>>(),
    )
}

pub(crate) fn options(policy: Policy) -> LearnOptions {
    let exclude = crate::DEFAULT_EXCLUDE.map(Into::into).to_vec();
    LearnOptions {
        key: Key::new("k").unwrap(),
        policy,
        now_unix_ns: 9,
        exclude,
        named: Default::default(),
    }
}

fn planned(profile: &Profile) -> Vec<(u64, u64)> {
    let entry: Option<&Entry> = profile.entries.iter().find(|e| e.path.as_bytes() == b"/f");
    entry
        .map(|e| {
            e.pages(profile.policy.threshold())
                .ranges()
                .iter()
                .map(|r| (r.start, r.end))
                .collect()
        })
        .unwrap_or_default()
}

pub(crate) fn learned(policy: Policy, traces: &[Trace]) -> Profile {
    learn(None, traces, &options(policy)).unwrap()
}

#[test]
fn one_run_is_learned_whole() {
    assert_eq!(
        planned(&learned(Policy::Decay, &[reads(&[(0, 10), (20, 5)])])),
        [(0, 10), (20, 25)]
    );
}

#[test]
fn a_single_odd_run_neither_adds_nor_removes() {
    let usual = reads(&[(0, 10)]);
    let odd = reads(&[(50, 10)]);
    let profile = learned(Policy::Decay, &[usual.clone(), usual.clone(), usual.clone(), odd]);
    assert_eq!(planned(&profile), [(0, 10)]);
}

#[test]
fn a_change_that_stays_wins_and_what_went_is_forgotten() {
    let (old, new) = (reads(&[(0, 10)]), reads(&[(50, 10)]));
    let mut runs = vec![old; 5];
    runs.extend(vec![new; 3]);
    assert_eq!(planned(&learned(Policy::Decay, &runs)), [(50, 60)]);
    runs.extend(vec![reads(&[(50, 10)]); 12]);
    let entry = &learned(Policy::Decay, &runs).entries[0];
    assert_eq!(
        entry.ranges.len(),
        1,
        "the old pages are gone from the profile itself"
    );
}

#[test]
fn policies_count_votes() {
    let runs = [reads(&[(0, 10)]), reads(&[(5, 10)]), reads(&[(8, 10)])];
    assert_eq!(planned(&learned(Policy::Union, &runs)), [(0, 18)]);
    assert_eq!(planned(&learned(Policy::Intersection, &runs)), [(8, 10)]);
    assert_eq!(planned(&learned(Policy::KOfN { k: 2, n: 3 }, &runs)), [(5, 15)]);
    assert_eq!(planned(&learned(Policy::KOfN { k: 2, n: 2 }, &runs)), [(8, 15)]);
    assert_eq!(planned(&learned(Policy::KOfN { k: 2, n: 5 }, &runs)), [(5, 15)]);
    assert_eq!(planned(&learned(Policy::KOfN { k: 4, n: 5 }, &runs)), []);
}

#[test]
fn run_by_run_is_the_same_as_all_at_once() {
    let runs = [reads(&[(0, 10)]), reads(&[(5, 10)]), reads(&[(8, 10)])];
    for policy in [Policy::Decay, Policy::Union, Policy::Intersection] {
        let mut profile = None;
        for run in &runs {
            profile = Some(learn(profile, std::slice::from_ref(run), &options(policy)).unwrap());
        }
        assert_eq!(profile.unwrap(), learned(policy, &runs), "{policy}");
    }
}

#[test]
fn traces_that_are_not_whole_teach_nothing() {
    let mut lost = reads(&[(0, 1)]);
    lost.lost.events = 3;
    let error = learn(None, &[reads(&[(0, 1)]), lost], &options(Policy::Decay)).unwrap_err();
    assert!(error.to_string().contains("3 events were lost"), "{error}");
    let mut killed = reads(&[(0, 1)]);
    killed.end.reason = EndReason::Interrupted;
    assert!(matches!(
        learn(None, &[killed], &options(Policy::Decay)),
        Err(Refused::Unfit(_))
    ));
    assert_eq!(learn(None, &[], &options(Policy::Decay)), Err(Refused::Nothing));
    let mut large = reads(&[(0, 1)]);
    large.meta.page_size = 16384;
    let before = learned(Policy::Decay, &[reads(&[(0, 1)])]);
    assert!(matches!(
        learn(Some(before), &[large], &options(Policy::Decay)),
        Err(Refused::PageSize { .. })
    ));
}

#[test]
fn a_replaced_file_is_followed_by_path() {
    let mut runs = vec![reads(&[(0, 10), (500, 10)]); 4];
    let mut updated = reads(&[(0, 4), (30, 6)]);
    updated.files[0].generation += 1;
    updated.files[0].mtime_ns = 77;
    updated.files[0].size = 100 * 4096;
    runs.push(updated);
    let profile = learned(Policy::Decay, &runs);
    // The new file's pages at once; what the old one had and the new run did not use waits for a second
    // sight.
    assert_eq!(planned(&profile), [(0, 4), (30, 36)]);
    let pages = profile.entries[0].ranges.iter().map(|r| r.range().end).max();
    assert!(pages <= Some(100), "nothing behind the end of the smaller file");
}

/// A file of so many pages that was written after the last run: read from the beginning, in one recurring
/// place, and at its end.
fn written(size: u64, mtime_ns: i64, uses: &[(u64, u32)]) -> Trace {
    let mut trace = reads(uses);
    trace.files[0].size = size * 4096;
    trace.files[0].mtime_ns = mtime_ns;
    trace
}

/// The pages that a plan reads of the end of a file of so many.
fn last(profile: &Profile, end: u64) -> Vec<(u64, u64)> {
    let pages = profile.entries[0].last_pages(profile.policy.threshold(), end);
    pages
        .ranges()
        .iter()
        .map(|range| (range.start, range.end))
        .collect()
}

#[test]
fn of_a_file_that_grows_the_beginning_what_recurs_and_the_end_are_learned() {
    for policy in [Policy::Decay, Policy::Boot] {
        // What is read at 300 + n is read once.
        let run = |n: u64| {
            let size = 1000 + 20 * n;
            written(
                size,
                n as i64,
                &[(0, 4), (100, 2), (300 + 10 * n, 1), (size - 3, 3)],
            )
        };
        let runs: Vec<Trace> = (0..6).map(run).collect();
        let profile = learned(policy, &runs);
        assert_eq!(planned(&profile), [(0, 4), (100, 102)], "{policy}");
        assert_eq!(last(&profile, 5000), [(4997, 5000)], "{policy}: wherever it ends");
        // Verified by use: what is at the end and not used any more is forgotten, and the rest stays.
        let without = |n: u64| written(2000 + n, 50 + n as i64, &[(0, 4), (100, 2)]);
        let runs: Vec<Trace> = runs.into_iter().chain((0..8).map(without)).collect();
        let profile = learned(policy, &runs);
        assert_eq!(planned(&profile), [(0, 4), (100, 102)], "{policy}");
        assert_eq!(last(&profile, 5000), [], "{policy}");
    }
}

#[test]
fn at_its_first_change_a_file_keeps_what_is_known_of_it() {
    let runs = [reads(&[(0, 10), (990, 10)]), written(1004, 7, &[(0, 4), (30, 2)])];
    let profile = learned(Policy::Decay, &runs);
    // A replaced one would have lost what the run did not use; what it used is read next time, as then.
    let weight = |page| {
        let ranges = &profile.entries[0].ranges;
        let range = ranges
            .iter()
            .find(|r| r.range().start <= page && page < r.range().end);
        range.map_or(0.0, |range| range.weight)
    };
    assert_eq!((weight(0), weight(30)), (1.0, 0.75));
    assert!(weight(5) > 0.4, "{}", weight(5));
    assert!(profile.entries[0].tail.is_some());
    // Without a generation nobody knows that it is the same.
    let unknown = runs.map(|mut run| {
        run.files[0].generation = 0;
        run
    });
    assert!(unknown[0].files[0].mtime_ns != 7);
    let profile = learned(Policy::Decay, &unknown);
    assert_eq!(profile.entries[0].tail, None);
    assert_eq!(planned(&profile), [(0, 4), (30, 32)]);
}

#[test]
fn a_file_that_changed_and_is_then_replaced_is_another() {
    let mut replaced = written(500, 9, &[(0, 4)]);
    replaced.files[0].generation += 1;
    let runs = [
        reads(&[(0, 4), (999, 1)]),
        written(1004, 7, &[(0, 4), (1003, 1)]),
        replaced,
    ];
    let before = learned(Policy::Decay, &runs[..2]);
    assert_eq!(last(&before, 100), [(99, 100)]);
    let profile = learned(Policy::Decay, &runs);
    assert_eq!(profile.entries[0].tail, None);
    assert_eq!(planned(&profile), [(0, 4)]);
}

#[test]
fn a_touched_page_stands_for_the_same_window_wherever_it_is_mapped() {
    // Touched 5, 35 and 98, cold: no window was in memory.
    let cold = trace(
        100,
        &[
            (5, 1, UseKind::Fault),
            (35, 1, UseKind::Fault),
            (98, 1, UseKind::Fault),
        ],
    );
    assert_eq!(
        planned(&learned(Policy::Decay, std::slice::from_ref(&cold))),
        [(0, 16), (32, 48), (96, 100)]
    );
    // In memory, and mapped three pages off.
    let warm = trace(
        100,
        &[
            (0, 13, UseKind::Around),
            (5, 1, UseKind::Fault),
            (29, 16, UseKind::Around),
            (35, 1, UseKind::Fault),
            (93, 7, UseKind::Around),
            (98, 1, UseKind::Fault),
        ],
    );
    assert_eq!(
        planned(&learned(Policy::Decay, &[cold])),
        planned(&learned(Policy::Decay, &[warm]))
    );
}

#[test]
fn a_window_lies_within_its_mapping() {
    let mut trace = trace(100, &[(41, 1, UseKind::Fault), (52, 1, UseKind::Fault)]);
    trace.mappings = [(0, 100), (39, 20)]
        .map(|(start, pages)| Mapping {
            file: 0,
            pages: PageRange::new(start, pages),
        })
        .to_vec();
    // The first is moved behind the beginning, the second is cut at the end.
    assert_eq!(planned(&learned(Policy::Decay, &[trace])), [(39, 59)]);
}

#[test]
fn what_a_window_hides_keeps_its_weight() {
    // By events that do not tell what was mapped with a folio.
    let traced = |uses: &[(u64, u32, UseKind)]| {
        let mut trace = trace(100, uses);
        trace.meta.backend = Backend::Tracefs;
        trace
    };
    let first = traced(&[(5, 1, UseKind::Fault), (20, 1, UseKind::Fault)]);
    let hidden = traced(&[(9, 16, UseKind::Around), (10, 1, UseKind::Fault)]);
    let mut profile = learned(Policy::Decay, &[first]);
    for _ in 0..5 {
        profile = learn(
            Some(profile),
            std::slice::from_ref(&hidden),
            &options(Policy::Decay),
        )
        .unwrap();
    }
    // Pages 16 to 25 may have been touched each time, those behind were not.
    assert_eq!(planned(&profile), [(0, 25)]);
}

#[test]
fn only_local_regular_files_that_are_still_there_have_pages() {
    let base = reads(&[(0, 4)]);
    let with = |change: fn(&mut File)| {
        let mut trace = base.clone();
        change(&mut trace.files[0]);
        planned(&learned(Policy::Decay, &[trace]))
    };
    assert_eq!(with(|_| ()), [(0, 4)]);
    assert_eq!(with(|f| f.state = FileState::Deleted), []);
    assert_eq!(with(|f| f.state = FileState::Replaced), []);
    assert_eq!(with(|f| f.state = FileState::Made), []);
    assert_eq!(with(|f| f.filesystem = Some(1)), []);
    assert_eq!(with(|f| f.filesystem = None), []);
    assert_eq!(with(|f| f.mode = 0o020666), []);
    assert_eq!(with(|f| f.path = "/proc/f".into()), []);
    assert_eq!(with(|f| f.path = "/f".into()), [(0, 4)]);
    assert_eq!(with(|f| f.overlay = Some("f".into())), [(0, 4)]);
    // What a profile would refuse to read is not learned.
    let mut trace = base.clone();
    trace.files[0].path = "f".into();
    assert_eq!(learned(Policy::Decay, &[trace]).entries, []);
    let mut trace = base.clone();
    trace.files[0].overlay = Some("f".into());
    assert_eq!(learned(Policy::Decay, &[trace]).entries[0].overlay, None);
}

#[test]
fn what_is_excluded_is_where_a_file_is_seen_and_not_where_its_layer_is_mounted() {
    let learned_at = |path: &str, overlay: &str| {
        let mut trace = reads(&[(0, 4)]);
        trace.files[0].path = path.into();
        trace.files[0].overlay = Some(overlay.into());
        !learned(Policy::Boot, &[trace]).entries.is_empty()
    };
    let of_live_boot = "/run/live/rootfs/filesystem.squashfs/usr/bin/f";
    assert!(learned_at(of_live_boot, "/usr/bin/f"));
    assert!(
        !learned_at(of_live_boot, "usr/bin/f"),
        "nobody knows where it is seen"
    );
    assert!(!learned_at("/layer/f", "/run/f"));
}

#[test]
fn lookups_become_needs() {
    let mut trace = reads(&[]);
    let mut look = |path: &str, kind, found| {
        trace.lookups.push(Lookup {
            time_ns: 7,
            process: 0,
            path: path.into(),
            kind,
            found,
        });
    };
    look("/d", LookupKind::Open, true);
    look("/d", LookupKind::List, true);
    look("/gone", LookupKind::Stat, false);
    look("/s", LookupKind::Link, true);
    look("/followed", LookupKind::Link, true);
    look("/followed", LookupKind::Stat, true);
    look("/gone", LookupKind::Link, false);
    look("/o", LookupKind::Stat, false);
    look("/o", LookupKind::Open, true);
    look("/proc/1/maps", LookupKind::Open, true);
    look("/process", LookupKind::Open, true);
    let profile = learned(Policy::Decay, &[trace]);
    let needs: Vec<_> = profile
        .entries
        .iter()
        .map(|e| (e.path.to_string(), e.need))
        .collect();
    let expected = [
        ("/d", Need::List),
        ("/followed", Need::Stat),
        ("/gone", Need::Missing),
        ("/o", Need::Open),
        ("/process", Need::Open),
        ("/s", Need::List),
    ];
    assert_eq!(needs, expected.map(|(p, n)| (p.to_string(), n)));
}

#[test]
fn the_name_of_a_file_that_is_gone_is_not_learned() {
    let mut trace = start(2000, 500, &[("/tmp/cc1.s", 3), ("/d", 4)]);
    trace.files.push(File {
        path: "/tmp/cc1.s".into(),
        ..trace.files[0].clone()
    });
    let learned_of = |state| {
        let mut trace = trace.clone();
        trace.files[1].state = state;
        let profile = learned(Policy::Decay, &[trace]);
        profile
            .entries
            .iter()
            .map(|e| e.path.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(learned_of(FileState::Deleted), ["/d"]);
    assert_eq!(learned_of(FileState::Made), ["/d", "/tmp/cc1.s"]);
}

#[test]
fn what_an_accepted_trace_claims_is_learned_within_bounds() {
    let largest = i64::MAX as u64 / 4096;
    let mut trace = trace(
        0,
        &[
            (largest - 15, 1, UseKind::Map),
            (largest - 1, 1, UseKind::Fault),
            (u64::MAX - 1, 1, UseKind::Fault),
        ],
    );
    trace.files[0].size = u64::MAX;
    let profile = learned(Policy::Decay, &[trace]);
    assert_eq!(planned(&profile), [(largest - 15, largest)]);
    assert!(Profile::from_bytes(&profile.to_bytes().unwrap()).is_ok());
}

#[test]
fn the_last_stage_stands_for_those_that_are_too_many() {
    let with = |names: std::ops::Range<u64>| {
        let mut trace = reads(&[(0, 1), (1, 1)]);
        trace.uses[1].time_ns = 1_000_000_000;
        trace.marks = names
            .map(|i| Mark {
                time_ns: 2 * (i % 1000) + 2,
                stage: format!("s{i}"),
            })
            .collect();
        trace
    };
    let profile = learned(Policy::Decay, &[with(0..400), with(1000..1002)]);
    assert_eq!(profile.stages.len(), 256);
    assert_eq!(profile.entries[0].ranges.iter().map(|r| r.stage).max(), Some(255));
}
