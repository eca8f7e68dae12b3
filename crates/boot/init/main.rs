//! `headstart-init`, what stands in the place of process 1 until headstart has begun:
//! `init=/usr/sbin/headstart-init` on the kernel command line, or that as a container's command.
//!
//! On a cold disk the real init alone reads for seconds, and without an initramfs nothing runs before it. So
//! this program forks, the child becomes `headstart boot run`, and process 1 waits until the child releases
//! it, ends, or has had its time (`wait`); then it becomes the real init, with the arguments and the
//! environment that it was given itself. The real init finds a child that it did not start; systemd puts it
//! into `init.scope`. Where an initramfs has started headstart already, it waits for the word of that one.
//!
//! As one of systemd's generators (systemd.generator(7); a link of `headstart boot enable`) it does the same:
//! process 1 waits for those before it reads any unit. The child goes back to the mounts of process 1, for
//! systemd 254 and later shows generators a copy of them in which nothing can be written, and the generator
//! waits in the place of process 1, but not as long as systemd would. It says nothing, and leaves no unit.
//! Once systemd has begun, at a reload, it does nothing.
//!
//! `headstart-init --decide` is what the unit and an initramfs ask, in the root's directory, before headstart
//! is executed: it asks for that, too, and fails where this boot is bypassed. `headstart-init --whole` says
//! whether its file is, before an initramfs has process 1 be it. By `headstart-init --wait`
//! `headstart-barrier.service` waits as process 1 does.
//!
//! A program of its own, without a library: a machine whose process 1 ends does not come up, and here there
//! is nothing that could end it, no memory to be had, no `/dev/null` to be opened by a runtime. It is three
//! pages, and the first thing that it does is to ask for what it needs of headstart in one go, where the
//! kernel would take page after page. Built by `build.rs`, part of the headstart command, written to its
//! place by `headstart boot enable`.

#![no_std]
#![no_main]

include!("../../store/src/name_of_boots.rs");

mod ahead;
mod bare;
mod bypass;
mod room;
mod syscall;
mod wait;
#[path = "../../system/src/own_program/way.rs"]
mod way;

use bare::{call, is_readable};
use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::ptr::null;
use wait::Wait;

/// Left by a headstart that was started in an initramfs: a pipe by which it releases process 1.
const RUNS_ALREADY: &CStr = c"/run/headstart/init";
/// The same for units that begin when the root has become writable.
const BARRIER: &CStr = c"/run/headstart/barrier";
/// What is there when there is nothing for a generator to begin: another headstart serves this boot, or found
/// it bypassed; systemd listens already, and so has read its units before, in an initramfs or this boot; or
/// this is an initramfs.
const NOT_FOR_GENERATORS: [&CStr; 4] = [
    c"/run/headstart/boot.lock",
    c"/run/headstart/bypassed",
    c"/run/systemd/private",
    c"/etc/initrd-release",
];
/// What there is in the kernel that takes the place of one that has crashed, to save its memory.
const CRASHED: &CStr = c"/proc/vmcore";
/// This program's file.
const ITSELF: &CStr = c"/proc/self/exe";
/// The mounts of process 1.
const MOUNTS_OF_PROCESS_1: &CStr = c"/proc/1/ns/mnt";
const ROOT_OF_PROCESS_1: &CStr = c"/proc/1/root";
/// The word by which it asks to wait on; any other releases.
const WAIT_ON: u8 = b'w';
/// Words that are read at once: a writer who has sent many is caught up with.
const WORDS: usize = 64;
/// Less than any device's request limit, beyond which an advice is cut off silently.
const CHUNK: usize = 128 << 10;
/// The most digits of a number, and the null character behind them.
const DIGITS: usize = 20;

/// No other file is asked for beyond this: a plan is no larger, and a size is only what a file system says.
const MOST_AHEAD: usize = 64 << 20;

/// A path that ends with a null character, when this is compiled.
const fn path(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(path) => path,
        Err(_) => panic!(),
    }
}

