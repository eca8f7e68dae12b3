//! Disk models: when does a device answer, as a pure function of what it was asked and when.
//!
//! A [`Model`] is the data sheet (TOML under `lab/models/`), a [`Device`] the state machine made from it.
//! Time is virtual: the caller says what time it is, so the same requests at the same times always give the
//! same completions. The block-device server drives it with the wall clock, [`t_io`] and the tests with a
//! clock of their own.

mod arm;
mod onehead;
mod parallel;
mod spec;
mod tio;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use spec::{FirstTouch, Kind, Model, OneHeadSpec, ParallelSpec, Queue, Sheet};
pub use tio::{Extent, cost, ideal, merge, t_io};

use crate::built_in::built_in;
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
    /// All that was written before, to where it outlives a power cut; no offset, no length.
    Flush,
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
    #[error("disk model {path}")]
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
pub const BUILT_IN: &[(&str, &str)] = built_in!(
    "models",
    [
        "none",
        "disk7200",
        "disk5400",
        "disk2007",
        "cdrom24x",
        "sdcard-a1",
        "emmc51",
        "usb2-stick",
        "sata-ssd",
        "nvme",
        "cloud",
        "lazy",
        "network-share",
        "flash4ms",
        "seek5ms",
    ]
);

impl Model {
    /// A built-in model by name (`disk` is short for the 7200 rpm disk), or the TOML file at a path ending in
    /// `.toml`.
    pub fn load(name: &str) -> Result<Model, ModelError> {
        let name = if name == "disk" { "disk7200" } else { name };
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
        let name = Path::new(path)
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
            .unwrap_or_default();
        spec::parse(&name, text).map_err(|message| ModelError::Bad {
            path: path.into(),
            message,
        })
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
    let mut done = Vec::new();
    while let Some(at) = device.next_event() {
        done.extend(device.advance(at));
    }
    done
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
        let file = |name: &str| BUILT_IN.iter().find(|(n, _)| *n == name).unwrap().1;
        let (flash, disk) = (file("flash4ms"), file("disk7200"));
        for (text, from, to, expected) in [
            (flash, "depth = 16", "depth = 0", "parallel.depth = 0"),
            (flash, "depth = 16", "depth = -1", "line"),
            (flash, "depth = 16", "deptth = 16", "deptth"),
            (flash, "depth = 16", "", "depth"),
            (
                flash,
                "[4000, 4000]",
                "[4000, 3000]",
                "the shorter time comes first",
            ),
            (
                flash,
                "[4000, 4000]",
                "[4000, 99999999999999]",
                "parallel.latency_us",
            ),
            (
                flash,
                "scheduler = \"none\"",
                "scheduler = \"../x\"",
                "queue.scheduler = \"../x\"",
            ),
            (disk, "rpm = 7200", "rpm = nan", "one_head.rpm = NaN"),
            (disk, "rpm = 7200", "rpm = inf", "one_head.rpm = inf"),
            (disk, "ncq = 32", "ncq = 4294967296", "one_head.ncq"),
            (
                disk,
                "average_seek_us = 8900",
                "average_seek_us = 1",
                "average_seek_us = 1:",
            ),
            (disk, "[one_head]", "[parallel]", "line"),
            (disk, "[queue]", "[queue", "line"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            let line = 1 + text.lines().position(|line| line.contains(from)).unwrap();
            let message = Model::parse("x.toml", &changed).unwrap_err().to_string();
            assert!(
                message.contains("x.toml") && message.contains(expected),
                "{message}"
            );
            if !to.is_empty() && to != "[parallel]" {
                assert!(
                    message.contains(&format!("line {line}")),
                    "{from} -> {to}: {message}"
                );
            }
        }
    }

    /// Every model within its bounds answers; none overflows.
    #[test]
    fn extreme_numbers_do_no_harm() {
        let text = BUILT_IN.iter().find(|(n, _)| *n == "disk7200").unwrap().1;
        for (rate, rpm) in [("[0.001, 0.001]", "1"), ("[1000000, 0.001]", "1000000")] {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            for line in &mut lines {
                if line.starts_with("media_mb") {
                    *line = format!("media_mb = {rate}");
                } else if line.starts_with("rpm") {
                    *line = format!("rpm = {rpm}");
                } else if line.starts_with("average_seek_us") {
                    *line = "average_seek_us = 3600000000".into();
                }
            }
            let model = Model::parse("x.toml", &lines.join("\n")).unwrap();
            let done = run(&model, &[(0, 1, 1), (5, 200_000, 60), (0, 3, 2)]);
            assert_eq!(done.len(), 3);
        }
    }

    /// Mostly reads, some writes, a flush now and then.
    fn op_of(block: u64, blocks: u64) -> Op {
        match (block + blocks) % 8 {
            0 | 1 => Op::Write,
            2 if blocks % 4 == 0 => Op::Flush,
            _ => Op::Read,
        }
    }

    fn run(model: &Model, requests: &[(u64, u64, u64)]) -> Vec<Done> {
        let mut device = Device::new(model, 1 << 30);
        let (mut now, mut done) = (0, Vec::new());
        for (id, (gap, block, blocks)) in requests.iter().enumerate() {
            now += gap;
            let request = Request {
                id: id as u64,
                op: op_of(*block, *blocks),
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
        /// The promise the lab rests on: same requests, same times, same service; each answered once, never
        /// before it came.
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
                device.submit(now, Request { id: id as u64, op: op_of(*block, *blocks), offset: block * 4096, length: blocks * 4096 });
            }
            prop_assert_eq!(device.advance(u64::MAX / 2), run(&model, &requests));
        }
    }
}
