//! The processes seen, and what they run.

use headstart_model::FilePath;
use headstart_model::trace::Process;
use std::collections::{HashMap, HashSet};

/// Processes in the order they were first seen.
#[derive(Default)]
pub(super) struct Processes {
    list: Vec<Process>,
    /// The latest process with an id: ids are used again.
    by_pid: HashMap<u32, u32>,
    living: HashSet<u32>,
}

impl Processes {
    /// Index of the process that has this id now; one not seen before is looked up in /proc.
    pub(super) fn index(&mut self, pid: u32, time_ns: u64) -> u32 {
        if let Some(index) = self.by_pid.get(&pid) {
            return *index;
        }
        let executable = executable_of(pid);
        let parent = parent_of(pid).and_then(|parent| self.by_pid.get(&parent).copied());
        self.add(Process {
            pid,
            parent,
            start_ns: time_ns,
            executable,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn fork(&mut self, parent: u32, pid: u32, time_ns: u64) {
        let parent = self.index(parent, time_ns);
        let executable = self.list[parent as usize].executable.clone();
        self.add(Process {
            pid,
            parent: Some(parent),
            start_ns: time_ns,
            executable,
        });
    }

    pub(super) fn exec(&mut self, pid: u32, executable: Option<FilePath>, time_ns: u64) {
        let index = self.index(pid, time_ns);
        if let Some(executable) = executable {
            self.list[index as usize].executable = executable;
        }
    }

    pub(super) fn exit(&mut self, pid: u32) {
        self.living.remove(&pid);
    }

    pub(super) fn living(&self) -> impl Iterator<Item = u32> {
        self.living.iter().copied()
    }

    pub(super) fn into_list(self) -> Vec<Process> {
        self.list
    }

    fn add(&mut self, process: Process) -> u32 {
        // A trace of four thousand million processes does not fit memory.
        let index = self.list.len() as u32;
        self.by_pid.insert(process.pid, index);
        self.living.insert(process.pid);
        self.list.push(process);
        index
    }
}

/// The executable of a living process; empty for a kernel thread and for a process that is gone.
fn executable_of(pid: u32) -> FilePath {
    std::fs::read_link(format!("/proc/{pid}/exe"))
        .map(|path| path.as_path().into())
        .unwrap_or_default()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; after it come state and parent.
    stat[stat.rfind(')')? + 1..]
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_runs_what_its_parent_runs_until_it_execs() {
        let mut processes = Processes::default();
        let me = std::process::id();
        processes.index(me, 5);
        processes.fork(me, 4_000_001, 7);
        processes.exec(4_000_001, Some("/bin/true".into()), 8);
        processes.fork(4_000_001, 4_000_002, 9);
        processes.exit(4_000_001);
        // The id is used again.
        processes.fork(me, 4_000_001, 10);
        let mut living: Vec<u32> = processes.living().collect();
        living.sort_unstable();
        assert_eq!(living, {
            let mut all = vec![me, 4_000_001, 4_000_002];
            all.sort_unstable();
            all
        });
        let list = processes.into_list();
        let myself: FilePath = std::env::current_exe().unwrap().as_path().into();
        let seen: Vec<_> = list
            .iter()
            .map(|p| (p.parent, p.start_ns, p.executable.clone()))
            .collect();
        assert_eq!(
            seen,
            [
                (None, 5, myself.clone()),
                (Some(0), 7, "/bin/true".into()),
                (Some(1), 9, "/bin/true".into()),
                (Some(0), 10, myself),
            ]
        );
    }
}
