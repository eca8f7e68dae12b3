//! Whether others wait for a device: for those that used it before the replay began, the replay asks for less
//! at once.
//!
//! What a start reads by itself beside its replay looks like anybody's reads. So others are those that had
//! reads under way before the first request of the replay, when the start waited at its barrier or had just
//! begun; and as long as the device reads much that the replay has not asked for, they are still there.

use headstart_system::device::DeviceFacts;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// So often it is looked whether others still read.
const EVERY: Duration = Duration::from_millis(200);
/// They do if one byte in so many is theirs.
const PART: u64 = 8;
/// Reads under way before the first request that are others': a start that has begun may have one of its own.
const UNDER_WAY: u64 = 1;
const UNDER_WAY_BESIDE: u64 = 2;
/// More than the kernel tells of a device, bytes.
const MOST: usize = 1024;

/// Those who use a device beside the replay.
pub struct Others {
    /// `None` where nothing tells of the device.
    stat: Option<File>,
    wait: AtomicBool,
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
    /// Looks at a device before the first request. `beside` says whether the start has begun.
    pub fn before(facts: Option<&DeviceFacts>, beside: bool) -> Others {
        let stat = facts.and_then(|facts| File::open(facts.sysfs.join("stat")).ok());
        let inflight = facts.and_then(|facts| std::fs::read_to_string(facts.sysfs.join("inflight")).ok());
        let reads = inflight.as_deref().and_then(reads_under_way).unwrap_or(0);
        let enough = if beside { UNDER_WAY_BESIDE } else { UNDER_WAY };
        Others::new(stat, reads >= enough)
    }

    /// A device of which `stat` tells, and whether others wait for it.
    pub fn new(stat: Option<File>, wait: bool) -> Others {
        let bytes = stat.as_ref().and_then(bytes_read);
        Others {
            wait: AtomicBool::new(wait && bytes.is_some()),
            stat,
            own: AtomicU64::new(0),
            last: Mutex::new(Look {
                at: Instant::now(),
                bytes: bytes.unwrap_or(0),
                own: 0,
            }),
        }
    }

    /// Whether they do, as far as is known.
    pub fn wait(&self) -> bool {
        self.wait.load(Ordering::Relaxed)
    }

    /// The replay has read so many bytes.
    pub fn read(&self, bytes: u64) {
        self.own.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Looks whether they still read, if it is time to. Once they do not, nobody is taken for them any more.
    pub fn look(&self, now: Instant) {
        if !self.wait() {
            return;
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(last.at) < EVERY {
            return;
        }
        let Some(bytes) = self.stat.as_ref().and_then(bytes_read) else {
            self.wait.store(false, Ordering::Relaxed);
            return;
        };
        let look = Look {
            at: now,
            bytes,
            own: self.own.load(Ordering::Relaxed),
        };
        let all = look.bytes.saturating_sub(last.bytes);
        let theirs = all.saturating_sub(look.own.saturating_sub(last.own));
        *last = look;
        self.wait
            .store(theirs > 0 && theirs >= all / PART, Ordering::Relaxed);
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

    #[test]
    fn others_are_who_read_before_and_as_long_as_they_read() {
        let dir = tempfile::tempdir().unwrap();
        let has_read = |sectors: u64| {
            let text = format!("   9 0 {sectors} 5 1 2 3 4 1 6 7\n");
            std::fs::write(dir.path().join("stat"), text).unwrap();
        };
        has_read(1000);
        for (reads, beside, wait) in [
            (0, false, false),
            (1, false, true),
            (1, true, false),
            (2, true, true),
        ] {
            std::fs::write(dir.path().join("inflight"), format!("       {reads}       9\n")).unwrap();
            let facts = DeviceFacts {
                sysfs: dir.path().into(),
                ..DeviceFacts::default()
            };
            assert_eq!(
                Others::before(Some(&facts), beside).wait(),
                wait,
                "{reads} {beside}"
            );
        }
        assert!(!Others::before(None, false).wait());
        let (others, begun) = (
            Others::new(File::open(dir.path().join("stat")).ok(), true),
            Instant::now(),
        );
        has_read(1000 + 1000);
        others.read(100 * 512);
        others.look(begun + EVERY / 2);
        others.look(begun + 2 * EVERY);
        assert!(others.wait(), "nine tenths are theirs");
        has_read(2000 + 1000);
        others.read(950 * 512);
        others.look(begun + 5 * EVERY / 2);
        assert!(others.wait(), "not yet time to look");
        others.look(begun + 4 * EVERY);
        assert!(!others.wait(), "a twentieth is theirs");
        has_read(90_000);
        others.look(begun + 9 * EVERY);
        assert!(!others.wait(), "it may be the start");
    }

    #[test]
    fn where_nothing_tells_of_a_device_nobody_waits_for_it() {
        assert!(!Others::new(None, true).wait());
        let empty = tempfile::tempfile().unwrap();
        assert!(!Others::new(Some(empty), true).wait());
        assert_eq!(reads_under_way(""), None);
    }
}
