//! What is learned from uses by windows: a memory file of a virtual machine that is resumed.

use crate::learn;
use crate::tests::{options, trace};
use headstart_model::profile::{Entry, Policy};
use headstart_model::trace::UseKind;
use headstart_model::{Profile, Trace, WindowUse, limits};

/// A trace of touches of a file: (window, its pages) a millisecond each.
fn touches(rows: impl IntoIterator<Item = (u64, u16)>) -> Trace {
    let mut trace = trace(1 << 22, &[]);
    let row = |(ms, (window, pages)): (usize, (u64, u16))| WindowUse {
        time_ns: ms as u64 * 1_000_000,
        process: 0,
        file: 0,
        window,
        pages,
        kind: UseKind::Fault,
    };
    trace.windows = rows.into_iter().enumerate().map(row).collect();
    trace
}

fn learned(traces: &[Trace]) -> Profile {
    learn(None, traces, &options(Policy::Decay)).unwrap()
}

fn entry(profile: &Profile) -> &Entry {
    profile
        .entries
        .iter()
        .find(|entry| entry.path.as_bytes() == b"/f")
        .unwrap()
}

fn planned(profile: &Profile) -> Vec<(u64, u64)> {
    let pages = entry(profile).pages(0.5);
    pages
        .ranges()
        .iter()
        .map(|range| (range.start, range.end))
        .collect()
}

#[test]
fn what_most_resumes_touch_is_kept_page_by_page() {
    let most = [(9, 0b101), (1, 0b11)];
    let odd = touches([(9, 0b101), (30, 1), (1, 0b11)]);
    let profile = learned(&[odd, touches(most), touches(most)]);
    assert_eq!(planned(&profile), [(16, 18), (144, 145), (146, 147)]);
    let first = |page| {
        let range = entry(&profile)
            .ranges
            .iter()
            .find(|range| range.range().end > page)
            .unwrap();
        range.first_use_ns
    };
    assert!(first(144) < first(16), "in order of first touch");
}

#[test]
fn the_first_touch_of_a_window_counts_and_not_a_later_one_of_another_page() {
    let mut trace = touches([(4, 1), (200, 1)]);
    let late = WindowUse {
        time_ns: 700_000_000,
        pages: 0b10,
        ..trace.windows[1]
    };
    trace.uses = late.uses().collect();
    let profile = learned(&[trace]);
    let range = entry(&profile)
        .ranges
        .iter()
        .find(|range| range.start == 3200)
        .unwrap();
    assert_eq!((range.first_use_ns, range.pages), (1_000_000, 16));
    let touched = &entry(&profile).touches.as_ref().unwrap().touched;
    assert_eq!(touched.pages(), 3);
}

#[test]
fn runs_that_are_too_many_to_be_told_apart_are_read_from_the_first_of_a_window_to_its_last() {
    let windows = limits::RUNS as u64 / 8 + 1;
    let all = || touches((0..windows).map(|window| (window, 0x5555)));
    let profile = learned(&[all(), all(), all()]);
    let pages = planned(&profile);
    assert_eq!(pages.len() as u64, windows);
    assert_eq!(pages[1], (16, 31), "up to the last page that was touched");
    let touches = entry(&profile).touches.as_ref().unwrap();
    assert!(
        touches.touched.is_empty() && touches.unused.is_empty(),
        "nobody knows"
    );
    profile.to_bytes().unwrap();
}
