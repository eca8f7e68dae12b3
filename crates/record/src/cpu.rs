//! CPU time of recorded processes, from /proc.

use crate::namespace;
use headstart_model::sort::Sort;
use headstart_system::process::ProcessStat;
use std::collections::HashMap;
use std::fs;

/// Ticks a second of /proc's times: USER_HZ is 100 on every architecture headstart runs on.
const TICKS: f64 = 100.0;

/// CPU time spent so far. It never goes back.
pub(crate) struct Cpu {
    whose: CpuScope,
    ticks: u64,
}

enum CpuScope {
    Processes(Tree),
    /// Everybody's but these processes'.
    Machine(Vec<u32>),
    /// The same in a container, where /proc/stat tells of the whole machine all the same.
    Container(Vec<u32>),
}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu::of_processes()
    }
}

impl Cpu {
    /// Of the processes that [`sample`](Cpu::sample) is told of.
    pub(crate) fn of_processes() -> Cpu {
        Cpu {
            whose: CpuScope::Processes(Tree::default()),
            ticks: 0,
        }
    }

    /// Of all processes that /proc shows but the `excluded`.
    pub(crate) fn of_everybody(excluded: Vec<u32>) -> Cpu {
        let whose = match namespace::is_initial() {
            Ok(false) => CpuScope::Container(excluded),
            _ => CpuScope::Machine(excluded),
        };
        Cpu { whose, ticks: 0 }
    }

    /// Whether it is everybody's: then it can be looked up at any time, and nobody's is lost meanwhile.
    pub(crate) fn is_everybodys(&self) -> bool {
        !matches!(self.whose, CpuScope::Processes(_))
    }

    /// Whether it is all of the machine's, and not that of a container.
    pub(crate) fn is_of_machine(&self) -> bool {
        matches!(self.whose, CpuScope::Machine(_))
    }

    /// Samples the CPU time; `living` are the recorded processes that live.
    pub(crate) fn sample(&mut self, living: impl Iterator<Item = u32>) {
        let (all, excluded) = match &mut self.whose {
            CpuScope::Processes(tree) => (Some(tree.sample(living, Stat::read)), &[][..]),
            CpuScope::Machine(excluded) => (of_machine(), &excluded[..]),
            CpuScope::Container(excluded) => (total_ticks(), &excluded[..]),
        };
        let of_excluded = excluded.iter().filter_map(|pid| Stat::read(*pid));
        let of_excluded = of_excluded.map(|stat| stat.ticks).sum();
        let now = all.unwrap_or(0).saturating_sub(of_excluded);
        self.ticks = self.ticks.max(now);
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.ticks as f64 / TICKS
    }
}

/// What /proc says of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub parent: u32,
    /// When it began, ticks since the machine did: tells it from another of the same number.
    began: u64,
    /// Its user and system time, and that of its children that were waited for, ticks.
    ticks: u64,
}

impl Stat {
    /// Reads the times of a process that was not waited for yet.
    pub(crate) fn read(pid: u32) -> Option<Stat> {
        let stat = ProcessStat::for_process(pid)?;
        Some(Stat {
            parent: stat.parent,
            began: stat.start_ticks,
            ticks: stat.own_ticks() + stat.children_ticks(),
        })
    }
}

/// So many processes of a start are looked at at a time; more come in their turn, and who starts so many is
/// busy anyway.
const MOST: usize = 1024;

/// So many generations that have gone at once are looked through for one that is still there.
const MOST_ABOVE: usize = 64;

/// Processes that come and go, and the sum of their times.
///
/// A process that was waited for is part of its parent's time from then on: as long as it can be seen its own
/// counts, and then its parent's. Only what nobody of the tree waits for, a daemon's, is kept when it goes.
#[derive(Default)]
struct Tree {
    seen: HashMap<u32, Stat>,
    kept: u64,
}

impl Tree {
    /// The sum; `of` says what can be seen of a process, also of one that has ended, until it is waited for.
    ///
    /// Parents are looked at before their children: a child that is waited for in between is then missed
    /// until the next look. The other way round it would count twice, as itself and as a part of its parent.
    fn sample(&mut self, living: impl Iterator<Item = u32>, of: impl Fn(u32) -> Option<Stat>) -> u64 {
        let mut gone: HashMap<u32, Stat> = HashMap::new();
        let mut before: Vec<(u32, Stat)> = self.seen.drain().collect();
        before.sort_small_by_key(|(pid, stat)| (stat.began, *pid));
        for (pid, before) in before {
            match of(pid).filter(|now| now.began == before.began) {
                Some(now) => self.seen.insert(pid, now),
                None => gone.insert(pid, before),
            };
        }
        let mut new: Vec<u32> = living
            .filter(|pid| !self.seen.contains_key(pid))
            .take(MOST - self.seen.len().min(MOST))
            .collect();
        new.sort_unstable();
        for pid in new {
            self.seen.extend(of(pid).map(|stat| (pid, stat)));
        }
        for stat in gone.values() {
            let mut parent = stat.parent;
            // Whoever waited for it may be gone too; then that one's parent has both.
            let mut steps = MOST_ABOVE;
            while let Some(above) = gone.get(&parent).filter(|_| steps > 0) {
                parent = above.parent;
                steps -= 1;
            }
            if !self.seen.contains_key(&parent) {
                self.kept += stat.ticks;
            }
        }
        self.kept + self.seen.values().map(|stat| stat.ticks).sum::<u64>()
    }
}

/// Time of all processes that are here now and of those that they waited for.
fn total_ticks() -> Option<u64> {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        ticks += pid.and_then(Stat::read).map_or(0, |stat| stat.ticks);
    }
    Some(ticks)
}

