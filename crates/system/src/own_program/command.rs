//! Becoming the command without headstart: at once, where a library's calls are at risk.

use super::bare::{call, exit, number, value_of};
use super::words::{NOT_RUN, NOT_RUN_END, SEARCHED, SEARCHED_ELSE, SHELL};
use core::mem::MaybeUninit;

/// A path is no longer, bytes.
const PATH: usize = libc::PATH_MAX as usize;

/// Becomes the command, looked for as execvp(3) does; else says so, and ends as shells do then.
///
/// # Safety
/// `command` are its words, behind another word, and a null pointer; `environment` as well; `words` are those
/// above.
#[unsafe(link_section = ".text.headstart_first")]
pub(super) unsafe fn execute(command: *mut *const u8, environment: *const *const u8, words: *const u8) {
    let mut room = MaybeUninit::<[u8; PATH]>::uninit();
    let file = room.as_mut_ptr().cast::<u8>();
    let mut is_searched = false;
    // SAFETY: strings that end with a null character; no more is written than there is room for, and of the
    // arguments none before the command's.
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
                    // Volatile, or the compiler calls the C library's function for it, which is not there
                    // yet.
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
                // As the session says it: a directory of the search that is none is no answer, a file in the
                // place of the command's directory is one.
                is_searched |= error != libc::ENOENT && (is_path || error != libc::ENOTDIR);
            }
            if last {
                break;
            }
        }
        let said = [2, words.add(NOT_RUN) as usize, NOT_RUN_END - NOT_RUN, 0, 0, 0];
        call(number::WRITE, said);
    }
    exit(if is_searched { 126 } else { 127 });
}
