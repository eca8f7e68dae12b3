//! The system calls that no crate wraps: ioctls, mincore, cachestat, ioprio_set, sched_setscheduler.

pub mod mapper;
pub mod xfs;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `_IOR('v', 1, long)`, linux/fs.h.
const FS_IOC_GETVERSION: libc::c_ulong =
    2 << 30 | (size_of::<libc::c_long>() as libc::c_ulong) << 16 | (b'v' as libc::c_ulong) << 8 | 1;
/// `_IOWR('f', 11, struct fiemap)`, linux/fiemap.h; the size is that of the header, 32 bytes.
const FS_IOC_FIEMAP: libc::c_ulong = 3 << 30 | 32 << 16 | (b'f' as libc::c_ulong) << 8 | 11;
/// `_IOR(0x15, 0, struct fsuuid2)`, linux/fs.h (6.9).
const FS_IOC_GETFSUUID: libc::c_ulong = 2 << 30 | 17 << 16 | 0x15 << 8;
/// `_IOR(0x12, 114, size_t)`, linux/fs.h.
const BLKGETSIZE64: libc::c_ulong =
    2 << 30 | (size_of::<libc::size_t>() as libc::c_ulong) << 16 | 0x12 << 8 | 114;

/// `_IOW('f', 43, __u32)`, linux/ext4.h (5.14).
const EXT4_IOC_CHECKPOINT: libc::c_ulong = 1 << 30 | 4 << 16 | (b'f' as libc::c_ulong) << 8 | 43;
/// `_IO(0x12, 119)`, linux/fs.h.
const BLKDISCARD: libc::c_ulong = 0x12 << 8 | 119;
/// `_IOWR('X', 121, struct fstrim_range)`, linux/fs.h.
const FITRIM: libc::c_ulong = 3 << 30 | 24 << 16 | (b'X' as libc::c_ulong) << 8 | 121;

/// `_IOWR(0x94, 17, struct btrfs_ioctl_search_args_v2)`, linux/btrfs.h; the size is that without the buffer.
const BTRFS_IOC_TREE_SEARCH_V2: libc::c_ulong = 3 << 30 | 112 << 16 | 0x94 << 8 | 17;
/// `_IOWR(0x94, 36, struct btrfs_ioctl_logical_ino_args)`, linux/btrfs.h.
const BTRFS_IOC_LOGICAL_INO: libc::c_ulong = 3 << 30 | 56 << 16 | 0x94 << 8 | 36;

/// Extents per FIEMAP call: 56 bytes each, so that a call's buffer is 14 KiB; most files have fewer than ten.
pub const FIEMAP_BATCH: usize = 256;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct FiemapExtent {
    /// Where it begins in the file, bytes.
    pub logical: u64,
    /// Where it begins on the device, bytes.
    pub physical: u64,
    /// Its length, bytes.
    pub length: u64,
    pub(crate) reserved64: [u64; 2],
    /// `FIEMAP_EXTENT_*`.
    pub flags: u32,
    pub(crate) reserved: [u32; 3],
}

/// `struct fiemap` with room for a batch.
#[repr(C)]
pub struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [FiemapExtent; FIEMAP_BATCH],
}

impl Fiemap {
    /// A buffer to use again and again.
    pub fn new() -> Box<Fiemap> {
        Box::new(Fiemap {
            start: 0,
            length: 0,
            flags: 0,
            mapped_extents: 0,
            extent_count: 0,
            reserved: 0,
            extents: [FiemapExtent::default(); FIEMAP_BATCH],
        })
    }

    /// The first extents at or after `start`, at most [`FIEMAP_BATCH`].
    pub fn get(&mut self, fd: BorrowedFd<'_>, start: u64) -> io::Result<&[FiemapExtent]> {
        self.start = start;
        self.length = u64::MAX - start;
        self.flags = 0;
        self.mapped_extents = 0;
        self.extent_count = FIEMAP_BATCH as u32;
        // SAFETY: FIEMAP writes the header and at most `extent_count` extents, which `self` has room for.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_FIEMAP as _, self as *mut Fiemap) }.into())?;
        Ok(&self.extents[..(self.mapped_extents as usize).min(FIEMAP_BATCH)])
    }
}

