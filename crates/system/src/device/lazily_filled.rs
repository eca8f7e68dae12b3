//! Whether a volume is filled as it is read, and in granules of what size.
//!
//! What is looked for is told apart from everything else that is quick the second time. At places that nobody
//! has read, the last page of an aligned block is read, which takes long; then the pages at the beginning of
//! ever larger aligned blocks that end with it, which are quick as long as they belong to the same granule;
//! then the page right behind it, in the next granule, which takes long again. What reads ahead (a disk's
//! buffer, a server) makes the page behind quick and those before it slow. A cache holds what was read and no
//! more. What answers late for no reason answers late anywhere, and not four times in the same three places.
//!
//! A volume that was filled in part has quick places, of which nothing is said. Each place is in a block of
//! its own.

use std::io;
use std::time::{Duration, Instant};

/// The page that is read.
const PAGE: u64 = crate::direct::BLOCK;
/// Twice the largest granule that is told: where one ends is seen.
const LARGEST: u64 = 4 << 20;
/// The smallest: pages near one another are quick on many devices.
const SMALLEST: u64 = 64 << 10;
/// A first touch takes this long at least, seconds: what is fetched from elsewhere takes longer than any
/// flash.
const SLOW: f64 = 5e-3;
/// Any further read of the granule takes this share of the first at most.
pub(super) const QUICK: f64 = 0.25;
/// The first read of another granule takes this share of it at least.
const AGAIN: f64 = 0.5;
/// So many places that show the same granule are enough, if three times as many did as show something else.
const ENOUGH: usize = 4;
/// So many that show something else are too many, where no more than these show a granule.
const TOO_MANY: usize = 3;
/// Once a place shows one, so many times as long is looked on: a place takes three fetches, and any number
/// may be filled in part.
const LONGER: u32 = 8;
/// Places looked at, if time allows: most of a volume may hold nothing, or be filled.
const PLACES: u64 = 256;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LazyFill {
    /// Bytes of a granule.
    pub granule: u64,
    /// Median of first touches, seconds.
    pub latency: f64,
}

/// What one place shows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum BlockLatency {
    /// It is there, or nothing is.
    Nothing,
    /// A granule that was fetched.
    Granule { bytes: u64, seconds: f64 },
    /// Something else that takes long.
    Otherwise,
}

/// Looks at a device of `size` bytes for `time`, and for [`LONGER`] where it finds something. `read` reads a
/// page and tells how many seconds that took; `place` gives one number after the other.
pub(super) fn probe(
    mut read: impl FnMut(u64) -> io::Result<f64>,
    place: impl Fn(u64) -> u64,
    size: u64,
    time: Duration,
) -> io::Result<Option<LazyFill>> {
    let begun = Instant::now();
    let blocks = size / LARGEST;
    let (mut granules, mut others) = (Vec::new(), 0);
    for number in 0..PLACES {
        let left = if granules.is_empty() { time } else { LONGER * time };
        // Behind the last block there may be nothing.
        if blocks < 2 || begun.elapsed() > left {
            break;
        }
        match probe_block(&mut read, place(number) % (blocks - 1) * LARGEST)? {
            BlockLatency::Nothing => {}
            BlockLatency::Granule { bytes, seconds } => granules.push((bytes, seconds)),
            BlockLatency::Otherwise => others += 1,
        }
        if most_told(&granules, others).is_some() || others >= TOO_MANY && granules.len() <= others {
            break;
        }
    }
    let granule = most_told(&granules, others);
    Ok(granule.map(|granule| LazyFill {
        granule,
        latency: median(granules),
    }))
}

/// What the block at `start` shows.
fn probe_block(read: &mut impl FnMut(u64) -> io::Result<f64>, start: u64) -> io::Result<BlockLatency> {
    let end = start + LARGEST;
    let first = read(end - PAGE)?;
    if first < SLOW {
        return Ok(BlockLatency::Nothing);
    }
    let mut granule = 0;
    let mut bytes = SMALLEST;
    let mut last = 0.0;
    while bytes <= LARGEST {
        last = read(end - bytes)?;
        if last > QUICK * first {
            break;
        }
        (granule, bytes) = (bytes, 2 * bytes);
    }
    Ok(match () {
        // It has no end, or what is behind is there: that may be, or not.
        () if bytes > LARGEST => BlockLatency::Nothing,
        () if granule == 0 || last < AGAIN * first => BlockLatency::Otherwise,
        () if read(end)? < AGAIN * first => BlockLatency::Nothing,
        () => BlockLatency::Granule {
            bytes: granule,
            seconds: first,
        },
    })
}

/// The smallest size that two places show: neighbours that were filled make it look larger. `None` where no
/// size was shown often enough, or something else too often.
fn most_told(granules: &[(u64, f64)], others: usize) -> Option<u64> {
    let count = |size: u64| granules.iter().filter(|(granule, _)| *granule == size).count();
    let sizes = || granules.iter().map(|(granule, _)| *granule);
    let enough = sizes().any(|size| count(size) >= ENOUGH) && granules.len() >= 3 * others;
    let often = sizes().filter(|size| count(*size) >= 2);
    often.min().filter(|_| enough)
}

