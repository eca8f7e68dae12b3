//! Whether the last starts are unlike those before: another disk, an update that reads more, a machine
//! that does more beside.
//!
//! Replays are compared with replays, so this costs no control run. The comparison of starts begins anew
//! after them: what earlier starts took says nothing of the next ones, and these were chosen by their times.
//! A comparison of chosen starts would call replays slower for having been slow.

use super::is_plainly_longer;
use super::start::Start;
use headstart_model::outcome::Mode;

/// So many of the latest replays are looked at.
const LATEST: usize = 7;

/// And so many of them must be beyond the earlier ones, all on one side: one may be an outlier.
const BEYOND: usize = 6;

/// They are compared with at most so many before them, as control runs are.
const EARLIER: usize = 30;

/// And with so many at least, each.
const FEW: usize = 8;

/// How far beyond the median of the earlier ones: less is what a plan made anew after each start changes.
/// With 1.25, a gain of 10 % that becomes a loss of 5 is found 40 starts later.
const FACTOR: f64 = 1.15;

/// Beyond this part of the earlier ones, in tenths. If nothing has changed, six of seven are so in one of
/// 70,000 cases: each is followed by a comparison of its own, which may be wrong like any.
const TENTHS: usize = 9;

/// How far the shares in memory of two replays may differ for them to be compared.
const ALIKE: f64 = 0.05;

/// With so many control runs before it, one that took plainly less than each of them is enough: the disk is
/// another, though replays may take as long on it.
const CONTROLS: usize = 2;

/// Whether the last of these starts, oldest first, are unlike the ones before. Only the last ones are asked:
/// call it after each start.
pub(super) fn is_shown(starts: &[Start]) -> bool {
    match starts.split_last() {
        Some((last, earlier)) if last.mode == Mode::Control => is_other_control(last, earlier),
        Some((last, _)) if last.replayed() => are_other_replays(starts).unwrap_or(false),
        _ => false,
    }
}

fn is_other_control(last: &Start, earlier: &[Start]) -> bool {
    let alike =
        |other: &&Start| other.mode == Mode::Control && (other.resident - last.resident).abs() <= ALIKE;
    let controls: Vec<&Start> = earlier.iter().filter(alike).collect();
    let longer = |other: &&Start| is_plainly_longer(other.elapsed_ns, last.elapsed_ns);
    controls.len() >= CONTROLS && controls.iter().all(longer)
}

fn are_other_replays(starts: &[Start]) -> Option<bool> {
    let replays = starts.iter().rev().filter(|start| start.replayed());
    let mut replays: Vec<&Start> = replays.take(EARLIER + LATEST).collect();
    replays.reverse();
    let (earlier, latest) = replays.split_at(replays.len().checked_sub(LATEST)?);
    let sides: Vec<i8> = latest.iter().map(|replay| side(replay, earlier)).collect();
    let beyond = |side: i8| sides.iter().filter(|of_one| **of_one == side).count() >= BEYOND;
    Some(beyond(-1) || beyond(1))
}

/// 1 for a replay that took clearly longer than the earlier ones that began alike, -1 for clearly less, 0
/// else.
fn side(replay: &Start, earlier: &[&Start]) -> i8 {
    let mut times: Vec<u64> = earlier
        .iter()
        .filter(|other| (other.resident - replay.resident).abs() <= ALIKE)
        .map(|other| other.elapsed_ns)
        .collect();
    times.sort_unstable();
    let (Some(median), true) = (times.get(times.len() / 2), times.len() >= FEW) else {
        return 0;
    };
    let (took, median) = (replay.elapsed_ns, *median as f64);
    let most = times.len() * TENTHS / 10;
    let less = times.iter().filter(|time| **time < took).count();
    let more = times.iter().filter(|time| **time > took).count();
    if less >= most && took as f64 > FACTOR * median {
        1
    } else if more >= most && (took as f64) < median / FACTOR {
        -1
    } else {
        0
    }
}
