//! Bounds that a background process sets itself, so that it is the one that fails when something asks too
//! much of it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::time::Duration;

/// Memory of a process that records, learns or plans, bytes. The largest trace, profile and plan that their
/// formats allow are read and made within it; with what the kernel keeps for a recording (ring, maps) it
/// stays below 256 MiB.
pub const MEMORY: u64 = 192 << 20;

/// Bounds the private memory of this process: heap, stacks of its threads and other private writable
/// mappings, not the files and ring buffers that it maps (`RLIMIT_DATA` of setrlimit(2), since Linux 4.7).
/// More than that is not given: an allocation that fails aborts this process, and no other.
///
/// What it executes afterwards inherits the bound, so this is for processes that execute nothing of others. A
/// lower bound that is there already stays.
pub fn bound_memory(bytes: u64) -> io::Result<()> {
    let now = getrlimit(Resource::Data);
    let lower = |limit: Option<u64>| Some(limit.map_or(bytes, |limit| limit.min(bytes)));
    let bound = Rlimit {
        current: lower(now.current),
        maximum: lower(now.maximum),
    };
    Ok(setrlimit(Resource::Data, bound)?)
}

/// This process leaves no core when it is killed.
pub fn without_core() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
}

/// When memory runs out this process is killed before all others (proc_pid_oom_score_adj(5)).
pub fn goes_first() -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "1000")
}

/// So many tasks are more than a command needs whose limit was made for it. Where fewer are left there are
/// none for headstart.
const LEAST_TASKS: u64 = 256;
/// Of the limits of a process that records the least that is enough: its memory, and address space for what
/// it maps.
const LEAST: [(Resource, u64, &str); 3] = [
    (Resource::Data, MEMORY, "memory of a process"),
    (Resource::As, 1 << 30, "address space"),
    (Resource::Fsize, 16 << 20, "size of files"),
];

/// What there is too little of for a process that records beside a command, without taking it from the
/// command: what the command is limited to would be less, and it would fail only for that.
pub fn lacking() -> Option<String> {
    for (resource, least, what) in LEAST {
        let limit = getrlimit(resource).current;
        if let Some(limit) = limit.filter(|limit| *limit < least) {
            return Some(format!(
                "the {what} is limited to {limit} bytes, and recording may take {least}"
            ));
        }
    }
    let processes = getrlimit(Resource::Nproc).current;
    // What is root's is not limited so.
    let counted = !rustix::process::getuid().is_root();
    if let Some(limit) = processes.filter(|limit| counted && *limit < LEAST_TASKS) {
        return Some(format!("its user may have {limit} processes"));
    }
    let groups = crate::memory::limits_of_groups();
    if let Some(left) = groups.tasks.filter(|left| *left < LEAST_TASKS) {
        return Some(format!("its control group may begin {left} tasks more"));
    }
    let memory = groups.memory.map(|limit| limit.available);
    if let Some(left) = memory.filter(|left| *left < MEMORY + KERNEL_MEMORY) {
        return Some(format!("its control group may take {left} bytes of memory more"));
    }
    if let Some(share) = groups.processor.filter(|share| *share < LEAST_OF_PROCESSOR) {
        return Some(format!(
            "its control group may use {} % of a processor",
            share / 10
        ));
    }
    (groups.are_hidden).then(|| {
        "the limits of its control group cannot be read: /sys/fs/cgroup or /proc is not visible".into()
    })
}

/// Thousandths of a processor. A recorded start takes some 60 ms of one, of the command's share: with less
/// than half, the command would wait for longer than twice that.
const LEAST_OF_PROCESSOR: u64 = 500;

/// What the kernel keeps for a recording, bytes.
const KERNEL_MEMORY: u64 = 64 << 20;

/// A thread that comes before others ([`crate::priority::before_others`]) and has computed for so long
/// without waiting for anything ends its process.
pub fn bound_time_before_others(time: Duration) -> io::Result<()> {
    let most = u64::try_from(time.as_micros()).ok();
    let bound = Rlimit {
        current: most,
        maximum: most,
    };
    Ok(setrlimit(Resource::Rttime, bound)?)
}

/// Whether a filter of system calls lies on this process (seccomp(2)), or that cannot be told: what goes
/// wrong here may be its doing.
pub fn is_filtered() -> bool {
    std::fs::read_to_string("/proc/self/status").map_or(true, |status| !status.contains("\nSeccomp:\t0\n"))
}

/// Gives back to the kernel what memory the allocator keeps for later (malloc_trim(3)): a service that works
/// now and then holds what it needs while it does not. Does nothing with another C library than glibc.
pub fn give_back_memory() {
    crate::sys::malloc_trim();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    const HOW: &str = "HEADSTART_TEST_LIMITS";

    fn child(how: &str) -> std::process::Output {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "limits::tests::in_a_child", "--ignored", "--nocapture"])
            .env(HOW, how)
            .output()
            .unwrap()
    }

    #[test]
    #[ignore = "run by other tests in a process of its own"]
    fn in_a_child() {
        bound_memory(64 << 20).unwrap();
        let large = || std::hint::black_box(vec![1u8; 100 << 20]).len();
        match std::env::var(HOW).unwrap_or_default().as_str() {
            "too much" => println!("had {}", large()),
            "in a thread" => println!("had {}", std::thread::spawn(large).join().unwrap()),
            "enough" => {
                // Threads, each with an arena of the allocator's, and a file that is larger than the bound.
                let threads: Vec<_> = (0..32)
                    .map(|_| {
                        let thread = std::thread::Builder::new().stack_size(256 << 10);
                        thread.spawn(|| vec![1u8; 100 << 10].len()).unwrap()
                    })
                    .collect();
                let sum: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
                let file = tempfile::tempfile_in("/var/tmp").unwrap();
                file.set_len(256 << 20).unwrap();
                let resident = crate::residency::resident(&file, 0, u64::MAX).unwrap();
                println!("had {sum} and {}", resident.len());
            }
            other => panic!("{HOW} is {other:?}"),
        }
    }

    #[test]
    fn an_allocation_beyond_the_bound_ends_that_process_and_no_other() {
        for how in ["too much", "in a thread"] {
            let output = child(how);
            assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{how}: {output:?}");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                text.contains("memory allocation of 104857600 bytes failed"),
                "{text}"
            );
        }
    }

    #[test]
    fn threads_and_mapped_files_fit_the_bound() {
        let output = child("enough");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && text.contains("had 3276800 and 0"),
            "{output:?}"
        );
    }
}
