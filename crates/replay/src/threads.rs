//! The threads of a replay: small, and behind those of the start.

use headstart_system::priority;
use std::io;
use std::thread::{Scope, ScopedJoinHandle};

/// Stack of a thread: it holds paths and a few buffers, directory entries are on the heap. Only what is
/// touched is ever allocated.
const STACK: usize = 256 << 10;
/// The CPU priority of the threads. They use little, but late: a program that keeps all CPUs busy still gets
/// three times their share each.
const NICE: i32 = 5;

/// Runs `work` on the calling thread and `threads - 1` further ones. A thread that cannot be had is done
/// without.
pub fn together(threads: u64, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 1..threads {
            let _ = behind(scope, &work);
        }
        work();
    });
}

/// Runs `work` on a further thread, behind others.
pub fn behind<'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, ()>> {
    let thread = std::thread::Builder::new()
        .name("headstart".into())
        .stack_size(STACK);
    thread.spawn_scoped(scope, move || {
        give_way();
        work();
        end_before_others();
    })
}

/// The calling thread gives way to others; without permission it does not.
pub fn give_way() {
    priority::stand_back(priority::Priority::BestEffortLow, NICE);
}

/// To be called last by a thread that has stood back. What is left of it, some 20 µs, unmaps its stacks, for
/// which the kernel locks the memory of the whole process. If it loses the processor while it holds that
/// lock, all other threads of the process wait, too, those of the next start's replay among them.
pub fn end_before_others() {
    let _ = priority::before_others();
}
