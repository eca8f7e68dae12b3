//! What of a file is in the page cache, and bringing it there. Works on regular files and on block device
//! nodes.

use rustix::fs::Advice;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

pub use crate::sys::Cachestat;

/// Bytes looked at by one mincore(2): 64 MiB, 16 KiB of answer.
const WINDOW: u64 = 64 << 20;

/// The resident pages in `[offset, offset + length)` of a file, as ranges of page numbers in order.
///
/// Exact for files the caller owns or may write; for others the kernel says "resident" (since 5.2), as it
/// does not tell about pages that others brought in.
pub fn resident(fd: impl AsFd, offset: u64, length: u64) -> io::Result<Vec<Range<u64>>> {
    let page = rustix::param::page_size() as u64;
    let end = offset
        .saturating_add(length)
        .div_ceil(page)
        .saturating_mul(page)
        .min(end_of(fd.as_fd())?);
    let mut ranges: Vec<Range<u64>> = Vec::new();
    let mut answer = vec![0u8; (WINDOW / page) as usize];
    let mut start = offset / page * page;
    while start < end {
        let bytes = (end - start).min(WINDOW);
        crate::sys::mincore(fd.as_fd(), start, bytes as usize, &mut answer)?;
        let pages = bytes.div_ceil(page) as usize;
        for (number, _) in (start / page..)
            .zip(&answer[..pages])
            .filter(|(_, byte)| **byte & 1 == 1)
        {
            match ranges.last_mut() {
                Some(last) if last.end == number => last.end += 1,
                _ => ranges.push(number..number + 1),
            }
        }
        start += bytes;
    }
    Ok(ranges)
}

/// How many pages of `[offset, offset + length)` are resident: by cachestat(2) (6.5 and later, the file's
/// range in one go), else by mincore(2).
pub fn resident_pages(fd: impl AsFd, offset: u64, length: u64) -> io::Result<u64> {
    if length == 0 {
        return Ok(0);
    }
    match crate::sys::cachestat(fd.as_fd(), offset, length) {
        Ok(counts) => Ok(counts.cache),
        Err(_) => Ok(resident(fd, offset, length)?
            .iter()
            .map(|range| range.end - range.start)
            .sum()),
    }
}

/// All counts of cachestat(2) for `[offset, offset + length)`, a length of 0 meaning to the end. Before 6.5:
/// ENOSYS.
pub fn cachestat(fd: impl AsFd, offset: u64, length: u64) -> io::Result<Cachestat> {
    crate::sys::cachestat(fd.as_fd(), offset, length)
}

/// Starts reading `[offset, offset + length)` into the page cache.
///
/// The kernel stops silently after the device's request limit ([`crate::device::DeviceFacts::request_limit`])
/// and still says yes: callers cut their requests. It returns before the data is there unless the file's
/// extent map has to be read first.
pub fn fadvise_willneed(fd: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    let Some(length) = NonZeroU64::new(length) else {
        return Ok(());
    };
    Ok(rustix::fs::fadvise(fd, offset, Some(length), Advice::WillNeed)?)
}

/// Drops clean pages of `[offset, offset + length)` that nobody has mapped; a length of 0 means to the end.
pub fn advise_dontneed(fd: impl AsFd, offset: u64, length: u64) -> io::Result<()> {
    Ok(rustix::fs::fadvise(
        fd,
        offset,
        NonZeroU64::new(length),
        Advice::DontNeed,
    )?)
}

/// Size of a file or of a block device.
fn end_of(fd: BorrowedFd<'_>) -> io::Result<u64> {
    match crate::files::stat(fd)?.kind {
        crate::files::Type::Special => crate::sys::device_size(fd),
        _ => Ok(rustix::fs::fstat(fd)?.st_size.max(0) as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_dropped_is_gone_and_what_is_asked_for_comes() {
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        let page = rustix::param::page_size() as u64;
        file.write_all(&vec![1; 40 * page as usize + 1]).unwrap();
        file.sync_all().unwrap();
        assert_eq!(resident(&file, 0, u64::MAX).unwrap(), vec![0..41]);
        assert_eq!(resident(&file, page, 1).unwrap(), vec![1..2]);
        advise_dontneed(&file, 0, 0).unwrap();
        assert_eq!(resident(&file, 0, u64::MAX).unwrap(), vec![]);
        fadvise_willneed(&file, 8 * page, 4 * page).unwrap();
        fadvise_willneed(&file, 40 * page, page).unwrap();
        crate::testing::wait_resident(&file, 12 * page).unwrap();
        crate::testing::wait_resident(&file, 40 * page + 1).unwrap();
        assert_eq!(resident(&file, 0, u64::MAX).unwrap(), vec![8..12, 40..41]);
        assert_eq!(resident_pages(&file, 0, 41 * page).unwrap(), 5);
        assert_eq!(resident(&file, 9 * page, 2 * page).unwrap(), vec![9..11]);
    }

    /// What tests are told of pages that the kernel takes at a time of its own.
    #[test]
    fn tests_see_what_the_kernel_took_back_but_not_what_was_dropped() {
        use rustix::mm;
        let mut file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        let page = rustix::param::page_size();
        file.write_all(&vec![1; 40 * page]).unwrap();
        file.as_file().sync_all().unwrap();
        if !crate::testing::needs("cachestat(2), Linux 6.5", cachestat(&file, 0, 0).is_ok()) {
            return;
        }
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping, of which nothing else knows, is read within its length, and taken away.
        unsafe {
            let map = mm::mmap(
                null,
                40 * page,
                mm::ProtFlags::READ,
                mm::MapFlags::SHARED,
                &file,
                0,
            )
            .unwrap();
            (0..40).for_each(|n| assert_eq!(map.cast::<u8>().add(n * page).read_volatile(), 1));
            mm::madvise(map, 40 * page, mm::Advice::LinuxPageOut).unwrap();
            mm::munmap(map, 40 * page).unwrap();
        }
        assert!(
            resident_pages(&file, 0, u64::MAX).unwrap() < 40,
            "the kernel takes what it is told to"
        );
        assert_eq!(crate::testing::resident(file.path()).unwrap(), [(0, 40)]);
        crate::testing::evict(file.path()).unwrap();
        assert_eq!(crate::testing::resident(file.path()).unwrap(), []);
    }

    #[test]
    fn nothing_is_resident_beyond_the_end() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        assert_eq!(resident(&file, 0, 1 << 40).unwrap(), vec![]);
        assert_eq!(resident_pages(&file, 0, 0).unwrap(), 0);
    }
}
