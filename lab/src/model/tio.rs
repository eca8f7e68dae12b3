//! T_io: the least time a device needs for a set of blocks, asked of the model itself.
//!
//! Everything is asked for at once, in address order, in requests as long as the block layer allows, joined
//! over small gaps where that pays; the shortest of these ways counts. Blocks that lie side by side are one
//! request whichever files they belong to: a program that asks file by file cannot quite reach it. On a
//! turning disk an order made for its angle could be faster still (for few and far requests by up to a turn
//! each), but no host knows the angle.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Device, Kind, MAX_REQUEST, Model, Nanos, Op, Request, drain};

/// Costs are those of so large a device, which is as much as an image has, of so many reads, and of this many
/// bytes each.
const COST_SPAN: u64 = 1 << 30;
const COST_READS: u64 = 4096;
const SMALL: u64 = 4096;

/// A run of bytes on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// The same bytes as disjoint extents in address order, gaps of up to `bridge` bytes filled.
pub fn merge(extents: &[Extent], bridge: u64) -> Vec<Extent> {
    let mut sorted: Vec<Extent> = extents.iter().copied().filter(|e| e.length > 0).collect();
    sorted.sort_unstable();
    let mut merged: Vec<Extent> = Vec::with_capacity(sorted.len());
    for extent in sorted {
        match merged.last_mut() {
            Some(last) if extent.offset <= last.offset + last.length + bridge => {
                let end = (extent.offset + extent.length).max(last.offset + last.length);
                last.length = end - last.offset;
            }
            _ => merged.push(extent),
        }
    }
    merged
}

/// The device's best time for reading `extents` of a device of `size` bytes.
pub fn t_io(extents: &[Extent], model: &Model, size: u64) -> Duration {
    let bounded = match &model.kind {
        Kind::None => return Duration::ZERO,
        Kind::OneHead(_) => true,
        // Without a bandwidth a gap would be free and the bound meaningless: exact ranges only.
        Kind::Parallel(spec) => spec.bandwidth_mb.is_some(),
    };
    let bridges = if bounded { 0..=20 } else { 0..=0 };
    let time = |bridge: u64| all_at_once(model, size, &merge(extents, bridge));
    let nanos = bridges
        .map(|power| time(if power == 0 { 0 } else { 1 << power }))
        .min()
        .unwrap_or(0);
    Duration::from_nanos(nanos)
}

/// How long a device of `size` bytes takes for these, asked for at once in this order.
fn all_at_once(model: &Model, size: u64, extents: &[Extent]) -> Nanos {
    let mut device = Device::new(model, size);
    for (id, Extent { offset, length }) in (0..).zip(cut(extents)) {
        let op = Op::Read;
        let request = Request {
            id,
            op,
            offset,
            length,
        };
        device.submit(0, request);
    }
    drain(&mut device).last().map_or(0, |done| done.finished)
}

/// The same bytes laid out as well as can be: one after the other from the beginning of the device.
pub fn ideal(extents: &[Extent]) -> Vec<Extent> {
    let length = merge(extents, 0).iter().map(|extent| extent.length).sum();
    merge(&[Extent { offset: 0, length }], 0)
}

/// The device as `headstart --disk` takes it, asked of the model itself: CLASS,MB/S,MS,DEPTH. The
/// milliseconds are those that one of many small reads takes that lie apart and are asked for at once, so the
/// depth is in them. What a first touch costs is no part of it.
pub fn cost(model: &Model) -> String {
    let mut model = model.clone();
    let class = match &mut model.kind {
        // As fast as can be said.
        Kind::None => return "flash,1000000,0,1".to_owned(),
        Kind::OneHead(_) => "disk",
        Kind::Parallel(spec) => {
            spec.first_touch = None;
            "flash"
        }
    };
    let seconds =
        |extents: &[Extent]| Duration::from_nanos(all_at_once(&model, COST_SPAN, extents)).as_secs_f64();
    let whole = [Extent {
        offset: 0,
        length: COST_SPAN / 4,
    }];
    let bandwidth = (COST_SPAN / 4) as f64 / seconds(&whole);
    let apart: Vec<Extent> = (0..COST_READS)
        .map(|number| Extent {
            offset: COST_SPAN / COST_READS * number,
            length: SMALL,
        })
        .collect();
    // Bytes are added to what a head's jumps take; elsewhere they come meanwhile.
    let bytes = match class {
        "disk" => SMALL as f64 / bandwidth,
        _ => 0.0,
    };
    let each = seconds(&apart) / COST_READS as f64 - bytes;
    format!("{class},{:.3},{:.6},1", bandwidth / 1e6, each.max(0.0) * 1e3)
}

