//! Which system calls look paths up, and how; the programs get it as a table by number.

use headstart_model::trace::LookupKind;

/// Entries of the table; the highest number in use is below 500.
pub(super) const ENTRIES: usize = 512;

/// The first argument is a directory, the second the path.
const AT: u8 = 0x08;
/// The first argument is the descriptor that is meant; there is no path.
const DESCRIPTOR: u8 = 0x10;
/// Success is seen elsewhere.
const ONLY_MISSING: u8 = 0x20;

/// By system call number: kind of look-up plus one and the flags above; 0 for a call that looks nothing up.
pub(super) fn table() -> [u8; ENTRIES] {
    let open = code(LookupKind::Open);
    let stat = code(LookupKind::Stat);
    let link = code(LookupKind::Link);
    let list = code(LookupKind::List);
    let mut calls = vec![
        (libc::SYS_openat, open | AT),
        (libc::SYS_openat2, open | AT),
        // A successful exec has its own event.
        (libc::SYS_execve, open | ONLY_MISSING),
        (libc::SYS_execveat, open | AT | ONLY_MISSING),
        (libc::SYS_newfstatat, stat | AT),
        (libc::SYS_statx, stat | AT),
        (libc::SYS_faccessat, stat | AT),
        (libc::SYS_faccessat2, stat | AT),
        (libc::SYS_chdir, stat),
        (libc::SYS_readlinkat, link | AT),
        (libc::SYS_getdents64, list | DESCRIPTOR),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        (libc::SYS_open, open),
        (libc::SYS_stat, stat),
        (libc::SYS_lstat, stat),
        (libc::SYS_access, stat),
        (libc::SYS_readlink, link),
        (libc::SYS_getdents, list | DESCRIPTOR),
    ]);
    let mut table = [0; ENTRIES];
    for (number, how) in calls {
        if let Some(entry) = usize::try_from(number)
            .ok()
            .and_then(|number| table.get_mut(number))
        {
            *entry = how;
        }
    }
    table
}

/// As wire.rs has it, plus one.
fn code(kind: LookupKind) -> u8 {
    match kind {
        LookupKind::Open => 1,
        LookupKind::Stat => 2,
        LookupKind::Link => 3,
        LookupKind::List => 4,
    }
}
