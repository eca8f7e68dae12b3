//! When a profile says that its pages are needed, after starts of different length.

use crate::learn;
use crate::tests::{learned, options, reads};
use headstart_model::profile::Policy;
use headstart_model::trace::{EndReason, Lookup, LookupKind};
use headstart_model::{Profile, Trace};

/// What the usual start looks up, and when, milliseconds.
const USUAL: [(&str, u64); 4] = [("/a", 0), ("/b", 400), ("/c", 600), ("/d", 1000)];

/// A start that takes `elapsed_ms` and looks up what `paths` names, each at its time, milliseconds.
pub(crate) fn start(elapsed_ms: u64, cpu_ms: u64, paths: &[(&str, u64)]) -> Trace {
    let mut trace = reads(&[]);
    trace.end.elapsed_ns = elapsed_ms * 1_000_000;
    trace.end.cpu_ns = Some(cpu_ms * 1_000_000);
    trace.lookups = paths
        .iter()
        .map(|(path, ms)| Lookup {
            time_ns: ms * 1_000_000,
            process: 0,
            path: (*path).into(),
            kind: LookupKind::Open,
            found: true,
        })
        .collect();
    trace
}

/// When each path is needed, milliseconds.
fn times(profile: &Profile) -> Vec<(String, u64)> {
    let entries = profile.entries.iter();
    entries
        .map(|e| (e.path.to_string(), e.first_use_ns / 1_000_000))
        .collect()
}

#[test]
fn a_short_first_run_does_not_set_the_times_for_long() {
    let short = start(5, 1, &[("/a", 0), ("/help", 3)]);
    let long = [USUAL, [("/e", 1100), ("/f", 1200), ("/g", 1300), ("/h", 1400)]].concat();
    let after = learned(Policy::Decay, &[short, start(2000, 500, &long)]);
    assert_eq!(after.timeline_ns, 2_000_000_000);
    assert!(times(&after).contains(&("/h".into(), 1400)));
}

#[test]
fn what_a_recording_waited_for_quiet_is_no_part_of_the_start() {
    let timeline = |reason| {
        let mut trace = start(3000, 500, &USUAL);
        trace.end.reason = reason;
        trace.end.blocked_ns = None;
        let profile = learned(Policy::Decay, &[trace]);
        (profile.timeline_ns / 1_000_000, profile.waited_ns / 1_000_000)
    };
    assert_eq!(timeline(EndReason::Exit(0)), (3000, 2500));
    assert_eq!(timeline(EndReason::Quiet), (1000, 500));
}

#[test]
fn a_short_odd_run_leaves_the_times_alone() {
    let usual = start(2000, 500, &USUAL);
    let before = learned(Policy::Decay, &[usual.clone(), usual.clone()]);
    let odd = start(5, 1, &[("/a", 0), ("/help", 3)]);
    let after = learn(Some(before.clone()), &[odd], &options(Policy::Decay)).unwrap();
    assert_eq!(after.timeline_ns, 2_000_000_000);
    assert_eq!(after.cpu_ns, before.cpu_ns);
    let mut expected = times(&before);
    expected.push(("/help".into(), 3));
    assert_eq!(times(&after), expected);
    // A slower start stretches the timeline a little; one that is something else does not.
    let slow = start(9000, 1, &[("/a", 0)]);
    let after = learn(Some(after), &[slow], &options(Policy::Decay)).unwrap();
    assert_eq!(after.timeline_ns, 2_000_000_000);
}

#[test]
fn a_faster_start_has_the_times_and_those_it_lacks_move_with_it() {
    let fast = start(1000, 300, &[("/a", 0), ("/b", 100), ("/c", 250)]);
    let profile = learned(Policy::Decay, &[start(2000, 500, &USUAL), fast]);
    assert_eq!(profile.timeline_ns, 1_000_000_000);
    let expected = [("/a", 0), ("/b", 100), ("/c", 250), ("/d", 500)];
    assert_eq!(times(&profile), expected.map(|(p, t)| (p.to_string(), t)));
}

#[test]
fn a_slower_start_stretches_the_timeline_and_every_time_on_it() {
    let slow = start(4200, 500, &[("/a", 0), ("/b", 1), ("/c", 2), ("/new", 2000)]);
    let profile = learned(Policy::Decay, &[start(2000, 500, &USUAL), slow]);
    assert_eq!(profile.timeline_ns, 2_100_000_000);
    let expected = [("/a", 0), ("/b", 420), ("/c", 630), ("/d", 1050), ("/new", 1000)];
    assert_eq!(times(&profile), expected.map(|(p, t)| (p.to_string(), t)));
}

#[test]
fn how_long_a_start_waited_is_kept_with_its_times() {
    let waited = |blocked_ms: Option<u64>, elapsed_ms| {
        let mut trace = start(elapsed_ms, 500, &USUAL);
        trace.end.blocked_ns = blocked_ms.map(|ms| ms * 1_000_000);
        trace
    };
    let waited_ms = |traces: &[Trace]| learned(Policy::Decay, traces).waited_ns / 1_000_000;
    assert_eq!(waited_ms(&[waited(Some(1500), 2000)]), 1500);
    assert_eq!(
        waited_ms(&[waited(Some(9000), 2000)]),
        2000,
        "several threads at once"
    );
    assert_eq!(waited_ms(&[waited(None, 2000)]), 1500, "what it did not compute");
    // The times are those of the faster one, and so is what it waited.
    assert_eq!(
        waited_ms(&[waited(Some(1500), 2000), waited(Some(100), 1200)]),
        100
    );
    assert_eq!(
        waited_ms(&[waited(Some(100), 1200), waited(Some(1500), 2000)]),
        100
    );
}

#[test]
fn a_program_that_became_another_gets_times_of_its_own() {
    let new = start(800, 100, &[("/x", 0), ("/y", 700)]);
    let mut runs = vec![start(2000, 500, &USUAL); 3];
    runs.extend(vec![new; 6]);
    let profile = learned(Policy::Decay, &runs);
    assert_eq!(profile.timeline_ns, 800_000_000);
    assert_eq!(times(&profile).iter().find(|(p, _)| p == "/y").unwrap().1, 700);
}
