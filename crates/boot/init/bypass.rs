//! Whether this boot is bypassed, found out before headstart is executed: by a file of five lines
//! (`headstart_store::Bypass`), or because nothing is known of boots and nothing could be kept.

use super::{MOST_AHEAD, ask_for, call, close, open, path, room, syscall};
use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;

/// That of the key `boot` in the state directory of root; where that is not mounted yet nothing is bypassed.
/// From the directory that the program is started in: the root itself, or in an initramfs the one that
/// follows.
const BYPASS: &CStr = path(concat!("var/lib/headstart/keys/", name_of_boots!(), "/bypass\0"));
/// What is needed first of boots that are read ahead (`headstart_store::State`): where it is, none is
/// bypassed.
const START: &CStr = path(concat!("var/lib/headstart/starts/", name_of_boots!(), "\0"));
const PLAN: &CStr = path(concat!("var/lib/headstart/keys/", name_of_boots!(), "/plan\0"));
/// Where all of that is kept.
const STATE: &CStr = c"var/lib/headstart";
const MACHINE_ID: &CStr = c"etc/machine-id";
pub const CONFIGURATION: &CStr = c"etc/headstart/headstart.toml";
/// The kernel command line, and what stands for it in a container.
const COMMAND_LINES: [&CStr; 2] = [c"/proc/cmdline", c"/proc/1/cmdline"];
/// A command line is read no further than this, in parts as large as a [`Room`]: 256 KiB, more than any
/// kernel takes and than an administrator writes for a container.
const MOST_PARTS: usize = 672;
/// How a word begins that decides about a boot.
const WORD: &[u8] = b"headstart=";
/// A random number for each boot, in hexadecimal digits.
const BOOT_ID: &CStr = c"/proc/sys/kernel/random/boot_id";

/// A `struct utsname` is six texts of this length, of which the third is the release.
const TEXT: usize = 65;
const NOSUID_NODEV_NOEXEC: usize = 2 | 4 | 8;

/// Room for what is read: nothing here may need the functions of a library, by which the compiler would clear
/// it.
type Room = MaybeUninit<[u8; 6 * TEXT]>;

/// Whether this boot is bypassed, and nobody has decided otherwise: headstart itself knows what is
/// configured, and what the kernel command line says, which `is_said` tells.
pub fn is_bypassed(is_said: impl FnOnce() -> bool) -> bool {
    if ask_for(START, MOST_AHEAD) {
        return false;
    }
    let mut room = Room::uninit();
    let mut lines = read(BYPASS, &mut room).iter().copied();
    let Some(every) = decimal(&mut lines) else {
        return is_in_vain() && !is_said() && !is_configured();
    };
    if !is_this_kernel(&mut lines) || !is_this_machine(&mut lines) || is_said() || is_configured() {
        return false;
    }
    let draw = draw().or_else(|| {
        // As systemd would do it next, which keeps what it finds.
        let proc = c"proc".as_ptr() as usize;
        let arguments = [proc, c"/proc".as_ptr() as usize, proc, NOSUID_NODEV_NOEXEC, 0];
        // SAFETY: strings, and no data.
        unsafe { call(syscall::MOUNT, arguments) };
        draw()
    });
    draw.and_then(|draw| draw.checked_rem(every))
        .is_some_and(|rest| rest != 0)
}

