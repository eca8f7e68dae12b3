//! Disk models: when does a device answer, as a pure function of what it was asked and when.
//!
//! A [`Model`] is the data sheet (TOML under `lab/models/`), a [`Device`] the state machine made from it. Time is virtual: the
//! caller says what time it is, so the same requests at the same times always give the same completions. The block-device
//! server drives it with the wall clock, [`t_io`] and the tests with a clock of their own.

mod onehead;
mod parallel;
mod tio;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use tio::{Extent, merge, t_io};

use onehead::OneHead;
use parallel::Parallel;

/// Virtual time in nanoseconds since the device was switched on.
pub type Nanos = u64;

/// The largest request the block layer sends to the lab's devices, in bytes: what one FUSE message carries
/// (`/proc/sys/fs/fuse/max_pages_limit` is 256 pages).
pub const MAX_REQUEST: u64 = 1 << 20;

/// What a request wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Data from the device.
    Read,
    /// Data to the device.
    Write,
}

/// One request to a device; offset and length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The caller's name for it, returned in [`Done`].
    pub id: u64,
    /// Read or write.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// A request that the device has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// The request.
    pub request: Request,
    /// When it was submitted.
    pub arrived: Nanos,
    /// When the device finished it.
    pub finished: Nanos,
    /// Requests in the device when it arrived, itself included.
    pub depth: u32,
}

/// How the kernel is told to see the device (`/sys/block/*/queue`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// `queue/rotational`.
    pub rotational: bool,
    /// `queue/scheduler`.
    pub scheduler: String,
}

/// The timing of a device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Kind {
    /// Answers at once.
    None,
    /// Independent channels: flash, network volumes.
    Parallel(ParallelSpec),
    /// One mechanical actuator.
    OneHead(OneHeadSpec),
}

/// Numbers of a device with independent channels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParallelSpec {
    /// Shortest and longest time from start to first byte, in microseconds; each request draws its own, always the same for the
    /// same place in the sequence.
    pub latency_us: [u64; 2],
    /// Requests served at the same time.
    pub depth: usize,
    /// Shared link, in 10^6 bytes per second; absent means no limit.
    pub bandwidth_mb: Option<f64>,
    /// Requests started per second; absent means no limit.
    pub iops: Option<f64>,
    /// Time of a write, which a buffer absorbs, in microseconds.
    pub write_latency_us: u64,
}

/// Numbers of a device with one actuator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OneHeadSpec {
    /// Seek to the next track and over the whole device, in microseconds.
    pub seek_us: [u64; 2],
    /// Mean rotational delay after a seek, in microseconds.
    pub rotation_us: u64,
    /// Media rate, in 10^6 bytes per second.
    pub bandwidth_mb: f64,
    /// Requests the drive can reorder.
    pub ncq: usize,
    /// Time of a write, which the drive's cache absorbs, in microseconds.
    pub write_latency_us: u64,
}

/// A disk model: one file under `lab/models/`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// The file's stem.
    #[serde(skip)]
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Where the numbers come from.
    pub source: String,
    /// The timing.
    #[serde(flatten)]
    pub kind: Kind,
    /// The kernel's view.
    pub queue: Queue,
}

/// Why a model could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// Neither a built-in name nor a file.
    #[error("no disk model {name:?}: built in are {known}; a path ending in .toml loads your own")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Built-in names.
        known: String,
    },
    /// The file cannot be read.
    #[error("disk model {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not a model.
    #[error("disk model {path}: {message}")]
    Bad {
        /// The file.
        path: String,
        /// The parser's message, with line, or the value that makes no sense.
        message: String,
    },
}

/// The models that ship with the lab, by name.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("none", include_str!("../../models/none.toml")),
    ("flash4ms", include_str!("../../models/flash4ms.toml")),
    ("seek5ms", include_str!("../../models/seek5ms.toml")),
    ("disk", include_str!("../../models/disk.toml")),
    ("lazy", include_str!("../../models/lazy.toml")),
    ("cloud", include_str!("../../models/cloud.toml")),
];

