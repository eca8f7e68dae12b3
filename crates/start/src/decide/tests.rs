use super::*;
use headstart_model::Key;
use headstart_model::outcome::Skipped;

fn known() -> PriorState<'static> {
    PriorState {
        enabled: true,
        bypass: None,
        kernel: "6.18",
        machine: "4ed0",
        turns: Turns::default(),
        control_every: 10,
        fixed_rate: false,
        has_plan: true,
        warmth: None,
        draw: u64::MAX,
    }
}

fn turns(replays_since_control: u32) -> Turns {
    Turns {
        replays_since_control,
        ..Turns::default()
    }
}

#[test]
fn an_unknown_start_is_recorded_and_a_known_one_replayed() {
    let unknown = PriorState {
        has_plan: false,
        ..known()
    };
    assert_eq!(decide(&unknown), Decision::Record);
    assert_eq!(decide(&known()), Decision::Replay);
}

#[test]
fn one_start_in_so_many_is_a_control_run() {
    let after = |replays, control_every| {
        decide(&PriorState {
            turns: turns(replays),
            control_every,
            ..known()
        })
    };
    assert_eq!(after(8, 10), Decision::Replay);
    assert_eq!(after(9, 10), Decision::Control);
    assert_eq!(after(0, 1), Decision::Control);
    assert_eq!(after(u32::MAX, 0), Decision::Replay);
    assert_eq!(next_turns(turns(2), Mode::Replay), turns(3));
    assert_eq!(next_turns(turns(2), Mode::Record), turns(2));
    assert_eq!(next_turns(turns(2), Mode::Control), turns(0));
    for none in [Mode::Bypass, Mode::Declined] {
        assert_eq!(next_turns(turns(2), none), turns(2));
    }
    assert_eq!(Decision::Bypass("warm".into()).mode(), Mode::Bypass);
}

#[test]
fn a_known_start_is_recorded_one_time_in_so_many_and_after_it_has_changed() {
    let outcome = |mode, unrecorded, changed| Outcome {
        not_learned: (mode == Mode::Replay && unrecorded).then(|| "not its turn".into()),
        unrecorded,
        skipped: Skipped {
            changed,
            ..Skipped::default()
        },
        elapsed_ns: 1_000_000_000,
        ..Outcome::new(Key::new("boot").unwrap(), mode)
    };
    let after = |record_in, outcome: &Outcome, runs, every| {
        let before = Turns {
            record_in,
            ..Turns::default()
        };
        next_record_in(before, outcome, 500, runs, every)
    };
    let recorded = outcome(Mode::Replay, false, 5);
    assert_eq!(after(0, &recorded, 2, 6), 0, "too little is known");
    assert_eq!(after(0, &recorded, 3, 6), 5);
    assert_eq!(after(0, &recorded, 3, 1), 0, "each is recorded");
    assert_eq!(after(5, &outcome(Mode::Replay, true, 0), 3, 6), 4);
    assert_eq!(after(1, &outcome(Mode::Replay, true, 0), 3, 6), 0);
    assert_eq!(after(5, &outcome(Mode::Replay, true, 20), 3, 6), 0, "an upgrade");
    assert_eq!(after(0, &outcome(Mode::Replay, false, 20), 3, 6), 0);
    assert_eq!(
        after(5, &outcome(Mode::Record, true, 0), 3, 6),
        0,
        "it was not read ahead"
    );
    assert_eq!(after(0, &outcome(Mode::Control, false, 0), 3, 6), 5);
    let in_vain = Outcome {
        not_learned: Some("events were lost".into()),
        ..recorded
    };
    assert_eq!(after(0, &in_vain, 3, 6), 0);
    let control = outcome(Mode::Control, true, 0);
    assert_eq!(after(5, &control, 3, 6), 5, "it is no replay's turn");
    let unseen = Outcome {
        elapsed_ns: 0,
        ..outcome(Mode::Replay, true, 0)
    };
    assert_eq!(after(5, &unseen, 3, 6), 0, "only a recording tells when it ends");
}

#[test]
fn recording_takes_a_hundredth_of_all_starts() {
    assert_eq!(record_every(50_000_000, Some(5_000_000_000)), 1);
    assert_eq!(record_every(50_000_000, Some(4_900_000_000)), 2);
    assert_eq!(record_every(50_000_000, Some(1_000_000_000)), 5);
    assert_eq!(record_every(50_000_000, Some(100_000_000)), 10);
    assert_eq!(record_every(50_000_000, Some(0)), 10);
    assert_eq!(record_every(50_000_000, None), 1);
}

