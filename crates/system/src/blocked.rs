//! What this process's children used of processors, and whether the kernel accounts for time blocked.

use std::time::Duration;

/// User and system time of the waited-for children of this process (getrusage(2)), in all until now: a
/// difference between two calls belongs to the children waited for between them. 0 where that is not told.
pub fn children_cpu() -> Duration {
    Duration::from_nanos(crate::sys::children_cpu_ns().unwrap_or(0))
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
        let before = children_cpu();
        std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done"])
            .status()
            .unwrap();
        assert!(children_cpu() > before);
    }
}