impl Model {
    /// A built-in model by name, or the TOML file at a path ending in `.toml`.
    pub fn load(name: &str) -> Result<Model, ModelError> {
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Model::parse(name, text);
        }
        if !name.ends_with(".toml") {
            let known = BUILT_IN
                .iter()
                .map(|(known, _)| *known)
                .collect::<Vec<_>>()
                .join(", ");
            return Err(ModelError::Unknown {
                name: name.into(),
                known,
            });
        }
        let text = std::fs::read_to_string(name).map_err(|source| ModelError::Read {
            path: name.into(),
            source,
        })?;
        Model::parse(name, &text)
    }

    fn parse(path: &str, text: &str) -> Result<Model, ModelError> {
        let bad = |message: String| ModelError::Bad {
            path: path.into(),
            message,
        };
        let mut model: Model = toml::from_str(text).map_err(|e| bad(e.to_string()))?;
        model.name = Path::new(path)
            .file_stem()
            .map(|s| s.to_string_lossy().into_owned())
            .unwrap_or_default();
        let positive = |what: &str, ok: bool| {
            if ok {
                Ok(())
            } else {
                Err(bad(format!("{what} must be above zero")))
            }
        };
        match &model.kind {
            Kind::None => {}
            Kind::Parallel(p) => {
                positive("depth", p.depth > 0)?;
                positive("bandwidth_mb", p.bandwidth_mb.is_none_or(|b| b > 0.0))?;
                positive("iops", p.iops.is_none_or(|b| b > 0.0))?;
            }
            Kind::OneHead(p) => {
                positive("ncq", p.ncq > 0)?;
                positive("bandwidth_mb", p.bandwidth_mb > 0.0)?;
            }
        }
        let ([low, high], what) = match &model.kind {
            Kind::None => ([0, 0], ""),
            Kind::Parallel(p) => (p.latency_us, "latency_us"),
            Kind::OneHead(p) => (p.seek_us, "seek_us"),
        };
        if low > high {
            return Err(bad(format!(
                "{what} = [{low}, {high}]: the shorter time comes first"
            )));
        }
        Ok(model)
    }
}

/// Nanoseconds to move `length` bytes at `mb` 10^6 bytes per second.
fn transfer(length: u64, mb: f64) -> Nanos {
    (length as f64 * 1000.0 / mb).round() as Nanos
}

/// A device in motion. Times given to it must not go backwards.
#[derive(Debug, Clone)]
pub struct Device {
    now: Nanos,
    state: State,
    done: Vec<Done>,
}

#[derive(Debug, Clone)]
enum State {
    None,
    Parallel(Parallel),
    OneHead(OneHead),
}

impl Device {
    /// A device of `size` bytes at rest, its head (if any) at byte 0.
    pub fn new(model: &Model, size: u64) -> Device {
        let state = match &model.kind {
            Kind::None => State::None,
            Kind::Parallel(spec) => State::Parallel(Parallel::new(spec)),
            Kind::OneHead(spec) => State::OneHead(OneHead::new(spec, size)),
        };
        Device {
            now: 0,
            state,
            done: Vec::new(),
        }
    }

    /// Hands over a request at time `now`.
    pub fn submit(&mut self, now: Nanos, request: Request) {
        self.run(now);
        match &mut self.state {
            State::None => {
                let now = self.now;
                self.done.push(Done {
                    request,
                    arrived: now,
                    finished: now,
                    depth: 1,
                })
            }
            State::Parallel(p) => p.submit(self.now, request),
            State::OneHead(h) => h.submit(self.now, request),
        }
    }

    /// When to call [`Device::advance`] next; `None` while nothing is outstanding.
    pub fn next_event(&self) -> Option<Nanos> {
        if !self.done.is_empty() {
            return Some(self.now);
        }
        match &self.state {
            State::None => None,
            State::Parallel(p) => p.next_event(),
            State::OneHead(h) => h.next_event(),
        }
    }

