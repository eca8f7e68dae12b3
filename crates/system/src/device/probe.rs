//! A short measurement of a block device, to correct what it says of itself: rotational flags lie in virtual
//! machines and on loop devices. First it is seen whether it is filled as it is read ([`lazily_filled`]):
//! then what a fetch costs is measured apart, and all else where it was read before.
//!
//! Reads go past the page cache (`O_DIRECT`), 4 KiB at random places alone, then at growing depth, near each
//! other, and 1 MiB blocks in order. Places are spread over the device by a fixed sequence, so that two
//! probes read the same.

use super::classify::{Samples, classify, enough, looks_like_one_head};
use super::lazily_filled;
use crate::direct::{Aligned, Direct};
use crate::priority::{Priority, io_priority, nice, set_io, set_nice};
use headstart_model::machine::{Cost, FirstTouch};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a random read.
const BLOCK: u64 = crate::direct::BLOCK;
/// Bytes of a sequential read.
const LARGE: u64 = 1 << 20;
/// The depths that are tried.
const DEPTHS: [u32; 4] = [4, 8, 16, 32];
/// How many granules of a lazily filled volume are fetched at once to see how many it fetches: with four
/// times as many in all that are some 110 MiB of 512 KiB granules, none of which is read but for a page.
const FETCHES: [u32; 3] = [8, 16, 32];
/// Near reads stay within this distance, under the head of a disk's neighbouring tracks.
const NEAR: u64 = 4 << 20;
/// A depth that does not bring this much more than the one before ends the search: a deep queue at one head
/// takes a quarter of a second to empty.
const WORTH: f64 = 1.15;
/// The niceness of a probe: before all ordinary processes.
const NICE: i32 = -10;

/// How much a probe may take.
#[derive(Clone, Copy, Debug)]
pub struct ProbeOptions {
    /// Time, to be exceeded by the reads under way at most; where a device is filled as it is read, as much
    /// again.
    pub time: Duration,
    /// Bytes read at most.
    pub bytes: u64,
    /// Which places are read: another seed reads others, so nothing that an earlier probe left in a cache.
    pub seed: u64,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        ProbeOptions {
            time: Duration::from_secs(1),
            bytes: 64 << 20,
            seed: 1,
        }
    }
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The cost, class included; of what was read before, where it is filled as it is read.
    pub cost: Cost,
    /// What a first touch costs beyond that.
    pub first_touch: Option<FirstTouch>,
    /// What it rests on.
    pub samples: Samples,
}

/// Why a device was not measured.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It cannot be opened for direct reads.
    #[error("cannot open {}: {source}; give its class with --device", node.display())]
    Open {
        /// Device node.
        node: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A read failed.
    #[error("cannot read {}: {source}", node.display())]
    Read {
        /// Device node.
        node: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is too small to tell anything.
    #[error("{} has {size} bytes, too few to measure", node.display())]
    Small {
        /// Device node.
        node: PathBuf,
        /// Its size.
        size: u64,
    },
}

/// Measures a device of which the node is known.
pub fn probe(facts: &super::DeviceFacts, options: &ProbeOptions) -> Result<Measured, ProbeError> {
    match &facts.node {
        Some(node) => probe_node(node, options),
        None => Err(ProbeError::Open {
            node: PathBuf::from("/dev").join(&facts.name),
            source: std::io::ErrorKind::NotFound.into(),
        }),
    }
}

/// Measures the block device, or for tests the file, at `node`.
pub fn probe_node(node: &Path, options: &ProbeOptions) -> Result<Measured, ProbeError> {
    let open = |source| ProbeError::Open {
        node: node.into(),
        source,
    };
    let device = Direct::open(node).map_err(open)?;
    let size = match crate::sys::device_size(device.fd()) {
        Ok(size) => size,
        Err(_) => rustix::fs::fstat(device.fd())
            .map_err(|e| open(e.into()))?
            .st_size
            .max(0) as u64,
    };
    if size < 2 * NEAR {
        return Err(ProbeError::Small {
            node: node.into(),
            size,
        });
    }
    let probe = Probe {
        device,
        size,
        left: AtomicU64::new(options.bytes),
    };
    let _first = ComesFirst::start();
    probe.run(options).map_err(|source| ProbeError::Read {
        node: node.into(),
        source,
    })
}

/// As long as this lives the calling thread, and those that it starts, come before ordinary processes, where
/// that is permitted, and their reads are as everybody's: I/O schedulers let those of who finishes a start
/// wait for all others, as if the device were slow. They wait for the device nearly all of the time; what
/// they waited for a processor would count as the device's: beside a compilation, at the niceness of who
/// finishes a start, a volume that serves ten reads at once was measured as one that serves one or four.
struct ComesFirst {
    before: Option<i32>,
    reads: Option<(i32, i32)>,
}

impl ComesFirst {
    fn start() -> ComesFirst {
        let (before, reads) = (nice().ok(), io_priority().ok());
        ComesFirst {
            before: before.filter(|_| set_nice(NICE).is_ok()),
            reads: reads.filter(|_| set_io(Priority::Normal).is_ok()),
        }
    }
}

impl Drop for ComesFirst {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // It was permitted to come before others: it may come after them.
            let _ = set_nice(before);
        }
        if let Some((class, level)) = self.reads {
            let _ = crate::sys::ioprio_set(class, level);
        }
    }
}

