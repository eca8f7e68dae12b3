//! [`residency::fadvise_willneed`](crate::residency::fadvise_willneed) for ranges of several files in one
//! call, so that what lies together on the device becomes one request to it.
//!
//! The kernel joins reads of different files only if one task asks for them under one plug, and a call of
//! fadvise(2) has one of its own. An io_uring has one for all that it is given at once, so there each range
//! is a read that may not wait (`RWF_NOWAIT`): it begins to read the range into the page cache, exactly as
//! fadvise does on a descriptor with `FADV_RANDOM`, and ends. So does Linux 6.12; on 6.1 such a read begins
//! nothing (`kiocb_set_rw_flags` forbids it any reading), so each range is looked at. All is done by the
//! calling thread, in its name and at its priority; when the call returns nothing is left in the ring.
//! Nothing is copied either: the reads are given a place where nothing can be written.

use crate::{features, residency};
use io_uring::{IoUring, opcode, types};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The most ranges asked for at once.
pub const MOST_RANGES: usize = 64;
/// The most bytes of one range.
pub const MOST_BYTES: u32 = 2 << 20;
/// What is given to the ring so that it plugs: it does for more than two.
const PLUGGED: usize = 3;
/// Marks what is given for that only.
const NOTHING: u64 = u64::MAX;

/// A range of a file: its descriptor, the first byte and how many.
pub type Range<'a> = (BorrowedFd<'a>, u64, u32);

/// A ring to ask for several ranges at once with.
pub struct ReadAhead {
    /// None once it has failed: what is left in it is never handed over.
    ring: Option<IoUring>,
    nowhere: Nowhere,
}

impl ReadAhead {
    /// Fails where io_uring is missing, switched off or forbidden (`kernel.io_uring_disabled`, a container's
    /// seccomp filter), and before Linux 6.5, where cachestat(2) is missing, which tells whether a read was
    /// begun.
    pub fn new() -> io::Result<ReadAhead> {
        let ring = IoUring::new(MOST_RANGES as u32)?;
        if !features::has_cachestat() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(ReadAhead {
            ring: Some(ring),
            nowhere: Nowhere::new()?,
        })
    }

    /// Starts reading the ranges into the page cache; of those that were not asked for, or of which it cannot
    /// be told (cachestat(2) looks at an overlay's own file), `otherwise` is told the places in the list: the
    /// kernel or the file system begins nothing for reads that may not wait, or the first page is in memory.
    /// As with fadvise the kernel leaves out what is beyond the device's request limit, and what it finds no
    /// page for.
    ///
    /// Neighbours join only if each follows the one that lies before it on the device. The descriptors have
    /// to have `FADV_RANDOM`, or more is read than asked for. Once this has failed it fails always; some
    /// ranges may have been asked for then, and nothing was told of the others.
    ///
    /// # Panics
    ///
    /// Of more than [`MOST_RANGES`] ranges, or more than [`MOST_BYTES`] in one.
    pub fn start(&mut self, ranges: &[Range<'_>], mut otherwise: impl FnMut(usize)) -> io::Result<()> {
        assert!(ranges.len() <= MOST_RANGES && ranges.iter().all(|(_, _, length)| *length <= MOST_BYTES));
        let reads = ranges.iter().zip(0u64..).map(|((fd, offset, length), mark)| {
            let fd = types::Fd(fd.as_raw_fd());
            let read = opcode::Read::new(fd, self.nowhere.0.cast(), *length).offset(*offset);
            read.rw_flags(libc::RWF_NOWAIT).build().user_data(mark)
        });
        let nothing = |_| opcode::Nop::new().build().user_data(NOTHING);
        let entries: Vec<_> = reads.chain((ranges.len()..PLUGGED).map(nothing)).collect();
        let mut ring = self.ring.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // SAFETY: nothing can be written where the reads are to put what they read. The descriptors are open
        // until this returns; entries that were not handed over by then go with the ring.
        unsafe { ring.submission().push_multiple(&entries) }.map_err(io::Error::other)?;
        let mut left = entries.len();
        while left > 0 {
            // A read that may not wait is over when it is taken: this waits for nothing.
            match ring.submit_and_wait(left) {
                Err(error) if error.raw_os_error() != Some(libc::EINTR) => return Err(error),
                _ => {}
            }
            for done in ring.completion() {
                left = left.saturating_sub(1);
                let place = done.user_data();
                let Some(range) = usize::try_from(place).ok().and_then(|place| ranges.get(place)) else {
                    continue;
                };
                // It would have to wait for what it has begun. One that found its first page begins nothing.
                if done.result() != -libc::EAGAIN || !has_page(range) {
                    otherwise(place as usize);
                }
            }
        }
        self.ring = Some(ring);
        Ok(())
    }
}

/// Whether there is a page of it, on its way or in memory.
fn has_page((fd, offset, length): &Range<'_>) -> bool {
    residency::cachestat(fd, *offset, u64::from(*length)).is_ok_and(|counts| counts.cache > 0)
}

/// Addresses that nothing else has and that nobody can write to or read from.
struct Nowhere(*mut c_void);

// SAFETY: a number as far as this is concerned: nothing is ever at the address.
unsafe impl Send for Nowhere {}

impl Nowhere {
    fn new() -> io::Result<Nowhere> {
        let length = MOST_BYTES as usize;
        // SAFETY: the kernel chooses addresses that are free.
        let address = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                length,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        Ok(Nowhere(address))
    }
}

impl Drop for Nowhere {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody has a reference into it.
        let _ = unsafe { munmap(self.0, MOST_BYTES as usize) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LoopFs, Spec, can_mount};
    use headstart_model::testing::needs;
    use rustix::fs::{Advice, fadvise};
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    const COUNT: usize = 200;
    const PAGE: u64 = 4096;