    /// Everything finished by `now`, in order of finishing.
    pub fn advance(&mut self, now: Nanos) -> Vec<Done> {
        self.run(now);
        std::mem::take(&mut self.done)
    }

    fn run(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        match &mut self.state {
            State::None => {}
            State::Parallel(p) => p.run(self.now, &mut self.done),
            State::OneHead(h) => h.run(self.now, &mut self.done),
        }
    }
}

/// Runs a device until it is idle; returns what it finished, in order.
pub fn drain(device: &mut Device) -> Vec<Done> {
    let mut all = Vec::new();
    while let Some(at) = device.next_event() {
        all.extend(device.advance(at));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn built_in_models_parse_and_name_their_source() {
        for (name, _) in BUILT_IN {
            let model = Model::load(name).unwrap();
            assert_eq!(model.name, *name);
            assert!(!model.source.is_empty(), "{name}");
        }
    }

    #[test]
    fn unknown_model_lists_the_known() {
        let message = Model::load("floppy").unwrap_err().to_string();
        assert!(
            message.contains("floppy") && message.contains("flash4ms"),
            "{message}"
        );
    }

    #[test]
    fn impossible_numbers_are_refused_by_name() {
        let text = BUILT_IN
            .iter()
            .find(|(n, _)| *n == "flash4ms")
            .unwrap()
            .1
            .replace("depth = 16", "depth = 0");
        assert!(
            Model::parse("x.toml", &text)
                .unwrap_err()
                .to_string()
                .contains("depth")
        );
    }

    fn run(model: &Model, requests: &[(u64, u64, u64)]) -> Vec<Done> {
        let mut device = Device::new(model, 1 << 30);
        let (mut now, mut done) = (0, Vec::new());
        for (id, (gap, block, blocks)) in requests.iter().enumerate() {
            now += gap;
            let request = Request {
                id: id as u64,
                op: Op::Read,
                offset: block * 4096,
                length: blocks * 4096,
            };
            device.submit(now, request);
            done.extend(device.advance(now));
        }
        done.extend(drain(&mut device));
        done
    }

    proptest! {
        /// The promise the lab rests on: same requests, same times, same service; each answered once, never before it came.
        #[test]
        fn deterministic_and_complete(
            requests in prop::collection::vec((0u64..20_000_000, 0u64..200_000, 1u64..64), 1..60),
            which in 0usize..BUILT_IN.len(),
        ) {
            let model = Model::load(BUILT_IN[which].0).unwrap();
            let one = run(&model, &requests);
            prop_assert_eq!(&one, &run(&model, &requests));
            let mut ids: Vec<u64> = one.iter().map(|d| d.request.id).collect();
            ids.sort_unstable();
            prop_assert_eq!(ids, (0..requests.len() as u64).collect::<Vec<_>>());
            prop_assert!(one.iter().all(|d| d.finished >= d.arrived));
            prop_assert!(one.windows(2).all(|w| w[0].finished <= w[1].finished));
        }

        /// When the wall-clock driver wakes up late, the device's own timeline must not move.
        #[test]
        fn late_polling_changes_nothing(
            requests in prop::collection::vec((0u64..20_000_000, 0u64..200_000, 1u64..64), 1..60),
            which in 0usize..BUILT_IN.len(),
        ) {
            let model = Model::load(BUILT_IN[which].0).unwrap();
            let mut device = Device::new(&model, 1 << 30);
            let mut now = 0;
            for (id, (gap, block, blocks)) in requests.iter().enumerate() {
                now += gap;
                device.submit(now, Request { id: id as u64, op: Op::Read, offset: block * 4096, length: blocks * 4096 });
            }
            prop_assert_eq!(device.advance(u64::MAX / 2), run(&model, &requests));
        }
    }
}