struct Probe {
    device: Direct,
    size: u64,
    /// Bytes that may still be read.
    left: AtomicU64,
}

impl Probe {
    fn run(&self, options: &ProbeOptions) -> std::io::Result<Measured> {
        // The first read may wake the device up.
        self.read(mix(options.seed, 0) % (self.size / BLOCK) * BLOCK, BLOCK as usize)?;
        let mut buffer = Aligned::new(BLOCK as usize);
        let timed = |offset| {
            let before = Instant::now();
            self.device.read(offset, &mut buffer)?;
            Ok(before.elapsed().as_secs_f64())
        };
        let place = |n| mix(options.seed ^ 0xf1, n);
        let lazy = lazily_filled::probe(timed, place, self.size, options.time * 15 / 100)?;
        match lazy {
            None => self.measure(options),
            Some(found) => self.measure_filling(options, found),
        }
    }

    /// What a fetch costs on a volume that is filled as it is read, and what reads cost where it was read
    /// before.
    fn measure_filling(
        &self,
        options: &ProbeOptions,
        first: lazily_filled::LazyFill,
    ) -> std::io::Result<Measured> {
        // A way through all granules that comes to each once.
        let granules = (self.size / first.granule).max(1);
        let start = mix(options.seed, 11) % granules;
        let step = (granules * 3 / 8..)
            .find(|step| coprime(*step, granules))
            .unwrap_or(1);
        let fetched = AtomicU64::new(0);
        let granule = |n: u64| (start + n % granules * step) % granules * first.granule;
        let untouched = || granule(fetched.fetch_add(1, Ordering::Relaxed));
        let mut rate = 0.0;
        for depth in FETCHES {
            let before = rate;
            rate = f64::max(
                before,
                self.fetches(depth, options.time * 25 / 100, first.latency, untouched)?,
            );
            if rate < WORTH * before {
                break;
            }
        }
        let first_touch = FirstTouch {
            granule: first.granule,
            latency: first.latency,
            // As many as make that rate.
            depth: (rate * first.latency).round().clamp(1.0, 256.0) as u32,
        };
        let fetched = fetched.into_inner().clamp(1, granules);
        let touched = |n: u64| {
            let inside = mix(options.seed ^ 0x77, n) % (first.granule / BLOCK) * BLOCK;
            granule(mix(options.seed, n) % fetched) + inside
        };
        let alone = self.alone(1, 48, options.time * 10 / 100, touched)?;
        let (far, quick) = (alone.quantile(2), alone.quantile(1));
        let by_depth = self.by_depth(far, options.time * 10 / 100, touched)?;
        let depth = enough(&by_depth);
        // Pieces that are there, each whole.
        let large = first.granule.min(LARGE);
        let pieces = |n: u64| granule(n % fetched);
        let time = options.time * 20 / 100;
        let samples = Samples {
            far,
            quick,
            near: quick,
            further: far,
            bandwidth: self.parallel(depth.clamp(2, 8), time, u64::MAX, large, pieces)?,
            by_depth,
        };
        Ok(Measured {
            cost: classify(&samples),
            first_touch: Some(first_touch),
            samples,
        })
    }