/// Bytes of a btrfs search's answer: some hundred chunks.
const SEARCH_BYTES: usize = 64 << 10;

/// `struct btrfs_ioctl_search_args_v2` with room for items: the key, the room, the items.
#[repr(C)]
pub struct BtrfsSearch {
    tree: u64,
    objects: [u64; 2],
    offsets: [u64; 2],
    generations: [u64; 2],
    types: [u32; 2],
    count: u32,
    unused: [u32; 9],
    room: u64,
    items: [u8; SEARCH_BYTES],
}

impl BtrfsSearch {
    /// A buffer to use again and again.
    pub fn new() -> Box<BtrfsSearch> {
        Box::new(BtrfsSearch {
            tree: 0,
            objects: [0; 2],
            offsets: [0; 2],
            generations: [0, u64::MAX],
            types: [0; 2],
            count: 0,
            unused: [0; 9],
            room: SEARCH_BYTES as u64,
            items: [0; SEARCH_BYTES],
        })
    }

    /// The items of one object and type of a tree from `offset` on, as many as there is room for: how many,
    /// and their bytes, each behind a `struct btrfs_ioctl_search_header`. Needs `CAP_SYS_ADMIN`.
    pub fn get(
        &mut self,
        fd: BorrowedFd<'_>,
        tree: u64,
        object: u64,
        kind: u32,
        offset: u64,
    ) -> io::Result<(usize, &[u8])> {
        self.tree = tree;
        self.objects = [object; 2];
        self.offsets = [offset, u64::MAX];
        self.types = [kind; 2];
        self.count = u32::MAX;
        self.room = SEARCH_BYTES as u64;
        let arguments: *mut BtrfsSearch = self;
        // SAFETY: the kernel writes the key, `room`, and at most that many bytes of items, which `self` has.
        let result = unsafe { libc::ioctl(fd.as_raw_fd(), BTRFS_IOC_TREE_SEARCH_V2 as _, arguments) };
        check(result.into())?;
        Ok((self.count as usize, &self.items))
    }
}

/// Who uses the byte at a logical address of btrfs: one (inode number, offset in the file, tree), if there is
/// any. Needs `CAP_SYS_ADMIN`.
pub fn btrfs_owner(fd: BorrowedFd<'_>, logical: u64) -> io::Result<Option<[u64; 3]>> {
    /// Four counts, and room for 21 owners: only the first is of interest, and of what has no room the rest
    /// is left out.
    const WORDS: usize = 65;
    // struct btrfs_data_container: bytes_left, bytes_missing, elem_cnt, elem_missed as u32, then u64 values.
    let mut answer = [0u64; WORDS];
    // struct btrfs_ioctl_logical_ino_args: logical, size, reserved[3], flags, inodes.
    let arguments = [
        logical,
        size_of_val(&answer) as u64,
        0,
        0,
        0,
        0,
        answer.as_mut_ptr() as u64,
    ];
    // SAFETY: the kernel reads the seven words and writes at most `size` bytes to where the last points,
    // which is `answer`.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), BTRFS_IOC_LOGICAL_INO as _, arguments.as_ptr()) }.into())?;
    // SAFETY: made from a reference that is valid; the kernel wrote there behind the compiler's back.
    let answer: [u64; WORDS] = unsafe { std::ptr::read_volatile(&raw const answer) };
    let words = answer[1].to_ne_bytes();
    let elements = u32::from_ne_bytes([words[0], words[1], words[2], words[3]]);
    Ok((elements >= 3).then(|| [answer[2], answer[3], answer[4]]))
}

/// The inode generation. Fails with ENOTTY where the file system tells none.
pub fn generation(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // File systems write an int, whatever the request's number says; the second word is for those that write
    // a long.
    let mut value = [0u32; 2];
    // SAFETY: the kernel writes 4 or 8 bytes, `value` has 8.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_GETVERSION as _, value.as_mut_ptr()) }.into())?;
    Ok(value[0])
}

