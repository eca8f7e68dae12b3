//! The numbers of the system calls that are made here (unistd.h), which each kind of processor has of its
//! own. `headstart-hydrate` is compiled with this file, too.

#![allow(dead_code)] // Each of the two programs makes its calls.

pub use of_processor::*;

#[cfg(target_arch = "x86_64")]
mod of_processor {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const LSEEK: usize = 8;
    pub const MMAP: usize = 9;
    pub const IOCTL: usize = 16;
    pub const PREAD64: usize = 17;
    pub const GETPID: usize = 39;
    pub const CLONE: usize = 56;
    pub const EXECVE: usize = 59;
    pub const EXIT: usize = 60;
    pub const KILL: usize = 62;
    pub const UNAME: usize = 63;
    pub const FCNTL: usize = 72;
    pub const FCHDIR: usize = 81;
    pub const GETPPID: usize = 110;
    pub const SETSID: usize = 112;
    pub const STATFS: usize = 137;
    pub const PRCTL: usize = 157;
    pub const CHROOT: usize = 161;
    pub const MOUNT: usize = 165;
    pub const FADVISE: usize = 221;
    pub const CLOCK_GETTIME: usize = 228;
    pub const OPENAT: usize = 257;
    pub const PPOLL: usize = 271;
    pub const PIPE2: usize = 293;
    pub const SETNS: usize = 308;
    pub const STATX: usize = 332;
}
#[cfg(target_arch = "aarch64")]
mod of_processor {
    pub const FCNTL: usize = 25;
    pub const IOCTL: usize = 29;
    pub const MOUNT: usize = 40;
    pub const STATFS: usize = 43;
    pub const FCHDIR: usize = 50;
    pub const CHROOT: usize = 51;
    pub const OPENAT: usize = 56;
    pub const CLOSE: usize = 57;
    pub const PIPE2: usize = 59;
    pub const LSEEK: usize = 62;
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const PREAD64: usize = 67;
    pub const PPOLL: usize = 73;
    pub const EXIT: usize = 93;
    pub const CLOCK_GETTIME: usize = 113;
    pub const KILL: usize = 129;
    pub const SETSID: usize = 157;
    pub const UNAME: usize = 160;
    pub const PRCTL: usize = 167;
    pub const GETPID: usize = 172;
    pub const GETPPID: usize = 173;
    pub const CLONE: usize = 220;
    pub const EXECVE: usize = 221;
    pub const MMAP: usize = 222;
    pub const FADVISE: usize = 223;
    pub const SETNS: usize = 268;
    pub const STATX: usize = 291;
}
