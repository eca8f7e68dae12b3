use super::*;
use crate::tests::{PAGE, facts};
use headstart_model::machine::ByteRange;
use headstart_model::outcome::Mode;
use headstart_model::plan::Request;
use headstart_model::testing::{self, DISK, FLASH, NETWORK, plan_file, used};
use headstart_model::trace::{EndReason, Mark, Scope};
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn floor(trace: &Trace, profile: &Profile, machine: &Machine) -> Floor {
    super::floor(trace, &needs(trace, profile, machine), machine)
}

/// A start of so many milliseconds that reads one page of each of these (page of the disk, millisecond).
fn start(warm_ms: u64, reads: &[(u64, u64)]) -> (Trace, Profile, Vec<FileFacts>) {
    let path = |index: usize| format!("/f{index}");
    let mut trace = testing::trace();
    trace.end.elapsed_ns = warm_ms * MS;
    trace.end.blocked_ns = Some(0);
    trace.files = (0..reads.len()).map(|i| testing::file(&path(i))).collect();
    trace.uses = (0..)
        .zip(reads)
        .map(|(file, (_, ms))| used(*ms, file, 0, 1))
        .collect();
    trace.uses.sort_by_key(|used| used.time_ns);
    let place = |(index, (at, _)): (usize, &(u64, u64))| facts(&path(index), &[(0, *at, 1)], &[]);
    let files = reads.iter().enumerate().map(place).collect();
    (trace, testing::profile(Vec::new()), files)
}

#[test]
fn a_start_that_reads_nothing_takes_what_it_computes() {
    let (trace, profile, files) = start(400, &[]);
    let computed = floor(&trace, &profile, &testing::machine(DISK, "ext4", files));
    assert_eq!(
        (computed.floor_ns, computed.read_all_ns, computed.bytes),
        (400 * MS, 0, 0)
    );
}

#[test]
fn one_head_jumps_once_for_each_place_and_reads_small_holes() {
    // Far apart: two jumps of 5 ms. 25 pages at 100 MB/s are a millisecond.
    let (trace, profile, files) = start(400, &[(0, 0), (100_000, 0), (50_000, 0)]);
    let computed = floor(&trace, &profile, &testing::machine(DISK, "ext4", files));
    let pages = |count: u64| (count * PAGE) as f64 / 100e6 * 1e9;
    assert_eq!(computed.read_all_ns, (10e6 + pages(3)) as u64);
    assert_eq!(computed.floor_ns, computed.read_all_ns + 400 * MS);
    let (trace, profile, files) = start(400, &[(0, 0), (26, 0)]);
    let computed = floor(&trace, &profile, &testing::machine(DISK, "ext4", files));
    assert_eq!(computed.read_all_ns, (pages(27)) as u64);
}

#[test]
fn where_many_are_served_at_once_the_requests_count_or_the_bytes() {
    let far: Vec<(u64, u64)> = (0..64).map(|i| (i * 100_000, 0)).collect();
    let (trace, profile, files) = start(10, &far);
    let computed = floor(&trace, &profile, &testing::machine(NETWORK, "ext4", files));
    // 64 at 1 ms, 16 at once.
    assert_eq!(computed.read_all_ns, 4 * MS);
    // 8 pages apart they are joined: 61 µs of bytes beat 8 requests of 12.5 µs each, and one takes 100.
    let near: Vec<(u64, u64)> = (0..8).map(|i| (i * 2, 0)).collect();
    let (trace, profile, files) = start(10, &near);
    let computed = floor(&trace, &profile, &testing::machine(FLASH, "ext4", files));
    assert_eq!(computed.read_all_ns, 100_000);
}

#[test]
fn the_moment_decides_that_has_most_before_and_behind_it() {
    // A jump for the first, much for what is needed at the very end: the head has the time.
    let (trace, profile, files) = start(1000, &[(0, 0), (100_000, 2), (200_000, 990)]);
    let computed = floor(&trace, &profile, &testing::machine(DISK, "ext4", files));
    assert_eq!(computed.moment_ns, 2 * MS);
    let read = 5 * MS + (2 * PAGE * 10);
    assert_eq!((computed.read_ns, computed.floor_ns), (read, read + 998 * MS));
}