/// The UUID of the file system that an open file is on (6.9 and later).
pub fn fs_uuid(fd: BorrowedFd<'_>) -> io::Result<[u8; 16]> {
    let mut answer = [0u8; 17];
    // SAFETY: the kernel writes struct fsuuid2, a length byte and 16 bytes.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_GETFSUUID as _, answer.as_mut_ptr()) }.into())?;
    let mut uuid = [0; 16];
    let length = usize::from(answer[0]).min(16);
    uuid[..length].copy_from_slice(&answer[1..=length]);
    Ok(uuid)
}

/// `_IOWR('f', 15, struct move_extent)`, fs/ext4/ext4.h.
const EXT4_IOC_MOVE_EXT: u32 = 0xC028_660F;

/// `struct move_extent`.
#[repr(C)]
struct MoveExtent {
    reserved: u32,
    donor: u32,
    start: u64,
    donor_start: u64,
    length: u64,
    moved: u64,
}

/// Exchanges the places of `blocks` blocks of a file, from block `start` on, with those of a donor; what was
/// moved, blocks.
pub fn ext4_move_extent(
    file: BorrowedFd<'_>,
    start: u64,
    donor: BorrowedFd<'_>,
    donor_start: u64,
    blocks: u64,
) -> io::Result<u64> {
    let mut request = MoveExtent {
        reserved: 0,
        donor: donor.as_raw_fd() as u32,
        start,
        donor_start,
        length: blocks,
        moved: 0,
    };
    // SAFETY: the kernel reads and writes struct move_extent, which `request` is.
    check(unsafe { libc::ioctl(file.as_raw_fd(), EXT4_IOC_MOVE_EXT as _, &raw mut request) }.into())?;
    Ok(request.moved)
}

/// Has all of an ext4's journal written where it belongs; `root` is any descriptor on it. Since Linux 5.14.
pub fn ext4_checkpoint(root: BorrowedFd<'_>) -> io::Result<()> {
    let flags = 0u32;
    // SAFETY: the kernel reads a u32.
    check(unsafe { libc::ioctl(root.as_raw_fd(), EXT4_IOC_CHECKPOINT as _, &raw const flags) }.into())?;
    Ok(())
}

/// Tells a block device, open for writing, that `[start, start + length)` of it holds nothing.
pub fn discard(device: BorrowedFd<'_>, start: u64, length: u64) -> io::Result<()> {
    let range = [start, length];
    // SAFETY: the kernel reads two u64.
    check(unsafe { libc::ioctl(device.as_raw_fd(), BLKDISCARD as _, range.as_ptr()) }.into())?;
    Ok(())
}

/// Tells the device of a file system that `[start, start + length)`, as far as it is free, holds nothing;
/// `root` is any descriptor on it.
pub fn trim(root: BorrowedFd<'_>, start: u64, length: u64) -> io::Result<()> {
    // struct fstrim_range: start, length, and the least piece.
    let mut range = [start, length, 0];
    // SAFETY: the kernel reads and writes three u64.
    check(unsafe { libc::ioctl(root.as_raw_fd(), FITRIM as _, range.as_mut_ptr()) }.into())?;
    Ok(())
}

/// Whether anybody has a file open besides this descriptor, which is one for reading: else a lease could be
/// had on it.
pub fn is_open_elsewhere(fd: BorrowedFd<'_>) -> io::Result<bool> {
    /// `F_SETSIG`, linux/fcntl.h.
    const F_SETSIG: libc::c_int = 10;
    let lease = |kind: libc::c_int| {
        // SAFETY: takes numbers.
        check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) }.into())
    };
    // Should somebody open it in that instant, SIGIO would end this process; this signal does nothing.
    // SAFETY: takes numbers.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, libc::SIGURG) }.into())?;
    match lease(libc::F_WRLCK) {
        Ok(_) => lease(libc::F_UNLCK).map(|_| false),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) => Err(error),
    }
}

/// Bytes of a block device.
pub fn device_size(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut size = 0u64;
    // SAFETY: the kernel writes a u64.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), BLKGETSIZE64 as _, &raw mut size) }.into())?;
    Ok(size)
}

