//! The processors' buffers: read page by page without waiting, and what they lost.

use super::decode::{Decoder, EventKind, Record};
use super::dir::Instance;
use super::page::{Damaged, Page};
use crate::error::RecordError;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The least a processor's buffer holds. At 44 bytes an event it takes 240,000 events a second for a drain
/// interval.
const CPU_BUFFER_MIN: usize = 1 << 20;

/// The buffers of an instance. To be dropped before it: it cannot be removed while they are open.
pub(super) struct Buffers {
    cpus: Vec<Cpu>,
    pages_at_once: usize,
    missed: u64,
    damaged: u64,
}

/// One processor's buffer.
struct Cpu {
    name: String,
    pipe: OwnedFd,
}

impl Buffers {
    /// Gives the processors `bytes` of buffer together; returns what one of them has.
    pub fn size(instance: &Instance, bytes: usize) -> Result<usize, RecordError> {
        let cpus = instance.list("per_cpu")?.len().max(1);
        let each = (bytes / cpus).max(CPU_BUFFER_MIN);
        instance.write("buffer_size_kb", &each.div_ceil(1024).to_string())?;
        Ok(each)
    }

    /// Opens them; `each` is what one has, bytes.
    pub fn open(instance: &Instance, decoder: &Decoder, each: usize) -> Result<Buffers, RecordError> {
        let cpus = instance.list("per_cpu")?.into_iter().map(|name| {
            let pipe = instance.open(
                &format!("per_cpu/{name}/trace_pipe_raw"),
                OFlags::RDONLY | OFlags::NONBLOCK,
            )?;
            Ok(Cpu { name, pipe })
        });
        Ok(Buffers {
            cpus: cpus.collect::<Result<_, RecordError>>()?,
            pages_at_once: each / decoder.pages.page_bytes() + 2,
            missed: 0,
            damaged: 0,
        })
    }

    /// Appends what they hold to `records`, processor by processor.
    pub fn read(&mut self, decoder: &Decoder, records: &mut Vec<Record>) -> Result<(), RecordError> {
        let mut buffer = vec![0; decoder.pages.page_bytes()];
        for cpu in &self.cpus {
            let first = records.len();
            // A whole buffer, but no more, so that one busy processor cannot keep the others waiting for
            // ever.
            for _ in 0..self.pages_at_once {
                let bytes = match rustix::io::read(&cpu.pipe, &mut buffer[..]) {
                    // There is a file for each processor that there may be, and a buffer (else ENODEV) for
                    // each that there was.
                    Ok(0) | Err(Errno::AGAIN | Errno::NODEV) => break,
                    Err(Errno::INTR) => continue,
                    Ok(length) => &buffer[..length],
                    Err(error) => {
                        return Err(RecordError::io(format!("read the events of {}", cpu.name), error));
                    }
                };
                match decoder.pages.page(bytes) {
                    Ok(page) => {
                        self.missed += page.missed;
                        self.damaged += u64::from(append(decoder, page, first, records).is_err());
                    }
                    Err(Damaged) => self.damaged += 1,
                }
            }
        }
        Ok(())
    }

    /// Events lost so far. The pages repeat what the kernel's counts say, as far as they say it.
    pub fn lost(&self, instance: &Instance) -> Result<u64, RecordError> {
        let mut dropped = 0;
        for cpu in &self.cpus {
            dropped += dropped_events(&instance.read(&format!("per_cpu/{}/stats", cpu.name))?);
        }
        Ok(dropped.max(self.missed) + self.damaged)
    }
}

/// Appends a page's events to `records`, where those of its processor begin at `first`. Many small reads of
/// one page after another say the same thing; the first says it all.
fn append(decoder: &Decoder, page: Page<'_>, first: usize, records: &mut Vec<Record>) -> Result<(), Damaged> {
    for event in page.events {
        let (time_ns, bytes) = event?;
        let Some(record) = decoder.record(time_ns, bytes) else {
            continue;
        };
        let repeats = matches!(record.what, EventKind::Pages { .. })
            && records[first..]
                .last()
                .is_some_and(|before| before.tid == record.tid && before.what == record.what);
        if !repeats {
            records.push(record);
        }
    }
    Ok(())
}

/// The events a processor's `stats` file counts as not written or written over.
pub(super) fn dropped_events(stats: &str) -> u64 {
    let lines = stats.lines().filter_map(|line| line.split_once(':'));
    lines
        .filter(|(name, _)| matches!(*name, "overrun" | "commit overrun" | "dropped events"))
        .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::dropped_events;

    #[test]
    fn every_way_to_lose_an_event_counts() {
        let stats = "entries: 10\noverrun: 3\ncommit overrun: 1\nbytes: 99\noldest event ts: 5.1\nnow ts: 6.0\n\
            dropped events: 5\nread events: 7\n";
        assert_eq!(dropped_events(stats), 9);
        assert_eq!(dropped_events(""), 0);
    }
}
