//! Whether a call of this process may be the end of it, asked by what each shell calls, too.

use super::bare::{AT_FDCWD, O_CLOEXEC, call, close, number, open, value_of};
use super::words::{NO_FILTER, NOWHERE, STATUS};
use core::mem::MaybeUninit;

/// The limits under which what headstart does may fail, for it needs some of it before the command runs:
/// memory of its own, address space, stack, open files.
pub(super) const LIMITS: [(usize, u64); 4] = [
    (libc::RLIMIT_DATA as usize, 64 << 20),
    (libc::RLIMIT_AS as usize, 256 << 20),
    (libc::RLIMIT_STACK as usize, 1 << 20),
    (libc::RLIMIT_NOFILE as usize, 64),
];

/// Of a command line that is longer, headstart would make copies that take more memory than the command's
/// control group may have left: a list of 100,000 words takes 12 MB. Words, and bytes but for those of the
/// last one.
pub(super) const MOST_WORDS: usize = 8192;
pub(super) const MOST_BYTES: usize = 256 << 10;

/// Whether a command line is longer than what is read ahead for.
///
/// # Safety
/// `count` arguments are there, one behind the other, as the kernel puts them.
#[inline(always)]
pub(super) unsafe fn is_long(arguments: *const *const u8, count: usize) -> bool {
    // SAFETY: as the caller says.
    let bytes = unsafe { (*arguments.add(count - 1) as usize).wrapping_sub(*arguments as usize) };
    count > MOST_WORDS || bytes > MOST_BYTES
}

/// Whether a call of this process may be the end of it: where a filter of system calls is (seccomp(2)), or
/// may be, and where limits are low. Asked by what each shell calls, too.
///
/// # Safety
/// `words` are those above.
#[inline(always)]
pub(super) unsafe fn is_risky(words: *const u8) -> bool {
    // The numbers as they are, not the table: that would lie in another page.
    is_low(LIMITS[0]) || is_low(LIMITS[1]) || is_low(LIMITS[2]) || is_low(LIMITS[3]) || {
        // SAFETY: as the caller says.
        unsafe { is_filtered(words) }
    }
}

#[inline(always)]
pub(super) fn is_low((limit, least): (usize, u64)) -> bool {
    let mut now = MaybeUninit::<[u64; 2]>::uninit();
    // SAFETY: the kernel fills the two numbers, or says that it does not.
    unsafe {
        let asked = call(number::PRLIMIT64, [0, limit, 0, now.as_mut_ptr() as usize, 0, 0]);
        asked == 0 && *now.as_ptr().cast::<u64>() < least
    }
}

/// Bytes of /proc/self/status that are looked at. Who is in so many groups that the line lies behind that
/// counts as filtered.
pub(super) const STATUS_BYTES: usize = 4096;

/// # Safety
/// `words` are those above.
#[inline(always)]
pub(super) unsafe fn is_filtered(words: *const u8) -> bool {
    let mut room = MaybeUninit::<[u8; STATUS_BYTES]>::uninit();
    let text = room.as_mut_ptr().cast::<u8>();
    // SAFETY: the kernel fills as much as it says, the rest is not looked at: the line that is looked for
    // ends before its last byte.
    unsafe {
        let Some(file) = open(AT_FDCWD, words.add(STATUS), O_CLOEXEC) else {
            return true;
        };
        let read = call(number::READ, [file, text as usize, STATUS_BYTES - 1, 0, 0, 0]);
        close(file);
        let Ok(length) = usize::try_from(read) else {
            return true;
        };
        *text.add(length) = 0;
        let mut at = 0;
        while at < length {
            if *text.add(at) == b'\n' && value_of(text.add(at), words.add(NO_FILTER)).is_some() {
                return false;
            }
            at += 1;
        }
    }
    true
}

/// Whether the runtime can begin: it aborts where it is refused what it does to signals, or a look at the
/// standard descriptors, and where one of them is closed and /dev/null cannot be opened in its place. Where
/// its signal is refused, too, it aborts by a fault, which the kernel logs.
///
/// # Safety
/// `words` are those above.
#[inline(always)]
pub(super) unsafe fn can_begin(words: *const u8) -> bool {
    let mut now = MaybeUninit::<[u64; 4]>::uninit();
    let at_once = [0u64; 2];
    // On x86-64 the time is a number.
    let at_once = if cfg!(target_arch = "x86_64") {
        0
    } else {
        at_once.as_ptr() as usize
    };
    let signal = libc::SIGPIPE as usize;
    let mut room = MaybeUninit::<[libc::pollfd; 3]>::uninit();
    let three = room.as_mut_ptr().cast::<libc::pollfd>();
    // SAFETY: the kernel fills what there is room for; there is no time to wait.
    unsafe {
        let mut number = 0;
        while number < 3 {
            // One by one: a table of them would lie in another page.
            let at = three.add(number);
            (&raw mut (*at).fd).write_volatile(number as libc::c_int);
            (&raw mut (*at).events).write_volatile(0);
            (&raw mut (*at).revents).write_volatile(0);
            number += 1;
        }
        let refused = call(
            number::RT_SIGACTION,
            [signal, 0, now.as_mut_ptr() as usize, 8, 0, 0],
        ) != 0
            || call(number::POLL, [three as usize, 3, at_once, 0, 0, 0]) < 0;
        let invalid = (*three).revents | (*three.add(1)).revents | (*three.add(2)).revents;
        if refused || invalid & libc::POLLNVAL == 0 {
            return !refused;
        }
        let nowhere = open(AT_FDCWD, words.add(NOWHERE), libc::O_RDWR as usize);
        nowhere.map(close).is_some()
    }
}

/// What a scout has to say nobody asked for: standard output and error lead nowhere from now on, in this
/// process. False where a filter refuses that, or there is no /dev/null: a worker cannot be made then either.
///
/// # Safety
/// `words` are those above.
#[inline(always)]
pub(super) unsafe fn be_silent(words: *const u8) -> bool {
    // SAFETY: a string. Whoever opens is given the lowest number, and what else renames descriptors (dup3)
    // may be refused.
    unsafe {
        let flags = libc::O_WRONLY as usize;
        let Some(nowhere) = open(AT_FDCWD, words.add(NOWHERE), flags) else {
            return false;
        };
        if !close(1) || !close(2) {
            return false;
        }
        open(AT_FDCWD, words.add(NOWHERE), flags);
        open(AT_FDCWD, words.add(NOWHERE), flags);
        close(nowhere)
    }
}