/// One byte per page of `[offset, offset + length)`; the lowest bit says whether it is resident. `offset` is
/// a multiple of the page size.
pub fn mincore(fd: BorrowedFd<'_>, offset: u64, length: usize, pages: &mut [u8]) -> io::Result<()> {
    assert!(
        pages.len() >= length.div_ceil(rustix::param::page_size()),
        "room for a byte a page"
    );
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: a new private read-only mapping at an address of the kernel's choice; nobody reads through it.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            fd.as_raw_fd(),
            offset,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the range is the mapping made above, and `pages` has a byte for each of its pages (checked).
    let result = check(unsafe { libc::mincore(address, length, pages.as_mut_ptr()) }.into());
    // SAFETY: unmaps what was mapped above.
    unsafe { libc::munmap(address, length) };
    result.map(|_| ())
}

/// `struct cachestat`: page counts.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cachestat {
    /// In the page cache.
    pub cache: u64,
    /// Of these, modified.
    pub dirty: u64,
    /// Of these, being written.
    pub writeback: u64,
    /// Once there, reclaimed since.
    pub evicted: u64,
    /// Of the evicted, those that would count as working set on their return.
    pub recently_evicted: u64,
}

/// Not in libc for every architecture; system calls since 424 have one number everywhere but on Alpha.
pub const SYS_CACHESTAT: libc::c_long = 451;

/// Page counts of a file's range (6.5 and later); a length of 0 means to the end.
pub fn cachestat(fd: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<Cachestat> {
    let range = [offset, length];
    let mut counts = Cachestat::default();
    // SAFETY: `range` is a struct cachestat_range, `counts` a struct cachestat; flags are 0.
    check(unsafe { libc::syscall(SYS_CACHESTAT, fd.as_raw_fd(), range.as_ptr(), &raw mut counts, 0) })?;
    Ok(counts)
}

/// ioprio_set(2) for the calling thread.
pub fn ioprio_set(class: i32, level: i32) -> io::Result<()> {
    const IOPRIO_WHO_PROCESS: libc::c_int = 1;
    // SAFETY: no pointer is passed; 0 is the calling thread.
    check(unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, class << 13 | level) })?;
    Ok(())
}

/// ioprio_get(2) for the calling thread: (class, level).
pub fn ioprio_get() -> io::Result<(i32, i32)> {
    // SAFETY: no pointer is passed.
    let value = check(unsafe { libc::syscall(libc::SYS_ioprio_get, 1, 0) })?;
    Ok(((value >> 13) as i32, (value & 0x1fff) as i32))
}

/// sched_setscheduler(2) for the calling thread.
pub fn sched_setscheduler(policy: i32, priority: i32) -> io::Result<()> {
    // The kernel's structure; C libraries have others, and some have no such function.
    let parameter: libc::c_int = priority;
    // SAFETY: the kernel reads one number; 0 is the calling thread.
    check(unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameter) })?;
    Ok(())
}

/// The calling thread's policy of scheduling, with its flags; negative where that is refused.
pub fn sched_getscheduler() -> i32 {
    // SAFETY: takes a number; 0 is the calling thread. Some C libraries have no such function.
    unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) as i32 }
}

/// The error number a system call gives when called with arguments that cannot work: ENOSYS if the kernel
/// lacks it.
pub fn probe(number: libc::c_long) -> i32 {
    // SAFETY: -1 is no descriptor, the pointers are null and sizes 0: the call can only fail.
    let result = unsafe { libc::syscall(number, -1, 0, 0, 0, 0, 0) };
    if result < 0 {
        io::Error::last_os_error().raw_os_error().unwrap_or(0)
    } else {
        0
    }
}

/// User and system time of the waited-for children, ns.
pub fn children_cpu_ns() -> io::Result<u64> {
    // SAFETY: all-zero bytes are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes a struct rusage.
    check(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) }.into())?;
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
    Ok(ns(usage.ru_utime) + ns(usage.ru_stime))
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
/// malloc_trim(3), where there is one.
pub(crate) fn malloc_trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time, and frees what nobody uses.
    unsafe {
        libc::malloc_trim(0);
    }
}