/// Where the kernel looks for an init.
const INITS: [&CStr; 4] = [c"/sbin/init", c"/etc/init", c"/bin/init", c"/bin/sh"];
/// What headstart reads, and then writes, before the replay; itself and what it needs first of what was
/// learned are asked for already (`bypass::is_bypassed`).
const ASKED_FIRST: [&CStr; 2] = [
    path(concat!(
        "/var/lib/headstart/starts/",
        name_of_boots!(),
        ".guard\0"
    )),
    bypass::CONFIGURATION,
];

/// The attribute of headstart's file that names what leads to its state
/// (`headstart_system::own_program::note_way`).
const WAY: &CStr = c"trusted.headstart";
/// Where packages install headstart, from the directory that this program is started in: see
/// `bypass::BYPASS`.
const INSTALLED: &CStr = c"usr/bin/headstart";
/// The same of this program (`headstart_boot::units::INIT`).
const OWN_INSTALLED: &CStr = c"usr/sbin/headstart-init";
const OWN: &CStr = c"/usr/sbin/headstart-init";
/// Where it is installed.
const COMMANDS: [&CStr; 4] = [
    c"/usr/bin/headstart",
    c"/usr/sbin/headstart",
    c"/usr/local/sbin/headstart",
    c"/usr/local/bin/headstart",
];

const AT_FDCWD: usize = -100isize as usize;
const O_NOCTTY: usize = 0o400;
const O_NONBLOCK: usize = 0o4000;
const O_CLOEXEC: usize = 0o2000000;
const O_PATH: usize = 0o10000000;
const EAGAIN: isize = -11;
const F_SETFD: usize = 2;
const CLONE_NEWNS: usize = 0x20000;
const CLOCK_MONOTONIC: usize = 1;
const SEEK_END: usize = 2;
const POSIX_FADV_WILLNEED: usize = 3;
const SIGCHLD: usize = 17;

fn print_error(text: &CStr) {
    say(2, text);
}

fn say(descriptor: usize, text: &CStr) {
    // SAFETY: a string of this length. Without such a descriptor nobody is told.
    unsafe {
        call(
            syscall::WRITE,
            [descriptor, text.as_ptr() as usize, text.count_bytes(), 0, 0],
        )
    };
}

fn end(status: usize) -> ! {
    loop {
        // SAFETY: ends this process.
        unsafe { call(syscall::EXIT, [status, 0, 0, 0, 0]) };
    }
}

/// Becomes a program; returns if it cannot.
///
/// # Safety
/// `arguments` and `environment` are lists of strings that end with a null pointer.
unsafe fn become_program(path: &CStr, arguments: *const *const c_char, environment: *const *const c_char) {
    // SAFETY: see above.
    unsafe {
        let arguments = [
            path.as_ptr() as usize,
            arguments as usize,
            environment as usize,
            0,
            0,
        ];
        call(syscall::EXECVE, arguments);
    }
}