#[test]
fn pages_that_nobody_knows_were_used_do_not_raise_it() {
    let (mut trace, profile, _) = start(100, &[(0, 0)]);
    let files = vec![facts("/f0", &[(0, 0, 16)], &[])];
    let bytes = |trace: &Trace| floor(trace, &profile, &testing::machine(DISK, "ext4", files.clone())).bytes;
    trace.uses[0].pages = 16;
    for (kind, pages) in [
        (UseKind::Read, 16),
        (UseKind::Fault, 16),
        (UseKind::Map, 1),
        (UseKind::Around, 0),
        (UseKind::Add, 0),
    ] {
        trace.uses[0].kind = kind;
        assert_eq!(bytes(&trace), pages * PAGE, "{kind:?}");
    }
}

#[test]
fn metadata_counts_and_of_a_large_directory_one_block() {
    let (trace, profile, mut files) = start(100, &[(1000, 0)]);
    files[0].metadata = vec![ByteRange {
        start: 0,
        length: PAGE,
    }];
    files.push(FileFacts {
        found: PathKind::Directory,
        metadata: (0..50)
            .map(|block| ByteRange {
                start: (5000 + 2 * block) * PAGE,
                length: PAGE,
            })
            .collect(),
        ..facts("/", &[], &[])
    });
    let computed = floor(&trace, &profile, &testing::machine(DISK, "ext4", files));
    assert_eq!(computed.bytes, (1 + 1 + 2) * PAGE);
}

#[test]
fn of_a_start_that_waited_its_times_are_the_latest() {
    let (mut trace, profile, files) = start(4000, &[(0, 0), (100_000, 300), (200_000, 2000)]);
    trace.end.blocked_ns = Some(3000 * MS);
    trace.end.cpu_ns = Some(400 * MS);
    let computed = floor(&trace, &profile, &testing::machine(DISK, "ext4", files.clone()));
    assert!(computed.waited);
    assert_eq!(computed.warm_ns, 1000 * MS);
    // The second page was used after 300 ms at the latest, the third at the end, as far as anybody knows.
    let read = 5 * MS + 2 * PAGE * 10;
    assert_eq!(
        (computed.moment_ns, computed.floor_ns),
        (0, 1000 * MS + PAGE * 10)
    );
    trace.end.blocked_ns = None;
    let computed = floor(&trace, &profile, &testing::machine(DISK, "ext4", files.clone()));
    assert_eq!(computed.warm_ns, 400 * MS, "what it computed");
    // Of a boot all tasks' waiting says nothing.
    trace.end.blocked_ns = Some(9000 * MS);
    trace.meta.scope = Scope::System;
    let computed = floor(&trace, &profile, &testing::machine(DISK, "ext4", files.clone()));
    assert_eq!(computed.warm_ns, 400 * MS);
    trace.meta.scope = Scope::Tree;
    // Threads waited for longer than the start took: it takes what is read.
    trace.end.blocked_ns = Some(9000 * MS);
    let computed = floor(&trace, &profile, &testing::machine(DISK, "ext4", files));
    assert_eq!(
        (computed.warm_ns, computed.floor_ns),
        (0, read + 5 * MS + PAGE * 10)
    );
}

#[test]
fn what_a_start_was_held_for_is_no_part_of_it() {
    let reads = [(0, 0), (100_000, 100), (200_000, 300)];
    let (trace, profile, files) = start(400, &reads);
    let held = reads.map(|(at, ms)| (at, ms + 2000));
    let (later, ..) = start(2400, &held);
    let machine = testing::machine(DISK, "ext4", files);
    assert_eq!(
        floor(&trace, &profile, &machine),
        floor(&later, &profile, &machine)
    );
}

