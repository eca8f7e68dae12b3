//! Which numbers processes have: those of this process's pid namespace, of the one that /proc shows, and the
//! kernel's.
//!
//! A process has a number in each pid namespace from its own up to the initial one. Callers name processes as
//! their own namespace does. The recorder looks processes up in /proc, which may be of a namespace further up
//! (`unshare --pid --fork` without `--mount-proc`), so events and traces have the numbers of that one.
//! Tracefs has those of the initial namespace, and BPF programs can have any.

use crate::error::RecordError;
use std::fs;

/// By how many levels the pid namespace that /proc shows lies above this process's own; 0 if it is the same.
///
/// Fails where /proc does not show this process at all, as when it is of another container.
pub(crate) fn proc_above() -> Result<u64, RecordError> {
    let status = fs::read_to_string("/proc/self/status").map_err(|source| RecordError::NoProc { source })?;
    Ok(levels(&status).saturating_sub(1))
}

/// How many numbers a process has, from the namespace that its /proc shows down to its own.
fn levels(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    // A kernel without pid namespaces has no such line.
    line.map_or(1, |numbers| numbers.split_ascii_whitespace().count() as u64)
}

/// Whether this process is in the initial pid namespace, so that its numbers are the kernel's.
pub(crate) fn is_initial() -> Result<bool, RecordError> {
    headstart_system::container::is_initial_pid_namespace().map_err(|source| RecordError::NoProc { source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_number_for_each_level() {
        assert_eq!(levels("Name:\tx\nNSpid:\t4711\t12\t1\nNSsid:\t1\n"), 3);
        assert_eq!(levels("NSpid:\t4711\n"), 1);
        assert_eq!(levels("Name:\tx\n"), 1);
    }
}
