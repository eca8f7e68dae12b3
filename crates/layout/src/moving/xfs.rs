//! XFS: the data is copied to the donor, and then the kernel exchanges both places, unless the file has
//! changed since.
//!
//! The exchange is atomic, also over a crash. That nothing was written to the file while it was copied is
//! known by its times: the kernel compares them under its locks (`XFS_IOC_COMMIT_RANGE`, Linux 6.12). They
//! are as fine as the kernel's tick, so a copy begins when the last change is older than that ([`settled`]).
//! A page that is mapped and written tells of it by the time, too, once it was protected again by being
//! written out; so the file is written out between the look at its times and the copy.

use super::mover::{Mover, copy, reopen};
use headstart_system::sys::xfs::{self, Commit};
use headstart_system::sys::{FIEMAP_BATCH, Fiemap};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// `XFS_FSOP_GEOM_FLAGS_EXCHANGE_RANGE`.
const EXCHANGE_RANGE: u32 = 1 << 24;
/// `FS_XFLAG_*` of a file that stays where it is, and why.
const STAY: [(u32, &str); 5] = [
    (0x1, "on the real-time device"),
    (0x8, "immutable"),
    (0x10, "append only"),
    (0x2000, "marked as not to be defragmented"),
    (0x8000, "mapped past the page cache (DAX)"),
];
/// `FIEMAP_EXTENT_SHARED`.
const SHARED: u32 = 0x2000;
/// A tick lasts 10 ms at most; after so many of them the file changes all the time.
const TICK: Duration = Duration::from_millis(10);
const TICKS: u32 = 5;

/// Moves by `XFS_IOC_COMMIT_RANGE`.
pub(super) struct Xfs {
    block: u64,
}

impl Xfs {
    /// The one at this root; `Err` says why nothing can be moved there.
    pub(super) fn open(root: BorrowedFd<'_>) -> Result<Xfs, String> {
        let geometry = xfs::geometry(root).map_err(|error| format!("cannot ask its XFS: {error}"))?;
        if geometry.flags & EXCHANGE_RANGE == 0 {
            return Err(
                "its file system, an XFS, was made without exchange-range: `xfs_admin -O exchange=1`, while it is not mounted, adds it (xfsprogs 6.10)"
                    .to_owned(),
            );
        }
        match Commit::start(root) {
            Ok(_) => Ok(Xfs {
                block: geometry.block.into(),
            }),
            Err(error) if error.raw_os_error() == Some(Errno::NOTTY.raw_os_error()) => Err(
                "on XFS this kernel cannot tell whether a file changed while it moved: Linux 6.12 can"
                    .to_owned(),
            ),
            Err(error) => Err(format!("cannot exchange ranges on its XFS: {error}")),
        }
    }
}

impl Mover for Xfs {
    fn block(&self) -> u64 {
        self.block
    }

    /// By a descriptor that was opened by its path an exchange would change the file's times.
    fn open(&self, root: BorrowedFd<'_>, pin: BorrowedFd<'_>) -> io::Result<File> {
        let reading = reopen(pin, OFlags::RDONLY)?;
        Ok(xfs::open_again(root, reading.as_fd())?.into())
    }

    fn keeps_size(&self) -> bool {
        true
    }

    fn why_immovable(&self, file: &File) -> io::Result<Option<&'static str>> {
        let flags = xfs::flags(file.as_fd())?;
        if let Some((_, why)) = STAY.iter().find(|(bit, _)| flags & bit != 0) {
            return Ok(Some(why));
        }
        // An exchange takes these away, as each write does.
        if file.metadata()?.mode() & 0o6000 != 0 {
            return Ok(Some("it is executed with the rights of another (setuid)"));
        }
        match rustix::fs::fgetxattr(file, "security.capability", &mut [0u8; 0][..]) {
            Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(Some("it is executed with capabilities of its own")),
        }
        Ok(is_shared(file)?.then_some("another file shares its data (reflink)"))
    }

    fn move_extent(
        &self,
        file: &File,
        start: u64,
        donor: BorrowedFd<'_>,
        to: u64,
        length: u64,
    ) -> io::Result<()> {
        let donor = File::from(donor.try_clone_to_owned()?);
        let commit = settled(file)?;
        file.sync_data()?;
        // A range ends at the end of the file or at a block; the donor grows with what is written to it, so
        // that both do.
        let length = length.min(file.metadata()?.len().saturating_sub(start));
        copy(file, start, &donor, to, length)?;
        commit.exchange(file.as_fd(), start, donor.as_fd(), to, length)
    }
}

/// The file as it is now. Whatever is written from now on gives it another time.
fn settled(file: &File) -> io::Result<Commit> {
    for _ in 0..TICKS {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let commit = Commit::start(file.as_fd())?;
        let facts = rustix::fs::fstat(file)?;
        let now = (now.tv_sec, now.tv_nsec);
        let changed =
            (facts.st_mtime, facts.st_mtime_nsec as i64).max((facts.st_ctime, facts.st_ctime_nsec as i64));
        if changed < now {
            return Ok(commit);
        }
        std::thread::sleep(TICK);
    }
    Err(Errno::BUSY.into())
}

/// Whether data of it is also another file's.
fn is_shared(file: &File) -> io::Result<bool> {
    let mut map = Fiemap::new();
    let mut start = 0;
    loop {
        let batch = map.get(file.as_fd(), start)?;
        if batch.iter().any(|extent| extent.flags & SHARED != 0) {
            return Ok(true);
        }
        let Some(last) = batch.last().filter(|_| batch.len() == FIEMAP_BATCH) else {
            return Ok(false);
        };
        start = last.logical.saturating_add(last.length);
    }
}
