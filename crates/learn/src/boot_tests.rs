//! What is learned from boots: every stage alike, new things within two, old ones forgotten within six.

use crate::tests::{options, trace};
use crate::{LearnOptions, learn};
use headstart_model::profile::Policy;
use headstart_model::trace::{Mark, Scope, UseKind};
use headstart_model::{Profile, Trace};

/// A boot: pages of `/f`, ten each, used in a stage that begins so many milliseconds after the first use.
fn boot(stages: &[(&str, u64, &[u64])]) -> Trace {
    let uses: Vec<_> = stages
        .iter()
        .flat_map(|(_, _, pages)| pages.iter().map(|page| (*page, 10, UseKind::Read)))
        .collect();
    let mut trace = trace(100_000, &uses);
    let mut index = 0;
    for (stage, ms, pages) in stages {
        if *stage != "start" {
            trace.marks.push(Mark {
                time_ns: ms * 1_000_000,
                stage: (*stage).into(),
            });
        }
        for _ in *pages {
            trace.uses[index].time_ns = ms * 1_000_000 + index as u64;
            index += 1;
        }
    }
    trace
}

fn of_boots() -> LearnOptions {
    options(Policy::Boot)
}

/// The pages that the next boot is read ahead of, by the name of their stage.
fn planned(profile: &Profile) -> Vec<(u64, &str)> {
    let threshold = profile.policy.threshold();
    let ranges = profile.entries.iter().flat_map(|entry| &entry.ranges);
    ranges
        .filter(|range| range.weight >= threshold)
        .map(|range| (range.start, profile.stages[usize::from(range.stage)].as_str()))
        .collect()
}

const PLAIN: &[(&str, u64, &[u64])] = &[
    ("start", 0, &[0]),
    ("services", 100, &[100]),
    ("session", 200, &[200]),
];
/// The session starts office too.
const OFFICE: &[(&str, u64, &[u64])] = &[
    ("start", 0, &[0]),
    ("services", 100, &[100]),
    ("session", 200, &[200, 300]),
];

fn after(boots: &[&[(&str, u64, &[u64])]]) -> Profile {
    let traces: Vec<Trace> = boots.iter().map(|stages| boot(stages)).collect();
    learn(None, &traces, &of_boots()).unwrap()
}

#[test]
fn something_new_is_followed_within_two_boots_and_forgotten_within_six() {
    let plain = [(0, "start"), (100, "services"), (200, "session")];
    let office = [&plain[..], &[(300, "session")]].concat();
    for known in [5, 12, 50] {
        let mut boots = vec![PLAIN; known];
        assert_eq!(planned(&after(&boots)), plain);
        boots.push(OFFICE);
        assert_eq!(planned(&after(&boots)), plain, "one odd boot among {known}");
        boots.push(OFFICE);
        assert_eq!(planned(&after(&boots)), office, "the second of {known}");
        boots.extend([OFFICE; 10]);
        boots.extend([PLAIN; 2]);
        assert_eq!(planned(&after(&boots)), office, "two without it");
        boots.extend([PLAIN; 4]);
        assert_eq!(planned(&after(&boots)), plain, "six without it");
    }
}

#[test]
fn the_runs_of_every_stage_are_merged() {
    // Each boot has pages of its own in each stage besides the common ones; two in a row had each of them.
    let with = |own: u64| -> Trace {
        boot(&[
            ("start", 0, &[0, 1000 + own]),
            ("services", 100, &[100, 2000 + own]),
            ("session", 200, &[200, 3000 + own]),
        ])
    };
    let traces: Vec<Trace> = [10, 20, 30, 40, 40].into_iter().map(with).collect();
    let profile = learn(None, &traces, &of_boots()).unwrap();
    let expected: Vec<_> = [
        (0, "start"),
        (100, "services"),
        (200, "session"),
        (1040, "start"),
        (2040, "services"),
        (3040, "session"),
    ]
    .to_vec();
    assert_eq!(planned(&profile), expected);
}

#[test]
fn a_stage_that_comes_later_is_put_in_its_place() {
    const LOGIN: &[(&str, u64, &[u64])] = &[
        ("start", 0, &[0]),
        ("services", 100, &[100]),
        ("login", 150, &[150]),
        ("session", 200, &[200]),
    ];
    let profile = after(&[PLAIN, LOGIN, LOGIN]);
    assert_eq!(profile.stages, ["start", "services", "login", "session"]);
    let expected = [(0, "start"), (100, "services"), (150, "login"), (200, "session")];
    assert_eq!(planned(&profile), expected);
    let profile = after(&[LOGIN, PLAIN]);
    assert_eq!(
        profile.stages,
        ["start", "services", "login", "session"],
        "it is kept"
    );
}

#[test]
fn a_boot_begins_at_the_release_and_ends_when_it_is_up() {
    // Process 1 waits for 700 ms. The recording goes on for another second once the machine is up.
    let mut trace = boot(&[
        ("start", 20, &[0]),
        ("services", 800, &[100]),
        ("up", 900, &[200]),
    ]);
    trace.meta.scope = Scope::System;
    trace.end.elapsed_ns = 2_000_000_000;
    let learned = |trace: &Trace| learn(None, std::slice::from_ref(trace), &of_boots()).unwrap();
    assert_eq!(learned(&trace).timeline_ns, 880_000_000);
    trace.marks.insert(
        0,
        Mark {
            time_ns: 700_000_000,
            stage: "released".into(),
        },
    );
    let profile = learned(&trace);
    assert_eq!(profile.timeline_ns, 200_000_000);
    assert_eq!(planned(&profile), [(0, "start"), (100, "services"), (200, "up")]);
    let first_use_ms: Vec<u64> = profile.entries[0]
        .ranges
        .iter()
        .map(|range| range.first_use_ns / 1_000_000)
        .collect();
    assert_eq!(first_use_ms, [0, 100, 200]);
}
