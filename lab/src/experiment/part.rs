//! The part of a run that is measured: all of it, or what lies between two marks.

use anyhow::{Context, Result, bail};

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

    /// From one mark to another, either of which may be the run's own begin or end, by the log of requests;
    /// `None` if both are.
    pub(super) fn between(
        from: Option<&str>,
        until: Option<&str>,
        marks: &[Mark],
        requests: &[Entry],
    ) -> Result<Option<Part>> {
        if from.is_none() && until.is_none() {
            return Ok(None);
        }
        let at = |name: &str| match marks.iter().find(|m| m.name == name) {
            Some(mark) => Ok(mark.seconds),
            None => {
                let had: Vec<&str> = marks.iter().map(|m| m.name.as_str()).collect();
                bail!("never came to the mark {name:?}; it had: {}", had.join(", "))
            }
        };
        let begin = from.map_or(Ok(0.0), at)?;
        let end = match until {
            Some(until) => at(until)?,
            None => marks.last().context("it had no mark")?.seconds,
        };
        if end <= begin {
            bail!(
                "the mark it is measured from came {:.3} s after the one it is measured to",
                begin - end
            );
        }
        let inside: Vec<Entry> = requests
            .iter()
            .filter(|entry| (begin..end).contains(&(entry.at as f64 / 1e9)))
            .copied()
            .collect();
        let reads = || inside.iter().filter(|entry| entry.op == Op::Read);
        Ok(Some(Part {
            seconds: end - begin,
            reads: reads().count() as u64,
            bytes: reads().map(|entry| entry.length).sum(),
            busy_seconds: busy(&inside),
            requests: inside,
        }))
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
    fn a_part_counts_what_lies_between_its_marks() {
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
        let part = Part::between(Some("root"), None, &marks, &log).unwrap().unwrap();
        assert_eq!((part.seconds, part.reads, part.bytes), (4.0, 2, 8192));
        assert_eq!((part.busy_seconds, part.requests.len()), (1.75, 3));
        assert!(Part::between(None, None, &marks, &log).unwrap().is_none());
        let part = Part::between(None, Some("root"), &marks, &log).unwrap().unwrap();
        assert_eq!((part.seconds, part.reads), (1.0, 1));
        for (from, until, said) in [("login", "up", "login"), ("up", "root", "after")] {
            let error = Part::between(Some(from), Some(until), &marks, &log)
                .err()
                .unwrap();
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
