//! What this process's children used: CPU time and major faults; and whether the kernel accounts for time
//! blocked.

use std::io;
use std::time::Duration;

/// What the waited-for children of this process used, in all (getrusage(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Children {
    /// Faults that had to wait for I/O.
    pub major_faults: u64,
    /// User and system time.
    pub cpu: Duration,
}

impl Children {
    /// The sums until now; differences between two calls belong to the children waited for between them.
    pub fn read() -> io::Result<Children> {
        let (major_faults, cpu_ns) = crate::sys::children()?;
        Ok(Children {
            major_faults,
            cpu: Duration::from_nanos(cpu_ns),
        })
    }
}

/// Whether the kernel accounts for the time processes are blocked: `task_delayacct` (5.14 and later), off by
/// default. Before, it was always on where built in; then there is no such file.
pub fn delay_accounting() -> bool {
    match std::fs::read_to_string("/proc/sys/kernel/task_delayacct") {
        Ok(text) => text.trim() == "1",
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
