//! System calls and strings without a library: what runs before anything is relocated ([`super::first`]) may
//! use nothing else.

use core::arch::asm;

#[cfg(target_arch = "x86_64")]
pub(super) mod number {
    pub use super::super::way::of_processor::{CLOSE, FADVISE, OPENAT};
    pub const READ: usize = 0;
    pub const POLL: usize = 7;
    pub const RT_SIGACTION: usize = 13;
    pub const WRITE: usize = 1;
    pub const LSEEK: usize = 8;
    pub const MMAP: usize = 9;
    pub const MUNMAP: usize = 11;
    pub const MINCORE: usize = 27;
    pub const CLONE: usize = 56;
    pub const EXECVE: usize = 59;
    pub const WAIT4: usize = 61;
    pub const EXIT: usize = 60;
    pub const EXIT_GROUP: usize = 231;
    pub const PRLIMIT64: usize = 302;
}
#[cfg(target_arch = "aarch64")]
pub(super) mod number {
    pub use super::super::way::of_processor::{CLOSE, FADVISE, OPENAT};
    pub const LSEEK: usize = 62;
    pub const READ: usize = 63;
    /// ppoll: there is no other.
    pub const POLL: usize = 73;
    pub const RT_SIGACTION: usize = 134;
    pub const WRITE: usize = 64;
    pub const EXIT: usize = 93;
    pub const EXIT_GROUP: usize = 94;
    pub const MUNMAP: usize = 215;
    pub const CLONE: usize = 220;
    pub const EXECVE: usize = 221;
    pub const MMAP: usize = 222;
    pub const MINCORE: usize = 232;
    pub const WAIT4: usize = 260;
    pub const PRLIMIT64: usize = 261;
}

/// A system call; its result, or an error as a negative number.
///
/// # Safety
/// As the call with these arguments.
#[inline(always)]
pub(super) unsafe fn call(number: usize, a: [usize; 6]) -> isize {
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

pub(super) const O_CLOEXEC: usize = libc::O_CLOEXEC as usize;
pub(super) const O_PATH: usize = libc::O_PATH as usize;
pub(super) const O_NONBLOCK: usize = libc::O_NONBLOCK as usize;
pub(super) const AT_FDCWD: usize = libc::AT_FDCWD as usize;
/// A status of a process that was killed, as wait(2) tells it.
pub(super) const KILLED: i32 = 9;
/// Forks; `None` if that cannot be, 0 in the new process.
#[inline(always)]
pub(super) fn fork() -> Option<usize> {
    // SAFETY: as fork(2): nothing is shared, and there is one thread.
    let pid = unsafe { call(number::CLONE, [libc::SIGCHLD as usize, 0, 0, 0, 0, 0]) };
    usize::try_from(pid).ok()
}

/// The status of a child once it has ended. One whose status nobody is told (SIGCHLD is ignored) counts as
/// killed.
#[inline(always)]
pub(super) fn wait(pid: usize) -> i32 {
    let mut status = KILLED;
    loop {
        // SAFETY: the kernel fills the status.
        let waited = unsafe { call(number::WAIT4, [pid, &raw mut status as usize, 0, 0, 0, 0]) };
        if waited != -(libc::EINTR as isize) {
            return status;
        }
    }
}

/// Whoever went on instead would run the command a second time: where a filter refuses exit_group(2), the one
/// thread of this process ends, and where it refuses that, a fault ends it.
#[inline(always)]
pub(super) fn exit(status: usize) -> ! {
    // SAFETY: ends the process; what is executed at last is no instruction.
    unsafe {
        call(number::EXIT_GROUP, [status, 0, 0, 0, 0, 0]);
        call(number::EXIT, [status, 0, 0, 0, 0, 0]);
        #[cfg(target_arch = "x86_64")]
        asm!("ud2", options(noreturn));
        #[cfg(target_arch = "aarch64")]
        asm!("udf #0", options(noreturn));
    }
}

/// What is killed for a system call leaves no core in the command's directory.
#[inline(always)]
pub(super) fn without_core() {
    let none = [0u64; 2];
    let limit = libc::RLIMIT_CORE as usize;
    // SAFETY: the kernel reads the two numbers.
    unsafe { call(number::PRLIMIT64, [0, limit, none.as_ptr() as usize, 0, 0, 0]) };
}

/// Whether a string is this one.
///
/// # Safety
/// Both end with a null character.
#[inline(always)]
pub(super) unsafe fn equals(string: *const u8, text: *const u8) -> bool {
    // SAFETY: as the caller says.
    unsafe { value_of(string, text).is_some_and(|rest| *rest == 0) }
}

/// What follows `name` in a string that begins so.
///
/// # Safety
/// Both end with a null character.
#[inline(always)]
pub(super) unsafe fn value_of(mut string: *const u8, mut name: *const u8) -> Option<*const u8> {
    // SAFETY: neither is read beyond its end, for what comes before is the same in both.
    unsafe {
        while *name != 0 {
            if *string != *name {
                return None;
            }
            (string, name) = (string.add(1), name.add(1));
        }
    }
    Some(string)
}

/// Opens a file; `None` if that cannot be.
///
/// # Safety
/// `path` is a string that ends with a null character.
#[inline(always)]
pub(super) unsafe fn open(directory: usize, path: *const u8, flags: usize) -> Option<usize> {
    // SAFETY: see above.
    let file = unsafe {
        call(
            number::OPENAT,
            [directory, path as usize, flags | O_NONBLOCK, 0, 0, 0],
        )
    };
    usize::try_from(file).ok()
}

/// Whether a descriptor is closed now: a filter may refuse that.
#[inline(always)]
pub(super) fn close(descriptor: usize) -> bool {
    // SAFETY: nothing uses it any more.
    let result = unsafe { call(number::CLOSE, [descriptor, 0, 0, 0, 0, 0]) };
    result == 0 || result == -(libc::EBADF as isize)
}