/// Whether there is no plan, and no room for what this boot would teach.
fn is_in_vain() -> bool {
    // A `struct statfs` of 64 bits each, of which nine are here and the rest a few more.
    let mut facts = [0u64; 15];
    let arguments = [STATE.as_ptr() as usize, facts.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: a string, and room for a `struct statfs`.
    if open(PLAN).map(close).is_some() || unsafe { call(syscall::STATFS, arguments) } < 0 {
        return false;
    }
    let [kind, block, _, free_blocks, _, inodes, free_inodes, ..] = facts;
    let room = room::Room {
        kind,
        block,
        free_blocks,
        inodes,
        free_inodes,
    };
    !room.is_enough()
}

/// A number, up to the end of its line.
fn decimal(bytes: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut number: u32 = 0;
    loop {
        match bytes.next()? {
            b'\n' => return Some(number),
            digit @ b'0'..=b'9' => number = number.wrapping_mul(10).wrapping_add((digit - b'0').into()),
            _ => return None,
        }
    }
}

/// Whether the line is this kernel's release.
fn is_this_kernel(line: &mut impl Iterator<Item = u8>) -> bool {
    let mut room = Room::uninit();
    // SAFETY: room for a `struct utsname`, which the kernel fills.
    unsafe {
        call(syscall::UNAME, [room.as_mut_ptr() as usize, 0, 0, 0, 0]);
        let mut release = room.as_ptr().cast::<u8>().add(2 * TEXT);
        while *release != 0 {
            if line.next() != Some(*release) {
                return false;
            }
            release = release.add(1);
        }
    }
    line.next() == Some(b'\n')
}

/// Whether the line is this machine's name, as an image that is started on another has another or none; empty
/// where there is none.
fn is_this_machine(line: &mut impl Iterator<Item = u8>) -> bool {
    let mut room = Room::uninit();
    for byte in read(MACHINE_ID, &mut room) {
        if *byte == b'\n' {
            break;
        }
        if line.next() != Some(*byte) {
            return false;
        }
    }
    line.next() == Some(b'\n')
}

/// The number by chance that `headstart boot run` draws too: the last eight digits.
fn draw() -> Option<u32> {
    let mut room = Room::uninit();
    let mut draw = None;
    for byte in read(BOOT_ID, &mut room) {
        let digit = match *byte {
            digit @ b'0'..=b'9' => digit - b'0',
            digit @ b'a'..=b'f' => digit - b'a' + 10,
            _ => continue,
        };
        draw = Some(draw.unwrap_or(0) << 4 | u32::from(digit));
    }
    draw
}

/// Whether a word of the kernel command line decides about headstart, as it comes to process 1: an argument
/// or a variable.
///
/// # Safety
/// `lists` are ones of strings that end with a null pointer.
pub unsafe fn is_said_to_process_1(lists: [*const *const c_char; 2]) -> bool {
    // SAFETY: see above.
    lists.into_iter().any(|mut list| unsafe {
        while !(*list).is_null() {
            if begins_with(*list, WORD) {
                return true;
            }
            list = list.add(1);
        }
        false
    })
}

/// Whether a string begins so.
///
/// # Safety
/// It ends with a null character, which is none of `word`'s but the last.
pub unsafe fn begins_with(string: *const c_char, word: &[u8]) -> bool {
    let mut at = string.cast::<u8>();
    // SAFETY: it is not read beyond its end.
    word.iter().all(|byte| unsafe {
        let same = *at == *byte;
        at = at.add(usize::from(same));
        same
    })
}

/// The same for any other process, which can read it.
pub fn is_said() -> bool {
    COMMAND_LINES.into_iter().any(has_word)
}

/// Whether a word in a file decides about headstart; also where it is too long to tell, for headstart itself
/// reads it all.
fn has_word(path: &CStr) -> bool {
    let Some(file) = open(path) else {
        return false;
    };
    let mut room = Room::uninit();
    // How much of it this word has been so far, if it may be it.
    let mut matched = Some(0);
    for _ in 0..MOST_PARTS {
        let bytes = next(file, &mut room);
        for byte in bytes {
            matched = match (byte, matched) {
                (b' ' | b'\t' | b'\n' | 0, _) => Some(0),
                (_, Some(at)) if WORD.get(at) == Some(byte) => Some(at + 1),
                _ => None,
            };
            if matched == Some(WORD.len()) {
                close(file);
                return true;
            }
        }
        if bytes.is_empty() {
            close(file);
            return false;
        }
    }
    close(file);
    true
}

/// Whether the configuration says something, which may be that nothing is bypassed: has a line that is
/// neither empty nor a comment nor a table's name.
fn is_configured() -> bool {
    let Some(file) = open(CONFIGURATION) else {
        return false;
    };
    let mut room = Room::uninit();
    let mut begins = true;
    for _ in 0..MOST_PARTS {
        let bytes = next(file, &mut room);
        for byte in bytes {
            match byte {
                b'\n' => begins = true,
                b' ' | b'\t' | b'\r' => {}
                b'#' | b'[' if begins => begins = false,
                _ if begins => {
                    close(file);
                    return true;
                }
                _ => {}
            }
        }
        if bytes.is_empty() {
            close(file);
            return false;
        }
    }
    close(file);
    true
}

/// The beginning of a file; nothing if it cannot be read.
fn read<'a>(path: &CStr, room: &'a mut Room) -> &'a [u8] {
    let Some(file) = open(path) else {
        return &[];
    };
    let bytes = next(file, room);
    close(file);
    bytes
}

/// What comes next of a file; nothing at its end.
fn next(file: i32, room: &mut Room) -> &[u8] {
    let arguments = [file as usize, room.as_mut_ptr() as usize, size_of::<Room>(), 0, 0];
    // SAFETY: room for so many bytes, of which the kernel has filled as many as it says.
    unsafe {
        let length = call(syscall::READ, arguments);
        core::slice::from_raw_parts(room.as_ptr().cast(), usize::try_from(length).unwrap_or(0))
    }
}