    /// None where a kernel without it is tested.
    #[track_caller]
    fn ring() -> Option<ReadAhead> {
        let made = ReadAhead::new();
        let (ring, cachestat) = (features::features().io_uring, features::cachestat());
        assert!(
            made.is_ok() || !ring.yes() || !cachestat.yes(),
            "{ring:?}, {cachestat:?}: {:?}",
            made.err()
        );
        needs("io_uring and cachestat", made.is_ok());
        made.ok()
    }

    /// Small files one behind the other on a cold file system, open.
    fn files(fstype: &'static str) -> (LoopFs, Vec<File>) {
        let fs = LoopFs::create(&Spec::new(fstype), |root| {
            for n in 0..COUNT {
                std::fs::write(root.join(format!("{n:03}")), vec![n as u8; 2 * PAGE as usize])?;
            }
            Ok(())
        })
        .unwrap();
        let open = |n: usize| {
            let file = File::open(fs.mount_point().join(format!("{n:03}"))).unwrap();
            fadvise(&file, 0, None, Advice::Random).unwrap();
            file
        };
        let files = (0..COUNT).map(open).collect();
        (fs, files)
    }

    fn wait(files: &[File]) {
        files
            .iter()
            .for_each(|file| file.read_exact_at(&mut [0], PAGE).unwrap());
    }

    #[test]
    fn neighbours_become_one_request() {
        let Some(mut ring) = ring() else { return };
        if !can_mount() {
            return;
        }
        for fstype in ["ext4", "xfs"] {
            let (fs, files) = files(fstype);
            // How many pieces they lie in.
            let mut extents: Vec<_> = files
                .iter()
                .flat_map(|file| crate::extents::extents(file).unwrap())
                .collect();
            extents.sort_by_key(|extent| extent.physical);
            let apart =
                |two: &[headstart_model::machine::Extent]| two[0].physical + two[0].length != two[1].physical;
            let pieces = 1 + extents.windows(2).filter(|two| apart(two)).count() as u64;
            assert!(pieces <= 4, "{fstype} scattered them: {pieces}");
            let before = fs.reads();
            for batch in files.chunks(MOST_RANGES) {
                let ranges: Vec<_> = batch
                    .iter()
                    .map(|file| (file.as_fd(), 0, 2 * PAGE as u32))
                    .collect();
                ring.start(&ranges, |place| panic!("{place}")).unwrap();
            }
            wait(&files);
            let read = fs.reads() - before;
            assert_eq!(
                read.bytes,
                COUNT as u64 * 2 * PAGE,
                "{fstype}: nothing else is read"
            );
            let queue = std::path::Path::new("/sys/block")
                .join(fs.node().file_name().unwrap())
                .join("queue");
            let largest = std::fs::read_to_string(queue.join("max_sectors_kb")).unwrap();
            let full = read.bytes / (largest.trim().parse::<u64>().unwrap() << 10);
            let batches = COUNT.div_ceil(MOST_RANGES) as u64;
            assert!(read.requests <= full + batches + pieces, "{fstype}: {read:?}");
        }
    }
}
