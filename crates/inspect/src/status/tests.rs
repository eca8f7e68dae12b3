//! What is said of a key.

use super::*;
use headstart_model::outcome::Decisions;

fn compared(with: (usize, u64), without: (usize, u64), p: Option<f64>, verdict: Verdict) -> Comparison {
    let group = |(starts, ms): (usize, u64)| Group {
        starts,
        median_ns: Some(ms * 1_000_000),
    };
    let gain_ms = without.1 as i64 - with.1 as i64;
    Comparison {
        with: group(with),
        without: group(without),
        left_out: LeftOut::default(),
        gain_ns: Some(gain_ms * 1_000_000),
        p,
        verdict,
    }
}

#[test]
fn what_is_missing_for_a_verdict_is_told() {
    let comparison = compared((20, 1), (1, 1000), None, Verdict::TooFew);
    assert_eq!(
        verdict(&comparison),
        "not enough cold starts without a replay yet: 1 of 2"
    );
    let comparison = compared((1, 1), (3, 9), None, Verdict::TooFew);
    assert_eq!(
        verdict(&comparison),
        "not enough cold starts with a replay yet: 1 of 5"
    );
}

#[test]
fn a_difference_is_told_with_its_size_and_its_chance() {
    let comparison = compared((7, 102), (3, 1000), Some(0.01), Verdict::Faster);
    assert_eq!(
        verdict(&comparison),
        "cold starts are faster by 898 ms (90 %); by chance alone in at most one of 100 cases"
    );
    let comparison = compared((7, 1000), (3, 800), Some(0.04), Verdict::Slower);
    assert_eq!(
        verdict(&comparison),
        "cold starts are slower by 200 ms (25 %); by chance alone in at most one of 25 cases"
    );
    let comparison = compared((7, 100), (3, 101), Some(0.5), Verdict::NoDifference);
    assert!(verdict(&comparison).starts_with("no difference is shown"));
}

fn status() -> KeyStatus {
    let mut comparison = compared((5, 400), (4, 1000), Some(0.01), Verdict::Faster);
    comparison.without.median_ns = Some(1_000_000_000);
    let outcome = |ms: u64, mode, sampled| Outcome {
        elapsed_ns: ms * 1_000_000,
        mode,
        resident_before: Some(headstart_model::outcome::Resident {
            sampled_pages: 100,
            resident_pages: sampled,
        }),
        ..Outcome::new(headstart_model::testing::key("k"), mode)
    };
    KeyStatus {
        key: format!("/usr/bin/python3 {}", "/very/long/path".repeat(9)),
        profile: None,
        plan: None,
        imported: None,
        traces: 1,
        floor: None,
        comparison,
        controls: Some(Cost {
            controls: 1,
            cost_ns: 400_000_000,
            share_of_saved: Some(0.016),
        }),
        control_every: Some(84),
        enabled: true,
        bypass: None,
        outcomes: vec![
            outcome(1200, Mode::Replay, 0),
            outcome(900, Mode::Control, 0),
            outcome(500, Mode::Replay, 0),
            outcome(10, Mode::Replay, 100),
            outcome(20, Mode::Replay, 10),
        ],
    }
}

#[test]
fn gains_are_those_of_replays_of_cold_starts_once_a_difference_is_shown() {
    let mut status = status();
    status.comparison.verdict = Verdict::Faster;
    let shares = |status: &KeyStatus| -> Vec<String> {
        gains(status).iter().map(|gain| format!("{gain:.2}")).collect()
    };
    assert_eq!(shares(&status), ["-0.20", "0.50", "0.98"]);
    assert_eq!(sparkline(&gains(&status)), "▁▅█");
    assert_eq!(sparkline(&[0.0, 0.124, 0.126, 1.0, 7.0, f64::NAN]), "▁▁▂██▁");
    assert!(gained_by_boots(&status).contains(" Saved: ▁▅█ of cold starts"));
    assert!(gained(&status).is_some_and(|said| said.contains("; saved ")));
    for verdict in [Verdict::TooFew, Verdict::NoDifference] {
        status.comparison.verdict = verdict;
        assert_eq!((gains(&status), gained(&status)), (Vec::new(), None));
        assert!(!gained_by_boots(&status).contains("Saved"));
    }
    status.comparison.verdict = Verdict::Faster;
    status.comparison.without.median_ns = None;
    assert_eq!((gains(&status), gained(&status)), (Vec::new(), None));
}

