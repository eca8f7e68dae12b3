//! Which system calls look paths up or read files, and how; the programs get it as tables by number, one of
//! 64-bit programs and one of 32-bit ones.

use headstart_model::trace::LookupKind;

/// Entries of a table; the highest number in use is below 500.
const ENTRIES: usize = 512;

/// The first argument is a directory, the second the path.
const AT: u8 = 0x08;
/// The first argument is the descriptor that is meant; there is no path.
const DESCRIPTOR: u8 = 0x10;
/// An execution: success is seen elsewhere.
const EXECUTES: u8 = 0x20;
/// Success makes the name or removes it: the next start does not find what this one found.
const CHANGES: u8 = 0x40;
/// The second argument is the path, and the first no directory.
const SECOND_PATH: u8 = 0x80;

/// What is found is described in the argument behind the path; of statx(2) two further on. Two flags that
/// never stand together.
const FILLS_STAT: u8 = EXECUTES | CHANGES;
const FILLS_STATX: u8 = EXECUTES | SECOND_PATH;

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

/// fchmodat2(2), 6.6, the same everywhere.
const FCHMODAT2: libc::c_long = 452;

/// The calls of 64-bit programs.
pub(super) fn native() -> Table {
    let mut calls = vec![
        (libc::SYS_openat, OPEN | AT),
        (libc::SYS_openat2, OPEN | AT),
        // A successful exec has its own event.
        (libc::SYS_execve, OPEN | EXECUTES),
        (libc::SYS_execveat, OPEN | AT | EXECUTES),
        (libc::SYS_newfstatat, STAT | AT | FILLS_STAT),
        (libc::SYS_statx, STAT | AT | FILLS_STATX),
        (libc::SYS_faccessat, STAT | AT),
        (libc::SYS_faccessat2, STAT | AT),
        (libc::SYS_chdir, STAT),
        (libc::SYS_readlinkat, LINK | AT),
        (libc::SYS_mkdirat, STAT | AT | CHANGES),
        (libc::SYS_mknodat, STAT | AT | CHANGES),
        (libc::SYS_unlinkat, STAT | AT | CHANGES),
        (libc::SYS_getxattr, STAT),
        (libc::SYS_lgetxattr, STAT),
        (libc::SYS_listxattr, STAT),
        (libc::SYS_llistxattr, STAT),
        (libc::SYS_inotify_add_watch, STAT | SECOND_PATH),
        (libc::SYS_statfs, STAT),
        (libc::SYS_truncate, STAT),
        (libc::SYS_name_to_handle_at, STAT | AT),
        (libc::SYS_fchmodat, STAT | AT),
        (libc::SYS_fchownat, STAT | AT),
        (libc::SYS_utimensat, STAT | AT),
        (FCHMODAT2, STAT | AT),
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
        (libc::SYS_mkdir, STAT | CHANGES),
        (libc::SYS_mknod, STAT | CHANGES),
        (libc::SYS_rmdir, STAT | CHANGES),
        (libc::SYS_unlink, STAT | CHANGES),
        (libc::SYS_chmod, STAT),
        (libc::SYS_chown, STAT),
        (libc::SYS_lchown, STAT),
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
        (220, LIST | DESCRIPTOR),       // getdents64
        (268, STAT),                    // statfs64
        (292, STAT | SECOND_PATH),      // inotify_add_watch
        (295, OPEN | AT),               // openat
        (296, STAT | AT | CHANGES),     // mkdirat
        (297, STAT | AT | CHANGES),     // mknodat
        (298, STAT | AT),               // fchownat
        (300, STAT | AT | FILLS_STAT),  // fstatat64
        (301, STAT | AT | CHANGES),     // unlinkat
        (305, LINK | AT),               // readlinkat
        (306, STAT | AT),               // fchmodat
        (307, STAT | AT),               // faccessat
        (313, READ_SPLICED),            // splice
        (320, STAT | AT),               // utimensat
        (333, READ_VECTOR | POSITION),  // preadv
        (341, STAT | AT),               // name_to_handle_at
        (358, OPEN | AT | EXECUTES),    // execveat
        (377, READ_SPLICED),            // copy_file_range
        (378, READ_VECTOR | POSITION),  // preadv2
        (383, STAT | AT | FILLS_STATX), // statx
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let own = [
        (217, LIST | DESCRIPTOR),       // getdents64
        (266, STAT),                    // statfs64
        (317, STAT | SECOND_PATH),      // inotify_add_watch
        (322, OPEN | AT),               // openat
        (323, STAT | AT | CHANGES),     // mkdirat
        (324, STAT | AT | CHANGES),     // mknodat
        (325, STAT | AT),               // fchownat
        (327, STAT | AT | FILLS_STAT),  // fstatat64
        (328, STAT | AT | CHANGES),     // unlinkat
        (332, LINK | AT),               // readlinkat
        (333, STAT | AT),               // fchmodat
        (334, STAT | AT),               // faccessat
        (340, READ_SPLICED),            // splice
        (348, STAT | AT),               // utimensat
        (361, READ_VECTOR | POSITION),  // preadv
        (370, STAT | AT),               // name_to_handle_at
        (387, OPEN | AT | EXECUTES),    // execveat
        (391, READ_SPLICED),            // copy_file_range
        (392, READ_VECTOR | POSITION),  // preadv2
        (397, STAT | AT | FILLS_STATX), // statx
    ];
    let same = [
        (3, READ),
        (5, OPEN),
        (10, STAT | CHANGES),         // unlink
        (11, OPEN | EXECUTES),        // execve
        (12, STAT),                   // chdir
        (14, STAT | CHANGES),         // mknod
        (15, STAT),                   // chmod
        (16, STAT),                   // lchown
        (33, STAT),                   // access
        (39, STAT | CHANGES),         // mkdir
        (40, STAT | CHANGES),         // rmdir
        (85, LINK),                   // readlink
        (92, STAT),                   // truncate
        (99, STAT),                   // statfs
        (106, STAT),                  // stat
        (107, STAT),                  // lstat
        (141, LIST | DESCRIPTOR),     // getdents
        (145, READ_VECTOR),           // readv
        (180, READ | POSITION),       // pread64
        (182, STAT),                  // chown
        (193, STAT),                  // truncate64
        (195, STAT),                  // stat64
        (196, STAT | FILLS_STAT),     // lstat64
        (198, STAT),                  // lchown32
        (212, STAT),                  // chown32
        (229, STAT),                  // getxattr
        (230, STAT),                  // lgetxattr
        (232, STAT),                  // listxattr
        (233, STAT),                  // llistxattr
        (239, READ_SPLICED | SECOND), // sendfile64
        (412, STAT | AT),             // utimensat with times of 64 bits
        (437, OPEN | AT),             // openat2
        (439, STAT | AT),             // faccessat2
        (452, STAT | AT),             // fchmodat2
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
