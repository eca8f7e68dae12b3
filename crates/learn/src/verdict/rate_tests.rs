//! How frequent control runs are, what changes of the starts are seen, and where no replay can gain.

use super::controls::{Rate, cost, most_frequent, phase};
use super::tests::{in_turn, start};
use super::waits::too_little;
use super::*;
use headstart_model::Key;
use headstart_model::outcome::Skipped;

const MS: u64 = 1_000_000;

/// A first start of 11 s, then replays of 2 s and as many control runs of 10 s, each after nine of them.
fn gaining(controls: usize) -> Vec<Outcome> {
    let mut outcomes = vec![start(Mode::Record, 11_000, 0)];
    outcomes.extend(in_turn(&[2000, 2040, 1980, 2010], &vec![10_000; controls], 0));
    outcomes
}

fn every(outcomes: &[Outcome]) -> u32 {
    History::of(outcomes).0.control_every(10, 0)
}

#[test]
fn one_control_run_shows_a_plain_gain_and_the_next_is_late() {
    let outcomes = gaining(1);
    let comparison = compare(&outcomes);
    assert_eq!((comparison.verdict, comparison.p), (Verdict::Faster, None));
    assert_eq!(every(&outcomes), 80);
    assert_eq!(every(&outcomes[..10]), 10, "nothing is shown before it");
    let mut slow = outcomes.clone();
    slow[10].elapsed_ns = 2500 * MS;
    assert_eq!(
        compare(&slow).verdict,
        Verdict::TooFew,
        "a slow first start shows nothing"
    );
}

#[test]
fn control_runs_stay_as_frequent_where_nothing_is_shown() {
    let same = in_turn(&[1000, 1200, 900, 1100, 1050, 950], &[1040, 1010, 990, 1120], 5);
    assert_eq!(every(&same), 10);
    let history = History::of(&same).0;
    for first in [0, 1, 2, 3] {
        assert_eq!(history.control_every(first, 7), first);
    }
    let slower = in_turn(&[1300, 1310, 1290], &[1000; 3], 5);
    assert_eq!(every(&slower), 10);
    assert!(in_doubt(&slower), "and every second one is");
}

#[test]
fn programs_that_are_started_together_are_controls_on_different_days() {
    let known = History::of(&gaining(1)[..5]).0;
    let first: Vec<u32> = (0..4).map(|phase| known.control_every(10, phase)).collect();
    assert_eq!(first, [10, 9, 8, 7]);
    assert_eq!(most_frequent(10), 7);
    let keys = [
        "/usr/bin/git",
        "/usr/bin/soffice",
        "/usr/bin/psql",
        "boot",
        "/usr/bin/gimp",
        "/bin/x",
    ];
    let later = History::of(&gaining(2)).0;
    let mut days: Vec<u32> = keys
        .map(|key| later.control_every(10, phase(&Key::new(key).unwrap())))
        .to_vec();
    assert!(days.iter().all(|day| (80..96).contains(day)), "{days:?}");
    days.sort_unstable();
    days.dedup();
    assert!(days.len() >= 4, "{days:?}");
}

#[test]
fn an_update_and_another_machine_make_a_control_run_due_sooner() {
    let mut outcomes = gaining(2);
    let mut updated = start(Mode::Replay, 2000, 0);
    updated.skipped = Skipped {
        changed: 5,
        ..Skipped::default()
    };
    outcomes.push(updated);
    assert_eq!(every(&outcomes), 60);
    let history = History::of(&outcomes).0;
    let seldom = Rate {
        every: 80,
        replays_since_control: 30,
    };
    let rate = seldom.after(&history, false, 10, 0).machine_changed(10, 2);
    assert_eq!((rate.every, rate.replays_since_control), (8, 0));
    assert_eq!(rate.after(&history, false, 10, 0).every, 8, "until one was made");
    assert_eq!(rate.after(&history, true, 10, 0).every, 60);
    assert_eq!(Rate::default().after(&history, false, 10, 0).every, 60);
}

