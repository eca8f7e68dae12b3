//! The entry of a program without a library, and its system calls. `headstart-hydrate` is compiled with this
//! file, too.

use crate::syscall;
use core::arch::{asm, global_asm};

const POLLIN: i16 = 1;

// At the entry the stack pointer points to the number of arguments.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {start}",
    start = sym crate::start,
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".globl _start",
    "_start:",
    "mov x29, xzr",
    "mov x30, xzr",
    "mov x0, sp",
    "bl {start}",
    start = sym crate::start,
);

/// A system call; its result, or an error as a negative number.
///
/// # Safety
/// As the call with these arguments.
pub unsafe fn call(number: usize, a: [usize; 5]) -> isize {
    // SAFETY: the caller's duty. Those calls that take a sixth argument are called by `call_with_six`.
    unsafe { call_with_six(number, [a[0], a[1], a[2], a[3], a[4], 0]) }
}

/// The same with six arguments.
///
/// # Safety
/// As the call with these arguments.
#[inline(always)]
pub unsafe fn call_with_six(number: usize, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel changes the registers named and no others; the rest is the caller's duty.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3], in("r8") a[4], in("r9") a[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a[0] => result,
            in("x1") a[1], in("x2") a[2], in("x3") a[3], in("x4") a[4], in("x5") a[5],
            options(nostack),
        );
    }
    result
}

/// Whether there is something to read, or nobody left to write, within so many ms.
pub fn is_readable(descriptor: i32, within_ms: i64) -> bool {
    #[repr(C)]
    struct Poll {
        descriptor: i32,
        events: i16,
        found: i16,
    }
    let mut poll = Poll {
        descriptor,
        events: POLLIN,
        found: 0,
    };
    let limit = [within_ms / 1000, within_ms % 1000 * 1_000_000];
    let arguments = [&raw mut poll as usize, 1, limit.as_ptr() as usize, 0, 0];
    // SAFETY: one descriptor to look at, and a `struct timespec` of 64 bits each.
    unsafe { call(syscall::PPOLL, arguments) > 0 }
}
