//! What leads to headstart's state, asked for by the program's first instructions: blocks of the device that
//! the program's own file names in an attribute (`note.rs` writes it; the inode is in memory when a
//! program runs, and with it what is kept there).
//!
//! On the way to a file each directory is two reads that wait for one another, its inode and its blocks; so
//! asked for, all come at once. They are a hint and no more: whatever lies there now, a page of the device is
//! read in vain at worst.
//!
//! `headstart-init` is built with this file, too; no library has begun in either, and none may be used.

use core::mem::MaybeUninit;

/// No attribute is larger: 31 pages, and the name of the device.
pub const MOST: usize = 128;
/// Bytes of the pages that are named, whatever those of the processor are.
pub const PAGE: usize = 4096;

const O_RDONLY_AND_WAIT_FOR_NOBODY: usize = 0o2000000 | 0o4000 | 0o400;
const AT_FDCWD: usize = -100isize as usize;
const WILLNEED: usize = 3;
const TYPE: u32 = 0o170000;
const BLOCK_DEVICE: u32 = 0o60000;
/// A `struct stat` is no larger, in words.
const STAT: usize = 18;

#[cfg(target_arch = "x86_64")]
pub mod of_processor {
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const FGETXATTR: usize = 193;
    pub const FADVISE: usize = 221;
    pub const OPENAT: usize = 257;
    /// Where `st_mode` and `st_rdev` are.
    pub const MODE: usize = 24;
    pub const RDEV: usize = 40;
}
#[cfg(target_arch = "aarch64")]
pub mod of_processor {
    pub const FGETXATTR: usize = 10;
    pub const OPENAT: usize = 56;
    pub const CLOSE: usize = 57;
    pub const FSTAT: usize = 80;
    pub const FADVISE: usize = 223;
    pub const MODE: usize = 16;
    pub const RDEV: usize = 32;
}

/// Asks for the blocks that the attribute `name` of the open file `program` names: the path of a device, a
/// null character, and numbers of 32 bits, each a page of that device. Only of the device that the file
/// itself is on. Waits for nothing.
///
/// # Safety
/// `name` is a string that ends with a null character, `call` makes the system call of a number with these
/// arguments.
#[inline(always)]
pub unsafe fn ask_for(program: usize, name: *const u8, call: impl Fn(usize, [usize; 6]) -> isize) {
    let mut room = MaybeUninit::<[u8; MOST]>::uninit();
    let text = room.as_mut_ptr().cast::<u8>();
    let length = call(
        of_processor::FGETXATTR,
        [program, name as usize, text as usize, MOST, 0, 0],
    );
    let length = if length > 0 { length as usize } else { return };
    // SAFETY: the kernel has filled as many bytes as it says, which are no more than there is room for.
    unsafe {
        let mut at = 0;
        while at < length && *text.add(at) != 0 {
            at += 1;
        }
        if at == length {
            return;
        }
        let device = call(
            of_processor::OPENAT,
            [AT_FDCWD, text as usize, O_RDONLY_AND_WAIT_FOR_NOBODY, 0, 0, 0],
        );
        if device < 0 {
            return;
        }
        let device = device as usize;
        if is_on(program, device, &call) {
            at += 1;
            while at + 4 <= length {
                let page = u32::from_le(text.add(at).cast::<u32>().read_unaligned()) as usize;
                call(of_processor::FADVISE, [device, page * PAGE, PAGE, WILLNEED, 0, 0]);
                at += 4;
            }
        }
        call(of_processor::CLOSE, [device, 0, 0, 0, 0, 0]);
    }
}

/// Whether the file is on this block device.
#[inline(always)]
unsafe fn is_on(file: usize, device: usize, call: &impl Fn(usize, [usize; 6]) -> isize) -> bool {
    let mut of_file = MaybeUninit::<[u64; STAT]>::uninit();
    let mut of_device = MaybeUninit::<[u64; STAT]>::uninit();
    let stat = |descriptor, room: *mut [u64; STAT]| {
        call(of_processor::FSTAT, [descriptor, room as usize, 0, 0, 0, 0]) == 0
    };
    if !stat(file, of_file.as_mut_ptr()) || !stat(device, of_device.as_mut_ptr()) {
        return false;
    }
    let (of_file, of_device) = (of_file.as_ptr().cast::<u8>(), of_device.as_ptr().cast::<u8>());
    // SAFETY: the kernel has filled both; the device that a file is on comes first.
    unsafe {
        of_device.add(of_processor::MODE).cast::<u32>().read() & TYPE == BLOCK_DEVICE
            && of_device.add(of_processor::RDEV).cast::<u64>().read() == of_file.cast::<u64>().read()
    }
}