#[test]
fn what_a_recording_waited_for_quiet_is_no_part_of_the_start() {
    let (mut trace, profile, files) = start(4000, &[(0, 0), (10, 900)]);
    trace.end.reason = EndReason::Quiet;
    let computed = floor(&trace, &profile, &testing::machine(DISK, "ext4", files));
    assert_eq!(computed.warm_ns, 900 * MS);
}

#[test]
fn what_a_boot_does_once_it_is_up_is_no_part_of_it() {
    let (mut trace, profile, files) = start(1000, &[(0, 0), (100_000, 100), (200_000, 900)]);
    let machine = testing::machine(DISK, "ext4", files);
    let mut of = |marks: &[(u64, &str)]| {
        trace.meta.scope = Scope::System;
        trace.end.reason = EndReason::Quiet;
        (trace.end.blocked_ns, trace.end.cpu_ns) = (Some(1), Some(800 * MS));
        let mark = |(ms, stage): &(u64, &str)| Mark {
            time_ns: ms * MS,
            stage: (*stage).into(),
        };
        trace.marks = marks.iter().map(mark).collect();
        let computed = floor(&trace, &profile, &machine);
        (computed.warm_ns, computed.bytes)
    };
    assert_eq!(of(&[(200, "login")]), (800 * MS, 3 * PAGE), "it does not tell");
    assert_eq!(of(&[(200, "login"), (400, "up")]), (320 * MS, 2 * PAGE));
    assert_eq!(of(&[(400, "up"), (950, "session")]), (760 * MS, 3 * PAGE));
    assert_eq!(of(&[(300, "session"), (400, "up")]), (320 * MS, 2 * PAGE));
}

#[test]
fn the_parts_above_add_up() {
    // The replay reads f0 and f1, of which the start uses f0, and f2, which no replay read.
    let (mut trace, profile, mut files) = start(100, &[(0, 0), (200_000, 0)]);
    trace.files[1].path = "/f2".into();
    files[1].path = "/f2".into();
    files.push(facts("/f1", &[(0, 100_000, 1)], &[]));
    let machine = testing::machine(DISK, "ext4", files);
    let data = |file| Request::new(headstart_model::plan::RequestKind::Data, file, PAGE);
    let names = vec![testing::planned("/f0"), testing::planned("/f1")];
    let plan = plan_file(&testing::draft(DISK, names, vec![data(0), data(1)]));
    let computed = floor(&trace, &profile, &machine);
    let outcome = Outcome {
        elapsed_ns: 200 * MS,
        replay_ns: 30 * MS,
        first_request_ns: Some(12 * MS),
        ..Outcome::new(testing::key("k"), Mode::Replay)
    };
    let plan = plan.plan().unwrap();
    let parts = above_floor(&computed, &trace, &profile, &machine, &plan, &outcome).unwrap();
    let sum: u64 = parts.parts().iter().map(|(_, ns)| ns).sum();
    assert_eq!(sum, outcome.elapsed_ns - computed.floor_ns);
    assert_eq!(parts.own_ns, 12 * MS);
    // 18 ms for what takes a jump and two pages.
    assert_eq!(parts.order_ns, 13 * MS - 2 * PAGE * 10);
    // A jump more for f1 amid the way.
    assert_eq!(parts.over_read_ns, 5 * MS + PAGE * 10);
    assert_eq!(parts.reads_left_ns, 5 * MS + PAGE * 10);
    let nothing = Outcome::new(testing::key("k"), Mode::Control);
    assert_eq!(
        above_floor(&computed, &trace, &profile, &machine, &plan, &nothing),
        None
    );
    let fast = Outcome {
        elapsed_ns: computed.floor_ns,
        ..outcome
    };
    let parts = above_floor(&computed, &trace, &profile, &machine, &plan, &fast).unwrap();
    assert!(parts.parts().iter().all(|(_, ns)| *ns == 0), "{parts:?}");
}

/// A start that reads its pages in some order ahead: the device reads one after the other, and the start,
/// which is held for some time, waits for what it needs. Nanoseconds.
struct Simulated {
    /// When it ends.
    end: f64,
    /// When it needs each page for the first time: then it begins to wait for it.
    uses: Vec<f64>,
    /// How long it waits, that it is held left out.
    waited: f64,
}

