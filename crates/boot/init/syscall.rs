//! The numbers of the system calls that are made here (unistd.h), which each kind of processor has of its
//! own.

pub use of_processor::*;

#[cfg(target_arch = "x86_64")]
mod of_processor {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const LSEEK: usize = 8;
    pub const GETPID: usize = 39;
    pub const CLONE: usize = 56;
    pub const EXECVE: usize = 59;
    pub const EXIT: usize = 60;
    pub const UNAME: usize = 63;
    pub const FCNTL: usize = 72;
    pub const FCHDIR: usize = 81;
    pub const SETSID: usize = 112;
    pub const STATFS: usize = 137;
    pub const CHROOT: usize = 161;
    pub const MOUNT: usize = 165;
    pub const FADVISE: usize = 221;
    pub const CLOCK_GETTIME: usize = 228;
    pub const OPENAT: usize = 257;
    pub const PPOLL: usize = 271;
    pub const PIPE2: usize = 293;
    pub const SETNS: usize = 308;
}
#[cfg(target_arch = "aarch64")]
mod of_processor {
    pub const FCNTL: usize = 25;
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
    pub const PPOLL: usize = 73;
    pub const EXIT: usize = 93;
    pub const CLOCK_GETTIME: usize = 113;
    pub const SETSID: usize = 157;
    pub const UNAME: usize = 160;
    pub const GETPID: usize = 172;
    pub const CLONE: usize = 220;
    pub const EXECVE: usize = 221;
    pub const FADVISE: usize = 223;
    pub const SETNS: usize = 268;
}
