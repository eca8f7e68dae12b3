//! A device of a plan as it is now: how much it is asked for at once, and its node if the plan's metadata
//! requests may be read from it.

use crate::options::Options;
use crate::others::Others;
use crate::pace::Pace;
use crate::request::{Reason, absent};
use headstart_model::PageRange;
use headstart_model::machine::{Compression, Cost, DeviceClass};
use headstart_model::plan::PlanDevice;
use headstart_system::device::{DeviceFacts, request_limit};
use headstart_system::ext4::Superblock;
use headstart_system::files::{Type, stat};
use headstart_system::mounts::{Mount, MountTable};
use headstart_system::process::processors;
use headstart_system::read_ahead::MOST_RANGES;
use headstart_system::residency;
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The most threads for one device. A deeper queue is reached by each having several requests in flight.
pub const MAX_THREADS: u32 = 32;
/// The deepest queue, the plan's format allows no more either.
const MAX_DEPTH: u32 = 256;
/// A disk's queue: one request under the head, the next ones so near that it does not miss their place. On a
/// modelled disk 2,000 small files took 1.4 times the ideal with one, 1.12 with two, 1.08 with four and not
/// less with 64.
const DISK_DEPTH: std::ops::RangeInclusive<u32> = 4..=8;
/// A disk's queue beside a start that is under way. Whenever the disk has nothing more of the replay in its
/// queue it does what the start asks for, there and back; with more in the queue that waits until the head
/// passes. Python beside its replay on a modelled disk: 5.5 s with 4, 4.7 with 8, 3.8 with 16, 3.7 with
/// 32, 4.0 with 64 (medians of three to five turns on a busy machine). What others ask for waits longer, too,
/// so it is not more than that.
const BESIDE_DEPTH: u32 = 16;
/// Elsewhere there is one request more for every so many that the device serves at once: it waits at the
/// device while a thread wakes up to send the next. On a busy machine that made 2,000 reads of 4 ms, 16 at
/// once, take 1.1 times the ideal instead of 1.25; what the program itself asks for waits a fifth of a read
/// longer.
pub const SPARE: u32 = 4;
/// Requests at once for a device that answers later than its plan says: what a volume over a network was
/// found to serve. Fewer leave the latency to be waited for, more only wait at the device.
const LATE_DEPTH: u32 = 16;

/// How a device is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Threads that take requests in turn.
    pub threads: u32,
    /// Requests in flight per thread.
    pub window: u32,
    /// Bytes asked for in one call.
    pub chunk: u64,
}

impl Shape {
    /// The shape for a device class, with at most `depth` requests in flight and `limit` bytes in one call.
    pub fn new(class: DeviceClass, depth: u32, wanted: Option<u32>, limit: u32, page: u64) -> Shape {
        let depth = match (wanted, class) {
            (Some(depth), _) => depth,
            (None, DeviceClass::Disk) => depth.clamp(*DISK_DEPTH.start(), *DISK_DEPTH.end()),
            (None, _) => depth.saturating_add((depth / SPARE).max(1)),
        }
        .clamp(1, MAX_DEPTH);
        let (threads, chunk) = match class {
            // One stream: two would make the head jump between them.
            DeviceClass::Disk => (1, u64::from(limit)),
            _ => (depth.min(MAX_THREADS), u64::from(limit)),
        };
        Shape {
            threads,
            window: depth.div_ceil(threads),
            chunk: (chunk / page * page).max(page),
        }
    }

    /// As it becomes where answers come later than planned: on a disk, whose head is its order, as it is.
    fn late(self, class: DeviceClass) -> Shape {
        let deep = Shape::new(class, LATE_DEPTH, None, 0, 1);
        match class {
            DeviceClass::Disk => self,
            _ if deep.at_once() <= self.at_once() => self,
            _ => Shape {
                chunk: self.chunk,
                ..deep
            },
        }
    }

    /// Asks for whole compressed blocks: the kernel reads all of a block of which it is asked for a part, and
    /// two threads that ask for parts of one have it decompressed twice.
    fn of_blocks(self, compression: Compression) -> Shape {
        let block = u64::from(compression.block);
        Shape {
            chunk: (self.chunk / block * block).max(block),
            ..self
        }
    }

