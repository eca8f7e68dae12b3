//! The ioctls of XFS by which data is moved, fs/xfs/libxfs/xfs_fs.h.

use super::check;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `_IOR('X', 126, struct xfs_fsop_geom)`.
const XFS_IOC_FSGEOMETRY: u32 = 0x8100_587E;
/// `_IOR('X', 31, struct fsxattr)`.
const FS_IOC_FSGETXATTR: u32 = 0x801C_581F;
/// `_IOWR('X', 106, struct xfs_fsop_handlereq)`.
const XFS_IOC_FD_TO_HANDLE: u32 = 0xC038_586A;
/// `_IOWR('X', 107, struct xfs_fsop_handlereq)`.
const XFS_IOC_OPEN_BY_HANDLE: u32 = 0xC038_586B;
/// `_IOR('X', 130, struct xfs_commit_range)`.
const XFS_IOC_START_COMMIT: u32 = 0x8058_5882;
/// `_IOW('X', 131, struct xfs_commit_range)`.
const XFS_IOC_COMMIT_RANGE: u32 = 0x4058_5883;

/// `_IOWR('X', 38, struct getbmap)`.
const XFS_IOC_GETBMAP: u32 = 0xC020_5826;
/// Extents of a directory that are asked for at most: no start lists one in more.
const DIRECTORY_EXTENTS: usize = 4096;
/// What places are counted in here, bytes.
const SECTOR: u64 = 512;

/// `struct xfs_fsop_geom`, as far as it is asked for.
#[repr(C)]
pub struct Geometry {
    /// Bytes of a block.
    pub block: u32,
    other: [u32; 22],
    /// `XFS_FSOP_GEOM_FLAGS_*`.
    pub flags: u32,
    rest: [u32; 40],
}

/// What a file system is like; fails with ENOTTY if it is no XFS.
pub fn geometry(fd: BorrowedFd<'_>) -> io::Result<Geometry> {
    let mut geometry = Geometry {
        block: 0,
        other: [0; 22],
        flags: 0,
        rest: [0; 40],
    };
    // SAFETY: the kernel writes struct xfs_fsop_geom, 256 bytes, which `geometry` has.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), XFS_IOC_FSGEOMETRY as _, &raw mut geometry) }.into())?;
    Ok(geometry)
}

/// `struct getbmap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct BlockMap {
    offset: i64,
    block: i64,
    length: i64,
    count: i32,
    entries: i32,
}

/// Where a directory's blocks are on the device, which FIEMAP does not tell of XFS: first byte and length.
/// None where it fits into its inode.
pub fn directory_blocks(fd: BorrowedFd<'_>) -> io::Result<Vec<(u64, u64)>> {
    let mut maps = vec![BlockMap::default(); DIRECTORY_EXTENTS + 1];
    let count = maps.len() as i32;
    maps[0] = BlockMap {
        length: -1,
        count,
        ..BlockMap::default()
    };
    // SAFETY: the kernel writes as many structures as the first says that there are.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), XFS_IOC_GETBMAP as _, maps.as_mut_ptr()) }.into())?;
    let found = usize::try_from(maps[0].entries).unwrap_or(0);
    let bytes = |sectors: i64| {
        u64::try_from(sectors)
            .ok()
            .map(|sectors| sectors.saturating_mul(SECTOR))
    };
    // A hole is at -1.
    let places = maps.iter().skip(1).take(found);
    Ok(places
        .filter_map(|map| Some((bytes(map.block)?, bytes(map.length)?)))
        .collect())
}

/// `FS_XFLAG_*` of a file.
pub fn flags(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut answer = [0u32; 7];
    // SAFETY: the kernel writes struct fsxattr, 28 bytes, which `answer` has.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), FS_IOC_FSGETXATTR as _, answer.as_mut_ptr()) }.into())?;
    Ok(answer[0])
}

/// `struct xfs_fsop_handlereq`.
#[repr(C)]
struct HandleRequest {
    fd: u32,
    path: *const c_void,
    open_flags: u32,
    handle: *const c_void,
    handle_length: u32,
    answer: *mut c_void,
    answer_length: *mut u32,
}

