//! Formats of executables that somebody has registered with the kernel, and what it starts for a file in one
//! of them (binfmt_misc).

use rustix::fs::{CWD, Mode, OFlags, RawDir, fstatfs, openat};
use std::ffi::{CStr, OsStr, OsString};
use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where they are told.
const PLACE: &CStr = c"/proc/sys/fs/binfmt_misc";

/// What that file system calls itself (`BINFMTFS_MAGIC`, linux/magic.h). Where systemd would mount it when it
/// is looked into there is another, and nothing is registered: nobody waits for that.
const MAGIC: u64 = 0x4249_4e4d;

/// So many are looked at: QEMU has forty.
const MOST: usize = 128;

/// More than one is told in: a name, a path, and twice 128 bytes in hexadecimal digits.
const TEXT: u64 = 8192;

/// What was found is believed for so long.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// One format.
#[derive(Clone, Debug, PartialEq)]
struct Format {
    interpreter: PathBuf,
    told_by: ToldBy,
}

#[derive(Clone, Debug, PartialEq)]
enum ToldBy {
    /// The end of a file's name, behind its last dot.
    Extension(Vec<u8>),
    /// Bytes at this offset, as far as the bits of the mask tell.
    Bytes {
        offset: usize,
        bytes: Vec<u8>,
        mask: Vec<u8>,
    },
}

/// The interpreter of a file whose first bytes these are, if the kernel does not execute it by itself.
pub fn interpreter(executable: &Path, start: &[u8]) -> Option<OsString> {
    if is_own(start) {
        return None;
    }
    let format = formats()
        .into_iter()
        .find(|format| format.is_of(executable, start))?;
    Some(format.interpreter.into_os_string())
}

/// Whether the kernel starts this executable, which is a real path, for files of some format.
pub fn is_registered(executable: &Path) -> bool {
    static KNOWN: Mutex<Option<(Instant, Vec<PathBuf>)>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_old = |(since, _): &(Instant, Vec<PathBuf>)| since.elapsed() > KNOWN_FOR;
    if known.as_ref().is_none_or(is_old) {
        let formats = formats().into_iter();
        *known = Some((
            Instant::now(),
            formats
                .map(|one| one.interpreter.canonicalize().unwrap_or(one.interpreter))
                .collect(),
        ));
    }
    known
        .as_ref()
        .is_some_and(|(_, all)| all.iter().any(|one| one == executable))
}

/// Whether it is a program of this machine's own kind (`e_machine`, elf(5)).
fn is_own(start: &[u8]) -> bool {
    let own: u16 = match std::env::consts::ARCH {
        "x86" => 3,
        "x86_64" => 62,
        "arm" => 40,
        "aarch64" => 183,
        "riscv32" | "riscv64" => 243,
        "s390x" => 22,
        "powerpc64" => 21,
        "loongarch64" => 258,
        _ => return false,
    };
    let machine = start
        .get(18..20)
        .and_then(|bytes| <[u8; 2]>::try_from(bytes).ok());
    start.starts_with(b"\x7fELF") && machine.map(u16::from_ne_bytes) == Some(own)
}

/// All that are registered and enabled.
fn formats() -> Vec<Format> {
    read_formats().unwrap_or_default()
}

fn read_formats() -> Option<Vec<Format>> {
    // So the place is not mounted by being looked at.
    let place = openat(CWD, PLACE, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    if fstatfs(&place).ok()?.f_type as u64 != MAGIC {
        return None;
    }
    let read = |name: &CStr| read(&place, name);
    if !read(c"status")?.starts_with("enabled") {
        return None;
    }
    let list = openat(
        &place,
        c".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let list = list.ok()?;
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&list, &mut space);
    let mut formats = Vec::new();
    while let Some(Ok(entry)) = entries.next() {
        if formats.len() >= MOST {
            break;
        }
        let is_one = !entry.file_name().to_bytes().starts_with(b".");
        formats.extend(is_one.then(|| parse(&read(entry.file_name())?)).flatten());
    }
    Some(formats)
}

fn read(place: &OwnedFd, name: &CStr) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // `register` can only be written.
    let file = std::fs::File::from(openat(place, name, flags, Mode::empty()).ok()?);
    let mut text = String::new();
    file.take(TEXT).read_to_string(&mut text).ok()?;
    Some(text)
}