    /// Requests in flight.
    pub fn at_once(self) -> u32 {
        self.threads * self.window
    }

    /// Look-ups in flight: on a disk one.
    pub fn in_flight(self) -> u32 {
        match self.threads {
            1 => 1,
            _ => self.at_once(),
        }
    }

    /// The most files that are open only because they are read from, where each asks for `each` at once: what
    /// is in flight, what is asked for next, and what opening one takes.
    pub fn most_open(self, each: usize) -> usize {
        self.threads as usize * ((self.window as usize + 1) * each + 1)
    }

    /// As how many may be open at once for each that is in flight, of so many in all; at least 1.
    pub fn each_open(self, all: usize) -> usize {
        (all / self.most_open(1)).clamp(1, MOST_RANGES)
    }
}

/// The block device of a file system.
pub struct Block {
    fd: OwnedFd,
    /// Bytes.
    pub size: u64,
    /// Whether file system blocks are smaller than pages. Then the file system may have read a part of a
    /// page, and readahead leaves pages that exist as they are: see [`Block::complete`].
    partial_pages: bool,
}

impl Block {
    /// Its descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Pages of `[offset, offset + length)` wholly in memory. By mincore(2): to cachestat(2) a page of which
    /// one block was read is like any other.
    pub fn resident(&self, offset: u64, length: u64) -> io::Result<Vec<PageRange>> {
        let ranges = residency::resident(self.fd(), offset, length)?;
        let range = |r: std::ops::Range<u64>| PageRange {
            start: r.start,
            end: r.end,
        };
        Ok(ranges.into_iter().map(range).collect())
    }

    /// Reads what readahead left out of `pages`.
    pub fn complete(&self, pages: PageRange) -> io::Result<()> {
        if !self.partial_pages {
            return Ok(());
        }
        let page = rustix::param::page_size() as u64;
        let resident = self.resident(pages.start * page, pages.pages() * page)?;
        for number in absent(pages, &resident).iter().flat_map(|r| r.start..r.end) {
            rustix::io::pread(&self.fd, &mut [0u8], number * page)?;
        }
        Ok(())
    }
}

/// A device as it is now.
pub struct Device {
    /// How to ask it, and if it answers later than planned.
    shapes: [Shape; 2],
    pace: Pace,
    /// Who else uses it.
    pub others: Others,
    /// Its node, or why its metadata is not read.
    pub block: Result<Block, Reason>,
}

impl Device {
    /// Looks at the device. Its node is opened only if `metadata` is to be read from it.
    pub fn open(planned: &PlanDevice, mounts: &MountTable, options: &Options, metadata: bool) -> Device {
        let mount = mounts
            .lookup(planned.mount_point.as_bytes())
            .filter(|m| m.mount_point == planned.mount_point && mounts.is_local(m));
        let facts = mount.and_then(DeviceFacts::of_mount);
        // Less than planned if the device's limits were changed since.
        let limit = mount.map_or(planned.request_limit, |m| {
            request_limit(m, facts.as_ref(), &planned.uuid).min(planned.request_limit)
        });
        let others = match &facts {
            Some(facts) if options.gives_way && !options.beside => Others::before(facts),
            _ => Others::nobody(),
        };
        let block = match (mount, facts) {
            _ if !metadata => Err(Reason::Missing),
            (Some(mount), Some(facts)) => block(mount, &facts, &planned.uuid),
            (Some(_), None) => Err(Reason::Missing),
            (None, _) => Err(match mounts.lookup(planned.mount_point.as_bytes()) {
                Some(other) if !mounts.is_local(other) => Reason::NotLocal,
                _ => Reason::Changed,
            }),
        };
        let page = rustix::param::page_size() as u64;
        Device {
            shapes: Device::shapes(planned, options, limit, page),
            pace: Pace::new(planned.cost),
            others,
            block,
        }
    }

    /// One without a node that is asked like this.
    #[cfg(test)]
    pub fn of_shape(shape: Shape, others: Others) -> Device {
        Device {
            shapes: [shape; 2],
            pace: Pace::new(headstart_model::testing::DISK),
            others,
            block: Err(Reason::Missing),
        }
    }