/// Time the machine's processors were busy.
fn of_machine() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    // `cpu` and two spaces.
    let fields = stat.split('\n').next()?.split(' ').skip(2);
    // user nice system idle iowait irq softirq steal …: all but idle, iowait and steal.
    let busy = fields.enumerate().filter(|(i, _)| matches!(i, 0 | 1 | 2 | 5 | 6));
    Some(busy.filter_map(|(_, ticks)| ticks.parse::<u64>().ok()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(parent: u32, ticks: u64) -> Option<Stat> {
        Some(Stat {
            parent,
            began: 1,
            ticks,
        })
    }

    /// Processes as they are seen at one look, the living ones of them.
    fn sample(tree: &mut Tree, all: &[(u32, Option<Stat>)], living: &[u32]) -> u64 {
        let stat_of = |pid| all.iter().find(|(p, _)| *p == pid)?.1;
        tree.sample(living.iter().copied(), stat_of)
    }

    #[test]
    fn a_child_that_was_waited_for_counts_once() {
        let mut tree = Tree::default();
        assert_eq!(
            sample(&mut tree, &[(10, stat(1, 5)), (11, stat(10, 30))], &[10, 11]),
            35
        );
        // Ended, and not waited for yet.
        assert_eq!(
            sample(&mut tree, &[(10, stat(1, 5)), (11, stat(10, 40))], &[10]),
            45
        );
        assert_eq!(sample(&mut tree, &[(10, stat(1, 45))], &[10]), 45, "waited for");
    }

    #[test]
    fn a_family_that_is_gone_at_once_counts_once() {
        let mut tree = Tree::default();
        let stats = [(10, stat(1, 5)), (11, stat(10, 7)), (12, stat(11, 30))];
        assert_eq!(sample(&mut tree, &stats, &[10, 11, 12]), 42);
        assert_eq!(sample(&mut tree, &[(10, stat(1, 42))], &[10]), 42);
    }

    #[test]
    fn what_nobody_of_the_tree_waits_for_still_counts() {
        let mut tree = Tree::default();
        sample(&mut tree, &[(10, stat(1, 5)), (11, stat(1, 30))], &[10, 11]);
        // A daemon, whose parent is not recorded; then its number is another's.
        assert_eq!(sample(&mut tree, &[(10, stat(1, 6))], &[10]), 36);
        let another = Stat {
            parent: 10,
            began: 2,
            ticks: 1,
        };
        assert_eq!(
            sample(&mut tree, &[(10, stat(1, 6)), (11, Some(another))], &[10, 11]),
            37
        );
        assert_eq!(sample(&mut tree, &[], &[]), 37, "the root");
    }

    #[test]
    fn what_is_waited_for_amid_a_look_never_counts_twice() {
        use std::cell::Cell;
        for waited_after in 0..4 {
            // A parent and its children 11, 12 and 13, of which it waits for all after so many have been
            // looked at.
            let left = Cell::new(None);
            let stat_of = |pid: u32| {
                let waited = left.get() == Some(0);
                left.set(left.get().map(|left: u32| left.saturating_sub(1)));
                match pid {
                    10 => stat(1, if waited { 95 } else { 5 }),
                    _ if waited => None,
                    _ => stat(10, 30),
                }
            };
            let mut tree = Tree::default();
            assert_eq!(tree.sample(10..14, stat_of), 95);
            left.set(Some(waited_after));
            let amid = tree.sample([10].into_iter(), stat_of);
            assert!(amid <= 95, "{amid} of 95, waited for after {waited_after} looks");
            assert_eq!(tree.sample([10].into_iter(), stat_of), 95);
        }
    }

    #[test]
    fn cpu_time_of_this_process_is_found() {
        let me = std::process::id();
        let before = Stat::read(me).unwrap();
        while Stat::read(me).unwrap().ticks < before.ticks + 3 {
            std::hint::black_box(0);
        }
        assert_eq!(Stat::read(me).unwrap().began, before.began);
        assert_eq!(before.parent, std::os::unix::process::parent_id());
        assert!(of_machine().unwrap() > 0 && total_ticks().unwrap() > 0);
    }

    #[test]
    fn cpu_time_of_a_real_child_counts_once() {
        // Its child spends 0.3 s or more, then it waits for that, says so, and waits itself.
        let script = "sh -c 'while [ $(cut -d\" \" -f14 /proc/$$/stat) -lt 30 ]; do i=0; \
                      while [ $i -lt 9999 ]; do i=$((i+1)); done; done' & wait; echo; read done";
        let mut parent = std::process::Command::new("sh")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let pid = parent.id();
        let mut cpu = Cpu::of_processes();
        let children = || {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
            let children: Vec<u32> = text.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
            children
        };
        // Without its child it is waited for.
        let mut most = 0;
        while most == 0 || !children().is_empty() {
            let child = children();
            most = most.max(
                child
                    .iter()
                    .filter_map(|pid| Stat::read(*pid))
                    .map(|s| s.ticks)
                    .max()
                    .unwrap_or(0),
            );
            cpu.sample([pid].into_iter().chain(child));
        }
        cpu.sample([pid].into_iter());
        let spent = Stat::read(pid).unwrap().ticks;
        drop(parent.stdin.take());
        parent.wait().unwrap();
        assert!(spent >= 25, "{spent}");
        // Each of four times is cut to ticks when it is added up.
        assert!(cpu.ticks.abs_diff(spent) <= 4, "{} counted of {spent}", cpu.ticks);
    }
}
