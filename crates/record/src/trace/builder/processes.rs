//! The processes seen, and what they run.

use crate::limits::{EXECUTABLE_BYTES, EXECUTABLES, PROCESSES, RUN_BYTES};
use headstart_model::FilePath;
use headstart_model::trace::Process;
use std::collections::{HashMap, HashSet};

/// Processes in the order they were first seen.
///
/// There is no end to processes that a user can start. Beyond [`PROCESSES`] one counts as its parent: which
/// process used a page is for people to read.
#[derive(Default)]
pub(super) struct Processes {
    list: Vec<Process>,
    /// The latest process with an id: ids are used again.
    by_pid: HashMap<u32, u32>,
    living: HashSet<u32>,
    executables: Executables,
}

impl Processes {
    /// Index of the process that has this id now; one not seen before is looked up in /proc.
    pub(super) fn index(&mut self, pid: u32, time_ns: u64) -> u32 {
        if let Some(index) = self.by_pid.get(&pid) {
            return *index;
        }
        if self.list.len() >= PROCESSES {
            return 0;
        }
        let executable = executable_of(pid);
        let parent = parent_of(pid).and_then(|parent| self.by_pid.get(&parent).copied());
        self.add(pid, parent, time_ns, executable)
    }

    /// A process belongs to those that live, also if it was seen before and was another's in between.
    pub(super) fn start(&mut self, pid: u32, time_ns: u64) {
        let index = self.index(pid, time_ns) as usize;
        if self.list[index].pid == pid {
            self.living.insert(pid);
        }
    }

    /// About how much memory they take, bytes.
    pub(super) fn bytes(&self) -> usize {
        self.list.len() * 96 + self.by_pid.len() * 24 + self.living.len() * 16 + self.executables.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn fork(&mut self, parent: u32, pid: u32, time_ns: u64) {
        let parent = self.index(parent, time_ns);
        if self.list.len() < PROCESSES {
            let executable = self.list[parent as usize].executable.clone();
            self.add(pid, Some(parent), time_ns, executable);
        } else if self.living.len() < PROCESSES {
            self.by_pid.insert(pid, parent);
            self.living.insert(pid);
        }
    }

    pub(super) fn exec(&mut self, pid: u32, executable: Option<FilePath>, time_ns: u64) {
        let index = self.index(pid, time_ns) as usize;
        // One that counts as its parent has another number.
        if self.list[index].pid == pid {
            // Its first thread may have been seen to end: another one that executes takes its place.
            self.living.insert(pid);
            if let Some(executable) = executable {
                self.list[index].executable = self.executables.keep(executable);
            }
        }
    }

    pub(super) fn exit(&mut self, pid: u32) {
        self.living.remove(&pid);
        // What its threads did on other processors may come later; where there is room it is still theirs.
        if self.list.len() >= PROCESSES {
            self.by_pid.remove(&pid);
        }
    }

    pub(super) fn living(&self) -> impl Iterator<Item = u32> {
        self.living.iter().copied()
    }

    /// Leaves out executables whose names are to be kept nowhere.
    pub(super) fn forget(&mut self, mut is_secret: impl FnMut(&[u8]) -> bool) {
        for process in &mut self.list {
            if is_secret(process.executable.as_bytes()) {
                process.executable = FilePath::default();
            }
        }
    }

    pub(super) fn into_list(self) -> Vec<Process> {
        self.list
    }

    fn add(&mut self, pid: u32, parent: Option<u32>, start_ns: u64, executable: FilePath) -> u32 {
        let index = self.list.len() as u32;
        let executable = self.executables.keep(executable);
        self.by_pid.insert(pid, index);
        self.living.insert(pid);
        self.list.push(Process {
            pid,
            parent,
            start_ns,
            executable,
        });
        index
    }
}

/// The paths of executables, as many as a trace takes.
#[derive(Default)]
struct Executables {
    all: HashSet<FilePath>,
    bytes: usize,
    /// Bytes, each as often as it was kept.
    run: usize,
}

impl Executables {
    /// The path, or the empty one of an unknown executable where there is no room for it or it names nothing.
    fn keep(&mut self, path: FilePath) -> FilePath {
        let length = path.as_bytes().len();
        if path.check().is_err() || self.run + length > RUN_BYTES {
            return FilePath::default();
        }
        if !self.all.contains(&path) {
            if self.all.len() >= EXECUTABLES || self.bytes + length > EXECUTABLE_BYTES {
                return FilePath::default();
            }
            self.bytes += length;
            self.all.insert(path.clone());
        }
        self.run += length;
        // One text for all who have it.
        self.all.get(&path).cloned().unwrap_or(path)
    }
}

/// The executable of a living process; empty for a kernel thread and for a process that is gone.
fn executable_of(pid: u32) -> FilePath {
    std::fs::read_link(format!("/proc/{pid}/exe"))
        .map(|path| path.as_path().into())
        .unwrap_or_default()
}

fn parent_of(pid: u32) -> Option<u32> {
    Some(crate::cpu::Stat::read(pid)?.parent)
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
            let mut pids = vec![me, 4_000_001, 4_000_002];
            pids.sort_unstable();
            pids
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

    #[test]
    fn processes_without_end_count_as_their_parents() {
        let mut processes = Processes::default();
        let first = 5_000_000;
        processes.fork(first, first + 1, 0);
        let long = FilePath::from(format!("/{}", "x".repeat(4000)).as_str());
        let last = first + 2 * PROCESSES as u32;
        for pid in first + 2..last {
            processes.fork(pid - 1, pid, 1);
            processes.exec(pid, Some(long.clone()), 1);
            processes.exit(pid - 1);
        }
        let living: HashSet<u32> = processes.living().collect();
        assert_eq!(living, HashSet::from([first, last - 1]));
        assert!(processes.by_pid.len() <= PROCESSES + 1);
        let end = processes.index(last - 1, 2);
        assert_eq!(end as usize, PROCESSES - 1, "the last that there was room for");
        let list = processes.into_list();
        assert_eq!(list.len(), PROCESSES);
        let bytes: usize = list.iter().map(|p| p.executable.as_bytes().len()).sum();
        assert!(bytes <= RUN_BYTES && bytes > RUN_BYTES / 2);
    }
}