    /// How one is asked as planned, and if it answers later than that.
    fn shapes(planned: &PlanDevice, options: &Options, limit: u32, page: u64) -> [Shape; 2] {
        let Cost { class, depth, .. } = planned.cost;
        let limit = match class {
            DeviceClass::Disk => limit,
            _ => limit.min(planned.cost.piece() as u32),
        };
        let beside = (options.beside && class == DeviceClass::Disk).then_some(BESIDE_DEPTH);
        let compression = planned.compression;
        let useful = compression.and_then(|of| of.useful_depth(planned.cost.latency, processors()?));
        let depth = depth.min(useful.unwrap_or(u32::MAX));
        let shape = Shape::new(class, depth, options.depth.or(beside), limit, page);
        let shape = compression.map_or(shape, |of| shape.of_blocks(of));
        let late = match options.depth {
            Some(_) => shape,
            None => shape.late(class),
        };
        [shape, late]
    }

    /// How a planned device may come to be asked, but for how much at once: that is known once it was looked
    /// at.
    pub fn planned(planned: &PlanDevice, options: &Options) -> [Shape; 2] {
        Device::shapes(planned, options, 0, 1)
    }

    /// How to ask it, as far as is known by now.
    pub fn shape(&self) -> Shape {
        self.shapes[usize::from(self.pace.is_late())]
    }

    /// A read of so many bytes was waited for.
    pub fn note_read(&self, bytes: u64, time: Duration) {
        self.others.read(bytes);
        self.pace.note_read(bytes, time);
    }
}

