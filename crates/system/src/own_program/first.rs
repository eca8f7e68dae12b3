//! What headstart begins with: what a start needs of its own file, asked for in one go, and what leads to its
//! state, before anything else is touched of either.
//!
//! A cold program comes as it is needed: a major fault for each window of 128 KiB, and each waits for the one
//! before. Until `main` of a static program they are thirty, most of them for relocations. So this is what it
//! begins with, where somebody waits for it (`headstart run`, `headstart boot run`): `build.rs` of the
//! command has the linker take `headstart_first` for the first instruction, and put it into the page that the
//! program's header is in; it goes on to the C library's. The same script puts what a start needs before all
//! the rest of the file: it ends with the program's data.
//!
//! Nothing is relocated then and no library has begun: what runs here may use neither. It needs one page, and
//! what it asks for comes in one sweep.

use super::bare::{
    AT_FDCWD, KILLED, O_CLOEXEC, O_PATH, call, close, equals, exit, fork, number, open, value_of, wait,
    without_core,
};
use super::command::execute;
use super::risk::{be_silent, can_begin, is_long, is_risky};
use super::way;
use super::words::*;
use super::{CAREFUL, ORDINARY, REHEARSED, SCOUT};
use core::arch::global_asm;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, Ordering};

/// The device serves no more than this from one call, at least.
const CHUNK: usize = 128 << 10;
/// A file that is larger was not made to be installed, and is left to come as it is needed.
const MOST: usize = 64 << 20;
/// Its pages where they are smallest.
const MOST_PAGES: usize = MOST / 4096;

// At the entry the stack pointer points to the number of arguments, and one register holds what is to be
// called at the end. All that runs here, and the words that it knows, lie together: each other page would be
// another read.
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
    words!(),
    ".popsection",
    begin = sym run_first,
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
    words!(),
    ".balign 4",
    ".popsection",
    begin = sym run_first,
    role = sym ROLE,
);

/// What this process is, as [`super::role`] tells it. Written before anything else runs.
static ROLE: AtomicU8 = AtomicU8::new(ORDINARY);

/// What this process is.
pub(super) fn role() -> u8 {
    ROLE.load(Ordering::Relaxed)
}

const PAGE_SIZE: usize = libc::AT_PAGESZ as usize;
const HEADERS: usize = libc::AT_PHDR as usize;
const HEADER_COUNT: usize = libc::AT_PHNUM as usize;

/// What is done first.
///
/// # Safety
/// `stack` is the stack pointer at the entry of a process, `words` are those above, `role` is [`ROLE`].
#[unsafe(link_section = ".text.headstart_first")]
unsafe extern "C" fn run_first(stack: *mut usize, words: *const u8, role: *const AtomicU8) {
    // SAFETY: their number, the arguments, a null pointer, the environment, a null pointer, pairs of words
    // that end with a zero: the layout of every process.
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
            if equals(word, words.add(END_OF_OPTIONS)) {
                command = number;
                break;
            } else if !waited_for && equals(word, words.add(RUN)) {
                waited_for = true;
            } else if equals(word, words.add(OPTION)) && number < count {
                state = *arguments.add(number);
                number += 1;
            } else if let Some(value) = value_of(word, words.add(OPTION_WITH_VALUE)) {
                state = value;
            } else if equals(word, words.add(NAME)) || equals(word, words.add(CONTROL)) {
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
            // What is asked for ahead is asked for by a process that may be killed for it. It is waited for:
            // the command would count it among its children, and its control group among its tasks.
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

/// How a scout ends that cannot rehearse.
const NOT_REHEARSED: usize = 101;
/// The status with which the command line is refused.
const USAGE: i32 = 2;
/// Asks for what a start needs of this program's file and, if that was not in memory, of the way to the
/// state.
///
/// # Safety
/// `pairs` are words that end with a zero, `state` is a string that ends with a null character, `words` are
/// those above.
#[unsafe(link_section = ".text.headstart_first")]
unsafe fn ahead(pairs: *const usize, state: *const u8, words: *const u8) {
    // SAFETY: as the caller says.
    unsafe {
        let page = auxiliary_value(pairs, PAGE_SIZE);
        // Each by itself: to tell one of three the compiler would make a table, which is a read of another
        // page.
        let headers = auxiliary_value(pairs, HEADERS) as *const libc::Elf64_Phdr;
        let needed = needed(headers, auxiliary_value(pairs, HEADER_COUNT));
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
unsafe fn auxiliary_value(mut pairs: *const usize, number: usize) -> usize {
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

/// Asks for the first `needed` bytes of a program, unless half of them are in memory: then it was used of
/// late, and what is missing is what nobody uses. Whether it did. Before them it asks for what its attribute
/// `way` names. Waits for nothing but the file's extent map. What cannot be asked for comes as it is needed.
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
    // SAFETY: maps it anywhere, has as many bytes written as it has pages, and unmaps it: nothing else is
    // there.
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
