use super::*;
use headstart_model::Key;
use headstart_model::machine::{Compression, Cost, FirstTouch};
use headstart_model::outcome::Mode;
use headstart_model::plan::{Fill, PlanFile, RequestKind, Touch};
use headstart_model::testing;

const MS: u64 = 1_000_000;

/// What the lab's container needs, in the requests of its plan, on a device of this cost.
fn container(class: DeviceClass, bandwidth: f64, latency: f64, depth: u32) -> PlanFile {
    let request = |number: u32| Request {
        deadline_us: number,
        ..Request::new(RequestKind::Data, 0, 28_418_832 / 447)
    };
    let cost = Cost {
        class,
        bandwidth,
        latency,
        depth,
    };
    let mut draft = testing::draft(
        cost,
        vec![testing::planned("/f")],
        (0..447).map(request).collect(),
    );
    draft.key = testing::key("boot");
    testing::plan_file(&draft)
}

fn alone(own_ms: u64, rest_ms: u64, blocked_ms: u64) -> Alone {
    Alone {
        own_ns: own_ms * MS,
        cpu_ns: 60 * MS,
        rest_ns: rest_ms * MS,
        blocked_ns: Some(blocked_ms * MS),
    }
}

fn why_bypassed(alone: Alone, plan: &PlanFile) -> Option<String> {
    let bypass = decide(Some(&alone), Some(&plan.plan().unwrap()), &[], 10);
    bypass.map(|bypass| {
        assert!(!bypass.replay && bypass.every == 10 && bypass.kernel == kernel());
        bypass.why
    })
}

#[test]
fn a_start_by_itself_waits_for_each_granule_of_a_volume_that_is_filled_as_it_is_read() {
    let file = container(DeviceClass::Flash, 125e6, 7e-4, 4);
    let (before, mut draft) = (
        Device::from_plan(&file.plan().unwrap(), u64::MAX, 2).alone_ns,
        file.plan().unwrap().to_draft().unwrap(),
    );
    draft.fills = vec![Fill {
        device: 0,
        first_touch: FirstTouch {
            granule: 512 << 10,
            latency: 33e-3,
            depth: 10,
        },
        touches: (0..100u32)
            .map(|n| Touch {
                offset: u64::from(n) << 19,
                request: n,
            })
            .collect(),
    }];
    let file = PlanFile::new(draft.to_bytes().unwrap());
    let plan = file.plan().unwrap();
    assert!((3_299 * MS..=3_301 * MS).contains(&(Device::from_plan(&plan, u64::MAX, 2).alone_ns - before)));
    // Ten at once, of those that are needed until then: requests 0 to 50.
    assert!((197 * MS..=199 * MS).contains(&Device::from_plan(&plan, 50_000, 2).replay_ns));
}

/// The container of docs/notes/2026-11-boots.md: seconds from the execution of process 1 on, costs as
/// probed.
#[test]
fn the_measured_boots_are_bypassed_where_they_gain_nothing() {
    use DeviceClass::*;
    let open = |alone, plan: &PlanFile| assert_eq!(why_bypassed(alone, plan), None);
    // With headstart 6.7, 1.8, 0.28 and 1.8 s sooner.
    open(alone(200, 7900, 7600), &container(Disk, 110e6, 6e-3, 1));
    open(alone(100, 1930, 3000), &container(Flash, 500e6, 4e-3, 16));
    open(alone(80, 490, 1000), &container(Flash, 111e6, 0.79e-3, 4));
    open(alone(250, 2850, 15_000), &container(Flash, 99e6, 33.8e-3, 16));
    // 0.05 s later from before process 1 on, 0.25 s from the first unit on.
    let card = container(Flash, 24.3e6, 0.68e-3, 1);
    let why = why_bypassed(alone(250, 1640, 5000), &card).unwrap();
    assert!(why.contains("would take the disk 1.47 s"), "{why}");
    assert!(why_bypassed(alone(370, 1230, 4000), &card).is_some());
    // No difference but 0.1 s of processors.
    let none = container(Flash, 2.2e9, 9.3e-6, 1);
    let why = why_bypassed(alone(40, 290, 230), &none).unwrap();
    assert!(why.contains("waits 21.2 ms for disks"), "{why}");
}

/// 27 MiB of a live system, by xz: a stick is read within 0.95 s.
#[test]
fn a_boot_is_bypassed_where_processors_take_as_long_to_decompress_it() {
    let mut draft = container(DeviceClass::Flash, 30e6, 0.5e-3, 4)
        .plan()
        .unwrap()
        .to_draft()
        .unwrap();
    draft.devices[0].compression = Some(Compression {
        block: 128 << 10,
        rate: 20,
    });
    let file = testing::plan_file(&draft);
    let plan = file.plan().unwrap();
    let device = |processors| Device::from_plan(&plan, u64::MAX, processors);
    assert_eq!([1, 2].map(|of| device(of).decompresses), [true, false]);
    let why = |processors| too_little(&alone(40, 1550, 1400), &device(processors));
    let one = why(1).unwrap();
    assert!(
        one.contains("take the processors, which decompress it, 1.42 s"),
        "{one}"
    );
    assert_eq!(why(2), None);
}

