//! The part of a run that is measured: all of it, or what follows a mark.

use anyhow::{Result, bail};

use crate::disk::Entry;
use crate::machine::{Mark, Stage};
use crate::model::{Extent, Op, merge};

/// What is measured of a run.
pub(super) struct Part {
    pub(super) seconds: f64,
    pub(super) reads: u64,
    pub(super) bytes: u64,
    pub(super) busy_seconds: f64,
    pub(super) requests: Vec<Entry>,
}

impl Part {
    /// All of it, by the block device's counters.
    pub(super) fn whole(stages: &[Stage], requests: &[Entry]) -> Part {
        Part {
            seconds: stages.iter().map(|s| s.seconds).sum(),
            reads: stages.iter().map(|s| s.reads).sum(),
            bytes: stages.iter().map(|s| s.bytes).sum(),
            busy_seconds: stages.iter().map(|s| s.busy_seconds).sum(),
            requests: requests.to_vec(),
        }
    }

    /// From the mark `from` to the last one, by the log of requests.
    pub(super) fn since(from: &str, marks: &[Mark], requests: &[Entry]) -> Result<Part> {
        let Some(begin) = marks.iter().find(|m| m.name == from).map(|m| m.seconds) else {
            let had: Vec<&str> = marks.iter().map(|m| m.name.as_str()).collect();
            bail!("never came to the mark {from:?}; it had: {}", had.join(", "))
        };
        let end = marks.last().map_or(begin, |m| m.seconds);
        if end <= begin {
            bail!("{from:?}, the mark it is measured from, came last");
        }
        let inside: Vec<Entry> = requests
            .iter()
            .filter(|entry| (begin..end).contains(&(entry.at as f64 / 1e9)))
            .copied()
            .collect();
        let reads = || inside.iter().filter(|entry| entry.op == Op::Read);
        Ok(Part {
            seconds: end - begin,
            reads: reads().count() as u64,
            bytes: reads().map(|entry| entry.length).sum(),
            busy_seconds: busy(&inside),
            requests: inside,
        })
    }
}

/// Seconds in which a request of `log`, which is in order of arrival, was outstanding.
fn busy(log: &[Entry]) -> f64 {
    let (mut total, mut until) = (0, 0);
    for entry in log {
        let end = entry.at + entry.service;
        total += end.saturating_sub(entry.at.max(until));
        until = until.max(end);
    }
    total as f64 / 1e9
}

/// What a log read, in address order.
pub(super) fn read_by(log: &[Entry]) -> Vec<Extent> {
    let reads = log.iter().filter(|entry| entry.op == Op::Read);
    let extents: Vec<Extent> = reads
        .map(|e| Extent {
            offset: e.offset,
            length: e.length,
        })
        .collect();
    merge(&extents, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_counts_what_follows_its_mark() {
        let entry = |at, service, op| Entry {
            at,
            op,
            offset: 0,
            length: 4096,
            depth: 1,
            service,
        };
        let second = 1_000_000_000;
        let log = [
            entry(0, second / 2, Op::Read),
            entry(2 * second, second, Op::Read),
            // Beside the one before, and half a second longer.
            entry(5 * second / 2, second, Op::Read),
            entry(4 * second, second / 4, Op::Write),
            entry(6 * second, second, Op::Read),
        ];
        let marks = [("root", 1.0), ("up", 5.0)].map(|(name, seconds)| Mark {
            name: name.into(),
            seconds,
        });
        let part = Part::since("root", &marks, &log).unwrap();
        assert_eq!((part.seconds, part.reads, part.bytes), (4.0, 2, 8192));
        assert_eq!((part.busy_seconds, part.requests.len()), (1.75, 3));
        for (from, said) in [("login", "login"), ("up", "came last")] {
            let error = Part::since(from, &marks, &log).err().unwrap();
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
