//! Whether others wait for a device: for those that used it before the replay began, the replay asks for less
//! at once.
//!
//! What a start reads by itself beside its replay looks like anybody's reads. So others are those that had
//! reads under way before the first request of the replay, when the start waited at its barrier; and that go
//! on: headstart's own program may just have been read, too. Where the start has begun nobody is another.

use headstart_system::device::DeviceFacts;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So often it is looked whether others read.
const EVERY: Duration = Duration::from_millis(200);
/// They do if one byte in so many is theirs.
const PART: u64 = 8;
/// More than the kernel tells of a device, bytes.
const MOST: usize = 1024;

/// Nobody else is at the device.
const NOBODY: u8 = 0;
/// Somebody was; one look more has to find them.
const SOMEBODY: u8 = 1;
/// One look has found them.
const FOUND: u8 = 2;
/// Two have: they wait.
const WAIT: u8 = 3;

/// Those who use a device beside the replay.
pub struct Others {
    /// `None` where nothing tells of the device.
    stat: Option<File>,
    state: AtomicU8,
    /// Bytes that the replay has read.
    own: AtomicU64,
    last: Mutex<Look>,
}

/// A look at the device.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    /// Bytes that it has read, and those of the replay.
    bytes: u64,
    own: u64,
}

impl Others {
    /// Looks at a device before the first request of a replay whose start waits at its barrier.
    pub fn before(facts: &DeviceFacts) -> Others {
        let inflight = std::fs::read_to_string(facts.sysfs.join("inflight")).ok();
        let reads = inflight.as_deref().and_then(reads_under_way).unwrap_or(0);
        match reads > 0 {
            true => Others::new(File::open(facts.sysfs.join("stat")).ok()),
            false => Others::nobody(),
        }
    }

    /// Nobody is taken for others.
    pub fn nobody() -> Others {
        Others::new(None)
    }

    /// Somebody is at a device of which `stat` tells.
    fn new(stat: Option<File>) -> Others {
        let bytes = stat.as_ref().and_then(bytes_read);
        Others {
            state: AtomicU8::new(if bytes.is_some() { SOMEBODY } else { NOBODY }),
            stat,
            own: AtomicU64::new(0),
            last: Mutex::new(Look {
                at: Instant::now(),
                bytes: bytes.unwrap_or(0),
                own: 0,
            }),
        }
    }

    /// Others that wait from the beginning, by what `stat` tells.
    #[cfg(test)]
    pub fn waiting(stat: File) -> Others {
        let others = Others::new(Some(stat));
        others.state.store(WAIT, Ordering::Relaxed);
        others
    }

    /// Whether they wait, as far as is known.
    pub fn wait(&self) -> bool {
        self.state.load(Ordering::Relaxed) == WAIT
    }

    /// The replay has read so many bytes.
    pub fn read(&self, bytes: u64) {
        self.own.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Looks whether they read, if it is time to; whether they are found to wait by that. Once they do not
    /// read, nobody is taken for them any more.
    pub fn look(&self, now: Instant) -> bool {
        let before = self.state.load(Ordering::Relaxed);
        if before == NOBODY {
            return false;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(last.at) < EVERY {
            return false;
        }
        let bytes = self.stat.as_ref().and_then(bytes_read);
        let look = Look {
            at: now,
            bytes: bytes.unwrap_or(last.bytes),
            own: self.own.load(Ordering::Relaxed),
        };
        let all = look.bytes.saturating_sub(last.bytes);
        let theirs = all.saturating_sub(look.own.saturating_sub(last.own));
        *last = look;
        let read = theirs > 0 && theirs >= all / PART;
        let after = if read { (before + 1).min(WAIT) } else { NOBODY };
        self.state.store(after, Ordering::Relaxed);
        (before, after) == (FOUND, WAIT)
    }
}

/// Reads under way, from `reads writes` (Documentation/block/stat.rst).
fn reads_under_way(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// Bytes that were read: the third number is sectors of 512 bytes (Documentation/block/stat.rst).
fn bytes_read(stat: &File) -> Option<u64> {
    let mut text = [0; MOST];
    let length = stat.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..length)?).ok()?;
    let sectors: u64 = text.split_ascii_whitespace().nth(2)?.parse().ok()?;
    sectors.checked_mul(512)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that has read so many sectors, with so many reads under way.
    struct Disk(tempfile::TempDir);

    impl Disk {
        fn new(reads: u64) -> Disk {
            let disk = Disk(tempfile::tempdir().unwrap());
            disk.has_read(1000);
            std::fs::write(
                disk.0.path().join("inflight"),
                format!("       {reads}       9\n"),
            )
            .unwrap();
            disk
        }

        fn has_read(&self, sectors: u64) {
            let text = format!("   9 0 {sectors} 5 1 2 3 4 1 6 7\n");
            std::fs::write(self.0.path().join("stat"), text).unwrap();
        }

        fn others(&self) -> Others {
            let facts = DeviceFacts {
                sysfs: self.0.path().into(),
                ..DeviceFacts::default()
            };
            Others::before(&facts)
        }
    }

    #[test]
    fn others_are_who_read_before_and_go_on() {
        let (disk, begun) = (Disk::new(2), Instant::now());
        let others = disk.others();
        let look = |turn| others.look(begun + turn * EVERY + EVERY / 10);
        disk.has_read(2000);
        others.read(100 * 512);
        assert!(!others.look(begun + EVERY / 2), "it is not time to look");
        assert!(!look(2) && !others.wait(), "found once");
        disk.has_read(3000);
        assert!(look(3) && others.wait(), "and again");
        disk.has_read(4000);
        others.read(500 * 512);
        assert!(!look(4) && others.wait(), "half is theirs");
        disk.has_read(5000);
        others.read(950 * 512);
        assert!(!look(5) && !others.wait(), "a twentieth is theirs");
        disk.has_read(90_000);
        assert!(!look(9) && !others.wait(), "it may be the start");
    }

    #[test]
    fn who_has_read_only_before_is_nobody() {
        let (disk, begun) = (Disk::new(1), Instant::now());
        let others = disk.others();
        // As headstart's own program, whose last pages have just come.
        disk.has_read(1500);
        assert!(!others.look(begun + 2 * EVERY));
        assert!(!others.look(begun + 4 * EVERY));
        disk.has_read(9000);
        assert!(!others.look(begun + 6 * EVERY) && !others.wait());
    }

    #[test]
    fn somebody_is_who_reads_before_the_first_request() {
        for (reads, expected) in [(0, NOBODY), (1, SOMEBODY), (40, SOMEBODY)] {
            assert_eq!(Disk::new(reads).others().state.into_inner(), expected, "{reads}");
        }
    }

    #[test]
    fn where_nothing_tells_of_a_device_nobody_waits_for_it() {
        let later = Instant::now() + 9 * EVERY;
        assert!(!Others::nobody().look(later));
        let empty = Others::new(Some(tempfile::tempfile().unwrap()));
        assert!(!empty.look(later) && !empty.wait());
        let none = Others::before(&DeviceFacts::default());
        assert_eq!((none.state.into_inner(), reads_under_way("")), (NOBODY, None));
    }
}