#[test]
fn between_recorded_starts_every_other_control_run_is_recorded_and_all_that_tells_more() {
    let recorded = |record_in, control_is_recorded, decision: &Decision, is_warm| {
        let turns = Turns {
            record_in,
            control_is_recorded,
            ..Turns::default()
        };
        is_recorded(&PriorState { turns, ..known() }, decision, is_warm)
    };
    let (replay, control) = (Decision::Replay, Decision::Control);
    assert!(recorded(0, false, &replay, false) && !recorded(1, true, &replay, false));
    assert!(recorded(0, false, &control, false) && !recorded(1, false, &control, false));
    assert!(recorded(1, true, &control, false));
    assert!(recorded(9, false, &control, true) && recorded(9, false, &replay, true));
    assert!(recorded(9, false, &Decision::Record, false));
    let with = |turns: Turns, bypass| {
        let known = PriorState {
            turns: Turns {
                record_in: 9,
                ..turns
            },
            bypass,
            ..known()
        };
        is_recorded(&known, &replay, false)
    };
    let alternate = Turns {
        alternate: 2,
        ..Turns::default()
    };
    let exact_due = Turns {
        exact_due: true,
        ..Turns::default()
    };
    let bypass = Bypass {
        every: 10,
        kernel: "6.18".into(),
        machine: "4ed0".into(),
        replay: true,
        why: "no gain".into(),
    };
    assert!(with(alternate, None) && with(exact_due, None) && with(Turns::default(), Some(&bypass)));
    assert!(!with(Turns::default(), None));
}

#[test]
fn nothing_is_done_for_a_disabled_key() {
    for control_every in [0, 1, 10] {
        let disabled = PriorState {
            enabled: false,
            control_every,
            ..known()
        };
        let Decision::Bypass(why) = decide(&disabled) else {
            panic!("one in {control_every}")
        };
        assert!(why.contains("apps enable"), "{why}");
    }
}

#[test]
fn starts_that_somebody_measures_are_a_replay_and_a_control_in_turns() {
    let mut turns = Turns {
        alternate: 4,
        control_every: 84,
        ..turns(1)
    };
    for (control_every, expected) in [
        (10, Mode::Control),
        (0, Mode::Replay),
        (10, Mode::Control),
        (0, Mode::Replay),
    ] {
        let mode = decide(&PriorState {
            turns,
            control_every,
            ..known()
        })
        .mode();
        assert_eq!(mode, expected, "{turns:?}");
        turns = next_turns(turns, mode);
    }
    assert_eq!(turns.alternate, 0);
    assert_eq!(
        next_turns(
            Turns {
                alternate: 3,
                ..turns
            },
            Mode::Bypass
        )
        .alternate,
        3
    );
}

#[test]
fn in_doubt_every_other_start_is_a_control_run() {
    let doubtful = |replays_since_control| Turns {
        replays_since_control,
        in_doubt: true,
        ..Turns::default()
    };
    let after = |replays, control_every| {
        decide(&PriorState {
            turns: doubtful(replays),
            control_every,
            ..known()
        })
    };
    assert_eq!(after(0, 10), Decision::Replay);
    assert_eq!(after(1, 10), Decision::Control);
    assert_eq!(after(0, 1), Decision::Control);
    assert_eq!(after(u32::MAX, 0), Decision::Replay);
    assert_eq!(next_turns(doubtful(1), Mode::Control), doubtful(0));
}

#[test]
fn control_runs_are_as_seldom_as_earlier_starts_allow_unless_somebody_asks_for_them() {
    let after = |found, replays, control_every, fixed_rate| {
        let turns = Turns {
            control_every: found,
            ..turns(replays)
        };
        decide(&PriorState {
            turns,
            control_every,
            fixed_rate,
            ..known()
        })
    };
    assert_eq!(after(84, 82, 10, false), Decision::Replay);
    assert_eq!(after(84, 83, 10, false), Decision::Control);
    assert_eq!(after(84, 9, 10, true), Decision::Control);
    assert_eq!(after(7, 6, 10, false), Decision::Control, "the first of all");
    assert_eq!(
        after(1, 5, 10, false),
        Decision::Replay,
        "nobody asks for that any more"
    );
    assert_eq!(after(84, u32::MAX, 0, false), Decision::Replay);
    let doubtful = Turns {
        control_every: 84,
        in_doubt: true,
        ..turns(1)
    };
    let in_doubt = PriorState {
        turns: doubtful,
        ..known()
    };
    assert_eq!(decide(&in_doubt), Decision::Control);
}

