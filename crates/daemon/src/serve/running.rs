//! Which programs run: another instance finds in memory what the first one has read.

use headstart_model::Key;
use headstart_system::process::ProcessStat;
use std::collections::HashMap;

/// So many programs are remembered, and so many processes of each.
const PROGRAMS: usize = 1024;
const PROCESSES: usize = 8;

/// A process, by its number and when it began, clock ticks.
type Process = (u32, u64);

/// The processes of programs whose starts have ended and that may still run.
#[derive(Default)]
pub(super) struct Running(HashMap<Key, Vec<Process>>);

impl Running {
    /// These processes of a program live on after its start.
    pub(super) fn add(&mut self, key: &Key, living: &[u32]) {
        let processes: Vec<Process> = living
            .iter()
            .take(PROCESSES)
            .filter_map(|pid| Some((*pid, ProcessStat::for_process(*pid)?.start_ticks)))
            .collect();
        if processes.is_empty() {
            return;
        }
        if self.0.len() >= PROGRAMS {
            self.0.retain(|_, processes| processes.iter().any(lives));
        }
        if self.0.len() < PROGRAMS {
            self.0.insert(key.clone(), processes);
        }
    }

    /// Whether one of them still runs.
    pub(super) fn runs(&mut self, key: &Key) -> bool {
        let Some(processes) = self.0.get(key) else {
            return false;
        };
        let runs = processes.iter().any(lives);
        if !runs {
            self.0.remove(key);
        }
        runs
    }
}

fn lives((pid, began): &Process) -> bool {
    ProcessStat::for_process(*pid).is_some_and(|stat| stat.start_ticks == *began)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_runs_as_long_as_one_of_its_processes() {
        let key = Key::new("/usr/bin/sleep").unwrap();
        let mut running = Running::default();
        assert!(!running.runs(&key));
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        running.add(&key, &[child.id(), u32::MAX]);
        assert!(running.runs(&key));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!running.runs(&key));
        running.add(&key, &[u32::MAX]);
        assert!(running.0.is_empty());
    }
}