    fn measure(&self, options: &ProbeOptions) -> std::io::Result<Measured> {
        let far_place = |n: u64| mix(options.seed, n + 1) % (self.size / BLOCK) * BLOCK;
        // So many near reads lie in one part of the device, the next as many in another.
        const IN_ONE_PART: u64 = 16;
        let near_place = |n: u64| {
            let part = mix(options.seed, u64::MAX - n / IN_ONE_PART) % ((self.size - NEAR) / BLOCK) * BLOCK;
            part + mix(options.seed ^ 0x55, n) % (NEAR / BLOCK) * BLOCK
        };

        let end = Instant::now() + options.time * 85 / 100;
        let share =
            |percent: u32| (options.time * percent / 100).min(end.saturating_duration_since(Instant::now()));
        let far = self.alone(0, 48, share(18), far_place)?;
        let mut near = self.alone(0, 32, share(10), near_place)?;
        let mut samples = Samples {
            far: far.quantile(2),
            quick: far.quantile(1),
            near: near.quantile(1),
            by_depth: self.by_depth(far.quantile(2), share(10), far_place)?,
            ..Samples::default()
        };
        // One reader leaves the device idle between two reads; to one head more than two are a queue to sort.
        // A disk's outer tracks are twice as fast as its inner ones: one place in each third.
        let (readers, places) = match looks_like_one_head(&samples) {
            true => (2, 3),
            false => (enough(&samples.by_depth).clamp(2, 8), 1),
        };
        let mut seconds_per_byte = 0.0;
        for place in 0..places {
            let part = (self.size / places / LARGE).max(1);
            let start = (place * part + mix(options.seed, 7 + place) % part) * LARGE;
            let ordered = |n: u64| (start + n * LARGE) % (self.size / LARGE * LARGE);
            // The way there is not the transfer.
            self.read(ordered(0), LARGE as usize)?;
            let time = share(20 / places as u32);
            seconds_per_byte += self
                .parallel(readers, time, u64::MAX, LARGE, |n| ordered(n + 1))?
                .recip();
        }
        samples.bandwidth = places as f64 / seconds_per_byte;
        if looks_like_one_head(&samples) {
            near.add(self.alone(near.count(), 48, share(25), near_place)?);
        }
        samples.further = near.middle();
        Ok(Measured {
            cost: classify(&samples),
            first_touch: None,
            samples,
        })
    }

    /// Random reads a second by depth, each for `time`, until a deeper queue brings nothing; `alone` is the
    /// seconds of one.
    fn by_depth(
        &self,
        alone: f64,
        time: Duration,
        at: impl Fn(u64) -> u64 + Sync,
    ) -> std::io::Result<Vec<(u32, f64)>> {
        let mut rates = vec![(1, 1.0 / alone)];
        for (step, depth) in DEPTHS.into_iter().enumerate() {
            let first = 10_000 * (step as u64 + 1);
            let bytes = self.parallel(depth, time, u64::from(depth) * 24, BLOCK, |n| at(first + n))?;
            let (rate, before) = (bytes / BLOCK as f64, rates.last().map_or(0.0, |(_, rate)| *rate));
            rates.push((depth, rate));
            if rate < WORTH * before {
                break;
            }
        }
        Ok(rates)
    }

    /// What single reads took.
    fn alone(
        &self,
        first: u64,
        count: u64,
        time: Duration,
        at: impl Fn(u64) -> u64,
    ) -> std::io::Result<Times> {
        let end = Instant::now() + time;
        let mut times = Vec::new();
        for n in first..first + count {
            let before = Instant::now();
            self.read(at(n), BLOCK as usize)?;
            times.push(before.elapsed().as_secs_f64());
            if Instant::now() > end {
                break;
            }
        }
        Ok(Times::new(times))
    }

