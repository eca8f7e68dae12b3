//! What headstart begins with: what a start needs of its own file, asked for in one go, and what leads to its state, before anything else is
//! touched of either.
//!
//! A cold program comes as it is needed: a major fault for each window of 128 KiB, and each waits for the one before. Until `main` of a
//! static program they are thirty, most of them for relocations. So this is what it begins with, where somebody waits for it
//! (`headstart run`, `headstart boot run`): `build.rs` of the command has the linker take `headstart_first` for the first instruction, and put it
//! into the page that the program's header is in; it goes on to the C library's. The same script puts what a start needs before all the rest
//! of the file: it ends with the program's data.
//!
//! Nothing is relocated then and no library has begun: what runs here may use neither. It needs one page, and what it asks for comes in one
//! sweep.

use super::way;
use super::{CAREFUL, ORDINARY, REHEARSED, SCOUT};
use core::arch::{asm, global_asm};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, Ordering};

/// The device serves no more than this from one call, at least.
const CHUNK: usize = 128 << 10;
/// A file that is larger was not made to be installed, and is left to come as it is needed.
const MOST: usize = 64 << 20;
/// Its pages where they are smallest.
const MOST_PAGES: usize = MOST / 4096;

// At the entry the stack pointer points to the number of arguments, and one register holds what is to be called at the end. All that runs
// here, and the words that it knows, lie together: each other page would be another read.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.headstart_first, \"ax\", @progbits",
    ".globl headstart_first",
    ".type headstart_first, @function",
    "headstart_first:",
    "mov rbx, rdx",
    "mov rbp, rsp",
    "mov rdi, rsp",
    "lea rsi, [rip + 2f]",
    "lea rdx, [rip + {role}]",
    "and rsp, -16",
    "call {begin}",
    "mov rsp, rbp",
    "mov rdx, rbx",
    "xor ebp, ebp",
    "jmp _start",
    "2:",
    ".ascii \"/proc/self/exe\\0/var/lib/headstart\\0starts/-\\0HEADSTART_STATE=\\0--state=\\0--state\\0run\\0--\\0trusted.headstart\\0/proc/self/status\\0\\nSeccomp:\\t0\\n\\0PATH=\\0/bin:/usr/bin\\0/bin/sh\\0--name\\0--control-every\\0/dev/null\\0headstart: cannot run the command: it cannot be executed, or is not there\\n\\0headstart: it cannot begin: a standard descriptor is closed and /dev/null is not to be opened, or a filter refuses rt_sigaction or poll\\n\\0\"",
    ".popsection",
    begin = sym begin,
    role = sym ROLE,
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .text.headstart_first, \"ax\", %progbits",
    ".globl headstart_first",
    ".type headstart_first, %function",
    "headstart_first:",
    "mov x19, x0",
    "mov x0, sp",
    "adr x1, 2f",
    "adrp x2, {role}",
    "add x2, x2, :lo12:{role}",
    "bl {begin}",
    "mov x0, x19",
    "mov x29, xzr",
    "mov x30, xzr",
    "b _start",
    "2:",
    ".ascii \"/proc/self/exe\\0/var/lib/headstart\\0starts/-\\0HEADSTART_STATE=\\0--state=\\0--state\\0run\\0--\\0trusted.headstart\\0/proc/self/status\\0\\nSeccomp:\\t0\\n\\0PATH=\\0/bin:/usr/bin\\0/bin/sh\\0--name\\0--control-every\\0/dev/null\\0headstart: cannot run the command: it cannot be executed, or is not there\\n\\0headstart: it cannot begin: a standard descriptor is closed and /dev/null is not to be opened, or a filter refuses rt_sigaction or poll\\n\\0\"",
    ".balign 4",
    ".popsection",
    begin = sym begin,
    role = sym ROLE,
);