#[test]
fn starts_from_before_all_replays_changed_are_not_compared() {
    let mut outcomes = gaining(2);
    // One after the other on a faster disk, an outlier among them.
    for ms in [1500, 1510, 2400, 1490, 1505, 1515] {
        outcomes.push(start(Mode::Replay, ms, 0));
        assert_eq!(compare(&outcomes).left_out.before_change, 0, "six of seven");
    }
    outcomes.push(start(Mode::Replay, 1495, 0));
    let comparison = compare(&outcomes);
    assert_eq!(
        (comparison.left_out.before_change, comparison.with.starts),
        (28, 0)
    );
    assert_eq!((comparison.verdict, every(&outcomes)), (Verdict::TooFew, 10));
    assert_eq!(History::of(&outcomes).0.replays_since_change(), Some(0));
    assert_eq!(saved_ns(&outcomes, &comparison), None);
    // A replay that finds half of it in memory is no other machine.
    let mut warmer = gaining(2);
    warmer.extend((0..20).map(|i| start(Mode::Replay, 1200 + i, 50)));
    assert_eq!(compare(&warmer).left_out.before_change, 0);
}

#[test]
fn one_control_run_that_is_plainly_faster_is_a_change_too() {
    let mut outcomes = gaining(2);
    outcomes.push(start(Mode::Control, 2100, 0));
    let comparison = compare(&outcomes);
    assert_eq!(
        (comparison.left_out.before_change, comparison.without.starts),
        (22, 0)
    );
    outcomes.pop();
    outcomes.push(start(Mode::Control, 9000, 0));
    assert_eq!(compare(&outcomes).left_out.before_change, 0);
}

#[test]
fn control_runs_that_are_seldom_are_still_compared() {
    let mut outcomes = gaining(2);
    outcomes.extend((0..120).map(|i| start(Mode::Replay, 2000 + i % 7, 0)));
    let comparison = compare(&outcomes);
    assert_eq!(comparison.verdict, Verdict::Faster);
    assert_eq!(comparison.without.median_ns, Some(10_000 * MS));
}

#[test]
fn what_control_runs_cost_is_what_they_took_longer_than_replays() {
    let outcomes = gaining(3);
    let told = cost(&outcomes, &compare(&outcomes)).unwrap();
    assert_eq!(told.controls, 3);
    assert!(
        (23_900..=24_100).contains(&(told.cost_ns / 1_000_000)),
        "{told:?}"
    );
    let share = told.share_of_saved.unwrap();
    assert!(
        (share - 1.0 / 9.0).abs() < 0.01,
        "one in ten costs a ninth: {share}"
    );
    assert_eq!(cost(&outcomes[..5], &compare(&outcomes[..5])), None);
}

/// A first start, replays and a control run after them, each of which waited for so many percent of its time.
fn waiting(percent: u64, replays: u64) -> Vec<Outcome> {
    let waited = |mode, ms: u64| Outcome {
        blocked_ns: Some(ms * MS * percent / 100),
        ..start(mode, ms, 0)
    };
    let mut outcomes = vec![Outcome {
        resident_before: None,
        ..waited(Mode::Record, 1000)
    }];
    outcomes.extend((0..replays).map(|i| waited(Mode::Replay, 800 + 150 * (i % 4))));
    outcomes.push(waited(Mode::Control, 1050));
    outcomes
}

#[test]
fn a_program_that_hardly_waits_is_told_within_twelve_starts() {
    for phase in 0..4 {
        let history = History::of(&waiting(9, 2)[..3]).0;
        let replays = history.control_every(10, phase) - 1;
        let outcomes = waiting(9, replays.into());
        assert!(outcomes.len() <= 12);
        assert_eq!(too_little(&outcomes), Some((94_500_000, 1050 * MS)));
        let before = outcomes.len() - 1;
        assert_eq!(
            too_little(&outcomes[..before]),
            None,
            "nobody knows whether the first was cold"
        );
    }
    assert_eq!(too_little(&waiting(11, 9)), None, "half of that may be saved");
}

#[test]
fn who_waits_or_gains_or_was_warm_is_read_ahead() {
    let mut outcomes = waiting(3, 9);
    assert!(too_little(&outcomes).is_some());
    outcomes[0].blocked_ns = Some(500 * MS);
    assert_eq!(too_little(&outcomes), None, "one start of two waited");
    let mut unknown = waiting(3, 9);
    unknown[10].blocked_ns = None;
    assert_eq!(too_little(&unknown), None, "waiting was not recorded");
    let mut warm = waiting(3, 9);
    warm[10] = Outcome {
        blocked_ns: Some(0),
        ..start(Mode::Control, 1000, 60)
    };
    assert_eq!(too_little(&warm), None);
    let mut gains = gaining(2);
    for outcome in &mut gains {
        outcome.blocked_ns = Some(0);
    }
    assert_eq!(too_little(&gains), None, "whatever it waited for, it gains");
}