/// Where the kernel put the arguments, and behind them the environment.
///
/// # Safety
/// `stack` is the stack pointer at the entry of a process.
pub(crate) unsafe extern "C" fn start(stack: *mut usize) -> ! {
    let began_ns = now_ns();
    // SAFETY: their number, the arguments, a null pointer, the environment, a null pointer: the layout of
    // every process.
    let (arguments, environment) = unsafe {
        let arguments: *mut *const c_char = stack.add(1).cast();
        (arguments, arguments.add(*stack + 1))
    };
    // SAFETY: no arguments.
    if unsafe { call(syscall::GETPID, [0; 5]) } != 1 {
        // SAFETY: as many arguments as there are said to be.
        if unsafe { *stack == 2 && bypass::begins_with(*arguments.add(1), b"--decide\0") } {
            if is_there(CRASHED) {
                end(1);
            }
            ask_for_way_to_headstart(OWN_INSTALLED);
            ask_for_headstart(INSTALLED);
            let is_bypassed = bypass::is_bypassed(bypass::is_said);
            if is_bypassed {
                print_error(c"this boot is bypassed: headstart boot status says why\n");
            }
            end(is_bypassed.into());
        }
        // SAFETY: the same.
        if unsafe { *stack == 2 && bypass::begins_with(*arguments.add(1), b"--wait\0") } {
            wait_at(BARRIER, Wait::new);
            end(0);
        }
        // SAFETY: the same.
        if unsafe { *stack == 2 && bypass::begins_with(*arguments.add(1), b"--whole\0") } {
            whole()
        }
        // SAFETY: the same. Three directories are what generators are given.
        if unsafe { *stack == 4 && bypass::begins_with(*arguments.add(1), b"/") } {
            if !NOT_FOR_GENERATORS.into_iter().any(is_there)
                && !wait_at(RUNS_ALREADY, Wait::of_generator)
                && is_to_begin(bypass::is_said)
            {
                start_headstart(environment, began_ns, Wait::of_generator, join_process_1);
            }
            end(0);
        }
        print_error(
            c"headstart-init: this is for process 1: put init=/usr/sbin/headstart-init on the kernel command line, or start a container by it\n",
        );
        end(1);
    }
    // SAFETY: the kernel's lists.
    let is_said =
        || unsafe { bypass::is_said_to_process_1([arguments.cast_const(), environment.cast_const()]) };
    if !wait_at(RUNS_ALREADY, Wait::new) && is_to_begin(is_said) {
        start_headstart(environment, began_ns, Wait::new, || {});
    }
    for init in INITS {
        // SAFETY: the lists are the kernel's; the first argument's place is there even where there is none.
        // It is the name by which a program was started.
        unsafe {
            if *stack > 0 {
                *arguments = init.as_ptr();
            }
            become_program(init, arguments, environment);
        }
    }
    print_error(c"headstart-init: no init can be started: /sbin/init, /etc/init, /bin/init, /bin/sh\n");
    end(1)
}

