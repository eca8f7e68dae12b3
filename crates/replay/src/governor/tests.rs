//! When a replay stops, and what it may read.

use super::*;

/// Options under which other work on the machine decides nothing.
fn options(stop_below: u64) -> Options {
    Options {
        stop_below,
        stop_pressure: 1e9,
        ..Options::new(Instant::now())
    }
}

fn governor(stop_below: u64) -> Governor {
    let governor = Governor::new(&options(stop_below));
    governor.start();
    governor
}

/// One that found this before its first request.
fn begun_with(options: &Options, reclaim: Option<Reclaim>, stalls: u64) -> Governor {
    let governor = Governor::new(options);
    let _ = governor.first.set(First {
        available: 1,
        stalls_us: None,
        reclaim,
        at: Instant::now(),
    });
    governor.stalls.store(stalls, Ordering::Relaxed);
    governor
}

#[test]
fn it_goes_on_until_it_is_stopped_and_keeps_the_first_reason() {
    let governor = governor(0);
    assert!(governor.go_on() && governor.stopped().is_none());
    governor.stop("one");
    governor.stop("two");
    assert!(!governor.go_on());
    assert_eq!(governor.stopped(), Some("one"));
}

#[test]
fn it_does_not_begin_on_too_little_memory() {
    let governor = governor(u64::MAX);
    assert!(!governor.go_on());
    assert!(
        governor
            .stopped()
            .unwrap()
            .contains("MiB of memory are available")
    );
    assert!(governor.memory_available() > 0);
    assert_eq!(governor.decisions().short, 1);
}

#[test]
fn on_little_memory_it_reads_metadata_only() {
    // What is available lies between half of the reserve and all of it.
    let usable = memory().unwrap().usable();
    let governor = governor(usable / 2 * 3);
    assert!(governor.go_on(), "{:?}", governor.stopped());
    assert!(!governor.reads(RequestKind::Data));
    assert!(governor.reads(RequestKind::Metadata) && governor.allow(usable / 100));
    assert!(!governor.allow(usable), "no more metadata than there is room for");
    let decisions = governor.decisions();
    assert_eq!((decisions.metadata_only, decisions.without_room), (1, 2));
}

#[test]
fn it_looks_again_while_running() {
    let mut governor = governor(0);
    governor.stop_below = u64::MAX;
    assert!(governor.go_on(), "no look is due yet");
    std::thread::sleep(INTERVAL);
    assert!(!governor.go_on());
    assert_eq!(governor.decisions().looks, 2);
}

#[test]
fn it_stops_when_the_kernel_reclaims() {
    let options = Options {
        stop_at_reclaim: true,
        ..options(0)
    };
    // One page less than now.
    let before = |now: Reclaim| Reclaim {
        scanned: now.scanned.saturating_sub(1),
        ..now
    };
    let governor = begun_with(&options, reclaim().map(before), 0);
    let scanned = reclaim().is_some_and(|reclaim| reclaim.scanned > 0);
    governor.check(1);
    assert_eq!(governor.stopped().is_some(), scanned);
    assert_eq!(governor.decisions().reclaimed, u32::from(scanned));
}

#[test]
fn without_psi_it_stops_when_tasks_have_to_find_memory_by_themselves() {
    let stalls = |stalls| Reclaim { scanned: 9, stalls };
    let governor = begun_with(&options(0), Some(stalls(100)), 100);
    governor.judge_stalls(Some(stalls(100 + STALLS - 1)));
    governor.judge_stalls(None);
    assert_eq!(governor.stopped(), None);
    governor.judge_stalls(Some(stalls(100 + 2 * STALLS)));
    assert!(governor.stopped().unwrap().contains("9 times"));
    assert_eq!(governor.decisions().pressed, 1);
}

#[test]
fn with_psi_it_stops_when_tasks_wait_for_memory() {
    let options = Options {
        stop_pressure: 20.0,
        ..options(0)
    };
    let governor = begun_with(&options, None, 1000);
    let waited = |some_total_us| Pressure {
        some_10: 0.0,
        some_total_us,
    };
    governor.judge_pressure(waited(1000 + 39_000), 200_000_000);
    assert_eq!(governor.stopped(), None);
    governor.judge_pressure(waited(40_000 + 41_000), 200_000_000);
    assert_eq!(
        governor.stopped(),
        Some("tasks waited for memory 20 % of the time")
    );
}

#[test]
fn it_stops_when_what_was_read_does_not_stay_while_the_kernel_reclaims() {
    let far = |scanned| Some(Reclaim { scanned, stalls: 0 });
    for (before, stops) in [(far(0), true), (far(u64::MAX), false)] {
        let governor = begun_with(&options(0), before, 0);
        governor.found_again(100, 90);
        assert_eq!(governor.stopped(), None, "a tenth is gone");
        governor.found_again(100, 0);
        // Of a kernel that has never looked for pages nothing follows.
        let stops = stops && reclaim().is_some_and(|now| now.scanned > 0);
        assert_eq!(governor.decisions().evicted, u32::from(stops));
        let why = stops.then_some("110 of 200 pages that had been read ahead were out of memory again");
        assert_eq!(governor.stopped(), why);
    }
}

#[test]
fn no_more_is_read_than_the_share_of_what_was_available() {
    let governor = governor(0);
    let available = governor.memory_available();
    assert!(governor.allow(available / 4));
    assert!(!governor.allow(available / 2));
    assert!(governor.allow(available / 8));
    assert_eq!(governor.decisions().without_room, 1);
}

#[test]
fn replays_of_one_process_share_what_is_available() {
    let options = options(0);
    let governor = |options: &Options| {
        let governor = Governor::new(options);
        governor.start();
        governor
    };
    let (first, second) = (governor(&options), governor(&options));
    let available = first.memory_available();
    assert!(first.allow(available / 8));
    assert!(
        second.allow(available / 4),
        "the first has not taken more than it reads"
    );
    assert!(!first.allow(available / 4) && !second.allow(available / 4));
    drop(second);
    assert!(first.allow(available / 4), "it gives it back at its end");
}

#[test]
fn what_a_start_needs_for_itself_is_how_much_less_was_available() {
    let governor = governor(0);
    let before = governor.memory_available();
    governor.lowest.store(before / 2, Ordering::Relaxed);
    assert_eq!(governor.memory_needed(), Some(before - before / 2));
    assert_eq!(Governor::new(&options(0)).memory_needed(), None);
}
