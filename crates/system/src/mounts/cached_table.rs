//! The mount table of this process, read once: whoever asks again is given what was read, as long as the
//! kernel says that it holds.

use super::MountTable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What was read.
struct CachedTable {
    viewer: Viewer,
    /// The kernel notes by open file what it has told.
    file: File,
    table: MountTable,
    /// When what was read for those who can do with an older table will have been paid for, at [`SHARE`].
    paid: Instant,
    /// Whether somebody was given an older table, for that.
    waits: bool,
}

/// For those who can, reading the table again takes one part of so many of a processor's time, at most: where
/// containers come and go there are many mounts, and they change all the time.
const SHARE: u32 = 20;

/// That much is read at once before it has been paid for: what is mounted is often used at once, and a
/// program that starts there is to be seen.
const CREDIT: Duration = Duration::from_secs(1);

/// Whose view of the mounts it is: a child has a file of its own to be told by, and another namespace or root
/// has another table.
#[derive(PartialEq, Eq)]
struct Viewer {
    process: u32,
    namespace: PathBuf,
    /// The mount and the inode of the root.
    root: (u64, u64),
}

impl Viewer {
    /// This process; `None` where that cannot be told.
    fn now() -> Option<Viewer> {
        // DONT_SYNC: whatever the root is on, nobody is asked.
        let flags = AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        let root = statx(CWD, "/", flags, StatxFlags::MNT_ID | StatxFlags::INO).ok()?;
        Some(Viewer {
            process: std::process::id(),
            namespace: std::fs::read_link("/proc/self/ns/mnt").ok()?,
            root: (root.stx_mnt_id, root.stx_ino),
        })
    }
}

static KNOWN: Mutex<Option<CachedTable>> = Mutex::new(None);

/// The mounts of this process, with no root open; `in_time`: of a moment ago, if reading them again would
/// take too much time.
pub(super) fn table(in_time: bool) -> io::Result<MountTable> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Viewer::now();
    if let Some(known) = known.as_mut().filter(|known| Some(&known.viewer) == now.as_ref()) {
        let begun = Instant::now();
        // Not asked, the kernel has not told it either.
        known.waits = in_time && known.paid > begun + CREDIT;
        if !known.waits && has_changed(&known.file) {
            known.file.seek(SeekFrom::Start(0))?;
            known.table = MountTable::read_of(&mut known.file)?;
            known.paid = known.paid.max(begun) + begun.elapsed() * SHARE;
        }
        return Ok(known.table.read_again());
    }
    let begun = Instant::now();
    if let Some(before) = known
        .take()
        .filter(|before| before.viewer.process != std::process::id())
    {
        // The parent's. A child may have closed all that it was given, and the number be another file's by
        // now.
        std::mem::forget(before.file);
    }
    let mut file = File::open("/proc/self/mountinfo")?;
    let table = MountTable::read_of(&mut file)?;
    let again = table.read_again();
    *known = now.map(|viewer| CachedTable {
        viewer,
        file,
        table,
        paid: begun + begun.elapsed() * SHARE,
        waits: false,
    });
    Ok(again)
}

/// In what time the table may be read again, where somebody was given an older one for that; `None` where all
/// have that of now.
pub(super) fn waits_for() -> Option<Duration> {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let waiting = known.as_ref().filter(|known| known.waits);
    waiting.map(|known| known.paid.saturating_duration_since(Instant::now() + CREDIT))
}

/// Whether something was mounted or unmounted since the file was asked last.
fn has_changed(file: &File) -> bool {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let changed = poll(&mut [PollFd::new(file, PollFlags::PRI)], Some(&at_once));
    changed.is_ok_and(|ready| ready > 0)
}