/// Says so if this file is as long as it was linked, by where its table of sections ends, which is its last
/// part: one that was cut off may begin well, and end process 1 later.
fn whole() -> ! {
    let header = {
        unsafe extern "C" {
            /// The beginning of this file in memory, as the linker puts it (elf(5)).
            static __ehdr_start: [u8; 64];
        }
        // SAFETY: nobody writes there.
        unsafe { &__ehdr_start }
    };
    let number = |at: usize, length: usize| {
        let bytes = header.iter().skip(at).take(length).rev();
        bytes.fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let least = number(0x28, 8) + number(0x3a, 2) * number(0x3c, 2);
    let size = open(ITSELF).map_or(0, |file| {
        // SAFETY: only asks where the end is.
        let size = unsafe { call(syscall::LSEEK, [file as usize, 0, SEEK_END, 0, 0]) };
        close(file);
        usize::try_from(size).unwrap_or(0)
    });
    if size < least {
        end(1);
    }
    say(1, c"whole\n");
    end(0)
}

/// Whether there is a headstart and this boot is not bypassed. Headstart is asked for before the latter is
/// known, and comes while the directories are looked up that lead to its state: on a volume that fills as it
/// is read that takes longer than all of it. A boot that is bypassed, as they are where disks are fast, has
/// then read it for nothing.
fn is_to_begin(is_said: impl FnOnce() -> bool) -> bool {
    if is_there(CRASHED) {
        return false;
    }
    ask_for_way_to_headstart(OWN);
    let is_asked_for = COMMANDS.into_iter().any(ask_for_headstart);
    is_asked_for && !bypass::is_bypassed(is_said)
}

/// Whether a headstart that runs has left a pipe there; its word has then been waited for.
fn wait_at(path: &CStr, limit: fn(i64) -> Wait) -> bool {
    let Some(pipe) = open(path) else {
        return false;
    };
    wait(pipe, limit);
    true
}

/// Whether there is something of this name.
fn is_there(path: &CStr) -> bool {
    // Also a socket, which cannot be opened otherwise.
    open_as(path, O_PATH | O_CLOEXEC).map(close).is_some()
}

/// Opens a file to be read, never waiting for anybody who would write; `None` if that cannot be.
fn open(path: &CStr) -> Option<i32> {
    open_as(path, O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
}

fn open_as(path: &CStr, flags: usize) -> Option<i32> {
    // SAFETY: a string.
    let file = unsafe { call(syscall::OPENAT, [AT_FDCWD, path.as_ptr() as usize, flags, 0, 0]) };
    i32::try_from(file).ok().filter(|file| *file >= 0)
}

/// Starts headstart, which gets to know when this program began, and waits for its word. Where something of
/// that cannot be, the boot goes on without.
fn start_headstart(
    environment: *const *const c_char,
    began_ns: Option<i64>,
    limit: fn(i64) -> Wait,
    first: fn(),
) {
    let mut pipe = [0i32; 2];
    let flags = O_NONBLOCK | O_CLOEXEC;
    // SAFETY: a place for two descriptors.
    if unsafe { call(syscall::PIPE2, [pipe.as_mut_ptr() as usize, flags, 0, 0, 0]) } < 0 {
        return;
    }
    // SAFETY: forks; memory is not shared.
    match unsafe { call(syscall::CLONE, [SIGCHLD, 0, 0, 0, 0]) } {
        0 => {
            close(pipe[0]);
            first();
            child(pipe[1], began_ns, environment);
            end(0)
        }
        child => {
            close(pipe[1]);
            if child > 0 {
                wait(pipe[0], limit);
            }
        }
    }
}

/// Enters the mounts and the root of process 1. Where that is not allowed, systemd was not allowed to make
/// others either.
fn join_process_1() {
    let (Some(mounts), Some(root)) = (
        open(MOUNTS_OF_PROCESS_1),
        open_as(ROOT_OF_PROCESS_1, O_PATH | O_CLOEXEC),
    ) else {
        return;
    };
    // SAFETY: descriptors of this process's own, which has one thread, and a string.
    unsafe {
        if call(syscall::SETNS, [mounts as usize, CLONE_NEWNS, 0, 0, 0]) == 0 {
            call(syscall::FCHDIR, [root as usize, 0, 0, 0, 0]);
            call(syscall::CHROOT, [c".".as_ptr() as usize, 0, 0, 0, 0]);
        }
    }
    close(mounts);
    close(root);
}

fn close(descriptor: i32) {
    // SAFETY: one of this program's own, and not used any more.
    unsafe { call(syscall::CLOSE, [descriptor as usize, 0, 0, 0, 0]) };
}

/// Waits for the word that releases, the end of who could give it, or as long as [`Wait`] says, and closes
/// the pipe, which does not block. Process 1 gets no signal that it does not ask for.
fn wait(pipe: i32, limit: fn(i64) -> Wait) {
    let Some(begun_ms) = now_ms() else {
        close(pipe);
        return;
    };
    let wait = limit(begun_ms);
    while let Some(patience_ms) = now_ms().and_then(|now_ms| wait.patience_ms(now_ms)) {
        let mut words = MaybeUninit::<[u8; WORDS]>::uninit();
        let arguments = [pipe as usize, words.as_mut_ptr() as usize, WORDS, 0, 0];
        // SAFETY: room for so many bytes.
        let there = unsafe { call(syscall::READ, arguments) };
        let goes_on = match there {
            1.. => {
                // SAFETY: the kernel has filled as many bytes as it says.
                let words =
                    unsafe { core::slice::from_raw_parts(words.as_ptr().cast::<u8>(), there as usize) };
                words.iter().all(|word| *word == WAIT_ON)
            }
            // Nothing yet, but somebody who may write.
            EAGAIN => is_readable(pipe, patience_ms),
            _ => false,
        };
        if !goes_on {
            break;
        }
    }
    close(pipe);
}

/// What the clock says that only goes forward, ms; `None` without one.
fn now_ms() -> Option<i64> {
    now_ns().map(|now_ns| now_ns / 1_000_000)
}

/// The same in nanoseconds.
fn now_ns() -> Option<i64> {
    let mut now = [0i64; 2];
    let arguments = [CLOCK_MONOTONIC, now.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: room for a `struct timespec` of 64 bits each.
    if unsafe { call(syscall::CLOCK_GETTIME, arguments) } < 0 {
        return None;
    }
    Some(now[0].wrapping_mul(1_000_000_000).wrapping_add(now[1]))
}

/// Becomes headstart, which gets the end of the pipe to tell by, and no other descriptor of this program's.
fn child(tell: i32, began_ns: Option<i64>, environment: *const *const c_char) {
    // SAFETY: changes a flag of this process's own descriptor, which is to be there after the execution.
    unsafe { call(syscall::FCNTL, [tell as usize, F_SETFD, 0, 0, 0]) };
    // SAFETY: no arguments. A terminal's signals are not for the child.
    unsafe { call(syscall::SETSID, [0; 5]) };
    let (mut pipe, mut began) = ([0u8; DIGITS], [0u8; DIGITS]);
    let pipe = in_digits(tell.into(), &mut pipe);
    // Where there is no clock, 0 is not believed.
    let began = in_digits(began_ns.unwrap_or(0), &mut began);
    // While headstart comes: what is asked of a disk one after the other.
    for path in ASKED_FIRST {
        ask_for(path, MOST_AHEAD);
    }
    for command in COMMANDS {
        let arguments: [*const c_char; 8] = [
            command.as_ptr(),
            c"boot".as_ptr(),
            c"run".as_ptr(),
            c"--init".as_ptr(),
            pipe,
            c"--began".as_ptr(),
            began,
            null(),
        ];
        // SAFETY: a list of strings that ends with a null pointer, and the kernel's.
        unsafe { become_program(command, arguments.as_ptr(), environment) };
    }
}

/// A number that is not negative, as text that ends with a null character.
fn in_digits(number: i64, room: &mut [u8; DIGITS]) -> *const c_char {
    let mut at = DIGITS - 1;
    let mut rest = number;
    loop {
        at -= 1;
        room[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 || at == 0 {
            return room[at..].as_ptr().cast();
        }
    }
}

/// Asks for what leads to headstart's state, and for what it needs of itself; whether it is there.
fn ask_for_headstart(path: &CStr) -> bool {
    let Some(descriptor) = open(path) else {
        return false;
    };
    ask_for_way(descriptor);
    ask_for_open(descriptor, ahead::OF_HEADSTART);
    true
}

/// Asks for what an open file's attribute names.
#[inline(never)]
fn ask_for_way(descriptor: i32) {
    // SAFETY: a string, and system calls by their numbers, none of which takes more arguments.
    unsafe {
        way::ask_for(
            descriptor as usize,
            WAY.as_ptr().cast(),
            |number, [a, b, c, d, e, _]| call(number, [a, b, c, d, e]),
        )
    };
}

/// Asks for what leads to headstart itself, by the attribute of this program's file: two reads that wait for
/// one another, of a directory that process 1 has not read yet.
fn ask_for_way_to_headstart(own: &CStr) {
    if let Some(descriptor) = open(own) {
        ask_for_way(descriptor);
        close(descriptor);
    }
}

/// Asks for a file up to so many bytes; whether it is there.
fn ask_for(path: &CStr, most: usize) -> bool {
    let Some(descriptor) = open(path) else {
        return false;
    };
    ask_for_open(descriptor, most);
    true
}

/// The same of one that is open, and then closed.
fn ask_for_open(descriptor: i32, most: usize) {
    let file = descriptor as usize;
    // SAFETY: only asks where the end is.
    let size = unsafe { call(syscall::LSEEK, [file, 0, SEEK_END, 0, 0]) };
    let size = usize::try_from(size).unwrap_or(0);
    let mut offset = 0;
    while offset < size && offset < most {
        // SAFETY: an advice.
        unsafe { call(syscall::FADVISE, [file, offset, CHUNK, POSIX_FADV_WILLNEED, 0]) };
        offset += CHUNK;
    }
    close(descriptor);
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Nothing here panics; what the compiler cannot know of that ends a process as an error would.
    end(1)
}
