//! What I/O cost processes: time blocked on it, major faults, blocks read.

use std::io;
use std::time::Duration;

/// What the waited-for children of this process used, in all (getrusage(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Children {
    /// Faults that had to wait for I/O.
    pub major_faults: u64,
    /// Bytes read from devices on their behalf, their readahead included.
    pub bytes_in: u64,
    /// Bytes written to devices.
    pub bytes_out: u64,
    /// User and system time.
    pub cpu: Duration,
}

impl Children {
    /// The sums until now; differences between two calls belong to the children waited for between them.
    pub fn read() -> io::Result<Children> {
        let (major_faults, blocks_in, blocks_out, cpu_ns) = crate::sys::children()?;
        // The kernel counts blocks of 512 bytes, whatever the device's.
        Ok(Children {
            major_faults,
            bytes_in: blocks_in * 512,
            bytes_out: blocks_out * 512,
            cpu: Duration::from_nanos(cpu_ns),
        })
    }
}

/// Whether the kernel accounts for the time processes are blocked: `task_delayacct` (5.14 and later), off by default.
/// Before, it was always on where built in; then there is no such file.
pub fn delay_accounting() -> bool {
    match std::fs::read_to_string("/proc/sys/kernel/task_delayacct") {
        Ok(text) => text.trim() == "1",
        Err(_) => true,
    }
}

/// How long a process was blocked on block I/O, to 10 ms; `None` if it is gone or delays are not accounted for.
pub fn blocked(pid: u32) -> Option<Duration> {
    if !delay_accounting() {
        return None;
    }
    let ticks = ticks_of(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Some(Duration::from_nanos(
        ticks.saturating_mul(1_000_000_000 / per_second),
    ))
}

/// Field 42 of proc_pid_stat(5), `delayacct_blkio_ticks`. The name in field 2 may hold blanks and parentheses.
fn ticks_of(stat: &[u8]) -> Option<u64> {
    let after_name = stat.iter().rposition(|b| *b == b')')? + 1;
    let text = std::str::from_utf8(&stat[after_name..]).ok()?;
    text.split_ascii_whitespace().nth(42 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_field_is_found_behind_an_odd_name() {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let line = format!("7 (a) S (b) c) S {}", fields.join(" "));
        assert_eq!(ticks_of(line.as_bytes()), Some(42));
        assert_eq!(ticks_of(b"7 (a) S 1 2"), None);
        let own = std::fs::read("/proc/self/stat").unwrap();
        assert!(ticks_of(&own).is_some());
    }

    #[test]
    fn a_child_counts_once_it_is_waited_for() {
        let before = Children::read().unwrap();
        std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done"])
            .status()
            .unwrap();
        assert!(Children::read().unwrap().cpu > before.cpu);
    }
}
