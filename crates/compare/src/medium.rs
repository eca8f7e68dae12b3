//! What a start reads of a medium, and what the same reads take on media of two kinds: whether files in
//! another order pay.

use headstart_model::blocks::BlockRead;
use headstart_model::trace::{Filesystem, WRITTEN_ONCE};
use serde::Serialize;
use std::collections::HashMap;

/// A 24x CD-ROM drive: 10 ms to the next track, 94 ms on average, which is a third of the medium; half a turn
/// with each; 1.6 MB/s inside, where an image begins (`lab/models/cdrom24x.toml` has the sources).
const NEAR_JUMP: f64 = 10e-3;
const AVERAGE_JUMP: f64 = 94e-3;
const HALF_TURN: f64 = 5.8e-3;
const OPTICAL_RATE: f64 = 1.6e6;
/// A CD-ROM's size, for jumps are longer the larger a part of it they cross.
const OPTICAL_SIZE: f64 = 700e6;
/// A USB 2.0 stick: 0.85 ms a request, 30 MB/s (`lab/models/usb2-stick.toml`).
const STICK_REQUEST: f64 = 853e-6;
const STICK_RATE: f64 = 30e6;
/// Less than so much more or less is no difference.
const NOTICEABLE: f64 = 0.02;

/// How a medium was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MediumReads {
    /// Requests.
    pub requests: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Requests that do not begin where the one before ended.
    pub jumps: u64,
    /// Bytes that these lead over, forward and back.
    pub travel: u64,
    /// Time in which at least one request was under way, nanoseconds: on the medium of the trace.
    pub busy_ns: u64,
    /// What they would take one after another on a CD-ROM, seconds.
    pub optical_seconds: f64,
    /// The same on a USB 2.0 stick.
    pub stick_seconds: f64,
}

/// A start before and after files were put into another order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Orders {
    /// Before.
    pub before: MediumReads,
    /// After.
    pub after: MediumReads,
}

/// What another order is worth on a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Worth {
    /// It takes less time.
    Pays,
    /// It takes as much.
    Same,
    /// It takes more.
    Costs,
}

impl Worth {
    /// By times before and after, in one unit.
    pub fn of(before: f64, after: f64) -> Worth {
        if after > before * (1.0 + NOTICEABLE) {
            Worth::Costs
        } else if after < before * (1.0 - NOTICEABLE) {
            Worth::Pays
        } else {
            Worth::Same
        }
    }
}

impl MediumReads {
    /// Of the reads of one device: of those that hold a file system that is written once, where there are
    /// any, the one of which most was read. In the order of their issue.
    pub fn of(reads: &[BlockRead], filesystems: &[Filesystem]) -> MediumReads {
        let mut bytes: HashMap<(u32, u32), u64> = HashMap::new();
        for read in reads {
            *bytes.entry((read.major, read.minor)).or_default() += read.range.length;
        }
        let is_medium = |device: &(u32, u32)| {
            filesystems
                .iter()
                .any(|it| (it.major, it.minor) == *device && WRITTEN_ONCE.contains(&it.fstype.as_str()))
        };
        if bytes.keys().any(is_medium) {
            bytes.retain(|device, _| is_medium(device));
        }
        // Of two alike the lower number.
        let most = bytes
            .into_iter()
            .max_by_key(|((major, minor), bytes)| (*bytes, std::cmp::Reverse((*major, *minor))));
        let Some((device, _)) = most else {
            return MediumReads::default();
        };
        let mut reads: Vec<&BlockRead> = reads
            .iter()
            .filter(|read| (read.major, read.minor) == device)
            .collect();
        reads.sort_by_key(|read| read.issued_ns);
        let mut all = MediumReads {
            busy_ns: busy_ns(&reads),
            ..MediumReads::default()
        };
        let mut head = None;
        for read in reads {
            all.add(read, head);
            head = Some(read.range.start.saturating_add(read.range.length));
        }
        all
    }