/// Opens the node of a mounted ext2/3/4 file system if it still is the planned one.
fn block(mount: &Mount, facts: &DeviceFacts, uuid: &[u8; 16]) -> Result<Block, Reason> {
    // Only these find metadata that was read through the block device; and only their UUID is known where to
    // look for.
    if !matches!(mount.fstype.as_str(), "ext2" | "ext3" | "ext4")
        || (facts.major, facts.minor) != (mount.major, mount.minor)
        || *uuid == [0; 16]
    {
        return Err(Reason::Changed);
    }
    let node = facts.node.as_ref().ok_or(Reason::Missing)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = rustix::fs::open(node, flags, Mode::empty()).map_err(|error| match error {
        Errno::ACCESS | Errno::PERM => Reason::Denied,
        Errno::NOENT => Reason::Missing,
        _ => Reason::Failed,
    })?;
    let node = stat(&fd).map_err(|_| Reason::Failed)?;
    if node.kind != Type::Special || node.rdev != (mount.major, mount.minor) {
        return Err(Reason::Changed);
    }
    let _ = rustix::fs::fadvise(&fd, 0, None, Advice::Random);
    // That of a mounted file system is in memory.
    let superblock = Superblock::read(&fd).map_err(|_| Reason::Failed)?;
    let superblock = superblock.filter(|s| s.uuid == *uuid).ok_or(Reason::Changed)?;
    Ok(Block {
        fd,
        size: facts.size,
        partial_pages: superblock.block_size < rustix::param::page_size() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_one_stream_and_others_a_thread_per_request() {
        let shape = |class, depth, wanted| Shape::new(class, depth, wanted, 128 << 10, 4096);
        let one = Shape {
            threads: 1,
            window: 4,
            chunk: 128 << 10,
        };
        assert_eq!(shape(DeviceClass::Disk, 1, None), one);
        assert_eq!(shape(DeviceClass::Disk, 32, None), Shape { window: 8, ..one });
        assert_eq!(shape(DeviceClass::Disk, 1, Some(1)), Shape { window: 1, ..one });
        let flash = Shape {
            threads: 20,
            window: 1,
            chunk: 128 << 10,
        };
        assert_eq!(shape(DeviceClass::Flash, 16, None), flash);
        let deep = Shape {
            threads: 32,
            window: 5,
            ..flash
        };
        assert_eq!(shape(DeviceClass::Network, 128, None), deep);
        assert_eq!(shape(DeviceClass::Network, 1, None).threads, 2);
        let exact = Shape { threads: 16, ..flash };
        assert_eq!(shape(DeviceClass::Network, 128, Some(16)), exact);
    }

    #[test]
    fn what_answers_late_is_asked_for_more_at_once() {
        let late = |class, depth| {
            let shape = Shape::new(class, depth, None, 128 << 10, 4096);
            (shape, shape.late(class))
        };
        let (shape, became) = late(DeviceClass::Flash, 1);
        assert_eq!((shape.at_once(), became.at_once()), (2, 20));
        assert_eq!(became.chunk, shape.chunk);
        for (class, depth) in [(DeviceClass::Network, 64), (DeviceClass::Disk, 1)] {
            let (shape, became) = late(class, depth);
            assert_eq!(shape, became);
        }
        // A device is one from the answer on that makes it so; one that is asked as a user wants it stays so.
        let planned = PlanDevice::new(
            "/".into(),
            headstart_model::machine::Cost {
                class: DeviceClass::Flash,
                bandwidth: 500e6,
                latency: 161e-6,
                depth: 1,
            },
        );
        let mut disk = planned.clone();
        disk.cost.class = DeviceClass::Disk;
        for (planned, beside, at_once) in [(&disk, false, 4), (&disk, true, 16), (&planned, true, 2)] {
            let options = Options {
                beside,
                ..Options::new(std::time::Instant::now())
            };
            let device = Device::open(planned, &MountTable::default(), &options, false);
            assert_eq!(device.shape().at_once(), at_once);
        }
        for (depth, becomes) in [(None, 20), (Some(3), 3)] {
            let options = Options {
                depth,
                ..Options::new(std::time::Instant::now())
            };
            let device = Device::open(&planned, &MountTable::default(), &options, false);
            let asked = device.shape();
            assert_eq!(asked.at_once(), depth.unwrap_or(2));
            (0..3).for_each(|_| device.note_read(4096, Duration::from_millis(33)));
            assert_eq!(device.shape().at_once(), becomes);
        }
    }

    #[test]
    fn compressed_blocks_are_not_cut_and_no_more_are_decompressed_than_processors_can() {
        let shape = |limit: u32, block, rate| {
            let cost = Cost {
                class: DeviceClass::Flash,
                bandwidth: 500e6,
                latency: 1e-4,
                depth: 200,
            };
            let planned = PlanDevice {
                compression: Some(Compression { block, rate }),
                ..PlanDevice::new("/".into(), cost)
            };
            Device::shapes(&planned, &Options::new(std::time::Instant::now()), limit, 4096)[0]
        };
        let chunk = |limit, block| shape(limit, block, 0).chunk;
        assert_eq!(chunk(128 << 10, 1 << 20), 1 << 20);
        assert_eq!(chunk(160 << 10, 128 << 10), 128 << 10);
        assert_eq!(chunk(8 << 20, 128 << 10), 512 << 10);
        // 21 ms each. With one more in flight for every four, and one at least.
        let at_once = shape(128 << 10, 1 << 20, 50).at_once();
        let most = processors().unwrap() + 1;
        assert!(at_once <= most + (most / SPARE).max(1), "{at_once}");
        assert_eq!(shape(128 << 10, 1 << 20, 0).at_once(), 256);
    }

    #[test]
    fn what_may_be_open_is_shared_out() {
        for (class, depth) in [
            (DeviceClass::Disk, 1),
            (DeviceClass::Flash, 16),
            (DeviceClass::Network, 256),
        ] {
            let shape = Shape::new(class, depth, None, 128 << 10, 4096);
            assert_eq!(shape.each_open(0), 1);
            assert_eq!(shape.each_open(1 << 20), MOST_RANGES);
            let each = shape.each_open(450);
            assert!(each == 1 || shape.most_open(each) <= 450, "{shape:?}: {each}");
        }
    }

    #[test]
    fn calls_are_whole_pages_and_not_too_large() {
        let chunk = |limit| Shape::new(DeviceClass::Flash, 1, None, limit, 4096).chunk;
        assert_eq!(chunk(2560 << 10), 2560 << 10);
        assert_eq!(chunk(10_000), 8192);
        assert_eq!(chunk(1), 4096);
    }
}
