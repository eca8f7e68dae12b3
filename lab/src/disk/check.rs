//! `disk check`: measures an attached model with fio and puts it beside what the model itself predicts.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use super::{Attached, Options, Writes};
use crate::model::{Device, MAX_REQUEST, Model, Op, Request};
use crate::registry::Registry;
use crate::tools;

/// The size of the disk measured: large enough that random reads seldom meet, all of it a hole, so nothing is stored.
const SIZE: u64 = 4 << 30;

/// Bytes of a random read.
const RANDOM: u64 = 4096;

/// One measured pattern.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// Model name.
    pub model: String,
    /// Pattern, such as `random 4 KiB, depth 8`.
    pub pattern: String,
    /// Unit of the two figures.
    pub unit: &'static str,
    /// By the state machine in virtual time.
    pub predicted: f64,
    /// By fio on the block device.
    pub measured: f64,
}

impl Check {
    /// Measured over predicted, less one.
    pub fn error(&self) -> f64 {
        self.measured / self.predicted - 1.0
    }
}

/// Measures `model` for `seconds` a pattern; scratch goes below `base`.
pub fn check(model: &Model, base: &Path, registry: &Registry, seconds: u32) -> Result<Vec<Check>> {
    tools::require(&["fio", "losetup"])?;
    let image = tempfile::Builder::new().prefix("check-").tempfile_in(base)?;
    image.as_file().set_len(SIZE)?;
    let options = Options {
        model: model.clone(),
        image: image.path().into(),
        directory: base.join("check"),
        writes: Writes::Forget,
    };
    let attached = Attached::new(&options, registry)?;
    let mut checks = Vec::new();
    let mut measure = |pattern: String, kind: &str, block: u64, depth: u32| -> Result<()> {
        attached.take_log();
        let report = fio(attached.device(), kind, block, depth, seconds)?;
        let measured = report["bw_bytes"].as_f64().context("fio reports no bandwidth")?;
        // The same places in the same order, so that chance has no part in the difference.
        let log = attached.take_log();
        let places: Vec<(u64, u64)> = log.iter().map(|e| (e.offset, e.length)).collect();
        // The kernel may cut fio's large requests in two: what counts is how many the device saw at once.
        let seen = log.iter().map(|e| e.depth).max().unwrap_or(depth);
        let (unit, size) = if block == RANDOM {
            ("reads/s", block as f64)
        } else {
            ("MB/s", 1e6)
        };
        let (predicted, measured) = (predict(model, seen, &places) / size, measured / size);
        checks.push(Check {
            model: model.name.clone(),
            pattern,
            unit,
            predicted,
            measured,
        });
        Ok(())
    };
    for depth in [1, 8, 32] {
        measure(format!("random 4 KiB, depth {depth}"), "randread", RANDOM, depth)?;
    }
    measure("sequential 1 MiB, depth 4".into(), "read", MAX_REQUEST, 4)?;
    Ok(checks)
}

fn fio(device: &Path, pattern: &str, block: u64, depth: u32, seconds: u32) -> Result<Value> {
    let text = tools::run(
        "fio",
        [
            "--name=check".into(),
            format!("--filename={}", device.display()),
            format!("--rw={pattern}"),
            format!("--bs={block}"),
            format!("--iodepth={depth}"),
            format!("--runtime={seconds}"),
            "--time_based".into(),
            "--direct=1".into(),
            "--readonly".into(),
            "--ioengine=libaio".into(),
            "--output-format=json".into(),
        ],
    )?;
    let report: Value = serde_json::from_str(&text).context("reading fio's report")?;
    Ok(report["jobs"][0]["read"].clone())
}

/// Bytes per second when `depth` of these requests are always outstanding, by the model in virtual time.
fn predict(model: &Model, depth: u32, places: &[(u64, u64)]) -> f64 {
    let mut next = places.iter().zip(0..);
    let mut device = Device::new(model, SIZE);
    let (mut now, mut bytes) = (0, 0u64);
    let mut outstanding = depth;
    loop {
        for _ in 0..outstanding {
            if let Some((&(offset, length), id)) = next.next() {
                device.submit(
                    now,
                    Request {
                        id,
                        op: Op::Read,
                        offset,
                        length,
                    },
                );
            }
        }
        let Some(at) = device.next_event() else { break };
        now = at;
        let done = device.advance(now);
        outstanding = done.len() as u32;
        bytes += done.iter().map(|d| d.request.length).sum::<u64>();
    }
    bytes as f64 / (now as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_follow_the_data_sheet() {
        let near =
            |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 0.02, "{value} {expected}");
        let random: Vec<(u64, u64)> = (0..4000).map(|i| (i * 7_919 % 1_000_000 * 4096, 4096)).collect();
        let rate = |model, depth| predict(&Model::load(model).unwrap(), depth, &random) / 4096.0;
        near(rate("flash4ms", 1), 250.0);
        near(rate("flash4ms", 8), 2000.0);
        near(rate("flash4ms", 32), 4000.0);
        near(rate("cloud", 32), 3000.0);
        let sequential: Vec<(u64, u64)> = (0..1000).map(|i| (i << 20, 1 << 20)).collect();
        near(predict(&Model::load("disk").unwrap(), 4, &sequential), 120e6);
    }
}
