use crate::tests::{options, trace};
use crate::{exact_is_due, learn};
use headstart_model::profile::{Entry, Policy};
use headstart_model::trace::{Backend, Evidence, Mapping, Use, UseKind};
use headstart_model::{PageRange, Profile, Trace};

/// Debian 13's.
const KERNEL: &str = "6.12.48+deb13-amd64";

fn run(uses: &[(u64, u32, UseKind)]) -> Trace {
    let mut run = trace(1000, uses);
    run.meta.kernel = KERNEL.into();
    run
}

/// Each of these pages faulted by itself, and none was mapped with another.
fn exact(touched: &[u64]) -> Trace {
    run(&touched
        .iter()
        .map(|page| (*page, 1, UseKind::Fault))
        .collect::<Vec<_>>())
}

/// A window was mapped, and this page of it was touched first.
fn around(window: u64, touched: u64) -> Trace {
    run(&[(window, 16, UseKind::Around), (touched, 1, UseKind::Fault)])
}

fn learned(traces: &[Trace]) -> Profile {
    learn(None, traces, &options(Policy::Decay)).unwrap()
}

fn file(profile: &Profile) -> &Entry {
    profile
        .entries
        .iter()
        .find(|e| e.path.as_bytes() == b"/f")
        .unwrap()
}

fn planned(profile: &Profile) -> Vec<(u64, u64)> {
    let pages = file(profile).pages(profile.policy.threshold());
    pages.ranges().iter().map(|r| (r.start, r.end)).collect()
}

#[test]
fn every_sixteenth_page_is_planned_alone_after_two_exact_runs() {
    let touched: Vec<u64> = (0..50).map(|n| n * 16 + 5).collect();
    let usual: Vec<_> = touched
        .iter()
        .flat_map(|page| [(page - 5, 16, UseKind::Around), (*page, 1, UseKind::Fault)])
        .collect();
    let mut traces = vec![run(&usual)];
    assert_eq!(planned(&learned(&traces)), [(0, 800)]);
    traces.push(exact(&touched));
    assert_eq!(planned(&learned(&traces)), [(0, 800)], "one run may be odd");
    traces.push(exact(&touched));
    let alone: Vec<(u64, u64)> = touched.iter().map(|page| (*page, page + 1)).collect();
    assert_eq!(planned(&learned(&traces)), alone);
    // Usual runs show the first page of each window, and leave the rest as it is known.
    traces.extend(vec![run(&usual); 30]);
    assert_eq!(planned(&learned(&traces)), alone);
}

#[test]
fn a_page_that_any_run_touches_is_read_ahead_from_then_on() {
    let mut traces = vec![exact(&[0, 5]), exact(&[0, 5])];
    assert_eq!(planned(&learned(&traces)), [(0, 1), (5, 6)]);
    // It was left out, was not in memory, and so faulted by itself.
    traces.push(run(&[
        (0, 16, UseKind::Around),
        (0, 1, UseKind::Fault),
        (9, 1, UseKind::Fault),
    ]));
    assert_eq!(planned(&learned(&traces)), [(0, 1), (5, 6), (9, 10)]);
    traces.extend(vec![exact(&[0, 5]); 9]);
    assert_eq!(planned(&learned(&traces)), [(0, 1), (5, 6), (9, 10)]);
    // Until the file is another.
    for trace in vec![exact(&[0, 5]); 9] {
        let mut replaced = trace;
        replaced.files[0].generation += 1;
        traces.push(replaced);
    }
    assert_eq!(planned(&learned(&traces)), [(0, 1), (5, 6)]);
}

#[test]
fn a_page_needed_in_one_exact_run_of_two_is_planned() {
    let traces = [exact(&[0, 5]), exact(&[0, 9]), exact(&[0, 5]), exact(&[0, 9])];
    assert_eq!(planned(&learned(&traces)), [(0, 1), (5, 6), (9, 10)]);
}

#[test]
fn what_was_mapped_with_a_touched_page_is_not_taken_for_untouched() {
    let many = vec![around(0, 3); 20];
    assert_eq!(planned(&learned(&many)), [(0, 16)]);
    // Recorded without the touched page's number.
    let unknown = run(&[(0, 16, UseKind::Map)]);
    assert_eq!(planned(&learned(&vec![unknown; 20])), [(0, 16)]);
}

#[test]
fn a_window_that_is_not_entered_says_nothing_of_its_pages() {
    let traces = [exact(&[0, 20]), exact(&[0]), exact(&[0, 20]), exact(&[0])];
    let profile = learned(&traces);
    let touches = file(&profile).touches.clone().unwrap();
    assert!(!touches.once.contains(20) && !touches.unused.contains(20));
    assert!(
        touches.unused.contains(21),
        "two runs entered it and left this page"
    );
}

