//! The processes that this one started, directly or around, as far as they live.

use headstart_system::process::ProcessStat;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// So many are looked at.
const MOST: usize = 512;

/// What the processes of a start have done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// CPU time, clock ticks.
    pub ticks: u64,
    /// Bytes read from devices.
    pub read_bytes: u64,
    /// Whether one waits for a device.
    pub is_blocked: bool,
}

/// The descendants of this process that execute other files than this one.
pub fn descendants(but: &Path) -> Vec<u32> {
    let executes = |pid: &u32| executed(*pid).is_some_and(|executed| executed != but);
    all().into_iter().filter(executes).collect()
}

/// Whether a descendant of this process executes this file.
pub fn any_executes(file: &Path) -> bool {
    all()
        .into_iter()
        .any(|pid| executed(pid).is_some_and(|executed| executed == file))
}

fn executed(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

fn all() -> HashSet<u32> {
    let mut found = HashSet::new();
    let mut due = vec![std::process::id()];
    while let Some(process) = due.pop() {
        for child in children(process) {
            if found.len() < MOST && found.insert(child) {
                due.push(child);
            }
        }
    }
    found
}

/// The children of all threads of a process.
fn children(process: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten();
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect()
}

/// What these processes have done so far.
pub fn activity(processes: &[u32]) -> Activity {
    let mut activity = Activity {
        is_blocked: ProcessStat::any_is_blocked(processes.iter().copied()),
        ..Activity::default()
    };
    for process in processes {
        let stat = ProcessStat::for_process(*process).unwrap_or_default();
        activity.ticks += stat.own_ticks() + stat.children_ticks();
        let io = fs::read_to_string(format!("/proc/{process}/io")).unwrap_or_default();
        let read = io.lines().find_map(|line| line.strip_prefix("read_bytes: "));
        activity.read_bytes += read.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0);
    }
    activity
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn processes_are_found_below_others_and_what_they_compute_is_counted() {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", "sleep 60 & while :; do :; done"])
            .spawn()
            .unwrap();
        let own = Path::new("/nothing");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        let found = loop {
            let found = descendants(own);
            let ticks = activity(&found).ticks;
            if found.contains(&shell.id()) && ticks > 5 && found.len() >= 2 {
                break found;
            }
            assert!(std::time::Instant::now() < until, "{found:?}, {ticks} ticks");
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        let shells = fs::canonicalize("/bin/sh").unwrap();
        assert!(!descendants(&shells).contains(&shell.id()));
        for process in found {
            headstart_system::launch::send(process, 9);
        }
        shell.wait().unwrap();
    }
}