#[test]
fn what_is_in_memory_already_is_not_waited_for() {
    let disk = container(DeviceClass::Flash, 500e6, 0.1e-3, 16);
    assert!(why_bypassed(alone(40, 2000, 0), &disk).is_some());
    assert!(
        why_bypassed(alone(40, 2000, 90), &disk).is_some(),
        "headstart takes as much"
    );
    assert!(
        why_bypassed(alone(40, 1000, 150), &disk).is_some(),
        "it saves half of that"
    );
    let disk = container(DeviceClass::Flash, 500e6, 0.25e-3, 16);
    assert_eq!(why_bypassed(alone(40, 1000, 250), &disk), None);
    let unknown = Alone {
        blocked_ns: None,
        ..alone(40, 1000, 0)
    };
    assert_eq!(why_bypassed(unknown, &disk), None, "the device's cost tells then");
}

#[test]
fn only_what_is_needed_by_the_end_counts_and_nonsense_is_not_believed() {
    let card = container(DeviceClass::Flash, 24.3e6, 0.68e-3, 1);
    let plan = card.plan().unwrap();
    assert_eq!(
        Device::from_plan(&plan, 0, 2).replay_ns / MS,
        3,
        "one request of 447"
    );
    assert_eq!(Device::from_plan(&plan, 447_000, 2).replay_ns / MS, 1473);
    assert_eq!(
        why_bypassed(alone(100, 1100, 900), &card),
        None,
        "it has just read all that"
    );
}

#[test]
fn starts_are_bypassed_where_replays_are_slower_and_those_are_tried_again() {
    let outcome = |(mode, ms): (Mode, u64)| Outcome {
        elapsed_ns: ms * MS,
        status: Some(0),
        ..Outcome::new(Key::new("boot").unwrap(), mode)
    };
    let mut times = vec![(Mode::Record, 1970)];
    times.extend((0..9).map(|i| (Mode::Replay, 2190 + 10 * i)));
    times.push((Mode::Control, 1980));
    let outcomes: Vec<Outcome> = times.into_iter().map(outcome).collect();
    let bypass = decide(None, None, &outcomes, 10).unwrap();
    assert!(bypass.replay, "only a replay can tell");
    assert!(
        bypass.why.contains("2.23 s") && bypass.why.contains("1.98 s"),
        "{}",
        bypass.why
    );
    assert_eq!(decide(None, None, &outcomes[..10], 10), None);
    assert_eq!(
        decide(None, None, &outcomes, 0),
        None,
        "all starts are to be read ahead"
    );
}

#[test]
fn three_starts_in_a_row_that_teach_nothing_are_enough() {
    let outcome = |why: &str| Outcome {
        not_learned: (!why.is_empty()).then(|| why.into()),
        ..Outcome::new(Key::new("boot").unwrap(), Mode::Record)
    };
    let after = |whys: &[&str]| {
        let outcomes: Vec<Outcome> = whys.iter().map(|why| outcome(why)).collect();
        untaught(&outcomes, 10)
    };
    let bypass = after(&["", "first", "second", "events were lost"]).unwrap();
    assert!(bypass.why.ends_with("events were lost") && !bypass.replay && bypass.every == 10);
    assert_eq!(after(&["one", "two"]), None);
    assert_eq!(
        after(&["one", "two", "three", ""]),
        None,
        "the last taught something"
    );
    assert_eq!(after(&["one", "", "two", "three"]), None);
    assert_eq!(untaught(&[outcome("a"), outcome("b"), outcome("c")], 0), None);
    let unrecorded = Outcome {
        unrecorded: true,
        ..outcome("not its turn")
    };
    assert_eq!(untaught(&[outcome("a"), unrecorded, outcome("c")], 10), None);
}

#[test]
fn starts_whose_files_are_scanned_as_they_are_opened_are_bypassed() {
    let bypass = dear_opens(Some(Duration::from_micros(1250)), 10).unwrap();
    assert!(!bypass.replay && bypass.every == 10);
    assert!(
        bypass.why.contains("1.25 ms") && bypass.why.contains("scanner"),
        "{}",
        bypass.why
    );
    assert_eq!(dear_opens(None, 10), None);
    assert_eq!(
        dear_opens(Some(Duration::from_secs(1)), 0),
        None,
        "all are to be replayed"
    );
}

#[test]
fn what_is_found_again_is_looked_for_more_seldom() {
    let bypass = |every, kernel: &str| Bypass {
        every,
        kernel: kernel.into(),
        machine: String::new(),
        replay: false,
        why: "no gain".into(),
    };
    let next = |before: Option<&Bypass>| confirmed(bypass(10, "6.12"), before, 10).every;
    assert_eq!(next(None), 10);
    assert_eq!(next(Some(&bypass(10, "6.1"))), 10, "another kernel");
    assert_eq!(next(Some(&bypass(10, "6.12"))), 20);
    assert_eq!(next(Some(&bypass(20, "6.12"))), 40);
    assert_eq!(next(Some(&bypass(40, "6.12"))), 40);
    assert_eq!(next(Some(&bypass(2, "6.12"))), 20, "it was configured otherwise");
}