#[test]
fn pages_that_were_read_are_needed() {
    let reads = || run(&[(0, 16, UseKind::Read), (40, 1, UseKind::Fault)]);
    assert_eq!(planned(&learned(&[reads(), reads()])), [(0, 16), (40, 41)]);
}

#[test]
fn windows_keep_to_their_mapping() {
    let mapped = || {
        let mut run = exact(&[4]);
        run.mappings.push(Mapping {
            file: 0,
            pages: PageRange::new(4, 4),
        });
        run
    };
    let profile = learned(&[mapped(), mapped()]);
    let touches = file(&profile).touches.clone().unwrap();
    assert_eq!(touches.unused.ranges(), [PageRange::new(5, 3)]);
}

#[test]
fn another_version_of_the_file_is_not_known() {
    let mut written = around(0, 3);
    written.files[0].mtime_ns += 1;
    let profile = learned(&[exact(&[3]), exact(&[3]), written]);
    assert!(planned(&profile).contains(&(0, 16)), "{:?}", planned(&profile));
}

#[test]
fn where_kernels_map_whole_folios_only_bpf_tells_of_that() {
    let planned_by = |kernel: &str, backend| {
        let mut run = exact(&[3]);
        run.meta.kernel = kernel.into();
        run.meta.backend = backend;
        let profile = learned(&[run.clone(), run]);
        (planned(&profile), profile.exact_at)
    };
    for kernel in ["6.18.3", "6.18", "7.2.1", "7", ""] {
        assert_eq!(
            planned_by(kernel, Backend::Tracefs),
            (vec![(0, 16)], 0),
            "{kernel}"
        );
        assert_eq!(planned_by(kernel, Backend::Bpf), (vec![(3, 4)], 2), "{kernel}");
    }
    assert_eq!(planned_by(KERNEL, Backend::Tracefs), (vec![(3, 4)], 2));
    // Of pages that were mapped with the folio of a touched one nothing is told.
    let folio = || run(&[(0, 8, UseKind::Around), (3, 1, UseKind::Fault)]);
    assert_eq!(planned(&learned(&[folio(), folio()])), [(0, 8)]);
}

#[test]
fn mere_additions_tell_nothing() {
    let mut run = exact(&[3]);
    run.meta.evidence = Evidence::Adds;
    assert_eq!(planned(&learned(&[run.clone(), run])), [(0, 16)]);
}

#[test]
fn exact_runs_are_due_at_first_and_then_seldom() {
    let usual = around(0, 3);
    let mut profile = None;
    let mut due = |trace: &Trace| {
        let after = learn(
            profile.take(),
            std::slice::from_ref(trace),
            &options(Policy::Decay),
        )
        .unwrap();
        let is_due = exact_is_due(&after, trace);
        profile = Some(after);
        is_due
    };
    assert!(due(&usual), "nothing is known");
    assert!(due(&exact(&[3])), "one run may be odd");
    assert!(!due(&exact(&[3])));
    let after: Vec<bool> = (0..20).map(|_| due(&usual)).collect();
    assert_eq!(after.iter().position(|due| *due), Some(18));
    assert!(!due(&exact(&[3])));
}

#[test]
fn where_much_stays_unknown_one_start_in_four_is_to_be_exact() {
    let usual = around(0, 3);
    let profile = Profile {
        exact_at: 8,
        ..learned(std::slice::from_ref(&usual))
    };
    let due = |runs, trace: &Trace| {
        exact_is_due(
            &Profile {
                runs,
                ..profile.clone()
            },
            trace,
        )
    };
    assert!(!due(10, &usual) && due(11, &usual) && due(99, &usual));
    let mut by_events = usual.clone();
    by_events.meta.kernel = "6.18.1".into();
    by_events.meta.backend = Backend::Tracefs;
    assert!(!due(99, &by_events), "there it would tell nothing");
}

#[test]
fn run_by_run_is_the_same_as_all_at_once() {
    let traces = [exact(&[0, 5]), around(0, 9), exact(&[0, 33]), exact(&[0])];
    let mut profile = None;
    for trace in &traces {
        profile = Some(learn(profile, std::slice::from_ref(trace), &options(Policy::Decay)).unwrap());
    }
    assert_eq!(profile.unwrap(), learned(&traces));
}

#[test]
fn a_cold_start_tells_of_windows_of_which_it_needed_one_page() {
    // Its page faulted, and was read with what lies around it; nothing was mapped with it.
    let cold = || {
        let mut cold = around(0, 3);
        cold.uses.push(Use {
            start: 20,
            pages: 1,
            kind: UseKind::Fault,
            ..cold.uses[0]
        });
        cold
    };
    assert_eq!(planned(&learned(&[cold(), cold()])), [(0, 16), (20, 21)]);
}