/// One format of the text that the kernel tells it in.
fn parse(text: &str) -> Option<Format> {
    let mut lines = text.lines();
    if lines.next() != Some("enabled") {
        return None;
    }
    let field = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
    };
    let told_by = match (field("extension"), field("magic")) {
        (Some(extension), _) => ToldBy::Extension(extension.trim_start_matches('.').as_bytes().to_vec()),
        (None, Some(magic)) => {
            let bytes = digits(magic)?;
            let mask = field("mask").map_or(Some(vec![0xff; bytes.len()]), digits)?;
            let offset = field("offset").map_or(Some(0), |offset| offset.parse().ok())?;
            ToldBy::Bytes { offset, bytes, mask }
        }
        (None, None) => return None,
    };
    let interpreter = OsString::from_vec(field("interpreter")?.as_bytes().to_vec());
    Some(Format {
        interpreter: interpreter.into(),
        told_by,
    })
}

fn digits(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect()
}

impl Format {
    fn is_of(&self, executable: &Path, start: &[u8]) -> bool {
        match &self.told_by {
            ToldBy::Extension(extension) => {
                let name = executable.file_name().map_or(&b""[..], OsStr::as_bytes);
                let at = name.iter().rposition(|byte| *byte == b'.');
                at.and_then(|at| name.get(at + 1..)) == Some(extension)
            }
            ToldBy::Bytes { offset, bytes, mask } => {
                let bytes_there = offset
                    .checked_add(bytes.len())
                    .and_then(|end| start.get(*offset..end));
                let alike = |((one, other), mask): ((&u8, &u8), &u8)| (one ^ other) & mask == 0;
                bytes_there.is_some_and(|found| found.iter().zip(bytes).zip(mask).all(alike))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.1 tells it of Debian's QEMU, Python and a format by its name's end.
    const ARM: &str = "enabled\ninterpreter /usr/bin/qemu-aarch64-static\nflags: OCF\noffset 0\n\
        magic 7f454c460201010000000000000000000200b700\nmask ffffffffffffff00fffffffffffffffffeffffff\n";

    #[test]
    fn what_is_registered_is_told_by_its_first_bytes_or_by_its_name() {
        let arm = parse(ARM).unwrap();
        assert_eq!(arm.interpreter, Path::new("/usr/bin/qemu-aarch64-static"));
        let mut start = digits("7f454c460201010000000000000000000200b70001").unwrap();
        assert!(arm.is_of(Path::new("/x"), &start));
        (start[7], start[16]) = (9, 3);
        assert!(
            arm.is_of(Path::new("/x"), &start),
            "bits that the mask leaves out"
        );
        start[18] = 62;
        assert!(!arm.is_of(Path::new("/x"), &start));
        assert!(!arm.is_of(Path::new("/x"), &start[..10]), "too short");
        let python =
            parse("enabled\ninterpreter /usr/bin/python3.11\nflags: \noffset 2\nmagic 0d0a\n").unwrap();
        assert!(python.is_of(Path::new("/x"), b"\xa7\x0d\x0d\x0a"));
        assert!(!python.is_of(Path::new("/x"), b"\x0d\x0a\x0d"));
        let exe = parse("enabled\ninterpreter /usr/bin/wine\nflags: \nextension .exe\n").unwrap();
        assert!(exe.is_of(Path::new("/srv/a.b.exe"), b"") && !exe.is_of(Path::new("/srv/exe"), b""));
        for none in [
            "",
            "disabled\ninterpreter /x\nextension .a\n",
            "enabled\n",
            "enabled\ninterpreter /x\nmagic 7g\n",
        ] {
            assert_eq!(parse(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_program_of_this_machine_is_its_own() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(is_own(&own[..256]));
        assert!(!is_own(b"\x7fELF") && !is_own(b"#!/bin/sh"));
    }
}
