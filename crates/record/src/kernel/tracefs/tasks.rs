//! Threads → processes, and whose doings count.
//!
//! The kernel filters by thread. In scope tree it lets pass what roots and their descendants do
//! (`set_event_pid` with the `event-fork` option). In scope system it keeps out the threads of the excluded
//! processes that it was told of (`set_event_notrace_pid`); one that such a process began since then is told
//! apart here: its beginning was not seen, as that of every other thread is, nor was it there when the
//! recording began.

use headstart_model::trace::Scope;
use std::collections::{HashMap, HashSet};
use std::fs;

/// The most threads that are kept: all that Linux has at once by default, and more than any start begins. Of
/// others the process is asked for each time.
const MOST: usize = 1 << 18;

/// The threads seen so far.
#[derive(Debug)]
pub(super) struct Tasks {
    scope: Scope,
    excluded: HashSet<u32>,
    process_of: HashMap<u32, u32>,
}

impl Tasks {
    /// In scope system all threads there are become known; `excluded` are processes.
    pub fn new(scope: Scope, excluded: impl IntoIterator<Item = u32>) -> Tasks {
        let mut tasks = Tasks {
            scope,
            excluded: excluded.into_iter().collect(),
            process_of: HashMap::new(),
        };
        if scope == Scope::System {
            for pid in numbers("/proc") {
                for tid in threads(pid) {
                    tasks.process_of.entry(tid).or_insert(pid);
                }
            }
        }
        tasks
    }

    /// A process whose doings count.
    pub fn add_root(&mut self, pid: u32) {
        self.process_of.insert(pid, pid);
    }

    /// The process of a thread whose doings count; `None` if they do not.
    pub fn process(&mut self, tid: u32) -> Option<u32> {
        let pid = match self.process_of.get(&tid) {
            Some(pid) => *pid,
            None => {
                let pid = group_of(tid).or((self.scope == Scope::Tree).then_some(tid))?;
                self.note(tid, pid);
                pid
            }
        };
        // The idle task (0) uses no files; what is seen of it is the first event of an interrupted context.
        (pid != 0 && !self.excluded.contains(&pid)).then_some(pid)
    }

    /// `parent` began `tid`; the processes of both if it is a new process.
    pub fn fork(&mut self, parent: u32, tid: u32, thread: bool) -> Option<(u32, u32)> {
        let parent = self
            .process_of
            .get(&parent)
            .copied()
            .or_else(|| group_of(parent))
            .unwrap_or(parent);
        self.note(tid, if thread { parent } else { tid });
        (!thread && !self.excluded.contains(&parent)).then_some((parent, tid))
    }

    fn note(&mut self, tid: u32, pid: u32) {
        if self.process_of.len() < MOST || self.process_of.contains_key(&tid) {
            self.process_of.insert(tid, pid);
        }
    }

    /// Threads of the excluded processes that the kernel has not been told of.
    pub fn newly_excluded(&self, told: &mut HashSet<u32>) -> Vec<u32> {
        let threads = self.excluded.iter().flat_map(|pid| threads(*pid));
        threads.filter(|tid| told.insert(*tid)).collect()
    }
}

/// The threads of a process.
fn threads(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task"))
}

/// The names in a directory that are numbers; none if it cannot be read (a process that ended).
fn numbers(path: &str) -> Vec<u32> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The process of a thread that lives.
fn group_of(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No thread has so high a number: the kernel's limit is 2^22.
    const NOBODY: u32 = 1 << 30;

    #[test]
    fn threads_belong_to_the_process_that_began_them() {
        let mut tasks = Tasks::new(Scope::Tree, []);
        tasks.add_root(NOBODY);
        assert_eq!(tasks.fork(NOBODY, NOBODY + 1, true), None);
        assert_eq!(
            tasks.fork(NOBODY + 1, NOBODY + 2, false),
            Some((NOBODY, NOBODY + 2))
        );
        assert_eq!(tasks.process(NOBODY + 1), Some(NOBODY));
        assert_eq!(tasks.process(NOBODY + 2), Some(NOBODY + 2));
        assert_eq!(tasks.process(0), None);
    }

    #[test]
    fn in_scope_system_own_threads_never_count_even_unseen_ones() {
        let own = std::process::id();
        let mut tasks = Tasks::new(Scope::System, [own]);
        assert_eq!(tasks.process(own), None);
        assert_eq!(tasks.process(1), Some(1));
        assert_eq!(
            tasks.process(NOBODY),
            None,
            "ended, and began unseen: a thread of an excluded process"
        );
        let late = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get() as u32);
        assert_eq!(tasks.process(late.join().unwrap()), None);
        assert_eq!(tasks.fork(own, NOBODY, false), None);
        assert_eq!(
            tasks.process(NOBODY),
            Some(NOBODY),
            "the command it began is not itself"
        );
    }

    #[test]
    fn the_kernel_is_told_of_each_thread_once() {
        let tasks = Tasks::new(Scope::System, [std::process::id()]);
        let mut told = HashSet::new();
        assert!(tasks.newly_excluded(&mut told).contains(&std::process::id()));
        assert!(!tasks.newly_excluded(&mut told).contains(&std::process::id()));
    }
}
