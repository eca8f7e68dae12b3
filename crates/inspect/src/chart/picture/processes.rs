//! Processes as a tree of rows. A boot has thousands, a picture some dozens: those that did most have a row,
//! and what the others did is drawn in that of their nearest ancestor that has one.

use crate::chart::bins::Bins;
use crate::chart::text::{clean, last_component};
use headstart_model::activity::ThreadState;
use headstart_model::{Trace, trace};
use std::cmp::Reverse;

/// The most rows. More are not looked at, and each is 14 pixels high.
const ROWS: usize = 40;

/// Characters of a process' name.
const NAME: usize = 48;

/// Rows of processes.
pub struct Processes {
    /// In the order of the tree, by start.
    pub rows: Vec<Row>,
    /// The row that each process of the trace is drawn in.
    pub row_of: Vec<u32>,
    /// How many processes have no row of their own.
    pub folded: usize,
    /// Whether it is known when they ran.
    pub has_slices: bool,
}

/// A row.
pub struct Row {
    /// Id of its process; 0 for the row of those that have neither a row nor an ancestor with one.
    pub pid: u32,
    /// The last component of its executable.
    pub name: String,
    /// Its executable.
    pub path: String,
    /// How deep in the tree.
    pub depth: u32,
    /// Row of its parent.
    pub parent: Option<u32>,
    /// When it was first seen.
    pub from_ns: u64,
    /// When it was last seen to do anything.
    pub to_ns: u64,
    /// How many other processes are drawn here.
    pub others: u32,
    /// From, to and what, of all threads; asleep is what nothing is said of.
    pub slices: Vec<(u64, u64, ThreadState)>,
    /// When pages were first used.
    pub uses: Vec<u64>,
}

impl Row {
    /// The shares of so many intervals that its threads ran, and waited for a disk. Together they are at most
    /// one: threads may do more than fits, and neither is to hide the other.
    pub fn shares(&self, span_ns: u64, count: usize) -> Vec<(f64, f64)> {
        let (mut run, mut wait) = (Bins::new(span_ns, count), Bins::new(span_ns, count));
        let interval_ns = span_ns as f64 / count as f64;
        for (from, to, state) in &self.slices {
            let length = to.saturating_sub(*from) as f64 / interval_ns;
            match state {
                ThreadState::Running => run.add(*from, *to, length),
                ThreadState::WaitingForDisk => wait.add(*from, *to, length),
                ThreadState::Sleeping => {}
            }
        }
        let sums = run.sums().into_iter().zip(wait.sums());
        sums.map(|(run, wait)| {
            let total = (run + wait).max(1.0);
            (run / total, wait / total)
        })
        .collect()
    }
}

/// The tree, whatever a trace says of parents: each process once, behind its parent.
struct Tree {
    /// Indices, each behind its parent.
    order: Vec<usize>,
    parents: Vec<Option<usize>>,
}

impl Tree {
    fn new(processes: &[trace::Process]) -> Tree {
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); processes.len()];
        let mut roots = Vec::new();
        for (index, process) in processes.iter().enumerate() {
            match process.parent.map(|parent| parent as usize) {
                Some(parent) if parent < processes.len() && parent != index => children[parent].push(index),
                _ => roots.push(index),
            }
        }
        let by_start = |index: &usize| Reverse((processes[*index].start_ns, *index));
        roots.sort_by_key(by_start);
        for of_one in &mut children {
            of_one.sort_by_key(by_start);
        }
        let mut tree = Tree {
            order: Vec::with_capacity(processes.len()),
            parents: vec![None; processes.len()],
        };
        let mut seen = vec![false; processes.len()];
        // Of parents that go in a circle none is reached from a root: the first of them is taken for one.
        let mut next = 0;
        let mut stack = roots;
        loop {
            while let Some(index) = stack.pop() {
                if std::mem::replace(&mut seen[index], true) {
                    continue;
                }
                tree.order.push(index);
                for child in &children[index] {
                    if !seen[*child] {
                        tree.parents[*child] = Some(index);
                        stack.push(*child);
                    }
                }
            }
            match (next..seen.len()).find(|index| !seen[*index]) {
                Some(index) => {
                    next = index + 1;
                    tree.parents[index] = None;
                    stack.push(index);
                }
                None => return tree,
            }
        }
    }
}

