//! Model files: what a device is, in TOML, each number with its source; and what is said of a file that makes
//! no sense.

use std::ops::RangeInclusive;

use serde::Deserialize;

/// How the kernel is told to see the device (`/sys/block/*/queue`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// `queue/rotational`.
    pub rotational: bool,
    /// `queue/scheduler`.
    pub scheduler: String,
}

/// The timing of a device.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// Answers at once.
    None,
    /// Independent channels: flash, network volumes.
    Parallel(ParallelSpec),
    /// One mechanical actuator.
    OneHead(OneHeadSpec),
}

/// Numbers of a device with independent channels.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParallelSpec {
    /// Shortest and longest time from start to first byte, in microseconds; each request draws its own,
    /// always the same for the same place in the sequence.
    pub latency_us: [u64; 2],
    /// Requests served at the same time.
    pub depth: usize,
    /// Link shared by all, in 10^6 bytes per second; absent means no limit.
    pub bandwidth_mb: Option<f64>,
    /// Reads started per second; absent means no limit.
    pub iops: Option<f64>,
    /// Time of a write from start to last byte but for its transfer, in microseconds.
    pub write_latency_us: u64,
    /// Writes move at this rate, in 10^6 bytes per second; absent: as reads do.
    pub write_bandwidth_mb: Option<f64>,
    /// Writes started per second; absent means no limit.
    pub write_iops: Option<f64>,
    /// What the first read of a place costs beyond that.
    pub first_touch: Option<FirstTouch>,
}

/// A volume filled as it is read: the first read of each chunk fetches it from elsewhere.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirstTouch {
    /// Chunk size in KiB.
    pub chunk_kb: u64,
    /// Time of a fetch, in microseconds.
    pub latency_us: u64,
    /// Chunks fetched at the same time.
    pub parallel: usize,
}

/// Numbers of a device with one actuator.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneHeadSpec {
    /// Seek to the next track, in microseconds.
    pub track_to_track_us: u64,
    /// Mean seek between random places, in microseconds; seek time grows with the square root of the
    /// distance, which makes the mean lie 8/15 of the way from the shortest to the longest.
    pub average_seek_us: u64,
    /// Turns a minute; absent means that nothing turns and any place may be read at any time.
    pub rpm: Option<f64>,
    /// Media rate at the first and at the last byte, in 10^6 bytes per second.
    pub media_mb: [f64; 2],
    /// Rate from the drive's buffer to the host, in 10^6 bytes per second; absent means at once.
    pub interface_mb: Option<f64>,
    /// How far the drive reads on after a request, into its buffer.
    pub read_ahead_kb: u64,
    /// Requests the drive can reorder.
    pub ncq: usize,
    /// Time until the drive's cache acknowledges a write, in microseconds.
    pub write_latency_us: u64,
    /// Size of that cache; 0: each write waits for the media; absent: it never fills, and writes cost the
    /// head nothing.
    pub write_cache_kb: Option<u64>,
}

/// What a data sheet or a review says, to hold the model against; not used by it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sheet {
    /// Whose figures.
    pub source: String,
    /// Random reads of 4 KiB a second, one at a time.
    pub random_q1: Option<f64>,
    /// The same, eight at a time.
    pub random_q8: Option<f64>,
    /// The same, 32 at a time.
    pub random_q32: Option<f64>,
    /// Reading from the beginning, in 10^6 bytes per second.
    pub sequential_mb: Option<f64>,
    /// 32 random reads at a time where all has been read before, for a volume with a first touch.
    pub touched_q32: Option<f64>,
}

/// A disk model: one file under `lab/models/`.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The file's stem.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Where the numbers come from.
    pub source: String,
    /// Where the model stays below the device because the chain that serves it could not keep up.
    pub cap: Option<String>,
    /// The timing.
    pub kind: Kind,
    /// The kernel's view.
    pub queue: Queue,
    /// Figures to check it against.
    pub sheet: Sheet,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    description: String,
    source: String,
    cap: Option<String>,
    parallel: Option<ParallelSpec>,
    one_head: Option<OneHeadSpec>,
    queue: Queue,
    #[serde(default)]
    sheet: Sheet,
}

/// Reads a model; the error is a message that names the line.
pub(super) fn parse(name: &str, text: &str) -> Result<Model, String> {
    let file: File = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
    let bounds = Bounds { text };
    bounds.queue(&file.queue)?;
    bounds.sheet(&file.sheet)?;
    let kind = match (file.parallel, file.one_head) {
        (None, None) => Kind::None,
        (Some(spec), None) => {
            bounds.parallel(&spec)?;
            Kind::Parallel(spec)
        }
        (None, Some(spec)) => {
            bounds.one_head(&spec)?;
            Kind::OneHead(spec)
        }
        (Some(_), Some(_)) => return Err("both [parallel] and [one_head]: a device is one of them".into()),
    };
    Ok(Model {
        name: name.to_owned(),
        description: file.description,
        source: file.source,
        cap: file.cap,
        kind,
        queue: file.queue,
        sheet: file.sheet,
    })
}