    fn add(&mut self, read: &BlockRead, head: Option<u64>) {
        let length = read.range.length as f64;
        self.requests += 1;
        self.bytes += read.range.length;
        self.stick_seconds += STICK_REQUEST + length / STICK_RATE;
        self.optical_seconds += length / OPTICAL_RATE;
        let Some(head) = head.filter(|head| *head != read.range.start) else {
            return;
        };
        let far = head.abs_diff(read.range.start);
        self.jumps += 1;
        self.travel = self.travel.saturating_add(far);
        let third = OPTICAL_SIZE / 3.0;
        let seek = NEAR_JUMP + (AVERAGE_JUMP - NEAR_JUMP) * (far as f64 / third).min(3.0).sqrt() + HALF_TURN;
        // What lies ahead and is near passes below the head.
        let passes = match read.range.start > head {
            true => far as f64 / OPTICAL_RATE,
            false => f64::INFINITY,
        };
        self.optical_seconds += seek.min(passes);
    }
}

/// The time in which at least one of the reads, which are in the order of their issue, was under way.
fn busy_ns(reads: &[&BlockRead]) -> u64 {
    let (mut busy, mut until) = (0u64, i64::MIN);
    for read in reads {
        if let (Some(issued), Some(completed)) = (read.issued_ns, read.completed_ns) {
            let from = issued.max(until);
            busy = busy.saturating_add(u64::try_from(completed.saturating_sub(from)).unwrap_or(0));
            until = until.max(completed);
        }
    }
    busy
}

#[cfg(test)]
mod tests {
    use super::*;
    use headstart_model::machine::ByteRange;

    fn read(minor: u32, start: u64, length: u64, issued: i64, completed: i64) -> BlockRead {
        BlockRead {
            major: 7,
            minor,
            range: ByteRange { start, length },
            issued_ns: Some(issued),
            completed_ns: Some(completed),
            by_start: None,
        }
    }

    #[test]
    fn jumps_are_counted_in_the_order_of_issue_and_of_the_device_that_is_read_most() {
        let reads = [
            read(0, 8192, 4096, 20, 30),
            read(0, 0, 4096, 0, 10),
            read(0, 4096, 4096, 5, 15),
            read(1, 1 << 30, 512, 0, 9),
            read(0, 4096, 4096, 100, 110),
        ];
        let all = MediumReads::of(&reads, &[]);
        assert_eq!((all.requests, all.bytes), (4, 16384));
        assert_eq!((all.jumps, all.travel), (1, 8192));
        assert_eq!(all.busy_ns, 15 + 10 + 10, "what overlaps counts once");
        let filesystem = |minor, fstype: &str| Filesystem {
            major: 7,
            minor,
            fstype: fstype.into(),
            mount_point: "/".into(),
            local: true,
        };
        let mounted = [filesystem(0, "ext4"), filesystem(1, "squashfs")];
        assert_eq!(
            MediumReads::of(&reads, &mounted).requests,
            1,
            "that of the medium"
        );
        assert_eq!(MediumReads::of(&[], &[]), MediumReads::default());
    }

    #[test]
    fn an_order_may_pay_on_one_medium_and_cost_on_another() {
        // Many small requests in address order, and few large ones at both ends of the medium by turns.
        let many: Vec<BlockRead> = (0..4000)
            .map(|i| read(0, i * 8192, 4096, i as i64, i as i64))
            .collect();
        let few: Vec<BlockRead> = (0..125)
            .map(|i| {
                read(
                    0,
                    i * 131_072 + (i % 2) * 500_000_000,
                    131_072,
                    i as i64,
                    i as i64,
                )
            })
            .collect();
        let (before, after) = (MediumReads::of(&many, &[]), MediumReads::of(&few, &[]));
        assert_eq!(before.bytes, after.bytes);
        assert_eq!(Worth::of(before.stick_seconds, after.stick_seconds), Worth::Pays);
        assert_eq!(
            Worth::of(before.optical_seconds, after.optical_seconds),
            Worth::Costs
        );
        assert_eq!(Worth::of(10.0, 10.1), Worth::Same);
    }
}
