//! What is asked of the kernel: memory, a file, a device, the time.

use crate::bare::{call, call_with_six};
use crate::say::Part;
use crate::syscall;
use core::ffi::CStr;

const AT_FDCWD: usize = -100isize as usize;
const AT_EMPTY_PATH: usize = 0x1000;
const O_NOCTTY: usize = 0o400;
const O_NONBLOCK: usize = 0o4000;
const O_CLOEXEC: usize = 0o2000000;
#[cfg(target_arch = "x86_64")]
const O_DIRECT: usize = 0o40000;
#[cfg(target_arch = "aarch64")]
const O_DIRECT: usize = 0o200000;
const F_SETFL: usize = 4;
const S_IFMT: u16 = 0o170000;
const S_IFREG: u16 = 0o100000;
const S_IFBLK: u16 = 0o60000;
/// `STATX_BASIC_STATS`.
const BASIC: usize = 0x7ff;
/// `_IOR(0x12, 114, size_t)`.
const BLKGETSIZE64: usize = 0x8008_1272;
const PROT_READ_WRITE: usize = 3;
const MAP_SHARED_ANONYMOUS: usize = 0x21;
const CLOCK_MONOTONIC: usize = 1;

/// Why something cannot be used.
#[derive(Clone, Copy)]
pub enum Why {
    /// It is something else; what it is to be.
    No(&'static str),
    /// The kernel refuses, with this error.
    Errno(isize),
}

impl Why {
    /// For a line.
    pub fn part(self) -> Part<'static> {
        Part::Text(
            match self {
                Why::No(text) => text,
                Why::Errno(-2) => "there is no such file",
                Why::Errno(-13 | -1) => "permission denied",
                Why::Errno(-6 | -19) => "there is no such device",
                Why::Errno(-22) => "it cannot be read past the page cache",
                Why::Errno(_) => "it cannot be read",
            }
            .as_bytes(),
        )
    }
}

/// Ends this process.
pub fn end(status: usize) -> ! {
    loop {
        // SAFETY: ends this process.
        unsafe { call(syscall::EXIT, [status, 0, 0, 0, 0]) };
    }
}

/// Memory that processes which are forked from now on share, all zeros.
pub fn map<T>() -> Option<&'static mut T> {
    let arguments = [
        0,
        size_of::<T>(),
        PROT_READ_WRITE,
        MAP_SHARED_ANONYMOUS,
        usize::MAX,
        0,
    ];
    // SAFETY: new memory, at a place that the kernel chooses.
    let place = unsafe { call_with_six(syscall::MMAP, arguments) };
    if place < 0 {
        return None;
    }
    // SAFETY: it is as large, nobody else has it, it stays, and zeros are values of all that is put here.
    unsafe { (place as *mut T).as_mut() }
}

/// Milliseconds of a clock that only goes forward.
pub fn now_ms() -> u64 {
    now_us() / 1000
}

/// The same in microseconds.
pub fn now_us() -> u64 {
    let mut now = [0u64; 2];
    let arguments = [CLOCK_MONOTONIC, now.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: room for a `struct timespec` of 64 bits each.
    unsafe { call(syscall::CLOCK_GETTIME, arguments) };
    now[0].wrapping_mul(1_000_000).wrapping_add(now[1] / 1000)
}

fn open(path: &CStr, flags: usize) -> Result<usize, Why> {
    let flags = flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    // SAFETY: a string.
    let file = unsafe { call(syscall::OPENAT, [AT_FDCWD, path.as_ptr() as usize, flags, 0, 0]) };
    usize::try_from(file).map_err(|_| Why::Errno(file))
}

/// Of what kind it is.
fn kind(file: usize) -> Result<u16, Why> {
    // `struct statx` has 256 bytes; the mode is at 28.
    let mut facts = [0u64; 32];
    let empty = c"".as_ptr() as usize;
    let place = facts.as_mut_ptr() as usize;
    // SAFETY: a string, and room for what the kernel tells.
    let told = unsafe { call(syscall::STATX, [file, empty, AT_EMPTY_PATH, BASIC, place]) };
    if told < 0 {
        return Err(Why::Errno(told));
    }
    Ok((facts[3] >> 32) as u16 & S_IFMT)
}

/// Reads a regular file, as far as there is room.
pub fn read_file<'a>(path: &CStr, room: &'a mut [u8]) -> Result<&'a [u8], Why> {
    let file = open(path, 0)?;
    if kind(file)? != S_IFREG {
        return Err(Why::No("it is no regular file: name a range list"));
    }
    let mut length = 0;
    while let Some(rest) = room.get_mut(length..).filter(|rest| !rest.is_empty()) {
        let arguments = [file, rest.as_mut_ptr() as usize, rest.len(), 0, 0];
        // SAFETY: room for so many bytes.
        match unsafe { call(syscall::READ, arguments) } {
            0 => break,
            read if read < 0 => return Err(Why::Errno(read)),
            read => length += read as usize,
        }
    }
    Ok(room.get(..length).unwrap_or_default())
}

/// A block device, to be read past the page cache.
pub struct Device {
    /// Its descriptor.
    pub descriptor: usize,
    /// Bytes.
    pub size: u64,
}

/// Opens a block device.
pub fn open_device(path: &CStr) -> Result<Device, Why> {
    let descriptor = open(path, 0)?;
    if kind(descriptor)? != S_IFBLK {
        return Err(Why::No("it is no block device: name that of the volume"));
    }
    // SAFETY: changes a flag of a descriptor of this process.
    let direct = unsafe { call(syscall::FCNTL, [descriptor, F_SETFL, O_DIRECT, 0, 0]) };
    if direct < 0 {
        return Err(Why::Errno(direct));
    }
    let mut size = 0u64;
    let arguments = [descriptor, BLKGETSIZE64, &raw mut size as usize, 0, 0];
    // SAFETY: room for the number.
    match unsafe { call(syscall::IOCTL, arguments) } {
        0.. => Ok(Device { descriptor, size }),
        error => Err(Why::Errno(error)),
    }
}
