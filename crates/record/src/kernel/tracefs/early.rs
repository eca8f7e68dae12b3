//! What a trace instance of the kernel command line saw before any recorder could run.
//!
//! `trace_instance=NAME,EVENT…` has the kernel (6.3 and later) begin to trace before it mounts anything. Such
//! an instance has the kernel's own clock and writes over its oldest events when it is full; it is read once,
//! when a recorder is attached that sees all from then on, and then removed.

use super::buffers::Buffers;
use super::decode::Decoder;
use super::dir::{Instance, open_root};
use super::inodes::Inodes;
use super::interpret::Interpreter;
use super::tasks::Tasks;
use crate::error::RecordError;
use crate::kernel::clock::monotonic_ns;
use crate::kernel::event::Event;
use crate::namespace;
use headstart_model::sort::Sort;
use headstart_model::trace::{Evidence, Scope};
use rustix::time::{ClockId, clock_gettime};

/// Numbers of files that no other back-end gives in the same recording.
const FIRST_FILE: u64 = 1 << 63;

/// What an instance had seen.
pub(crate) struct Early {
    reader: Interpreter,
    records: Vec<super::decode::Record>,
}

/// Why there is nothing to be had.
#[derive(Debug)]
pub(crate) enum NoEarly {
    /// There is no tracefs to look in, as before it is mounted: it may be asked for again.
    NotYet,
    /// There is no such instance.
    None,
    /// It is of no use: why, and what to do. It is removed.
    Useless(String),
}

impl Early {
    /// Ends the tracing of the instance `name`, reads what it has, and removes it. What processes in
    /// `excluded` did is left out.
    pub(crate) fn take(name: &str, excluded: &[u32]) -> Result<Early, NoEarly> {
        // In a container it is the host's.
        if !namespace::is_initial().unwrap_or(false) {
            return Err(NoEarly::None);
        }
        let root = open_root().map_err(|_| NoEarly::NotYet)?;
        let useless = |error: RecordError| NoEarly::Useless(error.to_string());
        let instance = Instance::adopt(&root, name).map_err(useless)?;
        let instance = instance.ok_or(NoEarly::None)?;
        instance.write("tracing_on", "0").map_err(useless)?;
        let decoder = Decoder::read(&instance).map_err(useless)?;
        if decoder.evidence != Evidence::Uses {
            return Err(NoEarly::Useless(
                "this kernel's events tell what enters the page cache, not what is used (Linux 6.12 and later do)".into(),
            ));
        }
        let offset_ns = offset_ns(&instance).map_err(useless)?;
        let mut records = Vec::new();
        // All of each buffer, however large: nothing is added to it any more.
        let mut buffers = Buffers::open(&instance, &decoder, usize::MAX).map_err(useless)?;
        buffers.read(&decoder, &mut records).map_err(useless)?;
        let lost = buffers.lost(&instance).map_err(useless)?;
        drop(buffers);
        if lost > 0 {
            return Err(NoEarly::Useless(format!(
                "{lost} of its events were written over before headstart ran: give it more room, with \
                 trace_buf_size=32M on the kernel command line"
            )));
        }
        for record in &mut records {
            record.time_ns = record.time_ns.saturating_add_signed(offset_ns);
        }
        records.sort_small_by_key(|record| record.time_ns);
        let own = excluded.iter().copied().chain([std::process::id()]);
        Ok(Early {
            reader: Interpreter {
                evidence: decoder.evidence,
                // Whoever has ended meanwhile did count: unknown threads are taken for processes.
                tasks: Tasks::new(Scope::Tree, own),
                inodes: Inodes::new(FIRST_FILE).map_err(useless)?,
            },
            records,
        })
    }

    /// When the first of it happened, nanoseconds of CLOCK_MONOTONIC.
    pub(crate) fn began_ns(&self) -> Option<u64> {
        self.records.first().map(|record| record.time_ns)
    }

    /// Hands it over; how many records that were.
    pub(crate) fn drain(mut self, sink: &mut dyn FnMut(Event)) -> usize {
        let count = self.records.len();
        self.reader.batch(self.records, sink);
        count
    }
}

/// What must be added to the instance's times to make them CLOCK_MONOTONIC. The kernel's own clock runs as
/// that does, but begins elsewhere; what NTP has done to the difference in a minute is far below a
/// millisecond.
fn offset_ns(instance: &Instance) -> Result<i64, RecordError> {
    let clocks = instance.read("trace_clock")?;
    let clock = clocks
        .split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let difference = |now: u64| monotonic_ns() as i64 - now as i64;
    match clock {
        Some("mono") => Ok(0),
        Some("boot") => {
            let now = clock_gettime(ClockId::Boottime);
            Ok(difference(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64))
        }
        Some("local" | "global" | "mono_raw" | "perf") => {
            let before = monotonic_ns();
            let stats = instance.read("per_cpu/cpu0/stats")?;
            let now = now_ns(&stats).ok_or_else(|| unknown_clock(&clocks))?;
            // Asked for between two readings of the other clock.
            let read = (monotonic_ns() - before) as i64;
            Ok(difference(now) - read / 2)
        }
        _ => Err(unknown_clock(&clocks)),
    }
}

fn unknown_clock(clocks: &str) -> RecordError {
    RecordError::Unsupported {
        backend: "tracefs",
        feature: format!("the trace clocks {:?}", clocks.trim()),
        way_out: "leave the instance the clock it has",
    }
}

/// The time that a processor's `stats` file says it is, seconds with six decimals.
fn now_ns(stats: &str) -> Option<u64> {
    let now = stats.lines().find_map(|line| line.strip_prefix("now ts:"))?;
    let (seconds, micros) = now.trim().split_once('.')?;
    let micros = (micros.len() == 6).then(|| micros.parse::<u64>().ok())??;
    seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(micros * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read() {
        assert_eq!(
            now_ns("entries: 1\nnow ts:  4711.000042\nread events: 0\n"),
            Some(4_711_000_042_000)
        );
        assert_eq!(now_ns("now ts: 123456789\n"), None, "a counter is no time");
        assert_eq!(now_ns(""), None);
    }
}