/// Extents in pieces of at most one request.
fn cut(extents: &[Extent]) -> Vec<Extent> {
    let mut pieces = Vec::new();
    for extent in extents {
        let end = extent.offset + extent.length;
        let mut offset = extent.offset;
        while offset < end {
            let length = MAX_REQUEST.min(end - offset);
            pieces.push(Extent { offset, length });
            offset += length;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: u64 = 1 << 30;

    fn permutations(items: &[Extent]) -> Vec<Vec<Extent>> {
        if items.len() <= 1 {
            return vec![items.to_vec()];
        }
        (0..items.len())
            .flat_map(|i| {
                let mut rest = items.to_vec();
                let first = rest.remove(i);
                permutations(&rest).into_iter().map(move |mut tail| {
                    tail.insert(0, first);
                    tail
                })
            })
            .collect()
    }

    /// The time of reading in exactly this order, one request at a time, by the state machine.
    fn in_order(model: &Model, extents: &[Extent]) -> Duration {
        let mut device = Device::new(model, SIZE);
        let mut now = 0;
        for (id, e) in extents.iter().enumerate() {
            device.submit(
                now,
                Request {
                    id: id as u64,
                    op: Op::Read,
                    offset: e.offset,
                    length: e.length,
                },
            );
            now = drain(&mut device)[0].finished;
        }
        Duration::from_nanos(now)
    }

    proptest! {
        /// No order of the same reads beats T_io where nothing turns, and on a turning disk address order
        /// does not.
        #[test]
        fn one_head_is_the_best_order(
            blocks in prop::collection::btree_set(0u64..60_000, 1..6),
        ) {
            let extents: Vec<Extent> =
                blocks.iter().map(|b| Extent { offset: b * 16384, length: 8192 }).collect();
            let orders = permutations(&extents);
            for (name, orders) in [("seek5ms", &orders[..]), ("disk7200", &orders[..1])] {
                let model = Model::load(name).unwrap();
                let best = orders.iter().map(|order| in_order(&model, order)).min().unwrap();
                let bound = t_io(&extents, &model, SIZE);
                // Rounding to nanoseconds per request.
                prop_assert!(bound <= best + Duration::from_micros(1), "{name} {bound:?} {best:?}");
            }
        }

        /// A better layout is never slower, but for a turn of the platter.
        #[test]
        fn ideal_is_no_worse(
            blocks in prop::collection::btree_set(0u64..60_000, 1..40),
            which in 0usize..super::super::BUILT_IN.len(),
        ) {
            let model = Model::load(super::super::BUILT_IN[which].0).unwrap();
            let extents: Vec<Extent> =
                blocks.iter().map(|b| Extent { offset: b * 16384, length: 8192 }).collect();
            let (now, best) = (t_io(&extents, &model, SIZE), t_io(&ideal(&extents), &model, SIZE));
            prop_assert!(best <= now + Duration::from_millis(13), "{} {best:?} {now:?}", model.name);
        }

        #[test]
        fn merge_keeps_the_bytes(
            raw in prop::collection::vec((0u64..500, 1u64..40), 0..40),
        ) {
            let extents: Vec<Extent> = raw.iter().map(|&(offset, length)| Extent { offset, length }).collect();
            let covered = |set: &[Extent]| (0..600u64).filter(|b| set.iter().any(|e| (e.offset..e.offset + e.length).contains(b))).count();
            let merged = merge(&extents, 0);
            prop_assert_eq!(covered(&extents), covered(&merged));
            prop_assert!(merged.windows(2).all(|w| w[0].offset + w[0].length < w[1].offset));
        }
    }

    #[test]
    fn a_device_costs_what_its_model_says() {
        let class_and_costs = |name: &str| {
            let said = cost(&Model::load(name).unwrap());
            let words: Vec<&str> = said.split(',').collect();
            assert_eq!((words.len(), words[3]), (4, "1"), "{said}");
            let number = |word: &str| -> f64 { word.parse().unwrap() };
            (words[0].to_owned(), number(words[1]), number(words[2]))
        };
        let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.05;
        // 1,500 a second one at a time, 3,000 a second, and sixteen at once.
        for (name, megabytes, ms) in [
            ("sdcard-a1", 25.0, 0.667),
            ("cloud", 125.0, 1.0 / 3.0),
            ("lazy", 125.0, 1.0 / 3.0),
            ("flash4ms", 500.0, 0.25),
        ] {
            let (class, bandwidth, latency) = class_and_costs(name);
            assert_eq!(class, "flash");
            assert!(
                near(latency, ms) && near(bandwidth, megabytes),
                "{name} {bandwidth} {latency}"
            );
        }
        // Less than a seek to anywhere and half a turn, for all are asked for at once; the outer quarter is
        // faster than the mean.
        let (class, bandwidth, latency) = class_and_costs("disk7200");
        assert_eq!(class, "disk");
        assert!(
            (95.0..126.0).contains(&bandwidth) && (2.0..8.9).contains(&latency),
            "{bandwidth} {latency}"
        );
        assert_eq!(class_and_costs("none").2, 0.0);
    }

    #[test]
    fn parallel_counts_rounds_of_depth() {
        let flash = Model::load("flash4ms").unwrap();
        let extents: Vec<Extent> = (0..33)
            .map(|i| Extent {
                offset: i << 20,
                length: 4096,
            })
            .collect();
        let time = t_io(&extents, &flash, SIZE);
        // And a moment on the link.
        assert!((12_000..12_200).contains(&time.as_micros()), "{time:?}");
    }

    #[test]
    fn parallel_bridges_where_it_pays() {
        let lazy = Model::load("lazy").unwrap();
        // 1,000 blocks every 8 KiB: 0.33 s at 3,000 reads/s, or 8 MB at 125 MB/s in one sweep after the first
        // fetches.
        let extents: Vec<Extent> = (0..1000)
            .map(|i| Extent {
                offset: i * 8192,
                length: 4096,
            })
            .collect();
        let time = t_io(&extents, &lazy, SIZE);
        assert!(time < Duration::from_millis(150), "{time:?}");
    }

    #[test]
    fn nothing_needed_costs_nothing() {
        for (name, _) in super::super::BUILT_IN {
            assert_eq!(t_io(&[], &Model::load(name).unwrap(), SIZE), Duration::ZERO);
        }
    }
}