// Where those words begin.
const SELF: usize = 0;
const STATE: usize = SELF + 15;
const STARTS: usize = STATE + 19;
const VARIABLE: usize = STARTS + 9;
const OPTION_WITH_VALUE: usize = VARIABLE + 17;
const OPTION: usize = OPTION_WITH_VALUE + 9;
const RUN: usize = OPTION + 8;
const END_OF_OPTIONS: usize = RUN + 4;
const WAY: usize = END_OF_OPTIONS + 3;
const STATUS: usize = WAY + 18;
const NO_FILTER: usize = STATUS + 18;
const SEARCHED: usize = NO_FILTER + 13;
const SEARCHED_ELSE: usize = SEARCHED + 6;
const SHELL: usize = SEARCHED_ELSE + 14;
const NAME: usize = SHELL + 8;
const CONTROL: usize = NAME + 7;
const NOWHERE: usize = CONTROL + 16;
const NOT_RUN: usize = NOWHERE + 10;
const NOT_RUN_END: usize = NOT_RUN + 74;
const NOT_BEGUN: usize = NOT_RUN_END + 1;
const NOT_BEGUN_END: usize = NOT_BEGUN + 136;

/// What this process is, as [`super::role`] tells it. Written before anything else runs.
static ROLE: AtomicU8 = AtomicU8::new(ORDINARY);

/// What this process is.
pub(super) fn role() -> u8 {
    ROLE.load(Ordering::Relaxed)
}