fn simulate(warm_ms: u64, reads: &[(u64, u64)], order: &[usize], cost: &Cost, held_ms: u64) -> Simulated {
    let (mut now, mut head, mut done) = (0.0, None, vec![0.0; reads.len()]);
    for index in order {
        let at = reads[*index].0 * PAGE;
        let way = head.map_or(0.0, |head: u64| {
            let ahead = at.checked_sub(head).map(|gap| gap as f64 / cost.bandwidth);
            ahead.unwrap_or(f64::INFINITY).min(cost.latency)
        });
        now += way + PAGE as f64 / cost.bandwidth;
        head = Some(at + PAGE);
        done[*index] = now;
    }
    let mut needs: Vec<usize> = (0..reads.len()).collect();
    needs.sort_by_key(|index| reads[*index].1);
    let (mut clock, mut since, mut waited) = (held_ms as f64 * 1e-3, 0.0, 0.0);
    let mut uses = vec![0.0; reads.len()];
    for index in needs {
        let at = reads[index].1 as f64 * 1e-3;
        clock += at - since;
        uses[index] = clock * 1e9;
        waited += f64::max(done[index] - clock, 0.0) * 1e9;
        clock = f64::max(clock, done[index]);
        since = at;
    }
    Simulated {
        end: (clock + warm_ms as f64 * 1e-3 - since) * 1e9,
        uses,
        waited,
    }
}

proptest! {
    /// Neither of the floor by a warm start, nor of that by the trace of a start which was held and had to
    /// wait.
    #[test]
    fn no_order_of_reads_beats_the_floor(
        places in prop::collection::btree_set(0u64..20_000, 1..12),
        times in prop::collection::vec(0u64..100, 12),
        order in Just((0..12usize).collect::<Vec<_>>()).prop_shuffle(),
        recorded in Just((0..12usize).collect::<Vec<_>>()).prop_shuffle(),
        held_ms in 0u64..100,
    ) {
        let reads: Vec<(u64, u64)> = places.into_iter().zip(times).collect();
        let indices = |order: Vec<usize>| -> Vec<usize> {
            order.into_iter().filter(|index| *index < reads.len()).collect()
        };
        let (trace, profile, files) = start(100, &reads);
        let machine = testing::machine(DISK, "ext4", files);
        let computed = floor(&trace, &profile, &machine);
        let ended = simulate(100, &reads, &indices(order), &DISK, 0).end;
        prop_assert!(computed.floor_ns as f64 <= ended + 10.0, "{computed:?} {ended}");
        let other = simulate(100, &reads, &indices(recorded), &DISK, held_ms);
        let mut trace = trace;
        for used in &mut trace.uses {
            used.time_ns = other.uses[used.file as usize] as u64;
        }
        trace.uses.sort_by_key(|used| used.time_ns);
        trace.end.elapsed_ns = other.end as u64;
        trace.end.blocked_ns = Some(other.waited as u64);
        let found = floor(&trace, &profile, &machine);
        prop_assert!(found.floor_ns as f64 <= ended + 10.0, "{found:?} {ended}");
    }
}

#[test]
fn a_use_beyond_all_files_is_none() {
    let (mut trace, profile, files) = start(100, &[(0, 0)]);
    trace.uses[0].start = u64::MAX - 1;
    trace.uses[0].pages = u32::MAX;
    let computed = floor(&trace, &profile, &testing::machine(DISK, "ext4", files));
    assert_eq!((computed.bytes, computed.floor_ns), (0, 100 * MS));
}

#[test]
fn of_more_needs_than_starts_have_fewer_moments_are_looked_at() {
    for needs in [0, 1, 5000, 16_384] {
        assert_eq!(moments(needs), MOMENTS, "{needs}");
    }
    for needs in [16_385, 26_000, 1 << 20, 1 << 21] {
        assert!(
            moments(needs) < MOMENTS && moments(needs) * needs <= LOOKS,
            "{needs}"
        );
    }
    assert_eq!(moments(usize::MAX), 1);
}