impl Processes {
    /// Collects the processes of a trace.
    pub fn from_trace(trace: &Trace) -> Processes {
        let count = trace.processes.len();
        let slices = trace
            .activity
            .as_ref()
            .map_or(&[][..], |activity| &activity.slices);
        let tree = Tree::new(&trace.processes);
        let shown = shown(trace, weights(trace));
        let mut rows: Vec<Row> = Vec::new();
        let mut row_of = vec![u32::MAX; count];
        let mut others = None;
        for &index in &tree.order {
            let parent = tree.parents[index].map(|parent| row_of[parent]);
            if shown[index] {
                row_of[index] = rows.len() as u32;
                let depth = parent.map_or(0, |parent| rows[parent as usize].depth + 1);
                rows.push(Row::new(&trace.processes[index], depth, parent));
                continue;
            }
            let row = parent.unwrap_or_else(|| {
                *others.get_or_insert_with(|| {
                    rows.push(Row::others(trace.processes[index].start_ns));
                    rows.len() as u32 - 1
                })
            });
            row_of[index] = row;
            let row = &mut rows[row as usize];
            row.others += 1;
            row.from_ns = row.from_ns.min(trace.processes[index].start_ns);
        }
        for slice in slices {
            let Some(row) = row_of
                .get(slice.process as usize)
                .map(|row| &mut rows[*row as usize])
            else {
                continue;
            };
            row.to_ns = row.to_ns.max(slice.to_ns);
            if slice.state != ThreadState::Sleeping {
                row.slices.push((slice.from_ns, slice.to_ns, slice.state));
            }
        }
        for used in trace.all_uses() {
            if let Some(row) = row_of.get(used.process as usize) {
                let row = &mut rows[*row as usize];
                row.uses.push(used.time_ns);
                row.to_ns = row.to_ns.max(used.time_ns);
            }
        }
        for lookup in &trace.lookups {
            if let Some(row) = row_of.get(lookup.process as usize) {
                let row = &mut rows[*row as usize];
                row.to_ns = row.to_ns.max(lookup.time_ns);
            }
        }
        Processes {
            folded: shown.iter().filter(|shown| !**shown).count(),
            rows,
            row_of,
            has_slices: !slices.is_empty(),
        }
    }
}

/// How much each process did: time that it ran or waited for a disk, and pages that it used first.
fn weights(trace: &Trace) -> Vec<u64> {
    /// A page from a disk is worth about so much time.
    const PAGE_NS: u64 = 10_000;
    let mut weights = vec![0u64; trace.processes.len()];
    for slice in trace.activity.iter().flat_map(|activity| &activity.slices) {
        if let (Some(weight), true) = (
            weights.get_mut(slice.process as usize),
            slice.state != ThreadState::Sleeping,
        ) {
            *weight = weight.saturating_add(slice.to_ns.saturating_sub(slice.from_ns));
        }
    }
    for used in trace.all_uses() {
        if let Some(weight) = weights.get_mut(used.process as usize) {
            *weight = weight.saturating_add(PAGE_NS.saturating_mul(u64::from(used.pages)));
        }
    }
    weights
}

/// Which processes have rows of their own.
fn shown(trace: &Trace, weights: Vec<u64>) -> Vec<bool> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_unstable_by_key(|index| (Reverse(weights[*index]), trace.processes[*index].start_ns, *index));
    let mut shown = vec![false; weights.len()];
    for index in order.into_iter().take(ROWS) {
        shown[index] = true;
    }
    shown
}