#[test]
fn a_bypass_holds_for_its_kernel_and_is_re_evaluated_by_chance() {
    let bypass = |replay| Bypass {
        every: 10,
        kernel: "6.18".into(),
        machine: "4ed0".into(),
        replay,
        why: "no gain".into(),
    };
    let (record, replay) = (bypass(false), bypass(true));
    let decision_for = |bypass, kernel, draw| {
        decide(&PriorState {
            bypass: Some(bypass),
            kernel,
            draw,
            ..known()
        })
    };
    assert_eq!(
        decision_for(&record, "6.18", 7),
        Decision::Bypass("no gain".into())
    );
    assert_eq!(decision_for(&record, "6.18", 20), Decision::Control);
    assert_eq!(decision_for(&replay, "6.18", 20), Decision::Replay);
    let unknown = PriorState {
        bypass: Some(&record),
        draw: 20,
        has_plan: false,
        ..known()
    };
    assert_eq!(
        decide(&unknown),
        Decision::Record,
        "there is nothing to compare with"
    );
    assert_eq!(
        decision_for(&record, "7.2", 7),
        Decision::Replay,
        "another kernel"
    );
    let elsewhere = PriorState {
        bypass: Some(&record),
        machine: "",
        draw: 7,
        ..known()
    };
    assert_eq!(decide(&elsewhere), Decision::Replay, "another machine");
    let known = PriorState {
        bypass: Some(&record),
        control_every: 0,
        ..known()
    };
    assert_eq!(decide(&known), Decision::Replay, "all starts are to be replayed");
}

#[test]
fn a_warm_start_is_bypassed_and_recorded_one_time_in_so_many() {
    let at = |cold, device_ms: u64, draw| {
        let warmth = Some(Warmth {
            cold,
            alone_ns: device_ms * 1_000_000,
        });
        decide(&PriorState {
            warmth,
            draw,
            ..known()
        })
    };
    let warm = Decision::Bypass("what it reads is in memory".into());
    assert_eq!(at(0.0, 60_000, 1 << 32), warm);
    assert_eq!(at(0.0, 60_000, 20 << 32), Decision::Control);
    assert_eq!(at(0.02, 1000, 1 << 32), warm, "20 ms of reading");
    assert_eq!(at(0.02, 10_000, 1 << 32), Decision::Replay, "200 ms of reading");
    assert_eq!(at(0.1, 200, 1 << 32), warm, "20 ms of reading");
    assert_eq!(at(0.2, 10, 1 << 32), Decision::Replay, "a fifth of it is cold");
    let taken = (0..1000)
        .filter(|draw| at(0.0, 1000, draw << 32) == Decision::Control)
        .count();
    assert_eq!(taken, 100);
}

#[test]
fn a_warm_start_is_bypassed_where_all_starts_are_replayed_too() {
    let decision_for = |cold| {
        decide(&PriorState {
            control_every: 0,
            warmth: Some(Warmth {
                cold,
                alone_ns: 1_000_000_000,
            }),
            draw: 0,
            ..known()
        })
    };
    assert_eq!(
        decision_for(0.0),
        Decision::Bypass("what it reads is in memory".into())
    );
    assert_eq!(decision_for(0.5), Decision::Replay);
}

#[test]
fn what_was_used_and_not_planned_has_warm_starts_recorded_ever_more_seldom() {
    let taken = |unplanned, control_every| {
        let decisions = (0..64_000u64).map(|draw| {
            decide(&PriorState {
                turns: Turns {
                    unplanned,
                    ..Turns::default()
                },
                control_every,
                warmth: Some(Warmth {
                    cold: 0.0,
                    alone_ns: 1_000_000_000,
                }),
                draw: draw << 32,
                ..known()
            })
        });
        let recorded: Vec<Decision> = decisions
            .filter(|decision| !matches!(decision, Decision::Bypass(_)))
            .collect();
        let kind = if control_every == 0 {
            Decision::Replay
        } else {
            Decision::Control
        };
        assert!(recorded.iter().all(|recorded| *recorded == kind));
        recorded.len()
    };
    assert_eq!(taken(0, 10), 6400);
    assert_eq!(taken(1, 10), 64_000, "the next is recorded");
    assert_eq!(taken(2, 10), 32_000);
    assert_eq!(taken(3, 10), 16_000);
    assert_eq!(taken(5, 10), 6400, "as seldom as any");
    assert_eq!(taken(255, 10), 6400);
    assert_eq!(taken(0, 0), 0);
    assert_eq!(taken(1, 0), 64_000);
    assert_eq!(taken(200, 0), 1000);
}
