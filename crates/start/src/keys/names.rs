//! How names of files become real ones, and what a script's first line says.

use headstart_system::mounts::MountTable;
use headstart_system::open::{Expect, read_small};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Who knows what a path of a command line leads to.
pub trait Names {
    /// The path with symbolic links resolved; made absolute if nothing is there. `None` if it cannot be told.
    fn real(&self, path: &Path) -> Option<PathBuf>;

    /// Whether something is there.
    fn is_there(&self, path: &Path) -> bool;

    /// Whether the kernel starts this executable for files of some format (binfmt_misc).
    fn is_registered(&self, executable: &Path) -> bool;

    /// From where relative paths lead, where that is known.
    fn directory(&self) -> Option<PathBuf>;

    /// The bytes of a regular file, of so many at most; nothing of one that has more.
    fn content(&self, path: &Path, most: usize) -> Option<Vec<u8>> {
        let _ = (path, most);
        None
    }

    /// The lowest layer of the overlay that is mounted at a path.
    fn lowest_layer(&self, path: &Path) -> Option<PathBuf> {
        let _ = path;
        None
    }
}

/// This process, for a command that it is about to start.
pub struct LocalNames;

impl Names for LocalNames {
    fn real(&self, path: &Path) -> Option<PathBuf> {
        Some(real(path))
    }

    fn is_there(&self, path: &Path) -> bool {
        std::fs::symlink_metadata(path).is_ok()
    }

    fn is_registered(&self, executable: &Path) -> bool {
        super::is_registered(executable)
    }

    fn directory(&self) -> Option<PathBuf> {
        std::env::current_dir().ok()
    }

    fn content(&self, path: &Path, most: usize) -> Option<Vec<u8>> {
        let mounts = MountTable::read().ok()?;
        read_small(&mounts, &real(path), most, false, &Expect::default()).ok()
    }

    fn lowest_layer(&self, path: &Path) -> Option<PathBuf> {
        lowest_layer(&MountTable::read().ok()?, path)
    }
}

/// A container, of whose files nothing is known here.
pub struct Inside;

impl Names for Inside {
    fn real(&self, path: &Path) -> Option<PathBuf> {
        Some(path.to_owned())
    }

    fn is_there(&self, _: &Path) -> bool {
        false
    }

    fn is_registered(&self, _: &Path) -> bool {
        false
    }

    fn directory(&self) -> Option<PathBuf> {
        None
    }
}

/// The lowest layer of the overlay that is mounted at a path, as whoever mounted it named that.
pub fn lowest_layer(mounts: &MountTable, path: &Path) -> Option<PathBuf> {
    let mount = mounts.lookup(path.as_os_str().as_bytes())?;
    let lower = &mount.overlay.as_ref()?.lower;
    let is_there = mount.mount_point.as_path() == path;
    is_there.then(|| Some(lower.last()?.as_path().to_owned()))?
}

/// The path with symbolic links resolved; made absolute if nothing is there.
pub fn real(path: &Path) -> PathBuf {
    path.canonicalize()
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

/// So much of a script's first line is read: the kernel reads no more (`BINPRM_BUF_SIZE`, linux/binfmts.h).
const FIRST_LINE: usize = 256;

/// The interpreter that the kernel starts for a file, with its one argument if there is one: of a script what
/// its first line names, of a file in a format that is registered (binfmt_misc) what that says. `None` if the
/// kernel starts the file itself.
pub fn interpreter(executable: &Path) -> Option<Vec<OsString>> {
    if !executable.is_file() {
        return None;
    }
    // Should it be a FIFO by now, nobody waits for it.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(executable)
        .ok()?;
    // Nothing of what follows is needed yet.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
    let mut start = Vec::with_capacity(FIRST_LINE);
    file.take(FIRST_LINE as u64).read_to_end(&mut start).ok()?;
    of_first_line(&start).or_else(|| Some(vec![super::registered::interpreter(executable, &start)?]))
}

/// The same of a file's beginning, as `load_script` (fs/binfmt_script.c) reads it.
fn of_first_line(start: &[u8]) -> Option<Vec<OsString>> {
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let (interpreter, argument) = match line.iter().position(blank) {
        Some(at) => (&line[..at], line[at..].trim_ascii()),
        None => (line, &line[..0]),
    };
    if interpreter.is_empty() {
        return None;
    }
    let word = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let words = [interpreter, argument]
        .into_iter()
        .filter(|part| !part.is_empty());
    Some(words.map(word).collect())
}

/// The words of env(1)'s option -S: parted by blanks; quotes and escapes are not seen through.
pub fn words(text: &OsStr) -> Option<Vec<OsString>> {
    let bytes = text.as_bytes();
    if bytes.iter().any(|byte| b"\\\"'$#".contains(byte)) {
        return None;
    }
    let parts = bytes
        .split(u8::is_ascii_whitespace)
        .filter(|part| !part.is_empty());
    Some(parts.map(|part| OsString::from_vec(part.to_vec())).collect())
}

/// Which of these words, with spaces between them, this one is.
pub fn one_of(words: &'static str, one: &[u8]) -> Option<&'static str> {
    words.split_ascii_whitespace().find(|word| word.as_bytes() == one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_line_is_read_as_the_kernel_reads_it() {
        let words = |line: &str| of_first_line(line.as_bytes());
        let list = |words: &[&str]| Some(words.iter().map(OsString::from).collect());
        assert_eq!(words("#!/bin/sh\necho"), list(&["/bin/sh"]));
        assert_eq!(
            words("#! /usr/bin/env  python3 \n"),
            list(&["/usr/bin/env", "python3"])
        );
        assert_eq!(words("#!/usr/bin/perl -w -T"), list(&["/usr/bin/perl", "-w -T"]));
        for none in ["", "#!", "#! \n/bin/sh", "\u{7f}ELF", "echo", " #!/bin/sh"] {
            assert_eq!(words(none), None, "{none:?}");
        }
    }
}