    /// Bytes per second of `depth` readers, for `time` or `count` reads.
    fn parallel(
        &self,
        depth: u32,
        time: Duration,
        count: u64,
        length: u64,
        at: impl Fn(u64) -> u64 + Sync,
    ) -> std::io::Result<f64> {
        let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let before = Instant::now();
        let worker = || -> std::io::Result<()> {
            let mut buffer = Aligned::new(length as usize);
            while before.elapsed() < time || done.load(Ordering::Relaxed) == 0 {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count || (!self.charge(length) && n > 0) {
                    break;
                }
                let bytes = self.device.read(at(n), &mut buffer)?;
                done.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Ok(())
        };
        threads(depth, worker)?;
        Ok(done.into_inner().max(length) as f64 / before.elapsed().as_secs_f64().max(1e-9))
    }

    /// Granules a second that `depth` readers have fetched, for `time`, until each has fetched four, or has
    /// read sixteen times. What was there before, by all that has read on this volume, does not count, nor
    /// does the time that it took.
    fn fetches(
        &self,
        depth: u32,
        time: Duration,
        latency: f64,
        untouched: impl Fn() -> u64 + Sync,
    ) -> std::io::Result<f64> {
        let (reads, fetched, quick_ns) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let begun = Instant::now();
        let (enough, most) = (u64::from(depth) * 4, u64::from(depth) * 16);
        let worker = || -> std::io::Result<()> {
            let mut buffer = Aligned::new(BLOCK as usize);
            let goes_on = || {
                begun.elapsed() < time
                    && fetched.load(Ordering::Relaxed) < enough
                    && reads.fetch_add(1, Ordering::Relaxed) < most
                    && self.charge(BLOCK)
            };
            while goes_on() {
                let before = Instant::now();
                self.device.read(untouched(), &mut buffer)?;
                let took = before.elapsed();
                if took.as_secs_f64() < lazily_filled::QUICK * latency {
                    quick_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
                } else {
                    fetched.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(())
        };
        threads(depth, worker)?;
        let quick = quick_ns.into_inner() as f64 * 1e-9 / f64::from(depth);
        let seconds = (begun.elapsed().as_secs_f64() - quick).max(latency);
        Ok(fetched.into_inner() as f64 / seconds)
    }

    fn charge(&self, bytes: u64) -> bool {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(bytes)
            })
            .is_ok()
    }

    fn read(&self, offset: u64, length: usize) -> std::io::Result<usize> {
        self.device.read(offset, &mut Aligned::new(length))
    }
}

/// Seconds, in ascending order; one at least.
struct Times(Vec<f64>);

impl Times {
    fn new(mut times: Vec<f64>) -> Times {
        times.sort_unstable_by(f64::total_cmp);
        Times(times)
    }

    fn add(&mut self, others: Times) {
        self.0.extend(others.0);
        self.0.sort_unstable_by(f64::total_cmp);
    }

    fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// The one below which so many quarters of them lie.
    fn quantile(&self, quarters: usize) -> f64 {
        self.0[self.0.len() * quarters / 4].max(1e-7)
    }

    /// The mean of the middle half. Of 32 near reads of a disk it is off by a tenth, where their median is
    /// off by a fifth; what came from the disk's own cache or waited for a processor is outside.
    fn middle(&self) -> f64 {
        let quarter = self.0.len() / 4;
        let half = &self.0[quarter..self.0.len() - quarter];
        (half.iter().sum::<f64>() / half.len() as f64).max(1e-7)
    }
}

/// Runs so many of them at once, to their end.
fn threads(count: u32, worker: impl Fn() -> std::io::Result<()> + Copy + Send + Sync) -> std::io::Result<()> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or(Ok(())))
    })
}

/// Whether the two have no common divisor but 1.
fn coprime(mut a: u64, mut b: u64) -> bool {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}

/// A fixed pseudo-random sequence (SplitMix64, Steele et al. 2014).
fn mix(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_time_and_few_bytes_are_enough_to_measure_by() {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        std::fs::write(file.path(), vec![7u8; 32 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
        let options = ProbeOptions {
            time: Duration::from_millis(200),
            bytes: 8 << 20,
            seed: 3,
        };
        let before = nice().unwrap();
        let measured = probe_node(file.path(), &options).unwrap();
        assert_eq!(nice().unwrap(), before);
        assert!(
            measured.cost.bandwidth > 1e6 && measured.cost.latency > 0.0,
            "{measured:?}"
        );
    }

    #[test]
    fn what_cannot_be_measured_is_named() {
        let small = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        let error = probe_node(small.path(), &ProbeOptions::default()).unwrap_err();
        assert!(matches!(error, ProbeError::Small { size: 0, .. }), "{error}");
        let error = probe_node(Path::new("/dev/nothing-here"), &ProbeOptions::default()).unwrap_err();
        assert!(error.to_string().contains("/dev/nothing-here"));
    }
}