#[test]
fn what_control_runs_cost_is_told() {
    let mut status = status();
    let said = |status: &KeyStatus| controls(status).unwrap_or_default();
    assert_eq!(
        said(&status),
        "1 cost 400 ms, 1.6 % of what was saved; one cold start in 84 is one now"
    );
    status.control_every = None;
    let less = Cost {
        controls: 3,
        cost_ns: -400_000_000,
        share_of_saved: None,
    };
    status.controls = Some(less);
    assert_eq!(said(&status), "3 took 400 ms less than replays");
    status.controls = None;
    assert_eq!(controls(&status), None);
}

#[test]
fn it_fits_a_terminal_and_is_coloured_only_on_request() {
    let mut status = status();
    status.outcomes[0].not_learned = Some("a reason of many words ".repeat(9));
    let (plain, coloured) = (text(&status, 1, false), text(&status, 1, true));
    let statuses = [status];
    for text in [&plain, &list(&statuses, 1, false)] {
        assert!(
            text.lines()
                .all(|line| line.chars().count() <= crate::table::COLUMNS),
            "{text}"
        );
        // The start that taught nothing is in no comparison.
        assert!(!text.contains('\u{1b}') && text.contains(" ▅█"), "{text}");
    }
    assert!(coloured.contains("\u{1b}[32mverdict"), "{coloured}");
    assert_eq!(coloured.replace("\u{1b}[32m", "").replace("\u{1b}[0m", ""), plain);
    assert!(list(&statuses, 1, true).contains("\u{1b}[32m"));
}

#[test]
fn what_governors_decided_is_told_and_that_they_went_on_is_not() {
    let mut status = status();
    let looked = Decisions {
        looks: 9,
        ..Decisions::default()
    };
    status.outcomes.iter_mut().for_each(|it| it.decisions = looked);
    let is_told = |status: &KeyStatus| {
        text(status, 1, false)
            .lines()
            .any(|line| line.starts_with("governor"))
    };
    assert!(!is_told(&status));
    status.outcomes[0].decisions.pressed = 1;
    status.outcomes[2].decisions.without_room = 700;
    status.outcomes[3].decisions.without_room = 1;
    // A control start has no replay.
    status.outcomes[1].decisions.short = 1;
    assert!(is_told(&status));
    let replays = status.outcomes.iter().filter(|it| it.mode == Mode::Replay);
    assert_eq!(
        decisions_of_all(replays.map(|it| &it.decisions)).as_deref(),
        Some("of 4 replays 1 stopped: tasks waited for memory; 2 left requests out for want of memory")
    );
    let one = crate::outcome::decisions;
    assert_eq!(one(&looked), "went on after 9 looks");
    assert_eq!(one(&Decisions::default()), "not known");
    assert_eq!(
        one(&status.outcomes[2].decisions),
        "left requests out for want of memory (700 times)"
    );
}

#[test]
fn the_floor_stands_beside_the_time_that_a_start_took() {
    const MS: u64 = 1_000_000;
    let mut floor = FloorStatus {
        started_unix_ns: 0,
        took_ns: 1500 * MS,
        floor: Floor {
            floor_ns: 1000 * MS,
            ..Floor::default()
        },
        above: Some(Above {
            took_ns: 1500 * MS,
            own_ns: 100 * MS,
            order_ns: 400 * MS,
            ..Above::default()
        }),
    };
    let now = 3 * 60 * 1000 * MS;
    let told = floor.text(now);
    assert!(told.starts_with("1.00 s; the start "), "{told}");
    assert!(
        told.ends_with(" took 1.50 s, 1.50 times that; above it mostly order, 400 ms"),
        "{told}"
    );
    (floor.took_ns, floor.above) = (900 * MS, None);
    assert!(floor.text(now).ends_with(" took 900 ms"), "{}", floor.text(now));
    let status = KeyStatus {
        floor: Some(floor),
        ..status()
    };
    let text = text(&status, now, false);
    assert!(text.lines().any(|line| line.starts_with("floor ")), "{text}");
}

#[test]
fn what_was_compared_and_what_not_is_told() {
    let comparison = compared((38, 3500), (4, 10_900), Some(0.02), Verdict::Faster);
    assert_eq!(group(&comparison.with), "3.50 s (median; 38 cold starts)");
    assert_eq!(group(&Group::default()), "no cold start yet");
    assert_eq!(left_out(&LeftOut::default()), None);
    let some = LeftOut {
        before_change: 0,
        recorded: 3,
        warm: 12,
        unknown: 0,
        unusual: 1,
        declined: 0,
    };
    assert_eq!(
        left_out(&some).as_deref(),
        Some(
            "starts: 12 with nearly all in memory, 3 that were recorded, which takes time, 1 that ended otherwise than most or taught nothing"
        )
    );
}