fn median(granules: Vec<(u64, f64)>) -> f64 {
    let mut times: Vec<f64> = granules.into_iter().map(|(_, seconds)| seconds).collect();
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(SLOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 4096 * MIB;

    /// A number like one by chance, always the same.
    fn drawn(number: u64) -> u64 {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40
    }

    /// What is found of a device that takes so many milliseconds for a page, by what was read before.
    fn found(mut read: impl FnMut(u64) -> f64) -> Option<LazyFill> {
        // Places far apart, as a probe takes them.
        let place = |number: u64| number * 389 + 7;
        let timed = |offset| Ok(read(offset) * 1e-3);
        probe(timed, place, SIZE, Duration::from_secs(60)).unwrap()
    }

    /// A volume in granules of so many bytes, of which those are there that `filled` says.
    fn lazy(granule: u64, filled: impl Fn(u64) -> bool) -> impl FnMut(u64) -> f64 {
        let mut there = HashSet::new();
        move |offset| match there.insert(offset / granule) && !filled(offset / granule) {
            true => 33.7,
            false => 0.7,
        }
    }

    #[test]
    fn a_volume_that_is_filled_as_it_is_read_is_told_with_its_granule() {
        for granule in [64 << 10, 128 << 10, 512 << 10, MIB] {
            let touch = found(lazy(granule, |_| false)).unwrap();
            assert_eq!((touch.granule, touch.latency), (granule, 33.7e-3));
        }
        // Half of it is filled, in no order.
        let half = |granule| drawn(granule) % 2 == 0;
        assert_eq!(found(lazy(512 << 10, half)).unwrap().granule, 512 << 10);
        // Most of it holds nothing.
        let most = |granule: u64| granule / 16 % 8 != 0;
        assert_eq!(found(lazy(512 << 10, most)).unwrap().granule, 512 << 10);
    }

    #[test]
    fn a_volume_that_was_filled_is_like_any_other() {
        assert_eq!(found(lazy(512 << 10, |_| true)), None);
        // All but a few granules are.
        assert_eq!(found(lazy(512 << 10, |granule| granule % 1000 != 5)), None);
    }

    #[test]
    fn a_cache_holds_what_was_read_and_no_more() {
        let mut held = HashSet::new();
        assert_eq!(found(|at| if held.insert(at) { 12.0 } else { 0.1 }), None);
    }

    #[test]
    fn what_reads_ahead_is_not_taken_for_it() {
        // A disk: 12 ms far, 6 near, and what follows a request is in its buffer.
        for ahead in [256 << 10, 2 * MIB, 16 * MIB] {
            let mut buffer = 0..0;
            let disk = |at: u64| {
                let seconds = match () {
                    () if buffer.contains(&at) => 0.1,
                    () if at.abs_diff(buffer.start) < 8 * MIB => 6.0,
                    () => 12.0,
                };
                buffer = at..at + ahead;
                seconds
            };
            assert_eq!(found(disk), None, "{ahead}");
        }
        // A server that reads what lies around a request, before and behind it.
        let mut held: Vec<u64> = Vec::new();
        let server = |at: u64| {
            let near = held.iter().any(|before| before.abs_diff(at) < MIB);
            held.push(at);
            if near { 0.2 } else { 20.0 }
        };
        assert_eq!(found(server), None);
    }

    #[test]
    fn slow_devices_and_noise_are_not_taken_for_it() {
        assert_eq!(found(|_| 33.0), None, "a network");
        assert_eq!(found(|_| 0.1), None, "flash");
        // One answer in so many is late, wherever it is.
        for every in 2..12 {
            let mut count = 0;
            let noisy = |_| {
                count += 1;
                if count % every == 0 { 40.0 } else { 0.3 }
            };
            assert_eq!(found(noisy), None, "{every}");
        }
        // The same, drawn.
        for seed in 0..200u64 {
            let mut count = seed << 32;
            let noisy = |_| {
                count += 1;
                let drawn = drawn(count);
                if drawn % 8 == 0 { 40.0 } else { 0.3 }
            };
            assert_eq!(found(noisy), None, "{seed}");
        }
    }

    #[test]
    fn noise_does_not_hide_it() {
        for seed in 0..50u64 {
            let mut volume = lazy(512 << 10, |_| false);
            let mut count = seed << 32;
            let noisy = |at| {
                count += 1;
                let drawn = drawn(count);
                volume(at) + if drawn % 20 == 0 { 20.0 } else { 0.0 }
            };
            let granule = found(noisy).map(|found| found.granule);
            assert!(
                granule.is_some_and(|granule| granule <= 512 << 10),
                "{seed}: {granule:?}"
            );
        }
    }

    #[test]
    fn a_small_device_says_nothing() {
        let looked = probe(|_| Ok(1.0), |n| n, 5 * MIB, Duration::from_secs(1));
        assert_eq!(looked.unwrap(), None);
    }
}