/// An hour: what no device takes, and far from where sums of nanoseconds overflow.
const LONGEST_US: u64 = 3_600_000_000;
const TIMES: RangeInclusive<f64> = 0.0..=LONGEST_US as f64;
/// From a tape to memory, in 10^6 bytes per second.
const RATES: RangeInclusive<f64> = 1e-3..=1e6;
const COUNTS: RangeInclusive<f64> = 1.0..=4096.0;
const PER_SECOND: RangeInclusive<f64> = 1e-3..=1e8;

struct Bounds<'a> {
    text: &'a str,
}

impl Bounds<'_> {
    fn parallel(&self, spec: &ParallelSpec) -> Result<(), String> {
        let table = "parallel";
        let [low, high] = spec.latency_us;
        self.within(table, "latency_us", low as f64, TIMES)?;
        self.within(table, "latency_us", high as f64, TIMES)?;
        if low > high {
            return Err(self.say(
                table,
                "latency_us",
                &format!("[{low}, {high}]"),
                "the shorter time comes first",
            ));
        }
        self.within(table, "depth", spec.depth as f64, COUNTS)?;
        self.within(table, "write_latency_us", spec.write_latency_us as f64, TIMES)?;
        self.maybe(table, "bandwidth_mb", spec.bandwidth_mb, RATES)?;
        self.maybe(table, "write_bandwidth_mb", spec.write_bandwidth_mb, RATES)?;
        self.maybe(table, "iops", spec.iops, PER_SECOND)?;
        self.maybe(table, "write_iops", spec.write_iops, PER_SECOND)?;
        if let Some(touch) = &spec.first_touch {
            let table = "parallel.first_touch";
            self.within(table, "chunk_kb", touch.chunk_kb as f64, 4.0..=1e6)?;
            self.within(table, "latency_us", touch.latency_us as f64, TIMES)?;
            self.within(table, "parallel", touch.parallel as f64, COUNTS)?;
        }
        Ok(())
    }

    fn one_head(&self, spec: &OneHeadSpec) -> Result<(), String> {
        let table = "one_head";
        let (shortest, average) = (spec.track_to_track_us, spec.average_seek_us);
        self.within(table, "track_to_track_us", shortest as f64, TIMES)?;
        self.within(table, "average_seek_us", average as f64, TIMES)?;
        if average < shortest {
            let value = average.to_string();
            let why = format!("the mean cannot be below the shortest, {shortest}");
            return Err(self.say(table, "average_seek_us", &value, &why));
        }
        self.maybe(table, "rpm", spec.rpm, 1.0..=1e6)?;
        self.within(table, "media_mb", spec.media_mb[0], RATES)?;
        self.within(table, "media_mb", spec.media_mb[1], RATES)?;
        self.maybe(table, "interface_mb", spec.interface_mb, RATES)?;
        self.within(table, "read_ahead_kb", spec.read_ahead_kb as f64, 0.0..=1e6)?;
        self.within(table, "ncq", spec.ncq as f64, COUNTS)?;
        self.within(table, "write_latency_us", spec.write_latency_us as f64, TIMES)?;
        let cache = spec.write_cache_kb.map(|kb| kb as f64);
        self.maybe(table, "write_cache_kb", cache, 0.0..=1e9)
    }

    fn queue(&self, queue: &Queue) -> Result<(), String> {
        // Linux's multi-queue schedulers; a name goes to a file in /sys as it is.
        let known = ["none", "mq-deadline", "kyber", "bfq"];
        if known.contains(&queue.scheduler.as_str()) {
            return Ok(());
        }
        let value = format!("{:?}", queue.scheduler);
        Err(self.say(
            "queue",
            "scheduler",
            &value,
            &format!("one of {}", known.join(", ")),
        ))
    }

    fn sheet(&self, sheet: &Sheet) -> Result<(), String> {
        for (key, value) in [
            ("random_q1", sheet.random_q1),
            ("random_q8", sheet.random_q8),
            ("random_q32", sheet.random_q32),
            ("sequential_mb", sheet.sequential_mb),
            ("touched_q32", sheet.touched_q32),
        ] {
            self.maybe("sheet", key, value, PER_SECOND)?;
        }
        Ok(())
    }

    fn maybe(
        &self,
        table: &str,
        key: &str,
        value: Option<f64>,
        range: RangeInclusive<f64>,
    ) -> Result<(), String> {
        value.map_or(Ok(()), |value| self.within(table, key, value, range))
    }

    fn within(&self, table: &str, key: &str, value: f64, range: RangeInclusive<f64>) -> Result<(), String> {
        // NaN lies in no range.
        if range.contains(&value) {
            return Ok(());
        }
        let allowed = format!("from {} to {} is possible", range.start(), range.end());
        Err(self.say(table, key, &value.to_string(), &allowed))
    }

    fn say(&self, table: &str, key: &str, value: &str, why: &str) -> String {
        let mut current = String::new();
        for (number, line) in (1..).zip(self.text.lines()) {
            let line = line.trim();
            if let Some(name) = line.strip_prefix('[') {
                current = name.split(']').next().unwrap_or_default().trim().to_owned();
            } else if current == table && line.split('=').next().is_some_and(|k| k.trim() == key) {
                return format!("line {number}: {table}.{key} = {value}: {why}");
            }
        }
        format!("{table}.{key} = {value}: {why}")
    }
}