/// Opens a file anew, for reading and writing, on the mount that `mount` is on: what is done by this
/// descriptor changes no time of the file.
pub fn open_again(mount: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // struct xfs_handle has 24 bytes.
    let (mut handle, mut length) = ([0u64; 8], 0u32);
    let mut request = HandleRequest {
        fd: file.as_raw_fd() as u32,
        path: std::ptr::null(),
        open_flags: 0,
        handle: std::ptr::null(),
        handle_length: 0,
        answer: handle.as_mut_ptr().cast(),
        answer_length: &raw mut length,
    };
    // SAFETY: the kernel reads struct xfs_fsop_handlereq and writes a handle of at most 24 bytes, and its
    // length, to where the last two fields point.
    check(unsafe { libc::ioctl(file.as_raw_fd(), XFS_IOC_FD_TO_HANDLE as _, &raw mut request) }.into())?;
    // SAFETY: made from references that are valid; the kernel wrote there behind the compiler's back.
    let (handle, length) = unsafe {
        (
            std::ptr::read_volatile(&raw const handle),
            std::ptr::read_volatile(&raw const length),
        )
    };
    let mut request = HandleRequest {
        fd: 0,
        path: std::ptr::null(),
        open_flags: (libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_LARGEFILE) as u32,
        handle: handle.as_ptr().cast(),
        handle_length: length,
        answer: std::ptr::null_mut(),
        answer_length: std::ptr::null_mut(),
    };
    // SAFETY: the kernel reads struct xfs_fsop_handlereq, and a handle of `length` bytes, which it made, from
    // `handle`.
    let opened = check(
        unsafe { libc::ioctl(mount.as_raw_fd(), XFS_IOC_OPEN_BY_HANDLE as _, &raw mut request) }.into(),
    )?;
    // SAFETY: the kernel just gave this descriptor to us alone.
    let opened = unsafe { OwnedFd::from_raw_fd(opened as i32) };
    // It is not said to be closed on exec, whatever the flags were.
    rustix::io::fcntl_setfd(&opened, rustix::io::FdFlags::CLOEXEC)?;
    Ok(opened)
}

/// A file as it was at some moment, to exchange data with it unless it has changed:
/// `struct xfs_commit_range`.
#[repr(C)]
pub struct Commit {
    donor: i32,
    pad: u32,
    donor_start: u64,
    start: u64,
    length: u64,
    flags: u64,
    freshness: [u64; 6],
}

impl Commit {
    /// As the file is now. Fails with ENOTTY before Linux 6.12.
    pub fn start(file: BorrowedFd<'_>) -> io::Result<Commit> {
        let mut commit = Commit {
            donor: 0,
            pad: 0,
            donor_start: 0,
            start: 0,
            length: 0,
            flags: 0,
            freshness: [0; 6],
        };
        // SAFETY: the kernel writes struct xfs_commit_range, which `commit` is.
        check(unsafe { libc::ioctl(file.as_raw_fd(), XFS_IOC_START_COMMIT as _, &raw mut commit) }.into())?;
        Ok(commit)
    }

    /// Exchanges `length` bytes of the file from `start` on with those of the donor from `donor_start` on,
    /// also over a crash all or none. Fails with EBUSY if the file has changed since the start.
    pub fn exchange(
        mut self,
        file: BorrowedFd<'_>,
        start: u64,
        donor: BorrowedFd<'_>,
        donor_start: u64,
        length: u64,
    ) -> io::Result<()> {
        (self.donor, self.donor_start) = (donor.as_raw_fd(), donor_start);
        (self.start, self.length) = (start, length);
        // SAFETY: the kernel reads struct xfs_commit_range, which `self` is.
        check(unsafe { libc::ioctl(file.as_raw_fd(), XFS_IOC_COMMIT_RANGE as _, &raw const self) }.into())?;
        Ok(())
    }
}

const _: () = assert!(size_of::<Geometry>() == 256);
const _: () = assert!(size_of::<HandleRequest>() == 0x38);
const _: () = assert!(size_of::<Commit>() == 0x58);
