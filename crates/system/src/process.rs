//! What the kernel tells of a process in one line: parent, CPU time, beginning, time blocked on I/O. Every
//! reader of `/proc/PID/stat` is here, for its second field may hold anything.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

/// So many processes of a start, and threads of all of them, are looked at: whoever looks has others to
/// serve.
const PROCESSES: usize = 512;
const THREADS: usize = 2048;

/// More than any line has: 52 numbers of at most 20 digits, and a name of at most 64 bytes.
const LONGEST: u64 = 4096;

/// A process's line of proc_pid_stat(5), as far as somebody needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessStat {
    /// Whether it sleeps where no signal wakes it (state D), as who waits for a device does.
    pub is_blocked: bool,
    /// The parent's id; 0 if that is outside this pid namespace.
    pub parent: u32,
    /// CPU time in user mode, clock ticks.
    pub user_ticks: u64,
    /// CPU time in the kernel, clock ticks.
    pub system_ticks: u64,
    /// User time of the children that it waited for, clock ticks.
    pub children_user_ticks: u64,
    /// System time of the children that it waited for, clock ticks.
    pub children_system_ticks: u64,
    /// When it began, clock ticks since the machine did.
    pub start_ticks: u64,
    /// Where its arguments begin in its memory; 0 to who may not know it.
    pub arguments: u64,
    /// Where they end.
    pub arguments_end: u64,
}

impl ProcessStat {
    /// Reads the state of a process by its id in this pid namespace; `None` if there is none any more.
    pub fn for_process(pid: u32) -> Option<ProcessStat> {
        ProcessStat::read(&format!("/proc/{pid}/stat"))
    }

    /// Of this process.
    pub fn own() -> Option<ProcessStat> {
        ProcessStat::read("/proc/self/stat")
    }

    /// Whether a thread of these processes is blocked, as far as the first [`THREADS`] of all tell, of the
    /// first [`PROCESSES`].
    pub fn any_is_blocked(processes: impl Iterator<Item = u32>) -> bool {
        let threads = |pid| {
            std::fs::read_dir(format!("/proc/{pid}/task"))
                .into_iter()
                .flatten()
        };
        processes
            .take(PROCESSES)
            .flat_map(threads)
            .take(THREADS)
            .flatten()
            .filter_map(|thread| ProcessStat::read(&format!("{}/stat", thread.path().display())))
            .any(|thread| thread.is_blocked)
    }

    fn read(path: &str) -> Option<ProcessStat> {
        // Grown from nothing it would be read in five pieces.
        let mut line = Vec::with_capacity(1024);
        let file = File::open(path).ok()?;
        file.take(LONGEST).read_to_end(&mut line).ok()?;
        ProcessStat::parse(&line)
    }

    /// Reads a line. The name in the second field may hold blanks, parentheses and line ends: what counts
    /// begins behind the last `)`.
    pub fn parse(line: &[u8]) -> Option<ProcessStat> {
        let after_name = line.iter().rposition(|byte| *byte == b')')? + 1;
        let text = std::str::from_utf8(line.get(after_name..)?).ok()?;
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        // The manual counts from 1, and the third is the first behind the name.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        // Those of children are signed in the kernel.
        let signed = |field: usize| Some(fields.get(field - 3)?.parse::<i64>().ok()?.max(0) as u64);
        Some(ProcessStat {
            is_blocked: *fields.first()? == "D",
            parent: u32::try_from(number(4)?).ok()?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            children_user_ticks: signed(16)?,
            children_system_ticks: signed(17)?,
            start_ticks: number(22)?,
            arguments: number(48).unwrap_or(0),
            arguments_end: number(49).unwrap_or(0),
        })
    }

    /// Its own CPU time, clock ticks.
    pub fn own_ticks(&self) -> u64 {
        self.user_ticks.saturating_add(self.system_ticks)
    }

    /// CPU time of the children that it waited for, clock ticks.
    pub fn children_ticks(&self) -> u64 {
        self.children_user_ticks
            .saturating_add(self.children_system_ticks)
    }
}

/// How many processors this process may run on; `None` where there are more than the C library's 1024. A
/// control group's quota is not asked for, as `std::thread::available_parallelism` does: that would be
/// several files to read.
pub fn processors() -> Option<u32> {
    Some(rustix::thread::sched_getaffinity(None).ok()?.count())
}

/// A number of clock ticks as a time: 10 ms each on nearly every machine.
pub fn ticks(ticks: u64) -> Duration {
    let nanoseconds = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Duration::from_nanos(ticks.saturating_mul(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_fields_are_found_behind_an_odd_name() {
        let fields: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let line = format!("7 (a) S (b\n) c) S {}\n", fields.join(" "));
        let expected = ProcessStat {
            is_blocked: false,
            parent: 4,
            user_ticks: 14,
            system_ticks: 15,
            children_user_ticks: 16,
            children_system_ticks: 17,
            start_ticks: 22,
            arguments: 48,
            arguments_end: 49,
        };
        assert_eq!(ProcessStat::parse(line.as_bytes()), Some(expected));
        assert_eq!((expected.own_ticks(), expected.children_ticks()), (29, 33));
        let blocked = ProcessStat::parse(line.replace(") S", ") D").as_bytes());
        assert!(blocked.unwrap().is_blocked);
        for cut in ["", "7 (a) S 1 2", "7 (a", "7 (a) S x"] {
            assert_eq!(ProcessStat::parse(cut.as_bytes()), None, "{cut}");
        }
    }

    #[test]
    fn this_process_has_a_parent_and_no_process_has_this_number() {
        let own = ProcessStat::own().unwrap();
        assert_eq!(own.parent, std::os::unix::process::parent_id());
        assert!(own.start_ticks > 0);
        assert_eq!(
            ProcessStat::for_process(std::process::id()).unwrap().start_ticks,
            own.start_ticks
        );
        // Above the highest pid_max.
        assert_eq!(ProcessStat::for_process(1 << 23), None);
    }

    #[test]
    fn who_is_woken_by_no_signal_is_blocked() {
        let eventually = |pid, blocked| {
            let begun = std::time::Instant::now();
            while ProcessStat::any_is_blocked([pid].into_iter()) != blocked {
                assert!(begun.elapsed() < Duration::from_secs(60), "never {blocked}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        // SAFETY: the children, copies of this process with this thread alone, wait and end; they take no
        // lock and no memory.
        let child = unsafe {
            let begin = |how: libc::c_int| {
                libc::syscall(libc::SYS_clone, how | libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t
            };
            let child = begin(0);
            if child == 0 {
                // Who begins a process so goes on when that has ended.
                if begin(libc::CLONE_VFORK) == 0 {
                    libc::usleep(500_000);
                    libc::_exit(0);
                }
                loop {
                    libc::pause();
                }
            }
            child
        };
        assert!(child > 0);
        eventually(child as u32, true);
        eventually(child as u32, false);
        // SAFETY: nothing of this process is touched by either.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }

    #[test]
    fn ticks_are_a_time() {
        assert_eq!(
            ticks(rustix::param::clock_ticks_per_second()),
            Duration::from_secs(1)
        );
    }
}
