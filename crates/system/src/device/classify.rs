//! From measured times to a cost: what the numbers of a probe mean.

use headstart_model::machine::{Cost, DeviceClass};

/// A depth is enough when it reaches this share of the best throughput.
const ENOUGH: f64 = 0.85;
/// Below this latency nothing has moving heads or a slow network, seconds.
const FAST: f64 = 2e-3;
/// Parallel reads gain at least this on anything but one head; command queueing gains a disk up to about 2.5.
const PARALLEL_GAIN: f64 = 3.0;
/// On a disk far reads take at least this much longer than near ones, where half a turn is common to both.
const DISTANCE_RATIO: f64 = 1.2;

/// The numbers behind a measured cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// Median of far random reads alone, seconds.
    pub far: f64,
    /// Lower quartile of the same: what a busy machine adds to a read is not the device's.
    pub quick: f64,
    /// Lower quartile of random reads alone that are near each other, seconds.
    pub near: f64,
    /// Mean of the middle half of those, seconds: what a further read in address order takes.
    pub further: f64,
    /// (depth, random reads per second).
    pub by_depth: Vec<(u32, f64)>,
    /// Bytes per second in order.
    pub bandwidth: f64,
}

/// The smallest depth that reaches nearly the best throughput.
pub(super) fn enough(by_depth: &[(u32, f64)]) -> u32 {
    let best = by_depth.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    by_depth
        .iter()
        .find(|(_, rate)| *rate >= ENOUGH * best)
        .map_or(1, |(depth, _)| *depth)
}

/// Whether reads gain little from depth and take longer the farther apart they are.
pub(super) fn looks_like_one_head(samples: &Samples) -> bool {
    let best = samples.by_depth.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    samples.quick >= FAST
        && best * samples.quick < PARALLEL_GAIN
        && samples.quick > DISTANCE_RATIO * samples.near
}

/// The cost that the numbers mean: one head gains little from depth and takes longer the farther it moves;
/// what is slow but gains from depth is a network; a slow device that gains nothing and does not care for
/// distance is a network volume with a quota. Anything else is flash.
///
/// A disk's latency is that of near reads: plans go over a disk in address order, where what a further
/// request costs is a short jump and half a turn.
pub fn classify(samples: &Samples) -> Cost {
    let best = samples.by_depth.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let gain = best * samples.far;
    let class = if samples.quick < FAST || gain.is_nan() {
        DeviceClass::Flash
    } else if looks_like_one_head(samples) {
        DeviceClass::Disk
    } else {
        DeviceClass::Network
    };
    let (latency, depth) = match class {
        DeviceClass::Disk => (samples.further, 1),
        _ => (samples.far, enough(&samples.by_depth)),
    };
    Cost {
        class,
        bandwidth: samples.bandwidth.max(1.0),
        latency,
        depth,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(far: f64, near: f64, by_depth: &[(u32, f64)]) -> (DeviceClass, u32) {
        let samples = Samples {
            far,
            quick: far * 0.9,
            near: near * 0.9,
            further: near,
            by_depth: by_depth.to_vec(),
            bandwidth: 1e8,
        };
        let cost = classify(&samples);
        (cost.class, cost.depth)
    }

    #[test]
    fn what_a_busy_machine_adds_makes_a_disk_no_network() {
        // Half of the reads waited some 5 ms for a processor.
        let samples = Samples {
            far: 15e-3,
            quick: 9e-3,
            near: 5.2e-3,
            further: 6.1e-3,
            by_depth: vec![(1, 66.0), (4, 130.0), (8, 220.0)],
            bandwidth: 1e8,
        };
        assert_eq!(
            (classify(&samples).class, classify(&samples).latency),
            (DeviceClass::Disk, 6.1e-3)
        );
    }

    #[test]
    fn measured_numbers_give_the_class() {
        use DeviceClass::*;
        // One head: 12 ms far, 5 ms near; queueing doubles the rate.
        assert_eq!(
            class(
                12e-3,
                5e-3,
                &[(1, 83.0), (4, 110.0), (8, 130.0), (16, 150.0), (32, 170.0)]
            ),
            (Disk, 1)
        );
        // 4 ms a read, 16 in parallel.
        assert_eq!(
            class(
                4e-3,
                4e-3,
                &[(1, 250.0), (4, 1e3), (8, 2e3), (16, 3.9e3), (32, 3.95e3)]
            ),
            (Network, 16)
        );
        assert_eq!(
            class(
                90e-6,
                90e-6,
                &[(1, 11e3), (4, 42e3), (8, 80e3), (16, 99e3), (32, 101e3)]
            ),
            (Flash, 16)
        );
        // 300 reads a second, however many at once.
        assert_eq!(
            class(
                3.3e-3,
                3.3e-3,
                &[(1, 300.0), (4, 310.0), (8, 305.0), (16, 300.0), (32, 300.0)]
            ),
            (Network, 1)
        );
    }
}
