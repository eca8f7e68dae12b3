//! Which system calls look paths up or read files, and how; the programs get it as tables by number, one of
//! 64-bit programs and one of 32-bit ones.

use headstart_model::trace::LookupKind;

/// Entries of a table; the highest number in use is below 500.
const ENTRIES: usize = 512;

/// The first argument is a directory, the second the path.
const AT: u8 = 0x08;
/// The first argument is the descriptor that is meant; there is no path.
const DESCRIPTOR: u8 = 0x10;
/// Success is seen elsewhere.
const ONLY_MISSING: u8 = 0x20;

/// What is found is described in the argument behind the path; of statx(2) two further on.
const FILLS_STAT: u8 = 0x40;
const FILLS_STATX: u8 = 0x80;

/// Reads: `READ_COUNTED` of common.h and what follows.
const READ: u8 = 5;
const READ_VECTOR: u8 = 6;
const READ_SPLICED: u8 = 7;
/// The position is the fourth argument.
const POSITION: u8 = 0x08;
/// The file is the second descriptor.
const SECOND: u8 = 0x08;

/// By system call number: kind of look-up plus one and the flags above; 0 for a call that looks nothing up.
type Table = [u8; ENTRIES];

/// The calls of 64-bit programs.
pub(super) fn native() -> Table {
    let mut calls = vec![
        (libc::SYS_openat, OPEN | AT),
        (libc::SYS_openat2, OPEN | AT),
        // A successful exec has its own event.
        (libc::SYS_execve, OPEN | ONLY_MISSING),
        (libc::SYS_execveat, OPEN | AT | ONLY_MISSING),
        (libc::SYS_newfstatat, STAT | AT | FILLS_STAT),
        (libc::SYS_statx, STAT | AT | FILLS_STATX),
        (libc::SYS_faccessat, STAT | AT),
        (libc::SYS_faccessat2, STAT | AT),
        (libc::SYS_chdir, STAT),
        (libc::SYS_readlinkat, LINK | AT),
        (libc::SYS_getdents64, LIST | DESCRIPTOR),
        (libc::SYS_read, READ),
        (libc::SYS_pread64, READ | POSITION),
        (libc::SYS_readv, READ_VECTOR),
        (libc::SYS_preadv, READ_VECTOR | POSITION),
        (libc::SYS_preadv2, READ_VECTOR | POSITION),
        (libc::SYS_sendfile, READ_SPLICED | SECOND),
        (libc::SYS_splice, READ_SPLICED),
        (libc::SYS_copy_file_range, READ_SPLICED),
        // The kernel reads it as readv would, from its beginning.
        (libc::SYS_finit_module, READ_VECTOR),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        (libc::SYS_open, OPEN),
        (libc::SYS_stat, STAT),
        (libc::SYS_lstat, STAT | FILLS_STAT),
        (libc::SYS_access, STAT),
        (libc::SYS_readlink, LINK),
        (libc::SYS_getdents, LIST | DESCRIPTOR),
    ]);
    let number = |number: libc::c_long| usize::try_from(number).unwrap_or(ENTRIES);
    table(calls.into_iter().map(|(call, how)| (number(call), how)))
}

/// The calls of 32-bit programs, by the kernel's arch/x86/entry/syscalls/syscall_32.tbl and
/// arch/arm/tools/syscall.tbl. What is the same in both stands first.
pub(super) fn compat() -> Table {
    #[cfg(target_arch = "x86_64")]
    let own = [
        (220, LIST | DESCRIPTOR),        // getdents64
        (295, OPEN | AT),                // openat
        (300, STAT | AT | FILLS_STAT),   // fstatat64
        (305, LINK | AT),                // readlinkat
        (307, STAT | AT),                // faccessat
        (313, READ_SPLICED),             // splice
        (333, READ_VECTOR | POSITION),   // preadv
        (358, OPEN | AT | ONLY_MISSING), // execveat
        (377, READ_SPLICED),             // copy_file_range
        (378, READ_VECTOR | POSITION),   // preadv2
        (383, STAT | AT | FILLS_STATX),  // statx
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let own = [
        (217, LIST | DESCRIPTOR),        // getdents64
        (322, OPEN | AT),                // openat
        (327, STAT | AT | FILLS_STAT),   // fstatat64
        (332, LINK | AT),                // readlinkat
        (334, STAT | AT),                // faccessat
        (340, READ_SPLICED),             // splice
        (361, READ_VECTOR | POSITION),   // preadv
        (387, OPEN | AT | ONLY_MISSING), // execveat
        (391, READ_SPLICED),             // copy_file_range
        (392, READ_VECTOR | POSITION),   // preadv2
        (397, STAT | AT | FILLS_STATX),  // statx
    ];
    let same = [
        (3, READ),
        (5, OPEN),
        (11, OPEN | ONLY_MISSING),    // execve
        (12, STAT),                   // chdir
        (33, STAT),                   // access
        (85, LINK),                   // readlink
        (106, STAT),                  // stat
        (107, STAT),                  // lstat
        (141, LIST | DESCRIPTOR),     // getdents
        (145, READ_VECTOR),           // readv
        (180, READ | POSITION),       // pread64
        (195, STAT),                  // stat64
        (196, STAT | FILLS_STAT),     // lstat64
        (239, READ_SPLICED | SECOND), // sendfile64
        (437, OPEN | AT),             // openat2
        (439, STAT | AT),             // faccessat2
    ];
    table(same.into_iter().chain(own))
}

fn table(calls: impl IntoIterator<Item = (usize, u8)>) -> Table {
    let mut table = [0; ENTRIES];
    for (number, how) in calls {
        if let Some(entry) = table.get_mut(number) {
            *entry = how;
        }
    }
    table
}

const OPEN: u8 = code(LookupKind::Open);
const STAT: u8 = code(LookupKind::Stat);
const LINK: u8 = code(LookupKind::Link);
const LIST: u8 = code(LookupKind::List);

/// As wire.rs has it, plus one.
const fn code(kind: LookupKind) -> u8 {
    match kind {
        LookupKind::Open => 1,
        LookupKind::Stat => 2,
        LookupKind::Link => 3,
        LookupKind::List => 4,
    }
}