impl Row {
    fn new(process: &trace::Process, depth: u32, parent: Option<u32>) -> Row {
        let path = clean(&process.executable.to_string(), 300);
        let name = match last_component(&path) {
            "" => "?".into(),
            name => clean(name, NAME),
        };
        Row {
            pid: process.pid,
            name,
            path,
            depth,
            parent,
            from_ns: process.start_ns,
            to_ns: process.start_ns,
            others: 0,
            slices: Vec::new(),
            uses: Vec::new(),
        }
    }

    fn others(from_ns: u64) -> Row {
        Row {
            pid: 0,
            name: "others".into(),
            path: String::new(),
            depth: 0,
            parent: None,
            from_ns,
            to_ns: from_ns,
            others: 0,
            slices: Vec::new(),
            uses: Vec::new(),
        }
    }

    /// What stands in the picture.
    pub fn label(&self) -> String {
        match (self.pid, self.others) {
            (0, others) => format!("{others} others"),
            (pid, 0) => format!("{} {pid}", self.name),
            (pid, others) => format!("{} {pid} +{others}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::activity::{Activity, Slice};
    use headstart_model::testing;

    fn process(pid: u32, parent: Option<u32>, start_ns: u64) -> trace::Process {
        trace::Process {
            pid,
            parent,
            start_ns,
            executable: format!("/bin/p{pid}").as_str().into(),
        }
    }

    fn slice(process: u32, from_ns: u64, to_ns: u64) -> Slice {
        Slice {
            from_ns,
            to_ns,
            process,
            thread: process,
            state: ThreadState::Running,
        }
    }

    #[test]
    fn children_stand_behind_their_parents_by_start() {
        let mut trace = testing::trace();
        trace.processes = vec![
            process(1, None, 0),
            process(2, Some(0), 9),
            process(3, Some(1), 20),
            process(4, Some(0), 5),
        ];
        let rows = Processes::from_trace(&trace).rows;
        let shape: Vec<_> = rows.iter().map(|row| (row.pid, row.depth, row.parent)).collect();
        assert_eq!(
            shape,
            [(1, 0, None), (4, 1, Some(0)), (2, 1, Some(0)), (3, 2, Some(2))]
        );
    }

    #[test]
    fn parents_in_a_circle_are_drawn_all_the_same() {
        let mut trace = testing::trace();
        trace.processes = vec![
            process(1, Some(1), 0),
            process(2, Some(0), 0),
            process(3, Some(2), 0),
            process(4, Some(77), 0),
        ];
        let processes = Processes::from_trace(&trace);
        assert_eq!(processes.rows.len(), 4);
        assert!(processes.row_of.iter().all(|row| *row < 4));
    }

    #[test]
    fn what_has_no_row_is_drawn_in_that_of_its_ancestor() {
        let mut trace = testing::trace();
        trace.processes = vec![process(1, None, 0)];
        let mut activity = Activity::default();
        activity.slices.push(slice(0, 0, 1_000_000));
        for i in 1..100u32 {
            trace.processes.push(process(i + 1, Some(0), u64::from(i)));
            let end = u64::from(i) * 1000;
            activity.slices.push(slice(i, 0, end));
        }
        // A stranger of no weight, and one slice of nobody.
        trace.processes.push(process(500, None, 3));
        activity.slices.push(slice(4_000_000_000, 0, 5));
        trace.activity = Some(activity);
        let processes = Processes::from_trace(&trace);
        assert_eq!(processes.rows.len(), ROWS + 1, "the others have one");
        assert_eq!(processes.folded, 101 - ROWS);
        assert_eq!(processes.rows[0].pid, 1);
        assert_eq!(processes.rows[0].others as usize, 100 - ROWS);
        assert_eq!(processes.rows[0].slices.len(), 1 + 100 - ROWS);
        assert_eq!(
            processes.rows[processes.row_of[99] as usize].pid, 100,
            "the heaviest"
        );
        assert_eq!(processes.rows[processes.row_of[100] as usize].label(), "1 others");
    }
}