#[cfg(target_arch = "x86_64")]
mod number {
    pub use super::way::of_processor::{CLOSE, FADVISE, OPENAT};
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
mod number {
    pub use super::way::of_processor::{CLOSE, FADVISE, OPENAT};
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
unsafe fn call(number: usize, a: [usize; 6]) -> isize {
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

const O_CLOEXEC: usize = libc::O_CLOEXEC as usize;
const O_PATH: usize = libc::O_PATH as usize;
const O_NONBLOCK: usize = libc::O_NONBLOCK as usize;
const AT_FDCWD: usize = libc::AT_FDCWD as usize;
const PAGE_SIZE: usize = libc::AT_PAGESZ as usize;
const HEADERS: usize = libc::AT_PHDR as usize;
const HEADER_COUNT: usize = libc::AT_PHNUM as usize;

/// What is done first.
///
/// # Safety
/// `stack` is the stack pointer at the entry of a process, `words` are those above, `role` is [`ROLE`].
#[unsafe(link_section = ".text.headstart_first")]
unsafe extern "C" fn begin(stack: *mut usize, words: *const u8, role: *const AtomicU8) {
    // SAFETY: their number, the arguments, a null pointer, the environment, a null pointer, pairs of words that end with a zero: the
    // layout of every process.
    unsafe {
        let count = *stack;
        let arguments: *mut *const u8 = stack.add(1).cast();
        let environment: *const *const u8 = arguments.add(count + 1);
        let mut at = environment;
        let mut state = words.add(STATE);
        while !(*at).is_null() {
            if let Some(value) = value_of(*at, words.add(VARIABLE)) {
                state = value;
            }
            at = at.add(1);
        }
        // `boot run` has no command.
        let (mut waited_for, mut is_of_a_command) = (false, true);
        let mut command = count;
        let mut number = 1;
        while number < count && command == count {
            let word = *arguments.add(number);
            number += 1;
            if is(word, words.add(END_OF_OPTIONS)) {
                command = number;
                break;
            } else if !waited_for && is(word, words.add(RUN)) {
                waited_for = true;
            } else if is(word, words.add(OPTION)) && number < count {
                state = *arguments.add(number);
                number += 1;
            } else if let Some(value) = value_of(word, words.add(OPTION_WITH_VALUE)) {
                state = value;
            } else if is(word, words.add(NAME)) || is(word, words.add(CONTROL)) {
                number += 1;
            } else if *word != b'-' {
                match waited_for {
                    true => command = number - 1,
                    false => is_of_a_command = false,
                }
            }
        }
        let has_command = waited_for && is_of_a_command && command < count;
        if !has_command && !can_begin(words) {
            let said = [
                2,
                words.add(NOT_BEGUN) as usize,
                NOT_BEGUN_END - NOT_BEGUN,
                0,
                0,
                0,
            ];
            call(number::WRITE, said);
            exit(1);
        }
        if !waited_for {
            return;
        }
        if has_command && is_long(arguments, count) {
            execute(arguments.add(command), environment, words);
        }
        let pairs: *const usize = at.add(1).cast();
        if has_command && is_risky(words) {
            // What is asked for ahead is asked for by a process that may be killed for it. It is waited for: the command would count it among its
            // children, and its control group among its tasks.
            match fork() {
                Some(0) => {
                    without_core();
                    ahead(pairs, state, words);
                    exit(0);
                }
                Some(asking) => drop(wait(asking)),
                None => {}
            }
            let status = match fork() {
                Some(0) => {
                    without_core();
                    if !be_silent(words) || !can_begin(words) {
                        exit(NOT_REHEARSED);
                    }
                    (*role).store(SCOUT, Ordering::Relaxed);
                    return;
                }
                Some(scout) => wait(scout),
                None => KILLED,
            };
            if status == i32::from(REHEARSED) << 8 {
                (*role).store(CAREFUL, Ordering::Relaxed);
                return;
            }
            if status & 0x7f == 0 && status >> 8 <= USAGE {
                // There is something to say of the command line, and no command.
                return;
            }
            execute(arguments.add(command), environment, words);
        }
        if has_command && !can_begin(words) {
            execute(arguments.add(command), environment, words);
        }
        ahead(pairs, state, words);
    }
}

/// A status of a process that was killed, as wait(2) tells it.
const KILLED: i32 = 9;
/// How a scout ends that cannot rehearse.
const NOT_REHEARSED: usize = 101;
/// The status with which the command line is refused.
const USAGE: i32 = 2;
/// The limits under which what headstart does may fail, for it needs some of it before the command runs: memory of its own, address space,
/// stack, open files.
const LIMITS: [(usize, u64); 4] = [
    (libc::RLIMIT_DATA as usize, 64 << 20),
    (libc::RLIMIT_AS as usize, 256 << 20),
    (libc::RLIMIT_STACK as usize, 1 << 20),
    (libc::RLIMIT_NOFILE as usize, 64),
];

/// Of a command line that is longer, headstart would make copies that take more memory than the command's control group may have left: a list of 100,000
/// words takes 12 MB. Words, and bytes but for those of the last one.
const MOST_WORDS: usize = 8192;
const MOST_BYTES: usize = 256 << 10;

/// Whether a command line is longer than what is read ahead for.
///
/// # Safety
/// `count` arguments are there, one behind the other, as the kernel puts them.
#[inline(always)]
unsafe fn is_long(arguments: *const *const u8, count: usize) -> bool {
    // SAFETY: as the caller says.
    let bytes = unsafe { (*arguments.add(count - 1) as usize).wrapping_sub(*arguments as usize) };
    count > MOST_WORDS || bytes > MOST_BYTES
}

/// Whether a call of this process may be the end of it: where a filter of system calls is (seccomp(2)), or may be, and where limits are low.
/// Asked by what each shell calls, too.
///
/// # Safety
/// `words` are those above.
#[inline(always)]
unsafe fn is_risky(words: *const u8) -> bool {
    // The numbers as they are, not the table: that would lie in another page.
    is_low(LIMITS[0]) || is_low(LIMITS[1]) || is_low(LIMITS[2]) || is_low(LIMITS[3]) || {
        // SAFETY: as the caller says.
        unsafe { is_filtered(words) }
    }
}

#[inline(always)]
fn is_low((limit, least): (usize, u64)) -> bool {
    let mut now = MaybeUninit::<[u64; 2]>::uninit();
    // SAFETY: the kernel fills the two numbers, or says that it does not.
    unsafe {
        let asked = call(number::PRLIMIT64, [0, limit, 0, now.as_mut_ptr() as usize, 0, 0]);
        asked == 0 && *now.as_ptr().cast::<u64>() < least
    }
}

/// Bytes of /proc/self/status that are looked at. Who is in so many groups that the line lies behind that counts as filtered.
const STATUS_BYTES: usize = 4096;

/// # Safety
/// `words` are those above.
#[inline(always)]
unsafe fn is_filtered(words: *const u8) -> bool {
    let mut room = MaybeUninit::<[u8; STATUS_BYTES]>::uninit();
    let text = room.as_mut_ptr().cast::<u8>();
    // SAFETY: the kernel fills as much as it says, the rest is not looked at: the line that is looked for ends before its last byte.
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

/// Forks; `None` if that cannot be, 0 in the new process.
#[inline(always)]
fn fork() -> Option<usize> {
    // SAFETY: as fork(2): nothing is shared, and there is one thread.
    let pid = unsafe { call(number::CLONE, [libc::SIGCHLD as usize, 0, 0, 0, 0, 0]) };
    usize::try_from(pid).ok()
}

/// The status of a child once it has ended. One whose status nobody is told (SIGCHLD is ignored) counts as killed.
#[inline(always)]
fn wait(pid: usize) -> i32 {
    let mut status = KILLED;
    loop {
        // SAFETY: the kernel fills the status.
        let waited = unsafe { call(number::WAIT4, [pid, &raw mut status as usize, 0, 0, 0, 0]) };
        if waited != -(libc::EINTR as isize) {
            return status;
        }
    }
}

/// Whether the runtime can begin: it aborts where it is refused what it does to signals, or a look at the standard descriptors, and where one of them is
/// closed and /dev/null cannot be opened in its place. Where its signal is refused, too, it aborts by a fault, which the kernel logs.
///
/// # Safety
/// `words` are those above.
#[inline(always)]
unsafe fn can_begin(words: *const u8) -> bool {
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

/// Whoever went on instead would run the command a second time: where a filter refuses exit_group(2), the one thread of this process ends, and where it
/// refuses that, a fault ends it.
#[inline(always)]
fn exit(status: usize) -> ! {
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
fn without_core() {
    let none = [0u64; 2];
    let limit = libc::RLIMIT_CORE as usize;
    // SAFETY: the kernel reads the two numbers.
    unsafe { call(number::PRLIMIT64, [0, limit, none.as_ptr() as usize, 0, 0, 0]) };
}

/// What a scout has to say nobody asked for: standard output and error lead nowhere from now on, in this process. False where a filter refuses that, or there is no /dev/null: a
/// worker cannot be made then either.
///
/// # Safety
/// `words` are those above.
#[inline(always)]
unsafe fn be_silent(words: *const u8) -> bool {
    // SAFETY: a string. Whoever opens is given the lowest number, and what else renames descriptors (dup3) may be refused.
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

/// A path is no longer, bytes.
const PATH: usize = libc::PATH_MAX as usize;

/// Becomes the command, looked for as execvp(3) does; else says so, and ends as shells do then.
///
/// # Safety
/// `command` are its words, behind another word, and a null pointer; `environment` as well; `words` are those above.
#[unsafe(link_section = ".text.headstart_first")]
unsafe fn execute(command: *mut *const u8, environment: *const *const u8, words: *const u8) {
    let mut room = MaybeUninit::<[u8; PATH]>::uninit();
    let file = room.as_mut_ptr().cast::<u8>();
    let mut found = false;
    // SAFETY: strings that end with a null character; no more is written than there is room for, and of the arguments none before the command's.
    unsafe {
        let name = *command;
        let mut at = environment;
        let mut searched = words.add(SEARCHED_ELSE);
        while !(*at).is_null() {
            if let Some(value) = value_of(*at, words.add(SEARCHED)) {
                searched = value;
            }
            at = at.add(1);
        }
        let mut length = 0;
        let mut is_path = false;
        while name.add(length).read_volatile() != 0 {
            is_path |= *name.add(length) == b'/';
            length += 1;
        }
        loop {
            let mut used = 0;
            while !is_path && *searched != 0 && *searched != b':' {
                if used < PATH - 1 {
                    // Volatile, or the compiler calls the C library's function for it, which is not there yet.
                    file.add(used).write_volatile(*searched);
                    used += 1;
                }
                searched = searched.add(1);
            }
            let last = is_path || *searched == 0;
            searched = searched.add(1);
            if used > 0 {
                *file.add(used) = b'/';
                used += 1;
            }
            if length > 0 && used + length < PATH {
                let mut copied = 0;
                while copied <= length {
                    file.add(used + copied).write_volatile(*name.add(copied));
                    copied += 1;
                }
                let words_of = [file as usize, command as usize, environment as usize, 0, 0, 0];
                let error = -call(number::EXECVE, words_of) as i32;
                if error == libc::ENOEXEC {
                    // A script without a first line that says what it is for.
                    let shell = words.add(SHELL);
                    *command = file;
                    *command.sub(1) = shell;
                    let words_of = [
                        shell as usize,
                        command.sub(1) as usize,
                        environment as usize,
                        0,
                        0,
                        0,
                    ];
                    call(number::EXECVE, words_of);
                }
                // As the session says it: a directory of the search that is none is no answer, a file in the place of the command's directory is one.
                found |= error != libc::ENOENT && (is_path || error != libc::ENOTDIR);
            }
            if last {
                break;
            }
        }
        let said = [2, words.add(NOT_RUN) as usize, NOT_RUN_END - NOT_RUN, 0, 0, 0];
        call(number::WRITE, said);
    }
    exit(if found { 126 } else { 127 });
}

/// Asks for what a start needs of this program's file and, if that was not in memory, of the way to the state.
///
/// # Safety
/// `pairs` are words that end with a zero, `state` is a string that ends with a null character, `words` are those above.
#[unsafe(link_section = ".text.headstart_first")]
unsafe fn ahead(pairs: *const usize, state: *const u8, words: *const u8) {
    // SAFETY: as the caller says.
    unsafe {
        let page = told(pairs, PAGE_SIZE);
        // Each by itself: to tell one of three the compiler would make a table, which is a read of another page.
        let headers = told(pairs, HEADERS) as *const libc::Elf64_Phdr;
        let needed = needed(headers, told(pairs, HEADER_COUNT));
        let Some(program) = open(AT_FDCWD, words.add(SELF), O_CLOEXEC) else {
            return;
        };
        let asked = ask_for(program, page, needed, words.add(WAY));
        close(program);
        // While that comes: the directories that lead to what is known of the start.
        if !asked {
            return;
        }
        if let Some(state) = open(AT_FDCWD, state, O_PATH | O_CLOEXEC) {
            // Nothing of that name is there; to know that the directory has to be read.
            if let Some(starts) = open(state, words.add(STARTS), O_PATH | O_CLOEXEC) {
                close(starts);
            }
            close(state);
        }
    }
}

/// What the kernel tells of a process by this number (getauxval(3)); 0 if it does not.
///
/// # Safety
/// Pairs of words that end with a zero.
#[inline(always)]
unsafe fn told(mut pairs: *const usize, number: usize) -> usize {
    // SAFETY: as the caller says.
    unsafe {
        while *pairs != 0 {
            if *pairs == number {
                return *pairs.add(1);
            }
            pairs = pairs.add(2);
        }
    }
    0
}

/// How much of the program's file a start needs: until the end of its data (`first.ld`), all if it has none.
///
/// # Safety
/// So many program headers are there.
#[inline(always)]
unsafe fn needed(mut headers: *const libc::Elf64_Phdr, count: usize) -> usize {
    let mut end = usize::MAX;
    let mut number = 0;
    while number < count {
        // SAFETY: as the caller says.
        unsafe {
            if (*headers).p_type == libc::PT_LOAD && (*headers).p_flags & libc::PF_W != 0 {
                end = (*headers).p_offset.wrapping_add((*headers).p_filesz) as usize;
            }
            headers = headers.add(1);
        }
        number += 1;
    }
    end
}

/// Whether a string is this one.
///
/// # Safety
/// Both end with a null character.
#[inline(always)]
unsafe fn is(string: *const u8, text: *const u8) -> bool {
    // SAFETY: as the caller says.
    unsafe { value_of(string, text).is_some_and(|rest| *rest == 0) }
}

/// What follows `name` in a string that begins so.
///
/// # Safety
/// Both end with a null character.
#[inline(always)]
unsafe fn value_of(mut string: *const u8, mut name: *const u8) -> Option<*const u8> {
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
unsafe fn open(directory: usize, path: *const u8, flags: usize) -> Option<usize> {
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
fn close(descriptor: usize) -> bool {
    // SAFETY: nothing uses it any more.
    let result = unsafe { call(number::CLOSE, [descriptor, 0, 0, 0, 0, 0]) };
    result == 0 || result == -(libc::EBADF as isize)
}

/// Asks for the first `needed` bytes of a program, unless half of them are in memory: then it was used of late, and what is missing is what
/// nobody uses. Whether it did. Before them it asks for what its attribute `way` names. Waits for nothing but the file's extent map. What cannot be asked for
/// comes as it is needed.
///
/// # Safety
/// `way` is a string that ends with a null character.
#[unsafe(link_section = ".text.headstart_first")]
pub(super) unsafe fn ask_for(program: usize, page: usize, needed: usize, way: *const u8) -> bool {
    // SAFETY: only asks where the end is.
    let end = unsafe { call(number::LSEEK, [program, 0, libc::SEEK_END as usize, 0, 0, 0]) };
    let size = usize::try_from(end).unwrap_or(0);
    if size == 0 || size > MOST || page < 4096 {
        return false;
    }
    let size = if needed < size { needed } else { size };
    let mut there = MaybeUninit::<[u8; MOST_PAGES]>::uninit();
    let answer = there.as_mut_ptr().cast::<u8>();
    let (read, shared) = (libc::PROT_READ as usize, libc::MAP_SHARED as usize);
    // SAFETY: maps it anywhere, has as many bytes written as it has pages, and unmaps it: nothing else is there.
    let resident = unsafe {
        let map = call(number::MMAP, [0, size, read, shared, program, 0]);
        let Ok(map) = usize::try_from(map) else {
            return false;
        };
        let told = call(number::MINCORE, [map, size, answer as usize, 0, 0, 0]);
        call(number::MUNMAP, [map, size, 0, 0, 0, 0]);
        let mut resident = 0;
        let mut at = 0;
        // Where the kernel does not tell, nothing is in memory.
        while told == 0 && at * page < size {
            resident += usize::from(*answer.add(at) & 1);
            at += 1;
        }
        resident
    };
    if 2 * resident * page >= size {
        return false;
    }
    // SAFETY: as the caller says.
    unsafe { way::ask_for(program, way, |number, arguments| call(number, arguments)) };
    let mut offset = 0;
    while offset < size {
        // SAFETY: an advice.
        unsafe {
            call(
                number::FADVISE,
                [program, offset, CHUNK, libc::POSIX_FADV_WILLNEED as usize, 0, 0],
            )
        };
        offset += CHUNK;
    }
    true
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::residency;
    use crate::testing::{LoopFs, Spec, can_mount, wait_resident};
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_cold_program_is_asked_for_whole_and_one_in_use_is_left() {
        if !can_mount() {
            return;
        }
        const SIZE: u64 = 6 << 20;
        let page = rustix::param::page_size();
        let mut disk = LoopFs::create(&Spec::new("ext4"), |root| {
            fs::write(root.join("program"), vec![7; SIZE as usize])?;
            File::create(root.join("large"))?.set_len(MOST as u64 + 1)
        })
        .unwrap();
        let open = |disk: &LoopFs, name: &str| File::open(disk.mount_point().join(name)).unwrap();
        let resident = |file: &File| residency::resident_pages(file, 0, SIZE).unwrap();
        let needed = |file: &File, needed| {
            let way = super::super::note::WAY.as_ptr().cast();
            // SAFETY: a string.
            unsafe { super::ask_for(file.as_raw_fd() as usize, page, needed, way) }
        };
        let ask_for = |file: &File| needed(file, usize::MAX);
        let program = open(&disk, "program");
        assert_eq!(resident(&program), 0);
        // A part of it first.
        assert!(needed(&program, 1 << 20));
        wait_resident(&program, 1 << 20).unwrap();
        // And nothing behind it.
        assert!(resident(&program) <= (1 << 20) / page as u64);
        assert!(!needed(&program, 1 << 20));
        assert!(ask_for(&program));
        wait_resident(&program, SIZE).unwrap();
        assert_eq!(resident(&program), SIZE / page as u64);

        let large = open(&disk, "large");
        assert!(!ask_for(&large));
        assert_eq!(resident(&large), 0, "it was not made to be installed");

        drop((program, large));
        disk.remount_cold().unwrap();
        let program = open(&disk, "program");
        // More than half, for the kernel may take a page from memory.
        const THERE: u64 = SIZE * 3 / 4;
        for chunk in 0..THERE / CHUNK as u64 {
            residency::fadvise_willneed(&program, chunk * CHUNK as u64, CHUNK as u64).unwrap();
        }
        // Nothing behind it is read ahead.
        rustix::fs::fadvise(&program, 0, None, rustix::fs::Advice::Random).unwrap();
        for chunk in 1..=THERE / CHUNK as u64 {
            wait_resident(&program, chunk * CHUNK as u64).unwrap();
        }
        assert!(!ask_for(&program));
        let missing = (SIZE - THERE) / page as u64;
        let after = resident(&program);
        assert!(
            after <= SIZE / page as u64 - missing,
            "what is missing is what nobody uses: {after}"
        );
    }
}
