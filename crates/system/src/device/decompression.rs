//! How fast a processor of this machine decompresses the files of a mounted file system: a few blocks are
//! read that are not in memory, and the thread's own processor time tells. SquashFS decompresses a block in
//! the thread that reads it.

use crate::mounts::MountTable;
use crate::open::{Expect, open_checked};
use crate::residency;
use headstart_model::FilePath;
use headstart_model::machine::Compression;
use rustix::fs::Advice;
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::AsFd;
use std::time::Duration;

/// So many blocks are read, of so many files at most: by xz, with blocks of 1 MiB, 0.2 s.
const BLOCKS: u64 = 8;
const FILES: usize = 16;

/// [`Compression::rate`] of a file system by what these files of it show; `None` where too few of their
/// blocks are not in memory. What was read is dropped again.
pub fn decompression_rate<'a>(
    mounts: &MountTable,
    files: impl Iterator<Item = &'a FilePath>,
    compression: Compression,
) -> Option<u16> {
    let block = u64::from(compression.block);
    let (mut blocks, mut took) = (0, Duration::ZERO);
    for path in files.take(FILES) {
        let Ok(opened) = open_checked(mounts, path.as_path(), &Expect::default()) else {
            continue;
        };
        // Whole blocks only. Not more of each file than half of what is looked for.
        let whole = opened.stat.size / block;
        let step = (whole / (BLOCKS / 2)).max(1);
        for at in (0..whole).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            if blocks == BLOCKS {
                break;
            }
            if let Some(time) = decompress(opened.fd.as_fd(), at * block, block) {
                (blocks, took) = (blocks + 1, took + time);
            }
        }
    }
    let megabytes = (blocks * block) as f64 / 1e6;
    let rate = (megabytes / took.as_secs_f64()).clamp(1.0, f64::from(u16::MAX));
    (blocks >= BLOCKS / 4).then_some(rate as u16)
}

/// The processor time in which a block is read; `None` if something of it is in memory, or it does not come
/// as a whole.
fn decompress(fd: impl AsFd, offset: u64, block: u64) -> Option<Duration> {
    let page = rustix::param::page_size() as u64;
    let in_memory = || residency::resident_pages(fd.as_fd(), offset, block);
    if in_memory().ok()? > 0 {
        return None;
    }
    // One page: what comes with it is the file system's doing.
    rustix::fs::fadvise(fd.as_fd(), 0, None, Advice::Random).ok()?;
    let began = clock_gettime(ClockId::ThreadCPUTime);
    let read = rustix::io::retry_on_intr(|| rustix::io::pread(fd.as_fd(), &mut [0u8], offset));
    let took = clock_gettime(ClockId::ThreadCPUTime) - began;
    let came = in_memory();
    let _ = residency::advise_dontneed(fd.as_fd(), offset, block);
    let is_whole = read.is_ok() && came.ok()? * page >= block;
    is_whole.then(|| Duration::try_from(took).ok()).flatten()
}
